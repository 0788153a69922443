"""A backup by restic as a service of its own (Type=oneshot), beside a program whose file is cached.

The unit is restricted as a careful administrator would have it: a user of its own, with the one
capability to read all files, and no more. Part of guest.py; see services.py.
"""

import os
import shutil
import time
from pathlib import Path

from guest import MIB, START_S, disk_bytes, evict, fill, read, run, say, show, wait_for

UNIT = "restic-backup.service"
SOURCE = Path("/srv/data")
REPOSITORY = Path("/var/backups/restic")
NEIGHBOUR = Path("/var/tmp/neighbour")
NEIGHBOUR_MIB, FILES, FILE_MIB = 448, 24, 32

SERVICE = f"""
[Service]
Type=oneshot
User=restic
AmbientCapabilities=CAP_DAC_READ_SEARCH
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
RestrictNamespaces=yes
MemoryDenyWriteExecute=yes
SystemCallFilter=@system-service
CacheDirectory=restic
ReadWritePaths={REPOSITORY}
IOAccounting=yes
Environment=RESTIC_REPOSITORY={REPOSITORY} RESTIC_PASSWORD=x XDG_CACHE_HOME=/var/cache/restic
ExecStart=/usr/bin/restic --quiet backup --force {SOURCE}
"""

# As docs/services/restic.md has it.
DROP_IN = Path(f"/etc/systemd/system/{UNIT}.d/hither.conf")
STEERED = """
[Service]
ExecStartPre=-+/usr/bin/systemd-run --quiet --collect --unit=hither-%N --service-type=notify \\
    /usr/bin/hither run --no-cache --quiet --unit %n
"""
AGENT = "hither-restic-backup.service"


def prepare(files: int) -> None:
    run("useradd", "--system", "restic")
    SOURCE.mkdir(parents=True)
    for number in range(files):
        fill(SOURCE / str(number), FILE_MIB, number * FILE_MIB)
    SOURCE.chmod(0o700)
    fill(NEIGHBOUR, NEIGHBOUR_MIB)
    Path(f"/etc/systemd/system/{UNIT}").write_text(SERVICE)


def fresh(way: str) -> None:
    """An empty repository, and the drop-in or none."""
    shutil.rmtree(REPOSITORY, ignore_errors=True)
    REPOSITORY.mkdir(parents=True)
    shutil.chown(REPOSITORY, "restic", "restic")
    environment = {**os.environ, "RESTIC_PASSWORD": "x"}
    run("restic", "-r", str(REPOSITORY), "init", user="restic", env=environment, cwd="/")
    DROP_IN.unlink(missing_ok=True)
    if way == "hither":
        DROP_IN.parent.mkdir(exist_ok=True)
        DROP_IN.write_text(STEERED)
    run("systemctl", "daemon-reload")


def is_whole() -> bool:
    """Whether what is in the repository is what was to be saved."""
    environment = {**os.environ, "RESTIC_PASSWORD": "x"}
    said = run("restic", "-r", str(REPOSITORY), "check", "--read-data", "--no-cache",
               env=environment, check=False)
    return "no errors were found" in said


def measure(way: str) -> None:
    fresh(way)
    evict(str(SOURCE), str(NEIGHBOUR))
    read(NEIGHBOUR)
    began = time.monotonic()
    # The last figures of a unit that has ended are in its journal alone.
    disk = disk_bytes()
    run("systemctl", "start", UNIT)
    seconds = time.monotonic() - began
    result = show(UNIT, "Result")
    backup = disk_bytes() - disk
    ended = wait_for(lambda: show(AGENT, "ActiveState") == "inactive", START_S)
    os.sync()
    before = disk_bytes()
    read(NEIGHBOUR)
    again = disk_bytes() - before
    say(
        service="restic", way=way, seconds=round(seconds, 2), neighbour_bytes=again,
        service_bytes=backup, agent_bytes=0, agent_cpu_ms=cpu_ms(), agent_memory_bytes=0,
        disk_bytes=backup, wrong=int(result != "success" or not is_whole()), agent_ends_s=ended,
        said=run("journalctl", "-o", "cat", "-n", "6", "-u", AGENT).splitlines()
        if way == "hither" else [],
    )


def cpu_ms() -> int:
    """The agent's CPU time, as its journal has it."""
    fields = "--output-fields=CPU_USAGE_NSEC"
    said = run("journalctl", "-o", "json", fields, "-n", "20", "-u", AGENT)
    found = [line.split('"CPU_USAGE_NSEC":"')[1].split('"')[0]
             for line in said.splitlines() if "CPU_USAGE_NSEC" in line]
    return int(found[-1]) // 1_000_000 if found else 0


def lifecycle() -> None:
    def step(what: str, is_right, **fields) -> None:
        say(service="restic", step=what, ok=bool(is_right), **fields)

    def begin() -> str:
        run("systemctl", "start", "--no-block", UNIT)
        wait_for(lambda: show(UNIT, "ExecMainPID") not in ("0", before), START_S)
        return show(UNIT, "ExecMainPID")

    def end() -> bool:
        wait_for(lambda: show(UNIT, "ActiveState") in ("inactive", "failed"), 3 * START_S)
        return show(UNIT, "Result") == "success"

    before = ""
    fresh("hither")
    before = begin()
    active = wait_for(lambda: show(AGENT, "ActiveState") == "active", START_S)
    step("the agent is there before restic", active is not None)
    step("the backup is whole", end() and is_whole())
    gone = wait_for(lambda: show(AGENT, "LoadState") == "not-found", START_S)
    step("the agent ends with it", gone is not None, agent_ends_s=gone)

    fresh("hither")
    before = begin()
    time.sleep(0.5)
    run("systemctl", "kill", "-s", "KILL", AGENT)
    step("kill -9 of the agent", end() and is_whole(), agent=show(AGENT, "ActiveState"))

    fresh("hither")
    before = begin()
    time.sleep(0.5)
    run("systemctl", "stop", UNIT)
    gone = wait_for(lambda: show(AGENT, "LoadState") == "not-found", START_S)
    step("stop", gone is not None, agent_ends_s=gone)

    fresh("hither")
    run("dpkg", "--purge", "hither")
    before = begin()
    step("a backup after the package was purged", end() and is_whole())
    run("dpkg", "-i", "/job/hither.deb")
    said = run("journalctl", "-o", "cat", "-u", AGENT, "-u", UNIT)
    say(service="restic", said=said.splitlines()[-60:])


def main(what: str, rounds: str = "0") -> None:
    if what == "lifecycle":
        prepare(FILES // 8)
        return lifecycle()
    prepare(FILES)
    for round_ in range(int(rounds)):
        for way in ("plain", "hither") if round_ % 2 == 0 else ("hither", "plain"):
            measure(way)
