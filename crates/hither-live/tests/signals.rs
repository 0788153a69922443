//! Signals to the agent reach the program. One test in a binary of its own: signals are the
//! process's, and so is the one program that they are passed on to.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use hither_kernel::process::kill;

#[test]
fn a_signal_to_the_agent_ends_the_program_and_the_trace_is_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ready = folder.path().join("ready");
    // A keyboard's interrupt reaches both; the program may take it as it likes, and the agent
    // carries on. The loop is without processes of its own, so that none is left behind.
    let script = format!(
        "trap 'echo interrupted > {0}.int' INT; trap 'echo told > {0}.told' USR1; read -r first < \
            /etc/passwd; echo > {0}; while :; do read -r x < /etc/passwd; done",
        ready.display()
    );
    let recorder = support::recorder(folder.path(), &["sh", "-c", &script]);
    let recording = thread::spawn(move || recorder.run());
    let own = std::process::id() as i32;
    while !ready.exists() {
        assert!(!recording.is_finished(), "{:?}", recording.join());
        thread::sleep(Duration::from_millis(1));
    }
    kill(own, libc::SIGINT).expect("sent");
    assert!(!recording.is_finished());
    kill(own, libc::SIGUSR1).expect("sent");
    while !ready.with_extension("told").exists() {
        assert!(!recording.is_finished(), "{:?}", recording.join());
        thread::sleep(Duration::from_millis(1));
    }
    kill(own, libc::SIGTERM).expect("sent");
    let recorded = recording.join().expect("no panic").expect("recorded");
    assert_eq!(recorded.exit.signal(), Some(libc::SIGTERM));
    assert!(recorded.summary.bytes_read > 0);
    assert!(recorded.trace.is_dir());
}
