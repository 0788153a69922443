"""The programs of strangers.py: 16 that are not ours, with their data.

Each does the same work each time and has an output that depends on what it reads. Sizes are those
of a whole run; --small divides them by four.
"""

import json
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "files"), str(HERE.parent / "page_cache")]

from page_cache import install
from workloads import MIB, Kit, text, tree, version

READERS = HERE / "strangers_readers.py"
# As of 2026-11-25.
PYPI = ["duckdb==2.0.1", "numpy==2.4.6", "lmdb==3.0.0"]
NPM = ["webpack@5", "webpack-cli@5", "esbuild@0.21.5", "lodash-es@4.17.21", "three@0.160.0"]


@dataclass
class Program:
    # A shell command: what is measured.
    command: str
    version: str
    # The most CPU time recorded, of plain.
    goal: float = 1.05
    # What the command makes: removed before each run.
    made: list[Path] = field(default_factory=list)
    # A shell command whose output counts as the program's. It is not measured.
    result: str = ""
    # Of a server: a shell command that succeeds once the server answers, one that loads it, and
    # the file that has the id of the process to stop. None of them is measured.
    ready: str = ""
    client: str = ""
    pid: Path = Path()
    # A folder, and its copy that each run starts from.
    copy: tuple[Path, Path] | None = None

    def reset(self) -> None:
        """Makes things as they were before the first run."""
        for path in self.made:
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        if self.copy:
            shutil.copytree(*self.copy)


def quiet(*command: object, **options: object) -> None:
    """Runs a command whose output is for nobody, unless it fails."""
    words = [str(word) for word in command]
    ran = subprocess.run(words, capture_output=True, text=True, **options)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(words)}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")


def python(kit: Kit) -> Path:
    """A Python of its own, with the packages."""

    def make(path: Path) -> None:
        quiet(sys.executable, "-m", "venv", path)
        quiet(path / "bin" / "python", "-m", "pip", "install", "-q", *PYPI)

    return kit.made("venv", make) / "bin" / "python"


def reader(kit: Kit, *words: object) -> str:
    return " ".join(str(word) for word in (python(kit), READERS, *words))


def package(name: str) -> str:
    """The version of a Python package here."""
    return next(words for words in PYPI if words.startswith(name)).replace("==", " ")


def leaves(kit: Kit) -> Path:
    """A tree of 8,000 files between 1 and 32 KiB."""

    def make(path: Path) -> None:
        source = random.Random("leaves")
        block = text(source, MIB)
        for number in range(kit.mib(8000)):
            size = int(1024 * 32 ** source.random())
            folder = path / f"{number // 100:03}"
            folder.mkdir(parents=True, exist_ok=True)
            start = source.randrange(len(block) - size)
            (folder / f"{number:05}.txt").write_bytes(block[start : start + size])

    return kit.made("leaves", make)


def prose(kit: Kit, size_mib: int) -> Path:
    """A file of text."""
    size = kit.mib(size_mib) * MIB
    make = lambda path: path.write_bytes(text(random.Random(1), size))
    return kit.made(f"prose-{size_mib}", make)


def sums(folder: Path) -> str:
    """The shell command that prints checksums of all files of a folder."""
    return f"cd {folder} && find . -type f | sort | xargs cksum"


def rsync(kit: Kit) -> Program:
    """Copies a tree, and compares the two by checksums."""
    install({"rsync": "rsync"})
    source, copy = leaves(kit), kit.folder("rsync-copy")
    compare = f"rsync -rcn --out-format=%n {source}/ {copy}/"
    return Program(
        f"rsync -a {source}/ {copy}/ && {compare} && {compare}",
        version("rsync", "--version"),
        goal=1.25,
        made=[copy],
        result=sums(copy),
    )


def cp(kit: Kit) -> Program:
    trees, copy = f"{leaves(kit)} {tree(kit, 'tree', kit.mib(448))}", kit.folder("cp-copy")
    command = f"mkdir {copy} && cp -r {trees} {copy}"
    return Program(command, version("cp", "--version"), made=[copy], result=sums(copy))


def zstd(kit: Kit) -> Program:
    install({"zstd": "zstd"})
    data, packed = prose(kit, 512), kit.folder("prose.zst")
    command = f"zstd -q -T1 -o {packed} {data} && zstd -q -dc {packed} | cksum"
    return Program(command, version("zstd", "--version"), made=[packed])


def xz(kit: Kit) -> Program:
    install({"xz": "xz-utils"})
    data, packed = prose(kit, 16), kit.folder("prose.xz")
    command = f"xz -T1 -c {data} > {packed} && xz -dc {packed} | cksum"
    return Program(command, version("xz", "--version"), made=[packed])


def cargo(kit: Kit) -> Program:
    """A build of a workspace of five small crates, without dependencies."""
    install({"cargo": "cargo"})
    modules = 8

    def crate(path: Path, number: int, needs: list[int]) -> None:
        (path / "src").mkdir(parents=True)
        wanted = "".join(f'part{other} = {{ path = "../part{other}" }}\n' for other in needs)
        (path / "Cargo.toml").write_text(
            f'[package]\nname = "part{number}"\nversion = "0.1.0"\nedition = "2021"\n'
            f"[dependencies]\n{wanted}"
        )
        for module in range(modules):
            functions = "".join(
                f"pub fn f{one}(words: &[u64]) -> Vec<String> {{ words.iter().map(|word| "
                f'format!("{{:x}}", word.rotate_left({one}))).collect() }}\n'
                for one in range(20)
            )
            (path / "src" / f"m{module}.rs").write_text(functions)
        declared = "".join(f"pub mod m{module};\n" for module in range(modules))
        if needs:
            calls = "".join(
                f'    println!("{{:?}}", part{other}::m0::f3(&[{other}]));\n' for other in needs
            )
            main = f"{declared}fn main() {{\n{calls}}}\n"
            (path / "src" / "main.rs").write_text(f"#![allow(dead_code)]\n{main}")
        else:
            (path / "src" / "lib.rs").write_text(declared)

    def make(path: Path) -> None:
        for number in range(4):
            crate(path / f"part{number}", number, [])
        crate(path / "part4", 4, [0, 1, 2, 3])
        members = ", ".join(f'"part{number}"' for number in range(5))
        (path / "Cargo.toml").write_text(f'[workspace]\nresolver = "2"\nmembers = [{members}]\n')

    source = kit.made("crates", make)
    built = kit.folder("cargo-target")
    command = f"cd {source} && CARGO_TARGET_DIR={built} cargo build --offline --quiet"
    return Program(
        command,
        version("cargo", "--version"),
        goal=1.25,
        made=[built, source / "Cargo.lock"],
        result=f"{built}/debug/part4",
    )


def npm(kit: Kit) -> Path:
    """Packages of npm, and 300 modules that use two of them."""
    install({"node": "nodejs", "npm": "npm"})

    def make(path: Path) -> None:
        path.mkdir()
        quiet("npm", "install", "--prefix", path, "--no-audit", "--no-fund", *NPM)
        (path / "src").mkdir()
        modules = range(300)
        for number in modules:
            (path / "src" / f"m{number}.js").write_text(
                'import { chunk } from "lodash-es";\n'
                f"export const f = (words) => chunk(words, {number + 1}).length;\n"
            )
        imports = "".join(f'import {{ f as f{one} }} from "./m{one}.js";\n' for one in modules)
        calls = ", ".join(f"f{one}" for one in modules)
        main = (
            f'import * as three from "three";\n{imports}'
            f"console.log(three.REVISION, [{calls}].map((f) => f([1, 2, 3, 4])).join());\n"
        )
        (path / "src" / "main.js").write_text(main)

    return kit.made("npm", make)


def webpack(kit: Kit) -> Program:
    folder, out = npm(kit), kit.folder("webpack-out")
    command = (
        f"cd {folder} && node_modules/.bin/webpack --mode production --entry ./src/main.js "
        f"--output-path {out} > /dev/null"
    )
    told = json.loads((folder / "node_modules/webpack/package.json").read_text())["version"]
    result = f"node {out}/main.js; {sums(out)}"
    return Program(command, f"webpack {told}", made=[out], result=result)


def esbuild(kit: Kit) -> Program:
    folder, out = npm(kit), kit.folder("esbuild-out")
    binary = folder / "node_modules/.bin/esbuild"
    bundle = f"{binary} src/main.js --bundle --minify --log-level=error --outdir={out}"
    command = f"cd {folder} && for i in 1 2 3 4; do {bundle}; done"
    told = version(str(binary), "--version")
    result = f"node {out}/main.js; {sums(out)}"
    return Program(command, f"esbuild {told}", made=[out], result=result)


def duckdb(kit: Kit) -> Program:
    """Queries of CSV and Parquet."""

    def make(path: Path) -> None:
        source = random.Random("csv")
        rows = (
            f"{number},{number % 7},{source.getrandbits(160):040x}\n"
            for number in range(kit.mib(2_000_000))
        )
        with path.open("w") as file:
            file.write("i,g,word\n")
            file.writelines(rows)

    table = kit.made("table.csv", make)
    return Program(reader(kit, "duckdb", table, table), package("duckdb"))


def numpy(kit: Kit) -> Program:
    data = kit.made("arrays", lambda path: quiet(python(kit), READERS, "numpy_make", path, 256))
    return Program(reader(kit, "numpy", data, kit.mib(12)), package("numpy"))


def lmdb(kit: Kit) -> Program:
    entries = kit.mib(400_000)
    data = kit.made("lmdb", lambda path: quiet(python(kit), READERS, "lmdb_make", path, entries))
    return Program(reader(kit, "lmdb", data, kit.mib(1_000_000)), package("lmdb"))


def octave(kit: Kit) -> Program:
    """Loads matrices of text."""
    install({"octave-cli": "octave"})

    def make(path: Path) -> None:
        source = random.Random("octave")
        number = lambda: f"{source.random():.6f}"
        rows = (" ".join(number() for _ in range(500)) for _ in range(kit.mib(4000)))
        path.write_text("\n".join(rows) + "\n")

    data = kit.made("matrix.txt", make)
    script = f"a = load('{data}'); b = dlmread('{data}', ' '); "
    script += "printf('%.9g %.9g', sum(a(:)), norm(b))"
    command = f'octave-cli --norc --eval "{script}"'
    return Program(command, version("octave-cli", "--version"))


def xapian(kit: Kit) -> Program:
    """Indexes documents, and searches them."""
    install({"scriptindex": "xapian-omega", "quest": "xapian-tools"})

    def make(path: Path) -> None:
        path.mkdir()
        source = random.Random("xapian")
        letters = "etaoinshrdlu"
        words = ["".join(source.choices(letters, k=source.randint(3, 8))) for _ in range(20_000)]
        (path / "script").write_text("id : field=id boolean=Q unique=Q\ntext : field index\n")
        with (path / "dump").open("w") as file:
            for number in range(kit.mib(6000)):
                ranks = (int(len(words) ** source.random()) - 1 for _ in range(120))
                file.write(f"id={number}\ntext={' '.join(words[rank] for rank in ranks)}\n\n")
        (path / "words").write_text("\n".join(words[::100]) + "\n")

    data, index = kit.made("xapian", make), kit.folder("xapian-index")
    search = f"while read word; do quest --db={index} --msize=5 $word; done"
    return Program(
        f"scriptindex {index} {data}/script {data}/dump && {search} < {data}/words",
        version("quest", "--version"),
        made=[index],
    )


def rocksdb(kit: Kit) -> Program:
    """Random reads, seeks and a scan of a database that does not change."""
    install({"db_bench": "rocksdb-tools"})
    keys = kit.mib(1_000_000)
    always = f"--num={keys} --seed=1 --compression_type=none --value_size=200"

    def make(path: Path) -> None:
        what = "--benchmarks=fillrandom,compact"
        quiet("db_bench", f"--db={path}", what, *always.split())

    data = kit.made("rocksdb", make)
    reads = f"--use_existing_db=1 --readonly=1 --reads={kit.mib(200_000)} --cache_size=8388608"
    what = "--benchmarks=readrandom,seekrandom,readseq"
    command = (
        f"db_bench --db={data} {what} {always} {reads} 2>/dev/null | grep -o '([0-9]* of [0-9]* "
        f"found)'"
    )
    told = subprocess.run(["ldb", "--version"], capture_output=True, text=True).stdout.strip()
    return Program(command, told, goal=1.25)


def mariadb(kit: Kit) -> Program:
    """Point reads and scans, from a copy of the same data folder each time."""
    install({"mariadbd": "mariadb-server"})
    data, origin = kit.folder("mariadb-data"), kit.folder("mariadb-origin")
    rows = kit.mib(200_000)
    socket, pid = data / "socket", data / "pid"
    client = f"mariadb --no-defaults -u root -N -S {socket}"
    ready = f"mariadb-admin --no-defaults -u root -S {socket} ping"
    command = (
        f"exec mariadbd --no-defaults --user=root --datadir={data} --socket={socket} "
        f"--skip-networking --pid-file={pid} --log-error={data}/error.log "
        f"--innodb-buffer-pool-size=16M --innodb-log-file-size=16M"
    )
    queries = kit.folder("mariadb.sql")
    source = random.Random("points")
    keys = [int(rows ** source.random()) * 7919 % rows + 1 for _ in range(kit.mib(10_000))]
    points = "".join(f"select word from points where id = {key};\n" for key in keys)
    scans = "select count(*), sum(length(word)) from points where word like '%abc%';\n" * 4
    queries.write_text(points + scans)
    program = Program(
        command,
        version("mariadbd", "--version"),
        ready=ready,
        client=f"{client} test < {queries}",
        pid=pid,
        made=[data],
        copy=(origin, data),
    )

    def make(path: Path) -> None:
        shutil.rmtree(data, ignore_errors=True)
        made = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"]
        quiet(*made, "--auth-root-authentication-method=normal", "--skip-test-db")
        sql = (
            "create database test; create table test.points (id int primary key, "
            "word varchar(400)); insert into test.points "
            f"select seq, repeat(md5(seq), 12) from test.seq_1_to_{rows};"
        )
        server = subprocess.Popen(["sh", "-c", command], stderr=subprocess.DEVNULL)
        quiet("sh", "-c", f"for i in $(seq 300); do {ready} && break; sleep 0.1; done")
        quiet("sh", "-c", client, input=sql)
        server.terminate()
        server.wait()
        data.rename(path)

    kit.made("mariadb-origin", make)
    return program


def nginx(kit: Kit) -> Program:
    """Serves files, half of them by sendfile."""
    install({"nginx": "nginx", "curl": "curl"})
    root, folder = leaves(kit), kit.folder("nginx")
    port = 18080
    folder.mkdir(exist_ok=True)
    (folder / "conf").write_text(textwrap.dedent(f"""\
            user root;
            daemon off;
            worker_processes 1;
            pid {folder}/pid;
            error_log {folder}/error.log;
            events {{ worker_connections 64; }}
            http {{
                access_log {folder}/access.log;
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
                fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
                scgi_temp_path {folder}/scgi;
                keepalive_requests 100000;
                server {{
                    listen 127.0.0.1:{port};
                    location /sent/ {{ sendfile on; alias {root}/; }}
                    location /read/ {{ sendfile off; alias {root}/; }}
                }}
            }}
            """))
    names = sorted(path.relative_to(root) for path in root.rglob("*.txt"))
    urls = "".join(
        f'url = "http://127.0.0.1:{port}/{way}/{name}"\n'
        for way in ("sent", "read") * 3
        for name in names
    )
    (folder / "urls").write_text(urls)
    return Program(
        f"exec nginx -c {folder}/conf -e {folder}/error.log",
        subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip(),
        goal=1.25,
        made=[folder / "access.log"],
        ready=f"curl -s -o /dev/null http://127.0.0.1:{port}/",
        client=f"curl -s -K {folder}/urls",
        pid=folder / "pid",
    )


def ffmpeg(kit: Kit) -> Program:
    """Transcodes a film."""
    install({"ffmpeg": "ffmpeg"})
    frames = kit.mib(500)

    def make(path: Path) -> None:
        film = path.with_suffix(".mkv")
        picture = "testsrc2=size=640x360:rate=25"
        made = ["-f", "lavfi", "-i", picture, "-frames:v", frames, "-c:v", "ffv1", film]
        quiet("ffmpeg", "-y", "-nostdin", "-loglevel", "error", *made)
        film.rename(path)

    film = kit.made("film.mkv", make)
    command = (
        f"ffmpeg -nostdin -loglevel error -i {film} -vf scale=320:180 -threads 1 -c:v mpeg4 "
        "-bitexact -f md5 -"
    )
    return Program(command, version("ffmpeg", "-version").split(" Copyright")[0])


PROGRAMS: dict[str, Callable[[Kit], Program]] = {
    function.__name__: function
    for function in (
        esbuild,
        lmdb,
        mariadb,
        nginx,
        rocksdb,
        duckdb,
        webpack,
        cargo,
        octave,
        xapian,
        numpy,
        ffmpeg,
        rsync,
        cp,
        zstd,
        xz,
    )
}
