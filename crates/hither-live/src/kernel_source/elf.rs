//! What the walk of a stack needs of a mapped program or library: its segments, its build-id and
//! its unwind table, as they lie in the memory of a process.
//!
//! All of it may have been written over by the process: a number is used once it was checked.

use std::ops::Range;
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use hither_session::call_stack;
use libc::{PF_X, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, PT_NOTE};

/// Larger parts of a file are not read.
const PART_BYTES_MAX: u64 = 64 << 20;

/// No file has more notes, or segments.
const NOTES_BYTES_MAX: u64 = 1 << 16;
const SEGMENTS_MAX: u16 = 256;

/// Of the header of a 64-bit file, and of those of segments and sections (elf(5)).
const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;

/// The smallest page: where mappings begin.
const PAGE_BYTES: u64 = 4096;

/// Reads so many bytes at an address of the process.
type Read<'a> = dyn Fn(u64, u64) -> Option<Vec<u8>> + 'a;

/// A mapped program or library. Addresses without a word are those of the process.
pub(super) struct Image {
    segments: Vec<Segment>,
    bias: u64,
}

/// A program header. The address is the file's own.
#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u32,
    is_code: bool,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

/// Where a mapping of code begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MappedCode {
    pub(super) address: u64,
    /// In the file.
    pub(super) offset: u64,
}

impl Image {
    /// Of the file that is mapped at `header`, of which this is a mapping of code. None if it is no
    /// ELF file.
    pub(super) fn read(header: u64, code: MappedCode, read: &Read<'_>) -> Option<Image> {
        let bytes = read(header, HEADER_BYTES)?;
        let is_elf = bytes.starts_with(b"\x7fELF\x02\x01");
        let (segment_bytes, count) = (u16_at(&bytes, 54)?, u16_at(&bytes, 56)?);
        if !is_elf || usize::from(segment_bytes) != SEGMENT_BYTES || count > SEGMENTS_MAX {
            return None;
        }
        let table = header.checked_add(u64_at(&bytes, 32)?)?;
        let bytes = read(table, u64::from(count) * SEGMENT_BYTES as u64)?;
        let (table, _) = bytes.as_chunks::<SEGMENT_BYTES>();
        let segments: Option<Vec<Segment>> = table.iter().map(Segment::parse).collect();
        let segments = segments?;
        let MappedCode {
            address: mapped_at,
            offset,
        } = code;
        let is_mapped = |segment: &&Segment| {
            let from = segment.offset & !(PAGE_BYTES - 1);
            let to = segment.offset.saturating_add(segment.file_bytes);
            segment.kind == PT_LOAD && segment.is_code && (from..to).contains(&offset)
        };
        let segment = segments.iter().find(is_mapped)?;
        let address = segment
            .address
            .wrapping_add(offset)
            .wrapping_sub(segment.offset);
        let bias = mapped_at.wrapping_sub(address);
        Some(Image { segments, bias })
    }

    /// What was added to the file's addresses when it was mapped.
    pub(super) fn bias(&self) -> u64 {
        self.bias
    }

    /// Whether it names a dynamic linker.
    pub(super) fn has_linker(&self) -> bool {
        self.of_kind(PT_INTERP).next().is_some()
    }

    /// From the first to the last of its addresses.
    pub(super) fn addresses(&self) -> Option<Range<u64>> {
        let loads = || self.of_kind(PT_LOAD);
        let start = loads().map(|load| load.address & !(PAGE_BYTES - 1)).min()?;
        let end = loads().map(|load| load.address.saturating_add(load.memory_bytes));
        let (start, end) = (
            start.wrapping_add(self.bias),
            end.max()?.wrapping_add(self.bias),
        );
        (start < end).then_some(start..end)
    }

    pub(super) fn build_id(&self, read: &Read<'_>) -> Option<Vec<u8>> {
        self.of_kind(PT_NOTE).find_map(|segment| {
            let bytes = segment.memory_bytes.min(NOTES_BYTES_MAX);
            let notes = read(self.bias.wrapping_add(segment.address), bytes)?;
            call_stack::build_id(&notes).map(<[u8]>::to_vec)
        })
    }

    pub(super) fn unwind_table(&self, read: &Read<'_>) -> Option<UnwindTable> {
        let segment = self.of_kind(PT_GNU_EH_FRAME).next()?;
        let part = |address: u64, bytes: u64| -> Option<Arc<[u8]>> {
            let bytes = bytes.min(PART_BYTES_MAX);
            Some(read(self.bias.wrapping_add(address), bytes)?.into())
        };
        let header = part(segment.address, segment.memory_bytes)?;
        // It points at the frames, as a 32-bit offset from its fourth byte in all that linkers
        // emit. How long they are stands nowhere: to the end of their segment at most.
        let Some([1, 0x1b, ..]) = header.get(..4) else {
            return None;
        };
        let frames_at = (segment.address + 4).wrapping_add_signed(i64::from(i32_at(&header, 4)?));
        let end = self.of_kind(PT_LOAD).find_map(|load| {
            let end = load.address.checked_add(load.file_bytes)?;
            (load.address..end).contains(&frames_at).then_some(end)
        })?;
        Some(UnwindTable {
            index: Index::Header(segment.address, header),
            frames: part(frames_at, end - frames_at)?,
            frames_at,
        })
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = &Segment> {
        let all = self.segments.iter();
        all.filter(move |segment| segment.kind == kind)
    }
}

impl Segment {
    fn parse(header: &[u8; SEGMENT_BYTES]) -> Option<Segment> {
        Some(Segment {
            kind: u32_at(header, 0)?,
            is_code: u32_at(header, 4)? & PF_X != 0,
            offset: u64_at(header, 8)?,
            address: u64_at(header, 16)?,
            file_bytes: u64_at(header, 32)?,
            memory_bytes: u64_at(header, 40)?,
        })
    }
}

/// How frames are undone: `.eh_frame`, and where in it what is. Addresses are the file's own.
#[derive(Clone, Debug)]
pub(super) struct UnwindTable {
    index: Index,
    frames_at: u64,
    frames: Arc<[u8]>,
}

#[derive(Clone, Debug)]
enum Index {
    /// `.eh_frame_hdr`, and where it is.
    Header(u64, Arc<[u8]>),
    /// The addresses of all entries, sorted, of a file that has none: static programs.
    Entries(Arc<[Range<u64>]>),
}

impl UnwindTable {
    /// For the unwinder.
    pub(super) fn sections(&self) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        let range = |start: u64, bytes: &[u8]| start..start + bytes.len() as u64;
        let mut sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(range(self.frames_at, &self.frames)),
            eh_frame: Some(self.frames.clone()),
            ..ExplicitModuleSectionInfo::default()
        };
        if let Index::Header(at, header) = &self.index {
            sections.eh_frame_hdr_svma = Some(range(*at, header));
            sections.eh_frame_hdr = Some(header.clone());
        }
        sections
    }

    /// Whether it says how the frame of this code is undone. What no compiler has made, or one that
    /// was told to leave that out, has no entry.
    pub(super) fn covers(&self, address: u64) -> bool {
        let entry = match &self.index {
            Index::Header(at, header) => self.entry(*at, header, address),
            Index::Entries(entries) => {
                let after = entries.partition_point(|entry| entry.start <= address);
                let entry = after.checked_sub(1).and_then(|at| entries.get(at));
                entry.cloned()
            }
        };
        entry.is_some_and(|entry| entry.contains(&address))
    }

    /// The addresses of the last entry that begins at this address or before it.
    fn entry(&self, header_at: u64, header: &[u8], address: u64) -> Option<Range<u64>> {
        // The table of all linkers: the number of entries, then for each where its code begins and
        // where the entry is, both relative to the header.
        let Some([1, 0x1b, 0x03, 0x3b]) = header.get(..4) else {
            return None;
        };
        let (entries, _) = header.get(12..)?.as_chunks::<8>();
        let at = |offset: i32| header_at.wrapping_add_signed(offset.into());
        let begin = |entry: &[u8; 8]| i32_at(entry, 0).map_or(u64::MAX, at);
        let after = entries.partition_point(|entry| begin(entry) <= address);
        let found = entries.get(after.checked_sub(1)?)?;
        let record = at(i32_at(found, 4)?).checked_sub(self.frames_at)?;
        let record = self.frames.get(usize::try_from(record).ok()?..)?;
        let start = begin(found);
        Some(start..start.checked_add(code_bytes(record)?)?)
    }
}

/// Of an entry: its length, the distance to what it has in common with others, where its code
/// begins, and the length of that. The last two are of 32 bits in all that compilers make for
/// programs of usual size.
fn code_bytes(entry: &[u8]) -> Option<u64> {
    u32_at(entry, 12).map(u64::from)
}

/// What a program's file says that is not in its memory.
#[derive(Debug, Default)]
pub(super) struct StaticProgram {
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) table: Option<UnwindTable>,
}

impl StaticProgram {
    /// Reads the sections of a file.
    pub(super) fn read(file: &Read<'_>) -> Option<StaticProgram> {
        let header = file(0, HEADER_BYTES)?;
        let (bytes, count) = (u16_at(&header, 58)?, u16_at(&header, 60)?);
        let names = u16_at(&header, 62)?;
        if usize::from(bytes) != SECTION_BYTES {
            return None;
        }
        let headers = file(
            u64_at(&header, 40)?,
            u64::from(count) * SECTION_BYTES as u64,
        )?;
        let (headers, _) = headers.as_chunks::<SECTION_BYTES>();
        let content = |header: &[u8; SECTION_BYTES]| {
            file(u64_at(header, 24)?, u64_at(header, 32)?.min(PART_BYTES_MAX))
        };
        let names = content(headers.get(usize::from(names))?)?;
        let named = |name: &[u8]| {
            let is_named = |header: &&[u8; SECTION_BYTES]| {
                let at = u32_at(&header[..], 0).and_then(|at| usize::try_from(at).ok());
                let found = at.and_then(|at| names.get(at..));
                found.is_some_and(|found| found.starts_with(name))
            };
            headers.iter().find(is_named)
        };
        let notes = named(b".note.gnu.build-id\0").and_then(content);
        let build_id = notes.and_then(|notes| call_stack::build_id(&notes).map(<[u8]>::to_vec));
        let table = named(b".eh_frame\0").and_then(|header| {
            let frames_at = u64_at(header, 16)?;
            let frames: Arc<[u8]> = content(header)?.into();
            let index = Index::Entries(entries(frames_at, &frames).into());
            Some(UnwindTable {
                index,
                frames_at,
                frames,
            })
        });
        Some(StaticProgram { build_id, table })
    }
}

/// The addresses of all entries.
fn entries(frames_at: u64, frames: &[u8]) -> Vec<Range<u64>> {
    let mut entries = Vec::new();
    let mut at = 0;
    // An entry of no length ends them.
    while let Some(bytes @ 1..) = u32_at(frames, at)
        && let Some(entry) = frames.get(at..)
    {
        // What others have in common has no code of its own.
        if u32_at(entry, 4) != Some(0)
            && let (Some(distance), Some(length)) = (i32_at(entry, 8), code_bytes(entry))
        {
            let begin = frames_at.wrapping_add(at as u64 + 8);
            let begin = begin.wrapping_add_signed(distance.into());
            entries.push(begin..begin.saturating_add(length));
        }
        at = at.saturating_add(4).saturating_add(bytes as usize);
    }
    entries.sort_unstable_by_key(|entry| (entry.start, entry.end));
    entries
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    field(bytes, at).map(i32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    field(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn reads(file: &[u8]) -> impl Fn(u64, u64) -> Option<Vec<u8>> {
        |at, bytes| {
            let from = usize::try_from(at).ok()?;
            let to = from.checked_add(usize::try_from(bytes).ok()?)?;
            file.get(from..to).map(<[u8]>::to_vec)
        }
    }

    /// Looks at all that there is.
    fn look_at(file: &[u8], code: MappedCode, address: u64) {
        let read = reads(file);
        let table = StaticProgram::read(&read).and_then(|program| program.table);
        let image = Image::read(0, code, &read);
        let of_image = image.as_ref().and_then(|image| {
            let _ = (image.addresses(), image.build_id(&read), image.has_linker());
            image.unwind_table(&read)
        });
        for table in table.iter().chain(&of_image) {
            table.covers(address);
            table.sections();
        }
    }

    #[test]
    fn both_indexes_cover_the_same_code() {
        let exe = fs::read("/proc/self/exe").expect("read");
        let read = reads(&exe);
        let program = StaticProgram::read(&read).expect("an ELF file");
        let sections = program.table.expect("a table");
        let Index::Entries(entries) = &sections.index else {
            panic!("all entries");
        };
        // As it is mapped where its own addresses are.
        let count = usize::from(u16_at(&exe, 56).expect("a header"));
        let (headers, _) = exe[64..].as_chunks::<SEGMENT_BYTES>();
        let segments: Vec<Segment> = headers[..count].iter().filter_map(Segment::parse).collect();
        let memory = |at: u64, bytes: u64| {
            let is_there = |load: &&Segment| {
                let there = load.address..load.address + load.file_bytes;
                load.kind == PT_LOAD && there.contains(&at)
            };
            let load = segments.iter().find(is_there)?;
            read(at - load.address + load.offset, bytes)
        };
        let is_code = |load: &&Segment| load.kind == PT_LOAD && load.is_code;
        let code = segments.iter().find(is_code).expect("code");
        let mapped = MappedCode {
            address: code.address,
            offset: code.offset,
        };
        let image = Image::read(0, mapped, &memory).expect("an image");
        assert_eq!(image.bias(), 0);
        assert_eq!(image.build_id(&memory), program.build_id);
        let table = image.unwind_table(&memory).expect("a table");
        assert!(entries.len() > 1000, "{}", entries.len());
        for entry in entries.iter().step_by(97) {
            for address in [entry.start, entry.end - 1, entry.end] {
                assert_eq!(table.covers(address), sections.covers(address));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_image_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            look_at(&bytes, MappedCode::default(), 1);
        }

        #[test]
        fn any_change_of_an_image_is_one_or_none(
            changes in proptest::collection::vec((0_usize..2048, any::<u8>()), 1..6),
            (code, address) in (any::<u32>(), any::<u32>()),
        ) {
            let mut file = small_image();
            for (at, byte) in changes {
                if let Some(to) = file.get_mut(at) {
                    *to = byte;
                }
            }
            let code = MappedCode {
                address: code.into(),
                offset: 0,
            };
            look_at(&file, code, address.into());
            look_at(&file, MappedCode::default(), 0x80);
        }
    }

    /// A file with a segment of code that holds all of it, and a table for 16 bytes at 0x80.
    fn small_image() -> Vec<u8> {
        let mut file = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| file[at..][..bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01");
        put(32, &64_u64.to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        put(56, &2_u16.to_le_bytes());
        put(58, &64_u16.to_le_bytes());
        for (at, kind, address, bytes) in [(64, PT_LOAD, 0, 512), (120, PT_GNU_EH_FRAME, 256, 20)] {
            put(at, &kind.to_le_bytes());
            put(at + 4, &(PF_X | 4).to_le_bytes());
            put(at + 8, &u64::to_le_bytes(address));
            put(at + 16, &u64::to_le_bytes(address));
            put(at + 32, &u64::to_le_bytes(bytes));
            put(at + 40, &u64::to_le_bytes(bytes));
        }
        put(256, &[1, 0x1b, 0x03, 0x3b]);
        put(260, &(320 - 260_i32).to_le_bytes());
        put(264, &1_u32.to_le_bytes());
        put(268, &(0x80 - 256_i32).to_le_bytes());
        put(272, &(320 - 256_i32).to_le_bytes());
        put(320, &12_u32.to_le_bytes());
        put(324, &1_u32.to_le_bytes());
        put(332, &16_u32.to_le_bytes());
        file
    }

    #[test]
    fn a_table_covers_what_has_an_entry() {
        let file = small_image();
        let read = reads(&file);
        let image = Image::read(0, MappedCode::default(), &read).expect("an image");
        assert_eq!(image.addresses(), Some(0..512));
        let table = image.unwind_table(&read).expect("a table");
        let covered = [0x7f, 0x80, 0x8f, 0x90].map(|address| table.covers(address));
        assert_eq!(covered, [false, true, true, false]);
    }
}
