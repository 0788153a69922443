//! Records come back as they were written, and what is none is refused.

use super::*;
use hither_ids::{Address, FileKey, Pid};
use hither_kernel::file_id::FileId;

fn samples() -> Vec<Record<'static>> {
    vec![
        Record::Access {
            op: Op::Write,
            flags: IN_KERNEL,
            cpu: 511,
            time_ns: 1,
            signature: u64::MAX,
            object: FileKey(3),
            offset: 4,
            length: 5,
        },
        Record::Object {
            object: FileKey(1),
            id: FileId {
                device: 2,
                inode: 3,
                birth_ns: 4,
            },
            size: 5,
            asked_pages: Some(0),
            path: b"/a/path",
        },
        Record::Site {
            signature: 9,
            truncated: true,
            frames: &[1, 2, 3, 4],
        },
        Record::Module {
            module: 7,
            build_id: &[1, 2, 3],
            path: b"/lib/x.so",
        },
        Record::Module {
            module: 7,
            build_id: &[],
            path: b"",
        },
        Record::Process {
            pid: Pid(1 << 21),
            parent: Pid(1),
            image: u32::MAX,
            forked: true,
            time_ns: 8,
            exe: b"/bin/sh",
            args: b"sh\0-c\0",
        },
        Record::Exec {
            pid: Pid(5),
            time_ns: 6,
            path: b"/bin/true",
            hidden: true,
        },
        Record::ExecFailed { pid: Pid(5) },
        Record::IoUring,
        Record::Direct {
            object: FileKey(u64::MAX),
        },
        Record::Cached {
            object: FileKey(u64::MAX),
            offset: 1 << 40,
            length: 4096,
        },
        Record::Region {
            start: Address(u64::MAX),
            length: 1 << 40,
            signature: 3,
            time_ns: 4,
            cpu: u16::MAX,
            kind: RegionKind::Map,
        },
        Record::RegionEnd {
            start: Address(1),
            length: 2,
            time_ns: 3,
        },
        Record::Bound {
            start: Address(1),
            length: 2,
            bind: Bind {
                mode: BindMode::Interleave,
                nodes: u64::MAX,
            },
            error: 4095,
            site: true,
            time_ns: u64::MAX,
        },
        Record::Construct {
            kind: ConstructKind::Barrier,
            signature: u64::MAX,
            time_ns: 1,
            cpu: u16::MAX,
            threads: 64,
        },
        Record::At {
            cpu: u16::MAX,
            time_ns: 1,
        },
    ]
}

#[test]
fn every_record_comes_back() {
    let mut buffer = [0; WORDS_MAX];
    for record in samples() {
        let words = record.encode(&mut buffer);
        assert_eq!(words_of(buffer[0]), words);
        assert_eq!(Record::decode(&buffer), Some(record));
        assert_eq!(Record::decode(&buffer[..words - 1]), None, "a cut record");
    }
}

#[test]
fn records_of_fixed_length_fit_into_the_small_buffer() {
    for record in samples() {
        let fixed = matches!(
            record,
            Record::Region { .. }
                | Record::RegionEnd { .. }
                | Record::Bound { .. }
                | Record::Construct { .. }
                | Record::At { .. }
        );
        if fixed {
            let mut buffer = [0; ACCESS_WORDS];
            record.encode(&mut buffer);
            assert_eq!(Record::decode(&buffer), Some(record));
        }
    }
}

#[test]
fn kinds_and_modes_that_are_none_are_refused() {
    let mut buffer = [0; ACCESS_WORDS];
    for record in samples() {
        let (Record::Region { .. } | Record::Bound { .. } | Record::Construct { .. }) = record
        else {
            continue;
        };
        record.encode(&mut buffer);
        buffer[0] |= 0xff << 24;
        assert_eq!(Record::decode(&buffer), None);
    }
}

#[test]
fn long_strings_are_cut_and_still_decode() {
    let long = vec![b'x'; 10_000];
    let mut buffer = [0; WORDS_MAX];
    let words = Record::Process {
        pid: Pid(1),
        parent: Pid(1),
        image: 1,
        forked: false,
        time_ns: 1,
        exe: &long,
        args: &long,
    }
    .encode(&mut buffer);
    assert!(words <= WORDS_MAX);
    let Some(Record::Process { exe, args, .. }) = Record::decode(&buffer) else {
        panic!("not decoded")
    };
    assert_eq!((exe.len(), args.len()), (3072, 1024));
    Record::Object {
        object: FileKey(1),
        id: FileId {
            device: 1,
            inode: 1,
            birth_ns: 1,
        },
        size: 1,
        asked_pages: None,
        path: &long,
    }
    .encode(&mut buffer);
    let Some(Record::Object { path, .. }) = Record::decode(&buffer) else {
        panic!("not decoded")
    };
    assert_eq!(path.len(), 4096);
}

#[test]
fn garbage_is_refused_without_a_panic() {
    // A seeded xorshift: every start of a valid record with a flipped word, and plain noise.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut buffer = [0; WORDS_MAX];
    let mut refused = 0;
    for round in 0..20_000 {
        let record = samples()[round % samples().len()];
        let words = record.encode(&mut buffer);
        buffer[random() as usize % words] = random();
        refused += usize::from(Record::decode(&buffer[..words]).is_none());
    }
    assert!(refused > 1000, "flipped words go unnoticed: {refused}");
    assert_eq!(Record::decode(&[]), None);
}
