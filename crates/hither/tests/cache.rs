//! `hither cache` as a user runs it: what is read after them, what the source
//! was asked for, and what goes wrong.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(seed * 2 + 1) >> 7) as u8)
        .collect()
}

/// Waits for what must come; only a failing test waits for long.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        let is_late = start.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "{what} never comes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A source, and the folder of the sockets.
struct Site {
    folder: TempDir,
}

impl Site {
    fn new() -> Site {
        let site = Site {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(site.source()).unwrap();
        site
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn hither(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
        command
            .env("HITHER_RUNTIME_DIR", self.folder.path().join("sockets"))
            .env_remove("RUST_LOG");
        command
    }

    /// Mounts the source. `None` where this user cannot.
    fn mount(&self, name: &str, arguments: &[&str]) -> Option<Mounted<'_>> {
        if hither_testing::needs::cannot_mount() {
            return None;
        }
        let directory = self.folder.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut process = self
            .hither()
            .arg("mount")
            .args(arguments)
            .args([self.source(), directory.clone()])
            .current_dir(self.folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = process.stderr.as_mut().unwrap();
        let mut said = String::new();
        let is_there = BufReader::new(stderr)
            .lines()
            .map_while(Result::ok)
            .any(|line| {
                said = line;
                said.contains("Ctrl-C ends it")
            });
        if !is_there {
            let _ = process.wait();
            panic!("not mounted: {said}");
        }
        Some(Mounted {
            site: self,
            directory,
            process,
        })
    }
}

/// A mount that serves. Dropped, it is killed and removed.
struct Mounted<'a> {
    site: &'a Site,
    directory: PathBuf,
    process: Child,
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let unmount = self
            .site
            .hither()
            .arg("unmount")
            .arg(&self.directory)
            .output();
        drop(unmount);
    }
}

impl Mounted<'_> {
    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.directory.join(Path::new(name.as_ref()))
    }

    /// Runs a command on paths of the mount.
    fn run(&self, command: &[&str], names: &[&str]) -> Output {
        let paths = names.iter().map(|name| self.path(name));
        let mut hither = self.site.hither();
        hither.args(command).args(paths).output().unwrap()
    }

    /// What a command reports that succeeds.
    fn report(&self, command: &str, names: &[&str]) -> Value {
        let Output {
            status,
            stdout,
            stderr,
        } = self.run(&["cache", command, "--json"], names);
        assert!(status.success(), "{command}: {}", text(&stderr));
        serde_json::from_slice(&stdout).unwrap()
    }

    /// The only line of a command that fails.
    fn error(&self, command: &[&str], names: &[&str]) -> String {
        error(&self.run(command, names))
    }

    fn status(&self) -> Value {
        let mut hither = self.site.hither();
        hither
            .args(["cache", "status", "--json"])
            .arg(&self.directory);
        serde_json::from_slice(&hither.output().unwrap().stdout).unwrap()
    }

    /// What has left the source.
    fn fetched(&self) -> u64 {
        number(&self.status()["volumes"][0]["counts"], "fetched_bytes")
    }

    fn pinned(&self) -> u64 {
        number(&self.status()["memory"], "pinned_bytes")
    }

    /// Reads a file, which must be as at the source.
    fn read(&self, name: impl AsRef<OsStr>) {
        let at_source = fs::read(self.site.source().join(Path::new(name.as_ref())));
        let here = fs::read(self.path(&name)).unwrap();
        assert!(
            here == at_source.unwrap(),
            "wrong bytes in {:?}",
            name.as_ref()
        );
    }

    /// How many blocks of a file are in memory, and how many it has.
    fn blocks_in_memory(&self, name: &str) -> (u64, u64) {
        self.blocks(name, "user.hither.memory")
    }

    /// How many blocks of a file are on the disk, and how many it has.
    fn blocks_on_disk(&self, name: &str) -> (u64, u64) {
        self.blocks(name, "user.hither.disk")
    }

    fn blocks(&self, name: &str, attribute: &str) -> (u64, u64) {
        let mut value = [0; 64];
        let path = self.path(name);
        let bytes = rustix::fs::getxattr(path, attribute, &mut value[..]).unwrap();
        let value = text(&value[..bytes]);
        let (here, all) = value.split_once('/').unwrap();
        (here.parse().unwrap(), all.parse().unwrap())
    }
}

/// The only line of a command that has failed.
fn error(output: &Output) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    assert_eq!(status.code(), Some(1), "{}{}", text(stdout), text(stderr));
    let errors = text(stderr);
    let lines: Vec<&str> = errors.lines().collect();
    let [line] = lines[..] else {
        panic!("one line: {errors}");
    };
    line.strip_prefix("hither: ").unwrap().to_owned()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name}: {value}"))
}

const ODD: &[u8] = b"a/odd \xff\n\"name";

/// A tree of large, small, empty and oddly named files. Returns their names and their length.
fn tree(source: &Path) -> (Vec<Vec<u8>>, u64) {
    fs::create_dir_all(source.join("a/b")).unwrap();
    let mut files = vec![
        (b"first".to_vec(), 3_000_000),
        (b"a/second".to_vec(), 700_001),
        (b"a/b/empty".to_vec(), 0),
        (ODD.to_vec(), 200_000),
    ];
    files.extend((0..200).map(|at| (format!("a/b/{at}").into_bytes(), 10 + at * 37)));
    for (at, (name, bytes)) in files.iter().enumerate() {
        fs::write(source.join(OsStr::from_bytes(name)), noise(at, *bytes)).unwrap();
    }
    std::os::unix::fs::symlink("/", source.join("a/root")).unwrap();
    let bytes = files.iter().map(|(_, bytes)| *bytes as u64).sum();
    (files.into_iter().map(|(name, _)| name).collect(), bytes)
}

#[test]
fn what_was_warmed_is_read_without_the_source_until_it_is_evicted() {
    let site = Site::new();
    let (names, bytes) = tree(&site.source());
    let options = ["--memory", "64MiB", "--consistency", "immutable"];
    let Some(mount) = site.mount("mount", &options) else {
        return;
    };
    // A part of it first.
    let report = mount.report("warm", &["a/second", "a/second", "first"]);
    assert_eq!(
        [number(&report, "files"), number(&report, "loaded_bytes")],
        [2, 3_700_001]
    );
    let odd = mount.path(OsStr::from_bytes(ODD));
    let odd = site
        .hither()
        .args(["cache", "warm", "--json"])
        .arg(odd)
        .output();
    let report: Value = serde_json::from_slice(&odd.unwrap().stdout).unwrap();
    assert_eq!(number(&report, "loaded_bytes"), 200_000, "{report}");
    let report = mount.report("warm", &["a", ""]);
    assert_eq!(number(&report, "files"), names.len() as u64, "{report}");
    assert_eq!(number(&report, "bytes"), bytes);
    assert_eq!(number(&report, "cached_bytes"), 3_900_001);
    assert_eq!(number(&report, "loaded_bytes"), bytes - 3_900_001);
    assert_eq!(mount.fetched(), bytes, "each block left the source once");

    let read_all = || {
        names
            .iter()
            .for_each(|name| mount.read(OsStr::from_bytes(name)))
    };
    read_all();
    let status = mount.status();
    let served = &status["volumes"][0]["served"];
    assert_eq!(
        [number(served, "memory"), number(served, "source")],
        [bytes, 0]
    );
    let again = mount.run(&["cache", "warm", "-j", "3"], &[""]);
    let said = text(&again.stdout);
    assert!(
        said.ends_with("cached already, 0 B were loaded\n"),
        "{said}"
    );
    assert_eq!(mount.fetched(), bytes);

    // The page cache has it by now, too.
    read_all();
    let report = mount.report("evict", &["first", "a"]);
    assert_eq!(number(&report, "evicted_memory_bytes"), bytes, "{report}");
    assert_eq!(number(&mount.status()["memory"], "bytes"), 0);
    read_all();
    assert_eq!(mount.fetched(), 2 * bytes);
}

#[test]
fn an_interrupted_run_breaks_nothing_and_goes_on() {
    let site = Site::new();
    for at in 0..8 {
        fs::write(site.source().join(at.to_string()), noise(at, 4_000_000)).unwrap();
    }
    let options = ["--memory", "64MiB", "--consistency", "immutable"];
    let Some(mount) = site.mount("mount", &options) else {
        return;
    };
    for pause_ms in [0, 20, 50] {
        let mut warm = site
            .hither()
            .args(["cache", "warm"])
            .arg(mount.path(""))
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(pause_ms));
        let process = warm.id().to_string();
        let _ = Command::new("kill").args(["-INT", &process]).status();
        warm.wait().unwrap();
    }
    let report = mount.report("warm", &[""]);
    let [cached, loaded] = ["cached_bytes", "loaded_bytes"].map(|name| number(&report, name));
    assert_eq!(cached + loaded, 32_000_000, "{report}");
    (0..8).for_each(|at: u32| mount.read(at.to_string()));
    assert_eq!(
        mount.fetched(),
        32_000_000,
        "each block left the source once"
    );
}

#[test]
fn no_more_is_loaded_than_fits_and_a_disk_takes_more() {
    let site = Site::new();
    for at in 0..12 {
        fs::write(site.source().join(at.to_string()), noise(at, 4_000_000)).unwrap();
    }
    fs::write(site.source().join("before"), noise(50, 40_000_000)).unwrap();
    let options = [
        "--memory",
        "32MiB",
        "--consistency",
        "immutable",
        "--direct-io",
    ];
    let Some(mount) = site.mount("mount", &options) else {
        return;
    };
    // The memory is full of something else.
    mount.read("before");
    let names: Vec<String> = (0..12).map(|at| at.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let output = mount.run(&["cache", "warm", "--json"], &names);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("hither: 7 of 12 files do not fit"),
        "{said}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(number(&report, "left_out_files"), 7, "{report}");
    assert_eq!(number(&report, "loaded_bytes"), 20_000_000, "{report}");
    let here = names.iter().filter(|name| {
        let (here, all) = mount.blocks_in_memory(name);
        here == all
    });
    assert_eq!(here.count(), 5, "what was loaded stays");
    drop(mount);

    let mut options = options.to_vec();
    options.extend(["--disk", "disk", "--disk-size", "128MiB"]);
    let mount = site.mount("mount", &options).unwrap();
    let report = mount.report("warm", &names);
    assert_eq!(number(&report, "loaded_bytes"), 48_000_000, "{report}");
    assert_eq!(
        number(&mount.report("warm", &names), "cached_bytes"),
        48_000_000
    );
    names.iter().for_each(|name| mount.read(name));
    assert_eq!(mount.fetched(), 48_000_000);
    let report = mount.report("evict", &names[..6]);
    assert_eq!(
        number(&report, "evicted_disk_bytes"),
        24_000_000,
        "{report}"
    );
    names[..6].iter().for_each(|name| mount.read(name));
    assert_eq!(mount.fetched(), 72_000_000);
    // Longer than a chunk.
    let report = mount.report("warm", &["before"]);
    assert_eq!(number(&report, "loaded_bytes"), 40_000_000, "{report}");
}

#[test]
fn what_is_pinned_stays_until_it_is_unpinned_or_changes() {
    let site = Site::new();
    fs::create_dir(site.source().join("kept")).unwrap();
    fs::write(site.source().join("kept/one"), noise(1, 3_000_000)).unwrap();
    fs::write(site.source().join("kept/two"), noise(2, 1000)).unwrap();
    fs::write(site.source().join("large"), noise(3, 60_000_000)).unwrap();
    // Only what does not change any more can be pinned.
    let Some(mount) = site.mount("mount", &["--memory", "16MiB", "--consistency", "strict"]) else {
        return;
    };
    wait_until("the files", || {
        let report = mount.report("pin", &["kept"]);
        number(&report, "unsettled_files") == 0 && number(&report, "pinned_files") == 2
    });
    wait_until("the large file", || {
        mount.run(&["cache", "pin"], &["large"]).status.code() == Some(1)
    });
    let pinned = mount.pinned();
    assert_eq!(pinned, 23 * (128 << 10) + 1000);
    let error = mount.error(&["cache", "pin"], &["large"]);
    let expected = "57.25 MiB more were to be pinned: there is room for ";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.ends_with(" in memory"), "{error}");
    assert_eq!(mount.pinned(), pinned);
    let fetched = mount.fetched();
    for _ in 0..2 {
        mount.read("large");
    }
    for (of, says) in [
        ("cluster", "this node: 2.88 MiB are pinned\n"),
        ("cache", " blocks, 2.88 MiB pinned\n"),
    ] {
        let shown = text(&mount.run(&[of, "status"], &["large"]).stdout);
        assert!(shown.contains(says), "{shown}");
    }
    assert_eq!(mount.blocks_in_memory("kept/one"), (23, 23));
    assert_eq!(mount.blocks_in_memory("kept/two"), (1, 1));
    let report = mount.report("evict", &["kept"]);
    assert_eq!(number(&report, "pinned_files"), 2, "{report}");
    let before = mount.fetched();
    assert!(before > fetched);
    mount.read("kept/one");
    mount.read("kept/two");
    assert_eq!(mount.fetched(), before);

    // Another version is not pinned.
    fs::write(site.source().join("kept/one"), noise(4, 5000)).unwrap();
    mount.read("kept/one");
    wait_until("the end of the pin", || mount.pinned() == 1000);
    let unpinned = mount.run(&["cache", "pin", "--remove"], &[""]);
    assert_eq!(text(&unpinned.stdout), "1 file, 1000 B: no longer pinned\n");
    assert_eq!(mount.pinned(), 0);
    for _ in 0..2 {
        mount.read("large");
    }
    let report = mount.report("evict", &["kept/two"]);
    assert_eq!(number(&report, "pinned_files"), 0, "{report}");
    assert_eq!(mount.blocks_in_memory("kept/two"), (0, 1));
}

#[test]
fn with_a_disk_more_is_pinned_than_memory_holds() {
    let site = Site::new();
    fs::create_dir(site.source().join("kept")).unwrap();
    fs::write(site.source().join("kept/small"), noise(1, 1_000_000)).unwrap();
    fs::write(site.source().join("kept/large"), noise(2, 20_000_000)).unwrap();
    for at in 0..4 {
        fs::write(
            site.source().join(at.to_string()),
            noise(3 + at, 20_000_000),
        )
        .unwrap();
    }
    let options = [
        "--memory",
        "16MiB",
        "--consistency",
        "immutable",
        "--direct-io",
    ];
    let disk = ["--disk", "disk", "--disk-size", "64MiB"];
    let options = [&options[..], &disk].concat();
    let Some(mount) = site.mount("mount", &options) else {
        return;
    };
    let places = |report: &Value| {
        ["pinned_files", "pinned_memory_bytes", "pinned_disk_bytes"].map(|it| number(report, it))
    };
    let on_disk = |mount: &Mounted<'_>| number(&mount.status()["disk"], "pinned_bytes");
    let report = mount.report("pin", &["kept/small"]);
    assert_eq!(places(&report), [1, 1_000_000, 1_000_000], "{report}");
    let said = text(&mount.run(&["cache", "pin"], &["kept"]).stdout);
    let expected = "2 pinned: 976.56 KiB in memory, 20.03 MiB on the disk\n";
    assert!(said.ends_with(expected), "{said}");
    assert_eq!(mount.fetched(), 21_000_000);
    let pinned = on_disk(&mount);
    assert!(pinned > 21_000_000, "{pinned}");

    // More than the rest of what may be pinned: nothing is.
    for asked in [&["0", "1"][..], &[""]] {
        let error = mount.error(&["cache", "pin"], asked);
        let expected = " more were to be pinned: there is room for ";
        assert!(error.contains(expected), "{error}");
        assert!(error.ends_with(" on the disk"), "{error}");
        assert_eq!(on_disk(&mount), pinned);
    }

    // Others come and go beside it.
    let press = |mount: &Mounted<'_>| {
        for _ in 0..2 {
            for name in ["0", "1", "2", "3"] {
                mount.report("warm", &[name]);
            }
        }
        let counts = &mount.status()["disk"]["counts"];
        assert!(number(counts, "evicted_blocks") > 0, "{counts}");
    };
    press(&mount);
    mount.report("evict", &["kept"]);
    assert_eq!(mount.blocks_on_disk("kept/large"), (153, 153));
    let fetched = mount.fetched();
    mount.read("kept/small");
    mount.read("kept/large");
    assert_eq!(mount.fetched(), fetched);

    // A restart forgets pins, but not what is there.
    drop(mount);
    let mount = site.mount("mount", &options).unwrap();
    assert_eq!(on_disk(&mount), 0);
    let report = mount.report("pin", &["kept"]);
    assert_eq!(places(&report), [2, 1_000_000, 21_000_000], "{report}");
    assert_eq!(number(&report, "cached_bytes"), 21_000_000, "{report}");
    assert_eq!(mount.fetched(), 0);
    let output = mount.run(&["cache", "pin", "--remove", "--json"], &["kept"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(places(&report), [2, 1_000_000, 21_000_000], "{report}");
    assert_eq!([on_disk(&mount), mount.pinned()], [0, 0]);
    press(&mount);
    assert!(mount.blocks_on_disk("kept/large").0 < 153);
}

#[test]
fn in_a_cluster_other_members_send_what_they_have() {
    let site = Site::new();
    let (names, bytes) = tree(&site.source());
    let ports = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = ports
        .each_ref()
        .map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    for (name, listen) in [("a", &a), ("b", &b)] {
        let file = format!(
            "name = \"{name}\"\ncluster = \"lab\"\nlisten = \"{listen}\"\ntls = \"off\"\n\
             [members]\na = \"{a}\"\nb = \"{b}\"\n"
        );
        fs::write(site.folder.path().join(format!("{name}.toml")), file).unwrap();
    }
    let mount = |name: &str| {
        let file = format!("{name}.toml");
        let options = [
            "--memory",
            "64MiB",
            "--consistency",
            "immutable",
            "--cluster",
            &file,
        ];
        site.mount(name, &options)
    };
    let (Some(a), Some(b)) = (mount("a"), mount("b")) else {
        return;
    };
    wait_until("the connection", || {
        let members = a.status()["cluster"]["members"].clone();
        members
            .as_array()
            .unwrap()
            .iter()
            .any(|member| member["connected"] == true)
    });
    for mount in [&a, &b] {
        assert_eq!(number(&mount.report("warm", &[""]), "loaded_bytes"), bytes);
        names
            .iter()
            .for_each(|name| mount.read(OsStr::from_bytes(name)));
        let status = mount.status();
        assert_eq!(
            number(&status["volumes"][0]["served"], "memory"),
            bytes,
            "{status}"
        );
    }
    assert_eq!(
        a.fetched() + b.fetched(),
        bytes,
        "each block left the source once"
    );

    let output = site
        .hither()
        .args(["cache", "warm"])
        .args([&a.directory, &b.directory])
        .output();
    let line = error(&output.unwrap());
    assert!(
        line.ends_with(" are of two nodes: name them one at a time"),
        "{line}"
    );
}

#[test]
fn what_is_no_file_of_a_mount_is_one_clear_line() {
    let site = Site::new();
    fs::write(site.source().join("file"), noise(1, 1000)).unwrap();
    let run = |command: &[&str], path: &Path| site.hither().args(command).arg(path).output();
    for action in [&["warm"][..], &["pin"], &["pin", "--remove"], &["evict"]] {
        let command = &[&["cache"], action].concat()[..];
        let line = error(&run(command, &site.source()).unwrap());
        let source = site.source();
        assert_eq!(
            line,
            format!("{} is in no mount of hither", source.display())
        );
        let line = error(&run(command, Path::new("/none/such")).unwrap());
        assert_eq!(line, "/none/such: No such file or directory (os error 2)");
        assert_eq!(
            site.hither().args(command).output().unwrap().status.code(),
            Some(2)
        );
    }
    let Some(mut mount) = site.mount("mount", &[]) else {
        return;
    };
    let usage = mount.run(&["cache", "warm", "--jobs", "0"], &[""]);
    assert_eq!(usage.status.code(), Some(2));
    let gone = mount.path("gone");
    assert_eq!(
        mount.error(&["cache", "warm"], &["file", "gone"]),
        format!("{}: No such file or directory (os error 2)", gone.display())
    );
    mount.process.kill().unwrap();
    mount.process.wait().unwrap();
    let place = mount.directory.display();
    assert_eq!(
        mount.error(&["cache", "warm"], &["file"]),
        format!("{place}/file: Transport endpoint is not connected (os error 107)")
    );
}
