//! Which processes still run when the program has ended: daemons, background jobs.

use std::collections::{BTreeMap, BTreeSet};

use hither_ids::Pid;
use hither_kernel::pid_namespace::ForeignProcesses;
use hither_kernel::process::was_started_by;

use super::streams::{Image, NamespacedPid};

/// The ids, in this pid namespace, of processes that have one of these images and still run, and of
/// those that have the library `attached`: a forked child is silent until it uses a file. A process
/// that has got the id of one since is not among them.
pub(crate) fn running(images: &[Image], attached: &[Pid]) -> BTreeSet<Pid> {
    let announced = images.iter().map(|image| (image.pid, image.time_ns));
    let announced: BTreeMap<NamespacedPid, u64> = announced.collect();
    let mut foreign = ForeignProcesses::default();
    if announced.keys().any(|pid| !pid.namespace.is_own()) {
        foreign.update();
    }
    let here = |&NamespacedPid { namespace, pid }: &NamespacedPid| {
        if namespace.is_own() {
            Some(pid)
        } else {
            foreign.number_here(namespace, pid)
        }
    };
    let running = announced.iter().filter_map(|(pid, &time_ns)| {
        let pid = here(pid)?;
        was_started_by(pid, time_ns).then_some(pid)
    });
    running.chain(attached.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use hither_kernel::process::monotonic_ns;

    use super::*;

    fn image(pid: Pid, time_ns: u64) -> Image {
        Image {
            pid: NamespacedPid::own(pid),
            time_ns,
            ..Image::default()
        }
    }

    #[test]
    fn processes_that_got_the_number_of_one_are_not_counted() {
        let long_ago_ns = monotonic_ns();
        // A process starts at a tick of the kernel's, a hundredth of a second.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let now_ns = monotonic_ns() + 10_000_000;
        let pid = Pid::of(&child);
        assert!(running(&[image(pid, long_ago_ns)], &[]).is_empty());
        let twice = [image(pid, long_ago_ns), image(pid, now_ns)];
        assert_eq!(running(&twice, &[]), BTreeSet::from([pid]));
        assert_eq!(
            running(&twice, &[pid, Pid(7)]),
            BTreeSet::from([Pid(7), pid])
        );
        child.kill().expect("killed");
        child.wait().expect("waited for");
        assert!(running(&twice, &[]).is_empty());
    }
}
