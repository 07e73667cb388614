"""Many dumps that are made to take time or memory together. Each function writes n of them to a folder."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

from attacks import value


def _small(i: int = 0) -> bytes:
    """A dump with a line that nothing explains."""
    return f"BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n{value(i, 'a')}?\n".encode()


_PREFIX = b"I1120 12:03:29.928370   18058 buffer_assignment.cc:2664] "


def folder(root: Path, n: int) -> None:
    """A dump in each file."""
    for i in range(n):
        (root / f"module_{i:04}.m.cpu_after_optimizations-buffer-assignment.txt").write_bytes(_small(i))


def modules(root: Path, n: int) -> None:
    """All in one file."""
    (root / "all.txt").write_bytes(b"".join(map(_small, range(n))))


def frames(root: Path, n: int) -> None:
    """As printed to standard output."""
    name = b"module_%d.m.cpu_after_optimizations-buffer-assignment.txt"
    marks = ((b"*** Begin %s ***\n" % (name % i), b"\n*** End %s ***\n" % (name % i)) for i in range(n))
    (root / "all.txt").write_bytes(b"".join(begin + _small() + end for begin, end in marks))


def logged(root: Path, n: int) -> None:
    """As logged, in one thread."""
    lines = b"".join(_PREFIX + line + b"\n" for line in _small().splitlines())
    (root / "all.log").write_bytes(lines * n)


def archive(root: Path, n: int) -> None:
    """A tar file."""
    with tarfile.open(root / "all.tar", "w") as tar:
        for i in range(n):
            info = tarfile.TarInfo(f"d/module_{i:04}.m.cpu_after_optimizations-buffer-assignment.txt")
            info.size = len(_small())
            tar.addfile(info, io.BytesIO(_small()))


COLLECTIONS: tuple[Callable[[Path, int], None], ...] = (folder, modules, frames, logged, archive)
