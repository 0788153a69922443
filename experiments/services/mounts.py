"""The units of mounts and nodes, for guest.py: hither-mount@data and hither-node, each with a
volume over a folder of this machine. Start, restart, kill -9 and stop under readers that check each
byte, a writer whose acknowledged bytes are looked for, a file that is wrong, and a purge."""

import hashlib
import os
import random
import signal
import threading
import time
from pathlib import Path

from guest import START_S, run, say, show, wait_for

SOURCE = Path("/srv/source")
FILES = 24
KIB = 512

UNITS = {
    "hither-mount@data": (Path("/etc/hither/mount-data.toml"), Path("/mnt/data")),
    "hither-node": (Path("/etc/hither/node.toml"), Path("/mnt/node")),
}


def prepare() -> dict[int, str]:
    """The files, and their digests."""
    SOURCE.mkdir(parents=True, exist_ok=True)
    digests = {}
    for number in range(FILES):
        data = os.urandom(KIB << 10)
        (SOURCE / str(number)).write_bytes(data)
        digests[number] = hashlib.sha256(data).hexdigest()
    return digests


class Reader(threading.Thread):
    """Reads whole files, one after the other, until `end`. While nothing is mounted there are
    errors; wrong bytes there are never."""

    def __init__(self, directory: Path, digests: dict[int, str]) -> None:
        super().__init__()
        self.directory, self.digests = directory, digests
        self.over = threading.Event()
        self.right = self.wrong = self.errors = 0

    def run(self) -> None:
        while not self.over.is_set():
            number = random.randrange(FILES)
            try:
                data = (self.directory / str(number)).read_bytes()
                is_right = hashlib.sha256(data).hexdigest() == self.digests[number]
                self.right, self.wrong = self.right + is_right, self.wrong + (not is_right)
            except OSError:
                self.errors += 1
            time.sleep(0.01)

    def end(self) -> dict:
        self.over.set()
        self.join()
        return {"right": self.right, "wrong": self.wrong, "errors": self.errors}


def is_mounted(directory: Path) -> bool:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split()[1] == str(directory) for line in mounts)


def answers(directory: Path, digests: dict[int, str]) -> bool:
    if not is_mounted(directory):
        return False
    try:
        data = (directory / "0").read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == digests[0]


def lifecycle(unit: str, digests: dict[int, str]) -> None:
    config, directory = UNITS[unit]
    directory.mkdir(parents=True, exist_ok=True)

    def step(what: str, is_right, **fields) -> None:
        say(service=unit, step=what, ok=bool(is_right), **fields)

    def pid() -> str:
        return show(unit, "MainPID")

    def under_readers(what: str, action, is_right, errors_allowed: bool) -> None:
        reader = Reader(directory, digests)
        reader.start()
        time.sleep(1)
        fields = action() or {}
        time.sleep(1)
        fields |= reader.end()
        is_right = is_right() and fields["right"] and not fields["wrong"]
        step(what, is_right and (errors_allowed or not fields["errors"]), **fields)

    volume = f'[[volume]]\nsource = "{SOURCE}"\ndirectory = "{directory}"\nwrite = true\n'
    config.write_text('memory = "64MiB"\n[[volume]]\nsauce = "x"\n')
    run("systemctl", "start", unit, check=False)
    wait_for(lambda: show(unit, "ActiveState") == "failed", START_S)
    said = run("journalctl", "-o", "cat", "-n", "20", "-u", unit)
    is_named = str(config) in said and "sauce" in said
    step("a wrong file is named, and nothing starts", is_named and not is_mounted(directory))
    run("systemctl", "stop", unit)
    run("systemctl", "reset-failed", unit, check=False)

    config.write_text(f'memory = "64MiB"\n{volume}')
    run("hither", "node", "--check", config)
    run("systemctl", "enable", "--now", unit, check=False)
    if show(unit, "ActiveState") != "active":
        raise SystemExit(run("journalctl", "-o", "cat", "-n", "40", "-u", unit))
    # Type=notify: `start` comes back when it is mounted.
    step("start", show(unit, "ActiveState") == "active" and answers(directory, digests))
    (directory / "written").write_bytes(b"kept" * 4096)
    descriptor = os.open(directory / "written", os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    step("what was written is in the source", (SOURCE / "written").read_bytes() == b"kept" * 4096)
    under_readers("reads", lambda: time.sleep(3), lambda: True, errors_allowed=False)

    was = pid()

    def back() -> bool:
        return pid() not in ("0", was) and answers(directory, digests)

    def restart() -> dict:
        run("systemctl", "restart", unit)
        return {"is_back_s": wait_for(back, START_S)}

    under_readers("restart", restart, back, errors_allowed=True)

    was = pid()

    def kill() -> dict:
        os.kill(int(was), signal.SIGKILL)
        return {"is_back_s": wait_for(back, START_S)}

    under_readers("kill -9", kill, back, errors_allowed=True)
    step("what was written is there", (directory / "written").read_bytes() == b"kept" * 4096)

    run("systemctl", "disable", "--now", unit)
    is_stopped = show(unit, "ActiveState") == "inactive" and show(unit, "Result") == "success"
    step("stop", is_stopped and not is_mounted(directory) and not list(directory.iterdir()))
    (SOURCE / "written").unlink()


def main() -> None:
    digests = prepare()
    for unit in UNITS:
        lifecycle(unit, digests)
    # A purge while one runs.
    unit, (config, directory) = next(iter(UNITS.items()))
    run("systemctl", "enable", "--now", unit)
    process = show(unit, "MainPID")
    run("dpkg", "--purge", "hither")
    ended = wait_for(lambda: not Path(f"/proc/{process}").exists(), START_S)
    left = run("find", "/etc/systemd/system", "-name", "*hither*", check=False).split()
    left = [path for path in left if not path.endswith(".service.d")]
    kept = config.exists()
    say(service=unit, step="purge of the package while it runs",
        ok=ended is not None and not is_mounted(directory) and not left and kept, left=left)
    run("dpkg", "-i", "/job/hither.deb")
