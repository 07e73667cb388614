# ruff: noqa: E402  what notes the calls comes before what makes them
"""What reads, computes and fails, as the number of native blocks that it allocates and leaves behind.

Run by test_leaks.py in a process of its own, in which live_blocks.c counts.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), *(str(TESTS / folder) for folder in ("forge", "oracle"))]

from exact import native_functions

uncalled = set()
"""The native functions that no scenario has called so far."""


def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        uncalled.discard(name)
        return function(*arguments, **options)

    return call


if __name__ == "__main__":  # before other modules import the functions by name
    for (module, name), function in native_functions().items():
        uncalled.add(f"{module.__name__}.{name}")
        setattr(module, name, noted(f"{module.__name__}.{name}", function))

import numpy as np
import pyarrow as pa
import pytest
from fuzz.check import all_tables, joined, same, source_of, streamed
from fuzz.computations import computed, plain
from fuzz.outputs import differ

import xlamem
from xlamem._column import take
from xlamem.compute import REGISTRY
from xlamem.dump import as_tables, hlo_body
from xlamem.parse import pieces, whole
from xlamem.parse.batch import Batch

OTHER_TESTS = {"test_leaks", "test_stubs", "test_stored_scans"}
"""Tests of this folder that start processes, or take long and do what other scenarios do."""

DUMPS = TESTS / "dumps"
FLAGS = b"# off by default\nxla_dump_to: \"/tmp\"\noptions {\n}\n"
SPAN_BYTES = 2000
"""Small, so that there are many spans, and work for several threads."""


@functools.cache
def sources() -> tuple[xlamem.Source, ...]:
    """Dumps of all formats, in memory: nothing of them stays in the cache of files."""
    found = [xlamem.find(DUMPS / name) for name in sorted(p.name for p in DUMPS.iterdir() if "-" in p.name)[::3]]
    members = [{m.role: bytes(m.load().data) for m in source.members} for [source, *_] in found]
    return tuple(source_of({**m, "debug-options": FLAGS}, "tpu") for m in members)


@contextmanager
def small_spans() -> Iterator[None]:
    with mock.patch.object(whole, "SPAN_BYTES", SPAN_BYTES), mock.patch.object(pieces, "SPAN_BYTES", SPAN_BYTES):
        yield


def read(threads: int = 1) -> None:
    with small_spans():
        for source in sources():
            all_tables(xlamem.read(source, text=True, hashes=True, threads=threads))


def stream() -> None:
    with small_spans():
        for source in sources():
            streamed(source)


def stream_in_part() -> None:
    """Readers of record batches that nobody reads to the end."""
    with small_spans():
        for source in sources():
            for name in "values", "schedule", "uses":
                with suppress(StopIteration):
                    next(iter(xlamem.read(source).batches(name)))


def join() -> None:
    first, *others = sources()
    for other in others:
        joined(first, other)


def compute() -> None:
    for source in sources():
        dump = xlamem.read(source)
        computed(dump, random.Random(0))
        repr(hlo_body(as_tables(dump)))


def compare() -> None:
    first, *others = sources()
    for other in others:
        differ(random.Random(0), xlamem.read(first), xlamem.read(other))


class PlannedError(Exception):
    """What goes wrong in the middle."""


def fail_in_the_middle(way: Callable[[], None]) -> None:
    """An error after some spans were scanned, at each of a few places."""
    for place in 1, 2, 5, 20:
        left = [place]

        def load(batch: Batch, *arguments: Any, real: Any = Batch.load, left: list[int] = left) -> Batch:
            left[0] -= 1
            if left[0] <= 0:
                raise PlannedError
            loaded: Batch = real(batch, *arguments)
            return loaded

        with mock.patch.object(Batch, "load", load), suppress(PlannedError):
            way()


def native_tests() -> None:
    """What the tests of the native modules do, which also pass arguments that are refused."""
    files = [str(path) for path in sorted(Path(__file__).parent.glob("test_*.py")) if path.stem not in OTHER_TESTS]
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with redirect_stdout(sys.stderr):
        status = pytest.main([*options, *files])
    if status:
        raise RuntimeError(f"the tests of the native modules fail: {status}")


def without_memory(way: Callable[[], dict[str, pa.Table]]) -> None:
    """Each of the first allocations fails once, and some of the later ones: an error, or the same tables."""
    before = library.blocks_allocated()
    expected = plain_tables(way())
    n = library.blocks_allocated() - before
    for k in {*range(1, min(n, 150)), *range(150, n, max(1, n // 50))}:
        library.blocks_fail(k)
        with suppress(MemoryError):
            same(f"without allocation {k}", expected, plain_tables(way()))
        library.blocks_fail(0)


def plain_tables(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    library.blocks_fail(0)
    return {name: plain(table) for name, table in tables.items()}


def read_one() -> dict[str, pa.Table]:
    return all_tables(xlamem.read(sources()[-1], text=True, threads=1))


def stream_one() -> dict[str, pa.Table]:
    return streamed(sources()[-1])


def join_two() -> dict[str, pa.Table]:
    return joined(sources()[-1], sources()[0])


def compute_one() -> dict[str, pa.Table]:
    """The computations with native kernels. The dump is read before."""
    dump = xlamem.read(sources()[-1], threads=1)
    return {name: REGISTRY[name](dump) for name in ("advice", "savings", "peaks", "live_set")}


def leak() -> None:
    """Columns that stay referred to, as a missing Py_DECREF would leave them."""
    kept.append([take(np.arange(9), np.zeros(9, np.int32)) for _ in range(3)])


kept: list[object] = []

QUICK: dict[str, Callable[[], None]] = {
    "read": read,
    "threads": functools.partial(read, 3),
    "stream": stream,
    "stream in part": stream_in_part,
    "error while reading": functools.partial(fail_in_the_middle, read),
    "error in a thread": functools.partial(fail_in_the_middle, functools.partial(read, 3)),
    "error in a stream": functools.partial(fail_in_the_middle, stream),
    "no memory to read": functools.partial(without_memory, read_one),
    "native tests": native_tests,
}
SLOW: dict[str, Callable[[], None]] = {
    "join": join,
    "compute": compute,
    "compare": compare,
    "no memory to stream": functools.partial(without_memory, stream_one),
    "no memory to join": functools.partial(without_memory, join_two),
    "no memory to compute": functools.partial(without_memory, compute_one),
}


def settle() -> None:
    """Let everything go that is only still held by a cycle or by a thread that ends."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    gc.collect()


def watch() -> None:
    """Count the allocations of the native modules from now on."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, *_, path = line.split(maxsplit=5)
        if "x" in rights and Path(path).parent == Path(xlamem.__file__).parent:
            library.blocks_watch(*(int(address, 16) for address in addresses.split("-")))


def main() -> None:
    watch()
    left = {}
    for name in sys.argv[1:]:
        scenario = leak if name == "a leak" else (QUICK | SLOW)[name]
        scenario()  # imports modules, and fills caches
        settle()
        live, allocated = library.blocks_live(), library.blocks_allocated()
        scenario()
        settle()
        left[name] = library.blocks_allocated() - allocated, library.blocks_live() - live
    print(json.dumps({"left": left, "uncalled": sorted(uncalled)}))


if __name__ == "__main__":
    library = ctypes.CDLL(None)
    library.blocks_watch.argtypes = [ctypes.c_size_t] * 2
    library.blocks_fail.argtypes = [ctypes.c_long]
    library.blocks_live.restype = library.blocks_allocated.restype = ctypes.c_long
    main()
