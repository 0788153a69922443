//! Values that stand in options and in files alike.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use hither_sim::Size;

/// A size in bytes, such as `64MiB`.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => Ok(bytes),
        Size::Percent(_) => Err("a size in bytes is expected, such as 64MiB".to_owned()),
    }
}

/// The length of a block.
pub fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size_bytes(text)?).ok();
    let bytes = bytes.filter(|bytes| bytes.is_power_of_two());
    bytes
        .filter(|bytes| (4 << 10..=8 << 20).contains(bytes))
        .ok_or_else(|| "a power of two from 4KiB to 8MiB is expected".to_owned())
}

/// `KEY=VALUE`.
pub fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is expected")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses an address and a port, or only a port, which is then on the loopback address.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    match port {
        Ok(port) => Ok((IpAddr::V4(Ipv4Addr::LOCALHOST), port).into()),
        Err(_) => text
            .parse()
            .map_err(|_| "give a port, or an address and a port, as in 127.0.0.1:9464".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_this_machines() {
        let given = ["9464", ":9464", "127.0.0.1:9464", "[::1]:0", "0.0.0.0:1"];
        let found = given.map(|text| address(text).expect(text).to_string());
        assert_eq!(
            found,
            [
                "127.0.0.1:9464",
                "127.0.0.1:9464",
                "127.0.0.1:9464",
                "[::1]:0",
                "0.0.0.0:1"
            ]
        );
        for wrong in ["", "65536", "localhost", "localhost:1", "1.2.3.4", "-1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
