//! `hither policies`.

use insta::assert_snapshot;

use crate::{Lab, keys};

#[test]
fn a_policy_is_described_with_its_parameters_and_source() {
    assert_snapshot!(Lab::new().run("hither policies opt pcc"), @"
    exit code: 0
    ----- stdout -----
    opt: knows the future: gives up the block that is needed last, the bound for all others
        source: Belady, IBM Systems Journal 5(2), 1966
        needs: the future

    pcc: parts the cache by access pattern, told apart by call site
        source: Gniady, Butt and Hu, OSDI 2004
        needs: call sites
        threshold=100  accesses to new blocks from which a call site is sequential (a whole number of at least 1)
        sample=20  every so many accesses of a call site, the block is watched for coming back (a whole number from 1 to 1048576)
        entries=65536  the most blocks watched at a time (a whole number from 1 to 1073741824)
        sites=4096  the most call sites known at a time (a whole number from 1 to 1073741824)
        expire=2  a loop that has not come back for so many of its periods is over; 0: never (as in the papers) (a number from 0 to 1000000)
        other=lru  the policy for blocks that are neither sequential nor looping (one of [PLAIN POLICIES])

    ----- stderr -----
    ");
}

#[test]
fn without_names_all_are_listed_in_order() {
    let lab = Lab::new();
    let document = lab.json("hither policies --json");
    assert_eq!(keys(&document), ["policies"]);
    let policies = document["policies"].as_array().unwrap();
    for policy in policies {
        assert_eq!(
            keys(policy),
            ["name", "needs", "params", "source", "summary"]
        );
    }
    let names: Vec<&str> = policies
        .iter()
        .map(|policy| policy["name"].as_str().unwrap())
        .collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(
        ["arc", "lru", "opt", "pcc"]
            .iter()
            .all(|name| names.contains(name))
    );

    let text = lab.run("hither policies");
    let listed: Vec<&str> = text
        .stdout()
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(listed, names);
}

#[test]
fn one_document_for_programs() {
    assert_snapshot!(Lab::new().run("hither policies ubm --json"), @r#"
    exit code: 0
    ----- stdout -----
    {
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
              "doc": "consecutive blocks of a file from which it is sequential",
              "name": "threshold"
            },
            {
              "allowed": "a number from 0 to 1000000",
              "default": "2",
              "doc": "a loop that has not come back for so many of its periods is over; 0: never (as in the papers)",
              "name": "expire"
            },
            {
              "allowed": "one of [PLAIN POLICIES]",
              "default": "lru",
              "doc": "the policy for blocks that are neither sequential nor looping",
              "name": "other"
            }
          ],
          "source": "Kim et al., OSDI 2000",
          "summary": "parts the cache by access pattern, told apart by file"
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
}
