//! `hither advise`.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Lab, keys, rounds};

#[test]
fn a_loop_calls_for_another_policy() {
    let lab = Lab::new();
    lab.write("loop.trace", rounds(100, 5));
    assert_snapshot!(lab.run("hither advise -q loop.trace"), @"
    exit code: 0
    ----- stdout -----
    Whether it matters is not known: the trace does not say how much memory there was.
    Another replacement policy: in a cache of 300.00 KiB, ubm reads 1.17 MiB (60.0 % of the
      ... references) less from storage than LRU, which is much like the kernel. How many seconds
      ... that saves is not known.
    Sure: it gains in 13 of 14 parts of the trace; --explain says why.

    ----- stderr -----
    ");
    assert_snapshot!(lab.run("hither advise loop.trace --explain"), @"
    exit code: 0
    ----- stdout -----
    500 references to 100 distinct blocks (400.00 KiB) of 1 file.
    Cheapest: another replacement policy. In the same cache of 300.00 KiB, ubm serves 60.0 % of the
      ... references where LRU, much like the kernel, serves 0.0 %: 60.0 of the 60.0 points that the
      ... optimum gains.
    That is 300 fewer blocks (1.17 MiB) from storage.
    Of the 5 simulated sizes, 300.00 KiB is the one at which ubm gains most; --size names others.
    LRU does as well only where nearly all 400.00 KiB of the data fit.
    Sure: it gains in 13 of the 14 segments of the trace in which the cache is full, and 44.1 to
      ... 75.9 points overall, at 95 % confidence.

      hit ratio  5% (20.00 KiB)  10% (40.00 KiB)  25% (100.00 KiB)  50% (200.00 KiB)  75% (300.00
      ... KiB)
      lru                 0.0 %            0.0 %             0.0 %             0.0 %             0.0
      ... %
      arc                 0.0 %            0.0 %             0.0 %             0.0 %             0.0
      ... %
      dear                0.0 %            0.0 %             0.0 %             0.0 %             0.0
      ... %
      ubm                 4.0 %            8.0 %            20.0 %            40.0 %            60.0
      ... %
      opt                 4.0 %            8.0 %            20.0 %            40.0 %            60.0
      ... %

    ----- stderr -----
    hither: pcc is left out: this trace has no call sites
    ");
}

#[test]
fn blocks_used_once_call_for_nothing() {
    let lab = Lab::new();
    lab.write("scan.trace", rounds(100, 1));
    assert_snapshot!(lab.run("hither advise -q scan.trace -s 10"), @"
    exit code: 0
    ----- stdout -----
    Whether it matters is not known: the trace does not say how much memory there was.
    Nothing to do: 100.0 % of the references are first uses, which no cache can serve.
    Sure: the best change serves at most 0.0 % more of the references; --explain says why.

    ----- stderr -----
    ");
}

#[test]
fn a_trace_of_nothing_gets_an_answer_too() {
    let lab = Lab::new();
    lab.write("empty.trace", "\n");
    assert_snapshot!(lab.run("hither advise -q --format lirs empty.trace"), @"
    exit code: 0
    ----- stdout -----
    Whether it matters is not known: nothing was seen that it reads.
    Nothing to do: the program referenced no block of any file.

    ----- stderr -----
    ");
}

#[test]
fn one_document_for_programs() {
    let lab = Lab::with_recording();
    let document = lab.json("hither advise cat.hither --json -s 50%");
    assert_eq!(keys(&document), ["advice", "results", "sites", "trace"]);
    assert_eq!(
        keys(&document["advice"]),
        [
            "alternatives",
            "cache_blocks",
            "change",
            "confidence",
            "expected",
            "from_blocks",
            "gain",
            "gain_max",
            "obstacle",
            "policy",
            "sentences",
            "variants"
        ]
    );
    let sure = &document["advice"]["confidence"];
    assert_eq!(
        keys(sure),
        [
            "doubts", "gaining", "gains", "interval", "level", "losing", "score", "warm_up"
        ]
    );
    assert_eq!(sure["gains"].as_array().unwrap().len(), 16);
    let said = document["advice"]["sentences"].to_string();
    assert!(said.contains(": it gains in "), "{said}");
    assert_eq!(document["advice"]["change"], "policy");
    let policies: Vec<_> = document["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["policy"].as_str().unwrap())
        .collect();
    assert_eq!(policies, ["lru", "arc", "dear", "ubm", "pcc", "opt"]);
    let site = &document["sites"][0];
    assert_eq!(site["class"], "looping");
    assert_eq!(site["distinct_blocks"], 400);
    assert!(site["module"].as_str().unwrap().contains("cat"), "{site}");
}

#[test]
fn a_program_is_recorded_and_advised_on_in_one_go() {
    let lab = Lab::new();
    lab.write("data", crate::text(crate::DATA_LINES));
    let ran =
        lab.run("hither advise --explain -s 75% -- sh -c 'cat data data data >/dev/null; exit 4'");
    assert_eq!(ran.code, 4, "{ran}");
    let text = ran.stdout();
    assert!(
        text.contains("Cheapest: another replacement policy."),
        "{text}"
    );
    assert!(text.contains("loops make "), "{text}");
    for row in ["hit ratio", "lru", "pcc", "opt", "share"] {
        assert!(
            text.lines().any(|line| line.trim_start().starts_with(row)),
            "no {row} in {text}"
        );
    }
    assert!(ran.stderr.starts_with("hither: "), "{}", ran.stderr);
    assert_eq!(
        lab.names(),
        ["data"],
        "the trace is not kept unless asked for"
    );

    assert_eq!(text.matches("Seen: ").count(), 1, "{text}");
    assert!(!ran.stderr.contains("seen: "), "{ran}");

    // What fits into a cache that is too small to be steered calls for nothing, unless that cache
    // is asked about.
    let fits = lab.run("hither advise -q --explain -- sh -c 'cat data data data >/dev/null'");
    for said in [
        "\nNothing to do: a cache of 1.5",
        " would gain ",
        "steers caches of 8.00 MiB and more.\nSure: ",
    ] {
        assert!(fits.stdout().contains(said), "{fits}");
    }

    // In short, it is three lines after the program's output, and one that says how to apply it.
    let brief = lab.run("hither advise -s 75% -- sh -c 'cat data data >/dev/null; printf last'");
    let lines: Vec<&str> = brief.stdout().lines().collect();
    assert!(
        matches!(lines[..], ["last", matters, to_do, sure]
            if matters.starts_with("It does not matter here as things are: ")
                && to_do.starts_with("Another replacement policy: ")
                && sure.ends_with("; --explain says why.")),
        "{brief}"
    );
    assert_eq!(brief.stderr, "", "{brief}");

    let kept = lab.run("hither advise -q -o kept.hither --json -- cat data >/dev/null");
    assert_eq!(kept.code, 0, "{kept}");
    assert_eq!(lab.names(), ["data", "kept.hither"]);
    assert_eq!(
        lab.json("hither stat kept.hither --json")["bytes"]["in_kernel"],
        0
    );
}

/// Twelve passes over 16 MiB: what is advised is saved, and run.
#[test]
fn what_is_advised_can_be_applied() {
    let lab = Lab::new();
    lab.write("loop.trace", rounds(4096, 12));
    lab.run("hither advise -q loop.trace -s 12MiB --save plan.toml");
    assert_snapshot!(lab.run("cat plan.toml"), @r#"
    exit code: 0
    ----- stdout -----
    # Cheapest: another replacement policy. In the same cache of 12.00 MiB, dear serves 68.8 % of
      ... the references where LRU, much like the kernel, serves 0.0 %: 68.8 of the 68.8 points that
      ... the optimum gains.
    # That is 33,792 fewer blocks (132.00 MiB) from storage.
    # LRU does as well only where nearly all 16.00 MiB of the data fit.
    # Sure: it gains in all 15 segments of the trace in which the cache is full, and 61.6 to 75.9
      ... points overall, at 95 % confidence.
    # hither run --plan plan.toml -- CMD applies:
    page-cache = "dear"
    cache = "12288KiB"

    ----- stderr -----
    "#);
    assert_eq!(
        lab.run("hither run -q --plan plan.toml --force -- echo ran")
            .stdout(),
        "ran\n"
    );
    let dry = lab.run("hither run -q --plan plan.toml --dry-run -- echo ran");
    assert_eq!(dry.stdout(), "ran\n", "{dry}");
    let named = lab.run("hither run -q --plan plan.toml --cache 16MiB -- echo ran");
    assert_eq!(named.stdout(), "ran\n", "{named}");
    // No machine that runs these tests has as little memory.
    let refused = lab.run("hither run --plan plan.toml -- echo ran");
    assert_eq!((refused.code, refused.stdout()), (2, ""), "{refused}");
    let why = "hither: plan.toml: its cache of 12.00 MiB is less than half of the ";
    assert!(refused.stderr.starts_with(why), "{refused}");
    lab.write("scan.trace", rounds(100, 1));
    assert_snapshot!(lab.run("hither advise -q scan.trace -s 10 --save none.toml"), @"
    exit code: 0
    ----- stdout -----
    Whether it matters is not known: the trace does not say how much memory there was.
    Nothing to do: 100.0 % of the references are first uses, which no cache can serve.
    Sure: the best change serves at most 0.0 % more of the references; --explain says why.

    ----- stderr -----
    ");
    assert_snapshot!(lab.run("hither run --plan none.toml -- echo as it is"), @"
    exit code: 0
    ----- stdout -----
    as it is

    ----- stderr -----
    hither: none.toml: nothing to apply; the program runs unchanged
    ");
    assert_snapshot!(lab.run("hither run --plan none.toml --cache 1GiB -- true"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: none.toml: nothing to apply; the program runs unchanged
    hither: none.toml: --cache is an option of --page-cache, which is off
    ");
    lab.write("odd.toml", "page-cache = 'pcc'\nspeed = 9\n");
    assert_snapshot!(lab.run("hither run --plan odd.toml -- true"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: odd.toml: TOML parse error at line 2, column 1
        |
      2 | speed = 9
        | ^^^^^
      unknown field `speed`, expected one of `page-cache`, `cache`, `replicas`, `file-placement`,
      ... `memory`
    ");
}

/// A loop over 24 MiB, which every machine's memory holds.
#[test]
fn where_the_files_fit_a_plan_leaves_the_program_as_it_is() {
    let lab = Lab::new();
    lab.write("data", vec![7; 24 << 20]);
    let program = "sh -c 'for i in 1 2 3 4; do cat data; done > /dev/null'";
    let ran = lab.run(&format!(
        "hither advise -o t.hither --save plan.toml -- {program}"
    ));
    let advice = ran.stdout();
    assert!(
        advice.contains("It does not matter here as things are: "),
        "{ran}"
    );
    assert!(
        advice.contains("\nNothing here is for `hither run` to apply: "),
        "{ran}"
    );
    let note = "plan.toml: nothing that could be applied; the plan leaves the program as it is";
    assert!(ran.stderr.contains(note), "{ran}");
    let saved = lab.run("cat plan.toml");
    let plan = saved.stdout();
    assert!(plan.lines().all(|line| line.starts_with('#')), "{plan}");
    assert!(
        plan.contains("Nothing here is for `hither run` to apply: "),
        "{plan}"
    );
    // Nor does the page show a command or a badge.
    let page = lab.json("hither report -q t.hither -o page.html --json");
    assert_eq!(page["runs"][0]["apply"], serde_json::Value::Null);
    assert!(page["runs"][0]["advice"]["obstacle"].is_string());
    assert!(!advice.contains("Apply it"), "{ran}");
    assert!(advice.contains("\nSure: seen was all "), "{ran}");
    // Of a size that the user names, only they know whether memory is as short.
    let ran = lab.run("hither advise -q t.hither --size 12MiB --save named.toml");
    let apply = "\nApply it where memory is as short: hither run --page-cache=";
    assert!(ran.stdout().contains(apply), "{ran}");
    let saved = lab.run("cat named.toml");
    let named = saved.stdout();
    assert!(named.contains("\ncache = \"12288KiB\"\n"), "{named}");
}

/// Traces of which it is known what helps.
#[test]
fn what_helps_is_found_and_how_sure_is_said() {
    let lab = Lab::new();
    for (name, generator) in [
        ("loop", "'loop{blocks=1000}' -n 20000"),
        ("zipf", "'zipf{blocks=10000}' -n 100000"),
        ("scan", "scan -n 20000"),
    ] {
        let made = lab.run(&format!("hither gen -q {generator} -o {name}"));
        assert_eq!((made.code, made.stderr.as_str()), (0, ""));
    }
    // A loop that does not fit, between others that do: all of the gain is in a part of the trace.
    let fits = rounds(300, 70);
    lab.write(
        "phase",
        [&fits, &rounds(900, 14), &fits]
            .map(String::as_str)
            .concat(),
    );
    for (trace, change, level) in [
        ("loop -s 600", "policy", "sure"),
        ("zipf -s 5%,25%", "size", "sure"),
        ("scan -s 500", "nothing", "sure"),
        ("phase -s 600", "policy", "unsure"),
    ] {
        let advice = &lab.json(&format!("hither advise -q {trace} --json"))["advice"];
        assert_eq!(advice["change"], change, "{trace}: {advice}");
        assert_eq!(advice["confidence"]["level"], level, "{trace}: {advice}");
    }
    // All of it is on the page as it is here.
    let advice = &lab.json("hither advise -q phase -s 600 --json")["advice"];
    let report = lab.json("hither report -q phase -s 600 --json");
    assert_eq!(&report["runs"][0]["advice"], advice);
}

/// Of a loop of 12 MiB, read eight times where 10 MiB are left, the kernel alone reads all of it
/// each time. A run keeps what its budget holds, once it steers. The passes have pauses, as a run
/// steers nothing within milliseconds.
#[test]
fn what_a_run_would_read_is_said_where_the_memory_is_known() {
    const MIB: u64 = 1 << 20;
    let lab = Lab::new();
    lab.write("large", vec![0; 12 << 20]);
    let scan = "for i in 1 2 3 4 5 6 7 8; do cat large > /dev/null; sleep 0.2; done";
    lab.write("scan.sh", scan);
    lab.run("hither record -q -o t.hither -- sh scan.sh");
    let path = lab.path("t.hither/meta.json");
    let meta: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let expected = |left: Value| -> (Value, String) {
        let mut meta = meta.clone();
        meta["seen"]["memory_limit_bytes"] = json!(16 * MIB);
        meta["seen"]["memory_left_bytes"] = left;
        meta["memory_left"] = json!([]);
        // The file was cached, so what was read says nothing.
        meta["seen"]["storage_bytes"] = json!(0);
        meta["seen"]["readahead_bytes"] = json!(128 << 10);
        std::fs::write(&path, meta.to_string()).unwrap();
        let ran = lab.run("hither advise --json t.hither");
        let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
        (
            told["advice"]["expected"].clone(),
            told["advice"]["sentences"].to_string(),
        )
    };
    let (run, said) = expected(json!(10 * MIB));
    let of = |field: &str| run[field].as_u64().unwrap_or_else(|| panic!("{run}"));
    // Beside the loop, `cat` reads its own libraries.
    let little = 4 * MIB;
    let budget = 10 * MIB - 10 * MIB / 8;
    assert_eq!(of("budget_bytes"), budget);
    let forecast = |name: &str| {
        run[name]["bytes"]
            .as_u64()
            .unwrap_or_else(|| panic!("{run}"))
    };
    let alone = forecast("alone");
    assert!((96 * MIB..96 * MIB + little).contains(&alone), "{run}");
    let best = 12 * MIB + 7 * (12 * MIB - budget);
    let read = forecast("run");
    assert!((best..alone - 8 * MIB).contains(&read), "{run}");
    assert!(said.contains("`hither run` would have read"), "{said}");
    let ran = lab.run("hither advise t.hither");
    let lines: Vec<&str> = ran.stdout().lines().collect();
    assert_eq!(lines.len(), 4, "{ran}");
    let starts = [
        "It matters here: 12.",
        "`hither run` would have read ",
        "",
        "Apply it: hither run --page-cache=",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{ran}");
    }
    let ends = " -- sh scan.sh";
    assert!(lines[3].ends_with(ends), "{ran}");
    let (fits, said) = expected(json!(13 * MIB));
    assert_eq!(fits, Value::Null, "{said}");
}
