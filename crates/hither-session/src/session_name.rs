//! How a program finds its session: the environment variable `HITHER_SESSION` has the number of the
//! shared segment, the seccomp filters over the agent and a nonce, as in `17-0-9f3ac2d1e0b4a577`.

use std::fmt;

use hither_kernel::shared_memory::Id;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionName {
    pub(crate) id: Id,
    /// A program reads this before it makes a system call that a filter may kill it for.
    pub(crate) filters: u32,
    /// The segment has it too.
    pub(crate) nonce: u64,
}

impl SessionName {
    /// Neither allocates nor panics.
    pub(crate) fn parse(name: &[u8]) -> Option<SessionName> {
        let mut parts = str::from_utf8(name).ok()?.split('-');
        let name = SessionName {
            id: parts.next()?.parse().ok()?,
            filters: parts.next()?.parse().ok()?,
            nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        parts.next().is_none().then_some(name)
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}-{}-{:016x}", self.id, self.filters, self.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let name = SessionName {
            id: 17,
            filters: 2,
            nonce: 0xabc,
        };
        assert_eq!(name.to_string(), "17-2-0000000000000abc");
        assert_eq!(SessionName::parse(name.to_string().as_bytes()), Some(name));
        for bad in [
            "",
            "17",
            "17-0",
            "17-0-x",
            "17-0-1-1",
            "/dev/shm/x",
            "-1-0-0",
        ] {
            assert_eq!(SessionName::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(SessionName::parse(b"17-0-\xff"), None);
    }
}
