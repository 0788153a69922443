//! Call sites by the user stacks of events.
//!
//! A stack that is new is followed, and the kernel's programs are told how to know it again. So a
//! process's call site is followed once, and most events have its name alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hither_ids::Pid;
use hither_kernel::file_id::mix;
use hither_kernel::process::monotonic_ns;
use hither_kernel_events::stack::{Check, CopiedStack, StackPlace, WAYS};
use hither_kernel_events::{KnownStack, Observer, UserStack};
use hither_session::call_stack::Frames;
use hither_session::record::Record;
use rustc_hash::{FxHashMap, FxHashSet};

use super::address_space::AddressSpace;
use super::walk::Walker;

/// Of each process so many places of stacks are kept; then they begin anew.
const PLACES_MAX: usize = 1 << 13;

/// The name of stacks of which nothing is known.
const UNKNOWN: u64 = u64::MAX;

/// The call sites of all processes.
#[derive(Default)]
pub(super) struct Stacks {
    walker: Walker,
    processes: FxHashMap<Pid, Process>,
    /// Which process one was forked from: its code is mapped at the same places.
    parents: FxHashMap<Pid, Pid>,
    /// How many address spaces there were.
    space_count: u64,
    sites: FxHashSet<u64>,
    modules: FxHashSet<u64>,
    /// What the kernel's programs are to be told.
    new: Vec<KnownStack>,
    forgotten: Vec<StackPlace>,
}

/// A process, from its start or an exec on.
struct Process {
    /// None if it could not be looked at.
    space: Option<AddressSpace>,
    /// Stacks by instruction and stack pointer.
    known: FxHashMap<StackTop, Vec<Known>>,
}

/// The instruction and the stack pointer of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackTop {
    ip: u64,
    sp: u64,
}

/// A stack that was followed.
struct Known {
    stack: KnownStack,
    /// When the kernel's programs were told.
    told_ns: u64,
}

impl Stacks {
    /// Of call sites with so many frames at most.
    pub(super) fn new(frames_max: usize) -> Stacks {
        Stacks {
            walker: Walker::new(frames_max),
            ..Stacks::default()
        }
    }

    /// Whether call sites have frames.
    pub(super) fn are_asked_for(&self) -> bool {
        self.walker.frames_max > 0
    }

    /// The signature of the site of an event, which is defined by the first one. None if it is not
    /// known.
    pub(super) fn site(
        &mut self,
        process: Pid,
        time_ns: u64,
        stack: UserStack<'_>,
        define: &mut dyn FnMut(Record<'_>),
    ) -> Option<u64> {
        let signature = match stack {
            UserStack::Unknown => return None,
            UserStack::Known(signature) => signature,
            UserStack::Copied(stack) => self.copied(process, time_ns, &stack, define)?,
        };
        (signature != UNKNOWN).then_some(signature)
    }

    fn copied(
        &mut self,
        process: Pid,
        time_ns: u64,
        stack: &CopiedStack<'_>,
        define: &mut dyn FnMut(Record<'_>),
    ) -> Option<u64> {
        self.look_at(process);
        let Process { space, known } = self.processes.get_mut(&process)?;
        let Some(space) = space else {
            // It has ended, or may not be looked at.
            self.new
                .push(known_stack(process, 0, stack, &Frames::default(), UNKNOWN));
            return None;
        };
        if known.len() > PLACES_MAX {
            known.clear();
        }
        let top = StackTop {
            ip: stack.ip,
            sp: stack.sp,
        };
        let here = known.entry(top).or_default();
        if let Some(known) = here.iter_mut().find(|known| is_same(&known.stack, stack)) {
            // The kernel's programs have dropped it since.
            if known.told_ns < time_ns {
                known.told_ns = monotonic_ns();
                self.new.push(known.stack.clone());
            }
            return Some(known.stack.signature);
        }
        let walker = &mut self.walker;
        // A panic in the unwinder (a malformed table) must not end the recording.
        let walked = catch_unwind(AssertUnwindSafe(|| {
            walker.follow(space, stack, monotonic_ns())
        }));
        let frames = walked.unwrap_or_default();
        let signature = match frames.count() {
            0 => UNKNOWN,
            _ => frames.signature(),
        };
        // A stack that could not be read may be read the next time.
        if frames.memoisable && stack.bytes() > 0 {
            let way = if here.len() < WAYS as usize {
                here.len() as u32
            } else {
                // In place of the oldest.
                here.remove(0).stack.place.way
            };
            let stack = known_stack(process, way, stack, &frames, signature);
            self.new.push(stack.clone());
            let told_ns = monotonic_ns();
            here.push(Known { stack, told_ns });
        }
        if signature != UNKNOWN && self.sites.insert(signature) {
            for &[module, _] in frames.words().as_chunks().0 {
                if let Some((build_id, path)) = space.named(module)
                    && self.modules.insert(module)
                {
                    define(Record::Module {
                        module,
                        build_id,
                        path,
                    });
                }
            }
            define(Record::Site {
                signature,
                truncated: frames.truncated,
                frames: frames.words(),
            });
        }
        Some(signature)
    }

    /// Finds out all of a process that runs already: it may end before its first stack is followed.
    pub(super) fn prepare(&mut self, process: Pid) {
        self.look_at(process);
        let of = self.processes.get_mut(&process);
        if let Some(space) = of.and_then(|of| of.space.as_mut()) {
            space.load_all(&mut self.walker.tables);
        }
    }

    /// Finds out what is mapped in a process, if that is not known.
    fn look_at(&mut self, process: Pid) {
        if self.are_asked_for() && !self.processes.contains_key(&process) {
            let space = self.space_of(process);
            let known = FxHashMap::default();
            self.processes.insert(process, Process { space, known });
        }
    }

    /// What is mapped in a process. One that has ended is like what it was forked from.
    fn space_of(&mut self, process: Pid) -> Option<AddressSpace> {
        self.space_count += 1;
        let run_time_key = mix(self.space_count ^ mix(u64::from(process.0)));
        let space = AddressSpace::of(process, run_time_key, monotonic_ns());
        space.or_else(|| {
            let parent = self.processes.get(self.parents.get(&process)?)?;
            Some(parent.space.as_ref()?.forked_to(process))
        })
    }

    /// A process has begun.
    pub(super) fn fork(&mut self, parent: Pid, process: Pid) {
        self.forget(process);
        self.parents.insert(process, parent);
    }

    /// A process has ended, or runs another program.
    pub(super) fn forget(&mut self, process: Pid) {
        self.parents.remove(&process);
        let known = self.processes.remove(&process).map(|process| process.known);
        let all = known.into_iter().flat_map(FxHashMap::into_values).flatten();
        self.forgotten.extend(all.map(|known| known.stack.place));
    }

    /// Tells the kernel's programs what is new.
    pub(super) fn tell(&mut self, observer: &mut Observer) {
        for place in self.forgotten.drain(..) {
            observer.forget_stack(&place);
        }
        for stack in self.new.drain(..) {
            // Without, each event has a copy.
            let _ = observer.know_stack(&stack);
        }
    }
}

fn known_stack(
    process: Pid,
    way: u32,
    stack: &CopiedStack<'_>,
    frames: &Frames,
    signature: u64,
) -> KnownStack {
    let checks = frames.checks().iter().map(|check| Check {
        distance: check.distance,
        value: check.value,
    });
    KnownStack {
        place: StackPlace {
            process,
            ip: stack.ip,
            sp: stack.sp,
            way,
        },
        bp: frames.needs_fp.then_some(stack.bp),
        link: stack.link,
        checks: checks.collect(),
        signature,
    }
}

/// As `is_same_stack` in `bpf/stack.h`.
fn is_same(known: &KnownStack, stack: &CopiedStack<'_>) -> bool {
    let holds = |check: &Check| {
        let address = stack.sp.checked_add(u64::from(check.distance));
        address.and_then(|address| stack.word_at(address)) == Some(check.value)
    };
    known.bp.is_none_or(|bp| bp == stack.bp)
        && known.link == stack.link
        && known.checks.iter().all(holds)
}
