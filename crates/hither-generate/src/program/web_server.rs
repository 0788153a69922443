//! A web server with a fixed number of processes that take requests from one queue, one at a time
//! each (Apache's prefork). It sends files by `sendfile`, so the bytes go from the page cache to a
//! socket within the kernel.
//!
//! The paper's test: 100 concurrent requests for a file of 40 MB. With fewer workers, requests wait
//! in the queue. The paper has no other requests. Here small files, chosen by Zipf's law, are sent
//! in between, like the pages of a site; `small=0` leaves them out.
//!
//! Workers are dealt to the nodes in turn. With `uneven`, that share of them runs on the first node
//! instead: a server is woken by its network adapter's interrupts, which one processor takes. A
//! `send_kib` that is no multiple of the page sends some pages in two parts, as a full socket does.

use super::definition::{Program, THREADS_MAX};
use super::execution::{Execution, Stopped};
use super::files::{File, Job, Scheduler, TimeModel, work};
use crate::zipf::ZipfRanks;
use hither_core::registry::Param;
use hither_core::spec::Values;
use hither_trace::schema::RowOp;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "web-server",
    summary: "workers that send a large file, and small ones by popularity, one worker per thread",
    source: "the Web test of the dual-layered file cache (sections 4 and 5): 100 concurrent \
             requests for 40 MB",
    params: &[
        Param::count(
            "requests",
            "how often the large file is asked for",
            100,
            1..=1 << 30,
        ),
        Param::count("size_mib", "the size of the large file", 40, 1..=1 << 20),
        Param::count(
            "small",
            "how many requests for small files come with each for the large one",
            20,
            0..=1 << 20,
        ),
        Param::count("files", "how many small files", 2000, 1..=1 << 24),
        Param::count(
            "files_mib",
            "the size of all small files together",
            100,
            1..=1 << 20,
        ),
        Param::real(
            "skew",
            "the exponent of Zipf's law for the popularity of the small files",
            1.0,
            0.0..=20.0,
        ),
        Param::count("send_kib", "how much is sent at a time", 64, 1..=1 << 20),
        Param::real(
            "uneven",
            "the share of the workers that runs on the first node; the others in turn",
            0.0,
            0.0..=1.0,
        ),
    ],
    threads: 8,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

fn run(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let (requests, small) = (values.count(0), values.count(2));
    let buffer = values.count(6) << 10;
    let large = File::new(execution, "/srv/www/large.iso", values.count(1) << 20);
    let mut random = execution.random(0);
    let (total, count) = (values.count(4) << 20, values.count(3));
    let files = File::folder(execution, total, count, &mut random, |number| {
        format!("/srv/www/p{:02}/{number:05}.html", number % 100)
    });
    let popular = ZipfRanks::new(count, values.real(5));
    let site = execution.site("ap_send_fd");
    let mut time_model = TimeModel::new(execution.random(1));
    let mut scheduler = Scheduler::new(execution, execution.random(2));
    let on_first = (values.real(7) * f64::from(execution.threads())).round() as u32;
    let workers: Vec<u32> = (0..execution.threads())
        .map(|worker| {
            let process = execution.process(&["httpd", "-DFOREGROUND"]);
            if worker < on_first {
                execution.thread_on(process, 0)
            } else {
                execution.thread(process)
            }
        })
        .collect();
    let all = requests.saturating_mul(small + 1);
    let mut taken = 0;
    let next = |execution: &mut Execution, _: &mut Scheduler, worker: u32| {
        execution.done(taken as f64 / all as f64);
        let file = match taken % (small + 1) {
            0 => large,
            _ => files[popular.draw(&mut random) as usize - 1],
        };
        taken += 1;
        (taken <= all).then(|| Job {
            thread: workers[worker as usize],
            started_thread: None,
            requests: (file.whole(site, RowOp::Read, buffer))
                .map(|mut request| {
                    request.in_kernel = true;
                    request
                })
                .collect(),
        })
    };
    let slots = workers.len() as u32;
    work(execution, &mut time_model, &mut scheduler, slots, 0, next)?;
    Ok(())
}
