//! Wakes the agent when the kernel has copied a stack, so that it is followed while its process
//! lives. A thread waits for that: the agent's own waits for more than this.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::{self, JoinHandle, Thread};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

const COPIED: Token = Token(0);
const OVER: Token = Token(1);

/// Until it is dropped, wakes a thread.
#[derive(Debug)]
pub(super) struct Alarm {
    over: Waker,
    waits: Option<JoinHandle<()>>,
}

impl Alarm {
    /// Wakes `agent` each time that this becomes ready.
    pub(super) fn new(copied: OwnedFd, agent: Thread) -> io::Result<Alarm> {
        let mut poll = Poll::new()?;
        let over = Waker::new(poll.registry(), OVER)?;
        let descriptor = copied.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        poll.registry()
            .register(&mut source, COPIED, Interest::READABLE)?;
        let wait = move || {
            // It is open as long as it is waited for.
            let _copied = copied;
            let mut events = Events::with_capacity(2);
            loop {
                match poll.poll(&mut events, None) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return,
                    Ok(()) => {}
                }
                if events.iter().any(|event| event.token() == OVER) {
                    return;
                }
                agent.unpark();
            }
        };
        let waits = thread::Builder::new().name("hither-stacks".into());
        let waits = Some(waits.spawn(wait)?);
        Ok(Alarm { over, waits })
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if self.over.wake().is_ok()
            && let Some(waits) = self.waits.take()
        {
            let _ = waits.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_agent_is_woken_each_time() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let alarm = Alarm::new(reader.into(), thread::current()).expect("a thread");
        for _ in 0..3 {
            writer.write_all(b"a").expect("written");
            let from = Instant::now();
            thread::park_timeout(Duration::from_secs(60));
            assert!(from.elapsed() < Duration::from_secs(30));
        }
        drop(alarm);
    }
}
