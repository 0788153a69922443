//! What a program's records say that the controller wants to hear.

use hither_sys::record::{BindMode, Record};
use hither_sys::session::RingInfo;

use super::super::event::{Input, TimedInput};
use crate::observe::{Definitions, Streams};

/// What a record says that the controller wants to hear.
pub(super) fn heard(
    streams: &mut Streams,
    definitions: &mut Definitions,
    ring: &RingInfo,
    record: Record<'_>,
    start_ns: u64,
) -> Option<TimedInput> {
    let pid = ring.pid;
    let at = |time_ns: u64, input| {
        Some(TimedInput {
            time_ns: time_ns.saturating_sub(start_ns),
            input,
        })
    };
    // The rings of a program that its process runs no longer may be read after those of its
    // successor. In a container of its own a process has a number that may be somebody else's here.
    let mut current = || {
        let stream = streams.of(ring);
        !ring.other_pid_namespace && streams.youngest(pid) == Some(streams.stream(stream).image)
    };
    match record {
        Record::Region {
            start,
            length,
            signature,
            time_ns,
            cpu,
            ..
        } if current() => at(
            time_ns,
            Input::Region {
                pid,
                tid: ring.tid,
                start,
                length,
                signature,
                cpu: u32::from(cpu),
            },
        ),
        Record::RegionEnd {
            start,
            length,
            time_ns,
        } if current() => at(time_ns, Input::RegionEnd { pid, start, length }),
        Record::Bound {
            start,
            length,
            bind,
            error,
            site,
            time_ns,
        } if current() => at(
            time_ns,
            Input::Bound {
                pid,
                start,
                length,
                nodes: bind.nodes,
                error,
                site,
                hint: bind.mode == BindMode::Sampled,
            },
        ),
        Record::Construct {
            kind,
            signature,
            time_ns,
            cpu,
            threads,
        } if current() => at(
            time_ns,
            Input::Construct {
                pid,
                tid: ring.tid,
                cpu: u32::from(cpu),
                kind,
                signature,
                threads,
            },
        ),
        Record::At { cpu, time_ns } if current() => at(
            time_ns,
            Input::Thread {
                pid,
                tid: ring.tid,
                cpu: u32::from(cpu),
            },
        ),
        Record::Process {
            parent,
            time_ns,
            exe,
            args,
            ..
        } => streams
            .announced(ring, parent, exe, args)
            .filter(|_| !ring.other_pid_namespace)
            .and_then(|_| at(time_ns, Input::Started { pid })),
        Record::Site { .. } | Record::Module { .. } => {
            definitions.on_record(&record);
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hither_sys::record::{Bind, OWN_POLICY, RegionKind};

    use super::*;

    /// A look takes a while: what comes meanwhile is later than its beginning.
    #[test]
    fn what_a_program_does_is_heard_in_the_order_in_which_it_did_it() {
        let (mut streams, mut definitions) = (Streams::default(), Definitions::default());
        let ring = RingInfo {
            index: 0,
            pid: 7,
            tid: 7,
            other_pid_namespace: false,
            generation: 1,
        };
        let (start, length) = (1 << 20, 1 << 21);
        let records = [
            Record::Process {
                pid: 7,
                parent: 1,
                time_ns: 1_000,
                exe: b"/bin/true",
                args: b"",
            },
            Record::Region {
                start,
                length,
                signature: 3,
                time_ns: 1_500,
                cpu: 0,
                kind: RegionKind::Map,
            },
            Record::Bound {
                start,
                length,
                bind: Bind {
                    mode: BindMode::Default,
                    nodes: 0,
                },
                error: OWN_POLICY,
                site: false,
                time_ns: 1_600,
            },
        ];
        let heard = records.map(|record| {
            heard(&mut streams, &mut definitions, &ring, record, 1_000).map(|at| at.time_ns)
        });
        assert_eq!(heard, [Some(0), Some(500), Some(600)]);
    }
}
