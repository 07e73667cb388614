"""Small dumps, written as directories, streams and archives."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from xlamem.input.find import Source
from xlamem.input.names import EXTENSIONS

ALLOCATIONS = "BufferAssignment:\nallocation 0: size 4, thread-local:\n value: <0 p @0> (size=4,offset=0): f32[]\n"
VALUES = "\nTotal bytes used: 4 (4B)\n\nUsed values:\n<0 p @0>\n positions:\n  p\n uses:\n  (none)\n"
LIVE = "HloLiveRange (max 1):\n  InstructionSequence:\n    0:p\n"
REPORT_A = "Total bytes used: 4 (4B)\n\nAllocations sorted by size:\n\n"
REPORT_B = "Memory Space: default (color=0)\nTotal bytes: 4 (4B)\n"
HLO = "HloModule jit_f, is_scheduled=true\n\n"
TEXTS = {
    "buffer-assignment": ALLOCATIONS,
    "buffer-assignment-values": VALUES,
    "live-range": LIVE,
    "memory-usage-report": REPORT_B,
    "hlo": HLO,
}
STEM = "module_0000.jit_f.cpu_after_optimizations"
LOG = "I1120 12:03:29.928370   18058 buffer_assignment.cc:2664] "
LOG_TF = "2023-11-20 12:03:29.928370: I tensorflow/compiler/xla/buffer_assignment.cc:99] "

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def write(directory: Path, stem: str = STEM, texts: dict[str, str] = TEXTS, packed: str = "") -> Path:
    """One dump; returns the path of its stem."""
    directory.mkdir(parents=True, exist_ok=True)
    for role, text in texts.items():
        data = text.encode()
        name = stem + EXTENSIONS[role]  # type: ignore[index]
        if packed:
            data, name = PACK[packed](data), f"{name}.{packed}"
        (directory / name).write_bytes(data)
    return directory / stem


def frame(name: str, content: str) -> str:
    return f"*** Begin {name} ***\n{content}\n*** End {name} ***\n"


def frames(stem: str = STEM, texts: dict[str, str] = TEXTS) -> str:
    return "".join(frame(stem + EXTENSIONS[role], text) for role, text in texts.items())  # type: ignore[index]


def contents(dump: Source) -> dict[str, str]:
    out = {}
    for member in dump.members:
        with member.load() as text:
            out[member.role] = bytes(text.data).decode()
    return out


def tar_of(directory: Path, path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        tar.add(directory, arcname=directory.name)
    return path
