//! A cluster cache as programs make it with memcached: a server on each node, a ring of consistent
//! hashing in each client, and the client reads the source for what no server has.
//!
//! The client puts what it has read from the source after the read has been timed. Several clients
//! that miss the same block all read it, as they do with memcached.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

use crate::values::number;

/// Points of a server on the ring, as libketama has them.
const POINTS: u64 = 160;

/// Mixes the bits of a number: the end of splitmix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

fn ring(servers: usize) -> Vec<(u64, usize)> {
    let points =
        |server| (0..POINTS).map(move |point| (mix(server << 32 | point), server as usize));
    let mut ring: Vec<(u64, usize)> = (0..servers as u64).flat_map(points).collect();
    ring.sort_unstable();
    ring
}

fn server_of(ring: &[(u64, usize)], file: u32, block: u32) -> usize {
    let place = mix(!(u64::from(file) << 32 | u64::from(block)));
    let at = ring.partition_point(|(point, _)| *point < place);
    ring[at % ring.len()].1
}

/// What one thread has: its connections are made when they are needed.
pub(crate) struct Memcached {
    servers: Vec<(String, Option<BufReader<TcpStream>>)>,
    ring: Vec<(u64, usize)>,
    source: (String, Option<BufReader<TcpStream>>),
}

fn connection(
    (address, made): &mut (String, Option<BufReader<TcpStream>>),
) -> io::Result<&mut BufReader<TcpStream>> {
    let stream = match made.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(&*address)?;
            stream.set_nodelay(true)?;
            BufReader::with_capacity(1 << 16, stream)
        }
    };
    Ok(made.insert(stream))
}

fn line(from: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    ensure!(from.read_line(&mut line)? > 0, "the connection has ended");
    Ok(line.trim_end().to_owned())
}

impl Memcached {
    pub(crate) fn new(servers: &[String], source: &str) -> Memcached {
        Memcached {
            servers: servers.iter().map(|it| (it.clone(), None)).collect(),
            ring: ring(servers.len()),
            source: (source.to_owned(), None),
        }
    }

    /// The server that has the block, which is then in `data`. `None`: it has to be fetched.
    pub(crate) fn get(&mut self, file: u32, block: u32, data: &mut [u8]) -> Result<Option<usize>> {
        let server = server_of(&self.ring, file, block);
        let stream = connection(&mut self.servers[server])?;
        stream
            .get_mut()
            .write_all(format!("get {file}.{block}\r\n").as_bytes())?;
        let head = line(stream)?;
        if head == "END" {
            return Ok(None);
        }
        let bytes: usize = number(head.rsplit(' ').next().unwrap_or_default())?;
        ensure!(bytes == data.len(), "a server has {head:?}");
        stream.read_exact(data)?;
        ensure!(line(stream)?.is_empty() && line(stream)? == "END", "no end");
        Ok(Some(server))
    }

    /// Reads the block from the source.
    pub(crate) fn fetch(&mut self, name: &str, block: u32, data: &mut [u8]) -> Result<()> {
        let stream = connection(&mut self.source)?;
        let first = u64::from(block) * data.len() as u64;
        let last = first + data.len() as u64 - 1;
        let request =
            format!("GET /{name} HTTP/1.1\r\nHost: source\r\nRange: bytes={first}-{last}\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let status = line(stream)?;
        ensure!(status.contains(" 206 "), "the source says {status:?}");
        let mut bytes = None;
        loop {
            let header = line(stream)?.to_ascii_lowercase();
            match header.split_once(": ") {
                Some(("content-length", length)) => bytes = Some(number::<usize>(length)?),
                None if header.is_empty() => break,
                _ => {}
            }
        }
        ensure!(
            bytes == Some(data.len()),
            "the source sends {bytes:?} bytes"
        );
        Ok(stream.read_exact(data)?)
    }

    /// Gives the server of the block what the source had. Returns which one that is.
    pub(crate) fn set(&mut self, file: u32, block: u32, data: &[u8]) -> Result<usize> {
        let server = server_of(&self.ring, file, block);
        let stream = connection(&mut self.servers[server])?;
        let head = format!("set {file}.{block} 0 0 {}\r\n", data.len());
        let request = [head.as_bytes(), data, b"\r\n"].concat();
        stream.get_mut().write_all(&request)?;
        match line(stream).context("set")?.as_str() {
            "STORED" => Ok(server),
            answer => bail!("a server says {answer:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ring, server_of};

    #[test]
    fn servers_have_equal_parts_and_keep_theirs() {
        let count = |servers: usize| {
            let ring = ring(servers);
            let server = |block| server_of(&ring, 0, block);
            (0..10_000).map(server).collect::<Vec<_>>()
        };
        let (nine, ten) = (count(9), count(10));
        for server in 0..9 {
            let part = nine.iter().filter(|it| **it == server).count();
            assert!((700..1600).contains(&part), "{server}: {part}");
        }
        // With another server, blocks go there, and nowhere else.
        let stays = |(old, new): (&usize, &usize)| old == new || *new == 9;
        assert!(nine.iter().zip(&ten).all(stays));
    }
}
