//! The tier over real folders: what is read is right, whatever happens to the disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hither_core::Random;
use tempfile::TempDir;

use super::*;

const BLOCK_BYTES: u32 = 4096;

fn open(folder: &Path, bytes_max: u64) -> DiskTier {
    let settings = DiskSettings {
        folder: folder.to_owned(),
        bytes_max,
    };
    let tier = DiskTier::open(&settings, BLOCK_BYTES, 10_000).unwrap();
    tier.start(Arc::new(|_| {})).unwrap();
    tier
}

fn key(file: u128, index: u32) -> BlockKey {
    BlockKey {
        file: FileKey(file << 100 | file),
        index,
    }
}

/// The bytes of a block; every fifth is shorter than a block.
fn contents(key: BlockKey) -> Vec<u8> {
    let seed = key.file.0 as u64 * 1_000_003 + u64::from(key.index);
    let short = usize::from(key.index % 5 == 4) * 1000;
    let mut random = Random::new(seed + 1);
    (0..BLOCK_BYTES as usize - short)
        .map(|_| random.bits() as u8)
        .collect()
}

fn write(tier: &DiskTier, keys: impl IntoIterator<Item = BlockKey>) {
    for key in keys {
        tier.offer(key, contents(key).into());
    }
    tier.flush();
}

/// Reads a block. Panics if it is wrong.
fn read(tier: &DiskTier, key: BlockKey) -> bool {
    let located = tier.locate(std::iter::once(key));
    let Some(block) = located.first() else {
        return false;
    };
    let mut buffer = vec![0xa5; block.bytes as usize];
    let is_read = tier.read(&located, &mut [&mut buffer]) == [true];
    assert!(!is_read || buffer == contents(key), "{key:?} is wrong");
    is_read
}

fn count(tier: &DiskTier, keys: impl IntoIterator<Item = BlockKey>) -> usize {
    keys.into_iter().filter(|&key| read(tier, key)).count()
}

/// What the folder takes on the disk.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            taken(&entry.path())
        } else {
            metadata.blocks() * 512
        }
    });
    entries.sum()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("files")).unwrap();
    let entries = folders.flat_map(|it| fs::read_dir(it.unwrap().path()).unwrap());
    let mut files: Vec<PathBuf> = entries.map(|it| it.unwrap().path()).collect();
    files.sort();
    files
}

fn keys() -> impl Iterator<Item = BlockKey> + Clone {
    (0..10).flat_map(|file| (0..30).map(move |index| key(file, index * 7)))
}

#[test]
fn blocks_are_found_again_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 64 << 20);
    write(&tier, keys());
    assert_eq!(count(&tier, keys()), 300);
    tier.check();
    drop(tier);
    let tier = open(folder.path(), 64 << 20);
    assert_eq!(tier.usage().blocks, 300);
    assert_eq!(count(&tier, keys()), 300);
    assert_eq!(count(&tier, [key(11, 0), key(0, 1)]), 0);
    let counts = tier.counts();
    assert_eq!((counts.read_blocks, counts.bad_blocks), (300, 0));
}

#[test]
fn successive_blocks_are_one_read() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 64 << 20);
    let keys = (0..4).chain(6..9).map(|index| key(1, index));
    write(&tier, keys);
    let located = tier.locate((0..9).map(|index| key(1, index)));
    assert_eq!(located.len(), 4, "up to the first that is missing");
    let mut buffers: Vec<Vec<u8>> = located
        .iter()
        .map(|it| vec![0; it.bytes as usize])
        .collect();
    let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(|it| &mut it[..]).collect();
    assert_eq!(tier.read(&located, &mut slices), [true; 4]);
    for (block, buffer) in located.iter().zip(&buffers) {
        assert_eq!(*buffer, contents(block.key));
    }
}

#[test]
fn damage_costs_hits_and_never_a_wrong_byte() {
    type Damage = fn(&Path);
    let damages: [(&str, usize, Damage); 6] = [
        ("a byte that turned", 299, |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[7 * 4096 + 9] ^= 4;
            fs::write(path, bytes).unwrap();
        }),
        ("a file that was cut", 271, |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(4096).unwrap();
        }),
        ("a file that is gone", 270, |path| {
            fs::remove_file(path).unwrap()
        }),
        ("a folder in its place", 270, |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("a link to another file", 270, |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/proc/self/exe", path).unwrap();
        }),
        ("a pipe", 270, |path| {
            fs::remove_file(path).unwrap();
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
        }),
    ];
    for (what, left, damage) in damages {
        let folder = TempDir::new().unwrap();
        let tier = open(folder.path(), 64 << 20);
        write(&tier, keys());
        damage(&files(folder.path())[3]);
        assert_eq!(count(&tier, keys()), left, "{what}");
        // A file that cannot be mended is given up as a whole, which may come first.
        let bad = tier.counts().bad_blocks;
        assert!((1..=300 - left as u64).contains(&bad), "{what}: {bad}");
        // They are not looked for again, and can be written again where there is a file for them.
        assert_eq!(count(&tier, keys()), left, "{what}");
        assert_eq!(tier.counts().bad_blocks, bad, "{what}");
        tier.flush();
        write(&tier, keys());
        assert!(count(&tier, keys()) >= left, "{what}");
        tier.check();
        drop(tier);
        let tier = open(folder.path(), 64 << 20);
        assert!(count(&tier, keys()) >= left, "{what}");
    }
}

#[test]
fn a_damaged_journal_costs_what_it_does_not_list() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 64 << 20);
    write(&tier, keys());
    drop(tier);
    let journal = folder.path().join("journal");
    let whole = fs::read(&journal).unwrap();
    // Records: 300 blocks, and that it was closed.
    assert_eq!(whole.len(), 301 * 44);
    let mut random = Random::new(5);
    for _ in 0..20 {
        let mut damaged = whole[..random.bits() as usize % whole.len()].to_vec();
        for _ in 0..random.bits() % 5 {
            let at = random.bits() as usize % whole.len();
            if let Some(byte) = damaged.get_mut(at) {
                *byte = random.bits() as u8;
            }
        }
        fs::write(&journal, damaged).unwrap();
        let tier = open(folder.path(), 64 << 20);
        tier.flush();
        let found = count(&tier, keys());
        assert_eq!(found as u64, tier.usage().blocks);
        assert_eq!(tier.counts().bad_blocks, 0);
        // What is not listed takes no room, but for the metadata of a file.
        write(&tier, keys());
        assert_eq!(count(&tier, keys()), 300);
        tier.check();
    }
}

#[test]
fn files_that_the_journal_does_not_list_are_removed() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 64 << 20);
    write(&tier, keys());
    drop(tier);
    let note = folder.path().join("files/note");
    fs::write(&note, "not ours").unwrap();
    fs::remove_file(folder.path().join("journal")).unwrap();
    let tier = open(folder.path(), 64 << 20);
    tier.flush();
    assert_eq!(count(&tier, keys()), 0);
    drop(tier);
    fs::remove_file(&note).unwrap();
    assert_eq!(files(folder.path()).len(), 0);
}

#[test]
fn the_limit_holds() {
    let folder = TempDir::new().unwrap();
    let limit = 2 << 20;
    let tier = open(folder.path(), limit);
    let mut random = Random::new(3);
    for _ in 0..30 {
        let keys = (0..100).map(|_| {
            let index = random.bits() as u32 % (3 * CHUNK_BLOCKS);
            key(u128::from(random.bits() % 10), index)
        });
        let keys: Vec<BlockKey> = keys.collect();
        write(&tier, keys.iter().copied());
        assert!(tier.usage().bytes <= limit, "{:?}", tier.usage());
        // What a file system takes for its own use comes on top.
        let taken = taken(folder.path());
        assert!(taken <= limit + 64 * 1024, "{taken} bytes are taken");
        count(&tier, keys);
        tier.check();
    }
    assert!(tier.counts().evicted_blocks > 500, "{:?}", tier.counts());
    assert_eq!(tier.counts().bad_blocks, 0);
    drop(tier);
    // A smaller limit holds from the start.
    let tier = open(folder.path(), limit / 4);
    tier.flush();
    assert!(tier.usage().bytes <= limit / 4, "{:?}", tier.usage());
    drop(tier);
    let taken = taken(folder.path());
    assert!(taken <= limit / 4 + 64 * 1024, "{taken} bytes are taken");
}

#[test]
fn a_held_file_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 2 << 20);
    let held = || (0..60).map(|index| key(1, index));
    write(&tier, held());
    let hold = tier.hold(key(1, 0).file);
    let path = files(folder.path())[0].clone();
    let others = |from| (from..from + 8).flat_map(|file| (0..200).map(move |it| key(file, it)));
    write(&tier, others(2));
    assert!(tier.counts().evicted_blocks > 500, "{:?}", tier.counts());
    assert_eq!(count(&tier, held()), 60);
    // A bad block is removed, but leaves no hole.
    let located = tier.locate(std::iter::once(key(1, 7)));
    tier.discard(&located[0], None);
    tier.flush();
    assert_eq!(count(&tier, held()), 59);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes[7 * 4096..8 * 4096], contents(key(1, 7)));
    // It can be written again.
    write(&tier, [key(1, 7)]);
    assert_eq!(count(&tier, held()), 60);
    // All is held: new blocks are refused.
    let holds: Vec<Hold> = (2..28).map(|file| tier.hold(key(file, 0).file)).collect();
    let full = tier.counts().full_blocks;
    write(&tier, others(20));
    assert!(tier.counts().full_blocks > full, "{:?}", tier.counts());
    assert!(tier.usage().bytes <= 2 << 20, "{:?}", tier.usage());
    assert_eq!(count(&tier, held()), 60);
    tier.check();
    drop((hold, holds));
    // The hand comes around as it passes over what was read.
    let chunk = key(1, 0).in_chunk().0;
    for from in (30..90).take_while(|_| tier.held(&chunk) != 0) {
        write(&tier, others(from));
        count(&tier, others(from));
    }
    assert_eq!(tier.held(&chunk), 0, "no longer held");
    tier.check();
}

#[test]
fn readers_beside_a_busy_writer_read_right_bytes() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 1 << 20);
    thread::scope(|scope| {
        for seed in 1..4 {
            let tier = &tier;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..3_000 {
                    let key = key(u128::from(random.bits() % 4), random.bits() as u32 % 200);
                    if !read(tier, key) {
                        tier.offer(key, contents(key).into());
                    }
                }
            });
        }
    });
    tier.flush();
    tier.check();
    let counts = tier.counts();
    assert!(counts.read_blocks > 100, "{counts:?}");
    assert!(counts.evicted_blocks > 100, "{counts:?}");
    assert_eq!(
        counts.bad_blocks, 0,
        "an evicted block was taken for a bad one"
    );
}

#[test]
fn a_disk_that_fails_is_written_no_more() {
    let folder = TempDir::new().unwrap();
    let tier = open(folder.path(), 64 << 20);
    write(&tier, keys());
    fs::rename(folder.path().join("files"), folder.path().join("away")).unwrap();
    fs::write(folder.path().join("files"), "").unwrap();
    write(&tier, (0..20).map(|index| key(50, index)));
    assert_eq!(tier.counts().failed_blocks, 20);
    assert_eq!(tier.counts().full_blocks, 0);
    // Reads go on: what is there is verified.
    fs::remove_file(folder.path().join("files")).unwrap();
    fs::rename(folder.path().join("away"), folder.path().join("files")).unwrap();
    assert_eq!(count(&tier, keys()), 300);
    write(&tier, [key(51, 0)]);
    assert_eq!(tier.counts().failed_blocks, 21);
    drop(tier);
    let tier = open(folder.path(), 64 << 20);
    assert_eq!(count(&tier, keys()), 300);
}

/// A small file system, unmounted when dropped.
struct Tmpfs(TempDir);

impl Tmpfs {
    /// `None` where this user may not mount.
    fn new() -> Option<Tmpfs> {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=8m", "none"]);
        let status = command.arg(folder.path()).status().unwrap();
        status.success().then_some(Tmpfs(folder))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_only_shrinks_it() {
    let Some(tmpfs) = Tmpfs::new() else {
        hither_testing::skip::skip_on_this_machine("this user may not mount");
        return;
    };
    let folder = tmpfs.0.path().join("cache");
    let tier = open(&folder, 64 << 20);
    write(
        &tier,
        (0..4).flat_map(|file| (0..100).map(move |index| key(file, index))),
    );
    assert_eq!(tier.counts().written_blocks, 400);
    // Somebody else takes all that is left.
    let other = tmpfs.0.path().join("other");
    let mut taken = fs::File::create(&other).unwrap();
    while io::Write::write_all(&mut taken, &[1; 4096]).is_ok() {}
    write(
        &tier,
        (10..14).flat_map(|file| (0..100).map(move |index| key(file, index))),
    );
    let counts = tier.counts();
    assert!(counts.full_blocks > 0, "{counts:?}");
    assert!(counts.evicted_blocks > 0, "{counts:?}");
    assert_eq!(counts.failed_blocks, 0, "{counts:?}");
    assert!(tier.usage().limit_bytes < 3 << 20, "{:?}", tier.usage());
    let all = || (0..20).flat_map(|file| (0..100).map(move |index| key(file, index)));
    assert!(count(&tier, all()) > 0, "it still serves");
    assert_eq!(tier.counts().bad_blocks, 0);
    tier.check();
    // Once there is room again, it is used.
    drop(taken);
    fs::remove_file(other).unwrap();
    thread::sleep(std::time::Duration::from_millis(1_100));
    write(
        &tier,
        (20..24).flat_map(|file| (0..100).map(move |index| key(file, index))),
    );
    assert!(tier.usage().limit_bytes > 7 << 20, "{:?}", tier.usage());
    drop(tier);
    let tier = open(&folder, 64 << 20);
    assert!(count(&tier, (20..24).map(|file| key(file, 50))) == 4);
}
