//! Makes inputs of the controller from records of programs.

use hither_sys::record::{BindMode, Record};

use super::super::event::Input;
use crate::agent::RecordSource;
use crate::observe::Pid;

/// The input that a record makes, if any, and its time.
pub(super) fn input_of(source: &mut RecordSource<'_>, record: &Record<'_>) -> Option<(u64, Input)> {
    let RecordSource {
        ring,
        streams,
        is_new_image,
    } = source;
    let pid = ring.pid;
    let at = |time_ns: u64, input| Some((time_ns, input));
    // The rings of a program may be read after those of the next program in its process: its
    // records count no more. Nor do those of a process in another PID namespace: its number may be
    // another one's here.
    let mut current = || {
        let stream = streams.of(ring);
        ring.namespace.is_own()
            && streams.youngest(Pid::own(pid)) == Some(streams.stream(stream).image)
    };
    match *record {
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
        Record::Process { time_ns, .. } if *is_new_image && ring.namespace.is_own() => {
            at(time_ns, Input::Started { pid })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hither_sys::pid_namespace::PidNamespace;
    use hither_sys::record::{Bind, OWN_POLICY, RegionKind};

    use hither_sys::session::RingInfo;

    use super::*;
    use crate::observe::Streams;

    #[test]
    fn records_are_inputs_of_the_time_at_which_they_were_made() {
        let mut streams = Streams::default();
        let ring = RingInfo {
            index: 0,
            pid: 7,
            tid: 7,
            namespace: PidNamespace::OWN,
            generation: 1,
        };
        let (start, length) = (1 << 20, 1 << 21);
        let records = [
            Record::Process {
                pid: 7,
                parent: 1,
                image: 1,
                forked: false,
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
        let times = records.map(|record| {
            let is_new_image = streams.on_record(&ring, &record).is_some();
            let mut source = RecordSource {
                ring: &ring,
                streams: &mut streams,
                is_new_image,
            };
            input_of(&mut source, &record).map(|(time_ns, _)| time_ns)
        });
        assert_eq!(times, [Some(1_000), Some(1_500), Some(1_600)]);
    }
}
