#!/usr/bin/env bash
# Builds the wheel: the Python module, and the command with the preload library that it embeds.
# Needs Rust, and Python 3.11 or later.
#
#   python/wheel.sh DIR [PROFILE]     into the folder DIR; PROFILE is release [default] or dev
#
# HITHER_COMMAND and HITHER_MODULE name a command and a module (lib_hither.so) that are built
# already. Those that are not are built in one call of cargo: see wheel.py.
set -euo pipefail
out="$(realpath -m "${1:?usage: python/wheel.sh DIR [PROFILE]}")"
profile="${2:-release}"
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/../target}/${profile/dev/debug}"
if [ -z "${HITHER_COMMAND:-}" ] || [ -z "${HITHER_MODULE:-}" ]; then
  cargo build --quiet --locked --profile "$profile" --package hither --package hither-py
fi
stripped="$(mktemp -d)"
trap 'rm -rf "$stripped"' EXIT
strip --strip-all -o "$stripped/hither" "${HITHER_COMMAND:-$target/hither}"
strip --strip-all -o "$stripped/module.so" "${HITHER_MODULE:-$target/lib_hither.so}"
./wheel.py "$out" --command "$stripped/hither" --module "$stripped/module.so"
