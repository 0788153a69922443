#!/usr/bin/env python3
"""Debian's services under their own units, steered by hither-run@: what they read from storage
without and with it, and whether reload, log rotation, crashes, restart and stop go as before.

Makes a Debian root with PostgreSQL, MariaDB, nginx, redis and restic from Debian's packages, and
boots it under QEMU's TCG, with Debian's kernel, systemd as process 1 and cgroup v2. guest.py says
what is done there. Times under TCG are a hint only. --container boots it in a container of this
machine's kernel instead, with cgroup v1 (systemd 257 is the last that can). The kernel's events
tell of programs to the initial PID namespace alone, so there the host attaches hither to the unit's
cgroup: `hither run --cgroup`, which is what hither-run@ does in the guest. Bytes are the kernel's.
The units of mounts and nodes need no more than a container: mounts.py says what is done with them.

Needs root, mmdebstrap, mke2fs, a Debian mirror once, and the .deb of `packaging/build`; QEMU, or
for the container systemd-nspawn, cgroup v1 and loop devices.

    python3 services.py --deb DIR/hither_0.1.0_amd64.deb --work /var/tmp/services --rounds 5 \\
        --raw bytes.jsonl --container --hither target/release/hither
    python3 services.py --deb FILE --work /var/tmp/services --lifecycle --raw lifecycle.jsonl nginx
    python3 services.py --deb FILE --work /var/tmp/services --lifecycle --container mounts
    python3 services.py --table bytes.jsonl
    python3 services.py --lifecycle --table lifecycle.jsonl
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

MIB = 1 << 20
HERE = Path(__file__).resolve().parent
SUITE = "trixie"
MIRROR = os.environ.get("HITHER_LAB_MIRROR", "http://deb.debian.org/debian")
PACKAGES = (
    "systemd-sysv,dbus,linux-image-amd64,initramfs-tools,zstd,procps,udev,python3,logrotate,nginx,"
    "redis-server,postgresql,postgresql-contrib,mariadb-server,restic,kmod,cron,util-linux-extra"
)
MEMORY_MIB = 1280
DISK_MIB = 6144
RANDOM_MIB = 1024
DISK_READS_MIB_S = 200
TIMEOUT_S = 3600
# What the root does when it has booted. The container's job lies there already; the guest's is a
# tar, its second disk.
START = """
mkdir -p /job
if [ -b /dev/vdb ]; then
    tar -C /job -xf /dev/vdb
    exec > /dev/ttyS1 2>&1
    stty raw -echo < /dev/ttyS1
else
    exec > /job/results 2>&1
fi
cd /job && sh job.sh
echo "{\\"end\\": $?}"
poweroff -f
"""
# What is done there.
SCRIPTS = ("guest.py", "restic.py", "mounts.py")
SERVICES = ["nginx", "postgresql", "mariadb", "aria", "redis", "restic"]


def image(work: Path) -> None:
    """The guest's disks, its kernel and its initial file system."""
    if not (work / "random.img").exists():
        with (work / "random.img").open("wb") as file:
            for _ in range(RANDOM_MIB):
                file.write(os.urandom(MIB))
    if (work / "debian.img").exists():
        return
    root = work / "debian"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(
        ["mmdebstrap", "--variant=apt", f"--include={PACKAGES}", SUITE, root, MIRROR], check=True
    )
    shutil.copy2(next((root / "boot").glob("vmlinuz-*")), work / "vmlinuz")
    shutil.copy2(next((root / "boot").glob("initrd.img-*")), work / "initrd")
    # Each run starts its service itself.
    units = ["nginx", "redis-server", "postgresql", "mariadb", "cron"]
    subprocess.run(["systemctl", f"--root={root}", "disable", *units], check=True)
    (root / "etc/systemd/system/job.service").write_text(
        "[Unit]\nAfter=multi-user.target\n"
        "[Service]\nType=oneshot\nExecStart=/bin/sh /start.sh\nTimeoutStartSec=infinity\n"
    )
    (root / "start.sh").write_text(START)
    subprocess.run(["systemctl", f"--root={root}", "add-wants", "multi-user.target", "job"],
                   check=True)
    partial = work / "debian.partial"
    partial.unlink(missing_ok=True)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", root, partial, f"{DISK_MIB}M"],
                   check=True)
    partial.rename(work / "debian.img")
    shutil.rmtree(root)


def prepare_job(options, arguments: str) -> Path:
    """The folder with what is to be done. Each job has its own: several guests may run at once."""
    job = options.work / "-".join(arguments.split()[:2])
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    (job / "job.sh").write_text(f"uname -r\nexec python3 guest.py {arguments}\n")
    shutil.copy2(options.deb, job / "hither.deb")
    for name in SCRIPTS:
        shutil.copy2(HERE / name, job)
    return job


def guest(work: Path, job: Path) -> list:
    """What boots it."""
    archive = job.with_suffix(".tar")
    subprocess.run(["tar", "-C", job, "-cf", archive, "."], check=True)
    # A disk has whole sectors.
    os.truncate(archive, (archive.stat().st_size + MIB - 1) // MIB * MIB)
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-m", f"{MEMORY_MIB}M"]
    # TCG executes string instructions byte by byte (lab/src/guest/qemu.rs).
    command += ["-smp", "2", "-cpu", "max,erms=off,fsrm=off,la57=off,smap=off,pku=off"]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += ["-kernel", f"{work}/vmlinuz", "-initrd", f"{work}/initrd"]
    command += ["-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off "
                "tsc=reliable nowatchdog no_timer_check"]
    command += ["-serial", f"file:{job}/console", "-serial", f"file:{job}/results"]
    limit = f"throttling.bps-read={DISK_READS_MIB_S * MIB}"
    disks = [f"file={work}/debian.img,snapshot=on,cache=unsafe,{limit}", f"file={archive}"]
    disks += [f"file={work}/random.img,readonly=on"]
    for disk in disks:
        command += ["-drive", f"{disk},format=raw,if=virtio"]
    return [*command, "-device", "virtio-rng-pci"]


# Process 1 of the container, before systemd: nspawn shows the controllers of cgroup v1 read-only.
INIT = """
for controller in memory blkio cpuacct cpu; do
    mount -o remount,bind,rw "/sys/fs/cgroup/$controller"
done
exec /sbin/init systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1
"""

# Its memory in all is limited by a cgroup. Its disk is a loop device over a copy of the image,
# without a page cache beneath it. The mounts go with the namespace.
CONTAINER = """
set -e
mkdir -p "$3/root"
device=$(losetup -f --show --direct-io=on "$3/run.img")
trap 'umount -l "$3/root"; losetup -d "$device"' EXIT
mount "$device" "$3/root"
for controller in memory blkio cpuacct cpu systemd unified; do
    mkdir -p "/sys/fs/cgroup/$controller/$5"
    echo $$ > "/sys/fs/cgroup/$controller/$5/cgroup.procs"
done
echo "$4" > "/sys/fs/cgroup/memory/$5/memory.limit_in_bytes"
mount -t tmpfs tmpfs /run
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=0
"$1" --quiet -D "$3/root" --register=no --keep-unit --capability=all --console=pipe \\
    --private-users=no --link-journal=no --bind="$3:/job" \\
    --bind-ro="$2/random.img:/job/random.img" --bind=/dev/fuse \\
    --machine="$5" /bin/sh /job/init.sh < /dev/null > "$3/console" 2>&1 &
payload=$!
trap 'kill "$payload"' TERM
wait "$payload" || wait "$payload"
"""


def container(options, job: Path) -> list:
    """What boots it in a container of this machine's kernel, with cgroup v1."""
    work = options.work
    (job / "host").touch()
    (job / "random.img").touch()
    (job / "init.sh").write_text(INIT)
    subprocess.run(["cp", "--sparse=always", work / "debian.img", job / "run.img"], check=True)
    command = ["unshare", "--mount", "--propagation=private", "sh", "-c", CONTAINER, "container"]
    return [*command, options.nspawn, work, job, f"{MEMORY_MIB}M", f"hither-{job.name}"]


class Agent:
    """hither on the host, for a service in the container: `attach` and `detach` are files there."""

    def __init__(self, options, job: Path, machine: subprocess.Popen) -> None:
        self.hither = Path(options.hither).resolve()
        self.machine = machine
        self.job = job
        self.root = Path(f"/sys/fs/cgroup/memory/hither-{job.name}")
        self.process: subprocess.Popen | None = None

    def serve(self) -> None:
        """Does what the container asks for."""
        if (self.job / "attach").exists():
            group, *words = (self.job / "attach").read_text().split()
            (self.job / "attach").unlink()
            address = str(self.job / "notify")
            Path(address).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
                ready.bind(address)
                ready.settimeout(60)
                # Where the container's disk is mounted.
                enter = ["nsenter", f"--mount=/proc/{self.machine.pid}/ns/mnt"]
                self.process = subprocess.Popen(
                    [*enter, self.hither, "run", "--cgroup", f"{self.root}{group}", *words],
                    stderr=(self.job / "said").open("w"),
                    env={**os.environ, "NOTIFY_SOCKET": address},
                )
                assert b"READY=1" in ready.recv(100)
            self.answer("attach", "")
        if (self.job / "detach").exists():
            (self.job / "detach").unlink()
            self.process.send_signal(signal.SIGINT)
            reads = Path(f"/proc/{self.process.pid}/io").read_text()
            _, _, used = os.wait4(self.process.pid, 0)
            self.process.returncode = 0
            took = {
                "agent_bytes": int(re.search(r"^read_bytes: (\d+)", reads, re.M)[1]),
                "agent_cpu_ms": round((used.ru_utime + used.ru_stime) * 1000),
                "agent_memory_bytes": used.ru_maxrss * 1024,
                "said": (self.job / "said").read_text().splitlines(),
            }
            self.answer("detach", json.dumps(took))

    def answer(self, what: str, text: str) -> None:
        (self.job / "answer").write_text(text)
        (self.job / "answer").rename(self.job / f"{what}.done")

    def end(self) -> None:
        if self.process and self.process.returncode is None:
            self.process.kill()
            self.process.wait()

    def remove_groups(self) -> None:
        """Those that the container has left."""
        for root in Path("/sys/fs/cgroup").glob(f"*/{self.root.name}"):
            for folder, _, _ in os.walk(root, topdown=False):
                os.rmdir(folder)


def results_of(options, arguments: str):
    """Boots a machine that does one job, and gives its lines as they come."""
    job = prepare_job(options, arguments)
    command = container(options, job) if options.container else guest(options.work, job)
    results = job / "results"
    results.write_bytes(b"")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    agent = Agent(options, job, process)
    deadline = time.monotonic() + TIMEOUT_S
    pending = ""
    try:
        with results.open(errors="replace") as file:
            while True:
                agent.serve()
                over = process.poll() is not None or time.monotonic() > deadline
                pending += file.read()
                *lines, pending = pending.split("\n")
                for line in lines:
                    if line.startswith('{"end"'):
                        if line != '{"end": 0}':
                            sys.exit(f"the job failed: {line}")
                        process.wait()
                        return
                    yield line
                if over:
                    console = (job / "console").read_text(errors="replace")
                    sys.exit(f"the machine ended early: {pending}\n{console[-2000:]}")
                time.sleep(0.2)
    finally:
        agent.end()
        process.terminate()
        process.wait()
        agent.remove_groups()


def measure(options) -> None:
    digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    about = {
        "build": options.build,
        "deb_sha256": digest(options.deb),
        "scripts_sha256": [digest(HERE / name) for name in SCRIPTS],
        "suite": SUITE,
        "machine": f"container, {MEMORY_MIB} MiB, cgroup v1" if options.container
        else f"QEMU TCG, 2 CPUs, {MEMORY_MIB} MiB, cgroup v2",
        "date": time.strftime("%Y-%m-%d"),
    }
    failed = 0
    for service in options.services:
        what = "lifecycle" if options.lifecycle else f"bytes {options.rounds}"
        for line in results_of(options, f"{service} {what}"):
            try:
                result = json.loads(line)
            except ValueError:
                print(f"{service}: {line}", flush=True)
                about.setdefault("kernel", line)
                continue
            failed += result.get("ok") is False or bool(result.get("wrong"))
            print(json.dumps(result), flush=True)
            with options.raw.open("a") as file:
                record = result | {"about": about}
                file.write(json.dumps(record) + "\n")
    sys.exit(f"{failed} steps failed" if failed else 0)


def table(raw: Path) -> None:
    """Medians, and the median of the ratios of pairs with their range."""
    runs = [json.loads(line) for line in raw.read_text().splitlines()]
    print("| service | read, MiB: plain | hither | bytes of plain | seconds of plain "
          "| the agent's CPU, % | its memory, MiB |\n|---|--:|--:|--:|--:|--:|--:|")
    for service in dict.fromkeys(run["service"] for run in runs):
        ways = {
            way: [run for run in runs if run["service"] == service and run.get("way") == way]
            for way in ("plain", "hither")
        }
        pairs = list(zip(ways["plain"], ways["hither"]))
        if not pairs:
            continue

        def ratios(key: str) -> str:
            all_ = sorted(steered[key] / max(plain[key], 1) for plain, steered in pairs)
            return f"{statistics.median(all_):.2f} ({all_[0]:.2f}-{all_[-1]:.2f})"

        def median(way: str, figure) -> float:
            return statistics.median(figure(run) for run in ways[way])

        # What the service's own neighbour reads anew, where that is the question.
        key = "neighbour_bytes" if "neighbour_bytes" in pairs[0][0] else "service_bytes"
        mib = lambda run: run[key] / MIB
        cpu = median("hither", lambda run: run["agent_cpu_ms"] / run["seconds"] / 10)
        memory = median("hither", lambda run: run["agent_memory_bytes"] / MIB)
        print(f"| {service} | {median('plain', mib):.0f} | {median('hither', mib):.0f} "
              f"| {ratios(key)} | {ratios('seconds')} | {cpu:.1f} | {memory:.0f} |")


def lifecycle_table(raw: Path) -> None:
    """Whether each step went as it has to, by service: the last run of each."""
    runs = [json.loads(line) for line in raw.read_text().splitlines()]
    last = {(run["step"], run["service"]): run for run in runs if "step" in run}
    services = list(dict.fromkeys(service for _, service in last))
    print(f"| step | {' | '.join(services)} |\n|---|{'---|' * len(services)}")
    for step in dict.fromkeys(step for step, _ in last):
        cells = []
        for service in services:
            run = last.get((step, service))
            requests = f", {run['requests']} requests" if run and "requests" in run else ""
            cells.append("" if not run else ("yes" if run["ok"] else "**no**") + requests)
        print(f"| {step} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("services", nargs="*", default=SERVICES,
                        help=f"of {', '.join(SERVICES)}; with --lifecycle also mounts, refusals")
    parser.add_argument("--deb", type=Path, help="the package")
    parser.add_argument("--build", default="", help="the commit that it was built from")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/services"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lifecycle", action="store_true", help="the steps, and no bytes")
    parser.add_argument("--container", action="store_true", help="bytes, on this machine's kernel")
    parser.add_argument("--hither", default="target/release/hither", help="the container's agent")
    parser.add_argument("--nspawn", default="systemd-nspawn", help="the program")
    parser.add_argument("--raw", type=Path, default=Path("services.jsonl"), help="results go here")
    parser.add_argument("--table", type=Path, help="print the table of these results")
    options = parser.parse_args()
    if options.table:
        return (lifecycle_table if options.lifecycle else table)(options.table)
    # So that QEMU ends with this script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.work.mkdir(parents=True, exist_ok=True)
    image(options.work)
    measure(options)


if __name__ == "__main__":
    main()
