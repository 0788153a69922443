"""The report page of a trace that is as bad for it as can be thought of: references at random in
time and place, each by another of many call sites, of many threads of many processes, to many
files, all with long names that have to be escaped.

    python crates/hither/tests/browser/worst.py target/release/hither --work /tmp/worst \\
        [--references 10000000]

needs the `numpy`, `pyarrow` and `playwright` packages and Debian's chromium; prints how large
the page is and how long it takes to load. Not a part of the tests: it takes minutes and gigabytes.
"""

import argparse
import json
import resource
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from playwright.sync_api import sync_playwright

SITES, FILES, BLOCKS, PROCESSES, THREADS = 20_000, 20_000, 150, 3_000, 30_000
# A quotation mark, a backslash and a control character take two bytes and six in JSON; `<` takes
# six on the page.
LONG = '<"\\\x01é</script>' * 300


def name(kind: str, number: int, length: int) -> str:
    return f"{kind}{number}::{LONG}"[:length]


def make(folder: Path, references: int) -> None:
    random = np.random.default_rng(1)
    folder.mkdir(parents=True)
    numbers = lambda below: random.integers(0, below, references, dtype=np.uint32)
    thread = numbers(THREADS)
    every = np.arange(references, dtype=np.uint64)
    # Half of it with a few sites and files that most is of, as programs are; the rest is spread
    # over all.
    skewed = lambda below: np.where(
        random.random(references) < 0.5,
        (below * random.random(references) ** 8).astype(np.uint32),
        numbers(below),
    )
    zero = np.zeros(references, dtype=np.uint32)
    accesses = {
        "tick": every,
        "time_ns": every * 1000,
        "process": thread % PROCESSES,
        "thread": thread,
        "node": zero,
        "site": 1 + skewed(SITES),
        "object": skewed(FILES),
        "op": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(references, dtype=np.int32)), ["read"]
        ),
        "in_kernel": np.zeros(references, dtype=bool),
        "offset": numbers(BLOCKS).astype(np.uint64) * 4096,
        "length": np.full(references, 4096, dtype=np.uint64),
        "count": zero + np.uint32(1),
    }
    pq.write_table(pa.table(accesses), folder / "accesses.parquet")
    number = np.arange(FILES, dtype=np.uint32)
    objects = {
        "object": number,
        "kind": ["file"] * FILES,
        "path": [name("/", file, 4000) for file in range(FILES)],
        "path_bytes": pa.array([None] * FILES, pa.binary()),
        "device": number.astype(np.uint64),
        "inode": number.astype(np.uint64),
        "size": np.full(FILES, BLOCKS * 4096, dtype=np.uint64),
        "first_seen_ns": number.astype(np.uint64),
        "last_seen_ns": number.astype(np.uint64),
    }
    pq.write_table(pa.table(objects), folder / "objects.parquet")
    frame = pa.struct(
        [
            ("module", pa.string()),
            ("build_id", pa.string()),
            ("offset", pa.uint64()),
            ("function", pa.string()),
            ("file", pa.string()),
            ("line", pa.uint32()),
        ]
    )
    frames = [[]] + [
        [
            {
                "module": name("/lib", site, 200),
                "build_id": "",
                "offset": site,
                "function": name("f", site, 1000),
                "file": name("/src", site, 500),
                "line": site,
            }
        ]
        for site in range(SITES)
    ]
    none = lambda values: [None, *values]
    sites = {
        "site": np.arange(SITES + 1, dtype=np.uint32),
        "signature": np.arange(SITES + 1, dtype=np.uint64),
        "truncated": [False] * (SITES + 1),
        "function": none(name("f", site, 1000) for site in range(SITES)),
        "file": none(name("/src", site, 500) for site in range(SITES)),
        "line": pa.array(none(range(SITES)), pa.uint32()),
        "module": none(name("/lib", site, 200) for site in range(SITES)),
        "frames": pa.array(frames, pa.list_(frame)),
    }
    pq.write_table(pa.table(sites), folder / "sites.parquet")
    (folder / "meta.json").write_text(
        json.dumps(
            {
                "format": 1,
                "hither": "0",
                "command": [LONG] * 20,
                "processes": [
                    {
                        "process": process,
                        "pid": process + 1,
                        "parent_pid": 0,
                        "exe": name("/bin/", process, 1000),
                        "command": [name("run", process, 4000)],
                    }
                    for process in range(PROCESSES)
                ],
                "threads": [
                    {"thread": thread, "process": thread % PROCESSES, "tid": thread + 1}
                    for thread in range(THREADS)
                ],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hither", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for trace and pages")
    parser.add_argument("--references", type=int, default=10_000_000)
    asked = parser.parse_args()
    trace = asked.work / "worst.hither"
    if not trace.exists():
        make(trace, asked.references)
    policies = (
        ",".join(f"pcc{{threshold={threshold}}}" for threshold in range(96, 98))
        + ",lru,arc,ubm,opt"
    )
    for title, traces, options in [
        ("one", [trace], ["-p", policies, "--points", "20"]),
        ("two", [trace, trace], []),
    ]:
        page = asked.work / f"{title}.html"
        start = time.monotonic()
        subprocess.run(
            [asked.hither.resolve(), "-q", "report", *traces, *options, "-o", page], check=True
        )
        made_s = time.monotonic() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            loaded = []
            for _ in range(3):
                tab = browser.new_page()
                start = time.monotonic()
                tab.goto(page.resolve().as_uri())
                tab.wait_for_function(
                    "document.documentElement.dataset.ready === 'true'", timeout=120_000
                )
                loaded.append(time.monotonic() - start)
                tab.close()
            browser.close()
        size = page.stat().st_size
        print(
            f"{title}: {size:,} bytes, made in {made_s:.0f} s with {peak >> 10:,} MiB, "
            f"loaded in {', '.join(f'{took:.2f}' for took in loaded)} s",
            flush=True,
        )
        assert size < 10 << 20


if __name__ == "__main__":
    main()
