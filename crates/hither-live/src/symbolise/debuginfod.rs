//! Debug information from a server of the debuginfod protocol, through elfutils'
//! `debuginfod-find`: its cache, its settings and its certificates are those that debuggers and
//! perf use.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The servers that are asked, as the user's environment names them. elfutils' own default, which
/// is compiled in, is not used: nothing goes to a server that the user has not named.
pub(super) const SERVERS: &str = "DEBUGINFOD_URLS";

/// How long to wait for a server that sends nothing, where the user does not say it. elfutils' own
/// 90 seconds for each file would be felt.
const TIMEOUT: (&str, &str) = ("DEBUGINFOD_TIMEOUT", "10");

/// The file with the debug information of a build-id, from the cache or from one of the servers;
/// `None` where none has it, or the tool is not installed.
pub(super) fn find(servers: &OsString, build_id: &[u8]) -> Option<PathBuf> {
    let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut tool = Command::new("debuginfod-find");
    tool.args(["debuginfo", &build_id]).env(SERVERS, servers);
    if std::env::var_os(TIMEOUT.0).is_none() {
        tool.env(TIMEOUT.0, TIMEOUT.1);
    }
    let answer = tool.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let answer = answer.ok().filter(|answer| answer.status.success())?;
    let path = answer.stdout.strip_suffix(b"\n")?.to_owned();
    Some(PathBuf::from(OsString::from_vec(path)))
}
