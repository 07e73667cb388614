"""Small programs for tests of advice, each like one that was recompiled."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attacks
from attacks import record, value

import xlamem

Make = Callable[..., Path]
Row = dict[str, Any]
KIB = 1 << 10


class Buffer(NamedTuple):
    """A temporary, or an allocation of its own if that is given."""

    name: str
    shape: str
    live: tuple[int, int] = (0, 9)
    op_name: str = ""
    instruction: str = "add(%x, %x)"
    allocation: str = ""
    positions: str = ""
    uses: str = ""
    more: str = ""
    """Other values in the allocation."""
    frame: int = 0
    slot_of: str = ""
    """The earlier temporary in whose slot it is, or any buffer in whose allocation, if it has none of its own."""

    @property
    def size(self) -> int:
        return 4 * math.prod(int(n) for n in re.findall(r"\d+", self.shape.partition("[")[2].partition("]")[0]))


def argument(name: str, shape: str, number: int, **others: Any) -> Buffer:
    allocation = f"parameter {number}, shape |{shape}| at ShapeIndex {{}}:"
    return Buffer(f"p.{number}", shape, (0, 9), name, f"parameter({number})", allocation, **others)


def output(name: str, shape: str, **others: Any) -> Buffer:
    return Buffer(name, shape, (9, 10), allocation=f"output shape is |{shape}|, maybe-live-out:", **others)


def loop(name: str, trips: int, op_name: str = "jit(f)/while", **others: Any) -> Buffer:
    config = f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}'
    instruction = f"while(%init), condition=%cond, body=%body, {config}"
    return Buffer(name, "s32[]", op_name=op_name, instruction=instruction, **others)


BACKEND = {"cpu": "cpu_", "gpu": "sm_9.0_gpu_", "tpu": "cl_1."}


def program(
    make: Make, buffers: Sequence[Buffer], platform: str = "cpu", ranges: Sequence[str] = (), **others: str
) -> xlamem.Dump:
    """Return a program of ten steps with these buffers; the temporaries lie one after the other."""
    own, temps, end, offsets = "", "", 0, {}
    allocated = {b.name for b in buffers if b.allocation}
    for i, b in enumerate(buffers):
        if b.allocation:
            own += f"allocation {i + 1}: size {b.size}, {b.allocation}\n"
            mates = [(k, mate) for k, mate in enumerate(buffers) if mate.slot_of == b.name]
            own += "".join(value(k, mate.name, mate.size, 0, mate.shape) for k, mate in [(i, b), *mates]) + b.more
        elif b.slot_of not in allocated:
            offset = offsets[b.name] = offsets.get(b.slot_of, end)
            temps += value(i, b.name, b.size, offset, b.shape) + b.more
            end = max(end, offset + b.size)
    frames = [f" stack_frame_id={b.frame}" if b.frame else "" for b in buffers]
    pairs = zip(buffers, frames, strict=True)
    metadata = [f', metadata={{op_name="{b.op_name}"{frame}}}' if b.op_name else "" for b, frame in pairs]
    records = [
        record(i, b.name, f"{b.shape} {b.instruction}{m}", b.positions, b.uses)
        for i, (b, m) in enumerate(zip(buffers, metadata, strict=True))
    ]
    names = [b.name if "{" in b.name else f"{b.name}{{}}" for b in buffers]
    members = attacks.dump(
        [temps, own],
        size=end,
        steps=10,
        records=records,
        ranges=[*(f"{name}:{b.live[0]}-{b.live[1]}" for name, b in zip(names, buffers, strict=True)), *ranges],
        **others,
    )
    return xlamem.read(make(members, f"{BACKEND[platform]}after_optimizations"))


def advice(dump: xlamem.Dump, kind: str) -> list[Row]:
    return [r for r in xlamem.advise(dump).to_pylist() if r["kind"] == kind]
