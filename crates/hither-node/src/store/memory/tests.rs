//! The store against a plain map, with every policy that a node can run.

use hither_core::Random;
use hither_core::registry::replacement_policies;

use super::*;
use crate::key::FileKey;

const BLOCK_BYTES: u32 = 4096;

fn key(file: u64, index: u32) -> BlockKey {
    BlockKey {
        file: FileKey(u128::from(file)),
        index,
    }
}

/// What a block holds: nothing that another block, or this one at another place, has.
fn contents(key: &BlockKey, bytes: usize) -> Vec<u8> {
    let seed = key.file.0 as u64 * 1000 + u64::from(key.index);
    (0..bytes as u64)
        .map(|at| (seed * 31 + at * 7) as u8)
        .collect()
}

fn store(blocks: u64, policy: &str) -> MemoryStore {
    let bytes = blocks * u64::from(BLOCK_BYTES);
    MemoryStore::new(bytes, BLOCK_BYTES, &policy.parse().unwrap()).unwrap()
}

fn insert(store: &MemoryStore, key: BlockKey, bytes: usize) -> Option<(Bytes, Evicted)> {
    insert_as(store, key, bytes, false)
}

fn insert_as(
    store: &MemoryStore,
    key: BlockKey,
    bytes: usize,
    moved: bool,
) -> Option<(Bytes, Evicted)> {
    let mut filling = store.fill(key, bytes, false)?;
    let data = contents(&key, bytes);
    let (first, second) = data.split_at(bytes / 3);
    assert!(filling.write(first).is_empty());
    assert!(filling.write(second).is_empty());
    let mut evicted = Vec::new();
    let kept = store.insert(filling, moved, &mut evicted);
    assert_eq!(kept, data);
    Some((kept, evicted))
}

#[test]
fn what_has_moved_here_outlives_newcomers() {
    let store = store(64, "s3-fifo");
    let whole = BLOCK_BYTES as usize;
    for index in 0..8 {
        drop(insert_as(&store, key(0, index), whole, true));
        drop(insert(&store, key(1, index), whole));
    }
    for index in 0..200 {
        drop(insert(&store, key(2, index), whole));
    }
    let kept = |file| {
        (0..8)
            .filter(|&index| store.contains(&key(file, index)))
            .count()
    };
    assert_eq!(kept(0), 8);
    assert!(kept(1) < 8);
    store.check();
}

#[test]
fn every_policy_keeps_the_right_bytes() {
    let seen = |needs: hither_core::entry::Needs| !(needs.future || needs.sites || needs.processes);
    for entry in replacement_policies()
        .iter()
        .filter(|entry| seen(entry.needs))
    {
        let store = store(600, entry.name);
        let mut random = Random::new(7);
        let mut held = Vec::new();
        for step in 0..5_000 {
            let key = key(random.below(3), random.below(800) as u32);
            // A block's length follows from its key, as a file's does.
            let bytes = match key.index % 4 {
                0 => 100 + key.index as usize,
                _ => BLOCK_BYTES as usize,
            };
            match random.below(20) {
                0 => drop(store.remove(&key)),
                1 if step % 3 == 0 => held.clear(),
                _ => match store.get(&key) {
                    Some(data) => assert_eq!(data, contents(&key, bytes), "{}", entry.name),
                    None => {
                        let Some((data, evicted)) = insert(&store, key, bytes) else {
                            assert!(!held.is_empty(), "{}: frames are lost", entry.name);
                            held.clear();
                            continue;
                        };
                        for (key, data) in &evicted {
                            assert_eq!(*data, contents(key, data.len()));
                            assert!(!store.contains(key));
                        }
                        // Readers hold some of them on.
                        if random.below(8) == 0 {
                            held.push((key, data));
                        }
                        if held.len() > 60 {
                            held.swap_remove(random.below(60) as usize);
                        }
                    }
                },
            }
            for (key, data) in held.iter().rev().take(2) {
                assert_eq!(*data, contents(key, data.len()), "{}", entry.name);
            }
            if step % 500 == 0 {
                store.check();
            }
        }
        held.clear();
        store.check();
        for key in store.keys() {
            store.remove(&key);
        }
        let usage = store.usage();
        assert_eq!((usage.blocks, usage.bytes), (0, 0));
        assert_eq!(usage.frames_free, 600, "{}: frames are lost", entry.name);
    }
}

/// Files 0 and 1 are held now and then while all is read and written; what they had then is here
/// until they are released.
#[test]
fn with_every_policy_what_is_held_survives_any_load() {
    let seen = |needs: hither_core::entry::Needs| !(needs.future || needs.sites || needs.processes);
    for entry in replacement_policies()
        .iter()
        .filter(|entry| seen(entry.needs))
    {
        let store = store(600, entry.name);
        let mut random = Random::new(11);
        let mut held = [0; 3];
        let mut kept = std::collections::BTreeSet::new();
        let mut evicted = Vec::new();
        for step in 0..20_000 {
            let file = random.below(3);
            let key = key(file, random.below(if file == 2 { 900 } else { 150 }) as u32);
            let bytes = match key.index % 4 {
                0 => 100 + key.index as usize,
                _ => BLOCK_BYTES as usize,
            };
            let at = file as usize;
            match random.below(400) {
                0 if at < 2 => {
                    store.hold(key.file, 150, &mut evicted);
                    held[at] += 1;
                    let here = (0..150).map(|index| self::key(file, index));
                    kept.extend(here.filter(|key| store.contains(key)));
                }
                1 if held[at] > 0 => {
                    store.release(key.file, 150, &mut evicted);
                    held[at] -= 1;
                    if held[at] == 0 {
                        kept.retain(|kept: &BlockKey| kept.file != key.file);
                    }
                }
                2..10 => {
                    store.remove(&key);
                    kept.remove(&key);
                }
                _ if store
                    .get(&key)
                    .is_some_and(|data| data != contents(&key, bytes)) =>
                {
                    panic!("{}: wrong bytes", entry.name)
                }
                _ if store.contains(&key) => {}
                _ => {
                    evicted.extend(insert(&store, key, bytes).expect("a frame").1);
                    if held[at] > 0 {
                        kept.insert(key);
                    }
                }
            }
            for (key, data) in evicted.drain(..) {
                assert_eq!(data, contents(&key, data.len()));
                assert!(!kept.contains(&key), "{}: {key:?} was held", entry.name);
            }
            if step % 500 == 0 {
                store.check();
                assert!(kept.iter().all(|key| store.contains(key)), "{}", entry.name);
                let bytes = kept.iter().map(|key| store.peek(key).unwrap().len() as u64);
                assert_eq!(store.usage().held_bytes, bytes.sum::<u64>());
            }
        }
        for file in 0..2 {
            for _ in 0..held[file as usize] {
                store.release(FileKey(file), 150, &mut evicted);
            }
        }
        evicted.clear();
        store.check();
        assert_eq!(store.usage().held_bytes, 0);
        // All frames are the policy's again.
        let fill = (0..4000).map(|index| insert(&store, key(7, index), BLOCK_BYTES as usize));
        fill.for_each(|inserted| drop(inserted.expect("a frame")));
        store.check();
        for key in store.keys() {
            store.remove(&key);
        }
        assert_eq!(store.usage().frames_free, 600, "{}", entry.name);
    }
}

#[test]
fn no_more_is_held_than_leaves_the_policy_some() {
    let store = store(64, "lru");
    let whole = BLOCK_BYTES as usize;
    let (one, other) = (FileKey(1), FileKey(2));
    store.hold(one, 1000, &mut Vec::new());
    for index in 0..1000 {
        insert(&store, key(1, index), whole).unwrap();
        store.check();
    }
    // Of 56 frames, 53 are held: a sixteenth is not.
    let held_bytes = store.usage().held_bytes;
    assert_eq!(held_bytes, 53 * whole as u64);
    assert!((0..53).all(|index| store.contains(&key(1, index))));
    assert_eq!(store.usage().frames_free, 8);
    store.hold(other, 10, &mut Vec::new());
    insert(&store, key(2, 0), whole).unwrap();
    insert(&store, key(2, 1), 100).unwrap();
    assert_eq!(store.usage().held_bytes, held_bytes);
    store.remove(&key(1, 7));
    store.hold(other, 10, &mut Vec::new());
    assert_eq!(store.usage().held_bytes, held_bytes);
    for _ in 0..2 {
        store.release(other, 10, &mut Vec::new());
    }
    store.release(one, 1000, &mut Vec::new());
    assert_eq!(store.usage().held_bytes, 0);
    for index in 0..500 {
        insert(&store, key(3, index), whole).unwrap();
    }
    store.check();
    assert!(
        store
            .keys()
            .iter()
            .filter(|key| key.file == FileKey(3))
            .count()
            > 40
    );
}

#[test]
fn small_blocks_share_frames() {
    let store = store(64, "lru");
    for index in 0..200 {
        insert(&store, key(1, index), 512).unwrap();
    }
    let usage = store.usage();
    assert_eq!((usage.blocks, usage.bytes), (200, 200 * 512));
    assert_eq!(usage.frames_free, 64 - 25);
}

#[test]
fn without_a_frame_nothing_is_filled_and_prefetches_stop_before() {
    let store = store(64, "lru");
    let fill = |index, prefetch| store.fill(key(1, index), BLOCK_BYTES as usize, prefetch);
    let prefetches: Vec<_> = (0..64).map_while(|index| fill(index, true)).collect();
    assert_eq!(prefetches.len(), 60);
    let others: Vec<_> = (60..100).map_while(|index| fill(index, false)).collect();
    assert_eq!(others.len(), 4);
    drop(prefetches);
    assert!(fill(0, false).is_some());
}

#[test]
fn resident_blocks_leave_room_for_those_that_arrive() {
    let store = store(64, "lru");
    for index in 0..1000 {
        let (_, evicted) = insert(&store, key(1, index), BLOCK_BYTES as usize).unwrap();
        assert_eq!(evicted.len(), usize::from(index >= 56));
    }
    assert_eq!(store.usage().frames_free, 8);
}

#[test]
fn policies_that_need_what_a_node_does_not_see_are_refused() {
    for (policy, needs) in [
        ("opt", "the future"),
        ("pcc", "call sites"),
        ("dear", "processes"),
    ] {
        let error = MemoryStore::new(1 << 20, BLOCK_BYTES, &policy.parse().unwrap());
        let error = error.err().expect("refused").to_string();
        assert!(error.contains(policy) && error.contains(needs), "{error}");
    }
    let error = MemoryStore::new(8192, BLOCK_BYTES, &"lru".parse().unwrap());
    assert!(
        error
            .err()
            .expect("refused")
            .to_string()
            .contains("too small")
    );
}
