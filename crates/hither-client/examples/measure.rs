//! Measures reads through a node, and bare TCP beside them. `experiments/mount/nodes.py` runs it.
//!
//! ```text
//! measure make SEED BYTES FILE                  makes a file
//! measure hits SOCKET VOLUME READ COUNT THREADS SEED:NAME...
//!                                               reads of READ bytes at random places of the files
//! measure sequence SOCKET VOLUME READ SEED:NAME...
//!                                               reads the files from their start to their end
//! measure files SEED PATH...                    reads each path whole, in a thread of its own
//! measure serve ADDRESS                         answers those that ask by `tcp`
//! measure tcp ADDRESS READ COUNT THREADS        asks for READ bytes, and waits for them
//! ```
//!
//! Each prints one line of JSON. The bytes of a file follow from its seed; all that is read is
//! compared, after its time was taken.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hither_client::Client;

/// Bytes of a request by bare TCP: about those of a request among nodes.
const REQUEST_BYTES: usize = 64;
/// What is read at once of a file of a mount.
const PIECE_BYTES: usize = 1 << 20;
const WORD: u64 = 8;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["make", seed, bytes, file] => make(number(seed)?, number(bytes)?, Path::new(file)),
        ["hits", socket, volume, read, count, threads, ref files @ ..] => {
            let client = Client::connect(Path::new(socket))?;
            let extent = Extent::new(read, count, threads)?;
            let files: Vec<(u64, &str)> = named(files)?;
            let hits = |thread: u64| hits(&client, volume, &files, extent, thread);
            print(extent.read, in_threads(extent.threads, &hits)?);
            Ok(())
        }
        ["sequence", socket, volume, read, ref files @ ..] => {
            let client = Client::connect(Path::new(socket))?;
            let (read, files) = (number(read)?, named(files)?);
            print(
                read,
                in_threads(1, &|_| sequence(&client, volume, &files, read))?,
            );
            Ok(())
        }
        ["files", seed, ref paths @ ..] => {
            let seed = number(seed)?;
            let whole = |thread: u64| whole(seed, Path::new(paths[thread as usize]));
            print(PIECE_BYTES as u64, in_threads(paths.len() as u64, &whole)?);
            Ok(())
        }
        ["serve", address] => serve(address),
        ["tcp", address, read, count, threads] => {
            let extent = Extent::new(read, count, threads)?;
            print(
                extent.read,
                in_threads(extent.threads, &|_| tcp(address, extent))?,
            );
            Ok(())
        }
        _ => Err(invalid("see the first lines of this program")),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn number(text: &str) -> io::Result<u64> {
    let error = |_| invalid(&format!("{text:?} is no number"));
    text.parse().map_err(error)
}

fn named<'a>(files: &[&'a str]) -> io::Result<Vec<(u64, &'a str)>> {
    let parts = files.iter().map(|file| match file.split_once(':') {
        Some((seed, name)) => Ok((number(seed)?, name)),
        None => Err(invalid(&format!("{file:?} is not SEED:NAME"))),
    });
    parts.collect()
}

/// How much is read, and by how many threads.
#[derive(Clone, Copy)]
struct Extent {
    read: u64,
    count: u64,
    threads: u64,
}

impl Extent {
    fn new(read: &str, count: &str, threads: &str) -> io::Result<Extent> {
        Ok(Extent {
            read: number(read)?,
            count: number(count)?,
            threads: number(threads)?,
        })
    }

    fn count_of_a_thread(&self) -> u64 {
        self.count / self.threads
    }
}

/// The words of a file from `offset` on.
fn words(seed: u64, offset: u64) -> impl Iterator<Item = u64> {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let first = ((seed << 40) | (offset / WORD)).wrapping_mul(STEP);
    std::iter::successors(Some(first), |word| Some(word.wrapping_add(STEP)))
}

fn make(seed: u64, bytes: u64, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for word in words(seed, 0).take((bytes / WORD) as usize) {
        file.write_all(&word.to_le_bytes())?;
    }
    file.flush()
}

fn check(seed: u64, offset: u64, data: &[u8]) -> io::Result<()> {
    let (found, rest) = data.as_chunks();
    let equal = |(found, word): (&[u8; 8], u64)| u64::from_le_bytes(*found) == word;
    if rest.is_empty() && found.iter().zip(words(seed, offset)).all(equal) {
        Ok(())
    } else {
        let what = format!("wrong bytes within {} from {offset} on", data.len());
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

/// Runs `measured` in threads that begin together. It gets the number of its thread, and returns
/// how long each read took. The result is what all took together, and each.
fn in_threads(
    count: u64,
    measured: &(impl Fn(u64) -> io::Result<Vec<Duration>> + Sync),
) -> io::Result<(Duration, Vec<Duration>)> {
    let barrier = Barrier::new(count as usize);
    thread::scope(|scope| {
        let barrier = &barrier;
        let run = |thread| {
            scope.spawn(move || {
                barrier.wait();
                (Instant::now(), measured(thread), Instant::now())
            })
        };
        let threads: Vec<_> = (0..count).map(run).collect();
        let mut all = Vec::new();
        let mut times: Option<(Instant, Instant)> = None;
        for thread in threads {
            let (begun, each, ended) = thread.join().expect("no thread panics");
            all.extend(each?);
            let (first, last) = times.unwrap_or((begun, ended));
            times = Some((first.min(begun), last.max(ended)));
        }
        let elapsed = times.map(|(first, last)| last - first);
        Ok((elapsed.unwrap_or_default(), all))
    })
}

fn print(read_bytes: u64, (elapsed, mut each): (Duration, Vec<Duration>)) {
    each.sort();
    let at = |share: usize| each[(each.len() - 1) * share / 100].as_nanos() as f64 / 1e3;
    let bytes = read_bytes * each.len() as u64;
    println!(
        "{{\"reads\": {}, \"bytes\": {bytes}, \"seconds\": {}, \"p50_us\": {}, \"p99_us\": {}}}",
        each.len(),
        elapsed.as_secs_f64(),
        at(50),
        at(99)
    );
}

fn hits(
    client: &Client,
    volume: &str,
    files: &[(u64, &str)],
    extent: Extent,
    thread: u64,
) -> io::Result<Vec<Duration>> {
    let open = |(seed, name): &(u64, &str)| Ok((*seed, client.open(volume, name.as_bytes())?));
    let files: Vec<_> = files.iter().map(open).collect::<io::Result<_>>()?;
    let mut data = vec![0; extent.read as usize];
    let mut each = Vec::new();
    let mut random =
        words(thread + 1, 0).map(|word| (word ^ word >> 29).wrapping_mul(word | 1) >> 20);
    for _ in 0..extent.count_of_a_thread() {
        let mut below = |limit: u64| random.next().map_or(0, |word| word % limit);
        let (seed, file) = &files[below(files.len() as u64) as usize];
        let offset = below(file.len() / extent.read) * extent.read;
        let begun = Instant::now();
        let bytes = file.read_at(&mut data, offset)?;
        each.push(begun.elapsed());
        check(*seed, offset, &data[..bytes])?;
    }
    Ok(each)
}

fn sequence(
    client: &Client,
    volume: &str,
    files: &[(u64, &str)],
    read: u64,
) -> io::Result<Vec<Duration>> {
    let mut data = vec![0; read as usize];
    let mut each = Vec::new();
    for (seed, name) in files {
        let file = client.open(volume, name.as_bytes())?;
        for offset in (0..file.len()).step_by(read as usize) {
            let begun = Instant::now();
            let bytes = file.read_at(&mut data, offset)?;
            each.push(begun.elapsed());
            check(*seed, offset, &data[..bytes])?;
        }
    }
    Ok(each)
}

fn whole(seed: u64, path: &Path) -> io::Result<Vec<Duration>> {
    let mut file = File::open(path)?;
    let mut data = vec![0; PIECE_BYTES];
    let mut each = Vec::new();
    let mut offset = 0;
    loop {
        let begun = Instant::now();
        let bytes = file.read(&mut data)?;
        if bytes == 0 {
            break;
        }
        each.push(begun.elapsed());
        check(seed, offset, &data[..bytes])?;
        offset += bytes as u64;
    }
    if offset == file.metadata()?.len() {
        Ok(each)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn serve(address: &str) -> io::Result<()> {
    for stream in TcpListener::bind(address)?.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        thread::spawn(move || -> io::Result<()> {
            let (mut request, mut answer) = ([0; REQUEST_BYTES], Vec::new());
            loop {
                stream.read_exact(&mut request)?;
                let (bytes, _) = request.as_chunks();
                answer.resize(u64::from_le_bytes(bytes[0]) as usize, 7);
                stream.write_all(&answer)?;
            }
        });
    }
    Ok(())
}

fn tcp(address: &str, extent: Extent) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_BYTES];
    request[..8].copy_from_slice(&extent.read.to_le_bytes());
    let mut data = vec![0; extent.read as usize];
    let mut each = Vec::new();
    for _ in 0..extent.count_of_a_thread() {
        let begun = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut data)?;
        each.push(begun.elapsed());
    }
    Ok(each)
}
