//! `hither node` and `hither cluster` as an operator uses them: nodes from files, with certificates
//! that the command made; what status and metrics say against what was read; and what goes wrong.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

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
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The address of a port that nobody uses.
fn free_address() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap().to_string()
}

/// A folder with an authority, sources and files of nodes. The sockets of its nodes are in it too.
struct Site {
    folder: TempDir,
}

const FILE_BYTES: usize = 3_000_000;

impl Site {
    fn new() -> Site {
        let site = Site {
            folder: tempfile::tempdir().unwrap(),
        };
        for name in ["first", "second"] {
            fs::create_dir(site.path(name)).unwrap();
        }
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at % 251) as u8).collect();
        fs::write(site.path("first/file"), bytes).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn hither(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HITHER_RUNTIME_DIR", self.path("sockets"))
            .env_remove("RUST_LOG");
        command
    }

    /// What a command prints that succeeds.
    fn output(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.hither(arguments).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", text(&stderr));
        text(&stdout)
    }

    /// The only line of a command that fails.
    fn error(&self, arguments: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.hither(arguments).output().unwrap();
        assert!(!status.success(), "{arguments:?}: {}", text(&stdout));
        let errors = text(&stderr);
        let errors: Vec<&str> = errors
            .lines()
            .filter(|line| line.starts_with("hither: "))
            .collect();
        let [error] = errors[..] else {
            panic!("{arguments:?}: one line: {errors:?}");
        };
        error["hither: ".len()..].to_owned()
    }

    /// Writes the file of a member, with a certificate of the authority `ca`.
    fn member(&self, name: &str, ca: &str, members: &[(&str, &str)]) {
        self.output(&["cluster", "issue", name, "--ca", ca, "--out", "."]);
        let (_, listen) = members.iter().find(|(other, _)| *other == name).unwrap();
        let members: Vec<String> = members
            .iter()
            .map(|(name, address)| format!("{name} = \"{address}\"\n"))
            .collect();
        let file = format!(
            "name = \"{name}\"\ncluster = \"lab\"\nlisten = \"{listen}\"\nmemory = \"64MiB\"\n\
             tls = {{ authority = \"{ca}/ca.pem\", certificate = \"{name}.pem\", \
             key = \"{name}.key\" }}\n[members]\n{}{}",
            members.concat(),
            self.volumes(&format!("mount-{name}")),
        );
        fs::write(self.path(&format!("{name}.toml")), file).unwrap();
    }

    /// Two volumes, of which the first is mounted in such a way that all reads are seen.
    fn volumes(&self, directory: &str) -> String {
        fs::create_dir_all(self.path(directory)).unwrap();
        format!(
            "[[volume]]\nname = \"data\"\nsource = \"{}\"\ndirectory = \"{directory}\"\n\
             consistency = \"immutable\"\ndirect-io = true\n\
             [[volume]]\nname = \"more\"\nsource = \"{}\"\n",
            self.path("first").display(),
            self.path("second").display(),
        )
    }

    /// Starts the node of a file. `None` where this user cannot mount.
    fn start(&self, name: &str) -> Option<Running<'_>> {
        self.start_with(name, &[])
    }

    /// The same, with more options.
    fn start_with(&self, name: &str, options: &[&str]) -> Option<Running<'_>> {
        if hither_testing::needs::cannot_mount() {
            return None;
        }
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let process = self
            .hither(&["node", &format!("{name}.toml")])
            .args(options)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut running = Running {
            site: self,
            name: name.to_owned(),
            process,
        };
        let mut has_ended = false;
        wait_until("the node", || {
            has_ended = running.process.try_wait().unwrap().is_some();
            has_ended || running.log().contains(" serves ")
        });
        assert!(!has_ended, "not started: {}", running.log());
        Some(running)
    }

    fn status(&self, node: &Running<'_>) -> Value {
        let mount = format!("mount-{}", node.name);
        let printed = self.output(&["cluster", "status", "--json", &mount]);
        serde_json::from_str(&printed).unwrap()
    }
}

/// A node that runs. Dropped, it is killed, and its mount removed.
struct Running<'a> {
    site: &'a Site,
    name: String,
    process: Child,
}

impl Running<'_> {
    fn log(&self) -> String {
        fs::read_to_string(self.site.path(&format!("{}.log", self.name))).unwrap()
    }

    fn wait_for_log(&self, words: &str) {
        let start = Instant::now();
        while !self.log().contains(words) {
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(
                !late,
                "{words:?} is not in the log of {}: {}",
                self.name,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn mount(&self) -> PathBuf {
        self.site.path(&format!("mount-{}", self.name))
    }

    fn socket(&self) -> PathBuf {
        let name = format!("sockets/{}.sock", self.process.id());
        self.site.path(&name)
    }

    fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        let status = Command::new("kill").args([signal, &process]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = self.site.hither(&["unmount"]).arg(self.mount()).output();
    }
}

/// An answer of a TCP port: its head and its body.
fn http_get(at: &str, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(at).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The value of a metric.
fn sample(metrics: &str, name: &str) -> u64 {
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no {name}: {metrics}"));
    value.parse().unwrap()
}

#[test]
fn status_and_metrics_are_what_was_read() {
    let site = Site::new();
    let at = free_address();
    let file = format!(
        "memory = \"64MiB\"\nmetrics = \"{at}\"\n{}",
        site.volumes("mount-n")
    );
    fs::write(site.path("n.toml"), file).unwrap();
    let checked = site.output(&["node", "n.toml", "--check"]);
    assert_eq!(checked, "n.toml: 2 volumes, 1 of them mounted\n");
    let Some(mut node) = site.start("n") else {
        return;
    };
    for _ in 0..2 {
        assert_eq!(
            fs::read(node.mount().join("file")).unwrap().len(),
            FILE_BYTES
        );
    }
    let status = site.status(&node);
    let status = &status["asked"];
    let [data, more] = &status["volumes"].as_array().unwrap()[..] else {
        panic!("two volumes: {status}");
    };
    let bytes =
        |served: &Value| ["memory", "peer", "source"].map(|from| served[from].as_u64().unwrap());
    let [memory, peer, source] = bytes(&data["served"]);
    // All reads but the first came from memory, and of those some were ahead of the reader.
    assert_eq!(memory + source, 2 * FILE_BYTES as u64);
    assert!(memory >= FILE_BYTES as u64 && source > 0, "{data}");
    assert_eq!((peer, bytes(&more["served"])), (0, [0; 3]));
    assert_eq!(bytes(&status["served"]), [memory, 0, source]);
    assert_eq!(data["counts"]["fetched_bytes"], FILE_BYTES);
    assert_eq!(status["memory"]["bytes"], FILE_BYTES);
    assert_eq!(status["memory"]["limit_bytes"], 64 << 20);
    assert_eq!(status["memory"]["blocks"], FILE_BYTES.div_ceil(128 << 10));
    assert_eq!(status["cluster"], Value::Null);

    let (head, metrics) = http_get(&at, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    let read = |from: &str| {
        let name = format!("hither_read_bytes_total{{volume=\"data\",from=\"{from}\"}}");
        sample(&metrics, &name)
    };
    assert_eq!(["memory", "peer", "source"].map(read), [memory, 0, source]);
    assert_eq!(sample(&metrics, "hither_cache_bytes"), FILE_BYTES as u64);
    assert!(metrics.contains("page cache"), "{metrics}");
    // The port of the metrics has nothing else.
    assert!(http_get(&at, "/status").0.starts_with("HTTP/1.1 404"));

    let shown = site.output(&["cluster", "status"]);
    assert!(shown.starts_with("this node is alone\n"), "{shown}");
    let error = site.error(&["cluster", "status", "--draw", "who.svg"]);
    assert_eq!(error, "this node is alone");
    let shown = site.output(&["top", "--once", &node.process.id().to_string()]);
    assert!(shown.contains("  data at "), "{shown}");
    let mode = fs::metadata(node.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    node.signal("-TERM");
    assert!(node.process.wait().unwrap().success());
    assert!(!node.socket().exists());
    assert!(node.log().contains("data: 5.72 MiB read"), "{}", node.log());
}

#[test]
fn members_over_tls_serve_each_other_and_say_so() {
    let site = Site::new();
    let printed = site.output(&["cluster", "ca", "lab"]);
    assert!(
        printed.contains("ca/ca.pem") && printed.contains("valid until"),
        "{printed}"
    );
    let addresses = [free_address(), free_address()];
    let members = [("a", &addresses[0][..]), ("b", &addresses[1][..])];
    for name in ["a", "b"] {
        site.member(name, "ca", &members);
    }
    let checked = site.output(&["node", "a.toml", "--check"]);
    assert!(
        checked.contains("a of the cluster lab, with a certificate until"),
        "{checked}"
    );
    let (Some(a), Some(mut b)) = (site.start("a"), site.start("b")) else {
        return;
    };
    let member = |status: &Value, name: &str| {
        let members = status["members"].as_array().unwrap();
        let found = members.iter().find(|member| member["name"] == name);
        found
            .unwrap_or_else(|| panic!("no {name}: {status}"))
            .clone()
    };
    wait_until("a round trip", || {
        let other = member(&site.status(&a), "b");
        other["round_trip_ns"].as_u64().is_some() && other["error"].is_null()
    });
    let shown = site.output(&["cluster", "status", a.mount().to_str().unwrap()]);
    assert!(shown.starts_with("cluster lab\n"), "{shown}");
    assert!(
        shown.contains("this node") && shown.contains(" ok "),
        "{shown}"
    );
    let error = site.error(&["cluster", "status"]);
    assert!(error.starts_with("several nodes of yours run"), "{error}");

    for node in [&a, &b] {
        assert_eq!(
            fs::read(node.mount().join("file")).unwrap().len(),
            FILE_BYTES
        );
    }
    let status = site.status(&b);
    let volume = &status["asked"]["volumes"][0];
    assert_eq!(volume["counts"]["fetched_bytes"], 0, "{volume}");
    assert_eq!(volume["served"]["source"], 0, "{volume}");
    let [memory, peer] = ["memory", "peer"].map(|from| volume["served"][from].as_u64().unwrap());
    assert_eq!(memory + peer, FILE_BYTES as u64);
    assert_eq!(volume["peers"]["a"], peer);
    // What b says of itself, as a passes it on.
    let said = member(&site.status(&a), "b")["report"].clone();
    assert_eq!(said["served"]["peer"], peer, "{said}");

    b.process.kill().unwrap();
    b.process.wait().unwrap();
    wait_until("the suspicion", || {
        let gone = member(&site.status(&a), "b");
        gone["suspected"] == true && gone["report"].is_null() && gone["error"].is_string()
    });
    a.wait_for_log("member b does not answer");
    let shown = site.output(&["cluster", "status"]);
    assert!(shown.contains("suspected"), "{shown}");
}

#[test]
fn distances_are_measured_unless_the_file_gives_them() {
    let site = Site::new();
    site.output(&["cluster", "ca", "lab"]);
    let addresses = [free_address(), free_address(), free_address()];
    let names = ["a", "b", "c"];
    let members: Vec<(&str, &str)> = names
        .into_iter()
        .zip(addresses.iter().map(|it| &it[..]))
        .collect();
    for name in names {
        site.member(name, "ca", &members);
    }
    let append = |name: &str, text: &str| {
        let path = site.path(&format!("{name}.toml"));
        let file = fs::read_to_string(&path).unwrap();
        fs::write(path, file + text).unwrap();
    };
    // Only c has a file with distances: all must have the same, but nobody checks that.
    append(
        "c",
        "[topology]\nshape = \"mesh:1x3\"\nmembers = [\"b\", \"a\", \"c\"]\n",
    );
    let (Some(a), Some(_b), Some(c)) = (site.start("a"), site.start("b"), site.start("c")) else {
        return;
    };
    let of = |node: &Running<'_>| site.status(node)["topology"].clone();
    wait_until("the distances", || of(&a)["is_known"] == true);
    assert_eq!(of(&a)["from"], "measured");
    let mount = a.mount();
    let asked = ["cluster", "status", "--distances", mount.to_str().unwrap()];
    let shown = site.output(&asked);
    assert!(shown.contains("\ndistances: measured\n"), "{shown}");
    assert!(shown.contains(", from the member of the row\n"), "{shown}");

    let topology = of(&c);
    assert_eq!(topology["from"], "mesh:1x3");
    assert_eq!(topology["members"], serde_json::json!(names));
    assert_eq!(
        topology["hops"],
        serde_json::json!([[0, 1, 1], [1, 0, 2], [1, 2, 0]])
    );
    let socket = c.socket();
    let asked = ["cluster", "status", "--distances", socket.to_str().unwrap()];
    let shown = site.output(&[&asked[..], &["--draw", "cluster.svg"]].concat());
    assert!(
        shown.contains("\ndistances: mesh:1x3, of the configuration\n"),
        "{shown}"
    );
    assert!(shown.contains("\n\n  0 ── 1 ── 2\n"), "{shown}");
    let picture = fs::read_to_string(site.path("cluster.svg")).unwrap();
    assert!(picture.contains("mesh:1x3"), "{picture}");

    append("b", "[topology]\nplaces = { a = \"z\", d = \"z\" }\n");
    let error = site.error(&["node", "b.toml", "--check"]);
    assert_eq!(error, "b.toml: [topology]: \"d\" is no member");
}

/// A block moves to its reader, and what the nodes decided is decided again.
#[test]
fn a_placement_log_replays_to_the_same_decisions() {
    let site = Site::new();
    site.output(&["cluster", "ca", "lab"]);
    let addresses = [free_address(), free_address()];
    let members = [("a", &addresses[0][..]), ("b", &addresses[1][..])];
    let options = |log| ["--placement-log", log];
    for name in ["a", "b"] {
        site.member(name, "ca", &members);
        let file = site.path(&format!("{name}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("placement = \"always-migrate\"\n{text}")).unwrap();
    }
    let (Some(a), Some(b)) = (
        site.start_with("a", &options("a.calls")),
        site.start_with("b", &options("b.calls")),
    ) else {
        return;
    };
    wait_until("a round trip", || {
        let status = site.status(&a);
        let members = status["members"].as_array().unwrap();
        members.iter().any(|it| it["round_trip_ns"].is_u64())
    });
    let read = |node: &Running<'_>| {
        let bytes = fs::read(node.mount().join("file")).unwrap();
        assert_eq!(bytes.len(), FILE_BYTES);
    };
    [&a, &b, &a, &b].into_iter().for_each(read);
    for mut node in [a, b] {
        node.signal("-TERM");
        assert!(node.process.wait().unwrap().success(), "{}", node.log());
    }
    // The one that is home to the file decides.
    let decisions = |name: &str| {
        let shown = site.output(&["cluster", "replay", name]);
        assert!(shown.contains("all are the same"), "{shown}");
        let json = site.output(&["cluster", "replay", "--json", name]);
        let json: Value = serde_json::from_str(&json).unwrap();
        json["decisions"].as_u64().unwrap()
    };
    let home = ["a.calls", "b.calls"]
        .into_iter()
        .max_by_key(|name| decisions(name));
    let home = home.unwrap();
    assert!(decisions(home) >= 20);
    let log = fs::read_to_string(site.path(home)).unwrap();
    fs::write(site.path(home), log.replacen("> m", "> c", 1)).unwrap();
    let error = site.error(&["cluster", "replay", home]);
    assert!(error.starts_with(&format!("{home}: line ")), "{error}");
    let again = [&["node", "a.toml"][..], &options("a.calls")[..]].concat();
    assert!(
        site.error(&again).starts_with("a.calls: "),
        "it is there already"
    );
}

#[test]
fn what_does_not_fit_is_one_clear_line() {
    let site = Site::new();
    site.output(&["cluster", "ca", "lab"]);
    site.output(&["cluster", "ca", "lab", "--out", "other"]);
    let error = site.error(&["cluster", "ca", "lab"]);
    assert_eq!(error, "ca/ca.pem exists already and is not overwritten");
    let addresses = [free_address(), free_address()];
    let members = [("a", &addresses[0][..]), ("b", &addresses[1][..])];
    site.member("a", "ca", &members);
    site.member("b", "other", &members);
    let error = site.error(&["cluster", "issue", "a", "--ca", "ca"]);
    assert_eq!(error, "a.pem exists already and is not overwritten");
    let error = site.error(&["cluster", "issue", "A b", "--ca", "ca"]);
    assert!(error.contains("cannot be a member's name"), "{error}");
    let error = site.error(&["cluster", "issue", "c", "--ca", "none"]);
    assert!(error.starts_with("none/ca.key: No such file"), "{error}");

    let change = |from: &str, to: &str| {
        let file = fs::read_to_string(site.path("a.toml")).unwrap();
        assert!(file.contains(from));
        fs::write(site.path("changed.toml"), file.replace(from, to)).unwrap();
        site.error(&["node", "changed.toml"])
    };
    let error = change("ca/ca.pem", "other/ca.pem");
    assert_eq!(
        error,
        "a.pem: it is of another authority (authority: other/ca.pem)"
    );
    let error = change("name = \"a\"\n", "name = \"c\"\n");
    assert_eq!(error, "this node, \"c\", is not in the list of members");
    let error = change("memory = ", "memry = ");
    assert!(
        error.starts_with("changed.toml: line 4: unknown field `memry`"),
        "{error}"
    );
    let error = change(
        "name = \"data\"\nsource = \"/",
        "name = \"data\"\nsource = \"/none/",
    );
    assert!(
        error.starts_with("changed.toml: volume data: /none/"),
        "{error}"
    );
    let error = change("direct-io = true", "passthrough = true");
    assert_eq!(error, "changed.toml: volume data: passthrough needs a disk");
    let error = site.error(&["node", "no.toml"]);
    assert_eq!(error, "no.toml: No such file or directory (os error 2)");

    let taken = TcpListener::bind(&addresses[0]).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = site.error(&["node", "a.toml"]);
    assert_eq!(error, format!("port {port} of 127.0.0.1 is in use"));
    let file = format!("metrics = {port}\n{}", site.volumes("mount-m"));
    fs::write(site.path("m.toml"), file).unwrap();
    let error = site.error(&["node", "m.toml"]);
    assert!(
        error.starts_with(&format!("serving metrics at 127.0.0.1:{port}: ")),
        "{error}"
    );
    drop(taken);
    let error = site.error(&["cluster", "status", "first"]);
    assert!(error.ends_with("first is in no mount of hither"), "{error}");
    assert_eq!(
        site.error(&["cluster", "status"]),
        "no node of yours runs on this machine"
    );

    // Each side says that the other one is of another authority, and serves on.
    let (Some(a), Some(b)) = (site.start("a"), site.start("b")) else {
        return;
    };
    a.wait_for_log("another authority");
    b.wait_for_log("another authority");
    assert_eq!(fs::read(a.mount().join("file")).unwrap().len(), FILE_BYTES);
}

#[test]
fn two_nodes_with_one_name_are_told_apart() {
    let site = Site::new();
    site.output(&["cluster", "ca", "lab"]);
    let addresses = [free_address(), free_address(), free_address()];
    let members = [("a", &addresses[0][..]), ("b", &addresses[1][..])];
    site.member("a", "ca", &members);
    site.member("b", "ca", &members);
    // A second b, elsewhere.
    let file = fs::read_to_string(site.path("b.toml")).unwrap();
    let listen = |address: &str| format!("listen = \"{address}\"");
    let file = file.replace(&listen(&addresses[1]), &listen(&addresses[2]));
    fs::create_dir(site.path("mount-twin")).unwrap();
    fs::write(
        site.path("twin.toml"),
        file.replace("mount-b", "mount-twin"),
    )
    .unwrap();
    let (Some(a), Some(_b), Some(_twin)) = (site.start("a"), site.start("b"), site.start("twin"))
    else {
        return;
    };
    a.wait_for_log("two nodes are called \"b\"");
}

#[test]
fn a_socket_of_a_killed_node_is_removed() {
    let site = Site::new();
    fs::write(site.path("n.toml"), site.volumes("mount-n")).unwrap();
    let Some(mut node) = site.start("n") else {
        return;
    };
    node.process.kill().unwrap();
    node.process.wait().unwrap();
    assert!(node.socket().exists(), "this test shows nothing");
    let error = site.error(&["cluster", "status"]);
    assert_eq!(error, "no node of yours runs on this machine");
    assert!(!node.socket().exists());
}

#[test]
fn systemd_is_told_and_the_log_goes_where_it_should() {
    if hither_testing::needs::cannot_mount() {
        return;
    }
    let site = Site::new();
    let notify = UnixDatagram::bind(site.path("notify")).unwrap();
    notify
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let told = || {
        let mut bytes = [0; 1000];
        let length = notify.recv(&mut bytes).unwrap();
        text(&bytes[..length])
    };
    let [source, directory] = ["first", "mount-n"].map(|name| site.path(name));
    fs::create_dir(&directory).unwrap();
    let mut process = site
        .hither(&["mount", "--log", "mount.log", "--log-level", "info"])
        .args([&source, &directory])
        .env("NOTIFY_SOCKET", site.path("notify"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=serves /"), "{ready}");
    let kill = Command::new("kill").arg(process.id().to_string()).status();
    assert!(kill.unwrap().success());
    assert_eq!(told(), "STOPPING=1");
    assert!(process.wait().unwrap().success());
    let log = fs::read_to_string(site.path("mount.log")).unwrap();
    assert!(log.contains(" INFO ") && log.contains("serves /"), "{log}");
    assert!(is_not_mounted(&directory));
}

fn is_not_mounted(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    !mounts.contains(directory.to_str().unwrap())
}
