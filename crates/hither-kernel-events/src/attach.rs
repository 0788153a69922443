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
    /// Of the programs that follow processes.
    links: Vec<FdLink>,
    /// The programs that report pages, and their links: none in a pause.
    page_programs: Vec<&'static Program>,
    page_links: Vec<FdLink>,
    /// By what each kind is seen, of those that are.
    pub(crate) sources: Vec<(Kind, Source)>,
    /// The kinds that were asked for and are not seen, and why.
    pub(crate) unseen: Vec<(Kind, Error)>,
}

impl Attached {
    /// Attaches the programs that follow processes.
    pub(crate) fn processes(&mut self, programs: &mut Ebpf, btf: &Btf) -> Result<(), Error> {
        for program in PROCESS_PROGRAMS {
            load(programs, program, btf)?;
            self.links.push(attach(programs, program)?);
        }
        Ok(())
    }

    /// Detaches the programs that report pages, or attaches them again.
    pub(crate) fn pause(&mut self, programs: &mut Ebpf, paused: bool) -> Result<(), Error> {
        if paused {
            self.page_links.clear();
        } else if self.page_links.is_empty() {
            let programs = self.page_programs.iter().map(|of| attach(programs, of));
            self.page_links = programs.collect::<Result<_, Error>>()?;
        }
        Ok(())
    }

    /// Detaches all of them.
    pub(crate) fn close(&mut self) {
        self.links.clear();
        self.page_links.clear();
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
                    Ok(attached) => {
                        found = Some((way.source, attached));
                        break;
                    }
                    Err(error) => errors.push(error),
                }
            }
            match found {
                Some((source, attached)) => {
                    for (program, link) in attached {
                        self.page_programs.push(program);
                        self.page_links.push(link);
                    }
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

/// The programs of a way, with their links.
type Links = Vec<(&'static Program, FdLink)>;

fn attach_all(programs: &mut Ebpf, way: &'static Way, btf: &Btf) -> Result<Links, Error> {
    let mut links = Vec::new();
    for program in way.programs {
        let attached = load(programs, program, btf).and_then(|()| attach(programs, program));
        match attached {
            Ok(link) => links.push((program, link)),
            Err(Error::NoHook(_)) if program.is_optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}

fn find<'a>(
    programs: &'a mut Ebpf,
    program: &Program,
) -> Result<&'a mut aya::programs::Program, Error> {
    let found = programs.program_mut(program.name);
    found.ok_or(Error::Missing(program.name))
}

fn load(programs: &mut Ebpf, program: &Program, btf: &Btf) -> Result<(), Error> {
    let found = find(programs, program)?;
    let loaded: Result<(), ProgramError> = (|| match program.hook {
        Hook::Tracepoint(name) => <&mut BtfTracePoint>::try_from(found)?.load(name, btf),
        Hook::Entry(name) => <&mut FEntry>::try_from(found)?.load(name, btf),
        Hook::Exit(name) => <&mut FExit>::try_from(found)?.load(name, btf),
    })();
    loaded.map_err(refused(program.hook))
}

fn attach(programs: &mut Ebpf, program: &Program) -> Result<FdLink, Error> {
    let found = find(programs, program)?;
    let attached: Result<FdLink, ProgramError> = (|| match program.hook {
        Hook::Tracepoint(_) => {
            let found: &mut BtfTracePoint = found.try_into()?;
            let link = found.attach()?;
            found.take_link(link).map(FdLink::from)
        }
        Hook::Entry(_) => {
            let found: &mut FEntry = found.try_into()?;
            let link = found.attach()?;
            found.take_link(link).map(FdLink::from)
        }
        Hook::Exit(_) => {
            let found: &mut FExit = found.try_into()?;
            let link = found.attach()?;
            found.take_link(link).map(FdLink::from)
        }
    })();
    attached.map_err(refused(program.hook))
}

fn refused(hook: Hook) -> impl Fn(ProgramError) -> Error {
    move |source| match source {
        ProgramError::Btf(BtfError::UnknownBtfTypeName { .. }) => Error::NoHook(hook),
        source => Error::Program { hook, source },
    }
}
