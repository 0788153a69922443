//! What a trace is of, pages of memory or blocks of files, and which placements go with it.

use hither_core::placement::{self, Target};
use hither_sim::placement::PlacementSpec;
use hither_trace::Trace;
use hither_trace::schema::ObjectKind;

use crate::{Error, Result};

/// What the blocks of a trace belong to. `None`: the trace has no objects, so its blocks may be
/// either.
pub fn data_kind(trace: &Trace) -> Option<Target> {
    let mut objects = trace.objects().iter().peekable();
    objects.peek()?;
    if objects.any(|object| object.kind == ObjectKind::Memory) {
        Some(Target::Memory)
    } else {
        Some(Target::Files)
    }
}

/// The placements that are compared where the user names none, separated by commas. Blocks without
/// objects count as blocks of files.
pub fn default_placements(kind: Option<Target>) -> String {
    let compared = placement::compared(kind.unwrap_or(Target::Files)).into_iter();
    let names: Vec<&str> = compared.map(|spec| spec.entry().name).collect();
    names.join(",")
}

/// The placements that the user named, or else those of a list as from [`default_placements`].
pub fn placements_or_default(
    named: &[PlacementSpec],
    defaults: &str,
) -> Result<Vec<PlacementSpec>> {
    if named.is_empty() {
        PlacementSpec::parse_list(defaults).map_err(|error| Error::Usage(error.to_string()))
    } else {
        Ok(named.to_vec())
    }
}

/// Fails where a placement is for another kind of data than the trace has.
pub fn check_kind(trace: &Trace, placements: &[PlacementSpec]) -> Result<()> {
    let mut found = data_kind(trace);
    for spec in placements {
        let entry = spec.entry();
        // Blocks without objects may be either, but not both: a table compares one kind.
        if *found.get_or_insert(entry.target()) == entry.target() {
            continue;
        }
        let words = |target| match target {
            Target::Memory => "pages of memory",
            Target::Files => "blocks of files",
        };
        let others = placement::placement_policies()
            .iter()
            .filter(|other| other.target() != entry.target());
        let others: Vec<&str> = others.map(|other| other.name).collect();
        let at_hand = match data_kind(trace) {
            Some(of) => format!("{} is a trace of {}", trace.path().display(), words(of)),
            None => format!(
                "`{}` places {}",
                placements[0].entry().name,
                words(placements[0].entry().target())
            ),
        };
        return Err(Error::Usage(format!(
            "`{}` places {}, and {at_hand}; placements of those: {}",
            entry.name,
            words(entry.target()),
            others.join(", ")
        )));
    }
    Ok(())
}
