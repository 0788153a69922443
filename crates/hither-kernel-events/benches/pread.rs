//! What observing costs a program: a cached pread of 4 KiB, alone and while it is observed. Pairs
//! run in turns; the figures are medians.
//!
//! `cargo bench -p hither-kernel-events`; in tests it runs once and small.

#[path = "../tests/support/program.rs"]
mod program;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hither_ids::Pid;
use hither_kernel_events::event::What;
use hither_kernel_events::stack::{Check, STACK_BYTES_MAX, StackPlace};
use hither_kernel_events::{
    Event, Kind, KnownStack, Observer, Options, Sampling, Scope, Source, UserStack,
};

use program::{Scratch, TestFile};

/// How the program is observed, if at all.
fn variants() -> Vec<(&'static str, Option<Options>)> {
    let with_stacks = Options {
        stack_bytes: STACK_BYTES_MAX,
        ..reads()
    };
    let sampled = Options {
        sampling: Sampling::one_in(100),
        ..reads()
    };
    let others = Options {
        // Not those of a process that is there: its children are followed, too.
        scope: Scope::Processes(Vec::new()),
        ..reads()
    };
    let by_calls = Options {
        source: Some(Source::SystemCalls),
        ..reads()
    };
    let others_by_calls = Options {
        source: Some(Source::SystemCalls),
        ..others.clone()
    };
    vec![
        ("alone", None),
        ("observed", Some(reads())),
        ("by system calls", Some(by_calls)),
        ("with known user stacks", Some(with_stacks)),
        ("one page in 100", Some(sampled)),
        ("others are observed", Some(others)),
        ("others, by system calls", Some(others_by_calls)),
    ]
}

fn reads() -> Options {
    Options {
        kinds: vec![Kind::Read],
        scope: Scope::Everything,
        ..Options::default()
    }
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (rounds, reads) = if is_bench { (31, 100_000) } else { (1, 100) };
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let file = scratch.file("data", 16, true);
    let variants = variants();
    let mut took: Vec<Vec<f64>> = vec![Vec::new(); variants.len()];
    let mut lost = 0;
    for _ in 0..rounds {
        for ((_, options), took) in variants.iter().zip(&mut took) {
            let (took_ns, lost_events) = measure(&scratch, &file, options.clone(), reads);
            took.push(took_ns);
            lost += lost_events;
        }
    }
    let alone = median(took[0].clone());
    for ((name, _), took) in variants.iter().zip(took) {
        let ns = median(took);
        println!("{name:30} {ns:8.0} ns {:6.2}", ns / alone);
    }
    println!("lost events: {lost}");
}

fn measure(scratch: &Scratch, file: &TestFile, options: Option<Options>, reads: u64) -> (f64, u64) {
    let program = scratch.start("time", file, &[(4096, reads)]);
    let Some(mut options) = options else {
        return (program.run().trim().parse().unwrap(), 0);
    };
    if options.scope == Scope::Everything {
        options.scope = Scope::Processes(vec![Pid(program.id())]);
    }
    let mut observer = Observer::new(&options).unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let drain = scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                let mut new = Vec::new();
                observer.drain(u64::MAX, &mut |event| new.extend(known(&event)));
                for stack in new.iter().take(1) {
                    observer.know_stack(stack).unwrap();
                }
                thread::sleep(Duration::from_millis(5));
            }
            observer.lost().events()
        });
        let took = program.run().trim().parse().unwrap();
        ended.store(true, Ordering::Release);
        (took, drain.join().unwrap())
    })
}

/// A stack of ten frames of 96 bytes, and so known from then on.
fn known(event: &Event<'_>) -> Option<KnownStack> {
    let What::Pages {
        stack: UserStack::Copied(stack),
        ..
    } = event.what
    else {
        return None;
    };
    let check = |frame: u32| {
        let distance = 96 * frame;
        let value = stack.word_at(stack.sp + u64::from(distance))?;
        Some(Check { distance, value })
    };
    Some(KnownStack {
        place: StackPlace {
            process: event.process,
            ip: stack.ip,
            sp: stack.sp,
            way: 0,
        },
        bp: None,
        link: stack.link,
        checks: (0..10).map_while(check).collect(),
        signature: 1,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
