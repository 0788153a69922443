//! What can be observed on this machine, by which sources, and what is in the way.

use std::fmt::{self, Display, Formatter};

use crate::error::Error;
use crate::event::Kind;
use crate::observer::Observer;
use crate::obstacle::Obstacle;
use crate::options::{Options, Scope};
use crate::source::Source;

/// What can be observed on this machine. Its text has one line for each finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is in the way of everything.
    pub obstacles: Vec<Obstacle>,
    /// Each kind of event about pages by each source that there is for it, the best first. Empty
    /// if there are obstacles.
    pub findings: Vec<Finding>,
}

/// Whether a source of a kind of events works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// The source.
    pub source: Source,
    /// Why it does not work. None if it does.
    pub obstacle: Option<Obstacle>,
}

impl Display for Finding {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Finding { kind, source, .. } = self;
        match &self.obstacle {
            None => write!(to, "{kind:?}: by {source}"),
            Some(obstacle) => write!(to, "{kind:?}: not by {source}: {obstacle}"),
        }
    }
}

impl Display for Probe {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        for obstacle in &self.obstacles {
            writeln!(to, "{obstacle}")?;
        }
        for finding in &self.findings {
            writeln!(to, "{finding}")?;
        }
        Ok(())
    }
}

impl Probe {
    /// Finds out, by loading and attaching each program for a moment. It observes nobody.
    pub fn run() -> Probe {
        let obstacles: Vec<Obstacle> = Obstacle::all().collect();
        let mut findings = Vec::new();
        if obstacles.is_empty() {
            let of = |kind: Kind| kind.sources().map(move |source| Finding::of(kind, source));
            findings = Kind::all().flat_map(of).collect();
        }
        Probe {
            obstacles,
            findings,
        }
    }

    /// Whether reads can be observed.
    pub fn is_possible(&self) -> bool {
        self.source(Kind::Read).is_some()
    }

    /// By what a kind is observed if nothing else is asked for. None if it cannot be observed.
    pub fn source(&self, kind: Kind) -> Option<Source> {
        self.sources(kind).next()
    }

    /// The sources of a kind that work, the best first.
    pub fn sources(&self, kind: Kind) -> impl Iterator<Item = Source> {
        let of_kind = self.findings.iter().filter(move |found| found.kind == kind);
        of_kind
            .filter(|found| found.obstacle.is_none())
            .map(|found| found.source)
    }
}

impl Finding {
    /// Finds out about one source.
    fn of(kind: Kind, source: Source) -> Finding {
        let options = Options {
            scope: Scope::Processes(Vec::new()),
            kinds: vec![kind],
            source: Some(source),
            ring_bytes: 1 << 12,
            ..Options::default()
        };
        let obstacle = match Observer::new(&options) {
            Ok(_) => None,
            Err(Error::NoHook(hook)) => Some(Obstacle::NoHook(hook)),
            Err(error) => Some(Obstacle::Refused(error.with_causes())),
        };
        Finding {
            kind,
            source,
            obstacle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Hook;

    #[test]
    fn each_finding_is_a_line() {
        let finding = |kind, source, obstacle| Finding {
            kind,
            source,
            obstacle,
        };
        let missing = |name| Some(Obstacle::NoHook(Hook::Tracepoint(name)));
        let probe = Probe {
            obstacles: Vec::new(),
            findings: vec![
                finding(Kind::Read, Source::Tracepoint, None),
                finding(Kind::Read, Source::SystemCalls, None),
                finding(Kind::Fault, Source::Tracepoint, missing("mm_filemap_fault")),
            ],
        };
        assert!(probe.is_possible());
        assert_eq!(probe.source(Kind::Read), Some(Source::Tracepoint));
        assert_eq!(probe.source(Kind::Fault), None);
        assert_eq!(
            probe.to_string(),
            "Read: by tracepoints\n\
             Read: by system calls\n\
             Fault: not by tracepoints: the kernel has no tracepoint mm_filemap_fault\n"
        );
    }
}
