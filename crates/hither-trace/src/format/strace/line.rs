//! Parses the lines of a strace log: thread, time, call, arguments and result.

use crate::text::{decimal, hexadecimal, seconds};

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine<'l> {
    /// The thread. 0 if the log has none (without `-f`).
    pub(super) tid: u32,
    /// The time, since midnight, since the epoch, or since the last line.
    pub(super) time: Option<Time>,
    pub(super) event: Event<'l>,
}

/// A time as `-t`, `-ttt` and `-r` write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    OfDay(u64),
    Epoch(u64),
    SinceLast(u64),
}

/// The contents of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'l> {
    /// A frame of the stack of the call before.
    Frame(&'l [u8]),
    /// A complete call: `read(3, "x", 1) = 1`.
    Call(&'l [u8]),
    /// The beginning of a call that another thread interrupted.
    Begin(&'l [u8]),
    /// The end of such a call: the text after `<... read resumed>`.
    End(&'l [u8]),
    /// The thread ended.
    Exit,
    /// A signal, or a message of strace.
    Other,
}

/// A call that was made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call<'l> {
    pub(crate) name: &'l [u8],
    /// Between the parentheses.
    pub(crate) arguments: &'l [u8],
    /// Its result. `None` if it failed or did not return.
    pub(crate) result: Option<u64>,
    /// The annotation by `-y` of the file that it returned.
    pub(crate) path: Option<&'l [u8]>,
}

/// A descriptor, and its annotation by `-y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorArgument<'l> {
    pub(super) number: u32,
    pub(super) path: Option<&'l [u8]>,
}

/// Parses a line. `None` if strace does not write such lines.
pub(super) fn entry(line: &[u8]) -> Option<LogLine<'_>> {
    let bare = |event| {
        Some(LogLine {
            tid: 0,
            time: None,
            event,
        })
    };
    if let Some(frame) = line.strip_prefix(b"> ") {
        return bare(Event::Frame(frame));
    }
    if line.is_empty() || line.starts_with(b"strace: ") {
        return bare(Event::Other);
    }
    let (tid, rest) = match line.strip_prefix(b"[pid") {
        Some(rest) => {
            let close = memchr::memchr(b']', rest)?;
            (number(rest[..close].trim_ascii())?, &rest[close + 1..])
        }
        None => match word(line) {
            (first, rest) if first.iter().all(u8::is_ascii_digit) => (number(first)?, rest),
            _ => (0, line),
        },
    };
    let (first, behind) = word(rest.trim_ascii_start());
    let (time, body) = match time(first) {
        Some(time) => (Some(time), behind),
        None => (None, rest.trim_ascii_start()),
    };
    // Next to another clock, `-r` writes the time since the last line in parentheses.
    let body = match body.strip_prefix(b"(+") {
        Some(rest) => &rest[memchr::memchr(b')', rest)? + 1..],
        None => body,
    };
    let event = event(body.trim_ascii_start())?;
    Some(LogLine { tid, time, event })
}

fn event(body: &[u8]) -> Option<Event<'_>> {
    const UNFINISHED: &[u8] = b"<unfinished ...>";
    const RESUMED: &[u8] = b" resumed>";
    if body.starts_with(b"+++ ") {
        return Some(Event::Exit);
    }
    if body.starts_with(b"--- ") {
        return Some(Event::Other);
    }
    if body.starts_with(b"<... ") {
        let at = memchr::memmem::find(body, RESUMED)?;
        return Some(Event::End(&body[at + RESUMED.len()..]));
    }
    name(body)?;
    if let Some(begins) = body.strip_suffix(UNFINISHED) {
        return Some(Event::Begin(begins.trim_ascii_end()));
    }
    split(body).map(|_| Event::Call(body))
}

/// The beginning of a line in whose middle strace says that it traces a new thread. The next line
/// is its rest.
pub(super) fn attached(line: &[u8]) -> Option<&[u8]> {
    let (begins, number) = line.strip_suffix(b" attached").and_then(|line| {
        let at = memchr::memmem::rfind(line, b"strace: Process ")?;
        Some((&line[..at], &line[at + b"strace: Process ".len()..]))
    })?;
    let is_number = number.iter().all(u8::is_ascii_digit);
    (is_number && !begins.is_empty()).then_some(begins)
}

/// Whether a call did not return because its thread ended.
pub(super) fn ended(body: &[u8]) -> bool {
    body.trim_ascii_end().ends_with(b"= ?")
}

/// Parses the call in the body of a line.
pub(super) fn call(body: &[u8]) -> Option<Call<'_>> {
    let name = name(body)?;
    let (call, came) = split(body)?;
    let (value, _) = word(came);
    let (value, annotation) = match memchr::memchr(b'<', value) {
        Some(at) => (&value[..at], Some(&came[at..])),
        None => (value, None),
    };
    let result = match value.strip_prefix(b"0x") {
        Some(_) => hexadecimal(value).ok(),
        None => decimal(value).ok(),
    };
    Some(Call {
        name,
        arguments: &call[name.len() + 1..],
        result,
        path: annotation.and_then(annotated).map(|(path, _)| path),
    })
}

/// The name before the parenthesis.
fn name(body: &[u8]) -> Option<&[u8]> {
    let letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let length = body.iter().take_while(|byte| letter(byte)).count();
    (length > 0 && body.get(length) == Some(&b'(')).then(|| &body[..length])
}

/// The call before its closing parenthesis, and the text after the `=`. Strings in the arguments
/// may contain both, so the last occurrence counts.
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    for at in memchr::memrchr_iter(b'=', body) {
        if let Some(call) = body[..at].trim_ascii_end().strip_suffix(b")")
            && body[at + 1..].starts_with(b" ")
        {
            return Some((call, &body[at + 2..]));
        }
    }
    None
}

/// The text up to the first white space, and what follows that.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let length = text.iter().position(u8::is_ascii_whitespace);
    let length = length.unwrap_or(text.len());
    (&text[..length], text[length..].trim_ascii_start())
}

fn number(text: &[u8]) -> Option<u32> {
    decimal(text).ok()?.try_into().ok()
}

fn time(text: &[u8]) -> Option<Time> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    let mut parts = text.splitn(3, |byte| *byte == b':');
    let first = parts.next()?;
    if let (Some(minutes), Some(second)) = (parts.next(), parts.next()) {
        let minutes = decimal(first)
            .ok()?
            .checked_mul(60)?
            .checked_add(decimal(minutes).ok()?)?;
        let ns = minutes.checked_mul(60_000_000_000)?;
        return Some(Time::OfDay(ns.checked_add(seconds(second).ok()?)?));
    }
    memchr::memchr(b'.', text)?;
    let ns = seconds(text).ok()?;
    // A relative time is shorter than three years, and an epoch is later than 1973.
    const THREE_YEARS_NS: u64 = 100_000_000 * 1_000_000_000;
    Some(if ns < THREE_YEARS_NS {
        Time::SinceLast(ns)
    } else {
        Time::Epoch(ns)
    })
}

/// The path in the `<...>` at the beginning, and the text after it. strace escapes `<` and `>` in
/// paths. With `-yy`, the description of a device follows the path in brackets of its own.
fn annotated(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"<")?;
    let end = memchr::memchr2(b'<', b'>', inner)?;
    let (path, rest) = inner.split_at(end);
    let rest = match rest.strip_prefix(b">") {
        Some(rest) => rest,
        None => {
            let close = memchr::memmem::find(rest, b">>")?;
            &rest[close + 2..]
        }
    };
    Some((path, rest))
}

/// The descriptor at the beginning of arguments, and the text after its comma.
pub(super) fn descriptor(arguments: &[u8]) -> Option<(DescriptorArgument<'_>, &[u8])> {
    let digits = arguments.iter().take_while(|byte| byte.is_ascii_digit());
    let (digits, rest) = arguments.split_at(digits.count());
    let (path, rest) = match annotated(rest) {
        Some((path, rest)) => (Some(path), rest),
        None => (None, rest),
    };
    let number = number(digits)?;
    let rest = rest.strip_prefix(b"(deleted)").unwrap_or(rest);
    let rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii();
    Some((DescriptorArgument { number, path }, rest))
}

/// The quoted string at the beginning, unescaped, and the text after its comma.
pub(super) fn quoted(arguments: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = arguments.strip_prefix(b"\"")?;
    let mut text = Vec::new();
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        match byte {
            b'"' => break,
            b'\\' => rest = escape(rest, &mut text)?,
            byte => text.push(byte),
        }
    }
    rest = rest.strip_prefix(b"...").unwrap_or(rest);
    rest = rest.strip_prefix(b",").unwrap_or(rest);
    Some((text, rest.trim_ascii()))
}

/// Unescapes a path of `-y`.
pub(super) fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' => rest = escape(rest, &mut text).unwrap_or_default(),
            byte => text.push(byte),
        }
    }
    text
}

/// Unescapes one character, whose backslash is already removed. Returns the text after it.
fn escape<'l>(rest: &'l [u8], text: &mut Vec<u8>) -> Option<&'l [u8]> {
    let (&first, behind) = rest.split_first()?;
    let octal = |digits: &[u8]| {
        digits
            .iter()
            .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'))
    };
    match first {
        b'0'..=b'7' => {
            let digits = rest
                .iter()
                .take(3)
                .take_while(|byte| (b'0'..=b'7').contains(byte));
            let (digits, behind) = rest.split_at(digits.count());
            text.push(octal(digits) as u8);
            Some(behind)
        }
        b'x' => {
            let (digits, behind) = behind.split_at_checked(2)?;
            text.push(hexadecimal(digits).ok()? as u8);
            Some(behind)
        }
        other => {
            text.push(match other {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'v' => 0x0b,
                b'f' => 0x0c,
                other => other,
            });
            Some(behind)
        }
    }
}

/// The last `N` arguments.
pub(super) fn last<const N: usize>(arguments: &[u8]) -> Option<[&[u8]; N]> {
    let mut found = [b"".as_slice(); N];
    let mut parts = arguments.rsplitn(N + 1, |byte| *byte == b',');
    for place in found.iter_mut().rev() {
        *place = parts.next()?.trim_ascii();
    }
    Some(found)
}

/// A number as an argument: decimal, or hexadecimal with `0x`.
pub(crate) fn value(argument: &[u8]) -> Option<u64> {
    match argument.strip_prefix(b"0x") {
        Some(_) => hexadecimal(argument).ok(),
        None => decimal(argument).ok(),
    }
}

/// A frame of `-k`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RawFrame<'l> {
    pub(super) module: &'l [u8],
    pub(super) function: Option<&'l [u8]>,
    pub(super) offset: u64,
}

/// Parses a frame, `module(function+0x12) [0x3456]`. The function may be missing.
pub(super) fn frame(text: &[u8]) -> Option<RawFrame<'_>> {
    let text = text.strip_suffix(b"]")?;
    let at = memchr::memmem::rfind(text, b" [")?;
    let offset = hexadecimal(&text[at + 2..]).ok()?;
    let place = &text[..at];
    let Some(inner) = place.strip_suffix(b")") else {
        return Some(RawFrame {
            module: place,
            function: None,
            offset,
        });
    };
    // Demangled functions contain parentheses. Names of modules hardly ever do.
    let open = memchr::memchr(b'(', inner)?;
    let function = &inner[open + 1..];
    let function = match memchr::memmem::rfind(function, b"+0x") {
        Some(plus) => &function[..plus],
        None => function,
    };
    Some(RawFrame {
        module: &inner[..open],
        function: Some(function).filter(|function| !function.is_empty()),
        offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> LogLine<'_> {
        entry(line.as_bytes()).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn lines_say_who_and_when() {
        assert_eq!(of("[pid  27] close(3) = 0").tid, 27);
        assert_eq!(of("27 close(3)      = 0").tid, 27);
        assert_eq!(of("close(3) = 0").tid, 0);
        let day = of("27307 01:01:01.500000 close(3) = 0").time;
        assert_eq!(day, Some(Time::OfDay(3_661_500_000_000)));
        let epoch = of("1732172920.5 close(3) = 0").time;
        assert_eq!(epoch, Some(Time::Epoch(1_732_172_920_500_000_000)));
        assert_eq!(
            of("7 0.000034 close(3) = 0").time,
            Some(Time::SinceLast(34_000))
        );
        let both = of("7 1732172920.5 (+     0.000034) close(3) = 0");
        assert_eq!(
            (both.time, both.event),
            (epoch, Event::Call(b"close(3) = 0"))
        );
        assert_eq!(of("7 +++ exited with 0 +++").event, Event::Exit);
        assert_eq!(
            of("7 --- SIGCHLD {si_signo=SIGCHLD} ---").event,
            Event::Other
        );
        assert_eq!(
            of("7 <... read resumed>\"x\", 1) = 1").event,
            Event::End(b"\"x\", 1) = 1")
        );
        assert_eq!(
            of("7 read(3,  <unfinished ...>").event,
            Event::Begin(b"read(3,")
        );
        for junk in ["hello", "7 hello", "7 read(3", "read(3, \"", "7 8 9", "1\n"] {
            assert_eq!(entry(junk.as_bytes()), None, "{junk}");
        }
    }

    #[test]
    fn calls_are_taken_apart() {
        let read = call(br#"read(3</tmp/a\76b>, ") = 7"..., 10)  = 9 <0.000003>"#).unwrap();
        assert_eq!((read.name, read.result), (b"read".as_slice(), Some(9)));
        let (file, rest) = descriptor(read.arguments).unwrap();
        assert_eq!(
            (file.number, unescaped(file.path.unwrap())),
            (3, b"/tmp/a>b".to_vec())
        );
        assert_eq!(rest, br#"") = 7"..., 10"#);
        let open = call(br#"openat(AT_FDCWD, "a\"\n", O_RDONLY) = 5</tmp/a> <0.1>"#).unwrap();
        assert_eq!(
            (open.result, open.path),
            (Some(5), Some(b"/tmp/a".as_slice()))
        );
        let failed = call(br#"read(3, 0x7ffe, 10) = -1 EAGAIN (Try again)"#).unwrap();
        assert_eq!(failed.result, None);
        assert_eq!(call(b"exit_group(0) = ?").unwrap().result, None);
        let mapped = call(b"mmap(NULL, 8, PROT_READ, MAP_PRIVATE, 3, 0x26000) = 0x7f00").unwrap();
        assert_eq!(mapped.result, Some(0x7f00));
        assert_eq!(last(mapped.arguments), Some([b"3".as_slice(), b"0x26000"]));
    }

    #[test]
    fn messages_cut_lines_and_calls_end_with_their_thread() {
        let cut = b"clock_nanosleep(0, {tv_sec=0},  strace: Process 27 attached";
        assert_eq!(
            attached(cut),
            Some(b"clock_nanosleep(0, {tv_sec=0},  ".as_slice())
        );
        assert_eq!(attached(b"strace: Process 27 attached"), None);
        assert_eq!(attached(b"read(3, strace: Process x attached"), None);
        assert!(ended(b"exit_group(0)  = ?"));
        assert!(!ended(
            b"wait4(-1, 0x7f, 0, NULL) = ? ERESTARTSYS (To be restarted)"
        ));
    }

    #[test]
    fn devices_are_told_from_files() {
        let (device, rest) = descriptor(b"11</dev/null<char 1:3>>, 0</tmp/a>").unwrap();
        assert_eq!(device.path, Some(b"/dev/null".as_slice()));
        assert_eq!(descriptor(rest).unwrap().0.number, 0);
        assert_eq!(
            descriptor(b"3<pipe:[12]>").unwrap().0.path,
            Some(b"pipe:[12]".as_slice())
        );
        assert_eq!(descriptor(b"AT_FDCWD, 1"), None);
        assert_eq!(descriptor(b"3</tmp/a>(deleted), 4").unwrap().1, b"4");
    }

    #[test]
    fn frames_have_module_function_and_offset() {
        let libc = frame(b"/usr/lib/libc.so.6(__read+0xd) [0xf833d]").unwrap();
        assert_eq!(libc.module, b"/usr/lib/libc.so.6");
        assert_eq!(libc.function, Some(b"__read".as_slice()));
        assert_eq!(libc.offset, 0xf833d);
        let bare = frame(b"/usr/bin/cat() [0x3151]").unwrap();
        assert_eq!((bare.function, bare.offset), (None, 0x3151));
        let demangled = frame(b"/bin/x(ns::f(int, char*)+0x1) [0x2]").unwrap();
        assert_eq!(demangled.function, Some(b"ns::f(int, char*)".as_slice()));
        assert_eq!(frame(b"what"), None);
    }
}
