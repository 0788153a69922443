//! What systemd is told of a node or an agent: sd_notify(3). A crate for it would be longer than
//! this.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd these assignments, such as `READY=1`, if it wants to know.
///
/// # Errors
/// The socket that `NOTIFY_SOCKET` names cannot be reached.
pub fn notify(text: &str) -> io::Result<()> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let named = |error| io::Error::other(format!("NOTIFY_SOCKET={}: {error}", socket.display()));
    send(&socket, text).map_err(named)
}

/// A name that starts with `@` is in the abstract namespace.
fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("hither-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let named = UnixDatagram::bind(&path).unwrap();
        let unnamed = UnixDatagram::bind_addr(&address).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        send(format!("@{abstract_name}").as_ref(), "READY=1").unwrap();
        for socket in [named, unnamed] {
            let mut bytes = [0; 20];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        }
        assert!(send(folder.path().join("none").as_os_str(), "READY=1").is_err());
    }
}
