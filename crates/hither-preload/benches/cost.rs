//! What an access costs the program: its signature, remembered and unwound, at several depths, and
//! its way into the ring. Run by `cargo test --benches` once each, so that it cannot rot.
#![allow(unsafe_code, missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::pid_namespace::PidNamespace;
use hither_kernel::process::monotonic_ns;
use hither_preload::signature::{Caller, Walker, modules_changed, prepare};
use hither_session::program_session::ProgramSession;
use hither_session::record::{ConstructKind, Op, Record};
use hither_session::session::{Session, SessionOptions};

type Work<'a> = &'a mut dyn FnMut(Caller);

/// Calls `work` as a hook's trampoline would, with its own caller's stack pointer and frame
/// pointer.
#[unsafe(naked)]
unsafe extern "C" fn enter(_work: *mut Work<'_>) {
    std::arch::naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {hook}", hook = sym hook)
}

unsafe extern "C" fn hook(work: *mut Work<'_>, sp: *const u64, fp: u64) {
    // SAFETY: `descend` passes a pointer to its own argument.
    let work = unsafe { &mut *work };
    work(Caller { sp, fp });
}

/// Puts `frames` frames on the stack, then enters.
#[inline(never)]
fn descend(frames: usize, mut work: Work<'_>) {
    if frames == 0 {
        // SAFETY: `enter` takes a valid pointer, and this frame outlives the call.
        unsafe { enter(&raw mut work) };
    } else {
        descend(black_box(frames - 1), work);
    }
    black_box(frames);
}

fn signatures(criterion: &mut Criterion) {
    prepare();
    for frames in [4, 16, 32] {
        let mut walker = Walker::new();
        criterion.bench_function(
            &format!("signature, remembered, {frames} frames"),
            |bencher| {
                descend(frames, &mut |caller| {
                    // SAFETY: the caller's frame is live for as long as this closure runs.
                    bencher.iter(|| unsafe {
                        walker.signature(black_box(caller), frames, &mut |_| true)
                    });
                });
            },
        );
        criterion.bench_function(&format!("signature, unwound, {frames} frames"), |bencher| {
            descend(frames, &mut |caller| {
                bencher.iter(|| {
                    walker.forget_stacks();
                    // SAFETY: the caller's frame is live for as long as this closure runs.
                    unsafe { walker.signature(black_box(caller), frames, &mut |_| true) }
                });
            });
        });
    }
    let mut walker = Walker::new();
    criterion.bench_function(
        "signature, first after a library was unloaded, 16 frames",
        |bencher| {
            descend(16, &mut |caller| {
                bencher.iter(|| {
                    modules_changed();
                    // SAFETY: the caller's frame is live for as long as this closure runs.
                    unsafe { walker.signature(black_box(caller), 16, &mut |_| true) }
                });
            });
        },
    );
}

fn pushing(criterion: &mut Criterion) {
    let mut session = Session::create(SessionOptions::default()).expect("a session");
    let attached = ProgramSession::open(session.name().as_bytes()).expect("attached");
    let mut producer = attached
        .claim(Pid(1), Tid(1), PidNamespace::OWN)
        .expect("a ring");
    let mut since = 0;
    criterion.bench_function("record and push", |bencher| {
        bencher.iter(|| {
            since += 1;
            if since == 20_000 {
                // A share of the agent's work, so that the ring never fills.
                session.drain(|_, _| ());
                since = 0;
            }
            attached.push_record(
                &mut producer,
                &Record::Access {
                    op: Op::Read,
                    flags: 0,
                    cpu: 0,
                    time_ns: black_box(1),
                    signature: 2,
                    object: FileKey(3),
                    offset: 4,
                    length: 5,
                },
            )
        });
    });
    let mut walker = Walker::new();
    criterion.bench_function("a parallel construct, 8 frames", |bencher| {
        descend(8, &mut |caller| {
            bencher.iter(|| {
                since += 1;
                if since == 20_000 {
                    session.drain(|_, _| ());
                    since = 0;
                }
                // SAFETY: the caller's frame is live for as long as this closure runs.
                let signature = unsafe { walker.signature(black_box(caller), 32, &mut |_| true) };
                // SAFETY: no arguments; it reads a word that the kernel keeps for the thread.
                let cpu = unsafe { libc::sched_getcpu() };
                attached.push_record(
                    &mut producer,
                    &Record::Construct {
                        kind: ConstructKind::Barrier,
                        signature,
                        time_ns: monotonic_ns(),
                        cpu: cpu as u16,
                        threads: 4,
                    },
                )
            });
        });
    });
    criterion.bench_function("clock", |bencher| bencher.iter(monotonic_ns));
    criterion.bench_function("position (lseek)", |bencher| {
        let file = hither_kernel::syscalls::open(c"/proc/self/exe", 0).expect("open");
        bencher.iter(|| hither_kernel::syscalls::seek(file, 0, libc::SEEK_CUR));
        hither_kernel::syscalls::close(file);
    });
}

criterion_group!(benches, signatures, pushing);
criterion_main!(benches);
