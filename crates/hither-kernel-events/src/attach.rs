//! Loads programs and attaches them, each kind of event by the best source that works.

use aya::programs::links::FdLink;
use aya::programs::{BtfTracePoint, FEntry, FExit, ProgramError};
use aya::{Btf, BtfError, Ebpf};

use crate::error::Error;
use crate::event::Kind;
use crate::options::Options;
use crate::source::{Hook, PROCESS_PROGRAMS, Program, Source, Way};

/// What is attached: until the links are dropped.
#[derive(Default)]
pub(crate) struct Attached {
    pub(crate) links: Vec<FdLink>,
    /// By what each kind is seen, of those that are.
    pub(crate) sources: Vec<(Kind, Source)>,
    /// The kinds that were asked for and are not seen, and why.
    pub(crate) unseen: Vec<(Kind, Error)>,
}

impl Attached {
    /// Attaches the programs that follow processes.
    pub(crate) fn processes(&mut self, programs: &mut Ebpf, btf: &Btf) -> Result<(), Error> {
        for program in PROCESS_PROGRAMS {
            self.links.push(attach(programs, program, btf)?);
        }
        Ok(())
    }

    /// Attaches the programs of each kind that is asked for. It is an error if reads are asked for
    /// and not seen, or nothing is seen.
    pub(crate) fn kinds(
        &mut self,
        programs: &mut Ebpf,
        options: &Options,
        btf: &Btf,
    ) -> Result<(), Error> {
        for kind in &options.kinds {
            let (mut found, mut errors) = (None, Vec::new());
            for way in kind.ways_by(options.source) {
                match attach_all(programs, way, btf) {
                    Ok(links) => {
                        found = Some((way.source, links));
                        break;
                    }
                    Err(error) => errors.push(error),
                }
            }
            match found {
                Some((source, links)) => {
                    self.links.extend(links);
                    self.sources.push((*kind, source));
                }
                None => self.unseen.push((*kind, Error::of_sources(errors))),
            }
        }
        let nothing = self.sources.is_empty();
        let fatal = |(kind, _): &(Kind, Error)| *kind == Kind::Read || nothing;
        match self.unseen.iter().position(fatal) {
            Some(at) => Err(self.unseen.swap_remove(at).1),
            None => Ok(()),
        }
    }
}

fn attach_all(programs: &mut Ebpf, way: &Way, btf: &Btf) -> Result<Vec<FdLink>, Error> {
    let mut links = Vec::new();
    for program in way.programs {
        match attach(programs, program, btf) {
            Ok(link) => links.push(link),
            Err(Error::NoHook(_)) if program.is_optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}

fn attach(programs: &mut Ebpf, program: &Program, btf: &Btf) -> Result<FdLink, Error> {
    let found = programs.program_mut(program.name);
    let found = found.ok_or(Error::Missing(program.name))?;
    let attached: Result<FdLink, ProgramError> = (|| match program.hook {
        Hook::Tracepoint(name) => {
            let found: &mut BtfTracePoint = found.try_into()?;
            found.load(name, btf)?;
            let link = found.attach()?;
            found.take_link(link).map(FdLink::from)
        }
        Hook::Entry(name) => {
            let found: &mut FEntry = found.try_into()?;
            found.load(name, btf)?;
            let link = found.attach()?;
            found.take_link(link).map(FdLink::from)
        }
        Hook::Exit(name) => {
            let found: &mut FExit = found.try_into()?;
            found.load(name, btf)?;
            let link = found.attach()?;
            found.take_link(link).map(FdLink::from)
        }
    })();
    let hook = program.hook;
    attached.map_err(|source| match source {
        ProgramError::Btf(BtfError::UnknownBtfTypeName { .. }) => Error::NoHook(hook),
        source => Error::Program { hook, source },
    })
}
