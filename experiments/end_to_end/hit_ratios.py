#!/usr/bin/env python3
"""Hit ratios of the replacement policies on programs recorded here, and how each classifier
classifies their accesses.

Records cscope (queries over an index of a kernel source tree, in one session), gcc (a build of a
part of that kernel), passes of grep over a part of the tree, and cscope and gcc at the same time
(the paper's multi1). Simulates lru, arc, dear, ubm, pcc and opt at five cache sizes. Prints both
tables in Markdown (PCC paper, figures 10 and 11).

Needs: cscope, gcc, make, flex, bison, bc (Debian packages), and an unpacked Linux source tree in
which it may build.

    python3 hit_ratios.py --hither target/release/hither --tree /tmp/linux-source-6.1 --work \\
        /tmp/hit_ratios
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

POLICIES = ["lru", "arc", "dear", "ubm", "pcc", "opt"]
SIZES = ["5%", "10%", "25%", "50%", "75%"]
FOLDERS = ["block", "fs", "include", "ipc", "kernel", "lib", "mm", "net"]
QUERIES = (
    "0vfs_read\n1kmalloc\n3schedule\n0page_cache_alloc\n3mutex_lock\n"
    "0EXPORT_SYMBOL_GPL\n2tcp_sendmsg\n0readahead\nq\n"
)


def prepare(tree: Path, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / "queries").write_text(QUERIES)
    if not (tree / ".config").exists():
        subprocess.run(["make", "-s", "tinyconfig"], cwd=tree, check=True)
    subprocess.run(["make", "-s", "prepare"], cwd=tree, check=True)
    if not (work / "cscope.out").exists():
        sources = [
            str(path.relative_to(tree))
            for folder in FOLDERS
            for path in sorted((tree / folder).rglob("*.[chS]"))
        ]
        (work / "cscope.files").write_text("\n".join(sources) + "\n")
        subprocess.run(
            ["cscope", "-b", "-k", "-i", work / "cscope.files", "-f", work / "cscope.out"],
            cwd=tree,
            check=True,
            stderr=subprocess.DEVNULL,
        )


def workloads(tree: Path, work: Path) -> dict[str, str]:
    cscope = f"cscope -dl -f {work}/cscope.out < {work}/queries > /dev/null"
    gcc = f"make -s -j1 mm/ lib/ > /dev/null"
    return {
        "cscope": f"cd {tree} && {cscope}",
        "gcc": f"cd {tree} && {gcc}",
        "grep": f"cd {tree} && for word in printk kmalloc spin_lock; do grep -rc $word fs > "
        f"/dev/null; done",
        "multi1": f"cd {tree} && {{ {cscope} & {gcc} & wait; }}",
    }


def clean(tree: Path) -> None:
    for folder in ("mm", "lib"):
        for path in (tree / folder).rglob("*"):
            if path.suffix in (".o", ".a", ".cmd") or path.name.startswith("."):
                path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--tree", type=Path, required=True, help="a Linux source tree that may be built in"
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the index and the traces"
    )
    parser.add_argument("--only", action="append", help="run only these workloads")
    parser.add_argument("--pcc", default="pcc", help="the pcc spec to use, such as pcc{expire=0}")
    arguments = parser.parse_args()
    tree, work, hither = (
        arguments.tree.resolve(),
        arguments.work.resolve(),
        arguments.hither.resolve(),
    )
    os.environ["LC_ALL"] = "C"
    prepare(tree, work)
    policies = [arguments.pcc if policy == "pcc" else policy for policy in POLICIES]
    shares = []
    for name, command in workloads(tree, work).items():
        if arguments.only and name not in arguments.only:
            continue
        trace = work / f"{name}.hither"
        if not trace.exists():
            clean(tree)
            record = [hither, "--quiet", "record", "--seen-by=library", "-o", trace, "--"]
            subprocess.run([*record, "/bin/sh", "-c", command], check=True)
        sizes = [argument for size in SIZES for argument in ("--size", size)]
        chosen = [argument for policy in policies for argument in ("--policy", policy)]
        run = [hither, "--quiet", "sim", trace, *chosen, *sizes, "--json"]
        document = json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)
        about, results = document["trace"], document["results"]
        print(
            f"\n**{name}**: {about['references']:,} references to "
            f"{about['distinct_blocks']:,} blocks\n"
        )
        blocks = list(dict.fromkeys(row["cache_blocks"] for row in results))
        print(
            "| policy | "
            + " | ".join(f"{size} ({b * 4096 / 2**20:.1f} MiB)" for size, b in zip(SIZES, blocks))
            + " |"
        )
        print("|---|" + "--:|" * len(blocks))
        for policy in POLICIES:
            ratios = [row["hit_ratio"] for row in results if row["policy"] == policy]
            print(
                f"| {policy} | " + " | ".join(f"{100 * ratio:.1f} %" for ratio in ratios) + " |",
                flush=True,
            )
        for policy in ("dear", "ubm", "pcc"):
            classes = next(row["classes"] for row in results if row["policy"] == policy)
            total = sum(classes.values()) or 1
            shares.append(
                (
                    name,
                    policy,
                    *(100 * classes[c] / total for c in ("sequential", "looping", "other")),
                )
            )
    print("\n| trace | classifier | sequential | looping | other |\n|---|---|--:|--:|--:|")
    for name, policy, *parts in shares:
        print(f"| {name} | {policy} | " + " | ".join(f"{part:.1f} %" for part in parts) + " |")


if __name__ == "__main__":
    main()
