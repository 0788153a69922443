//! Memberships in a real etcd: joining, leaving, dying, and an etcd that goes away.

#[path = "etcd/server.rs"]
mod server;

use std::time::Duration;

use hither_net::membership::etcd::{EtcdConfig, EtcdError, Joined, join};
use hither_net::membership::{Standing, State};
use hither_net::tls::{Authority, ServiceFiles};
use hither_net::view::Member;
use server::Etcd;

/// How long anything may take. It is only waited for if the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(100);

fn config(endpoints: &[String], name: &str) -> EtcdConfig {
    EtcdConfig {
        endpoints: endpoints.to_vec(),
        tls: None,
        user: None,
        cluster: "test".to_owned(),
        me: Member {
            name: name.to_owned(),
            address: format!("{name}.example.com:7000"),
        },
        ttl: Duration::from_secs(2),
    }
}

async fn join_as(etcd: &Etcd, name: &str) -> Joined {
    join(config(&[etcd.endpoint()], name)).await.unwrap()
}

fn names(state: &State) -> Vec<&str> {
    state
        .view
        .members()
        .iter()
        .map(|member| &*member.name)
        .collect()
}

/// Waits until the state fulfils the condition, and returns it.
async fn until(joined: &Joined, what: &str, condition: impl Fn(&State) -> bool) -> State {
    let mut membership = joined.membership();
    let waited =
        tokio::time::timeout(PATIENCE, membership.wait_for(|state| condition(state))).await;
    match waited {
        Ok(state) => state.unwrap().clone(),
        Err(_) => panic!("{what}: {:?}", joined.membership().borrow()),
    }
}

async fn until_members(joined: &Joined, expected: &[&str]) -> State {
    let what = format!("the members are {expected:?}");
    until(joined, &what, |state| names(state) == expected).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go() {
    let Some(etcd) = Etcd::start() else { return };
    let a = join_as(&etcd, "a").await;
    assert_eq!(names(&a.membership().borrow()), ["a"]);
    let b = join_as(&etcd, "b").await;
    let c = join_as(&etcd, "c").await;
    let mut epochs = Vec::new();
    for joined in [&a, &b, &c] {
        let state = until_members(joined, &["a", "b", "c"]).await;
        assert_eq!(
            (&state.standing, state.source_reachable),
            (&Standing::Member, true)
        );
        epochs.push(state.view.epoch());
    }
    assert!(epochs.iter().all(|&epoch| epoch == epochs[0]), "{epochs:?}");

    // One leaves: at once, by giving its lease back.
    c.leave().await;
    let after = until_members(&a, &["a", "b"]).await.view;
    assert!(after.epoch() > epochs[0]);
    assert_eq!(until_members(&b, &["a", "b"]).await.view, after);

    // One dies: its lease ends.
    drop(b);
    let last = until_members(&a, &["a"]).await.view;
    assert!(last.epoch() > after.epoch());

    // A change elsewhere in etcd is none of the membership.
    etcd.put("/other", "value");
    let d = join_as(&etcd, "d").await;
    let seen = until_members(&a, &["a", "d"]).await.view;
    assert_eq!(seen, until_members(&d, &["a", "d"]).await.view);
}

/// Whatever stands in etcd beside them, members find each other, before and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_key_is_skipped() {
    let Some(etcd) = Etcd::start() else { return };
    let put = |name: &str, value: &str| etcd.put(&format!("/hither/test/members/{name}"), value);
    let member = |address: &str| format!(r#"{{"address":"{address}","instance":"1"}}"#);
    put("early", "no JSON");
    put("Not A Name", &member("c:7000"));
    let a = join_as(&etcd, "a").await;
    assert_eq!(names(&a.membership().borrow()), ["a"]);
    put("late", &member("an address without a port"));
    put("list", "[1, 2]");
    put("a/b", &member("c:7000"));
    put("", &member("c:7000"));
    // One with more fields than this version knows is a member.
    let more = r#"{"address":"c:7000","instance":"1","zone":"west"}"#;
    put("more", more);
    let b = join_as(&etcd, "b").await;
    for joined in [&a, &b] {
        until_members(joined, &["a", "b", "more"]).await;
    }
    // A member whose key is overwritten by nonsense is none any more.
    put("more", "gone");
    let state = until_members(&a, &["a", "b"]).await;
    assert_eq!(state, until_members(&b, &["a", "b"]).await);
    b.leave().await;
    until_members(&a, &["a"]).await;

    // Who is called like such a key is told which one to delete.
    let error = join(config(&[etcd.endpoint()], "early")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "etcd: the key /hither/test/members/early is there already and holds no member: delete it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_held_by_one_node() {
    let Some(etcd) = Etcd::start() else { return };
    let first = join_as(&etcd, "a").await;
    let mut second = config(&[etcd.endpoint()], "a");
    second.me.address = "elsewhere:7000".to_owned();
    let error = join(second.clone()).await.unwrap_err();
    assert!(matches!(error, EtcdError::NameTaken { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "another node called \"a\" is running, at a.example.com:7000"
    );
    assert_eq!(first.membership().borrow().standing, Standing::Member);

    // The node dies and is started again: it gets its name back when the lease has ended.
    drop(first);
    let again = join(second).await.unwrap();
    assert_eq!(
        again.membership().borrow().view.members()[0].address,
        "elsewhere:7000"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_lease_is_isolated_and_joins_again() {
    let Some(etcd) = Etcd::start() else { return };
    let a = join_as(&etcd, "a").await;
    let b = join_as(&etcd, "b").await;
    let before = until_members(&a, &["a", "b"]).await.view;
    until_members(&b, &["a", "b"]).await;
    let mut seen = a.membership();
    seen.mark_unchanged();
    etcd.revoke_lease_of("a");
    let mut isolated = false;
    let again = async {
        loop {
            seen.changed().await.unwrap();
            let state = seen.borrow_and_update().clone();
            match state.standing {
                Standing::Isolated(_) => isolated = true,
                Standing::Member if isolated => return state,
                Standing::Member => {}
            }
        }
    };
    let state = tokio::time::timeout(PATIENCE, again)
        .await
        .expect("it joins again");
    assert!(state.view.epoch() > before.epoch());
    let both = until(&b, "b sees it again", |state| {
        names(state) == ["a", "b"] && state.view.epoch() > before.epoch()
    });
    assert_eq!(both.await.view, until_members(&a, &["a", "b"]).await.view);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_etcd_the_members_stay() {
    let Some(mut etcd) = Etcd::start() else {
        return;
    };
    let a = join_as(&etcd, "a").await;
    let b = join_as(&etcd, "b").await;
    let before = until_members(&a, &["a", "b"]).await.view;
    etcd.stop();
    for joined in [&a, &b] {
        let state = until(joined, "etcd is missed", |state| !state.source_reachable).await;
        assert_eq!(names(&state), ["a", "b"]);
        assert_eq!(state.standing, Standing::Member);
    }
    // For longer than the leases.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(a.membership().borrow().view, before);
    assert_eq!(a.membership().borrow().standing, Standing::Member);
    etcd.restart();
    for joined in [&a, &b] {
        until(joined, "etcd is back", |state| {
            state.source_reachable
                && state.standing == Standing::Member
                && names(state) == ["a", "b"]
        })
        .await;
    }
    let c = join_as(&etcd, "c").await;
    let views = [&a, &b, &c].map(|joined| until_members(joined, &["a", "b", "c"]));
    let [a, b, c] = views;
    let (a, b, c) = tokio::join!(a, b, c);
    assert_eq!(
        (a.view.epoch(), b.view.epoch()),
        (c.view.epoch(), c.view.epoch())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_endpoint_that_answers_is_enough() {
    let Some(etcd) = Etcd::start() else { return };
    let dead = format!("http://127.0.0.1:{}", server::free_port());
    let a = join(config(&[dead.clone(), etcd.endpoint()], "a"))
        .await
        .unwrap();
    let b = join_as(&etcd, "b").await;
    until_members(&a, &["a", "b"]).await;
    a.leave().await;
    until_members(&b, &["b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_log_in() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.require_users("root", "secret");
    let error = join(config(&[etcd.endpoint()], "a"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("etcd: "), "{error}");
    let with_password = |password: &str| {
        let mut config = config(&[etcd.endpoint()], "a");
        config.user = Some(("root".to_owned(), password.to_owned()));
        join(config)
    };
    let error = with_password("wrong").await.unwrap_err().to_string();
    assert!(error.contains("invalid user ID or password"), "{error}");
    with_password("secret").await.unwrap().leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_and_node_show_each_other_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::create(folder.path(), "test").unwrap();
    let issue = |name: &str| {
        authority
            .issue(name, folder.path(), Authority::NODE_VALIDITY)
            .unwrap()
    };
    let Some(etcd) = Etcd::start_with_tls(issue("localhost")) else {
        return;
    };
    let own = issue("a");
    let with = |identity| {
        let mut config = config(&[etcd.endpoint()], "a");
        config.tls = Some(ServiceFiles {
            authority: own.authority.clone(),
            identity,
        });
        join(config)
    };
    let identity = Some((own.certificate.clone(), own.key.clone()));
    let joined = async {
        loop {
            // It listens before it answers.
            match with(identity.clone()).await {
                Err(EtcdError::Unreachable(_)) => tokio::time::sleep(RETRY).await,
                other => return other.unwrap(),
            }
        }
    };
    let joined = tokio::time::timeout(PATIENCE, joined)
        .await
        .expect("etcd answers");
    assert_eq!(names(&joined.membership().borrow()), ["a"]);
    joined.leave().await;
    // The connection may be gone before its alert is read; then the next attempt says it.
    let refused = async {
        while !with(None).await.unwrap_err().to_string().contains("alert") {
            tokio::time::sleep(RETRY).await;
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused);
    refused.await.expect("etcd says why it refuses");
}

#[tokio::test]
async fn what_cannot_work_is_said_at_once() {
    let error = async |endpoints: &[&str]| {
        let endpoints: Vec<String> = endpoints.iter().map(|&at| at.to_owned()).collect();
        join(config(&endpoints, "a")).await.unwrap_err().to_string()
    };
    assert_eq!(error(&[]).await, "no endpoint of etcd is given");
    let form = "etcd's endpoint \"etcd-1\": it is not of the form http://HOST:PORT";
    assert_eq!(error(&["etcd-1"]).await, form);
    let https = error(&["https://127.0.0.1:1"]).await;
    assert!(
        https.ends_with("the certificate of its authority is needed"),
        "{https}"
    );
    let dead = format!("http://127.0.0.1:{}", server::free_port());
    let unreachable = error(&[&dead]).await;
    assert_eq!(
        unreachable,
        format!("etcd cannot be reached: {dead}: Connection refused (os error 111)")
    );
    let named = join(config(&["http://127.0.0.1:1".to_owned()], "No Name"))
        .await
        .unwrap_err();
    assert!(
        named.to_string().contains("cannot be a member's name"),
        "{named}"
    );
}
