//! x86-64.

/// What glibc makes of [`TOKEN`](crate::preload::TOKEN): what the kernel says, or its own name for
/// the processor (`init_cpu_features`). All but the first are other names of one folder.
pub const PLATFORMS: [&str; 3] = ["x86_64", "haswell", "xeon_phi"];

/// `e_machine` of the programs that can load the library.
pub const ELF_MACHINE: u16 = libc::EM_X86_64;
