//! The programs: threads for each node that read blocks through the node's client socket, and
//! compare every byte.
//!
//! The plan is a file of lines:
//!
//! ```text
//! volume NAME        block BYTES        threads N (of a node)
//! reopen 0|1         open a file again for each read
//! rate READS         of a node in a second; who is late goes on at once
//! files NAME...      by number
//! node SOCKET LIST   for each node: little-endian pairs of 32 bits, file and block
//! warm N             so many reads of a node come first
//! output FILE
//! ```
//!
//! The program does the first reads of all nodes, prints `{"part": "warm"}`, waits for a line, does
//! the others, and writes a record for each of these: see [`Record`].

use std::collections::HashMap;
use std::fs::File as Output;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hither_client::{Client, File};

use crate::content::{CELL_BYTES, check};
use crate::{now_ns, number};

/// What a node's threads read.
struct Node {
    socket: PathBuf,
    accesses: Vec<(u32, u32)>,
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
    warm: usize,
    output: PathBuf,
}

/// One read. A read that failed has version `u32::MAX`.
struct Record {
    node: u32,
    file: u32,
    block: u32,
    version: u32,
    /// When the file was opened of which it was read.
    opened_ns: u64,
    begun_ns: u64,
    ended_ns: u64,
}

impl Record {
    fn write(&self, output: &mut impl Write) -> io::Result<()> {
        for word in [self.node, self.file, self.block, self.version] {
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
    let warmed = part(&plan, 0, plan.warm)?;
    println!("{{\"part\": \"warm\", \"reads\": {}}}", warmed.len());
    io::stdin().read_line(&mut String::new())?;
    let begun = Instant::now();
    let records = part(&plan, plan.warm, usize::MAX)?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut output = BufWriter::new(Output::create(&plan.output)?);
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
            ["node", socket, list] => {
                let bytes = std::fs::read(list).context(list.to_owned())?;
                let (pairs, _) = bytes.as_chunks::<8>();
                let pair = |pair: &[u8; 8]| {
                    let value = u64::from_le_bytes(*pair);
                    (value as u32, (value >> 32) as u32)
                };
                plan.nodes.push(Node {
                    socket: socket.into(),
                    accesses: pairs.iter().map(pair).collect(),
                });
            }
            _ => bail!("{line:?} is not part of a plan"),
        }
    }
    Ok(plan)
}

/// Does the reads from `first` on until `end` of all nodes.
fn part(plan: &Plan, first: usize, end: usize) -> Result<Vec<Record>> {
    let begun = Instant::now();
    let next: Vec<AtomicUsize> = plan.nodes.iter().map(|_| AtomicUsize::new(first)).collect();
    let run = |node: usize| -> Result<Vec<Record>> {
        let it = &plan.nodes[node];
        let client = Client::connect(&it.socket)?;
        let mut reader = Reader {
            plan,
            client,
            open: HashMap::new(),
            data: vec![0; plan.block_bytes as usize],
        };
        let mut records = Vec::new();
        loop {
            let at = next[node].fetch_add(1, Ordering::Relaxed);
            if at >= end.min(it.accesses.len()) {
                return Ok(records);
            }
            let due = Duration::from_secs_f64((at - first) as f64 / plan.rate);
            thread::sleep(due.saturating_sub(begun.elapsed()));
            records.push(reader.read(node as u32, it.accesses[at])?);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.nodes.len())
            .flat_map(|node| (0..plan.threads).map(move |_| node))
            .map(|node| scope.spawn(move || run(node)))
            .collect();
        let mut records = Vec::new();
        for thread in threads {
            records.extend(thread.join().expect("no thread panics")?);
        }
        Ok(records)
    })
}

/// What one thread has.
struct Reader<'a> {
    plan: &'a Plan,
    client: Client,
    /// Open files, and when they were opened.
    open: HashMap<u32, (u64, File)>,
    data: Vec<u8>,
}

impl Reader<'_> {
    /// Reads a block. Wrong bytes end all.
    fn read(&mut self, node: u32, (file, block): (u32, u32)) -> Result<Record> {
        let begun_ns = now_ns();
        let read = self.block(file, block);
        let ended_ns = now_ns();
        let (version, opened_ns) = match read {
            Ok((bytes, opened_ns)) => {
                let cell = u64::from(block) * self.plan.block_bytes / CELL_BYTES;
                let version = check(file, cell, &self.data[..bytes]);
                (version.with_context(|| format!("node {node}"))?, opened_ns)
            }
            Err(error) => {
                eprintln!("node {node}, file {file}, block {block}: {error}");
                self.open.remove(&file);
                (u32::MAX, begun_ns)
            }
        };
        if self.plan.reopens {
            self.open.remove(&file);
        }
        Ok(Record {
            node,
            file,
            block,
            version,
            opened_ns,
            begun_ns,
            ended_ns,
        })
    }

    fn block(&mut self, file: u32, block: u32) -> io::Result<(usize, u64)> {
        let mut stale = 0;
        loop {
            if !self.open.contains_key(&file) {
                let name = self.plan.files[file as usize].as_bytes();
                let opened = (now_ns(), self.client.open(&self.plan.volume, name)?);
                self.open.insert(file, opened);
            }
            let (opened_ns, open) = &self.open[&file];
            match open.read_at(&mut self.data, u64::from(block) * self.plan.block_bytes) {
                // A new version has come since: the same as in a mount.
                Err(error)
                    if error.kind() == io::ErrorKind::StaleNetworkFileHandle && stale < 3 =>
                {
                    stale += 1;
                    self.open.remove(&file);
                }
                read => return Ok((read?, *opened_ns)),
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
