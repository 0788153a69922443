# Sourced by scripts that build for arm64 on a machine with another processor: has cargo compile and
# link by clang, and run tests by QEMU.
#
# Needs `rustup target add aarch64-unknown-linux-gnu`, and of Debian clang, qemu-user,
# binutils-aarch64-linux-gnu, libc6-dev-arm64-cross and libgcc-12-dev-arm64-cross. They exclude
# nothing, while Debian's own cross compiler, gcc-aarch64-linux-gnu, excludes gcc-multilib, which
# .ci/run needs.
#
# shellcheck shell=bash disable=SC2034
cross_target=aarch64-unknown-linux-gnu
# What programs of binutils are called, before their names.
cross_prefix=aarch64-linux-gnu-
cross_compiler="$(realpath "${BASH_SOURCE[0]%/*}")/${cross_prefix}clang"
cross_runner=qemu-aarch64
# Where the C library is, also for programs that a program starts.
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$cross_compiler"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$cross_runner"
export CC_aarch64_unknown_linux_gnu="$cross_compiler"
export AR_aarch64_unknown_linux_gnu="${cross_prefix}ar"
