"""Recording programs, by the command `hither` of the same wheel."""

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from hither._trace import Trace, open
from hither.errors import Error, TraceError

_Text = str | os.PathLike[str]


def _command() -> str:
    beside = Path(sysconfig.get_path("scripts"), "hither")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("hither")
    if found is None:
        raise Error(f"the command `hither` is neither at {beside} nor in PATH")
    return found


def record(
    command: Iterable[_Text],
    *,
    output: _Text | None = None,
    force: bool = False,
    mapped: bool = False,
    frames: int = 32,
    block: int | str = 4096,
    cwd: _Text | None = None,
    env: Mapping[str, str] | None = None,
) -> Trace:
    """Records the file accesses of a program and of all processes that it starts.

    The program runs unchanged, with the standard input, output and error of this process. Its exit
    code is `Trace.exit_code`. Ctrl-C reaches the program too, if it runs in the same terminal; the
    recording is completed before `KeyboardInterrupt` is raised.

    Args:
        command: the program and its arguments.
        output: the trace folder. None: a temporary one, which is removed when the trace is closed.
        force: replace a folder that is there.
        mapped: record touches of mapped files too, sampled.
        frames: call sites are distinguished by at most so many frames of the stack, 1 to 64.
        block: bytes of a block.
        cwd: the folder that the program runs in. None: that of this process.
        env: its environment. None: that of this process.

    Raises:
        TraceError: there is no trace: the program could not be started, or `output` could not be
            written. The command has said why, on standard error.

    Example:
        >>> import hither
        >>> trace = hither.record(["cp", "/etc/passwd", "/dev/null"])
        >>> trace.exit_code, trace.references > 0
        (0, True)
    """
    if isinstance(command, str):
        raise TypeError("a list of words is needed, such as ['make', '-j8'], not a string")
    words = [os.fspath(word) for word in command]
    if not words:
        raise ValueError("nothing to record: name a program")
    temporary = None
    if output is None:
        temporary = tempfile.TemporaryDirectory(prefix="hither-")
        output = Path(temporary.name, "trace.hither")
    options = ["--force"] * force + ["--mapped"] * mapped + ["--frames", str(frames)]
    child = subprocess.Popen(
        [_command(), "record", "--quiet", "--output", os.fspath(output), *options, "--", *words],
        cwd=cwd,
        env=env,
    )
    try:
        child.wait()
    except KeyboardInterrupt:
        child.wait()
        raise
    if not Path(cwd or "", output).is_dir():
        raise TraceError(f"{words[0]}: no trace was made (exit code {child.returncode})")
    trace = open(Path(cwd or "", output), block=block)
    trace.exit_code = child.returncode
    trace._temporary = temporary
    return trace
