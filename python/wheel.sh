#!/usr/bin/env bash
# Builds the wheel: the Python module, and the command with the preload library that it embeds.
# Needs Rust and maturin.
#
#   python/wheel.sh DIR [PROFILE]     into the folder DIR; PROFILE is release [default] or dev
#
# HITHER_COMMAND names a command that is built already.
set -euo pipefail
out="$(realpath -m "${1:?usage: python/wheel.sh DIR [PROFILE]}")"
profile="${2:-release}"
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/../target}"
command="${HITHER_COMMAND:-}"
if [ -z "$command" ]; then
  cargo build --quiet --locked --profile "$profile" --package hither
  command="$target/${profile/dev/debug}/hither"
fi
install -D --strip "$command" hither.data/scripts/hither
maturin build --quiet --locked --profile "$profile" --strip --compatibility manylinux_2_35 --out "$out"
