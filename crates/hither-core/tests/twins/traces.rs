//! Random traces: interleaved programs that scan, loop, hop about or favour some blocks, from
//! several sites, threads, files and processes.

use hither_core::{Access, Block, NEVER, Object, Op, Process, Site, Thread};

/// SplitMix64: small, seedable, the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// One program: where its blocks start, how many there are, and how it walks over them.
struct Program {
    kind: u64,
    first: u32,
    blocks: u32,
    at: u32,
    site: Site,
    object: Object,
    thread: Thread,
    process: Process,
}

impl Program {
    fn step(&mut self, random: &mut Random) -> Access {
        let blocks = u64::from(self.blocks);
        match self.kind {
            // A loop, now and then broken off.
            0 | 1 => {
                self.at = if random.below(60) == 0 {
                    0
                } else {
                    (self.at + 1) % self.blocks
                }
            }
            // A walk that never comes back, until its blocks are used up.
            2 => self.at = (self.at + 1) % (self.blocks * 8),
            // Uniform.
            3 => self.at = random.below(blocks) as u32,
            // Low blocks are favoured.
            _ => self.at = (random.below(blocks) * random.below(blocks) / blocks) as u32,
        }
        Access {
            object: self.object,
            index: self.at,
            site: self.site,
            thread: self.thread,
            process: self.process,
            op: [Op::Read, Op::Map][usize::from(random.below(8) == 0)],
            ..Access::bare(0, Block(self.first + self.at))
        }
    }
}

pub(crate) fn mixture(random: &mut Random) -> Vec<Access> {
    let mut programs: Vec<Program> = (0..1 + random.below(4))
        .map(|number| {
            let id = number as u32;
            Program {
                kind: random.below(5),
                // Some programs share blocks.
                first: random.below(3) as u32 * 25,
                blocks: 1 + random.below(50) as u32,
                at: 0,
                site: Site(random.below(5) as u32),
                object: Object(id / 2),
                thread: Thread(random.below(3) as u32),
                process: Process(id % 2),
            }
        })
        .collect();
    let burst = 1 + random.below(20);
    let mut current = 0;
    let mut trace: Vec<Access> = (0..40 + random.below(300))
        .map(|_| {
            if random.below(burst) == 0 {
                current = random.below(programs.len() as u64) as usize;
            }
            programs[current].step(random)
        })
        .collect();
    let mut upcoming = vec![NEVER; 1024];
    for (tick, access) in trace.iter_mut().enumerate().rev() {
        access.tick = tick as u64;
        access.next = std::mem::replace(&mut upcoming[access.block.index()], access.tick);
    }
    trace
}
