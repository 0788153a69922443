//! What sampling by write-protection costs: arming a page from outside, the next write to it, and
//! beside these a write to a page that is not armed and the first write to a fresh one. Nanoseconds
//! a page, of processor time: others may be using the machine.
//!
//! The armed memory is this process's own, reached as a program's is: by a descriptor that was
//! taken by pidfd_getfd. Nobody watches the faults; docs/internals/memory.md says what perf adds.

#![allow(unsafe_code)]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use hither_ids::{Address, Pid};
use hither_kernel::page_sampling::{PageSampler, UserfaultfdOffer};
use hither_kernel::process::cpu_ns;
use hither_kernel::syscalls;
use hither_kernel::userfaultfd::WriteProtectSampler;
use hither_testing::skip::skip_on_this_machine;

const PAGE: usize = 4096;

fn pages() -> usize {
    let measured = std::env::args().any(|argument| argument == "--bench");
    if measured { 4096 } else { 16 }
}

/// Memory with every page there, small.
struct Memory {
    start: *mut u8,
    pages: usize,
}

impl Memory {
    fn new(pages: usize) -> Memory {
        let start = syscalls::map(pages * PAGE, None).expect("memory");
        // SAFETY: the mapping was just made; the advice keeps its contents, which are none.
        let _ = unsafe { syscalls::advise(start, pages * PAGE, libc::MADV_NOHUGEPAGE) };
        Memory { start, pages }
    }

    fn write(&self) -> Duration {
        let begun_ns = cpu_ns();
        for page in 0..self.pages {
            // SAFETY: the page is within the mapping.
            let place = unsafe { self.start.add(page * PAGE) };
            // SAFETY: a byte of the mapping, which this thread alone knows of.
            unsafe { place.write_volatile(1) };
        }
        Duration::from_nanos(cpu_ns() - begun_ns)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, and nothing refers to it.
        unsafe { syscalls::unmap(self.start, self.pages * PAGE) };
    }
}

/// As many rounds as are asked for, in runs over all pages; the time that `measured` took.
fn rounds(count: u64, pages: usize, mut measured: impl FnMut() -> Duration) -> Duration {
    let runs = count.div_ceil(pages as u64);
    let total: Duration = (0..runs).map(|_| measured()).sum();
    total.mul_f64(count as f64 / (runs * pages as u64) as f64)
}

fn arming(criterion: &mut Criterion) {
    let pages = pages();
    criterion.bench_function("first write to a page", |bencher| {
        bencher.iter_custom(|count| rounds(count, pages, || Memory::new(pages).write()));
    });
    let memory = Memory::new(pages);
    memory.write();
    criterion.bench_function("write to a page that is not armed", |bencher| {
        bencher.iter_custom(|count| rounds(count, pages, || memory.write()));
    });
    let mut arm = match WriteProtectSampler::tried() {
        Ok(arm) => arm,
        Err(reason) => {
            skip_on_this_machine(reason);
            return;
        }
    };
    let (pid, start) = (std::process::id(), memory.start as u64);
    let fd = syscalls::userfaultfd().expect("it could be opened before");
    let inode = syscalls::status(fd).expect("it is open").id.inode;
    arm.offered(&UserfaultfdOffer {
        pid: Pid(pid),
        fd,
        inode,
    })
    .expect("taken");
    syscalls::close(fd);
    arm.begin(Pid(pid), Address(start), (pages * PAGE) as u64)
        .expect("registered");
    let each = |arm: &mut WriteProtectSampler| {
        let begun_ns = cpu_ns();
        for page in 0..pages {
            arm.arm(Pid(pid), Address(start + (page * PAGE) as u64), PAGE as u64)
                .expect("armed");
        }
        Duration::from_nanos(cpu_ns() - begun_ns)
    };
    criterion.bench_function("arm a page", |bencher| {
        bencher.iter_custom(|count| {
            rounds(count, pages, || {
                let armed = each(&mut arm);
                memory.write();
                armed
            })
        });
    });
    criterion.bench_function("write to an armed page", |bencher| {
        bencher.iter_custom(|count| {
            rounds(count, pages, || {
                each(&mut arm);
                memory.write()
            })
        });
    });
    criterion.bench_function("arm a page of a whole range", |bencher| {
        bencher.iter_custom(|count| {
            rounds(count, pages, || {
                let begun_ns = cpu_ns();
                arm.arm(Pid(pid), Address(start), (pages * PAGE) as u64)
                    .expect("armed");
                let armed = Duration::from_nanos(cpu_ns() - begun_ns);
                memory.write();
                armed
            })
        });
    });
}

criterion_group!(benches, arming);
criterion_main!(benches);
