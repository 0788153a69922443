//! Tests: refusals, records by hand, and the page faults of this machine.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use super::*;
use hither_ids::{Address, Pid, Tid};
use hither_testing::skip::skip_on_this_machine;

fn opened(
    cpus: &[u32],
    answer: impl Fn(u32, bool) -> Result<(), i32>,
    paranoid: Option<i32>,
) -> Result<(Vec<u32>, bool), WatchError> {
    open_all(cpus, answer, || paranoid).map(|(events, with_kernel)| {
        (
            events.into_iter().map(|(cpu, ())| cpu).collect(),
            with_kernel,
        )
    })
}

#[test]
fn the_kernel_s_faults_are_left_out_where_they_are_not_allowed() {
    assert_eq!(opened(&[0, 1], |_, _| Ok(()), None), Ok((vec![0, 1], true)));
    let paranoid_2 = |_, with_kernel| {
        if with_kernel {
            Err(libc::EACCES)
        } else {
            Ok(())
        }
    };
    assert_eq!(opened(&[0, 1], paranoid_2, None), Ok((vec![0, 1], false)));
    // Refused halfway, as by a limit: all are opened alike.
    let halfway = |cpu, with_kernel| match (cpu, with_kernel) {
        (1, true) => Err(libc::EPERM),
        _ => Ok(()),
    };
    assert_eq!(
        opened(&[0, 1, 2], halfway, None),
        Ok((vec![0, 1, 2], false))
    );
}

#[test]
fn offline_cpus_are_left_out() {
    let offline = |cpu, _| match cpu {
        0 => Err(libc::ENODEV),
        _ => Ok(()),
    };
    assert_eq!(opened(&[0, 1], offline, None), Ok((vec![1], true)));
    assert_eq!(opened(&[0], offline, None), Err(WatchError::NoCpus));
}

#[test]
fn refusals_say_why() {
    let reason =
        |error: i32, paranoid| opened(&[0, 1], |_, _| Err(error), paranoid).expect_err("refused");
    let refused = reason(libc::EACCES, Some(3));
    assert_eq!(refused, WatchError::NotPermitted { paranoid: Some(3) });
    assert!(refused.to_string().contains("perf_event_paranoid is 3"));
    let filtered = reason(libc::EPERM, Some(1)).to_string();
    assert!(filtered.contains("container"), "{filtered}");
    for error in [libc::ENOSYS, libc::ENOENT, libc::EOPNOTSUPP] {
        assert_eq!(reason(error, None), WatchError::NoPerf);
    }
    let descriptors = reason(libc::EMFILE, None);
    assert!(descriptors.to_string().contains("2 CPUs"), "{descriptors}");
    assert_eq!(reason(libc::ENOMEM, None), WatchError::NoMemory);
    assert_eq!(reason(libc::EINVAL, None), WatchError::Other(libc::EINVAL));
}

#[test]
fn the_attributes_are_as_long_as_version_5() {
    assert_eq!(size_of::<Attributes>(), 112);
}

/// AMD's IBS refuses each of `exclude_user`, `exclude_kernel` and `exclude_hv`
/// (`PERF_PMU_CAP_NO_EXCLUDE`), or all but what its filter does in software.
#[test]
fn nothing_is_excluded_but_what_has_to_be() {
    const EXCLUDE_ANY: u64 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 19 | 1 << 20;
    let flags = |with_kernel| attributes(Event::PAGE_FAULTS, with_kernel, Scope::Started).flags;
    assert_eq!(flags(true) & EXCLUDE_ANY, 0);
    assert_eq!(flags(false) & EXCLUDE_ANY, EXCLUDE_KERNEL);
    let source = Event {
        with_source: true,
        ..Event::PAGE_FAULTS
    };
    let kinds =
        [Event::PAGE_FAULTS, source].map(|of| attributes(of, true, Scope::Started).sample_type);
    assert_eq!(kinds, [0b1000_1110, 0b1000_0000_1000_1110]);
}

/// A ring as `struct perf_event_mmap_page` and the records of linux/perf_event.h lay it out, by
/// hand, with room for `pages` pages of records. The kernel's counters begin at `at`.
struct Written {
    ring: Ring,
    head: u64,
}

impl Written {
    fn new(pages: usize, at: u64) -> Written {
        let page = page_bytes() as usize;
        let file = tempfile::tempfile().expect("a file");
        file.set_len(((1 + pages) * page) as u64).expect("its size");
        let ring = Ring::map(3, file.into(), pages).expect("mapped");
        for word in [DATA_HEAD, DATA_TAIL] {
            ring.control(word).store(at, Ordering::Relaxed);
        }
        Written { ring, head: at }
    }

    /// A record: kind, flags and what follows the header.
    fn record(&mut self, kind: u32, misc: u16, words: &[u64]) {
        let bytes = 8 + 8 * words.len() as u64;
        self.word(u64::from(kind) | u64::from(misc) << 32 | bytes << 48);
        words.iter().for_each(|&word| self.word(word));
    }

    /// A word, as the kernel writes it: here, to the file that is mapped.
    fn word(&mut self, word: u64) {
        let offset = self.head % self.ring.bytes as u64;
        let first = (self.ring.mapped_bytes() - self.ring.bytes) as u64;
        let file = File::from(self.ring.fd.try_clone().expect("a clone"));
        let written = file.write_all_at(&word.to_ne_bytes(), first + offset);
        written.expect("written");
        self.head += 8;
    }

    fn faults(&mut self) -> (Vec<Fault>, u64) {
        self.ring
            .control(DATA_HEAD)
            .store(self.head, Ordering::Release);
        let mut faults = Vec::new();
        let lost = self.ring.drain(&mut |record| faults.extend(record.fault()));
        let tail = self.ring.control(DATA_TAIL).load(Ordering::Acquire);
        assert_eq!(tail, self.head);
        (faults, lost)
    }
}

const USER: u16 = 2;

#[test]
fn records_are_read_where_they_wrap_around() {
    let page = page_bytes();
    // The second record wraps: its header is the last word but one of the ring.
    let mut written = Written::new(RING_PAGES_MIN, 4 * page - 56);
    let sample = |at: u64| [7 | 8 << 32, 1000 + at, 0x7f00_0000 + at, 3];
    let expected = |at: u64| Fault {
        time_ns: 1000 + at,
        address: Address(0x7f00_0000 + at),
        pid: Pid(7),
        tid: Tid(8),
        cpu: 3,
    };
    written.record(RECORD_SAMPLE, USER, &sample(0));
    written.record(RECORD_SAMPLE, USER, &sample(1));
    // Lost records; a throttle, which is passed over; lost samples.
    written.record(RECORD_LOST, 0, &[5, 40]);
    written.record(5, 0, &[1, 2, 3]);
    written.record(RECORD_LOST_SAMPLES, 0, &[2]);
    written.record(RECORD_SAMPLE, 1, &sample(2));
    let all: Vec<Fault> = (0..3).map(expected).collect();
    assert_eq!(written.faults(), (all, 42));
    assert_eq!(written.faults(), (Vec::new(), 0));
    // A header without a length: nothing after it can be read.
    written.word(0);
    written.record(RECORD_SAMPLE, USER, &sample(3));
    assert_eq!(written.faults(), (Vec::new(), 1));
    written.record(RECORD_SAMPLE, USER, &sample(4));
    assert_eq!(written.faults(), (vec![expected(4)], 0));
}

/// `mem_op`, `mem_lvl` and `mem_lvl_num` of `union perf_mem_data_src`.
fn data_source(op: u64, level: u64, number: u64) -> u64 {
    op | level << 5 | number << 33
}

/// What Linux's `arch/x86/events` writes for Intel's loads and stores and for AMD's IBS.
#[test]
fn accesses_that_a_cache_served_are_left_out() {
    let (na, load, store) = (1, 2, 4);
    let (hit, miss, l1, fill_buffer, l2, l3) = (0x02, 0x04, 0x08, 0x10, 0x20, 0x40);
    let (local, remote, remote_cache) = (0x80, 0x100, 0x400);
    let cases = [
        (data_source(load, hit | l1, 1), false),
        (data_source(load, hit | fill_buffer, 0xc), false),
        (data_source(load, hit | l2, 2), false),
        (data_source(load, hit | l3, 3), false),
        (data_source(load, hit | local, 0xd), true),
        (data_source(load, hit | remote, 0xd), true),
        (data_source(load, hit | remote_cache, 0xb), true),
        // IBS does not say more of a store that missed the L2; PEBS, of one that missed the L1.
        (data_source(store, 1, 0xf), true),
        (data_source(store, miss | l1, 1), true),
        (data_source(store, hit | l1, 1), false),
        // An instruction that is no access; a kernel that says nothing.
        (data_source(na, 1, 0xf), false),
        (0, true),
    ];
    let mut written = Written::new(RING_PAGES_MIN, 0);
    for (at, &(source, _)) in (0..).zip(&cases) {
        written.record(RECORD_SAMPLE, USER, &[7, 1, at, 3, source]);
    }
    let (faults, lost) = written.faults();
    let kept: Vec<u64> = faults.iter().map(|fault| fault.address.0).collect();
    let expected = (0..).zip(&cases).filter(|(_, (_, kept))| *kept);
    assert_eq!(kept, expected.map(|(at, _)| at).collect::<Vec<u64>>());
    assert_eq!(lost, 0);
}

/// What is recorded with and without the privilege to see all programs.
fn each_scope(test: impl Fn(&mut PerfRings)) {
    let opened = [
        PerfRings::open(),
        PerfRings::of(&[Event::PAGE_FAULTS]),
        PerfRings::on_each_cpu(&[Event::PAGE_FAULTS], Scope::AllPrograms),
    ];
    for rings in opened {
        match rings {
            Ok(mut rings) => test(&mut rings),
            Err(reason) => skip_on_this_machine(reason),
        }
    }
}

/// A shell that starts programs: their faults are seen, ours are not, and each CPU's are in
/// order of time.
#[test]
fn faults_of_a_program_and_of_what_it_starts_are_seen() {
    each_scope(|rings| {
        let script = "echo $$; sh -c 'echo $$; :'; sh -c 'echo $$; :'";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut faults = Vec::new();
        while child.try_wait().expect("waited for").is_none() {
            rings.drain(&mut |fault| faults.push(fault));
        }
        rings.drain(&mut |fault| faults.push(fault));
        let mut named = String::new();
        let mut output = child.stdout.take().expect("piped");
        output.read_to_string(&mut named).expect("read");
        let named: Vec<u32> = named
            .lines()
            .map(|pid| pid.parse().expect("a pid"))
            .collect();
        assert!(named.len() == 3 && named[0] == child.id(), "{named:?}");
        for pid in named {
            assert!(faults.iter().any(|fault| fault.pid == Pid(pid)), "{pid}");
        }
        assert!(faults.iter().all(|fault| fault.pid != Pid::own()));
        for &cpu in &sysfs::online_cpus().expect("CPUs") {
            let times = faults.iter().filter(|fault| fault.cpu == cpu);
            assert!(times.map(|fault| fault.time_ns).is_sorted());
        }
        assert_eq!(rings.lost(), 0);
        assert_eq!(rings.unwatched_cpus(), 0);
    });
}

#[test]
fn nothing_is_seen_while_it_is_off() {
    each_scope(|rings| {
        let mut child = Command::new("sh")
            .args(["-c", "read line; ls / >/dev/null"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let pid = child.id();
        // It waits for a line once it has started.
        let mut seen = 0;
        while seen == 0 {
            rings.drain(&mut |fault| seen += usize::from(fault.pid == Pid(pid)));
        }
        rings.watch(false).expect("off");
        rings.drain(&mut |_| ());
        drop(child.stdin.take());
        child.wait().expect("waited for");
        assert_eq!(rings.drain(&mut |_| ()), 0);
        rings.watch(true).expect("on");
    });
}

/// A program that somebody else has started is seen only where all are.
#[test]
fn others_are_seen_only_where_all_programs_are() {
    let mut other = Command::new("sh")
        .args(["-c", "read line; exec ls /"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sh starts");
    let opened = [
        PerfRings::of(&[Event::PAGE_FAULTS]),
        PerfRings::on_each_cpu(&[Event::PAGE_FAULTS], Scope::AllPrograms),
    ];
    drop(other.stdin.take());
    other.wait().expect("waited for");
    for rings in opened {
        match rings {
            Ok(mut rings) => {
                let mut seen = false;
                rings.drain(&mut |fault| seen |= fault.pid == Pid::of(&other));
                assert_eq!(seen, rings.is_of_all_programs());
            }
            Err(reason) => skip_on_this_machine(reason),
        }
    }
}
