"""What the browser tests work with: a folder of traces and their pages, a page that is open, and
numbers as the page writes them.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    sys.exit(print("skipped: no pyarrow"))

EVIL = (
    "<img src=x onerror=\"document.title='owned'\">\n'&</script><script>document.title='owned'<!--"
)

# Scans a file in three ways that share their innermost frames.
READER = """#include <fcntl.h>
#include <unistd.h>
#define KEEP __attribute__((noinline))
static char b[65536];
KEEP int get(int f, int n) { return read(f, b, n) + 1; }
KEEP int fill_buffer(int f) { return get(f, 65536) + 1; }
KEEP int scan_table(int f) {
    int sum = 0;
    lseek(f, 0, SEEK_SET);
    for (int i = 0; i < 256; i++) sum += fill_buffer(f);
    return sum;
}
KEEP int load_index(int f) {
    int sum = 0;
    for (int i = 0; i < 300; i++) {
        lseek(f, i * 7919 % 4096 * 4096, SEEK_SET);
        sum += get(f, 4096);
    }
    return sum;
}
KEEP int query(int f) { return scan_table(f) + load_index(f); }
KEEP int backup(int f) { return scan_table(f) + 1; }
int main(void) {
    int f = open("large", O_RDONLY), sum = 0;
    for (int i = 0; i < 6; i++) sum += query(f);
    return (sum + backup(f)) & 0;
}
"""


class Lab:
    """A folder with traces and their pages."""

    def __init__(self, hither, folder):
        self.hither = str(Path(hither).resolve())
        self.folder = folder

    def run(self, *arguments, **more):
        return subprocess.run(
            [self.hither, *arguments], cwd=self.folder, check=True, capture_output=True, **more
        ).stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def record(self, name, *command):
        self.run("record", "-q", "-o", name, "--", *command)

    def poisoned(self, source):
        """A copy of a trace in which each name, the folder's too, tries to be markup."""
        target = self.folder / f"{EVIL.replace('/', chr(0x2215))}.hither"
        shutil.copytree(self.folder / source, target)
        for table, columns in {
            "sites": ["function", "file", "module"],
            "objects": ["path"],
        }.items():
            found = pq.read_table(target / f"{table}.parquet")
            rows = found.to_pylist()
            for number, row in enumerate(rows):
                evil = {column: f"{EVIL}{number}" for column in columns}
                for frame in row.get("frames", []):
                    frame |= evil
                row |= evil
            pq.write_table(pa.Table.from_pylist(rows, found.schema), target / f"{table}.parquet")
        meta = json.loads((target / "meta.json").read_text())
        meta["command"] = [EVIL, "x"]
        meta["machine"] |= {"host": EVIL, "kernel": EVIL}
        for process in meta["processes"]:
            process |= {"exe": f"/bin/{EVIL}", "command": [EVIL]}
        meta["losses"]["not_recorded"] = [{"path": EVIL, "reason": EVIL, "count": 1}]
        (target / "meta.json").write_text(json.dumps(meta))
        return target.name

    def cramped(self, source):
        """A copy of a trace whose files did not fit into the memory that was left."""
        target = self.folder / f"cramped-{source}"
        shutil.copytree(self.folder / source, target)
        meta = json.loads((target / "meta.json").read_text())
        meta["seen"]["memory_left_bytes"] = 10 << 20
        (target / "meta.json").write_text(json.dumps(meta))
        return target.name

    def page(self, name, *arguments):
        self.run("report", "-q", *arguments, "-o", name)
        path = self.folder / name
        print(f"{name}: {path.stat().st_size:,} bytes")
        assert path.stat().st_size < 10 << 20
        return path.as_uri()


def count(number):
    return f"{round(number):,}"


def percent(share):
    return "<0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def size(number):
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if number < 1024 or unit == "GiB":
            return f"{round(number)} B" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024


class Page:
    """A page that is open; everything that it says or asks for is kept."""

    def __init__(self, browser, url, **options):
        self.said, self.asked = [], []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        start = time.monotonic()
        self.page.goto(url)
        self.page.wait_for_function("document.documentElement.dataset.ready === 'true'")
        self.loaded_s = time.monotonic() - start
        self.quiet(url)

    def quiet(self, url=None):
        assert self.said == [], self.said
        others = [
            asked
            for asked in self.asked
            if not asked.startswith(("data:", "file:")) or asked.endswith(("x", "0"))
        ]
        assert others == [], others

    def __getattr__(self, name):
        return getattr(self.page, name)

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def rows(self, section):
        """The rows of its table, without the details of the chosen one."""
        return self.page.locator(f"#{section} tbody tr[data-row]")

    def cells(self, section, row):
        return self.rows(section).nth(row).locator("td").all_inner_texts()

    def view(self):
        return [
            int(part)
            for part in self.page.locator("#picture .body").get_attribute("data-view").split(",")
        ]

    def settled(self):
        """After what was asked for has been drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def ink(self):
        """The pixels of the picture, as a text."""
        self.settled()
        return self.page.evaluate("() => document.querySelector('.plane canvas').toDataURL()")


def duration(ns):
    scale, unit = next(
        (
            (least, unit)
            for least, unit in [(1e9, "s"), (1e6, "ms"), (1e3, "µs")]
            if ns >= least * 0.9995
        ),
        (1, "ns"),
    )
    value = ns / scale
    if value >= 999.5:
        return f"{value:,.0f} {unit}"
    return f"{value:.{0 if value == 0 or value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def counted(number, noun):
    plural = (
        f"{noun}es"
        if noun.endswith("s")
        else f"{noun[:-1]}ies"
        if noun.endswith("y")
        else f"{noun}s"
    )
    return f"{count(number)} {noun if number == 1 else plural}"
