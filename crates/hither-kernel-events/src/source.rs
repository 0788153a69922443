//! By what the kernel's side sees each kind of event: for each kind some ways, the best first.

use std::fmt::{self, Display, Formatter};

use crate::event::Kind;

/// By what events of a kind are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Tracepoints. Those of reads, faults and mapped pages exist since Linux 6.12.
    Tracepoint,
    /// Functions of the kernel (fentry, fexit), in a kernel with CONFIG_FUNCTION_TRACER.
    Function,
    /// System calls that read, as they return: no mapped files, no io_uring, no 32-bit calls.
    SystemCalls,
}

impl Source {
    /// All of them, the best first.
    pub const ALL: [Source; 3] = [Source::Tracepoint, Source::Function, Source::SystemCalls];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Source::Tracepoint => "tracepoints",
            Source::Function => "functions",
            Source::SystemCalls => "system calls",
        }
    }
}

impl Display for Source {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// A tracepoint, with types (`tp_btf`).
    Tracepoint(&'static str),
    /// The begin of a function (`fentry`).
    Entry(&'static str),
    /// The end of a function (`fexit`).
    Exit(&'static str),
}

impl Display for Hook {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Hook::Tracepoint(name) => write!(to, "tracepoint {name}"),
            Hook::Entry(name) | Hook::Exit(name) => write!(to, "function {name}"),
        }
    }
}

/// A program in `bpf`, and where it is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) hook: Hook,
    /// In a kernel without this hook, the way's other programs see all.
    pub(crate) is_optional: bool,
}

impl Program {
    const fn at(name: &'static str, hook: Hook) -> Program {
        Program {
            name,
            hook,
            is_optional: false,
        }
    }

    const fn at_tracepoint(name: &'static str, tracepoint: &'static str) -> Program {
        Program::at(name, Hook::Tracepoint(tracepoint))
    }

    const fn if_there(self) -> Program {
        Program {
            is_optional: true,
            ..self
        }
    }
}

/// A way to see a kind of event: all of these programs.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) kind: Kind,
    pub(crate) source: Source,
    pub(crate) programs: &'static [Program],
}

impl Way {
    const fn tracepoint(kind: Kind, programs: &'static [Program]) -> Way {
        Way {
            kind,
            source: Source::Tracepoint,
            programs,
        }
    }

    const fn function(kind: Kind, programs: &'static [Program]) -> Way {
        Way {
            kind,
            source: Source::Function,
            programs,
        }
    }
}

/// All ways, the best of each kind first.
#[rustfmt::skip]
const WAYS: &[Way] = &[
    Way::tracepoint(Kind::Read, &[
        Program::at_tracepoint("read_pages", "mm_filemap_get_pages"),
    ]),
    Way::function(Kind::Read, &[
        Program::at("read_function", Hook::Exit("filemap_read")),
        // Since 6.5. Before, splice(2) came to the other one.
        Program::at("splice_function", Hook::Exit("filemap_splice_read")).if_there(),
    ]),
    Way {
        kind: Kind::Read,
        source: Source::SystemCalls,
        programs: &[Program::at_tracepoint("read_call", "sys_exit")],
    },
    Way::tracepoint(Kind::Fault, &[
        Program::at_tracepoint("fault_page", "mm_filemap_fault"),
    ]),
    Way::function(Kind::Fault, &[
        Program::at("fault_function", Hook::Entry("filemap_fault")),
    ]),
    Way::tracepoint(Kind::Map, &[
        Program::at_tracepoint("map_pages", "mm_filemap_map_pages"),
    ]),
    Way::function(Kind::Map, &[
        Program::at("map_function", Hook::Exit("filemap_map_pages")),
    ]),
    Way::tracepoint(Kind::Insert, &[
        Program::at_tracepoint("insert_folio", "mm_filemap_add_to_page_cache"),
    ]),
    // The same tracepoint had a page before it had a folio.
    Way::tracepoint(Kind::Insert, &[
        Program::at_tracepoint("insert_page", "mm_filemap_add_to_page_cache"),
    ]),
    Way::tracepoint(Kind::Evict, &[
        Program::at_tracepoint("evict_folio", "mm_filemap_delete_from_page_cache"),
    ]),
    Way::tracepoint(Kind::Evict, &[
        Program::at_tracepoint("evict_page", "mm_filemap_delete_from_page_cache"),
    ]),
    Way::tracepoint(Kind::Dirty, &[
        Program::at_tracepoint("dirty_folio", "writeback_dirty_folio"),
    ]),
    Way::tracepoint(Kind::Dirty, &[
        Program::at_tracepoint("dirty_page", "writeback_dirty_page"),
    ]),
];

/// The programs that follow processes.
pub(crate) const PROCESS_PROGRAMS: &[Program] = &[
    Program::at_tracepoint("follow_fork", "sched_process_fork"),
    Program::at_tracepoint("follow_exec", "sched_process_exec"),
    Program::at_tracepoint("follow_exit", "sched_process_exit"),
];

impl Kind {
    /// The sources that there are for it, the best first.
    pub fn sources(self) -> impl Iterator<Item = Source> {
        let has = move |source: &Source| self.ways().any(|way| way.source == *source);
        Source::ALL.into_iter().filter(has)
    }

    /// Whether there is a choice: of reads, faults and mapped pages.
    pub fn has_sources(self) -> bool {
        self.sources().count() > 1
    }

    /// The ways to see it, the best first.
    pub(crate) fn ways(self) -> impl Iterator<Item = &'static Way> {
        WAYS.iter().filter(move |way| way.kind == self)
    }

    /// The same, of one source where there is a choice and one is asked for.
    pub(crate) fn ways_by(self, source: Option<Source>) -> impl Iterator<Item = &'static Way> {
        let source = source.filter(|_| self.has_sources());
        self.ways()
            .filter(move |way| source.is_none_or(|source| source == way.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_source_comes_first() {
        for kind in Kind::all() {
            assert!(kind.ways().map(|way| way.source).is_sorted(), "{kind:?}");
            assert_eq!(kind.sources().next(), Some(Source::Tracepoint));
        }
        let of = |kind: Kind| kind.sources().collect::<Vec<_>>();
        assert_eq!(of(Kind::Read), Source::ALL);
        assert_eq!(of(Kind::Map), [Source::Tracepoint, Source::Function]);
        assert!(!Kind::Dirty.has_sources());
    }

    #[test]
    fn what_is_asked_for_is_the_only_way_where_there_is_a_choice() {
        let of = |kind: Kind, source| {
            let ways = kind.ways_by(source);
            ways.map(|way| way.programs[0].name).collect::<Vec<_>>()
        };
        assert_eq!(of(Kind::Read, Some(Source::SystemCalls)), ["read_call"]);
        assert!(of(Kind::Fault, Some(Source::SystemCalls)).is_empty());
        assert_eq!(of(Kind::Dirty, Some(Source::Function)).len(), 2);
        assert_eq!(of(Kind::Fault, None), ["fault_page", "fault_function"]);
    }

    #[test]
    fn each_program_is_in_the_object() {
        let ways = WAYS.iter().flat_map(|way| way.programs);
        let object = crate::observer::OBJECT;
        for program in ways.chain(PROCESS_PROGRAMS) {
            let name = format!("\0{}\0", program.name);
            let is_there = object
                .windows(name.len())
                .any(|bytes| bytes == name.as_bytes());
            assert!(is_there, "{}", program.name);
        }
    }
}
