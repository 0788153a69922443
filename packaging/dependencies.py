#!/usr/bin/env python3
"""Checks the crates that hither is made of against deny.toml, without a network: licences, sources,
bans, and, where a copy of RustSec's database lies, advisories.

    packaging/dependencies.py                            licences, sources, bans
    packaging/dependencies.py --advisories FOLDER        and advisories; FOLDER has crates/*/*.md

`cargo deny check` does the same and more (crates that were taken back, texts of licences), but has
to be compiled, and fetches the database itself. deny.toml is the one list of rules for both.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"


def crates() -> tuple[list[dict], set[str]]:
    """All crates that the workspace is made of, and the names of those that it names itself. Those
    of tests and benches alone are left out, those that run while it is built are not."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    command += ["--filter-platform", TARGET]
    metadata = json.loads(
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    found: set[str] = set()
    named: set[str] = set()
    todo = list(members)
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.add(one)
        for used in nodes[one]["deps"]:
            if any(kind["kind"] != "dev" for kind in used["dep_kinds"]):
                todo.append(used["pkg"])
                if one in members:
                    named.add(packages[used["pkg"]]["name"])
    return [packages[one] for one in sorted(found)], named


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression leaves a way by allowed licences alone.

    >>> is_allowed("MIT OR GPL-3.0", {"MIT"}), is_allowed("MIT AND GPL-3.0", {"MIT"})
    (True, False)
    >>> is_allowed("(MIT OR GPL-3.0) AND ISC WITH exception", {"MIT", "ISC WITH exception"})
    True
    >>> is_allowed("MIT/Apache-2.0", {"Apache-2.0"}), is_allowed("", {"MIT"})
    (True, False)
    """
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def alternatives() -> bool:
        result = conjunction()
        while words and words[0] == "OR":
            words.pop(0)
            # Both sides are read, whatever the first one says.
            result = conjunction() or result
        return result

    def conjunction() -> bool:
        result = licence()
        while words and words[0] == "AND":
            words.pop(0)
            result = licence() and result
        return result

    def licence() -> bool:
        word = words.pop(0)
        if word == "(":
            result = alternatives()
            words.pop(0)
            return result
        if words and words[0] == "WITH":
            word = f"{word} WITH {words[1]}"
            del words[:2]
        return word in allowed

    return bool(words) and alternatives()


def number(version: str) -> tuple[tuple[int, ...], str]:
    """The three numbers of a version, and what stands after the hyphen."""
    plain, _, before = version.strip().partition("+")[0].partition("-")
    numbers = [int(part) for part in plain.split(".")]
    return tuple(numbers + [0] * (3 - len(numbers))), before


def key(version: str) -> tuple:
    """What orders versions: one with a hyphen is before the one without."""
    numbers, before = number(version)
    return numbers, not before, before


def matches(version: str, requirement: str) -> bool:
    """Whether a version is one of a requirement of Cargo.

    >>> matches("1.18.5", ">= 1.18.4, < 1.19.0"), matches("1.19.0", ">= 1.18.4, < 1.19.0")
    (True, False)
    >>> matches("1.9.0", "^1.2"), matches("2.0.0", "1.2"), matches("0.3.0", "0.2.1")
    (True, False, False)
    >>> matches("1.2.9", "~1.2.3"), matches("1.3.0", "~1.2.3"), matches("0.0.4", "^0.0.3")
    (True, False, False)
    >>> matches("1.0.0-rc.2", ">= 1.0.0-rc.1"), matches("1.0.0-rc.1", ">= 1.0.0")
    (True, False)
    """
    return all(matches_part(version, part) for part in requirement.split(","))


def matches_part(version: str, part: str) -> bool:
    operator, than = re.fullmatch(r"\s*([<>=^~]*)\s*(\S+)\s*", part).groups()
    if than == "*":
        return True
    here, there = key(version), key(than)
    if operator in ("<", "<=", ">", ">=", "="):
        return {
            "<": here < there, "<=": here <= there, ">": here > there, ">=": here >= there,
            "=": here == there,
        }[operator]
    # `^` and nothing: up to the next change of the first number that is not 0. `~`: of the second.
    written = than.partition("-")[0].split(".")
    numbers = there[0]
    if operator == "~":
        fixed = min(len(written), 2)
    else:
        fixed = next((at + 1 for at, part in enumerate(numbers) if part), len(written))
    return here >= there and here[0][:fixed] == numbers[:fixed]


def advisories(folder: Path, packages: list[dict], named: set[str], ignored: set[str]):
    """Pairs of a severity and a message. The last one says how new the database is."""
    versions: dict[str, list[str]] = {}
    for package in packages:
        if package["source"]:
            versions.setdefault(package["name"], []).append(package["version"])
    paths = sorted(folder.glob("crates/*/RUSTSEC-*.md"))
    if not paths:
        sys.exit(f"{folder}: no crates/*/RUSTSEC-*.md: not the database of RustSec")
    newest = ""
    for path in paths:
        text = path.read_text()
        about = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.S)[1])
        advisory, affected = about["advisory"], about.get("affected", {})
        newest = max(newest, advisory["date"])
        if advisory.get("withdrawn") or advisory["id"] in ignored:
            continue
        if "linux" not in affected.get("os", ["linux"]):
            continue
        if "x86_64" not in affected.get("arch", ["x86_64"]):
            continue
        safe = about["versions"].get("patched", []) + about["versions"].get("unaffected", [])
        for version in versions.get(advisory["package"], []):
            if any(matches(version, requirement) for requirement in safe):
                continue
            kind = advisory.get("informational", "vulnerability")
            is_error = kind == "vulnerability" or (
                kind == "unmaintained" and advisory["package"] in named
            )
            title = re.search(r"^# (.*)$", text, re.M)
            message = f"{advisory['package']} {version}: {advisory['id']} ({kind}): {title[1]}"
            yield ("error" if is_error else "note"), message
    yield "note", f"{len(paths)} advisories, the newest of {newest}"


def check(rules: dict, packages: list[dict], named: set[str], database: Path | None):
    """Pairs of a severity and a message."""
    allowed = set(rules["licenses"]["allow"])
    exceptions = {
        one["crate"]: set(one["allow"]) for one in rules["licenses"].get("exceptions", [])
    }
    banned = {one["name"]: one["reason"] for one in rules["bans"]["deny"]}
    registries = {f"registry+{address}" for address in rules["sources"]["allow-registry"]}
    for package in packages:
        name, source = package["name"], package["source"]
        full = f"{name} {package['version']}"
        if not is_allowed(package["license"] or "", allowed | exceptions.get(name, set())):
            yield "error", f"{full}: licence {package['license'] or 'unknown'}"
        if name in banned:
            yield "error", f"{full}: banned: {banned[name]}"
        if source and source not in registries:
            yield "error", f"{full}: from {source}"
        for used in package["dependencies"] if not source else []:
            if used["req"] == "*" and not used.get("path"):
                yield "error", f"{full}: any version of {used['name']}"
    if database:
        ignored = {
            one if isinstance(one, str) else one["id"]
            for one in rules["advisories"].get("ignore", [])
        }
        yield from advisories(database, packages, named, ignored)
    else:
        yield "note", "advisories were not checked: no --advisories"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--advisories", type=Path, help="a copy of RustSec's advisory-db")
    options = parser.parse_args()
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    packages, named = crates()
    failed = 0
    for severity, message in check(rules, packages, named, options.advisories):
        print(f"{severity}: {message}")
        failed += severity == "error"
    print(f"{len(packages)} crates: {failed} errors")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
