//! Records per second of each reader alone: the sink only counts, so this excludes numbering the
//! blocks. The last two cases number them: the same references in oracleGeneral and in a trace
//! folder. `cargo test --benches` runs each case once.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hither_core::Op;
use hither_trace::schema::{AccessRow, Meta, ObjectRow, ProcessRow, SiteRow, ThreadRow};
use hither_trace::{Input, LoadOptions, ObjectRequest, Result, Sink, Trace, format, import};

/// Adds up keys and counts requests.
#[derive(Default)]
struct Counting {
    sum: u64,
    requests: u64,
    objects: u32,
    meta: Meta,
}

impl Sink for Counting {
    fn block_bytes(&self) -> u32 {
        4096
    }

    fn key(&mut self, id: u64, _op: Op) -> Result<()> {
        self.sum = self.sum.wrapping_add(id);
        Ok(())
    }

    fn object(&mut self, request: &ObjectRequest) -> Result<()> {
        self.key(request.id, request.op)
    }

    fn request(&mut self, row: &AccessRow) -> Result<()> {
        self.requests += u64::from(row.count);
        Ok(())
    }

    fn separator(&mut self) {}

    fn left_out(&mut self) {}

    fn describe(&mut self, _: Vec<ObjectRow>, _: Vec<SiteRow>, _: Meta) {}

    fn add_object(&mut self, _: ObjectRow) -> u32 {
        self.objects += 1;
        self.objects - 1
    }

    fn add_site(&mut self, _: SiteRow) -> u32 {
        0
    }

    fn add_process(&mut self, _: ProcessRow) -> u32 {
        0
    }

    fn add_thread(&mut self, _: ThreadRow) -> u32 {
        0
    }

    fn meta(&mut self) -> &mut Meta {
        &mut self.meta
    }

    fn rows_of(&mut self, _: &Path) {}
}

const RECORDS: u64 = 200_000;

/// Generated traces in some formats, with the same number of records.
fn traces() -> Vec<(&'static str, Vec<u8>)> {
    let mut state = 1u64;
    let ids: Vec<u64> = (0..RECORDS)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 1_000_000
        })
        .collect();
    let lines = |line: &dyn Fn(u64) -> String| ids.iter().map(|&id| line(id)).collect::<String>();
    let oracle = |id: &u64| {
        let (time, size, next) = (1u32, 4096u32, -1i64);
        [
            time.to_le_bytes().as_slice(),
            &id.to_le_bytes(),
            &size.to_le_bytes(),
            &next.to_le_bytes(),
        ]
        .concat()
    };
    vec![
        ("arc", lines(&|id| format!("{id} 1 0 7\n")).into_bytes()),
        (
            "libcachesim-csv",
            format!(
                "time,object,size\n{}",
                lines(&|id| format!("1,{id},4096\n"))
            )
            .into_bytes(),
        ),
        ("lirs", lines(&|id| format!("{id}\n")).into_bytes()),
        (
            "msr",
            lines(&|id| format!("128166372003061629,usr,0,Read,{},8192,151\n", id * 512))
                .into_bytes(),
        ),
        ("oracle-general", ids.iter().flat_map(oracle).collect()),
        (
            "twitter",
            lines(&|id| format!("0,key-{id},12,100,1,get,0\n")).into_bytes(),
        ),
        (
            "u64be",
            ids.iter().flat_map(|id| id.to_be_bytes()).collect(),
        ),
    ]
}

fn readers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(RECORDS));
    group.sample_size(20);
    for (name, bytes) in traces() {
        let format = format::find(name).unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut sink = Counting::default();
                let input = Input::new(name, bytes.as_slice()).unwrap();
                format.read_whole(input, &mut sink).unwrap();
                black_box(sink.sum + sink.requests)
            });
        });
    }
    let (name, bytes) = &traces()[4];
    group.bench_function("oracle-general, blocks numbered", |bencher| {
        bencher.iter(|| {
            let input = Input::new(*name, bytes.as_slice()).unwrap();
            Trace::read(input, Some(name), &LoadOptions::default()).unwrap()
        });
    });
    let options = LoadOptions::default();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("trace.hither");
    let input = Input::new(*name, bytes.as_slice()).unwrap();
    import(input, Some(name), &options, &folder, false).unwrap();
    group.bench_function("hither, the same blocks numbered", |bencher| {
        bencher.iter(|| Trace::load(&folder, None, &options).unwrap());
    });
    group.finish();
}

criterion_group!(benches, readers);
criterion_main!(benches);
