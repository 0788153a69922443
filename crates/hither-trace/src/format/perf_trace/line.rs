//! Parses the lines of perf trace: time, duration, thread, call, arguments and result.

use crate::text::{decimal, fractional, seconds};

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TraceLine<'l> {
    /// Since the first event. Unknown for a call that began before it.
    pub(super) time_ns: Option<u64>,
    /// The name of the thread. Empty where there is one thread only.
    pub(super) comm: &'l [u8],
    /// The thread. 0 where there is one only.
    pub(super) tid: u32,
    pub(super) event: Event<'l>,
}

/// The contents of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'l> {
    /// A complete call: `read(fd: 3, buf: 0x7f00, count: 1) = 1`.
    Call {
        name: &'l [u8],
        arguments: &'l [u8],
        result: &'l [u8],
    },
    /// The beginning of a call that an event of another thread interrupted.
    Begin { name: &'l [u8], arguments: &'l [u8] },
    /// The end of such a call: `... [continued]: read()) = 1`.
    End { name: &'l [u8], result: &'l [u8] },
    /// A page fault or a tracepoint.
    Other,
}

/// Parses a line. `None` if perf trace does not write such lines.
pub(super) fn entry(line: &[u8]) -> Option<TraceLine<'_>> {
    let (time, rest) = line.split_at(memchr::memchr(b'(', line)?);
    let (duration, rest) = rest[1..].split_at(memchr::memchr(b')', rest)? - 1);
    let rest = rest.strip_prefix(b"): ")?;
    let (time, duration) = (time.trim_ascii(), duration.trim_ascii());
    if !duration.is_empty() {
        fractional(duration.strip_suffix(b" ms")?).ok()?;
    }
    let time_ns = match time {
        b"?" => None,
        // In milliseconds.
        _ => Some(seconds(time).ok()? / 1000),
    };
    let mut named = memchr::memchr_iter(b'/', rest).filter_map(|slash| {
        let behind = &rest[slash + 1..];
        let (tid, body) = behind.split_at(memchr::memchr(b' ', behind)?);
        let tid = decimal(tid).ok()?.try_into().ok()?;
        Some((&rest[..slash], tid, event(body.trim_ascii_start())?))
    });
    let (comm, tid, event) = match named.next() {
        Some(named) => named,
        None => (b"".as_slice(), 0, event(rest.trim_ascii_start())?),
    };
    Some(TraceLine {
        time_ns,
        comm,
        tid,
        event,
    })
}

fn event(body: &[u8]) -> Option<Event<'_>> {
    if let Some(rest) = body.strip_prefix(b"... [continued]: ") {
        let (name, rest) = identifier(rest)?;
        let result = rest.strip_prefix(b"())")?.trim_ascii().strip_prefix(b"=")?;
        let result = result.trim_ascii();
        return Some(Event::End { name, result });
    }
    if body.starts_with(b"majfault [") || body.starts_with(b"minfault [") {
        return Some(Event::Other);
    }
    let (name, rest) = identifier(body)?;
    if let Some(rest) = rest.strip_prefix(b":") {
        let (_, rest) = identifier(rest)?;
        return (rest.starts_with(b"(") && rest.ends_with(b")")).then_some(Event::Other);
    }
    let inner = rest.strip_prefix(b"(")?;
    if let Some(inner) = inner.strip_suffix(b"...") {
        let arguments = inner.trim_ascii_end().strip_suffix(b")")?;
        return Some(Event::Begin { name, arguments });
    }
    for at in memchr::memrchr_iter(b'=', inner) {
        if let Some(arguments) = inner[..at].trim_ascii_end().strip_suffix(b")") {
            let result = inner[at + 1..].trim_ascii();
            return Some(Event::Call {
                name,
                arguments,
                result,
            });
        }
    }
    None
}

/// The name at the beginning, and what follows it.
fn identifier(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_letter =
        |byte: &&u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || **byte == b'_';
    let length = text.iter().take_while(is_letter).count();
    (length > 0).then(|| text.split_at(length))
}

/// The value of an argument. perf leaves out those that are 0.
pub(super) fn argument<'l>(arguments: &'l [u8], wanted: &str) -> Option<&'l [u8]> {
    let mut rest = arguments;
    loop {
        let (name, value) = identifier(rest)?;
        let value = value.strip_prefix(b": ")?;
        let (value, behind) = value.split_at(value_bytes(value));
        if name == wanted.as_bytes() {
            return Some(value);
        }
        rest = behind.strip_prefix(b", ")?;
    }
}

/// The bytes of the value at the beginning, before the name of the next argument. A path in it may
/// look like that, so it ends with its own mark.
fn value_bytes(text: &[u8]) -> usize {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = match text.get(digits) {
        Some(b'<') if digits > 0 => Some(b'>'),
        Some(b'"') if digits == 0 => Some(b'"'),
        _ => None,
    };
    let is_next = |at: usize| {
        let ends = end.is_none_or(|end| at > digits + 1 && text[at - 1] == end);
        let next = text[at..].strip_prefix(b", ").and_then(identifier);
        ends && next.is_some_and(|(_, rest)| rest.starts_with(b": "))
    };
    let mut commas = memchr::memchr_iter(b',', text);
    commas.find(|at| is_next(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> TraceLine<'_> {
        entry(line.as_bytes()).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn lines_say_who_when_and_what() {
        let line = of("0.055 ( 0.013 ms): cat/1334 brk()     = 0x55b9c62ea000");
        assert_eq!(
            (line.time_ns, line.comm, line.tid),
            (Some(55_000), b"cat".as_slice(), 1334)
        );
        let call = Event::Call {
            name: b"brk",
            arguments: b"",
            result: b"0x55b9c62ea000",
        };
        assert_eq!(line.event, call);
        let line = of("1.000 ( 0.013 ms): read(fd: 3, count: 1) = -1 EIO (Input/output error)");
        assert_eq!((line.comm, line.tid), (b"".as_slice(), 0));
        let line = of("? (         ): kworker/0:1/77  ... [continued]: clone())     =");
        assert_eq!(
            (line.time_ns, line.comm, line.tid),
            (None, b"kworker/0:1".as_slice(), 77)
        );
        assert_eq!(
            line.event,
            Event::End {
                name: b"clone",
                result: b""
            }
        );
        let line = of("9.5 (         ): a b/7 read(fd: 4<pipe:[1]>, count: 9)    ...");
        assert_eq!(
            line.event,
            Event::Begin {
                name: b"read",
                arguments: b"fd: 4<pipe:[1]>, count: 9"
            }
        );
        for other in [
            "0.1 ( 0.000 ms): cat/7 minfault [_start+0x0] => /bin/cat@0x12 (d.)",
            "0.1 (         ): cat/7 sched:sched_waking(comm: \"x\", pid: 1)",
        ] {
            assert_eq!(of(other).event, Event::Other);
        }
        for junk in [
            "read(3, \"x\", 1) = 1",
            "0.055 ( 0.013 ms): cat/1334 brk()",
            "0.055 ( 0.013 s): cat/1334 brk() = 1",
            "x (      ): cat/1334 brk() = 1",
            "0.055 ( 0.013 ms) cat/1334 brk() = 1",
            "( ): ",
            "()",
        ] {
            assert_eq!(entry(junk.as_bytes()), None, "{junk}");
        }
    }

    #[test]
    fn arguments_are_found_by_name() {
        let text = b"fd: 4</a, b: c/d>e, f>, buf: 0x7f, count: 100, upid: 7 (x)";
        assert_eq!(argument(text, "fd"), Some(b"4</a, b: c/d>e, f>".as_slice()));
        assert_eq!(argument(text, "count"), Some(b"100".as_slice()));
        assert_eq!(argument(text, "upid"), Some(b"7 (x)".as_slice()));
        assert_eq!(argument(text, "b"), None);
        let text = b"dfd: CWD, filename: \"/a\", b: \"\", flags: RDONLY|CLOEXEC";
        assert_eq!(argument(text, "filename"), Some(b"\"/a\"".as_slice()));
        assert_eq!(argument(text, "flags"), Some(b"RDONLY|CLOEXEC".as_slice()));
        assert_eq!(argument(b"", "fd"), None);
        assert_eq!(argument(b"fd", "fd"), None);
    }
}
