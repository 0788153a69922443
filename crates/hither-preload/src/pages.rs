//! Large allocations: they are reported to the agent as regions, and bound to the nodes that it
//! asks for.
//!
//! **Regions.** A region begins when an allocation of at least the session's `region_min` bytes has
//! been made, and ends before it is freed. So no two regions overlap at any time, with one
//! exception: where two threads are given parts of an allocator's mapping at once, what is left of
//! the mapping may have one of the parts in it. The agent takes any region out of the others when
//! it begins. One that ends unseen (by a system call past libc, by an allocator's own name for
//! `free`) ends when its memory becomes part of another.
//!
//! **Binding.** The policy of an allocation site is applied before the allocation is returned, and
//! so before its first touch (except for what `calloc` has zeroed in a heap). A region that moves
//! keeps the policy that it was given last, for all of it. A bind request for a range is applied at
//! the next hooked call: a large allocation or `free`, a mapping, a read or a write. Only whole
//! pages inside a live region are bound. Memory of the malloc family gets its default policy back
//! before it is freed, since it may stay mapped and hold something else later. So does a mapping
//! before it is moved: a policy on a part of it splits it, and the kernel moves only one mapping at
//! a time.
//!
//! **The program's own policies.** A range that the program gives a policy itself is left alone
//! from then on, wherever it moves. Each part of a region with a policy of its own is a mapping to
//! the kernel, and a process may have `vm.max_map_count` of these: binding in parts takes at most a
//! quarter of them.
//!
//! **Children.** A forked child has copies of its parent's regions, with their policies. They are
//! not announced: most children exec, and the agent cannot know which of them a child still needs.
//! Its own allocations are announced. The child of a `vfork` has its parent's memory, and its calls
//! are recorded as its parent's.
//!
//! **Not tracked.** Programs with a sanitizer's runtime, which keeps tables of the same calls;
//! static programs, and calls to the kernel past libc; programs in another pid namespace than the
//! agent's, whose process ids mean other processes there.

pub(crate) mod maps;
#[cfg(feature = "pages")]
pub(crate) mod offer;
#[cfg_attr(
    not(feature = "pages"),
    expect(dead_code, reason = "a hook alone moves what may be split")
)]
pub(crate) mod pieces;
pub(crate) mod table;

#[cfg(feature = "pages")]
pub(crate) use live::*;

#[cfg(feature = "pages")]
mod live {
    use std::ffi::CStr;
    use std::ops::Range;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    use hither_ids::Address;
    use hither_kernel::memory_policy::{Bind, BindMode};
    use hither_kernel::page_bytes;
    use hither_kernel::process::monotonic_ns;
    use hither_kernel::syscalls;
    use hither_session::program_session::ProgramSession;
    use hither_session::record::{OWN_POLICY, Record, RegionKind};

    use super::table::{Bound, Region, Table};
    use super::{maps, offer};
    use crate::signature::Caller;
    use crate::{process, session, thread};

    /// The regions of this process.
    pub(crate) static TABLE: Table = Table::new();

    /// The smallest allocation that is a region; what the trampolines compare with.
    pub(crate) static REGION_MIN: AtomicUsize = AtomicUsize::new(NOT_TRACKED);

    const NOT_TRACKED: usize = usize::MAX;

    /// The number of bind requests posted when they were last applied.
    static APPLIED: AtomicU32 = AtomicU32::new(0);

    /// Bind requests applied in one call of the program's: some 1 us each.
    const REQUESTS_A_CALL_MAX: usize = 64;

    /// The error number for which binding was given up: a kernel or a container without
    /// `mbind`. 0 while binding works.
    static REFUSED: AtomicU32 = AtomicU32::new(0);

    const DEFAULT: Bind = Bind {
        mode: BindMode::Default,
        nodes: 0,
    };

    /// Begins to track, if the session wants it.
    pub(crate) fn start(session: &ProgramSession) {
        let least = usize::try_from(session.region_min()).unwrap_or(NOT_TRACKED);
        if least > 0 && session.bind_requests().is_some() && !has_sanitizer() {
            REGION_MIN.store(least, Ordering::Relaxed);
        }
    }

    /// After a fork, in the child: its parent's offer is its parent's to close.
    pub(crate) fn forked() {
        offer::take_back();
    }

    /// Ends it for good, with the recording.
    pub(crate) fn stop() {
        REGION_MIN.store(NOT_TRACKED, Ordering::Relaxed);
        offer::take_back();
    }

    fn is_tracking() -> bool {
        REGION_MIN.load(Ordering::Relaxed) != NOT_TRACKED
    }

    fn has_sanitizer() -> bool {
        let names = [
            c"__asan_init",
            c"__tsan_init",
            c"__msan_init",
            c"__hwasan_init",
            c"__lsan_init",
        ];
        // SAFETY: the name is a C string.
        let found = |name: &&CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let has = names.iter().any(|name| !found(name).is_null());
        // What is not there leaves a message behind, which the program would take for its own.
        // SAFETY: it takes nothing; the message, which is this thread's own, is not looked at.
        unsafe { libc::dlerror() };
        has
    }

    /// A call has given the program this memory.
    #[inline]
    pub(crate) fn began(start: u64, length: usize, kind: RegionKind, caller: Caller) {
        if length >= REGION_MIN.load(Ordering::Relaxed) {
            begin(start, length as u64, kind, caller);
        }
    }

    #[cold]
    fn begin(start: u64, length: u64, kind: RegionKind, caller: Caller) {
        let Some(session) = session::current() else {
            return;
        };
        offer::make(session);
        let Some(signature) = thread::signature(session, caller) else {
            return;
        };
        if let Some(end) = start.checked_add(length) {
            let region = Region {
                range: start..end,
                signature,
                kind,
                process: process::id(),
                bound: Bound::Nobody,
                parts: 0,
            };
            enter(session, region);
        }
    }

    /// What was a region is now here, or of this length, or still there after all.
    #[cold]
    pub(crate) fn again(region: &Region, start: u64, length: usize) {
        if length < REGION_MIN.load(Ordering::Relaxed) {
            return;
        }
        let end = start.checked_add(length as u64);
        if let (Some(session), Some(end)) = (session::current(), end) {
            let region = Region {
                range: start..end,
                process: process::id(),
                ..region.clone()
            };
            enter(session, region);
        }
    }

    /// Enters a region, reports it, and binds it: as it was before, or by the policy of its site.
    fn enter(session: &'static ProgramSession, region: Region) {
        // Of a mapping that an allocator gives parts out of, the rest stays bound.
        cut(region.range.clone(), region.kind == RegionKind::Malloc);
        let bound = region.bound;
        let is_own = bound == Bound::Program;
        let region = Region {
            bound: if is_own { bound } else { Bound::Nobody },
            ..region
        };
        if !TABLE.insert(&region) {
            session.count_untracked();
            return;
        }
        if !announce(session, &region, bound == Bound::Nobody) {
            return;
        }
        let policy = match bound {
            Bound::Program => {
                report_bound(session, &region.range, DEFAULT, OWN_POLICY, true);
                return;
            }
            Bound::Us(policy) => Some(policy),
            Bound::Nobody => session
                .bind_requests()
                .and_then(|requests| requests.site(region.signature)),
        };
        if let Some(policy) = policy {
            bind(session, region.range, policy, true);
        }
    }

    /// Reports a region. Returns false, and reports that too, if the thread `asks` for nodes by a
    /// policy of its own (numactl), which then decides where its pages go.
    fn announce(session: &'static ProgramSession, region: &Region, asks: bool) -> bool {
        let Range { start, end } = region.range;
        thread::push(
            session,
            &Record::Region {
                start: Address(start),
                length: end - start,
                signature: region.signature,
                time_ns: monotonic_ns(),
                cpu: thread::cpu(),
                kind: region.kind,
            },
        );
        let asks = asks && REFUSED.load(Ordering::Relaxed) == 0;
        if asks && syscalls::thread_has_nodes() {
            report_bound(session, &region.range, DEFAULT, OWN_POLICY, true);
            return false;
        }
        true
    }

    /// The program is about to free what starts here. The region, if it was one.
    #[cold]
    pub(crate) fn freeing(start: u64) -> Option<Region> {
        let region = TABLE.remove(start)?;
        end(&region, true);
        Some(region)
    }

    /// Something else is about to be where this range is, or nothing. Should the call fail for want
    /// of memory, the region has ended all the same.
    #[inline]
    pub(crate) fn ending(start: u64, length: usize) {
        if let Some(range) = tracked(start, length) {
            cut(range, false);
        }
    }

    /// What is in this range is about to be moved, or to grow. The first region of which it was a
    /// part, and whether any of it was bound by us and may therefore be split.
    #[inline]
    pub(crate) fn moving(start: u64, length: usize) -> Option<(Region, bool)> {
        cut(tracked(start, length)?, true)
    }

    /// The pages of a range, unless there is no region at all.
    #[inline]
    fn tracked(start: u64, length: usize) -> Option<Range<u64>> {
        if TABLE.is_empty() || length == 0 || !start.is_multiple_of(page_bytes()) {
            return None;
        }
        let end = start.saturating_add(length as u64);
        Some(start..end.checked_next_multiple_of(page_bytes()).unwrap_or(end))
    }

    /// Ends what is in a range; if it `stays` mapped, without a policy of ours.
    #[cold]
    fn cut(range: Range<u64>, stays: bool) -> Option<(Region, bool)> {
        let least = REGION_MIN.load(Ordering::Relaxed) as u64;
        let mut found: Option<(Region, bool)> = None;
        TABLE.cut(&range, least, |region| {
            end(&region, stays);
            let is_split = region.parts > 0 || matches!(region.bound, Bound::Us(_));
            found.get_or_insert((region, false)).1 |= is_split && is_tracking();
        });
        found
    }

    /// What has been taken out of the table is given up.
    fn end(region: &Region, stays: bool) {
        let stays = stays || region.kind == RegionKind::Malloc;
        if stays && matches!(region.bound, Bound::Us(_)) && is_tracking() {
            let _ = bind_pages(&region.range, DEFAULT);
        }
        if region.process == process::id()
            && let Some(session) = session::current()
        {
            let Range { start, end } = region.range;
            thread::push(
                session,
                &Record::RegionEnd {
                    start: Address(start),
                    length: end - start,
                    time_ns: monotonic_ns(),
                },
            );
        }
    }

    /// The program has started a thread.
    #[inline]
    pub(crate) fn started_thread() {
        if is_tracking()
            && let Some(session) = session::current()
        {
            offer::settle();
            offer::make(session);
        }
    }

    /// Applies the bind requests that were posted since the last call.
    #[inline]
    pub(crate) fn apply_bind_requests() {
        if !is_tracking() {
            return;
        }
        offer::settle();
        let Some(session) = session::current() else {
            return;
        };
        offer::make_when_old(session);
        let Some(requests) = session.bind_requests() else {
            return;
        };
        let pending = requests.pending();
        if pending != APPLIED.load(Ordering::Relaxed) {
            apply(session, pending);
        }
    }

    #[cold]
    fn apply(session: &'static ProgramSession, pending: u32) {
        APPLIED.store(pending, Ordering::Relaxed);
        let Some(requests) = session.bind_requests() else {
            return;
        };
        let mut done = 0;
        for request in requests.take(process::id()).take(REQUESTS_A_CALL_MAX) {
            done += 1;
            let start = request.start.0;
            let range = start..start.saturating_add(request.length);
            bind(session, range, request.bind, false);
        }
        if done == REQUESTS_A_CALL_MAX {
            // There may be more.
            APPLIED.store(pending.wrapping_sub(1), Ordering::Relaxed);
        }
    }

    /// Binds a range if a region holds it, and reports the result.
    ///
    /// Another thread may free the region at any moment. It then finds the policy noted and resets
    /// it, or it was earlier, and we reset what we set; a mapping that has taken the place in
    /// between keeps a preference for a node, which does no harm.
    fn bind(session: &'static ProgramSession, range: Range<u64>, policy: Bind, site: bool) {
        let error = match REFUSED.load(Ordering::Relaxed) {
            0 => bind_region(&range, policy),
            refused => refused,
        };
        if [libc::ENOSYS, libc::EPERM].contains(&(error as i32)) {
            REFUSED.store(error, Ordering::Relaxed);
        }
        report_bound(session, &range, policy, error, site);
    }

    fn report_bound(
        session: &'static ProgramSession,
        range: &Range<u64>,
        bind: Bind,
        error: u32,
        site: bool,
    ) {
        let (start, length) = (range.start, range.end - range.start);
        let record = Record::Bound {
            start: Address(start),
            length,
            bind,
            error,
            site,
            time_ns: monotonic_ns(),
        };
        thread::push(session, &record);
    }

    /// The program is about to give a range a policy itself: from now on it is left alone. Or to
    /// take the policy of a range away, ours among them: the regions that have none then begin
    /// anew.
    #[cold]
    pub(crate) fn binds_itself(start: u64, length: u64, mode: i32) {
        let range = start..start.saturating_add(length);
        // The agent moves memory that no hook has reported, too: it is told of any range.
        if !is_tracking() || mode == libc::MPOL_DEFAULT && !TABLE.has_any(&range) {
            return;
        }
        let Some(session) = session::current() else {
            return;
        };
        if mode != libc::MPOL_DEFAULT {
            TABLE.each(&range, |region| {
                let before = TABLE.set_bound(&region.range, Bound::Program);
                if matches!(before, Some(Bound::Us(_))) {
                    let _ = bind_pages(&region.range, DEFAULT);
                }
            });
            report_bound(session, &range, DEFAULT, OWN_POLICY, false);
            return;
        }
        TABLE.each(&range, |region| {
            let keeps = |at: u64| !range.contains(&at) && syscalls::range_has_policy(at);
            let is_free = !ends_of(&region.range).into_iter().any(keeps);
            if is_free && region.process == process::id() {
                end(region, true);
                TABLE.set_bound(&region.range, Bound::Nobody);
                announce(session, region, true);
            }
        });
    }

    fn bind_region(range: &Range<u64>, policy: Bind) -> u32 {
        const GONE: u32 = libc::ENOENT as u32;
        if range.is_empty() {
            return GONE;
        }
        let Some(region) = TABLE.holding(range) else {
            return GONE;
        };
        let is_part = pages_of(range) != pages_of(&region);
        if is_part && !has_room_for_part() {
            return libc::ENOMEM as u32;
        }
        let before = match TABLE.note(range, Bound::Us(policy)) {
            None => return GONE,
            Some(Bound::Program) => return OWN_POLICY,
            Some(before) => before,
        };
        // What we did not bind, the program may have.
        if before == Bound::Nobody && ends_of(range).into_iter().any(syscalls::range_has_policy) {
            TABLE.note(range, Bound::Nobody);
            return OWN_POLICY;
        }
        if is_part {
            TABLE.add_part(range);
        }
        match bind_pages(range, policy) {
            Err(error) => error as u32,
            Ok(()) if TABLE.holds(region.start, range) => 0,
            Ok(()) => {
                let _ = bind_pages(range, DEFAULT);
                GONE
            }
        }
    }

    /// Whether another part of a region may be bound, and so become a mapping of its own.
    ///
    /// What is bound again was counted before: where that seems to be too many, the mappings
    /// themselves are counted, now and then.
    fn has_room_for_part() -> bool {
        /// Of so many refusals one counts the mappings, which takes some milliseconds.
        const REFUSALS_PER_COUNT: usize = 1024;
        static REFUSED: AtomicUsize = AtomicUsize::new(0);
        let most = maps::most() / 4;
        if TABLE.parts() < most {
            return true;
        }
        if REFUSED
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(REFUSALS_PER_COUNT)
        {
            let mut counted = false;
            maps::each(|mapping| {
                if !std::mem::replace(&mut counted, true) {
                    TABLE.forget_parts();
                }
                TABLE.add_part(&(mapping.start..mapping.start.saturating_add(1)));
                true
            });
        }
        TABLE.parts() < most
    }

    /// The whole pages of a range.
    fn pages_of(range: &Range<u64>) -> Range<u64> {
        range.start.next_multiple_of(page_bytes())..range.end & !(page_bytes() - 1)
    }

    /// The first and the last byte of the whole pages of a range.
    fn ends_of(range: &Range<u64>) -> [u64; 2] {
        let pages = pages_of(range);
        [pages.start, pages.end.saturating_sub(1)]
    }

    /// Gives the whole pages of a range a policy.
    fn bind_pages(range: &Range<u64>, policy: Bind) -> Result<(), i32> {
        let pages = pages_of(range);
        if pages.is_empty() {
            return Ok(());
        }
        syscalls::bind(Address(pages.start), pages.end - pages.start, policy)
    }
}
