//! `hither run --metrics`: what Prometheus gets while a program runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use crate::{Lab, text};

/// A run that goes on until its program's standard input ends.
struct Running {
    run: Child,
    at: String,
}

impl Running {
    fn new(lab: &Lab, options: &[&str], script: &str) -> Running {
        let mut run = lab.command("hither");
        run.arg("run")
            .args(options)
            .args(["--metrics", "0", "--", "sh", "-c", script]);
        run.env("XDG_RUNTIME_DIR", lab.path(""))
            .stdin(Stdio::piped());
        let mut run = run
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spawned");
        let mut said = String::new();
        let mut stderr = BufReader::new(run.stderr.as_mut().expect("it is piped"));
        stderr.read_line(&mut said).expect("it says where");
        let at = said.strip_prefix("hither: metrics at http://");
        let at = at.and_then(|at| at.strip_suffix("/metrics\n"));
        let at = at.unwrap_or_else(|| panic!("{said}")).to_owned();
        Running { run, at }
    }

    /// What is served, without its head.
    fn scrape(&self) -> String {
        let mut client = TcpStream::connect(&self.at).expect("connected");
        client
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
            .expect("asked");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
    }

    /// The same, once it says something of this metric. A run posts its figures every second.
    fn scrape_of(&self, metric: &str) -> String {
        let begun = Instant::now();
        loop {
            let served = self.scrape();
            if served.lines().any(|line| line.starts_with(metric)) {
                return served;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "no {metric}: {served}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

#[test]
fn files_replicas_and_pages_are_served_alike_until_the_end() {
    let lab = Lab::new();
    lab.write("data", text(20_000));
    for (options, metric) in [
        (
            &["--page-cache", "--cache", "64MiB"][..],
            "hither_page_cache_missed_bytes_total",
        ),
        (&["--replicas"], "hither_replicas_reads_total"),
        (
            &["--memory=upm", "--dry-run"],
            "hither_memory_regions_total",
        ),
    ] {
        let mut running = Running::new(&lab, options, "cat data; cat");
        let served = running.scrape_of(metric);
        assert!(served.starts_with("# HELP hither_run_info "), "{served}");
        assert!(
            served.contains(&format!("\n# TYPE {metric} counter\n{metric} ")),
            "{served}"
        );
        // The name of its kind and its value: Prometheus knows no third.
        let samples = served.lines().filter(|line| !line.starts_with('#'));
        for sample in samples {
            let value = sample.rsplit_once(' ').expect("a name and a value").1;
            assert!(value.parse::<f64>().is_ok(), "{sample}");
        }
        drop(running.run.stdin.take());
        assert!(running.run.wait().expect("it ended").success());
        assert!(
            TcpStream::connect(&running.at).is_err(),
            "it goes on after the run"
        );
    }
}

#[test]
fn a_client_that_says_nothing_is_in_nobodys_way() {
    let lab = Lab::new();
    let running = Running::new(&lab, &["--page-cache", "--cache", "64MiB"], "cat");
    let silent = [(); 3].map(|()| TcpStream::connect(&running.at).expect("connected"));
    running.scrape_of("hither_files ");
    drop(silent);
}

#[test]
fn an_address_that_is_none_or_taken_is_told_before_the_program_starts() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither run --page-cache --cache 64MiB --metrics here -- touch \
                              started"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'here' for '--metrics <ADDR>': give a port, or an address and a port, as in
      ... 127.0.0.1:9464

    For more information, try '--help'.
    ");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let ran = lab.run(&format!(
        "hither run --page-cache --cache 64MiB --metrics {port} -- touch started"
    ));
    assert_eq!(ran.code, 1, "{ran}");
    assert!(
        ran.stderr
            .contains(&format!("--metrics 127.0.0.1:{port}: ")),
        "{ran}"
    );
    assert!(!lab.path("started").exists());
}
