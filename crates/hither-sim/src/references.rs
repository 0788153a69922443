//! The source of an engine's accesses.

use hither_core::placement::Mark;
use hither_core::registry::Needs;
use hither_core::{Access, Block, Life, NEVER, Object};
use hither_trace::schema::RegionReferences;
use hither_trace::{Sampled, Trace};

/// A sequence of block references that can be read in parts, in any order.
pub trait References: Sync {
    /// The number of references.
    fn references(&self) -> u64;

    /// The number of distinct blocks. Blocks are numbered below it.
    fn blocks(&self) -> u32;

    /// What they are a sample of. `None` if they have all blocks.
    fn sampled(&self) -> Option<Sampled> {
        None
    }

    /// What is known of each access besides its block. `future` does not count, since next uses can
    /// always be computed.
    fn knows(&self) -> Needs;

    /// The ends of iterations and constructs, in order.
    fn marks(&self) -> &[Mark] {
        &[]
    }

    /// The number of nodes in the recording; 1 if it is not known.
    fn nodes(&self) -> usize {
        1
    }

    /// The number of threads. Threads are numbered below it.
    fn threads(&self) -> usize;

    /// The number of their processes. Processes are numbered below it.
    fn processes(&self) -> usize {
        1
    }

    /// The size of each object in bytes, by number. Empty without objects.
    fn object_bytes(&self) -> Vec<u64> {
        Vec::new()
    }

    /// All references to regions of memory, hits of the caches included; empty if they are not
    /// known.
    fn region_references(&self) -> &[RegionReferences] {
        &[]
    }

    /// Of each reference, how many blocks of its request come after its own, 255 at most. Empty if
    /// that is not known.
    fn blocks_left(&self) -> &[u8] {
        &[]
    }

    /// The object of a block, and the block's position in it.
    fn place_of(&self, block: Block) -> (Object, u32);

    /// The size of a block.
    fn block_bytes(&self) -> u32 {
        4096
    }

    /// Whether each reference is to an object of a known size.
    fn has_sizes(&self) -> bool {
        false
    }

    /// The bytes of all references but deletes; if this is a sample, those of the whole trace.
    fn bytes_of_all(&self) -> u64 {
        0
    }

    /// How many references are deletes; if this is a sample, those of the whole trace.
    fn deletes_of_all(&self) -> u64 {
        0
    }

    /// Replaces `out` by the [lives](Life) of up to `count` references from `start` on. Empty where
    /// none ends. Fails like [`References::fill`].
    fn fill_lives(
        &self,
        _start: u64,
        _count: usize,
        out: &mut Vec<Life>,
    ) -> hither_trace::Result<()> {
        out.clear();
        Ok(())
    }

    /// Replaces `out` by up to `count` accesses from `start` on. Their ticks are their positions.
    /// Fields that are not among `needs` may be left out: `next` is then [`NEVER`], `object` and
    /// `index` are 0, and `bytes` and `cost` are 1. Fails if the references cannot be read from a
    /// file.
    fn fill(
        &self,
        start: u64,
        count: usize,
        needs: Needs,
        out: &mut Vec<Access>,
    ) -> hither_trace::Result<()>;
}

/// Accesses in memory, for tests and benches.
#[derive(Clone, Debug)]
pub struct InMemory {
    accesses: Vec<Access>,
    blocks: u32,
    nodes: usize,
    threads: usize,
    knows: Needs,
    marks: Vec<Mark>,
    object_bytes: Vec<u64>,
    region_references: Vec<RegionReferences>,
    blocks_left: Vec<u8>,
    /// By block.
    places: Vec<(Object, u32)>,
}

impl InMemory {
    /// Takes the accesses and sets their ticks and next references. Block numbers must be dense.
    pub fn new(mut accesses: Vec<Access>, knows: Needs) -> Self {
        let blocks = accesses
            .iter()
            .map(|access| access.block.0 + 1)
            .max()
            .unwrap_or(0);
        let mut upcoming = vec![NEVER; blocks as usize];
        for (tick, access) in accesses.iter_mut().enumerate().rev() {
            access.tick = tick as u64;
            access.next = std::mem::replace(&mut upcoming[access.block.index()], access.tick);
        }
        let mut places = vec![(Object(0), 0); blocks as usize];
        for access in &accesses {
            places[access.block.index()] = (access.object, access.index);
        }
        let nodes = accesses.iter().map(|access| access.node.index() + 1);
        let threads = accesses.iter().map(|access| access.thread.index() + 1);
        InMemory {
            nodes: nodes.max().unwrap_or(1),
            threads: threads.max().unwrap_or(0),
            accesses,
            blocks,
            knows,
            marks: Vec::new(),
            object_bytes: Vec::new(),
            region_references: Vec::new(),
            blocks_left: Vec::new(),
            places,
        }
    }

    /// The same accesses with these marks.
    pub fn with_marks(self, marks: Vec<Mark>) -> Self {
        InMemory { marks, ..self }
    }

    /// The same accesses, to objects of these sizes.
    pub fn with_object_bytes(self, object_bytes: Vec<u64>) -> Self {
        InMemory {
            object_bytes,
            ..self
        }
    }

    /// The same accesses, as the misses among these references.
    pub fn with_region_references(self, region_references: Vec<RegionReferences>) -> Self {
        InMemory {
            region_references,
            ..self
        }
    }

    /// The same accesses, each with so many blocks of its request after it.
    pub fn with_blocks_left(self, blocks_left: Vec<u8>) -> Self {
        InMemory {
            blocks_left,
            ..self
        }
    }

    /// All accesses.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }
}

impl References for InMemory {
    fn references(&self) -> u64 {
        self.accesses.len() as u64
    }

    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn knows(&self) -> Needs {
        self.knows
    }

    fn marks(&self) -> &[Mark] {
        &self.marks
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn processes(&self) -> usize {
        let processes = self
            .accesses
            .iter()
            .map(|access| access.process.index() + 1);
        processes.max().unwrap_or(0)
    }

    fn object_bytes(&self) -> Vec<u64> {
        self.object_bytes.clone()
    }

    fn region_references(&self) -> &[RegionReferences] {
        &self.region_references
    }

    fn blocks_left(&self) -> &[u8] {
        &self.blocks_left
    }

    fn place_of(&self, block: Block) -> (Object, u32) {
        self.places[block.index()]
    }

    fn fill(
        &self,
        start: u64,
        count: usize,
        needs: Needs,
        out: &mut Vec<Access>,
    ) -> hither_trace::Result<()> {
        out.clear();
        out.extend(self.accesses.iter().skip(start as usize).take(count));
        if !needs.future {
            out.iter_mut().for_each(|access| access.next = NEVER);
        }
        Ok(())
    }
}

impl References for Trace {
    fn references(&self) -> u64 {
        Trace::references(self) as u64
    }

    fn blocks(&self) -> u32 {
        u32::try_from(Trace::blocks(self)).expect("a trace numbers its blocks with 32 bits")
    }

    fn sampled(&self) -> Option<Sampled> {
        Trace::sampled(self)
    }

    /// Objects and processes are always known: a trace of bare block numbers has one object, the
    /// device, used by one process. Call sites have no such default.
    fn knows(&self) -> Needs {
        Needs {
            sites: self.has_sites(),
            ..Needs::ALL
        }
    }

    fn has_sizes(&self) -> bool {
        Trace::has_sizes(self)
    }

    fn bytes_of_all(&self) -> u64 {
        Trace::bytes_of_all(self)
    }

    fn deletes_of_all(&self) -> u64 {
        Trace::deletes_of_all(self)
    }

    fn fill_lives(
        &self,
        start: u64,
        count: usize,
        out: &mut Vec<Life>,
    ) -> hither_trace::Result<()> {
        Trace::fill_lives(self, start as usize, count, out)
    }

    fn marks(&self) -> &[Mark] {
        Trace::marks(self)
    }

    fn region_references(&self) -> &[RegionReferences] {
        &self.meta().references
    }

    fn nodes(&self) -> usize {
        Trace::nodes(self)
    }

    fn threads(&self) -> usize {
        Trace::threads(self)
    }

    fn processes(&self) -> usize {
        Trace::processes(self)
    }

    fn object_bytes(&self) -> Vec<u64> {
        self.objects().iter().map(|object| object.size).collect()
    }

    fn blocks_left(&self) -> &[u8] {
        Trace::blocks_left(self)
    }

    fn place_of(&self, block: Block) -> (Object, u32) {
        (self.object_of(block), self.index_of(block))
    }

    fn block_bytes(&self) -> u32 {
        self.options().block_bytes
    }

    fn fill(
        &self,
        start: u64,
        count: usize,
        needs: Needs,
        out: &mut Vec<Access>,
    ) -> hither_trace::Result<()> {
        Trace::fill(self, start as usize, count, needs, out)
    }
}
