//! The loaded programs and libraries: their ranges, their names, and their unwind information.
//!
//! Each thread finds the modules that its own stacks touch, one at a time. `_dl_find_object` (glibc
//! 2.35) finds the module that holds an address, without locks. An older glibc has only the list
//! that
//! `dl_iterate_phdr` walks, behind the dynamic linker's lock.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, Unwinder, UnwinderNative};
use hither_kernel::file_id::mix;
use hither_kernel::{page_bytes, syscalls, this_process};
use hither_session::call_stack::{self, SIGNAL_RETURN, is_signal_return, module_key};
use hither_session::record::{RUN_TIME_CODE, Record};

/// Counts unloaded libraries: addresses seen before may belong to another module since.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// `_dl_find_object`, null where glibc has none.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// A random number that the kernel gives each program that it starts.
static RANDOM: AtomicU64 = AtomicU64::new(0);

/// The current epoch.
#[inline]
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// To be called after a library was unloaded: what threads know of modules is void.
pub fn modules_changed() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// See [`super::prepare`].
pub(super) fn prepare() {
    // SAFETY: the name is a C string; RTLD_DEFAULT asks the global scope.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(found, Ordering::Relaxed);
    // SAFETY: it takes a number and cannot fail.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const [u8; 8];
    // SAFETY: it is null or the address of 16 random bytes, which the kernel lays on the stack.
    if let Some(&random) = unsafe { random.as_ref() } {
        RANDOM.store(u64::from_le_bytes(random), Ordering::Relaxed);
    }
}

/// A loaded program or library.
pub(super) struct Module {
    start: u64,
    end: u64,
    /// What was added to its addresses when it was loaded.
    pub(super) bias: u64,
    /// A hash of its build-id, or of its path: the same in every process.
    pub(super) key: u64,
    build_id: &'static [u8],
    path: &'static [u8],
    defined: bool,
}

impl Module {
    /// Whether `address` is where a signal handler returns to. The frames beyond are where the
    /// signal happened to strike, not a call site.
    pub(super) fn is_signal_return(&self, address: u64) -> bool {
        if address < self.start || address + SIGNAL_RETURN.len() as u64 > self.end {
            return false;
        }
        // SAFETY: the module is mapped from start to end, its code readable, and a frame on this
        // stack keeps it loaded.
        let code = unsafe { std::slice::from_raw_parts(address as *const u8, SIGNAL_RETURN.len()) };
        is_signal_return(code)
    }
}

/// The modules that one thread knows.
pub(super) struct Modules {
    epoch: u64,
    known: Vec<Module>,
}

impl Default for Modules {
    fn default() -> Self {
        Modules {
            epoch: epoch(),
            known: Vec::new(),
        }
    }
}

impl Modules {
    /// The epoch in which they were found.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The module that a return address lies in; a new one is made known to the unwinder. `None`
    /// for code that no loaded file holds (made at run time).
    pub(super) fn find(
        &mut self,
        address: u64,
        unwinder: &mut UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>,
    ) -> Option<&Module> {
        // The call is before the return address, which may be the first byte after the module's
        // code.
        let address = address - 1;
        let at = match self
            .known
            .iter()
            .position(|module| (module.start..module.end).contains(&address))
        {
            Some(at) => at,
            None => {
                let image = image_at(address)?;
                let (module, sections) = image.describe();
                unwinder.add_module(framehop::Module::new(
                    String::new(),
                    module.start..module.end,
                    module.bias,
                    sections,
                ));
                self.known.push(module);
                self.known.len() - 1
            }
        };
        self.known.get(at)
    }

    /// What stands for code that no module holds. Its key is this process's own, since the same
    /// code has other addresses in another one. The random number distinguishes the programs that
    /// one process runs, and the process id a forked child.
    pub(super) fn run_time_code(&mut self) -> &Module {
        let key = mix(RANDOM.load(Ordering::Relaxed) ^ mix(u64::from(syscalls::pid().0)));
        let known = self.known.iter().position(|module| module.key == key);
        let at = known.unwrap_or_else(|| {
            self.known.push(Module {
                start: 0,
                end: 0,
                bias: 0,
                key,
                build_id: &[],
                path: RUN_TIME_CODE,
                defined: false,
            });
            self.known.len() - 1
        });
        &self.known[at]
    }

    /// Sends the module's definition unless this thread has. False if it could not be sent.
    pub(super) fn define(&mut self, key: u64, define: &mut dyn FnMut(&Record<'_>) -> bool) -> bool {
        match self.known.iter_mut().find(|module| module.key == key) {
            Some(module) if !module.defined => {
                module.defined = define(&Record::Module {
                    module: key,
                    build_id: module.build_id,
                    path: module.path,
                });
                module.defined
            }
            _ => true,
        }
    }
}

/// What the dynamic linker says of a module.
struct Image {
    start: u64,
    end: u64,
    bias: u64,
    path: &'static [u8],
    headers: &'static [libc::Elf64_Phdr],
}

impl Image {
    fn describe(&self) -> (Module, ExplicitModuleSectionInfo<&'static [u8]>) {
        let build_id = self.build_id().unwrap_or_default();
        let path = if self.path.is_empty() {
            this_process::exe()
        } else {
            self.path
        };
        let key = module_key(build_id, path);
        let module = Module {
            start: self.start,
            end: self.end,
            bias: self.bias,
            key,
            build_id,
            path,
            defined: false,
        };
        let mut sections = ExplicitModuleSectionInfo::default();
        if let Some((address, header)) = self.segment(libc::PT_GNU_EH_FRAME) {
            let start = address - self.bias;
            sections.eh_frame_hdr_svma = Some(start..start + header.len() as u64);
            sections.eh_frame_hdr = Some(header);
            // The header points at the table itself, as a 32-bit offset from its fourth byte in all
            // that linkers emit; how long it is stands nowhere, so it is taken to reach to the end
            // of its segment.
            if let (Some([_, 0x1b, ..]), Some(offset)) = (header.get(..4), header.get(4..8)) {
                let offset = i32::from_le_bytes(offset.try_into().unwrap_or_default());
                let table = (address + 4).wrapping_add_signed(i64::from(offset));
                if let Some(bytes) = self.to_end_of_segment(table) {
                    let start = table - self.bias;
                    sections.eh_frame_svma = Some(start..start + bytes.len() as u64);
                    sections.eh_frame = Some(bytes);
                }
            }
        }
        (module, sections)
    }

    fn segment(&self, kind: u32) -> Option<(u64, &'static [u8])> {
        let header = self.headers.iter().find(|header| header.p_type == kind)?;
        let address = self.bias.wrapping_add(header.p_vaddr);
        Some((address, self.bytes(address, header.p_memsz)?))
    }

    fn to_end_of_segment(&self, address: u64) -> Option<&'static [u8]> {
        let segment = self.headers.iter().find(|header| {
            let start = self.bias.wrapping_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD && (start..start + header.p_filesz).contains(&address)
        })?;
        self.bytes(
            address,
            self.bias + segment.p_vaddr + segment.p_filesz - address,
        )
    }

    /// Bytes of the module, if they lie within a loaded segment that can be read.
    fn bytes(&self, address: u64, length: u64) -> Option<&'static [u8]> {
        if !is_readable(self.headers, self.bias, (address, length)) || address == 0 {
            return None;
        }
        // SAFETY: a readable loaded segment holds the range, and its module stays loaded while a
        // frame of this thread's stack is in it; it is looked up anew after any library was
        // unloaded.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, length as usize) })
    }

    /// The note "GNU" of type 3, in any of the note segments.
    fn build_id(&self) -> Option<&'static [u8]> {
        let notes = self
            .headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE);
        for header in notes {
            let notes = self.bytes(self.bias.wrapping_add(header.p_vaddr), header.p_memsz)?;
            if let Some(build_id) = call_stack::build_id(notes) {
                return Some(build_id);
            }
        }
        None
    }
}

/// glibc's `struct dl_find_object`, as it is on x86-64 and arm64.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const LinkMap,
    eh_frame: *const c_void,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const libc::c_char,
}

fn image_at(address: u64) -> Option<Image> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find.is_null() {
        return image_by_iteration(address);
    }
    // The lookup takes no lock, and where it finds nothing there is no module: the iteration, which
    // takes the linker's lock, is only for a program whose segments lie apart (Debian's node), of
    // which the lookup names the one with the code, where there are no headers to read.
    let found = find_object(find, address)?;
    image_by_lookup(&found).or_else(|| image_by_iteration(address))
}

fn find_object(find: *mut c_void, address: u64) -> Option<FoundObject> {
    // SAFETY: it is glibc's _dl_find_object, which has this type.
    let find = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(u64, *mut FoundObject) -> c_int>(find)
    };
    let mut found = FoundObject {
        flags: 0,
        map_start: std::ptr::null(),
        map_end: std::ptr::null(),
        link_map: std::ptr::null(),
        eh_frame: std::ptr::null(),
        reserved: [0; 7],
    };
    (find(address, &raw mut found) == 0 && !found.link_map.is_null()).then_some(found)
}

fn image_by_lookup(found: &FoundObject) -> Option<Image> {
    // SAFETY: the linker keeps the map of a loaded module, and a frame of this stack keeps the
    // module loaded.
    let map = unsafe { &*found.link_map };
    let headers = headers_of(found.map_start as u64)?;
    Some(Image {
        start: found.map_start as u64,
        end: found.map_end as u64,
        bias: map.bias,
        // SAFETY: the name is null or a C string that lives as long as the module.
        path: unsafe { bytes_of(map.name) },
        headers,
    })
}

/// The program headers of the ELF file mapped at `start`.
fn headers_of(start: u64) -> Option<&'static [libc::Elf64_Phdr]> {
    // SAFETY: the linker says that a module is mapped from here on; its first page can be read;
    // what is there is an ELF header only if it says so.
    let header = unsafe { &*(start as *const libc::Elf64_Ehdr) };
    let table_bytes = u64::from(header.e_phnum) * size_of::<libc::Elf64_Phdr>() as u64;
    let table_end = header.e_phoff.checked_add(table_bytes)?;
    if !header.e_ident.starts_with(b"\x7fELF")
        || table_end > page_bytes()
        || !header.e_phoff.is_multiple_of(8)
    {
        return None;
    }
    let table = (start + header.e_phoff) as *const libc::Elf64_Phdr;
    // SAFETY: the table lies within the first page, which is mapped, and is aligned.
    Some(unsafe { std::slice::from_raw_parts(table, usize::from(header.e_phnum)) })
}

fn image_by_iteration(address: u64) -> Option<Image> {
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: the callback gets the pointer passed here and the linker's description of a module.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search {
    address: u64,
    found: Option<Image>,
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes a valid description.
    let info = unsafe { &*info };
    // SAFETY: this is the pointer that `image_by_iteration` passed, borrowed by nobody else
    // meanwhile.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the linker's program headers live as long as the module.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let range = |header: &libc::Elf64_Phdr| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        (start, start + header.p_memsz)
    };
    let start = loaded
        .clone()
        .map(|header| range(header).0)
        .min()
        .unwrap_or(0);
    let end = loaded.map(|header| range(header).1).max().unwrap_or(0);
    if !(start..end).contains(&search.address) {
        return 0;
    }
    // SAFETY: the name is null or a C string that lives as long as the module.
    let path = unsafe { bytes_of(info.dlpi_name) };
    search.found = Some(Image {
        start,
        end,
        bias: info.dlpi_addr,
        path,
        headers,
    });
    1
}

/// # Safety
/// `name` is null or a C string that is never freed while it is used.
unsafe fn bytes_of(name: *const libc::c_char) -> &'static [u8] {
    if name.is_null() {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Whether a module that these headers describe holds so many bytes from an address on in a segment
/// that can be read.
pub(crate) fn is_readable(
    headers: &[libc::Elf64_Phdr],
    bias: u64,
    (address, length): (u64, u64),
) -> bool {
    headers.iter().any(|header| {
        let start = bias.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD
            && header.p_flags & libc::PF_R != 0
            && start <= address
            && address
                .checked_add(length)
                .is_some_and(|end| end <= start + header.p_memsz)
    })
}
