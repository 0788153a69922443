//! `hither --version`, and of which commit it says that a build is.

use crate::Lab;

#[path = "../../commit.rs"]
mod commit;

#[test]
fn the_version_says_which_build_it_is() {
    let ran = Lab::new().run("hither --version");
    assert_eq!((ran.code, &ran.stderr[..]), (0, ""));
    let start = concat!("hither ", env!("CARGO_PKG_VERSION"), " (");
    assert!(ran.stdout().starts_with(start), "{ran}");
    assert!(ran.stdout().ends_with(")\n"), "{ran}");
}

#[test]
fn a_checkout_names_its_commit_and_a_tarball_none() {
    let lab = Lab::new();
    let made = lab.run(
        "mkdir checkout && cd checkout && git init -q && mkdir unpacked && echo 1 > file && \
         git add file && GIT_COMMITTER_DATE='2026-02-03T23:30:00-0100' \
         git -c user.name=A -c user.email=a@b commit -qm 1 && git rev-parse HEAD",
    );
    assert_eq!((made.code, &made.stderr[..]), (0, ""));
    let hash = &made.stdout()[..12];
    let checkout = lab.path("checkout");
    assert_eq!(
        commit::describe(&checkout, None),
        format!("{hash} 2026-02-03")
    );
    assert_eq!(
        commit::describe(&checkout, Some("0")),
        format!("{hash} 2026-02-03")
    );
    assert!(commit::changes_with_commits(&checkout).is_some());

    // In a folder of a checkout, but none of it.
    let unpacked = checkout.join("unpacked");
    assert_eq!(commit::describe(&unpacked, None), "built without git");
    assert!(commit::changes_with_commits(&unpacked).is_none());
    for (epoch, date) in [
        ("0", "1970-01-01"),
        ("951782400", "2000-02-29"),
        ("1796083199", "2026-11-30"),
        ("1798761600", "2027-01-01"),
    ] {
        let expected = format!("built without git, sources of {date}");
        assert_eq!(commit::describe(&unpacked, Some(epoch)), expected);
    }
    let unknown = commit::describe(&unpacked, Some("yesterday"));
    assert_eq!(unknown, "built without git");
}
