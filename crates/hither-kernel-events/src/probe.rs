//! What can be observed on this machine, and what is in the way.

use std::fmt::{self, Display, Formatter};

use crate::error::Error;
use crate::event::Kind;
use crate::observer::Observer;
use crate::obstacle::Obstacle;
use crate::options::{Options, Scope};

/// What can be observed on this machine. Its text has one line for each finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is in the way of everything.
    pub obstacles: Vec<Obstacle>,
    /// Each kind of event about pages, and why it cannot be observed. Empty if there are obstacles.
    pub kinds: Vec<(Kind, Option<Obstacle>)>,
}

impl Display for Probe {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        for obstacle in &self.obstacles {
            writeln!(to, "{obstacle}")?;
        }
        for (kind, obstacle) in &self.kinds {
            let tracepoint = kind.tracepoint();
            match obstacle {
                None => writeln!(to, "{kind:?}: by tracepoint {tracepoint}")?,
                Some(obstacle) => writeln!(to, "{kind:?}: {obstacle}")?,
            }
        }
        Ok(())
    }
}

impl Probe {
    /// Finds out, by loading and attaching each program for a moment. It observes nobody.
    pub fn run() -> Probe {
        let obstacles: Vec<Obstacle> = Obstacle::all().collect();
        let kinds = if obstacles.is_empty() {
            Kind::all().map(|kind| (kind, obstacle_of(kind))).collect()
        } else {
            Vec::new()
        };
        Probe { obstacles, kinds }
    }

    /// Whether reads can be observed.
    pub fn is_possible(&self) -> bool {
        self.kinds.contains(&(Kind::Read, None))
    }
}

fn obstacle_of(kind: Kind) -> Option<Obstacle> {
    let options = Options {
        scope: Scope::Processes(Vec::new()),
        kinds: vec![kind],
        ring_bytes: 1 << 12,
        ..Options::default()
    };
    match Observer::new(&options) {
        Ok(_) => None,
        Err(Error::NoTracepoint(name)) => Some(Obstacle::NoTracepoint(name)),
        Err(error) => Some(Obstacle::Refused(error.with_causes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line() {
        let probe = Probe {
            obstacles: Vec::new(),
            kinds: vec![
                (Kind::Read, None),
                (
                    Kind::Fault,
                    Some(Obstacle::NoTracepoint("mm_filemap_fault")),
                ),
            ],
        };
        assert!(probe.is_possible());
        assert_eq!(
            probe.to_string(),
            "Read: by tracepoint mm_filemap_get_pages\n\
             Fault: the kernel has no tracepoint mm_filemap_fault\n"
        );
    }
}
