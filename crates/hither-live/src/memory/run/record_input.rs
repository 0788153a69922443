//! Makes inputs of the controller from records of programs.

use hither_session::record::Record;
use hither_session::session::RingInfo;

use super::super::event::Input;
use crate::mechanism::Origin;
use crate::observe::streams::NamespacedPid;

/// The input that a record makes, if any, and its time.
pub(super) fn input_of(origin: &mut Origin<'_>, record: &Record<'_>) -> Option<(u64, Input)> {
    let Origin {
        ring,
        streams,
        new_image,
        ..
    } = origin;
    if let Record::Process { time_ns, .. } = *record {
        let starts = new_image.is_some() && ring.namespace.is_own();
        return starts.then_some((time_ns, Input::Started { pid: ring.pid }));
    }
    let input = input_of_current(ring, record)?;
    // The rings of a program may be read after those of the next program in its process: its
    // records count no more. Nor do those of a process in another PID namespace: its number may be
    // another one's here.
    let stream = streams.of(ring);
    let is_current = ring.namespace.is_own()
        && streams.youngest(NamespacedPid::own(ring.pid)) == Some(streams.stream(stream).image);
    is_current.then_some(input)
}

/// The input that a record of a process's youngest program makes.
fn input_of_current(ring: &RingInfo, record: &Record<'_>) -> Option<(u64, Input)> {
    let RingInfo { pid, tid, .. } = *ring;
    Some(match *record {
        Record::Region {
            start,
            length,
            signature,
            time_ns,
            cpu,
            ..
        } => {
            let cpu = u32::from(cpu);
            let region = Input::Region {
                pid,
                tid,
                start,
                length,
                signature,
                cpu,
            };
            (time_ns, region)
        }
        Record::RegionEnd {
            start,
            length,
            time_ns,
        } => (time_ns, Input::RegionEnd { pid, start, length }),
        Record::Bound {
            start,
            length,
            bind,
            error,
            site,
            time_ns,
        } => {
            let nodes = bind.nodes;
            let bound = Input::Bound {
                pid,
                start,
                length,
                nodes,
                error,
                site,
            };
            (time_ns, bound)
        }
        _ => return activity(ring, record),
    })
}

/// The input of what a thread does: a construct, or that it runs.
fn activity(ring: &RingInfo, record: &Record<'_>) -> Option<(u64, Input)> {
    let RingInfo { pid, tid, .. } = *ring;
    Some(match *record {
        Record::Construct {
            kind,
            signature,
            time_ns,
            cpu,
            threads,
        } => {
            let cpu = u32::from(cpu);
            let construct = Input::Construct {
                pid,
                tid,
                cpu,
                kind,
                signature,
                threads,
            };
            (time_ns, construct)
        }
        Record::At { cpu, time_ns } => {
            let cpu = u32::from(cpu);
            (time_ns, Input::Thread { pid, tid, cpu })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use hither_kernel::memory_policy::{Bind, BindMode};
    use hither_kernel::pid_namespace::PidNamespace;
    use hither_session::record::{OWN_POLICY, RegionKind};

    use hither_ids::{Address, Pid, Tid};

    use super::*;
    use crate::observe::intern::Definitions;
    use crate::observe::streams::Streams;

    #[test]
    fn records_are_inputs_of_the_time_at_which_they_were_made() {
        let mut streams = Streams::default();
        let mut definitions = Definitions::default();
        let ring = RingInfo {
            index: 0,
            pid: Pid(7),
            tid: Tid(7),
            namespace: PidNamespace::OWN,
            generation: 1,
        };
        let (start, length) = (1 << 20, 1 << 21);
        let records = [
            Record::Process {
                pid: Pid(7),
                parent: Pid(1),
                image: 1,
                forked: false,
                time_ns: 1_000,
                exe: b"/bin/true",
                args: b"",
            },
            Record::Region {
                start: Address(start),
                length,
                signature: 3,
                time_ns: 1_500,
                cpu: 0,
                kind: RegionKind::Map,
            },
            Record::Bound {
                start: Address(start),
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
        let times = records.map(|record| {
            let new_image = streams.on_record(&ring, &record);
            let mut origin = Origin {
                ring: &ring,
                streams: &mut streams,
                definitions: &mut definitions,
                new_image,
            };
            input_of(&mut origin, &record).map(|(time_ns, _)| time_ns)
        });
        assert_eq!(times, [Some(1_000), Some(1_500), Some(1_600)]);
    }
}
