//! The signals that end a node.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, what `kill` sends, and the end of the terminal.
pub(crate) struct EndSignals([Signal; 3]);

impl EndSignals {
    /// From now on, none of them ends the process.
    pub(crate) fn new() -> io::Result<EndSignals> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [interrupt, terminate, hang_up] = kinds.map(signal);
        Ok(EndSignals([interrupt?, terminate?, hang_up?]))
    }

    /// Waits for one of them.
    pub(crate) async fn wait(&mut self) {
        let EndSignals([interrupt, terminate, hang_up]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }
}
