//! The border to QEMU: bindings, the three symbols that it looks for, and the callbacks. The only
//! unsafe code of the lab.
//!
//! QEMU's functions are looked up by `dlsym` when the plugin is installed, not linked: one library
//! then suits versions whose functions differ, tests link without QEMU, and a function that is
//! missing is named in an error. Signatures are those of `include/qemu/qemu-plugin.h` in QEMU 7.2
//! and 10.0, which differ, among the functions used, in `qemu_plugin_insn_data` alone: to API 2 it
//! returns a pointer, from API 3 on it fills a buffer. Callbacks are plain ones: the inline
//! per-vCPU operations of API 2 and later crash QEMU 10.0.2 under icount.
#![allow(unsafe_code)]
#![allow(non_upper_case_globals, reason = "QEMU names the version's symbol")]

use crate::current::Current;
use crate::marks::Mark;
use crate::model::{Access, Mode};
use crate::options::Options;
use crate::recorder::Recorder;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// QEMU's handles are only ever pointed to.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// `qemu_info_t`, the same since API 0.
#[repr(C)]
struct Info {
    target_name: *const c_char,
    version_min: c_int,
    version_current: c_int,
    system_emulation: bool,
    smp_vcpus: c_int,
    max_vcpus: c_int,
}

/// GLib's `GArray` and `GByteArray`.
#[repr(C)]
struct Array<T> {
    data: *mut T,
    length: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
struct RegisterDescriptor {
    handle: *mut Opaque,
    name: *const c_char,
    feature: *const c_char,
}

type TranslateCallback = extern "C" fn(u64, *mut Opaque);
type ExecuteCallback = extern "C" fn(c_uint, *mut c_void);
type MemoryCallback = extern "C" fn(c_uint, u32, u64, *mut c_void);
type StartCallback = extern "C" fn(u64, c_uint);
type ExitCallback = extern "C" fn(u64, *mut c_void);

const CB_NO_REGS: c_int = 0;
const CB_READS_REGS: c_int = 1;
const MEM_RW: c_int = 3;

/// Declares the table of QEMU's functions and its look-up from the header's names and types.
macro_rules! api {
    (struct $table:ident { $($name:ident: $type:ty,)* }) => {
        struct $table {
            $($name: $type,)*
        }

        impl $table {
            fn look_up() -> Result<Self, String> {
                $(
                    let address = look_up(concat!(stringify!($name), "\0"));
                    if address.is_null() {
                        let name = stringify!($name);
                        return Err(format!("QEMU has no {name}; QEMU 7.2 to 10 are supported"));
                    }
                    // SAFETY: the address is that of QEMU's function of this name, whose C
                    // signature in every API version that `set_version` admits is the one declared
                    // here; a pointer to a function has the size of a pointer to data on every
                    // platform that has dlsym.
                    let $name = unsafe { std::mem::transmute::<*mut c_void, $type>(address) };
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

api! {
    struct Api {
        qemu_plugin_register_vcpu_tb_trans_cb: unsafe extern "C" fn(u64, TranslateCallback),
        qemu_plugin_register_atexit_cb: unsafe extern "C" fn(u64, ExitCallback, *mut c_void),
        qemu_plugin_register_vcpu_tb_exec_cb:
            unsafe extern "C" fn(*mut Opaque, ExecuteCallback, c_int, *mut c_void),
        qemu_plugin_register_vcpu_insn_exec_cb:
            unsafe extern "C" fn(*mut Opaque, ExecuteCallback, c_int, *mut c_void),
        qemu_plugin_register_vcpu_mem_cb:
            unsafe extern "C" fn(*mut Opaque, MemoryCallback, c_int, c_int, *mut c_void),
        qemu_plugin_tb_n_insns: unsafe extern "C" fn(*const Opaque) -> usize,
        qemu_plugin_tb_vaddr: unsafe extern "C" fn(*const Opaque) -> u64,
        qemu_plugin_tb_get_insn: unsafe extern "C" fn(*const Opaque, usize) -> *mut Opaque,
        qemu_plugin_insn_size: unsafe extern "C" fn(*const Opaque) -> usize,
        qemu_plugin_insn_vaddr: unsafe extern "C" fn(*const Opaque) -> u64,
        // Called through the signature of the version at hand; see `instruction_bytes`.
        qemu_plugin_insn_data: unsafe extern "C" fn(),
        qemu_plugin_mem_size_shift: extern "C" fn(u32) -> c_uint,
        qemu_plugin_mem_is_store: extern "C" fn(u32) -> bool,
        qemu_plugin_get_hwaddr: unsafe extern "C" fn(u32, u64) -> *mut Opaque,
        qemu_plugin_hwaddr_is_io: unsafe extern "C" fn(*const Opaque) -> bool,
        qemu_plugin_hwaddr_phys_addr: unsafe extern "C" fn(*const Opaque) -> u64,
        qemu_plugin_register_vcpu_init_cb: unsafe extern "C" fn(u64, StartCallback),
    }
}

api! {
    struct RegisterApi {
        qemu_plugin_get_registers: unsafe extern "C" fn() -> *const Array<RegisterDescriptor>,
        qemu_plugin_read_register: unsafe extern "C" fn(*mut Opaque, *mut Array<u8>) -> c_int,
        g_byte_array_new: unsafe extern "C" fn() -> *mut Array<u8>,
        g_byte_array_set_size: unsafe extern "C" fn(*mut Array<u8>, c_uint) -> *mut Array<u8>,
    }
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The address of a symbol of the process, or null.
fn look_up(name: &'static str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("names end in NUL");
    // SAFETY: a null handle is RTLD_DEFAULT, the process's global scope, where QEMU exports its
    // API; the name is a C string.
    unsafe { dlsym(ptr::null_mut(), name.as_ptr()) }
}

/// The API version that QEMU is told: the newest whose functions it has, at most 4. Written before
/// QEMU reads it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// QEMU refuses a plugin of a version it does not know (7.2 knows up to 1) or no longer takes (10
/// from 2 on), and reads the number before it calls anything, so the loader has to run this.
#[used]
#[unsafe(link_section = ".init_array")]
static SET_VERSION: extern "C" fn() = set_version;

extern "C" fn set_version() {
    let newest_first = [
        ("qemu_plugin_read_memory_vaddr\0", 4),
        ("qemu_plugin_request_time_control\0", 3),
        ("qemu_plugin_scoreboard_new\0", 2),
    ];
    let found = newest_first
        .into_iter()
        .find(|(name, _)| !look_up(name).is_null());
    qemu_plugin_version.store(found.map_or(1, |(_, version)| version), Relaxed);
}

/// The installed plugin; QEMU never unloads it.
static PLUGIN: OnceLock<Plugin> = OnceLock::new();

struct Plugin {
    api: Api,
    version: c_int,
    recorder: Recorder,
    current: Current,
    /// The registers by which vCPUs are told apart, looked up at the first block that needs them.
    gs: OnceLock<Option<GsRegisters>>,
}

/// QEMU's call when it has loaded the library: 0, or -1 with a line on stderr, upon which QEMU
/// ends.
///
/// # Safety
/// `info` points to QEMU's `qemu_info_t` and `argv` to `argc` C strings, all valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's contract; `Info` is laid out as `qemu_info_t`.
    let info = unsafe { &*info.cast::<Info>() };
    let arguments: Vec<_> = (0..argc as usize)
        .map(|index| {
            // SAFETY: `index` is below `argc`.
            let argument = unsafe { argv.add(index) };
            // SAFETY: it points to one of the `argc` pointers.
            let argument = unsafe { argument.read() };
            // SAFETY: each of them is a C string, by the caller's contract.
            unsafe { CStr::from_ptr(argument) }.to_string_lossy()
        })
        .collect();
    match install(id, info, arguments.iter().map(AsRef::as_ref)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("lab-plugin: {error}");
            -1
        }
    }
}

fn install<'a>(
    id: u64,
    info: &Info,
    arguments: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    if !info.system_emulation {
        return Err(
            "a user-mode QEMU has no physical addresses; system emulation is needed".to_owned(),
        );
    }
    let options = Options::parse(arguments)?;
    let cpus = options.machine.cpus.len();
    if cpus != info.max_vcpus as usize {
        return Err(format!(
            "cpus=: names {cpus} vCPUs, the machine has {}",
            info.max_vcpus
        ));
    }
    let api = Api::look_up()?;
    let out = File::create(&options.out)
        .map_err(|error| format!("out={}: {error}", options.out.display()))?;
    let plugin = Plugin {
        api,
        version: qemu_plugin_version.load(Relaxed),
        recorder: Recorder::new(&options.machine, Box::new(out)),
        current: Current::default(),
        gs: OnceLock::new(),
    };
    if PLUGIN.set(plugin).is_err() {
        return Err("loaded twice; one instance counts all vCPUs".to_owned());
    }
    let api = &plugin_installed().api;
    // SAFETY: `id` is what QEMU just gave this plugin, and the callback has the header's type.
    unsafe { (api.qemu_plugin_register_vcpu_tb_trans_cb)(id, translate) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_init_cb)(id, start) };
    // SAFETY: as above; no user data is needed.
    unsafe { (api.qemu_plugin_register_atexit_cb)(id, at_exit, ptr::null_mut()) };
    Ok(())
}

fn plugin_installed() -> &'static Plugin {
    PLUGIN
        .get()
        .expect("callbacks are registered after the plugin is set")
}

/// The mode of code at an address: x86-64 Linux has the kernel in the upper half.
fn mode_of(address: u64) -> Mode {
    if address >> 63 == 0 {
        Mode::User
    } else {
        Mode::Kernel
    }
}

/// User data of callbacks is a number in a pointer's place: nothing to allocate, nothing to outlive
/// a block.
fn to_data(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

/// The mode in a number's lowest bit.
fn mode_in(number: usize) -> Mode {
    if number & 1 == 0 {
        Mode::User
    } else {
        Mode::Kernel
    }
}

/// A block's number: its address, which tells it from others, then the count of instructions (QEMU
/// has at most 512 in a block) and the mode.
fn block_number(address: u64, count: usize) -> usize {
    (address as usize) << 11 | count << 1 | mode_of(address) as usize
}

fn instructions_in(block: usize) -> u64 {
    (block >> 1 & 1023) as u64
}

extern "C" fn start(_id: u64, _cpu: c_uint) {
    plugin_installed().current.start();
}

extern "C" fn translate(_id: u64, block: *mut Opaque) {
    let plugin = plugin_installed();
    let api = &plugin.api;
    // SAFETY: `block` is the handle that QEMU passes, valid during this callback; so for the calls
    // below that take it.
    let count = unsafe { (api.qemu_plugin_tb_n_insns)(block) };
    // SAFETY: as above.
    let start = unsafe { (api.qemu_plugin_tb_vaddr)(block) };
    let number = block_number(start, count);
    let reads = if plugin.current.is_shared() {
        CB_READS_REGS
    } else {
        CB_NO_REGS
    };
    plugin.current.translate(number as u64);
    // SAFETY: as above; the callback reads the data as a number.
    unsafe { (api.qemu_plugin_register_vcpu_tb_exec_cb)(block, execute, reads, to_data(number)) };
    for index in 0..count {
        // SAFETY: as above; `index` is below the number of instructions.
        let instruction = unsafe { (api.qemu_plugin_tb_get_insn)(block, index) };
        // SAFETY: the handle is valid during this callback; so for the calls below.
        let address = unsafe { (api.qemu_plugin_insn_vaddr)(instruction) };
        let data = to_data(mode_of(address) as usize);
        // SAFETY: as above; the callback reads the data as a number.
        unsafe {
            (api.qemu_plugin_register_vcpu_mem_cb)(instruction, access, CB_NO_REGS, MEM_RW, data)
        };
        if let Some(mark) = plugin
            .instruction_bytes(instruction)
            .as_ref()
            .and_then(|bytes| Mark::decode(bytes))
        {
            let data = to_data(usize::from(mark.code()));
            // SAFETY: as above.
            unsafe {
                (api.qemu_plugin_register_vcpu_insn_exec_cb)(
                    instruction,
                    execute_mark,
                    CB_NO_REGS,
                    data,
                )
            };
        }
    }
}

/// GS and KERNEL_GS_BASE, with the buffer that QEMU reads registers into.
struct GsRegisters {
    api: RegisterApi,
    /// Handles, which QEMU makes of the registers' numbers, as addresses: valid in any thread.
    handles: [usize; 2],
    buffer: Mutex<Buffer>,
}

struct Buffer(*mut Array<u8>);

// SAFETY: the array is GLib's, owned by this value alone, and bound to no thread.
unsafe impl Send for Buffer {}

impl GsRegisters {
    /// Looks the registers up; none before QEMU 9, whose callbacks name the vCPU that runs. Called
    /// by a callback of a vCPU.
    fn find() -> Option<Self> {
        let api = RegisterApi::look_up().ok()?;
        // SAFETY: called in a vCPU's callback, as QEMU demands. The array is never freed: it is
        // made once.
        let list = unsafe { (api.qemu_plugin_get_registers)() };
        // SAFETY: QEMU returns a valid `GArray`.
        let Array { data, length } = unsafe { &*list };
        // SAFETY: its data is `length` descriptors.
        let descriptors = unsafe { std::slice::from_raw_parts(*data, *length as usize) };
        let handle = |wanted: &CStr| {
            let named = |descriptor: &&RegisterDescriptor| {
                // SAFETY: names are C strings that QEMU interns.
                unsafe { CStr::from_ptr(descriptor.name) == wanted }
            };
            descriptors
                .iter()
                .find(named)
                .map(|descriptor| descriptor.handle.expose_provenance())
        };
        let handles = [handle(c"gs_base")?, handle(c"k_gs_base")?];
        // SAFETY: GLib's constructor has no conditions.
        let buffer = unsafe { (api.g_byte_array_new)() };
        Some(Self {
            api,
            handles,
            buffer: Mutex::new(Buffer(buffer)),
        })
    }

    /// The base of the kernel's per-CPU data: that of the two which lies in the upper half. The one
    /// is read first that has it unless the kernel is just being entered or left, since a read
    /// costs as much as a few accesses. Called by a callback that was registered with leave to read
    /// registers.
    fn base(&self, mode: Mode) -> Option<u64> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner).0;
        let first = match mode {
            Mode::Kernel => 0,
            Mode::User => 1,
        };
        [first, 1 - first]
            .into_iter()
            .map(|index| self.read(index, buffer))
            .find(|base| base >> 63 != 0)
    }

    /// The value of a register. `buffer` is this value's own, whose lock the caller holds.
    fn read(&self, index: usize, buffer: *mut Array<u8>) -> u64 {
        // SAFETY: the array is valid and held by the lock.
        unsafe { (self.api.g_byte_array_set_size)(buffer, 0) };
        let handle = ptr::with_exposed_provenance_mut(self.handles[index]);
        // SAFETY: the handle is QEMU's own; it appends the value to the array.
        let bytes = unsafe { (self.api.qemu_plugin_read_register)(handle, buffer) };
        assert_eq!(bytes, 8, "the register has 64 bits");
        // SAFETY: the array is valid.
        let data = unsafe { (*buffer).data };
        // SAFETY: it holds the 8 bytes just appended.
        u64::from_le_bytes(unsafe { data.cast::<[u8; 8]>().read() })
    }
}

impl Plugin {
    /// The vCPU that runs, in a callback that names `named`.
    #[inline]
    fn cpu(&self, named: c_uint) -> usize {
        if self.current.is_shared() {
            self.current.cpu()
        } else {
            named as usize
        }
    }

    /// A block starts: the vCPU that runs.
    #[inline]
    fn execute(&self, named: c_uint, block: u64) -> usize {
        if !self.current.is_shared() {
            return named as usize;
        }
        let gs = self.gs.get_or_init(GsRegisters::find).as_ref();
        match gs {
            Some(gs) => {
                self.current
                    .execute(block, named as usize, gs.base(mode_in(block as usize)))
            }
            None => self.current.follow(named as usize),
        }
    }

    /// The bytes of an instruction of a mark's length. The handle must be valid, as it is in
    /// `translate`, the only caller.
    fn instruction_bytes(&self, instruction: *const Opaque) -> Option<[u8; 8]> {
        type Pointer = unsafe extern "C" fn(*const Opaque) -> *const c_void;
        type Copy = unsafe extern "C" fn(*const Opaque, *mut c_void, usize) -> usize;
        // SAFETY: the handle is valid during the translation callback.
        if unsafe { (self.api.qemu_plugin_insn_size)(instruction) } != 8 {
            return None;
        }
        let data = self.api.qemu_plugin_insn_data;
        let mut bytes = [0; 8];
        if self.version >= 3 {
            // SAFETY: from API 3 on, this is the function's signature.
            let copy = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Copy>(data) };
            // SAFETY: the handle is valid, and the buffer takes the 8 bytes that are asked for.
            let copied = unsafe { copy(instruction, bytes.as_mut_ptr().cast(), bytes.len()) };
            (copied == bytes.len()).then_some(bytes)
        } else {
            // SAFETY: up to API 2, this is the function's signature.
            let pointer = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Pointer>(data) };
            // SAFETY: the handle is valid.
            let source = unsafe { pointer(instruction) };
            // SAFETY: QEMU keeps the instruction's 8 bytes there until the translation callback
            // returns.
            bytes = unsafe { source.cast::<[u8; 8]>().read() };
            Some(bytes)
        }
    }

    /// The handle of an address that the running access has touched, if QEMU still knows its
    /// translation.
    fn hardware_address(&self, info: u32, address: u64) -> Option<*mut Opaque> {
        // SAFETY: called from the memory callback alone, with its own `info` and an address of its
        // access.
        let handle = unsafe { (self.api.qemu_plugin_get_hwaddr)(info, address) };
        (!handle.is_null()).then_some(handle)
    }

    #[inline]
    fn access(&self, cpu: usize, info: u32, address: u64, store: bool, mode: Mode) {
        let Some(handle) = self.hardware_address(info, address) else {
            self.recorder.unknown(cpu);
            return;
        };
        // SAFETY: the handle came from `hardware_address` in this callback, and no other was asked
        // for since.
        let is_device = || unsafe { (self.api.qemu_plugin_hwaddr_is_io)(handle) };
        // A device's address may equal that of a line on API 1, whose addresses of memory are
        // offsets of blocks.
        if self.version == 1 && is_device() {
            self.recorder.unknown(cpu);
            return;
        }
        // SAFETY: as above.
        let physical = unsafe { (self.api.qemu_plugin_hwaddr_phys_addr)(handle) };
        self.recorder.access(
            &Access {
                cpu,
                physical,
                linear: address,
                store,
                mode,
            },
            is_device,
        );
    }
}

extern "C" fn access(cpu: c_uint, info: u32, address: u64, data: *mut c_void) {
    /// TCG accesses vectors in pieces of 16 bytes at most; an access this far from the line's end
    /// needs no look at its size.
    const BYTES_MAX: u64 = 16;
    let plugin = plugin_installed();
    let (cpu, mode) = (plugin.cpu(cpu), mode_in(data.addr()));
    let store = (plugin.api.qemu_plugin_mem_is_store)(info);
    plugin.access(cpu, info, address, store, mode);
    let line_bytes = plugin.recorder.line_bytes();
    let left = line_bytes - (address & (line_bytes - 1));
    if left < BYTES_MAX && left < 1 << (plugin.api.qemu_plugin_mem_size_shift)(info) {
        plugin.access(cpu, info, address + left, store, mode);
    }
}

extern "C" fn execute(cpu: c_uint, data: *mut c_void) {
    let (plugin, number) = (plugin_installed(), data.addr());
    let cpu = plugin.execute(cpu, number as u64);
    plugin
        .recorder
        .instructions(cpu, instructions_in(number), mode_in(number));
}

extern "C" fn execute_mark(cpu: c_uint, data: *mut c_void) {
    let mark = u8::try_from(data.addr())
        .ok()
        .and_then(Mark::from_code)
        .expect("`translate` passes a mark's code");
    let plugin = plugin_installed();
    if let Err(error) = plugin.recorder.mark(plugin.cpu(cpu), mark) {
        eprintln!("lab-plugin: an interval could not be written: {error}");
    }
}

extern "C" fn at_exit(_id: u64, _data: *mut c_void) {
    match plugin_installed().recorder.finish() {
        Ok(None) => {}
        Ok(Some(region)) => eprintln!(
            "lab-plugin: region {region} was still open at the end: its last interval is not \
             written"
        ),
        Err(error) => eprintln!("lab-plugin: the counts could not be written: {error}"),
    }
}
