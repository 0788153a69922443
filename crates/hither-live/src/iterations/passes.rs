//! The passes of one loop: whether their bodies repeat, one by one or in rounds.

/// How many passes are remembered.
pub(super) const WINDOW: usize = 32;

/// The most passes of a round, which is one iteration.
const ROUND_PASSES_MAX: usize = 16;

/// A loop repeats once passes with this many sites in all have matched.
const MATCHED_SITES_MIN: u32 = 8;

/// The last passes of a loop, by the hashes of their bodies.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// Pass `n` at `n % WINDOW`.
    bodies: [u64; WINDOW],
    count: u64,
    /// By pass, whether its body was known when it ended: the last one in the lowest bit.
    known: u32,
    /// By period, how many passes in a row had the body of the pass one period before.
    runs: [u32; ROUND_PASSES_MAX + 1],
    /// Sites in the last body.
    sites: u32,
}

impl Passes {
    pub(super) fn push(&mut self, body: u64, sites: u32) {
        let known = self.bodies[..self.held()].contains(&body);
        self.known = self.known << 1 | u32::from(known);
        for period in 1..=ROUND_PASSES_MAX {
            let same = self.before(period) == Some(body);
            let run = &mut self.runs[period];
            *run = if same { run.saturating_add(1) } else { 0 };
        }
        self.bodies[self.count as usize % WINDOW] = body;
        self.count += 1;
        self.sites = sites;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn held(&self) -> usize {
        self.count.min(WINDOW as u64) as usize
    }

    /// The body `back` passes ago; 1 is the last.
    fn before(&self, back: usize) -> Option<u64> {
        let at = self.count.checked_sub(back as u64)?;
        Some(self.bodies[at as usize % WINDOW])
    }

    /// Whether there are enough passes for their confidence to say something.
    pub(super) fn is_long(&self) -> bool {
        self.held() >= WINDOW / 2
    }

    /// The share of known bodies, by the rule of succession.
    pub(super) fn confidence(&self) -> f64 {
        f64::from(self.known.count_ones() + 1) / (self.held() + 2) as f64
    }

    /// How many passes make up an iteration, if they repeat: one if bodies equal their
    /// predecessors, otherwise those of the shortest round.
    pub(super) fn round(&self) -> Option<u32> {
        let run = self.runs[1];
        if run >= 1 && run.saturating_mul(self.sites) >= MATCHED_SITES_MIN {
            return Some(1);
        }
        self.longer_round()
    }

    /// The shortest round of several passes that occurred three times in a row.
    fn longer_round(&self) -> Option<u32> {
        (2..=ROUND_PASSES_MAX as u32).find(|&period| {
            let run = self.runs[period as usize];
            run >= 2 * period && run.saturating_mul(self.sites) >= MATCHED_SITES_MIN
        })
    }

    /// The length of the round from now on, which was `current`. Single passes become rounds if no
    /// body is the usual one. A round ends if it is broken while another one repeats, or if all
    /// bodies have become equal.
    pub(super) fn round_after(&self, current: u32) -> u32 {
        if current == 1 {
            return match self.usual() {
                Some(_) => 1,
                None => self.longer_round().unwrap_or(1),
            };
        }
        let broken = self.runs.get(current as usize) == Some(&0);
        match self.round() {
            Some(other) if broken || self.runs[1] >= 2 * current => other,
            _ => current,
        }
    }

    /// The body of more than half of the last passes (majority vote of Boyer and Moore, 1981).
    pub(super) fn usual(&self) -> Option<u64> {
        let last = || (1..=WINDOW / 2).map_while(|back| self.before(back));
        let (mut candidate, mut lead) = (0, 0);
        for body in last() {
            if lead == 0 {
                candidate = body;
            }
            lead += if body == candidate { 1 } else { -1_i32 };
        }
        let votes = last().filter(|&body| body == candidate).count();
        (2 * votes > last().count()).then_some(candidate)
    }
}
