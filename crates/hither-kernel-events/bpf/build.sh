#!/usr/bin/env bash
# Compiles the programs into the objects that are committed beside them, or into the folder $1, one
# for each processor. They do not depend on where they are built. Needs Debian 12's clang and llvm
# (14.0.6): another version makes other bytes.
set -euo pipefail
cd "$(dirname "$0")"
to="${1:-.}"
for source in *.bpf.c; do
  for processor in x86_64 arm64; do
    object="$to/${source%.bpf.c}.$processor.bpf.o"
    clang -target bpfel -mcpu=v3 -O2 -g -Wall -Werror -fdebug-compilation-dir=. \
      -D "ARCH=\"arch_$processor.h\"" -c "$source" -o "$object"
    # DWARF goes, BTF stays. No loader needs its relocations.
    llvm-objcopy -g -R .rel.BTF -R .rel.BTF.ext -R .llvm_addrsig "$object"
  done
done
