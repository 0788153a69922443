#!/usr/bin/env python3
"""Packs the wheel of a command and a Python module that are built already.

    python/wheel.py DIR --command target/release/hither --module target/release/lib_hither.so

--processor names the one that both are for, if it is not this machine's.

maturin would build the module again: it asks cargo for the module's crate alone, whose dependencies
then have other features than beside the command, so nearly all of them are compiled once more. The
metadata come from pyproject.toml and Cargo.toml, as maturin takes them. Equal files give an equal
wheel: the times in it are SOURCE_DATE_EPOCH.
"""

import argparse
import base64
import hashlib
import os
import platform
import sys
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the module is linked for: `abi3-py310` of pyo3, and the glibc that packages promise. The
# processor comes behind it.
TAG = "cp310-abi3-manylinux_2_35_"


def metadata(project: dict, version: str) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']['text']}",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        f"Requires-Python: {project['requires-python']}",
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {one} ; extra == '{extra}'" for one in needs]
    return "\n".join(lines) + "\n"


def entry_points(project: dict) -> str:
    parts = []
    for group, entries in project["entry-points"].items():
        parts.append(f"[{group}]")
        parts += [f"{name}={target}" for name, target in entries.items()]
    return "\n".join(parts) + "\n"


def contents(command: Path, module: Path, tag: str) -> tuple[str, dict[str, bytes]]:
    """The wheel's name, and its files by their paths in it."""
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    known = {"description", "dynamic", "entry-points", "license", "name"}
    known |= {"optional-dependencies", "requires-python"}
    if unknown := set(project) - known:
        sys.exit(f"wheel.py does not know these keys of pyproject.toml: {sorted(unknown)}")
    name = f"{project['name']}-{version}"
    info = f"{name}.dist-info"
    sources = ROOT / "python/src"
    files = {
        str(path.relative_to(sources)): path.read_bytes()
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    files["hither/_hither.abi3.so"] = module.read_bytes()
    files[f"{name}.data/scripts/hither"] = command.read_bytes()
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{info}/licenses/{licence}"] = (ROOT / licence).read_bytes()
    files[f"{info}/METADATA"] = metadata(project, version).encode()
    files[f"{info}/entry_points.txt"] = entry_points(project).encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: hither\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = wheel.encode()
    record = []
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}\n")
    record.append(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = "".join(record).encode()
    return f"{name}-{tag}.whl", files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--command", type=Path, required=True, help="the command, stripped")
    parser.add_argument("--module", type=Path, required=True, help="the module, stripped")
    parser.add_argument("--processor", default=platform.machine(), help="such as aarch64")
    arguments = parser.parse_args()
    name, files = contents(arguments.command, arguments.module, TAG + arguments.processor)
    # A zip knows no time before 1980.
    epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315_532_800)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    partial = arguments.folder / f".{name}.partial"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        # By the format's advice, RECORD and its like come last.
        for path in sorted(files, key=lambda path: (".dist-info/" in path, path)):
            entry = zipfile.ZipInfo(path, time.gmtime(epoch)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            is_program = "/scripts/" in path or path.endswith(".so")
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            wheel.writestr(entry, files[path], compresslevel=9)
    partial.rename(arguments.folder / name)


if __name__ == "__main__":
    main()
