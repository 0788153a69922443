//! `hither mount` as a user runs it: over a bucket and a directory, in the foreground and the
//! background, ended in every way, and what it says to bad usage.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::{net::UnixStream, process::CommandExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hither_net::tls::Authority;
use hither_testing::s3_emulator::S3Emulator;
use tempfile::TempDir;

fn hither(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command
        .args(arguments)
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_PROFILE");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits for what must come; only a failing test waits for long.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what} never comes"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A mount in the foreground that serves. Dropped, it is killed and removed.
struct Mounted {
    process: Child,
    directory: TempDir,
}

impl Mounted {
    /// `None` where this user cannot mount.
    fn new(arguments: &[&str]) -> Option<Mounted> {
        if hither_testing::needs::cannot_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut process = hither(&["mount"])
            .args(arguments)
            .arg(directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = process.stderr.as_mut().unwrap();
        // What a cluster's log says of members that are not there yet stands before it.
        let mut lines = BufReader::new(stderr).lines().map(Result::unwrap);
        let mut line = String::new();
        let is_there = lines.any(|next| {
            line = next;
            line.contains("Ctrl-C ends it")
        });
        if !is_there {
            let _ = process.wait();
            panic!("not mounted: {line}");
        }
        Some(Mounted { process, directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        let status = Command::new("kill")
            .args([signal, &process])
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = hither(&["unmount"]).arg(self.path()).output();
    }
}

/// Of how many blocks of a file the disk has how many.
fn blocks_on_disk(file: &Path) -> String {
    let mut value = [0; 64];
    let bytes = rustix::fs::getxattr(file, "user.hither.disk", &mut value[..]).unwrap();
    text(&value[..bytes])
}

fn is_mounted(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(directory.to_str().unwrap())
}

fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(seed * 2 + 1) >> 7) as u8)
        .collect()
}

fn bucket() -> (S3Emulator, Vec<String>) {
    let server = S3Emulator::start();
    server.put("data/a/first", noise(1, 3_000_000));
    server.put("data/a/b/second", noise(2, 100));
    server.put("data/empty", Vec::new());
    let options = [
        format!("endpoint={}", server.endpoint()),
        "region=anywhere".to_owned(),
        "skip_signature=true".to_owned(),
    ];
    let options = options
        .into_iter()
        .flat_map(|option| ["-o".to_owned(), option]);
    (server, options.collect())
}

#[test]
fn a_bucket_is_a_directory_until_it_is_ended() {
    for signal in ["-INT", "-TERM"] {
        let (server, options) = bucket();
        let mut arguments: Vec<&str> = options.iter().map(String::as_str).collect();
        arguments.extend(["--consistency", "immutable", "s3://bucket/data"]);
        let Some(mut mounted) = Mounted::new(&arguments) else {
            return;
        };
        let at = |path: &str| mounted.path().join(path);
        assert!(fs::read(at("a/first")).unwrap() == noise(1, 3_000_000));
        assert_eq!(fs::read(at("a/b/second")).unwrap(), noise(2, 100));
        assert_eq!(fs::read(at("empty")).unwrap(), b"");
        assert!(!at("a/none").exists());
        let names = fs::read_dir(at("a")).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["b", "first"]);
        // Nothing is fetched twice.
        let seen = server.take_seen();
        let ranges = seen
            .iter()
            .filter(|it| it.method == "GET" && it.key == "data/a/first");
        let mut ranges: Vec<_> = ranges.map(|it| it.range.clone().unwrap()).collect();
        let count = ranges.len();
        ranges.sort();
        ranges.dedup();
        assert_eq!(ranges.len(), count, "{ranges:?}");
        mounted.signal(signal);
        wait_until("the end", || mounted.process.try_wait().unwrap().is_some());
        assert!(mounted.process.wait().unwrap().success());
        assert!(!is_mounted(mounted.path()));
    }
}

#[test]
fn a_disk_keeps_what_was_read_for_the_next_mount() {
    let (server, options) = bucket();
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("cache");
    let other = tempfile::tempdir().unwrap();
    let mut arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    arguments.extend(["--consistency", "immutable", "--disk-size", "64MiB"]);
    arguments.extend(["--disk", disk.to_str().unwrap(), "s3://bucket/data"]);
    let gets = || {
        let seen = server.take_seen();
        let is_get =
            |it: &&hither_testing::s3_emulator::Seen| it.method == "GET" && !it.key.is_empty();
        seen.iter().filter(is_get).count()
    };
    let on_disk = |mounted: &Mounted| blocks_on_disk(&mounted.path().join("a/first"));
    // Ended in order, and killed once all is on the disk.
    for signal in ["-TERM", "-KILL", "-TERM"] {
        let Some(mut mounted) = Mounted::new(&arguments) else {
            return;
        };
        assert!(fs::read(mounted.path().join("a/first")).unwrap() == noise(1, 3_000_000));
        wait_until("the write", || on_disk(&mounted) == "23/23");
        let mut command = hither(&["mount"]);
        let output = command.args(&arguments).arg(other.path()).output();
        let output = output.unwrap();
        let expected = format!("process {} uses this disk cache", mounted.process.id());
        assert_eq!(output.status.code(), Some(1));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(&expected), "{stderr}");
        mounted.signal(signal);
        mounted.process.wait().unwrap();
    }
    gets();
    let mounted = Mounted::new(&arguments).unwrap();
    assert_eq!(on_disk(&mounted), "23/23");
    assert!(fs::read(mounted.path().join("a/first")).unwrap() == noise(1, 3_000_000));
    assert_eq!(
        gets(),
        0,
        "a block that is on the disk was read from the source"
    );
}

#[test]
fn unmount_ends_a_mount_in_the_background() {
    if hither_testing::needs::cannot_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Paths are relative to where the command was started.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(elsewhere.path().join("source")).unwrap();
    fs::write(elsewhere.path().join("source/file"), noise(3, 500_000)).unwrap();
    let output = hither(&["mount", "--background", "--memory", "64MiB"])
        .args(["--consistency", "immutable", "--disk-size", "64MiB"])
        .args(["--disk", "cache"])
        .arg("source")
        .arg(directory.path())
        .current_dir(elsewhere.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = directory.path().join("file");
    assert!(fs::read(&file).unwrap() == noise(3, 500_000));
    wait_until("the write", || blocks_on_disk(&file) == "4/4");
    let output = hither(&["unmount"]).arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!is_mounted(directory.path()));
}

#[test]
fn a_user_without_rights_mounts_by_fusermount3() {
    let user = 65534;
    // As an ordinary user, all other tests are of that case.
    if !rustix::process::getuid().is_root() || hither_testing::needs::cannot_mount_as(user) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let within = ["source", "directory", "run"].map(|name| folder.path().join(name));
    for place in &within {
        fs::create_dir(place).unwrap();
        chown(place, Some(user), Some(user)).unwrap();
    }
    chown(folder.path(), Some(user), Some(user)).unwrap();
    let [source, directory, run] = &within;
    fs::write(source.join("file"), "contents").unwrap();
    let as_user = |mut command: Command| {
        command.uid(user).gid(user).env("HITHER_RUNTIME_DIR", run);
        command.output()
    };
    let arguments = |more: &[&str]| {
        let mut command = hither(&["mount", "--background"]);
        command.args(more).args([source, directory]);
        command
    };
    let output = match as_user(arguments(&[])) {
        Ok(output) => output,
        // That user may not even run this program where it is.
        Err(error) => return hither_testing::skip::skip_on_this_machine(error),
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| {
        let mut command = Command::new("cat");
        command.arg(directory.join(name));
        as_user(command).unwrap()
    };
    assert_eq!(text(&read("file").stdout), "contents");
    assert!(!read("nothing").status.success());
    assert!(fs::read(directory.join("file")).is_err(), "root reads it");
    let mut status = hither(&["cluster", "status"]);
    status.arg(directory);
    let output = as_user(status).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut unmount = hither(&["unmount"]);
    unmount.arg(directory);
    let output = as_user(unmount).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!is_mounted(directory));
    // fusermount3 says why not, in a line.
    let output = as_user(arguments(&["--allow-other"])).unwrap();
    let error = text(&output.stderr);
    if fs::read_to_string("/etc/fuse.conf").is_ok_and(|text| !text.contains("\nuser_allow_other")) {
        assert_eq!(output.status.code(), Some(1));
        assert!(error.contains("user_allow_other"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn what_a_killed_mount_left_is_replaced_and_can_be_removed() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), "contents").unwrap();
    let url = source.path().to_str().unwrap();
    let Some(mut mounted) = Mounted::new(&[url]) else {
        return;
    };
    mounted.signal("-KILL");
    mounted.process.wait().unwrap();
    let error = fs::read(mounted.path().join("file")).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::NOTCONN.raw_os_error())
    );
    // Replaced by the next mount.
    let directory = mounted.path().to_str().unwrap();
    let output = hither(&["mount", "--background", url, directory])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read(mounted.path().join("file")).unwrap(), b"contents");
    // A living one is not.
    let output = hither(&["mount", url, directory]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("already"),
        "{}",
        text(&output.stderr)
    );
    let output = hither(&["unmount", directory]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = hither(&["unmount", directory]).output().unwrap();
    assert!(
        text(&output.stderr).contains("no mount of hither"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn bad_usage_is_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let check = |arguments: &[&str], code: i32, words: &[&str]| {
        let Output { status, stderr, .. } = hither(&["mount"]).args(arguments).output().unwrap();
        let stderr = text(&stderr);
        assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
        for word in words {
            assert!(
                stderr.contains(word),
                "{arguments:?}: {word} is not in {stderr}"
            );
        }
    };
    check(&["ftp://host/path", place], 1, &["ftp", "s3"]);
    check(&["/no/such/directory", place], 1, &["/no/such/directory"]);
    check(&["relative", place], 1, &["relative"]);
    check(&[place, "/no/such/place"], 1, &["/no/such/place"]);
    check(&["--memory", "1MiB", place, place], 1, &["too small"]);
    check(&["--memory", "10%", place, place], 2, &["bytes"]);
    check(&["--block", "100000", place, place], 2, &["power of two"]);
    check(
        &["--policy", "pcc", place, place],
        1,
        &["pcc", "call sites"],
    );
    check(
        &["--consistency", "loose", place, place],
        2,
        &["strict", "ttl="],
    );
    check(&["--disk", place, place, place], 2, &["--disk-size"]);
    let below = ["--disk", place, "--disk-size", "1GiB", "/usr", place];
    check(&below, 1, &["below the mount"]);
    let small = ["--disk", "/tmp/none", "--disk-size", "1MiB", "/usr", place];
    check(&small, 1, &["too small", "16777216"]);
    let full = tempfile::tempdir().unwrap();
    fs::write(full.path().join("thesis"), "").unwrap();
    let disk = ["--disk", full.path().to_str().unwrap(), "--disk-size"];
    check(
        &[&disk[..], &["1GiB", place, place]].concat(),
        1,
        &["not a disk cache", "not empty"],
    );
    check(&["-o", "region", "s3://bucket", place], 2, &["KEY=VALUE"]);
    let (_server, options) = bucket();
    let mut arguments: Vec<&str> = options.iter().map(String::as_str).collect();
    arguments.extend(["s3://nowhere", place]);
    check(&arguments, 1, &["nowhere"]);
}

/// What `hither stat --json` says of the bytes and the files of a trace.
fn reads_of(trace: &Path) -> (u64, Vec<String>) {
    let output = hither(&["stat", "--json"]).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = stat["stats"]["by_object"].as_array().unwrap();
    let mut names: Vec<String> = files
        .iter()
        .map(|file| file["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    (stat["bytes"]["read"].as_u64().unwrap(), names)
}

#[test]
fn what_programs_read_is_a_trace_also_of_a_mount_that_is_killed() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("long"), noise(1, 300_000)).unwrap();
    fs::write(source.path().join("short"), noise(2, 10)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("reads.hither");
    let url = source.path().to_str().unwrap();
    let arguments = ["--direct-io", "--trace", trace.to_str().unwrap(), url];
    let Some(mut mounted) = Mounted::new(&arguments) else {
        return;
    };
    let read = |mounted: &Mounted, name: &str| fs::read(mounted.path().join(name)).unwrap();
    let path = |mounted: &Mounted, name: &str| mounted.path().join(name).display().to_string();
    read(&mounted, "long");
    read(&mounted, "short");
    read(&mounted, "long");
    mounted.signal("-INT");
    assert!(mounted.process.wait().unwrap().success());
    let names = ["long", "short"].map(|name| path(&mounted, name));
    assert_eq!(reads_of(&trace), (600_010, names.to_vec()));

    // What is there is not overwritten, and nothing is mounted.
    let output = hither(&["mount"])
        .args(arguments)
        .arg(mounted.path())
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("reads.hither"), "{output:?}");
    fs::remove_dir_all(&trace).unwrap();

    let mounted = Mounted::new(&arguments).unwrap();
    read(&mounted, "long");
    let process = mounted.process.id();
    let partial = folder
        .path()
        .join(format!(".reads.hither.partial-{process}"));
    wait_until("a checkpoint", || {
        let journal = fs::read_to_string(partial.join("journal.jsonl"));
        journal.is_ok_and(|text| text.ends_with('\n') && text.lines().count() > 1)
    });
    mounted.signal("-KILL");
    let name = path(&mounted, "long");
    drop(mounted);
    let output = hither(&["recover"]).arg(&trace).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(reads_of(&trace), (300_000, vec![name]));
}

/// The configurations of two members, in a folder.
fn cluster_of_two() -> (TempDir, [String; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::create(folder.path(), "test").unwrap();
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = ports.map(|port| port.local_addr().unwrap().port());
    let config = |name: &str, port: u16| {
        authority
            .issue(name, folder.path(), Authority::NODE_VALIDITY)
            .unwrap();
        let path = folder.path().join(format!("{name}.toml"));
        let text = format!(
            "name = \"{name}\"\ncluster = \"test\"\nlisten = \"127.0.0.1:{port}\"\n\
             tls = {{ authority = \"ca.pem\", certificate = \"{name}.pem\", \
             key = \"{name}.key\" }}\n\
             [members]\na = \"127.0.0.1:{}\"\nb = \"127.0.0.1:{}\"\n",
            ports[0], ports[1],
        );
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let configs = [config("a", ports[0]), config("b", ports[1])];
    (folder, configs)
}

/// What `hither cluster status --json` says of the node that serves a mount.
fn status_of(directory: &Path) -> serde_json::Value {
    let mut status = hither(&["cluster", "status", "--json"]);
    let output = status.arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn mounts_of_a_cluster_read_each_block_from_the_source_once() {
    let (server, options) = bucket();
    let (_folder, configs) = cluster_of_two();
    let mounts: Vec<Mounted> = configs
        .iter()
        .map_while(|config| {
            let mut arguments: Vec<&str> = options.iter().map(String::as_str).collect();
            arguments.extend(["--cluster", config, "--consistency", "immutable"]);
            arguments.push("s3://bucket/data");
            Mounted::new(&arguments)
        })
        .collect();
    if mounts.len() < 2 {
        return;
    }
    let fetched = |server: &S3Emulator| {
        let seen = server.take_seen();
        seen.iter()
            .filter(|it| it.method == "GET" && !it.key.is_empty())
            .count()
    };
    // Until each has connected to the other, it reads for itself.
    wait_until("the connections", || {
        mounts.iter().all(|it| {
            let members = status_of(it.path())["members"].clone();
            let mut members = members.as_array().unwrap().iter();
            members.all(|it| it["this_node"] == true || it["connected"] == true)
        })
    });
    let path = |mounted: &Mounted| mounted.path().join("a/first");
    assert!(fs::read(path(&mounts[0])).unwrap() == noise(1, 3_000_000));
    fetched(&server);
    assert!(fs::read(path(&mounts[1])).unwrap() == noise(1, 3_000_000));
    // On a machine that stalls for longer than a deadline, a block may be read twice, and counted.
    let [other, machine] =
        [0, 1].map(|at: usize| status_of(mounts[at].path())["asked"]["machine"].clone());
    let late = [
        "answer_timeout_blocks",
        "delivery_timeout_blocks",
        "patience_blocks",
    ];
    let late = late.map(|name| machine[name].as_u64().unwrap());
    assert!(
        fetched(&server) as u64 <= late.iter().sum(),
        "a block that the other one has was read from the source: {machine}, {other}"
    );
}

/// Tells threads to end, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_write_on_one_machine_is_seen_on_the_others_at_once() {
    let source = tempfile::tempdir().unwrap();
    let url = source.path().to_str().unwrap();
    let (_folder, configs) = cluster_of_two();
    let mount = |config: &String| {
        let arguments = ["--write", "--cluster", config, "--consistency", "ttl=600"];
        Mounted::new(&[&arguments[..], &[url]].concat())
    };
    let mounts: Vec<Mounted> = configs.iter().map_while(mount).collect();
    let [writer, reader] = &mounts[..] else {
        return;
    };
    // An announcement is lost until the two are connected: each try is a name of its own.
    let mut tries = 0;
    wait_until("the connection", || {
        tries += 1;
        let name = format!("try{tries}");
        assert!(!reader.path().join(&name).exists());
        fs::write(writer.path().join(&name), "there").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        reader.path().join(&name).exists()
    });
    let read = |name: &str| fs::read_to_string(reader.path().join(name)).unwrap_or_default();
    // While other programs look names up and read them, all the time.
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&ended);
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    for number in 0..8 {
                        let text = read(&format!("file{number}"));
                        assert!(text.bytes().all(|byte| byte == text.as_bytes()[0]));
                    }
                    fs::read_dir(reader.path()).unwrap().for_each(drop);
                }
            });
        }
        for round in 0..100 {
            let name = format!("file{}", round % 8);
            let text = char::from(b'a' + (round % 26) as u8).to_string();
            let text = text.repeat(1 + round * 100);
            fs::write(writer.path().join(&name), &text).unwrap();
            wait_until("the new version", || read(&name) == text);
        }
    });
    fs::rename(writer.path().join("file1"), writer.path().join("moved")).unwrap();
    wait_until("the other name", || !reader.path().join("file1").exists());
    assert!(!read("moved").is_empty());
    fs::remove_file(writer.path().join("moved")).unwrap();
    wait_until("the end", || !reader.path().join("moved").exists());
}

#[test]
fn programs_read_past_the_kernel() {
    let source = tempfile::tempdir().unwrap();
    let contents = noise(5, 3_000_000);
    fs::write(source.path().join("file"), &contents).unwrap();
    fs::write(source.path().join("empty"), "").unwrap();
    let sparse = fs::File::create(source.path().join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"far", (1 << 40) - 3).unwrap();
    let url = source.path().to_str().unwrap();
    let Some(mut mounted) = Mounted::new(&["--consistency", "immutable", url]) else {
        return;
    };
    let path = |name: &str| mounted.path().join(name);
    let file = hither_client::open(&path("file")).unwrap();
    assert_eq!(file.len(), 3_000_000);
    // Some threads by one file, others by a file of their own.
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (path, file, contents) = (path("file"), &file, &contents);
            scope.spawn(move || {
                let own = hither_client::open(&path).unwrap();
                let file = if thread % 2 == 0 { file } else { &own };
                let mut data = vec![0; 1_500_000];
                for round in 0..50 {
                    let at = (thread * 7_919_777 + round * 1_299_709) % 3_100_000;
                    let bytes = [1, 4096, 131_072, 1_500_000][round % 4];
                    let read = file.read_at(&mut data[..bytes], at as u64).unwrap();
                    let expected = &contents[at.min(3_000_000)..(at + bytes).min(3_000_000)];
                    assert!(data[..read] == *expected, "{bytes} bytes at {at}");
                }
            });
        }
    });
    let mut data = [1; 10];
    let empty = hither_client::open(&path("empty")).unwrap();
    assert_eq!(
        (empty.is_empty(), empty.read_at(&mut data, 0).unwrap()),
        (true, 0)
    );
    let sparse = hither_client::open(&path("sparse")).unwrap();
    assert_eq!(sparse.read_at(&mut data, (1 << 40) - 5).unwrap(), 5);
    assert_eq!(&data[..5], b"\0\0far");
    let error = |name: &str| hither_client::open(&path(name)).unwrap_err();
    assert_eq!(error("nothing").kind(), ErrorKind::NotFound);
    assert_eq!(error(".").kind(), ErrorKind::IsADirectory);
    let error = hither_client::open(source.path()).unwrap_err();
    assert!(
        error.to_string().contains("in no mount of hither"),
        "{error}"
    );

    // By the name of the volume, as of one that is not mounted.
    let socket = hither_client::socket_of(mounted.path()).unwrap();
    let client = hither_client::Client::connect(&socket).unwrap();
    assert_eq!(client.open(url, b"file").unwrap().len(), 3_000_000);
    for (volume, path) in [("nothing", &b"file"[..]), (url, b"../file"), ("", b"/file")] {
        assert_eq!(
            client.open(volume, path).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    // Whoever sends nonsense is cut off, and nobody else.
    let mut hostile = UnixStream::connect(hither_client::read_socket(&socket)).unwrap();
    hostile.write_all(&[0xff; 4096]).unwrap();
    let mut rest = Vec::new();
    // The end comes with or without a complaint about what it has not read.
    let _ = hostile.read_to_end(&mut rest);
    let mut silent = UnixStream::connect(hither_client::read_socket(&socket)).unwrap();
    silent.write_all(&[1, 0, 0]).unwrap();
    // There are so many connections and no more; those that end make room.
    let clients: Vec<_> = (0..80)
        .map_while(|_| hither_client::Client::connect(&socket).ok())
        .collect();
    assert!(
        (40..64).contains(&clients.len()),
        "{} clients",
        clients.len()
    );
    drop((clients, silent));
    wait_until("room", || hither_client::Client::connect(&socket).is_ok());
    assert_eq!(file.read_at(&mut data, 5).unwrap(), 10);
    assert_eq!(data, contents[5..15]);

    // A node that is killed ends what is read, and is named where somebody wants to connect.
    mounted.process.kill().unwrap();
    mounted.process.wait().unwrap();
    let error = file.read_at(&mut data, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
    let error = hither_client::Client::connect(&socket).unwrap_err();
    assert!(error.to_string().contains(".read: "), "{error}");
}

#[test]
fn a_client_that_takes_no_answers_is_cut_off() {
    let source = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(&[source.path().to_str().unwrap()]) else {
        return;
    };
    let socket = hither_client::socket_of(mounted.path()).unwrap();
    let mut greedy = UnixStream::connect(hither_client::read_socket(&socket)).unwrap();
    let (offset, bytes) = (0, 1);
    let request = hither_client::protocol::Request::Read { offset, bytes }.encode();
    let mut requests = std::iter::repeat_n(request, 1_000_000);
    assert!(requests.any(|it| greedy.write_all(&it).is_err()));
    assert!(hither_client::Client::connect(&socket).is_ok());
}

#[test]
fn an_open_file_keeps_its_version_past_the_kernel() {
    let source = tempfile::tempdir().unwrap();
    let place = source.path().join("file");
    let write = |byte: u8| {
        let beside = source.path().join("beside");
        fs::write(&beside, vec![byte; 1_000_000]).unwrap();
        fs::rename(&beside, &place).unwrap();
    };
    write(b'a');
    let url = source.path().to_str().unwrap();
    let Some(mounted) = Mounted::new(&["--consistency", "ttl=600", "--prefetch", "0", url]) else {
        return;
    };
    let path = mounted.path().join("file");
    let mut data = vec![0; 4096];
    // A file that was changed a moment ago is not kept.
    wait_until("a cached block", || {
        let file = hither_client::open(&path).unwrap();
        file.read_at(&mut data, 0).unwrap();
        let mut value = [0; 64];
        let bytes = rustix::fs::getxattr(&path, "user.hither.memory", &mut value[..]).unwrap();
        value[..bytes].starts_with(b"1/")
    });
    let file = hither_client::open(&path).unwrap();
    write(b'b');
    file.read_at(&mut data, 0).unwrap();
    assert!(data.iter().all(|byte| *byte == b'a'));
    let error = file.read_at(&mut data, 900_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
    // The node has learned of it, before the time is over for which it believes a version.
    let file = hither_client::open(&path).unwrap();
    file.read_at(&mut data, 0).unwrap();
    assert!(data.iter().all(|byte| *byte == b'b'));
}

#[test]
fn other_users_have_their_own_rights() {
    let source = tempfile::tempdir().unwrap();
    let url = source.path().to_str().unwrap();
    let arguments = ["--write", "--allow-other", "--consistency", "ttl=600", url];
    if !rustix::process::getuid().is_root() {
        return hither_testing::skip::skip_on_this_machine("only root gives rights away");
    }
    let group = 4242;
    chown(source.path(), None, Some(group)).unwrap();
    fs::set_permissions(source.path(), Permissions::from_mode(0o2777)).unwrap();
    let Some(mounted) = Mounted::new(&arguments) else {
        return;
    };
    let place = mounted.path().join("secret");
    let as_user = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&place);
        command
            .uid(65534)
            .gid(65534)
            .current_dir("/")
            .output()
            .unwrap()
    };
    // The kernel keeps that there is none.
    assert!(!as_user("cat \"$1\"").status.success());
    fs::write(source.path().join("secret"), "secret").unwrap();
    fs::set_permissions(source.path().join("secret"), Permissions::from_mode(0o600)).unwrap();
    let output = as_user("exec 3<>\"$1\" && cat <&3");
    assert!(!output.status.success(), "{output:?}");
    assert!(
        text(&output.stderr).contains("ermission denied"),
        "{output:?}"
    );
    // Root may, and finds what is there.
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true);
    let mut file = options.open(&place).unwrap();
    let mut contents = String::new();
    file.read_to_string(&mut contents).unwrap();
    assert_eq!(contents, "secret");
    // This directory gives its group to what is made in it.
    let made = as_user("cd \"${1%/*}\" && mkdir d && ln -s x link && echo x > file");
    assert!(made.status.success(), "{made:?}");
    for name in ["d", "link", "file"] {
        let there = fs::symlink_metadata(source.path().join(name)).unwrap();
        assert_eq!((there.uid(), there.gid()), (65534, group), "{name}");
    }
}
