//! What LHD knows of its objects: for each class and age, how many were hit and how many evicted,
//! and the hit density that follows.

/// How many classes there are, by the ages of the last two hits.
pub(super) const CLASSES: usize = 16;
/// How much of the counts is left at each reconfiguration.
pub(super) const DECAY: f32 = 0.9;
/// Fewer events than these are none.
const EVENTS_MIN: f32 = 1e-5;
/// Before the first reconfiguration the density of a class is this and its number, by age. The
/// authors' one application has the second sixteen of their classes.
const FIRST_CLASS: usize = 17;

/// The counts of a class, by age.
#[derive(Clone, Debug)]
struct AgeCounts {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    /// Empty before the first reconfiguration.
    densities: Vec<f32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Model {
    ages: usize,
    classes: Vec<AgeCounts>,
}

impl Model {
    /// With so many `ages`, at least two.
    pub(super) fn new(ages: usize) -> Self {
        let class = AgeCounts {
            hits: vec![0.0; ages],
            evictions: vec![0.0; ages],
            densities: Vec::new(),
        };
        Model {
            ages,
            classes: vec![class; CLASSES],
        }
    }

    /// The class for a sum of the last two ages at a hit: roughly by its logarithm, the smallest
    /// sums highest.
    pub(super) fn class(&self, mut age: usize) -> usize {
        let mut class = 0;
        if age == 0 {
            return CLASSES - 1;
        }
        while age < self.ages && class < CLASSES - 1 {
            age <<= 1;
            class += 1;
        }
        class
    }

    pub(super) fn hit(&mut self, class: usize, age: usize) {
        self.classes[class].hits[age] += 1.0;
    }

    pub(super) fn evicted(&mut self, class: usize, age: usize) {
        self.classes[class].evictions[age] += 1.0;
    }

    pub(super) fn density(&self, class: usize, age: usize) -> f32 {
        match self.classes[class].densities.get(age) {
            Some(&density) => density,
            None => (class + FIRST_CLASS) as f32 / (age + 1) as f32,
        }
    }

    pub(super) fn decay(&mut self) {
        for class in &mut self.classes {
            let counts = class.hits.iter_mut().chain(&mut class.evictions);
            counts.for_each(|count| *count *= DECAY);
        }
    }

    /// Ages become coarser by so many powers of two, or finer if that is negative.
    pub(super) fn coarsen(&mut self, powers: i32) {
        let classes = self.classes.iter_mut();
        for counts in classes.flat_map(|class| [&mut class.hits, &mut class.evictions]) {
            if powers < 0 {
                stretch(counts, powers.unsigned_abs());
            } else if powers > 0 {
                compress(counts, powers.unsigned_abs());
            }
        }
    }

    /// The hits that are expected from an age on, divided by the time that the object is expected
    /// to stay: both are sums over later ages.
    pub(super) fn update_densities(&mut self) {
        let last = self.ages - 1;
        for class in &mut self.classes {
            class.densities.resize(self.ages, 0.0);
            let mut hits = class.hits[last];
            let mut events = hits + class.evictions[last];
            let mut lifetime = events;
            for age in (0..last).rev() {
                hits += class.hits[age];
                events += class.hits[age] + class.evictions[age];
                lifetime += events;
                class.densities[age] = if events > EVENTS_MIN {
                    hits / lifetime
                } else {
                    0.0
                };
            }
        }
    }
}

fn stretch(counts: &mut [f32], powers: u32) {
    let last = counts.len() - 1;
    let beyond: f32 = counts[counts.len() >> powers..last].iter().sum();
    counts[last] += beyond;
    for age in (0..last).rev() {
        counts[age] = counts[age >> powers] / (1u32 << powers) as f32;
    }
}

fn compress(counts: &mut [f32], powers: u32) {
    let last = counts.len() - 1;
    let left = counts.len() >> powers;
    for age in 0..left {
        counts[age] = counts[age << powers..(age + 1) << powers].iter().sum();
    }
    counts[left.min(last)..last].fill(0.0);
}
