"""Progress of long work, by tqdm where it is installed."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class _Show(Protocol):
    def __call__(self, what: str, done: int, length: int) -> object: ...


@contextmanager
def shown() -> Iterator[_Show | None]:
    """Yields what long work calls with its name, what is done and its length (0: not known).

    It is None where nobody would see it: without tqdm, or where standard error is no terminal and
    no notebook runs.
    """
    try:
        with warnings.catch_warnings():
            # In a notebook without ipywidgets it warns, and shows progress as text.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield None
        return
    bars: list[Any] = []

    def show(what: str, done: int, length: int) -> None:
        if not bars or bars[0].desc != what:
            for bar in bars:
                bar.close()
            bars[:] = [tqdm(desc=what, total=length or None, unit_scale=True, leave=False)]
        bars[0].update(done - bars[0].n)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()
