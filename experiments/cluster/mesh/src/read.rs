//! The programs: threads for each node that read blocks through the node's client socket, from
//! memcached or from a mount, and compare every byte.
//!
//! The plan is a file of lines:
//!
//! ```text
//! volume NAME        block BYTES        threads N (of a node)
//! reopen 0|1         open a file again for each read
//! rate READS         of a node in a second; who is late goes on at once
//! files NAME...      by number
//! node N SOCKET LIST for each node: little-endian pairs of 32 bits, file and block
//! folder N PATH LIST in place of that: a mount, which is read past the page cache
//! servers ADDRESS... of memcached, by node: in place of sockets
//! source ADDRESS     for what they do not have
//! warm N             so many reads of a node come first
//! output FILE
//! ```
//!
//! The program does the first reads of all nodes, prints `{"part": "warm"}`, waits for a line, does
//! the others, and writes a record for each of these: see [`Record`]. Threads open all files
//! before, so that no read waits for an open, but where each read opens its file again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File as PlainFile, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hither_client::{Client, File};
use rustix::fs::OFlags;

use crate::content::{CELL_BYTES, check};
use crate::memcached::Memcached;
use crate::values::{now_ns, number};

/// Opens for one read, while new versions come.
const ATTEMPTS: u32 = 4;

/// What a node's threads read.
struct Node {
    number: u32,
    place: Place,
    accesses: Vec<(u32, u32)>,
}

/// Where threads read.
enum Place {
    Socket(PathBuf),
    Folder(PathBuf),
}

#[derive(Default)]
struct Plan {
    volume: String,
    block_bytes: u64,
    threads: usize,
    reopens: bool,
    rate: f64,
    files: Vec<String>,
    nodes: Vec<Node>,
    servers: Vec<String>,
    source: String,
    warm: usize,
    output: PathBuf,
}

/// One read. A read that failed has version `NONE`.
struct Record {
    node: u32,
    file: u32,
    block: u32,
    version: u32,
    /// The server of memcached that had the block, or `NONE`.
    server: u32,
    /// The server that was given it after it was read from the source, or `NONE`.
    given: u32,
    /// When the file was opened of which it was read.
    opened_ns: u64,
    begun_ns: u64,
    ended_ns: u64,
}

/// Of a record.
const NONE: u32 = u32::MAX;

impl Record {
    fn write(&self, output: &mut impl Write) -> io::Result<()> {
        for word in [
            self.node,
            self.file,
            self.block,
            self.version,
            self.server,
            self.given,
        ] {
            output.write_all(&word.to_le_bytes())?;
        }
        for time in [self.opened_ns, self.begun_ns, self.ended_ns] {
            output.write_all(&time.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Runs the plan in a file.
pub(crate) fn run(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).context(path.display().to_string())?;
    let plan = parse(&text).context(path.display().to_string())?;
    let mut readers = readers(&plan)?;
    let warmed = part(&plan, &mut readers, 0, plan.warm)?;
    println!("{{\"part\": \"warm\", \"reads\": {}}}", warmed.len());
    io::stdin().read_line(&mut String::new())?;
    let begun = Instant::now();
    let records = part(&plan, &mut readers, plan.warm, usize::MAX)?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut output = BufWriter::new(PlainFile::create(&plan.output)?);
    for record in &records {
        record.write(&mut output)?;
    }
    output.flush()?;
    let reads = records.len();
    println!("{{\"part\": \"measured\", \"reads\": {reads}, \"seconds\": {seconds}}}");
    Ok(())
}

fn parse(text: &str) -> Result<Plan> {
    let mut plan = Plan::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["volume", name] => name.clone_into(&mut plan.volume),
            ["block", bytes] => plan.block_bytes = number(bytes)?,
            ["threads", threads] => plan.threads = number(threads)?,
            ["reopen", reopens] => plan.reopens = number::<u8>(reopens)? != 0,
            ["rate", rate] => plan.rate = number(rate)?,
            ["files", ref names @ ..] => {
                plan.files = names.iter().map(ToString::to_string).collect()
            }
            ["warm", reads] => plan.warm = number(reads)?,
            ["output", path] => plan.output = path.into(),
            ["servers", ref all @ ..] => {
                plan.servers = all.iter().map(ToString::to_string).collect();
            }
            ["source", address] => address.clone_into(&mut plan.source),
            [kind @ ("node" | "folder"), node, place, list] => {
                let bytes = std::fs::read(list).context(list.to_owned())?;
                let (pairs, _) = bytes.as_chunks::<8>();
                let pair = |pair: &[u8; 8]| {
                    let value = u64::from_le_bytes(*pair);
                    (value as u32, (value >> 32) as u32)
                };
                plan.nodes.push(Node {
                    number: number(node)?,
                    place: match kind {
                        "node" => Place::Socket(place.into()),
                        _ => Place::Folder(place.into()),
                    },
                    accesses: pairs.iter().map(pair).collect(),
                });
            }
            _ => bail!("{line:?} is not part of a plan"),
        }
    }
    Ok(plan)
}

/// The threads of all nodes, each with the index of its node.
fn readers(plan: &Plan) -> Result<Vec<(usize, Reader<'_>)>> {
    let each = (0..plan.nodes.len()).flat_map(|node| (0..plan.threads).map(move |_| node));
    each.map(|node| Ok((node, Reader::new(plan, &plan.nodes[node])?)))
        .collect()
}

/// Does the reads from `first` on until `end` of all nodes.
fn part(
    plan: &Plan,
    readers: &mut [(usize, Reader<'_>)],
    first: usize,
    end: usize,
) -> Result<Vec<Record>> {
    let begun = Instant::now();
    let next: Vec<AtomicUsize> = plan.nodes.iter().map(|_| AtomicUsize::new(first)).collect();
    let run = |node: usize, reader: &mut Reader<'_>| -> Result<Vec<Record>> {
        let it = &plan.nodes[node];
        let mut records = Vec::new();
        loop {
            let at = next[node].fetch_add(1, Ordering::Relaxed);
            if at >= end.min(it.accesses.len()) {
                return Ok(records);
            }
            let due = Duration::from_secs_f64((at - first) as f64 / plan.rate);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            records.push(reader.read(it.number, it.accesses[at])?);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = readers
            .iter_mut()
            .map(|(node, reader)| scope.spawn(|| run(*node, reader)))
            .collect();
        let mut records = Vec::new();
        for thread in threads {
            records.extend(thread.join().expect("no thread panics")?);
        }
        Ok(records)
    })
}

enum Cache {
    /// Open files, and when they were opened.
    Node(Client, HashMap<u32, (u64, File)>),
    Servers(Memcached),
    /// Files of a mount.
    Files(Vec<PlainFile>),
}

/// What one thread has.
struct Reader<'a> {
    plan: &'a Plan,
    cache: Cache,
    data: Vec<u8>,
}

/// Where a block came from: when its file was opened, and the server.
struct Origin {
    opened_ns: u64,
    server: u32,
}

impl<'a> Reader<'a> {
    fn new(plan: &'a Plan, node: &Node) -> Result<Reader<'a>> {
        let cache = match &node.place {
            _ if !plan.servers.is_empty() => {
                Cache::Servers(Memcached::new(&plan.servers, &plan.source))
            }
            Place::Socket(socket) => {
                let (client, mut open) = (Client::connect(socket)?, HashMap::new());
                let files = (0..).zip(&plan.files);
                for (file, name) in files.filter(|_| !plan.reopens) {
                    open.insert(
                        file,
                        (now_ns(), client.open(&plan.volume, name.as_bytes())?),
                    );
                }
                Cache::Node(client, open)
            }
            Place::Folder(folder) => {
                let mut options = OpenOptions::new();
                options
                    .read(true)
                    .custom_flags(OFlags::DIRECT.bits() as i32);
                let open = |name| {
                    let path = folder.join(name);
                    options.open(&path).context(path.display().to_string())
                };
                Cache::Files(plan.files.iter().map(open).collect::<Result<_>>()?)
            }
        };
        let data = vec![0; plan.block_bytes as usize];
        Ok(Reader { plan, cache, data })
    }

    /// Reads a block. Wrong bytes end all.
    fn read(&mut self, node: u32, (file, block): (u32, u32)) -> Result<Record> {
        let begun_ns = now_ns();
        let read = self.block(file, block);
        let ended_ns = now_ns();
        let (version, from) = match read {
            Ok(from) => {
                let cell = u64::from(block) * self.plan.block_bytes / CELL_BYTES;
                let version = check(file, cell, &self.data);
                (version.with_context(|| format!("node {node}"))?, from)
            }
            Err(error) => {
                eprintln!("node {node}, file {file}, block {block}: {error:#}");
                let from = Origin {
                    opened_ns: begun_ns,
                    server: NONE,
                };
                (NONE, from)
            }
        };
        let mut given = NONE;
        match &mut self.cache {
            Cache::Node(_, open) if self.plan.reopens || version == NONE => {
                open.remove(&file);
            }
            Cache::Servers(servers) if from.server == NONE => {
                given = servers.set(file, block, &self.data)? as u32;
            }
            _ => {}
        }
        Ok(Record {
            node,
            file,
            block,
            version,
            server: from.server,
            given,
            opened_ns: from.opened_ns,
            begun_ns,
            ended_ns,
        })
    }

    fn block(&mut self, file: u32, block: u32) -> Result<Origin> {
        let (plan, data) = (self.plan, &mut self.data[..]);
        let name = &plan.files[file as usize];
        let opened_ns = now_ns();
        let (client, open) = match &mut self.cache {
            Cache::Node(client, open) => (client, open),
            Cache::Files(files) => {
                let offset = u64::from(block) * plan.block_bytes;
                files[file as usize].read_exact_at(data, offset)?;
                let server = NONE;
                return Ok(Origin { opened_ns, server });
            }
            Cache::Servers(servers) => {
                let server = servers.get(file, block, data)?;
                if server.is_none() {
                    servers.fetch(name, block, data)?;
                }
                let server = server.map_or(NONE, |it| it as u32);
                return Ok(Origin { opened_ns, server });
            }
        };
        let mut attempts = 1;
        loop {
            let (opened_ns, from) = match open.entry(file) {
                Entry::Occupied(opened) => opened.into_mut(),
                Entry::Vacant(place) => {
                    let opened_ns = now_ns();
                    place.insert((opened_ns, client.open(&plan.volume, name.as_bytes())?))
                }
            };
            match from.read_at(data, u64::from(block) * plan.block_bytes) {
                // A new version has come since: the same as in a mount.
                Err(error)
                    if error.kind() == io::ErrorKind::StaleNetworkFileHandle
                        && attempts < ATTEMPTS =>
                {
                    open.remove(&file);
                    attempts += 1;
                }
                read => {
                    let bytes = read?;
                    ensure!(bytes == data.len(), "{bytes} bytes were read");
                    return Ok(Origin {
                        opened_ns: *opened_ns,
                        server: NONE,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_plan_is_read_and_what_is_none_is_refused() {
        let plan = parse("volume v\nblock 4096\nrate 1.5\nfiles a b\nreopen 1").unwrap();
        assert_eq!(plan.files, ["a", "b"]);
        assert!(plan.reopens);
        assert!(parse("speed 7").is_err());
        assert!(parse("block x").is_err());
    }
}
