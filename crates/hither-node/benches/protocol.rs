//! What the protocol of a node costs: whole cycles, from a reader that wants a chunk to the
//! reader that has it, for chunks that nobody holds and for chunks that another node holds.
//!
//! Two members, so that half of the chunks have their home elsewhere; all messages are passed on at
//! once. `cargo test --benches` runs each case once.
#![allow(missing_docs)]

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hither_node::key::{ChunkKey, FileKey};
use hither_node::protocol::{
    Blocks, FetchResult, Input, MemberId, Output, Protocol, Settings, Time, Token, Urgency, View,
};

const MEMBERS: [MemberId; 2] = [MemberId(1), MemberId(2)];

/// Protocols and what is on its way to them.
struct Cluster {
    protocols: [Protocol; 2],
    inputs: VecDeque<(usize, Input)>,
    out: Vec<Output>,
    now: Time,
    ready: u64,
}

impl Cluster {
    fn new() -> Cluster {
        let protocols = MEMBERS.map(|member| Protocol::new(member, Settings::default()));
        let mut cluster = Cluster {
            protocols,
            inputs: VecDeque::new(),
            out: Vec::new(),
            now: Time(0),
            ready: 0,
        };
        for number in 0..2 {
            let view = View::new(1, MEMBERS.to_vec());
            cluster.run(number, Input::ViewChanged(view));
        }
        cluster
    }

    /// Takes an input and all that follow from it.
    fn run(&mut self, number: usize, input: Input) {
        self.inputs.push_back((number, input));
        while let Some((number, input)) = self.inputs.pop_front() {
            self.now = self.now.after(1_000);
            self.protocols[number].step(self.now, input, &mut self.out);
            for output in self.out.drain(..) {
                self.inputs.extend(match output {
                    Output::Send { to, epoch, message } => {
                        let from = MEMBERS[number];
                        let input = Input::Message {
                            from,
                            epoch,
                            message,
                        };
                        Some((to.0 as usize - 1, input))
                    }
                    Output::Fetch { blocks, .. } => {
                        let result = FetchResult::Kept;
                        Some((number, Input::FetchEnded { blocks, result }))
                    }
                    Output::Provide {
                        request, blocks, ..
                    } => {
                        let from = MEMBERS[number];
                        let input = Input::Arrived {
                            blocks,
                            from,
                            kept: false,
                            wanted: true,
                        };
                        Some((request.member.0 as usize - 1, input))
                    }
                    Output::Ready { waiters, .. } => {
                        self.ready += u64::from(waiters.mask().count_ones());
                        None
                    }
                    _ => None,
                });
            }
        }
    }

    fn want(&mut self, number: usize, chunk: u32) {
        let file = FileKey(u128::from(chunk >> 16) << 64 | 77);
        let number_in_file = chunk & 0xffff;
        let key = ChunkKey {
            file,
            number: number_in_file,
        };
        let blocks = Blocks::new(key, u64::MAX);
        let want = Input::Want {
            blocks,
            urgency: Urgency::Demand,
            file: Token::new(()),
            waiter: Some(Token::new(())),
            on_disk: 0,
        };
        self.run(number, want);
    }
}

fn cycles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("protocol");
    group.throughput(Throughput::Elements(1));
    let (mut cluster, mut chunk) = (Cluster::new(), 0_u32);
    group.bench_function("a chunk from the source, from want to ready", |bencher| {
        bencher.iter(|| {
            chunk = (chunk + 1) % (1 << 19);
            cluster.want(0, black_box(chunk));
        });
    });
    let held = if std::env::args().any(|argument| argument == "--bench") {
        100_000
    } else {
        10
    };
    let mut cluster = Cluster::new();
    for chunk in 0..held {
        cluster.want(0, chunk);
    }
    group.bench_function("a chunk from another node, from want to ready", |bencher| {
        bencher.iter(|| {
            chunk = (chunk + 7_919) % held;
            cluster.want(1, black_box(chunk));
        });
    });
    group.finish();
    black_box(cluster.ready);
}

criterion_group!(benches, cycles);
criterion_main!(benches);
