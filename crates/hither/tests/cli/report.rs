//! `hither report`. What the page looks like in a browser, and that its controls work,
//! `tests/browser` tries.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Lab, keys, rounds};

/// What is in a list.
fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The data that a page carries.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once(r#"id="data">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn page(lab: &Lab, line: &str) -> Value {
    let ran = lab.run(&format!("hither report -q {line} -o page.html"));
    assert_eq!(
        (ran.code, ran.stderr.as_str(), ran.stdout()),
        (0, "", ""),
        "{line}"
    );
    data(&std::fs::read_to_string(lab.path("page.html")).unwrap())
}

/// Holds every number of a run to what the other commands print.
fn check(lab: &Lab, run: &Value, trace: &str, caches: &str) {
    let mut stat = lab.json(&format!("hither stat {trace} --json"));
    let by_thread = stat["stats"]["by_thread"].take();
    let mut stats = run["stats"].clone();
    assert_eq!(
        stats["by_thread"].take(),
        json!([]),
        "the processes have it"
    );
    assert_eq!(run["trace"], stat["trace"]);
    assert_eq!(run["bytes"], stat["bytes"]);
    assert_eq!(stats, stat["stats"]);
    assert_eq!(
        run["left_out"],
        json!({ "sites": 0, "objects": 0, "processes": 0 })
    );
    check_threads(run, list(&by_thread));
    for (name, rows) in [("sites", "by_site"), ("objects", "by_object")] {
        check_distribution(&run["distributions"][name], list(&stats[rows]));
    }
    if run["kind"] == "memory" {
        return;
    }

    let advise = lab.json(&format!("hither advise -q {trace} {caches} --json"));
    assert_eq!(run["advice"], advise["advice"]);
    assert_eq!(run["results"], advise["results"]);
    let mut policies: Vec<&str> = list(&run["curves"])
        .iter()
        .map(|curve| curve["policy"].as_str().unwrap())
        .collect();
    let line = format!(
        "hither sim {trace} -p '{}' {caches} --json",
        policies.join(",")
    );
    assert_eq!(run["results"], lab.json(&line)["results"]);
    policies.sort_unstable();
    policies.dedup();
    assert_eq!(policies.len(), list(&run["curves"]).len());

    assert_eq!(list(&run["sites"]).len(), list(&advise["sites"]).len());
    for (site, advised) in list(&run["sites"]).iter().zip(list(&advise["sites"])) {
        for name in keys(advised) {
            assert_eq!(site[name], advised[name], "{name}");
        }
    }
    for curve in list(&run["curves"]) {
        let sizes: Vec<String> = list(&curve["cache_blocks"])
            .iter()
            .map(Value::to_string)
            .collect();
        let policy = curve["policy"].as_str().unwrap();
        let line = format!(
            "hither sim {trace} -p '{policy}' -s {} --json",
            sizes.join(",")
        );
        let sim = lab.json(&line);
        for name in ["hits", "hit_ratio"] {
            let simulated: Vec<&Value> = list(&sim["results"])
                .iter()
                .map(|result| &result[name])
                .collect();
            assert_eq!(curve[name], json!(simulated), "{policy}");
        }
    }
    check_picture(run);
    check_stacks(lab, run, trace);
}

/// Each call site has its stack, and the misses that `sim --folded` prints.
fn check_stacks(lab: &Lab, run: &Value, trace: &str) {
    let stacks = &run["stacks"];
    assert_eq!(stacks["left_out"], 0);
    assert_eq!(list(&stacks["stacks"]).len(), list(&run["sites"]).len());
    let frames = list(&stacks["frames"]).len();
    for stack in list(&stacks["stacks"]) {
        assert!(
            list(&stack["frames"])
                .iter()
                .all(|at| (number(at) as usize) < frames)
        );
    }
    for cache in list(&stacks["misses"]) {
        let policy = cache["policy"].as_str().unwrap();
        let line = format!(
            "hither sim {trace} -p '{policy}' -s {} --folded",
            cache["cache_blocks"]
        );
        let folded = lab.run(&line);
        let weights = folded
            .stdout()
            .lines()
            .map(|line| line.rsplit(' ').next().unwrap());
        let mut weights: Vec<u64> = weights.map(|weight| weight.parse().unwrap()).collect();
        assert_eq!(weights.iter().sum::<u64>(), number(&cache["all"]), "{line}");
        let mut by_site: Vec<u64> = list(&cache["by_site"]).iter().map(number).collect();
        by_site.retain(|&misses| misses > 0);
        by_site.sort_unstable();
        weights.sort_unstable();
        assert!(weights == by_site || run["sites"] == json!([]), "{line}");
    }
}

/// Each thread has what `stat` counts for it, each process what its threads have.
fn check_threads(run: &Value, by_thread: &[Value]) {
    let references = number(&run["stats"]["references"]);
    // Read from text as the others are: the last digit may depend on it.
    let share = |part: u64| -> Value {
        let share = if references == 0 {
            0.0
        } else {
            part as f64 / references as f64
        };
        serde_json::from_str(&json!(share).to_string()).unwrap()
    };
    let processes = list(&run["processes"]);
    assert_eq!(processes.len() as u64, number(&run["stats"]["processes"]));
    let mut seen = 0;
    for process in processes {
        assert_eq!(process["threads_left_out"], 0);
        let mut sum = 0;
        for thread in list(&process["threads"]) {
            let counted = &by_thread[number(&thread["thread"]) as usize];
            assert_eq!(&thread["references"], counted);
            assert_eq!(thread["share"], share(number(counted)));
            sum += number(counted);
            seen += 1;
        }
        assert_eq!(process["references"], sum);
        assert_eq!(process["share"], share(sum));
        let over_time: u64 = list(&process["over_time"]).iter().map(number).sum();
        assert_eq!(over_time, sum);
    }
    assert_eq!(seen, by_thread.len());
    assert_eq!(seen as u64, number(&run["stats"]["threads"]));
}

/// The sums of the first rows of `stat`, whichever of them are points.
fn check_distribution(distribution: &Value, rows: &[Value]) {
    let mut sums = vec![0];
    sums.extend(rows.iter().scan(0, |sum, row| {
        *sum += number(&row["references"]);
        Some(*sum)
    }));
    let points = list(&distribution["rows"])
        .iter()
        .zip(list(&distribution["references"]));
    for (row, references) in points {
        assert_eq!(number(references), sums[number(row) as usize]);
    }
    let last = list(&distribution["references"]).last().map_or(0, number);
    assert_eq!(last, *sums.last().unwrap());
}

/// The cells of the picture have each call site's references, and of each class as many as the
/// policy that told them apart.
fn check_picture(run: &Value) {
    let picture = &run["picture"];
    let deflated = STANDARD.decode(picture["cells"].as_str().unwrap()).unwrap();
    let mut bytes = Vec::new();
    ZlibDecoder::new(&deflated[..])
        .read_to_end(&mut bytes)
        .unwrap();
    let mut numbers = Vec::new();
    let (mut value, mut shift) = (0u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            numbers.push(value);
            (value, shift) = (0, 0);
        }
    }
    let (columns, entries) = (
        number(&picture["columns"]) as usize,
        number(&picture["entries"]) as usize,
    );
    assert_eq!(numbers.len(), columns + 3 * entries);
    let sites = list(&picture["sites"]);
    let mut by_site = vec![0; sites.len()];
    let mut by_class = [0; 4];
    for (key, less_one) in numbers[columns + entries..][..entries]
        .iter()
        .zip(&numbers[columns + 2 * entries..])
    {
        by_site[(key >> 2) as usize] += less_one + 1;
        by_class[(key & 3) as usize] += less_one + 1;
    }
    let ranked = list(&run["stats"]["by_site"])
        .iter()
        .filter(|row| number(&row["references"]) > 0);
    let expected: Vec<(u64, u64)> = ranked
        .map(|row| (number(&row["number"]), number(&row["references"])))
        .collect();
    let found: Vec<(u64, u64)> = sites.iter().map(number).zip(by_site).collect();
    assert_eq!(found, expected);
    let mut results = list(&run["results"]).iter();
    match results.find(|result| result["policy"] == picture["classes_by"]) {
        Some(result) => {
            let of = |class: &str| number(&result["classes"][class]);
            assert_eq!(by_class, [0, of("sequential"), of("looping"), of("other")]);
        }
        None => assert_eq!(by_class[1..], [0, 0, 0]),
    }
}

#[test]
fn every_number_is_that_of_the_other_commands() {
    let lab = Lab::with_recording();
    lab.write("loop.trace", rounds(1000, 3));
    let script =
        "for part in a b c; do cut -c 1-9 data >$part; done; (cat a b a b & sort c data a & wait)";
    let ran = lab.run(&format!(
        "hither record -q -o many.hither -- sh -c '{script}' >/dev/null"
    ));
    assert_eq!(ran.code, 0, "{ran}");
    lab.run("hither gen -q 'cfd{points=8}' -o memory.hither");
    for (trace, caches) in [
        ("cat.hither", ""),
        ("many.hither", "-s 50,25%"),
        ("loop.trace", "-s 100,512KiB,90%"),
        ("memory.hither", ""),
    ] {
        let report = page(&lab, &format!("{trace} {caches}"));
        assert_eq!(report["comparison"], Value::Null);
        assert_eq!(report["runs"].as_array().unwrap().len(), 1);
        check(&lab, &report["runs"][0], trace, caches);
        assert_eq!(
            report,
            lab.json(&format!("hither report -q {trace} {caches} --json"))
        );
    }
}

#[test]
fn a_recording_is_shown_with_its_program_and_what_to_do() {
    let lab = Lab::with_recording();
    let report = page(&lab, "cat.hither");
    let run = &report["runs"][0];
    assert_eq!(run["kind"], "files");
    assert_eq!(
        run["advice"]["change"], "nothing",
        "too little to be steered"
    );
    assert_eq!(run["apply"], Value::Null);
    lab.write("large", vec![b'x'; 12 << 20]);
    lab.run("hither record -q -o large.hither -- cat large large large large");
    let large = &page(&lab, "large.hither")["runs"][0];
    // It fits into this machine's memory.
    assert_eq!(
        (&large["apply"], &large["fits"]),
        (&Value::Null, &json!(true))
    );
    // Of a machine that is not known it is not known.
    let path = lab.path("large.hither/meta.json");
    let mut meta: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    meta["machine"]["memory_bytes"] = json!(0);
    meta["seen"]["memory_limit_bytes"] = Value::Null;
    lab.run("cp -r large.hither elsewhere.hither");
    std::fs::write(lab.path("elsewhere.hither/meta.json"), meta.to_string()).unwrap();
    let elsewhere = &page(&lab, "elsewhere.hither")["runs"][0];
    assert_eq!(
        elsewhere["apply"],
        "hither run --page-cache=dear --cache 9216KiB -- cat large large large large"
    );
    let said = |number: usize| large["sentences"][number].as_str().unwrap();
    assert_eq!(
        large["seen"],
        "Seen: all 48.00 MiB that the program read of files."
    );
    assert!(
        said(0).starts_with("It does not matter here"),
        "{}",
        said(0)
    );
    let verdict = "Cheapest: another replacement policy.";
    assert!(said(1).starts_with(verdict), "{}", said(1));
    assert!(
        run["processes"][0]["exe"]
            .as_str()
            .unwrap()
            .ends_with("/cat")
    );
    assert_eq!(
        run["sites"][0]["processes"][0][0],
        run["processes"][0]["process"]
    );
    let picture = &run["picture"];
    assert_eq!(picture["classes_by"], "pcc");
    assert_eq!(picture["column_references"], 1);
    assert_eq!(picture["objects"].as_array().unwrap().len(), 1);
}

#[test]
fn two_runs_are_compared_in_the_same_caches() {
    let lab = Lab::with_recording();
    let ran = lab.run("hither record -q -o twice.hither -- cat data data >/dev/null");
    assert_eq!(ran.code, 0);
    let report = page(&lab, "cat.hither twice.hither");
    let runs = report["runs"].as_array().unwrap();
    check(&lab, &runs[0], "cat.hither", "");
    // Both read the same file, and so the sizes, which are parts of A's blocks, are parts of B's.
    check(&lab, &runs[1], "twice.hither", "");

    let comparison = &report["comparison"];
    let figure = |name: &str| {
        let all = comparison["figures"].as_array().unwrap();
        let found = all.iter().find(|figure| figure["name"] == name).unwrap();
        (found["a"].as_f64().unwrap(), found["b"].as_f64().unwrap())
    };
    assert_eq!(figure("references"), (1600.0, 800.0));
    let stats = ["cat.hither", "twice.hither"]
        .map(|trace| lab.json(&format!("hither stat {trace} --json"))["stats"].clone());
    let figures = [
        ("references", "/references"),
        ("distinct blocks", "/blocks"),
        ("footprint", "/footprint_bytes"),
        ("first uses", "/reuse/cold"),
        ("requests", "/counts/total/requests"),
        ("sequential requests", "/sequential_share"),
        ("bytes read", "/counts/total/read_bytes"),
        ("bytes written", "/counts/total/written_bytes"),
        ("bytes mapped", "/counts/total/mapped_bytes"),
        ("files", "/objects"),
        ("call sites", "/sites"),
        ("processes", "/processes"),
        ("threads", "/threads"),
        ("last access", "/counts/last_ns"),
    ];
    assert_eq!(list(&comparison["figures"]).len(), figures.len());
    for (name, path) in figures {
        let [a, b] = [0, 1].map(|run: usize| stats[run].pointer(path).unwrap().as_f64().unwrap());
        assert_eq!(figure(name), (a, b), "{name}");
    }
    let sentence = comparison["sentences"][0].as_str().unwrap();
    assert_eq!(
        sentence,
        "B makes 50.0 % fewer references than A (800 against 1,600), to as many distinct blocks \
         (400 against 400)."
    );
    let caches = comparison["caches"].as_array().unwrap();
    assert_eq!(caches.len(), runs[0]["results"].as_array().unwrap().len());
    for (cache, (a, b)) in caches.iter().zip(
        runs[0]["results"]
            .as_array()
            .unwrap()
            .iter()
            .zip(runs[1]["results"].as_array().unwrap()),
    ) {
        assert_eq!(
            (
                &cache["policy"],
                &cache["a"]["misses"],
                &cache["b"]["misses"]
            ),
            (&a["policy"], &a["misses"], &b["misses"])
        );
        assert_eq!(a["cache_blocks"], b["cache_blocks"]);
    }
    let site = &comparison["sites"][0];
    assert_eq!(
        (&site["a"]["references"], &site["b"]["references"]),
        (&json!(1600), &json!(800)),
        "{site}"
    );
    assert_eq!(comparison["files"].as_array().unwrap().len(), 1);
}

/// Whether it matters, and at which size, is said of each run's own memory.
#[test]
fn each_of_two_runs_has_its_own_memory() {
    let lab = Lab::new();
    lab.write("large", vec![0; 12 << 20]);
    lab.run("hither record -q -o a.hither -- cat large large large large");
    lab.run("cp -r a.hither b.hither");
    for (name, mebibytes) in [("a", 10u64), ("b", 11)] {
        let path = lab.path(&format!("{name}.hither/meta.json"));
        let mut meta: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        meta["seen"]["memory_limit_bytes"] = json!(mebibytes << 20);
        std::fs::write(&path, meta.to_string()).unwrap();
    }
    let report = page(&lab, "a.hither b.hither");
    for (run, mebibytes) in list(&report["runs"]).iter().zip([10u64, 11]) {
        let first = run["sentences"][0].as_str().unwrap();
        let limit = format!("do not fit into the {mebibytes}.00 MiB of its memory cgroup.");
        assert!(first.ends_with(&limit), "{first}");
        assert_eq!(run["advice"]["cache_blocks"], mebibytes << 8);
        assert_eq!(list(&run["sizes"]).len(), 6);
    }
    // Caches are compared where both have the size.
    let policies = list(&report["runs"][0]["curves"]).len();
    assert_eq!(list(&report["comparison"]["caches"]).len(), 5 * policies);
}

#[test]
fn names_are_data_and_never_markup() {
    let lab = Lab::new();
    // A file's name holds no slash and here some bytes that are no UTF-8.
    let script = r#"
        image="\"'&<img src=x onerror=alert(1)>\377"
        name=$(printf '<script>document.title="owned"<!--\n%b' "$image")
        seq 9999 > "$name"
        hither record -q -o cat.hither -- cat "$name" > copy
        seq 9999 | cmp - copy
    "#;
    let ran = lab.run(script);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    std::fs::rename(lab.path("cat.hither"), lab.path("trace.hither")).unwrap();
    let report = page(&lab, "trace.hither");
    let path = report["runs"][0]["stats"]["by_object"][0]["name"]
        .as_str()
        .unwrap();
    assert!(
        path.contains("<script>document.title=\"owned\"<!--\n\"'&<img"),
        "{path}"
    );
    assert!(path.ends_with('\u{fffd}'), "{path}");
    let page = std::fs::read_to_string(lab.path("page.html")).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "ours and the data");
    assert!(!page.contains("<img") && !page.contains("<!--"));
    // Nothing is loaded from anywhere, and nothing may be.
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    let ours = page.split(r#"id="data">"#).next().unwrap();
    assert!(!ours.contains("unsafe-") && !ours.contains(" src=") && !ours.contains("<link"));
}

#[test]
fn an_empty_trace_has_a_page() {
    let lab = Lab::new();
    let ran = lab.run("hither record -q -o true.hither -- true");
    assert_eq!(ran.code, 0);
    let report = page(&lab, "true.hither");
    let run = &report["runs"][0];
    assert_eq!(run["stats"]["references"], 0);
    assert_eq!(
        run["sentences"],
        json!(["Nothing to do: the program referenced no block of any file."])
    );
    assert_eq!(
        (&run["apply"], &run["picture"]["entries"]),
        (&Value::Null, &json!(0))
    );
    let report = page(&lab, "true.hither true.hither");
    assert!(
        report["comparison"]["sentences"][0]
            .as_str()
            .unwrap()
            .starts_with("B makes as many references as A")
    );
}

#[test]
fn placements_are_drawn_where_nodes_are_named() {
    let lab = Lab::new();
    let ran = lab.run(
        "hither gen -q 'parallel-grep{runs=8,files=40,size_mib=1}' --threads 4 -o grep.hither",
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let report = page(
        &lab,
        "grep.hither --nodes 4 --placement one-step,post-office",
    );
    let run = &report["runs"][0];
    let placed =
        lab.json("hither place grep.hither --nodes 4 --placement one-step,post-office --json");
    assert_eq!(run["placements"], placed["results"]);
    let drawings = run["drawings"].as_array().unwrap();
    assert_eq!(drawings.len(), 3);
    assert!(
        drawings[0]["image"]
            .as_str()
            .unwrap()
            .starts_with("data:image/svg+xml;base64,")
    );
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let lab = Lab::with_loop();
    // The trace never ends, so the interrupt comes while it is read.
    let line = "(cat loop.trace; sleep 600) | exec hither report -q - -o page.html";
    let child = lab
        .command("sh")
        .args(["-c", line])
        .process_group(0)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let killed = lab.run(&format!("kill -INT -{}", child.id()));
    assert_eq!(killed.code, 0, "{killed}");
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_eq!(lab.names(), ["loop.trace"]);
}

/// The page has been written to its hidden file, and the call that puts it on the disk takes long,
/// when the interrupt comes.
#[test]
fn an_interrupt_while_writing_leaves_the_earlier_page() {
    let lab = Lab::with_loop();
    lab.write("page.html", "an earlier page");
    let slow = "#include <unistd.h>\nint fsync(int file) { for (;;) pause(); }\n";
    lab.write("slow.c", slow);
    let built = lab.run("gcc -shared -fPIC -o slow.so slow.c");
    assert_eq!(built.code, 0, "{built}");
    let mut child = lab
        .command("hither")
        .args(["report", "-q", "loop.trace", "-o", "page.html"])
        .env("LD_PRELOAD", lab.path("slow.so"))
        .spawn()
        .unwrap();
    let hidden = lab.path(&format!(".page.html.partial-{}", child.id()));
    let is_whole = || std::fs::read(&hidden).is_ok_and(|page| page.ends_with(b"</html>\n"));
    while !is_whole() {
        assert_eq!(child.try_wait().unwrap(), None, "still writing");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(lab.run(&format!("kill -INT {}", child.id())).code, 0);
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert_eq!(
        lab.names(),
        ["loop.trace", "page.html", "slow.c", "slow.so"]
    );
    let page = std::fs::read_to_string(lab.path("page.html")).unwrap();
    assert!(page == "an earlier page", "{} bytes", page.len());
}

#[test]
fn mistakes_are_told() {
    let lab = Lab::with_loop();
    assert_snapshot!(lab.run("hither report loop.trace"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: the following required arguments were not provided:
      --output <FILE>

    Usage: hither report --output <FILE> <TRACE>...

    For more information, try '--help'.
    ");
    assert_snapshot!(lab.run("hither report no.trace -o page.html"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: no.trace: No such file or directory (os error 2)
    ");
    assert_snapshot!(lab.run("hither report loop.trace -o nowhere/page.html"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: cannot write nowhere/page.html: nowhere: No such file or directory (os error 2)
    ");
    assert_snapshot!(lab.run("hither report loop.trace -o loop.trace"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: loop.trace: is the trace itself
    ");
    assert_snapshot!(lab.run("hither report loop.trace -p pcc -o page.html"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: policy `pcc` needs call sites, which this trace does not have; `hither record` makes
      ... traces that have them, and `ubm` does without
    ");
    assert_eq!(lab.names(), ["loop.trace"]);
}
