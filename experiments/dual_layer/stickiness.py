#!/usr/bin/env python3
"""How often Linux keeps the processes of a build on the CPU of the process that starts them: what
`gen compile{sticky=...}` is to be.

Writes a project of C files whose rules have the shape of the kernel's (make, sh, gcc, cc1, as, and
a small program that reads the dependencies), builds it with `make -j1`, alone and beside a busy
program, and with `-j2`, and reads the scheduler's tracepoints. Counts, for each execution of cc1
and as, whether it runs on the CPU on which its parent was when it forked, and how often a running
one migrates.

Where it runs:

- here (root, tracefs): the CPUs of this machine, with whatever else runs on them;
- with `--kernel VMLINUZ`, in a guest of two nodes with one CPU and 1 GiB each, which is the shape
  of the paper's machine: a QEMU guest whose initramfs holds this machine's compiler. Nothing else
  runs there.

    python3 stickiness.py --work /tmp/stickiness --kernel /boot/vmlinuz --output results
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
# A buffer of its own, so that nobody else's tracing is disturbed.
INSTANCE = TRACING / "instances/stickiness"
EVENTS = ["sched_process_fork", "sched_process_exec", "sched_process_exit", "sched_migrate_task"]
HEADERS = ["stdio", "stdlib", "string", "math", "time", "errno", "unistd", "sys/stat", "pthread"]
# Runs by name: the jobs of make, and whether a program that only computes runs beside it.
RUNS = {"1 job": (1, False), "1 job, a busy program": (1, True), "2 jobs": (2, False)}
MAKEFILE = """\
objects := $(patsubst %.c,%.o,$(wildcard *.c))
all: $(objects)
\tld -r -o all.o $(objects)
%.o: %.c
\t@set -e; gcc -O2 -Wp,-MD,$*.d -c -o $@ $<; sed -e 's/x/y/' $*.d > .$*.cmd; rm -f $*.d
"""
RECORD = """\
mkdir -p {tracing}; cd {tracing}
echo 0 > tracing_on; echo > trace; echo 32768 > buffer_size_kb
for event in {events}; do echo 1 > events/sched/$event/enable; done
cd {project}; rm -f *.o
{busy}
echo 1 > {tracing}/tracing_on
make -s -j{jobs}
echo 0 > {tracing}/tracing_on
{end}
cat {tracing}/trace > {out}
rmdir {tracing}
"""
BUSY = "(while :; do :; done) & busy=$!"


def project(folder: Path, sources: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    includes = "".join(f"#include <{header}.h>\n" for header in HEADERS)
    for number in range(sources):
        functions = "".join(
            f"double f{number}_{each}(double x) {{ double sum = 0; for (int i = 0; i < {each + 3};"
            f" i++) sum += sin(x * i) + strlen(getenv(\"A\")); return sum; }}\n"
            for each in range(30)
        )
        (folder / f"s{number:03}.c").write_text(includes + functions)
    (folder / "Makefile").write_text(MAKEFILE)


def recording(name: str, folder: Path, out: str) -> str:
    jobs, busy = RUNS[name]
    return RECORD.format(
        tracing=INSTANCE,
        events=" ".join(EVENTS),
        project=folder,
        jobs=jobs,
        busy=BUSY if busy else "",
        end="kill $busy" if busy else "",
        out=out,
    )


def needed(program: str) -> set[str]:
    """The program, and the libraries that it loads."""
    path = shutil.which(program) or program
    found = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return {path} | set(re.findall(r"(/\S+) \(0x", found))


def initramfs(work: Path, sources: int) -> Path:
    """A guest's files: busybox, make, the compiler, headers, the project, and an init that records
    all runs and prints their traces."""
    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("proc", "sys", "dev", "tmp", "bin", "usr/bin"):
        (root / folder).mkdir(parents=True)
    gcc = [
        subprocess.run(["gcc", f"-print-prog-name={name}"], capture_output=True, text=True)
        .stdout.strip()
        for name in ("cc1", "as", "ld")
    ]
    files = set().union(*map(needed, ["busybox", "make", "gcc", "dash", *gcc]))
    for path in files:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)
    for name in ("sh", "cat", "sed", "rm", "mount", "poweroff", "mkdir", "rmdir"):
        (root / "bin" / name).symlink_to("dash" if name == "sh" else "busybox")
    for name in ("busybox", "dash"):
        if not (root / "bin" / name).exists():
            shutil.copy(os.path.realpath(shutil.which(name)), root / "bin" / name)
    shutil.copytree("/usr/include", root / "usr/include", symlinks=True, dirs_exist_ok=True)
    library = Path(gcc[0]).parent / "include"
    shutil.copytree(library, root / str(library).lstrip("/"), dirs_exist_ok=True)
    project(root / "tmp/project", sources)
    steps = ["#!/bin/sh", "export PATH=/bin:/usr/bin"]
    steps += ["mount -t devtmpfs d /dev", "mount -t proc p /proc", "mount -t sysfs s /sys"]
    steps += [f"mount -t tracefs t {TRACING}"]
    for name in RUNS:
        steps += [recording(name, Path("/tmp/project"), "/tmp/trace")]
        steps += [f"echo 'RUN {name}' > /dev/ttyS1; cat /tmp/trace > /dev/ttyS1"]
    steps += ["echo END > /dev/ttyS1; poweroff -f"]
    init = root / "init"
    init.write_text("\n".join(steps) + "\n")
    init.chmod(0o755)
    image = work / "initramfs"
    with image.open("wb") as out:
        listed = subprocess.run(["find", "."], cwd=root, stdout=subprocess.PIPE, check=True)
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"],
            cwd=root,
            input=listed.stdout,
            stdout=out,
            check=True,
        )
    return image


def in_guest(work: Path, kernel: Path, qemu: str, accel: str, sources: int) -> dict[str, str]:
    out = work / "traces.txt"
    command = [qemu, "-machine", f"q35,accel={accel}", "-smp", "2"]
    for node in (0, 1):
        command += ["-object", f"memory-backend-ram,size=1G,id=m{node}"]
        command += ["-numa", f"node,cpus={node},memdev=m{node}"]
    command += ["-m", "2G", "-display", "none", "-no-reboot", "-kernel", str(kernel)]
    command += ["-initrd", str(initramfs(work, sources)), "-append", "console=ttyS0 quiet panic=-1"]
    command += ["-serial", f"file:{work / 'console.txt'}", "-serial", f"file:{out}"]
    subprocess.run([*command, "-monitor", "none"], check=True, timeout=3000)
    parts = re.split(r"^RUN (.*)\n", out.read_text(errors="replace").replace("\r", ""), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def here(work: Path, sources: int) -> dict[str, str]:
    project(work / "project", sources)
    traces = {}
    for name in RUNS:
        script = recording(name, work / "project", str(work / "trace"))
        subprocess.run(["sh", "-c", script], check=True)
        traces[name] = (work / "trace").read_text(errors="replace")
    return traces


LINE = re.compile(r"\[(\d+)\].*?: (sched_\w+): (.*)")


def counted(trace: str) -> dict[str, float]:
    """From the lines of a trace: executions of cc1 and as below make; how many run on the CPU where
    their parent forked them; migrations of those that run; and the share that runs on the busier
    CPU."""
    parent_cpu, programs, moves = {}, {}, 0
    below_make = set()
    stays, total, on_cpu = 0, 0, defaultdict(int)
    for line in trace.splitlines():
        found = LINE.search(line)
        if not found:
            continue
        cpu, event, rest = int(found[1]), found[2], found[3]
        value = dict(re.findall(r"(\w+)=(\S+)", rest))
        if event == "sched_process_fork":
            parent_cpu[value["child_pid"]] = cpu
            # The first two are of the parent's name and number.
            parent = re.search(r" pid=(\d+)", rest)[1]
            if parent in below_make:
                below_make.add(value["child_pid"])
        elif event == "sched_process_exec":
            name = value["filename"].rsplit("/", 1)[-1]
            if name == "make":
                below_make.add(value["pid"])
            if name in ("cc1", "as") and value["pid"] in below_make:
                programs[value["pid"]] = name
                total += 1
                stays += cpu == parent_cpu[value["pid"]]
                on_cpu[cpu] += 1
        elif event == "sched_migrate_task":
            moves += value["pid"] in programs
        elif event == "sched_process_exit":
            programs.pop(value["pid"], None)
    shares = [count / max(total, 1) for count in on_cpu.values()]
    return {
        "executions": total,
        "stay": 100 * stays / max(total, 1),
        "migrations": 100 * moves / max(total, 1),
        "busier": 100 * max(shares, default=0),
        "same": 100 * sum(share**2 for share in shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kernel", type=Path, help="measure in a guest with this kernel")
    parser.add_argument("--qemu", default="qemu-system-x86_64", help="the guest's QEMU")
    parser.add_argument("--accel", default="tcg", help="QEMU's accelerator: kvm or tcg")
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--sources", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="five sources")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    sources = 5 if arguments.quick else arguments.sources
    if arguments.kernel:
        traces = in_guest(work, arguments.kernel, arguments.qemu, arguments.accel, sources)
        where = f"a guest of two nodes of one CPU, {arguments.kernel.name}"
    else:
        traces = here(work, sources)
        where = f"{os.cpu_count()} CPUs, Linux {platform.release()}"
    lines = [
        "# Where the processes of a build run\n",
        f"Written by `stickiness.py` with {sources} sources, on\n{where}.\n",
        "| make | runs of cc1 and as | on the CPU of the parent, % | migrations in 100 | "
        "on the busier CPU, % | two runs on the same CPU, % |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, trace in traces.items():
        found = counted(trace)
        print(name, found, file=sys.stderr)
        lines.append(
            f"| {name} | {found['executions']} | {found['stay']:.1f} | {found['migrations']:.1f} |"
            f" {found['busier']:.1f} | {found['same']:.1f} |"
        )
    name = "stickiness_guest.md" if arguments.kernel else "stickiness_here.md"
    (arguments.output / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
