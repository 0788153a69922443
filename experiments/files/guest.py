#!/usr/bin/env python3
"""Steering the page cache under cgroup v2, beside what the kernel itself offers: MiB that a guest
reads from its disk for six workloads, by each of the ways in WAYS, on Debian's kernels.

Boots a guest of one CPU and 1 GiB under QEMU's TCG, with two virtio disks (ext4): one of data and
one of programs. Each run has a new cgroup with a limit of 64 MiB and starts with an empty page
cache. The bytes are those of /proc/diskstats; times under TCG mean nothing and are a hint only.
Every way has to read the same bytes as plain: their sums are compared.

Needs QEMU and a static busybox (the lab's, `cargo run --release -p lab -- setup`, else those of the
machine), gcc, mke2fs, and, once for each kernel, a Debian mirror or --unpacked. No root and no KVM.

    python3 guest.py --hither target/release/hither --work /tmp/guest --raw runs.jsonl --rounds 3
    python3 guest.py --table runs.jsonl
    python3 guest.py --hither target/release/hither --work /tmp/guest --checks
    python3 guest.py --hither target/release/hither --work /tmp/guest --systemd
    python3 guest.py --hither target/release/hither --work /tmp/guest --raw runs.jsonl \\
        --kernel 6.12 --unpacked /tmp/kernel --only 'one file / plain' --only 'one file / attached'
"""

import argparse
import fnmatch
import hashlib
import json
import lzma
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
HERE = Path(__file__).resolve().parent
# Sizes for --scale 1: the limit, and the files on the disk of data; `fits` is seven eighths of the
# limit.
LIMIT_MIB = 64
FILES_MIB = {"data": 128, "fits": 56, **{f"part{part}": 32 for part in range(4)}}
# Beside the limit; for the kernel, and so that the guest as a whole is not short of memory.
FREE_MIB = 960
RUN_TIMEOUT_S = 300
# What a guest may take in all: TCG, beside other work.
GUEST_TIMEOUT_S = 3 * 3600
MIRROR = "https://deb.debian.org/debian"
# The suites that have each kernel, and a pattern of its package.
KERNELS = {
    "6.12": ("trixie", r"linux-image-6\.12\.\d+\+deb13-cloud-amd64"),
    "6.18": ("trixie-backports", r"linux-image-6\.18\.\d+\+deb13-cloud-amd64"),
}
# Modules for an ext4 on a virtio disk, in the order in which they are loaded. Those that a kernel's
# folder lacks are part of that kernel.
MODULES = ["crc16", "crc32c_generic", "mbcache", "jbd2", "ext4", "virtio_blk"]
KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable nowatchdog"
HOST_PROGRAMS = ["dash", "cksum", "dd", "unshare", "setpriv", "env"]

FOUR = " ".join(f"/disk/part{part}" for part in range(4))
WORKLOADS = {
    "one file": "/reader passes 6 65536 /disk/data",
    "four files": f"/reader passes 6 65536 {FOUR}",
    "just fits": "/reader passes 6 65536 /disk/fits",
    "read once": "/reader passes 1 65536 /disk/data",
    "shuffled": "/reader epochs 6 131072 /disk/data",
    "mapped": "/reader mapped 6 65536 /disk/data",
}


@dataclass
class Way:
    """How a workload is run. `helper` is one of guest.sh's."""

    prefix: str = ""
    limit_file: str = "memory.max"
    lru_gen: str = "y"
    helper: str = "none"
    program: str = "/reader"


HITHER = "/hither run --json --page-cache"
WAYS = {
    "plain": Way(),
    "plain, MGLRU off": Way(lru_gen="n"),
    "plain, memory.high": Way(limit_file="memory.high"),
    "memory.reclaim": Way(helper="senpai"),
    "DAMOS pageout": Way(helper="pageout"),
    "DAMOS lru_prio, lru_deprio": Way(helper="lru"),
    "DAMOS lru_prio, lru_deprio, MGLRU off": Way(helper="lru", lru_gen="n"),
    "hither automatic": Way("/hither run --json --"),
    "hither": Way(f"{HITHER} --"),
    "hither, MGLRU off": Way(f"{HITHER} --", lru_gen="n"),
    "hither, memory.high": Way(f"{HITHER} --", limit_file="memory.high"),
    "hither, DAMOS pageout": Way(f"{HITHER} --", helper="pageout"),
    "hither, binary cached by others": Way(f"{HITHER} --", helper="warm"),
    "hither --dry-run": Way(f"{HITHER} --dry-run --"),
    # Outside of the group, as `hither run --page-cache --cgroup`.
    "attached": Way(helper="attached"),
    "attached, MGLRU off": Way(helper="attached", lru_gen="n"),
    "attached, static program": Way(helper="attached", program="/reader-static"),
}


def lab_cache() -> Path:
    """Where the lab keeps its tools (lab/README.md)."""
    if named := os.environ.get("HITHER_LAB_CACHE"):
        return Path(named)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "hither-lab"
    return Path.home() / ".cache/hither-lab"


def tools() -> Path | None:
    """The lab's QEMU and busybox, if they are set up."""
    root = lab_cache() / "qemu-10"
    return root if root.exists() else None


def of_machine(program: str) -> Path:
    """A program of this machine, for want of the lab's."""
    found = shutil.which(program)
    if not found:
        sys.exit(f"{program}: not there; install it, or cargo run --release -p lab -- setup")
    return Path(found)


def busybox_program() -> Path:
    root = tools()
    return root / "bin/busybox" if root else of_machine("busybox")


def qemu_version() -> str:
    root = tools()
    if root:
        return json.loads((root / "versions.json").read_text())["qemu-system-x86"]
    asked = [of_machine("qemu-system-x86_64"), "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].removeprefix("QEMU emulator version ")


def fetch(path: str) -> bytes:
    mirror = os.environ.get("HITHER_LAB_MIRROR", MIRROR).rstrip("/")
    with urllib.request.urlopen(f"{mirror}/{path}", timeout=600) as response:
        return response.read()


def kernel(work: Path, release: str) -> Path:
    """The folder of Debian's newest kernel of a release: vmlinuz, config and modules."""
    folder = work / f"kernel-{release}"
    if folder.exists():
        return folder
    suite, pattern = KERNELS[release]
    index = lzma.decompress(fetch(f"dists/{suite}/main/binary-amd64/Packages.xz")).decode()
    found = []
    for stanza in index.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.M))
        if re.fullmatch(pattern, fields.get("Package", "")):
            version = [int(number) for number in re.findall(r"\d+", fields["Package"])]
            found.append((version, fields))
    fields = max(found, key=lambda entry: entry[0])[1]
    print(f"fetching {fields['Package']}", file=sys.stderr)
    package = fetch(fields["Filename"])
    assert hashlib.sha256(package).hexdigest() == fields["SHA256"], fields["Filename"]
    partial = work / f"kernel-{release}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    # A .deb is an ar archive (deb(5)); its last member is data.tar.xz.
    at = 8
    while at < len(package):
        header = package[at : at + 60]
        size = int(header[48:58])
        if header.startswith(b"data.tar.xz"):
            subprocess.run(
                ["tar", "-xJ", "-C", partial, "--wildcards", "--transform=s,.*/,,"]
                + ["*/boot/vmlinuz-*", "*/boot/config-*", "*/virtio_blk.ko.xz"],
                input=package[at + 60 : at + 60 + size],
                check=True,
            )
        at += 60 + size + size % 2
    next(partial.glob("vmlinuz-*")).rename(partial / "vmlinuz")
    module = lzma.decompress((partial / "virtio_blk.ko.xz").read_bytes())
    (partial / "virtio_blk.ko").write_bytes(module)
    partial.rename(folder)
    return folder


def adopt(work: Path, release: str, unpacked: Path) -> None:
    """Makes the folder of a kernel from its package, unpacked by `dpkg-deb -x`."""
    partial = work / f"kernel-{release}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copy2(next(unpacked.glob("boot/vmlinuz-*")), partial / "vmlinuz")
    for module in unpacked.glob("lib/modules/*/kernel/**/*.ko.xz"):
        name = module.name.removesuffix(".ko.xz")
        if name in MODULES:
            (partial / f"{name}.ko").write_bytes(lzma.decompress(module.read_bytes()))
    folder = work / f"kernel-{release}"
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def image(path: Path, folder: Path, mib: int) -> None:
    """An ext4 image with a folder's files."""
    path.unlink(missing_ok=True)
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0"]
        + ["-d", folder, path, f"{mib}M"],
        check=True,
    )


def data_disk(work: Path, scale: int) -> Path:
    disk = work / f"data-{scale}.img"
    if not disk.exists():
        folder = work / "data"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, mib in FILES_MIB.items():
            (folder / name).write_bytes(os.urandom(mib * scale * MIB))
        image(disk, folder, sum(FILES_MIB.values()) * scale * 9 // 8)
        shutil.rmtree(folder)
    return disk


def put(root: Path, program: Path, place: str) -> None:
    """Copies a program and the libraries that ldd names, at their paths."""
    files = {program: place}
    said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", said):
        files[Path(library)] = library
    for source, target in files.items():
        target = root / target.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def programs_disk(work: Path, hither: Path, runs: str) -> None:
    """The guest's root: busybox, hither, the reader, the list of runs."""
    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    for folder in "bin proc sys dev tmp run root disk etc".split():
        (root / folder).mkdir(parents=True)
    busybox = busybox_program()
    shutil.copy2(busybox, root / "bin/busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    for applet in listed.stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    reader = work / "reader"
    subprocess.run(["gcc", "-O1", "-o", reader, HERE / "reader.c"], check=True)
    put(root, reader, "/reader")
    subprocess.run(["gcc", "-O1", "-static", "-o", reader, HERE / "reader.c"], check=True)
    shutil.copy2(reader, root / "reader-static")
    put(root, hither, "/hither")
    for name in HOST_PROGRAMS:
        put(root, Path(shutil.which(name)), f"/usr/bin/{name}")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
    shutil.copy2(HERE / "guest.sh", root / "guest.sh")
    (root / "runs").write_text(runs)
    image(work / "programs.img", root, 192)


def initramfs(work: Path, kernel_folder: Path) -> Path:
    """Loads the disks' drivers and goes over to the disk of programs."""
    root = work / "initramfs"
    shutil.rmtree(root, ignore_errors=True)
    for folder in "bin dev new".split():
        (root / folder).mkdir(parents=True)
    busybox = busybox_program()
    shutil.copy2(busybox, root / "bin/busybox")
    modules = [f"{name}.ko" for name in MODULES if (kernel_folder / f"{name}.ko").exists()]
    for module in modules:
        shutil.copy2(kernel_folder / module, root)
    init = root / "init"
    init.write_text(
        "#!/bin/busybox sh\n"
        + "".join(f"/bin/busybox insmod /{module}\n" for module in modules)
        + "/bin/busybox mount -t devtmpfs dev /dev\n"
        "/bin/busybox mount -t ext4 /dev/vdb /new\n"
        "/bin/busybox mount -o move /dev /new/dev\n"
        "[ -e /new/guest.sh ] && exec /bin/busybox switch_root /new /bin/sh /guest.sh\n"
        "exec /bin/busybox switch_root /new /sbin/init\n"
    )
    init.chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*"))) + "\n"
    archive = work / "initramfs.cpio"
    with archive.open("wb") as file:
        packing = [busybox, "cpio", "-o", "-H", "newc"]
        subprocess.run(
            packing, cwd=root, input=names.encode(), stdout=file, stderr=subprocess.DEVNULL,
            check=True,
        )
    return archive


@dataclass
class Machine:
    """What QEMU shows to the guest. `disk_mib_s` of 0 does not limit the disks."""

    nodes: int = 1
    scale: int = 1
    disk_mib_s: int = 0

    def memory_mib(self) -> int:
        return LIMIT_MIB * self.scale + FREE_MIB


def qemu_program() -> list[str]:
    """QEMU: the lab's, started by its own loader with its own libraries, or the machine's."""
    root = tools()
    if not root:
        return [str(of_machine("qemu-system-x86_64"))]
    libraries = f"{root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu"
    command = [f"{root}/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "--library-path", libraries]
    command += [f"{root}/usr/bin/qemu-system-x86_64"]
    for firmware in ("qemu", "seabios"):
        command += ["-L", f"{root}/usr/share/{firmware}"]
    return command


def qemu(work: Path, kernel_folder: Path, archive: Path, machine: Machine) -> list[str]:
    command = qemu_program()
    # TCG executes string instructions byte by byte (lab/src/guest/qemu.rs).
    command += ["-machine", "pc", "-cpu", "max,erms=off,fsrm=off,la57=off,smap=off,pku=off"]
    command += ["-accel", "tcg", "-m", f"{machine.memory_mib()}M"]
    command += ["-smp", str(machine.nodes)]
    if machine.nodes > 1:
        for node in range(machine.nodes):
            mib = machine.memory_mib() // machine.nodes
            command += ["-object", f"memory-backend-ram,id=memory{node},size={mib}M"]
            command += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={node}"]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += ["-kernel", f"{kernel_folder}/vmlinuz", "-initrd", str(archive)]
    command += ["-append", KERNEL_ARGUMENTS]
    command += ["-serial", f"file:{work}/console", "-serial", f"file:{work}/results"]
    for name, file in (("data", f"data-{machine.scale}.img"), ("programs", "programs.img")):
        drive = f"if=none,id={name},format=raw,file={work}/{file}"
        if machine.disk_mib_s:
            drive += f",throttling.bps-read={machine.disk_mib_s * MIB}"
        command += ["-drive", drive, "-device", f"virtio-blk-pci,drive={name}"]
    return command


def guest(work: Path, release: str, machine: Machine):
    """Boots the guest and gives its lines of results as they come."""
    kernel_folder = kernel(work, release)
    archive = initramfs(work, kernel_folder)
    results = work / "results"
    results.write_bytes(b"")
    command = ["nice", "-n", "5", *qemu(work, kernel_folder, archive, machine)]
    environment = dict(os.environ)
    if root := tools():
        environment["QEMU_MODULE_DIR"] = f"{root}/usr/lib/x86_64-linux-gnu/qemu"
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + GUEST_TIMEOUT_S
    try:
        with results.open(errors="replace") as file:
            pending = ""
            while True:
                over = process.poll() is not None or time.monotonic() > deadline
                pending += file.read()
                *lines, pending = pending.split("\n")
                for line in lines:
                    if line.startswith('{"end"'):
                        return
                    yield line
                if over:
                    console = (work / "console").read_text(errors="replace")
                    sys.exit(f"the guest ended early; its console:\n{console[-2000:]}")
                time.sleep(0.2)
    finally:
        process.kill()
        process.wait()


def chosen(options) -> list[tuple[str, str]]:
    pairs = [(workload, way) for workload in WORKLOADS for way in WAYS]
    only = options.only or ["*"]
    return [
        pair for pair in pairs if any(fnmatch.fnmatch(" / ".join(pair), glob) for glob in only)
    ]


def measure(options) -> None:
    """Runs everything. Each round begins with another way."""
    pairs = chosen(options)
    machine = Machine(scale=options.scale, disk_mib_s=options.disk_mib_s)
    limit_mib = LIMIT_MIB * options.scale
    runs = []
    for round_ in range(options.rounds):
        turn = round_ * len(pairs) // options.rounds
        runs += [(round_, *pair) for pair in pairs[turn:] + pairs[:turn]]
    script = ""
    for number, (_, workload, name) in enumerate(runs):
        way = WAYS[name]
        script += (
            f"one {number} {way.limit_file} {limit_mib}M {way.lru_gen} {way.helper} "
            f"{RUN_TIMEOUT_S} {way.prefix} {WORKLOADS[workload].replace('/reader', way.program)}\n"
        )
    digest = lambda path: hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    provenance = {
        "build": options.build,
        "hither_sha256": digest(options.hither),
        "scripts_sha256": [digest(HERE / name) for name in ("guest.py", "guest.sh", "reader.c")],
        "qemu": qemu_version(),
        "guest": f"1 CPU, {machine.memory_mib()} MiB, TCG",
        "disk_mib_s": options.disk_mib_s,
        "limit_mib": limit_mib,
    }
    data_disk(options.work, options.scale)
    for release in options.kernel or KERNELS:
        programs_disk(options.work, options.hither, script)
        for line in guest(options.work, release, machine):
            result = json.loads(line)
            if "kernel" in result:
                provenance["kernel"] = result["kernel"]
                continue
            round_, workload, way = runs[result.pop("id")]
            record = {"release": release, "workload": workload, "way": way, "round": round_}
            record |= result | {"provenance": provenance}
            for list_ in ("busiest_files", "busiest_sites"):
                (record["said"] or {}).pop(list_, None)
            with options.raw.open("a") as file:
                file.write(json.dumps(record) + "\n")
            mib = (record["data_kib"] + record["programs_kib"]) / 1024
            print(f"{release} {workload:11} {way:38} {mib:7.1f} MiB, {record['guest_s']:6.1f} s, "
                  f"status {record['status']}", file=sys.stderr)


def table(raw: Path) -> None:
    """Medians of MiB read from both disks, a column for each workload; in parentheses: of plain."""
    records = [json.loads(line) for line in raw.read_text().splitlines()]
    workloads = [name for name in WORKLOADS if any(r["workload"] == name for r in records)]
    for release in dict.fromkeys(record["release"] for record in records):
        kernels = {r["provenance"]["kernel"] for r in records if r["release"] == release}
        print(f"\nLinux {', '.join(sorted(kernels))}:\n")
        print("| way | " + " | ".join(workloads) + " |")
        print("|---|" + "--:|" * len(workloads))
        plain = {}
        for way in WAYS:
            cells = []
            for workload in workloads:
                runs = [
                    r for r in records
                    if (r["release"], r["workload"], r["way"]) == (release, workload, way)
                ]
                if any(r["status"] for r in runs):
                    cells.append(f"status {runs[0]['status']}")
                    continue
                if not runs:
                    cells.append("")
                    continue
                read = statistics.median(r["data_kib"] + r["programs_kib"] for r in runs) / 1024
                plain.setdefault(workload, read)
                cells.append(f"{read:.0f} ({read / plain[workload]:.2f})")
            if any(cells):
                print(f"| {way} | " + " | ".join(cells) + " |")
    check_sums(records)


def check_sums(records: list[dict]) -> None:
    """Each way read what plain read."""
    for workload in WORKLOADS:
        sums = {r["sum"] for r in records if r["workload"] == workload and r["status"] == 0}
        if len(sums) > 1:
            sys.exit(f"{workload}: runs read different bytes: {sums}")


def checks(options) -> None:
    """Runs guest_checks.sh in a guest of two memory nodes, or guest_systemd.sh in a Debian, on each
    kernel, and prints their lines."""
    data_disk(options.work, 1)
    script = (HERE / "guest_checks.sh").read_text()
    failed = 0
    for release in options.kernel or KERNELS:
        if options.systemd:
            debian_disk(options.work, options.hither)
        else:
            programs_disk(options.work, options.hither, script)
        for line in guest(options.work, release, Machine(nodes=2)):
            print(f"{release}: {line}", flush=True)
            failed += line.startswith("FAILED")
    sys.exit(f"{failed} checks failed" if failed else 0)


def debian_disk(work: Path, hither: Path) -> None:
    """A Debian with systemd as the disk of programs; needs debootstrap and root."""
    root = work / "debian"
    if not root.exists():
        partial = work / "debian.partial"
        shutil.rmtree(partial, ignore_errors=True)
        include = "--include=systemd-sysv,dbus-user-session,libpam-systemd"
        mirror = os.environ.get("HITHER_LAB_MIRROR", MIRROR)
        subprocess.run(
            ["debootstrap", "--variant=minbase", include, "trixie", partial, mirror],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        subprocess.run(["chroot", partial, "useradd", "-m", "user"], check=True)
        data = partial / "srv/scan.data"
        data.write_bytes(os.urandom(300 * MIB))
        for path in (data, data.parent):
            shutil.chown(path, 1000, 1000)
        partial.rename(root)
    shutil.copy2(hither, root / "usr/bin/hither")
    shutil.copy2(HERE / "guest_systemd.sh", root / "checks.sh")
    unit = root / "etc/systemd/system/checks.service"
    unit.write_text(
        "[Unit]\nAfter=dbus.service systemd-logind.service\n"
        "[Service]\nType=oneshot\nExecStart=/bin/sh /checks.sh\nTimeoutStartSec=infinity\n"
    )
    wanted = root / "etc/systemd/system/multi-user.target.wants/checks.service"
    wanted.unlink(missing_ok=True)
    wanted.symlink_to("../checks.service")
    image(work / "programs.img", root, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hither", type=Path, default=Path("target/release/hither"))
    parser.add_argument("--build", default="", help="the commit that --hither was built from")
    parser.add_argument("--work", type=Path, default=Path("/tmp/guest"))
    parser.add_argument("--raw", type=Path, default=Path("guest.jsonl"), help="results go here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=1, help="times 64 MiB is the limit")
    parser.add_argument(
        "--disk-mib-s", type=int, default=200, help="what each disk reads in a second; 0: any"
    )
    parser.add_argument("--kernel", action="append", choices=KERNELS)
    parser.add_argument(
        "--unpacked", type=Path, help="the unpacked package of the one --kernel, for no mirror"
    )
    parser.add_argument("--only", action="append", help="a glob of 'WORKLOAD / WAY'")
    parser.add_argument("--table", type=Path, help="print the table of these results")
    parser.add_argument("--checks", action="store_true", help="run guest_checks.sh instead")
    parser.add_argument("--systemd", action="store_true", help="run guest_systemd.sh instead")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.unpacked:
        if len(options.kernel or []) != 1:
            parser.error("--unpacked needs one --kernel")
        adopt(options.work, options.kernel[0], options.unpacked)
    # So that QEMU ends with this script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return checks(options) if options.checks or options.systemd else measure(options)


if __name__ == "__main__":
    main()
