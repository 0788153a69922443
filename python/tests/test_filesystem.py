"""Files of a mount by fsspec: right bytes, past the kernel, and errors for what cannot be read."""

import concurrent.futures
import errno
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sysconfig.get_path("scripts")) / "hither"
fsspec = pytest.importorskip("fsspec")


class Mounted:
    """A folder with files, and a mount of it by the command of the wheel."""

    def __init__(self, folder: Path) -> None:
        self.source, self.path = folder / "source", folder / "mount"
        self.path.mkdir()
        self.bytes = random.Random(7).randbytes(3_000_001)
        (self.source / "below").mkdir(parents=True)
        (self.source / "noise").write_bytes(self.bytes)
        (self.source / "empty").write_bytes(b"")
        (self.source / "below" / "lines.txt").write_text("one\ntwo\nthree")
        self.process = subprocess.Popen(
            [COMMAND, "mount", self.source, self.path], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "Ctrl-C ends it" in line:
                return
        pytest.fail(f"not mounted: {''.join(said)}")

    def end(self, signal_number: int) -> None:
        self.process.send_signal(signal_number)
        self.process.communicate()
        subprocess.run([COMMAND, "unmount", self.path], capture_output=True)


def mounted(folder: Path) -> Mounted:
    if not os.path.exists("/dev/fuse"):
        if os.environ.get("HITHER_REQUIRE") == "all":
            pytest.fail("there is no /dev/fuse, and HITHER_REQUIRE=all")
        pytest.skip("there is no /dev/fuse")
    return Mounted(folder)


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    mount = mounted(tmp_path_factory.mktemp("files"))
    yield mount
    mount.end(signal.SIGINT)


@pytest.fixture
def fs() -> Any:
    return fsspec.filesystem("hither")


def test_importing_hither_does_not_import_fsspec() -> None:
    program = "import hither, sys; print('fsspec' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert output.stdout == "False\n"


def test_whole_files(mount: Mounted, fs: Any) -> None:
    url = f"hither://{mount.path}/noise"
    with fsspec.open(url) as file:
        assert file.read() == mount.bytes
        assert (file.size, file.name) == (len(mount.bytes), f"{mount.path}/noise")
    assert fs.cat_file(url) == fs.cat(f"{mount.path}/noise") == mount.bytes
    assert fs.cat_file(mount.path / "empty") == b""
    with fsspec.open(f"hither://{mount.path}/below/lines.txt", "rt") as file:
        assert list(file) == ["one\n", "two\n", "three"]
    copy = mount.path.parent / "copy"
    fs.get(url, str(copy))
    assert copy.read_bytes() == mount.bytes


def test_no_descriptor_leads_into_the_mount(mount: Mounted, fs: Any) -> None:
    def descriptors() -> list[str]:
        found = []
        for entry in os.listdir("/proc/self/fd"):
            try:
                found.append(os.readlink(f"/proc/self/fd/{entry}"))
            except FileNotFoundError:
                pass
        return found

    before = descriptors()
    with fs.open(f"{mount.path}/noise") as file:
        assert file.read(1000) == mount.bytes[:1000]
        opened = [one for one in descriptors() if one not in before]
    assert opened and all(one.startswith("socket:") for one in opened)
    assert not [one for one in descriptors() if one not in before]


def test_ranges(mount: Mounted, fs: Any) -> None:
    path, size = f"{mount.path}/noise", len(mount.bytes)
    source = random.Random(1)
    starts = [source.randrange(size) for _ in range(100)] + [0, size - 1, size, size + 5]
    ends = [start + source.choice([1, 100, 5000, 200_000]) for start in starts]
    expected = [mount.bytes[start:end] for start, end in zip(starts, ends)]
    assert fs.cat_ranges([path] * len(starts), starts, ends) == expected
    assert fs.cat_file(path, start=-10) == mount.bytes[-10:]
    assert fs.cat_file(path, start=5, end=-5) == mount.bytes[5:-5]
    assert fs.cat_file(path, start=10, end=5) == b""
    assert (fs.head(path, 7), fs.tail(path, 7)) == (mount.bytes[:7], mount.bytes[-7:])


@pytest.mark.parametrize("block_size", [None, 1, 4096])
def test_a_file_like_any(mount: Mounted, fs: Any, block_size: int | None) -> None:
    """Random calls, the same on a file of the source."""
    source = random.Random(2)
    with (
        fs.open(f"{mount.path}/noise", block_size=block_size) as file,
        open(mount.source / "noise", "rb") as same,
    ):
        assert file.readable() and file.seekable() and not file.writable()
        for _ in range(500):
            offset, length = source.randrange(3_100_000), source.choice([0, 1, 4096, 70_000])
            calls: list[Callable[[Any], object]] = [
                lambda one: one.seek(offset),
                lambda one: one.seek(-min(offset, one.tell()), os.SEEK_CUR),
                lambda one: one.seek(-offset % 3_000_000 - 3_000_000, os.SEEK_END),
                lambda one: one.tell(),
                lambda one: one.read(length),
                lambda one: one.readline(),
                lambda one: (buffer := bytearray(length), one.readinto(buffer)),
            ]
            call = source.choice(calls)
            assert call(file) == call(same)
        assert file.seek(10) == 10
        assert file.read() == mount.bytes[10:]
        for offset, whence in [(-1, os.SEEK_SET), (-4_000_000, os.SEEK_END), (0, 7)]:
            with pytest.raises(ValueError):
                file.seek(offset, whence)
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_directories(mount: Mounted, fs: Any) -> None:
    root = str(mount.path)
    paths = [f"{root}/{name}" for name in ("below", "empty", "noise")]
    assert sorted(fs.ls(root, detail=False)) == paths
    assert fs.find(f"hither://{root}") == [f"{root}/below/lines.txt", *paths[1:]]
    assert fs.glob(f"{root}/**/*.txt") == [f"{root}/below/lines.txt"]
    assert fs.glob(f"{root}/nothing/*") == []
    assert fs.isdir(root) and fs.isfile(f"{root}/noise") and fs.size(f"{root}/noise") == 3_000_001
    assert fs.exists(f"{root}/empty") and not fs.exists(f"{root}/empty/x")
    assert not fs.exists(f"{root}/missing")
    entry = next(entry for entry in fs.ls(root) if entry["name"] == f"{root}/noise")
    assert (entry["type"], entry["size"]) == ("file", 3_000_001)
    changed = os.stat(mount.path / "noise").st_mtime
    assert fs.modified(f"{root}/noise").timestamp() == pytest.approx(changed)
    assert fs.unstrip_protocol(root) == f"hither://{root}"


def test_parquet(mount: Mounted, fs: Any) -> None:
    pandas = pytest.importorskip("pandas")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pandas.DataFrame({"a": range(100_000), "b": [f"text {n % 97}" for n in range(100_000)]})
    table.to_parquet(mount.source / "table.parquet", row_group_size=10_000)
    path = f"{mount.path}/table.parquet"
    assert pandas.read_parquet(f"hither://{path}").equals(table)
    assert parquet.read_table(path, filesystem=fs, columns=["a"])["a"].to_pylist() == list(table.a)
    with fs.open(path) as file:
        group = parquet.ParquetFile(file).read_row_group(7, columns=["b"])
    assert group["b"].to_pylist() == list(table.b[70_000:80_000])


def test_threads(mount: Mounted, fs: Any) -> None:
    path = f"{mount.path}/noise"

    def reads(seed: int) -> bool:
        source = random.Random(seed)
        with fs.open(path) as file:
            for _ in range(100):
                offset = source.randrange(3_000_000)
                file.seek(offset)
                if file.read(9999) != mount.bytes[offset : offset + 9999]:
                    return False
        return bool(fs.cat_file(path) == mount.bytes)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads, range(32)))
    # Of one file, each byte comes to one of the threads that read it.
    with fs.open(path) as file, concurrent.futures.ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: file.read(10_000), range(301)))
    assert sum(map(len, parts)) == len(mount.bytes)
    pieces = [mount.bytes[at : at + 10_000] for at in range(0, 3_010_000, 10_000)]
    assert sorted(parts) == sorted(pieces)


def test_pickling(mount: Mounted, fs: Any) -> None:
    assert pickle.loads(pickle.dumps(fs)).size(f"{mount.path}/noise") == 3_000_001
    opened = fsspec.open(f"hither://{mount.path}/noise")
    with pickle.loads(pickle.dumps(opened)) as file:
        assert file.read(10) == mount.bytes[:10]


def test_a_process_that_was_forked_opens_its_own(mount: Mounted, fs: Any) -> None:
    path = f"{mount.path}/noise"
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with fs.open(path) as file:
        assert file.read(5) == mount.bytes[:5]

        def child() -> None:
            try:
                file.seek(2_000_000)
                answers.put(file.read(5))
            except OSError as error:
                answers.put(str(error))
            answers.put(fs.cat_file(path, end=5))

        process = context.Process(target=child)
        process.start()
        assert "another process opened this file" in answers.get(timeout=60)
        assert answers.get(timeout=60) == mount.bytes[:5]
        process.join(60)
        file.seek(1_000_000)
        assert file.read(5) == mount.bytes[1_000_000:1_000_005]


def test_what_is_not_there(mount: Mounted, fs: Any) -> None:
    missing = f"{mount.path}/missing"
    uses: list[Callable[[str], object]] = [fs.open, fs.cat_file, fs.info, fs.ls]
    for use in uses:
        with pytest.raises(FileNotFoundError, match=missing) as raised:
            use(missing)
        assert raised.value.errno == errno.ENOENT
    for use in (fs.open, fs.cat_file):
        with pytest.raises(IsADirectoryError, match=str(mount.path)):
            use(f"{mount.path}/below")


def test_a_path_in_no_mount(tmp_path: Path, fs: Any) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    uses: list[Callable[[str], object]] = [
        fs.open, fs.cat_file, fs.info, fs.ls, fs.exists, fs.find, lambda path: fs.glob(path + "/*")
    ]
    for use in uses:
        with pytest.raises(OSError, match=f"{path}.* in no mount of hither"):
            use(f"hither://{path}")


def test_nothing_is_written(mount: Mounted, fs: Any) -> None:
    path = f"{mount.path}/noise"
    uses: list[Callable[[], object]] = [
        lambda: fs.open(path, "wb"),
        lambda: fs.open(path, "a"),
        lambda: fs.pipe(path, b""),
        lambda: fs.put(str(mount.source / "empty"), f"{mount.path}/x"),
        lambda: fs.cp(path, f"{mount.path}/x"),
        lambda: fs.mv(path, f"{mount.path}/x"),
        lambda: fs.rm(path),
        lambda: fs.rm(f"{mount.path}/below", recursive=True),
        lambda: fs.touch(path),
        lambda: fs.mkdir(f"{mount.path}/x"),
        lambda: fs.makedirs(f"{mount.path}/x/y", exist_ok=True),
        lambda: fs.rmdir(f"{mount.path}/below"),
    ]
    for use in uses:
        with pytest.raises(OSError, match="only reads") as raised:
            use()
        assert raised.value.errno == errno.EROFS


def test_a_node_that_is_gone(tmp_path: Path, fs: Any) -> None:
    mount = mounted(tmp_path)
    path = f"{mount.path}/noise"
    file = fs.open(path)
    assert file.read(5) == mount.bytes[:5]
    mount.process.kill()
    mount.process.wait()
    file.seek(2_000_000)
    with pytest.raises(ConnectionAbortedError, match="the node has ended"):
        file.read(5)
    with pytest.raises(OSError, match=path):
        fs.open(path)
    with pytest.raises(OSError, match=str(mount.path)):
        fs.find(str(mount.path))
    mount.end(signal.SIGKILL)
