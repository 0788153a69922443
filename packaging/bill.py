#!/usr/bin/env python3
"""What the command is made of: a bill of materials, and the licences of all of it.

    packaging/bill.py sbom TARGET > hither.cdx.json        CycloneDX 1.5
    packaging/bill.py licences TARGET > THIRD-PARTY.txt    the texts, each once

TARGET is rustc's name of what the command is for. Both come from `cargo metadata` and Cargo.lock:
the crates that are linked into the command and into the preload libraries that it embeds. Crates
that only run while it is built are left out. The C sources of zstd, xz and ring come in crates
(zstd-sys, liblzma-sys, ring) and stand there.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import time
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOTS = ("hither", "hither-preload-record", "hither-preload-pages")
LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "UNLICENSE", "NOTICE")


class Bill:
    """The crates, by their ids in `cargo metadata`."""

    def __init__(self, target: str) -> None:
        command = ["cargo", "metadata", "--format-version", "1", "--locked"]
        command += ["--filter-platform", target]
        text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        metadata = json.loads(text)
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        self.uses: dict[str, list[str]] = {}
        todo = [one for one, package in packages.items() if package["name"] in ROOTS]
        while todo:
            one = todo.pop()
            if one in self.uses:
                continue
            linked = [
                used["pkg"]
                for used in nodes[one]["deps"]
                if any(kind["kind"] is None for kind in used["dep_kinds"])
                and not runs_in_the_compiler(packages[used["pkg"]])
            ]
            self.uses[one] = linked
            todo += linked
        by_name = sorted(self.uses, key=lambda one: name_of(packages[one]))
        self.packages = {one: packages[one] for one in by_name}
        self.version = next(
            package["version"] for package in packages.values() if package["name"] == "hither"
        )


def runs_in_the_compiler(package: dict) -> bool:
    return any("proc-macro" in target["kind"] for target in package["targets"])


def name_of(package: dict) -> tuple[str, str]:
    return package["name"], package["version"]


def purl(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def expression(package: dict) -> str:
    """The licence as SPDX writes it: older crates have a slash for OR."""
    return (package["license"] or "").replace(" / ", " OR ").replace("/", " OR ")


def sbom(bill: Bill) -> str:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {name_of(package): package.get("checksum") for package in lock["package"]}
    components = []
    for package in bill.packages.values():
        component = {
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "licenses": [{"expression": expression(package)}],
        }
        if checksum := sums.get(name_of(package)):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    dependencies = [
        {
            "ref": purl(package),
            "dependsOn": sorted({purl(bill.packages[used]) for used in bill.uses[one]}),
        }
        for one, package in bill.packages.items()
    ]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    content = json.dumps([components, dependencies])
    root = next(part for part in components if part["name"] == "hither")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {**root, "type": "application"},
        },
        "components": [part for part in components if part is not root],
        "dependencies": dependencies,
    }
    return json.dumps(document, indent=1) + "\n"


def licences(bill: Bill) -> str:
    """A list of the crates with their licences, and after it each text with who has it."""
    others = [package for package in bill.packages.values() if package["source"]]
    width = max(len(" ".join(name_of(package))) for package in others)
    lines = [f"{' '.join(name_of(one)):{width}}  {expression(one)}" for one in others]
    texts: dict[str, list[str]] = collections.defaultdict(list)
    for package in others:
        folder = Path(package["manifest_path"]).parent
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.upper().startswith(LICENCE_FILES):
                text = path.read_text(errors="replace").replace("\r\n", "\n").strip()
                texts[text].append(f"{package['name']} {package['version']}")
    parts = [
        "hither is made of these crates, too, under these licences. Their texts follow.\n",
        "\n".join(lines),
    ]
    rule = "-" * 100
    for text, names in texts.items():
        parts.append(f"{rule}\n{', '.join(names)}:\n\n{text}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["sbom", "licences"])
    parser.add_argument("target", metavar="TARGET")
    arguments = parser.parse_args()
    make = {"sbom": sbom, "licences": licences}[arguments.what]
    sys.stdout.write(make(Bill(arguments.target)))


if __name__ == "__main__":
    main()
