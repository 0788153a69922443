//! `hither policies`.

use insta::assert_snapshot;

use crate::{Lab, keys};

#[test]
fn a_policy_is_described_with_its_parameters_and_source() {
    assert_snapshot!(Lab::new().run("hither policies opt pcc"), @"
    exit code: 0
    ----- stdout -----
    opt: knows the future: evicts the block that is needed last, the bound for all others
        source: Belady, IBM Systems Journal 5(2), 1966
        takes: objects of every size
        needs: the future

    pcc: partitions the cache by access pattern, detected for each call site
        source: Gniady, Butt and Hu, OSDI 2004
        needs: call sites
        threshold=100  the accesses to new blocks after which a call site is sequential (a whole
      ... number of at least 1)
        sample=20  of so many accesses of a call site, the block of one is watched for its return (a
      ... whole number from 1 to 1048576)
        entries=65536  the most blocks watched at a time (a whole number from 1 to 1073741824)
        sites=4096  the most call sites remembered at a time (a whole number from 1 to 1073741824)
        counters=weighted  what a site's counters count under sampling: accesses, of which a sampled
      ... one that returns stands for many; samples alone; or as figure 4 of the paper says for no
      ... sampling (one of weighted, samples, literal)
        expire=2  a loop that has not returned for so many of its periods has ended; 0: never (as in
      ... the papers) (a number from 0 to 1000000)
        steady=1  1: as soon as a steady stream is found to loop, its sequential blocks are looping
      ... ones; 0: each at its next reference (as in the papers) (a whole number from 0 to 1)
        periods=power  how loops are compared: by the power of two of their periods, or exactly (as
      ... in the papers) (one of power, exact)
        period_of=stream  the period of a looping block: its stream's present one, or the block's,
      ... which is that of its last reference (as figure 4 of the PCC paper returns it) (one of
      ... stream, block)
        gain=segments  the value of other blocks: from hits in segments of an LRU stack, or from
      ... Belady's lifetime function, fitted through such hits (as in the papers) (one of segments,
      ... fitted)
        sequential=keep  sequential blocks while the cache has free slots: keep, or discard after
      ... use (the letter of the PCC paper, section 5.1) (one of keep, discard)
        mapped=classified  the mapping of a file, where it counts as a reference: classified as all
      ... are, or an other one (as in the PCC paper's kernel, section 5.4, which does not see who
      ... makes them) (one of classified, other)
        other=lru  the policy for blocks that are neither sequential nor looping (one of [PLAIN
      ... POLICIES])
        as=hither  paper: every departure from the paper that is a parameter is taken back, but for
      ... parameters that are given beside it (one of hither, paper)

    ----- stderr -----
    ");
}

#[test]
fn without_names_all_are_listed_in_order() {
    let lab = Lab::new();
    let document = lab.json("hither policies --json");
    assert_eq!(keys(&document), ["placements", "policies"]);
    let names = |of: &str, expected: &[&str], known: &[&str]| -> Vec<String> {
        let entries = document[of].as_array().unwrap();
        assert!(entries.iter().all(|entry| keys(entry) == expected));
        let names = entries
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned());
        let names: Vec<String> = names.collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(
            known.iter().all(|name| names.contains(&(*name).to_owned())),
            "{names:?}"
        );
        names
    };
    let expected = [
        "name",
        "needs",
        "params",
        "source",
        "summary",
        "takes_sizes",
    ];
    let policies = names("policies", &expected, &["arc", "lru", "opt", "pcc"]);
    let expected = ["name", "needs", "params", "places", "source", "summary"];
    let placements = names(
        "placements",
        &expected,
        &["first-touch", "post-office", "upm"],
    );

    let listed = |line: &str| -> Vec<String> {
        let text = lab.run(line);
        let heads = text.stdout().lines().filter(|line| !line.starts_with(' '));
        let names = heads.filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(listed("hither policies --placements"), placements);
    assert_eq!(listed("hither policies"), [policies, placements].concat());
}

#[test]
fn a_placement_says_what_it_places() {
    assert_snapshot!(Lab::new().run("hither policies first-touch a-priori"), @"
    exit code: 0
    ----- stdout -----
    first-touch: on the first node that touches it, for good
        source: Linux and IRIX default; Marchetti et al., IPPS 1995
        places: pages of memory

    a-priori: the static placement of least latency over all accesses; contention not counted
        source: cache-aware thesis, section 3.1.1; a bound on latency without contention
        places: pages of memory
        needs: who will use what

    ----- stderr -----
    ");
}

#[test]
fn one_document_for_programs() {
    assert_snapshot!(Lab::new().run("hither policies ubm --json"), @r#"
    exit code: 0
    ----- stdout -----
    {
      "placements": [],
      "policies": [
        {
          "name": "ubm",
          "needs": [
            "files"
          ],
          "params": [
            {
              "allowed": "a whole number from 1 to 1073741824",
              "default": "3",
              "doc": "the consecutive blocks of a file after which it is sequential",
              "name": "threshold"
            },
            {
              "allowed": "a number from 0 to 1000000",
              "default": "2",
              "doc": "a loop that has not returned for so many of its periods has ended; 0: never
      ... (as in the papers)",
              "name": "expire"
            },
            {
              "allowed": "a whole number from 0 to 1",
              "default": "1",
              "doc": "1: as soon as a steady stream is found to loop, its sequential blocks are
      ... looping ones; 0: each at its next reference (as in the papers)",
              "name": "steady"
            },
            {
              "allowed": "one of power, exact",
              "default": "power",
              "doc": "how loops are compared: by the power of two of their periods, or exactly (as
      ... in the papers)",
              "name": "periods"
            },
            {
              "allowed": "one of stream, block",
              "default": "stream",
              "doc": "the period of a looping block: its stream's present one, or the block's, which
      ... is that of its last reference (as figure 4 of the PCC paper returns it)",
              "name": "period_of"
            },
            {
              "allowed": "one of segments, fitted",
              "default": "segments",
              "doc": "the value of other blocks: from hits in segments of an LRU stack, or from
      ... Belady's lifetime function, fitted through such hits (as in the papers)",
              "name": "gain"
            },
            {
              "allowed": "one of keep, discard",
              "default": "keep",
              "doc": "sequential blocks while the cache has free slots: keep, or discard after use
      ... (the letter of the PCC paper, section 5.1)",
              "name": "sequential"
            },
            {
              "allowed": "one of classified, other",
              "default": "classified",
              "doc": "the mapping of a file, where it counts as a reference: classified as all are,
      ... or an other one (as in the PCC paper's kernel, section 5.4, which does not see who makes
      ... them)",
              "name": "mapped"
            },
            {
              "allowed": "one of [PLAIN POLICIES]",
              "default": "lru",
              "doc": "the policy for blocks that are neither sequential nor looping",
              "name": "other"
            },
            {
              "allowed": "one of hither, paper",
              "default": "hither",
              "doc": "paper: every departure from the paper that is a parameter is taken back, but
      ... for parameters that are given beside it",
              "name": "as"
            }
          ],
          "source": "Kim et al., OSDI 2000",
          "summary": "partitions the cache by access pattern, detected for each file",
          "takes_sizes": false
        }
      ]
    }

    ----- stderr -----
    "#);
}

#[test]
fn a_policy_that_is_not_there() {
    assert_snapshot!(Lab::new().run("hither policies lru pc"), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    hither: unknown policy `pc` (did you mean `pcc`?); the policies are [POLICIES]
    ");
    let ran = Lab::new().run("hither policies lru first-tuch");
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr
            .contains("unknown placement `first-tuch` (did you mean `first-touch`?)")
    );
}
