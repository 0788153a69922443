//! The system that a run is on.

use std::io;
use std::sync::Arc;

use hither_kernel::by_generation::ByGeneration;
use hither_kernel::machine::{Machine, NodeMemory, ThisMachine};
use hither_kernel::page_cache::{PageCache, ThisPageCache};

use crate::error::{Error, Result};
use crate::launch;

/// The system that a run is on.
#[derive(Clone)]
pub struct System {
    /// The machine.
    pub machine: Arc<dyn Machine>,
    /// Its page cache.
    pub page_cache: Arc<dyn PageCache>,
}

impl Default for System {
    fn default() -> System {
        System {
            machine: Arc::new(ThisMachine),
            page_cache: Arc::new(ThisPageCache),
        }
    }
}

impl System {
    /// This machine, where the kernel reports what programs do.
    pub(crate) fn by_kernel() -> System {
        System {
            page_cache: Arc::new(ByGeneration),
            ..System::default()
        }
    }

    /// The nodes that pages can be moved between. `None` on a machine with one node, unless it is a
    /// dry run.
    pub(crate) fn nodes_to_move_between(&self, dry_run: bool) -> Result<Option<Vec<NodeMemory>>> {
        let hidden = |error: io::Error| Error::Nodes(error.to_string());
        let nodes = self.machine.nodes().map_err(hidden)?;
        Ok((dry_run || !launch::is_alone(&nodes)).then_some(nodes))
    }
}
