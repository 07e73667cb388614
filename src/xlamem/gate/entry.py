"""What a baseline keeps of a program: enough to say why it grew without its dump."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compare.compiler import ALTERNATIVES, chip_of, features_of, flags_not_default, module_of
from ..compare.interface import arguments
from ..compute.bills import DEVICE_TOTAL, UNUSED, bill
from ..compute.charges import live_set
from ..compute.columns import arrow_array, ints
from ..compute.folding import like_buffers
from ..compute.op_names import shortened_paths
from ..compute.program import Program
from ..formatting import plain_shape

TEMPORARIES = ("temp", "temp_in_output")
MAX_GROUPS = 2000
"""Maximum number of groups of buffers of a program that are compared with a baseline."""
_COLUMNS = (
    "op_name", "source_file", "source_line", "category", "opcode", "shape", "instruction", "bytes",
)  # fmt: skip
_NUMBER = re.compile(r"[.\d]+$")
UNNAMED = "argument of "
"""What precedes the shape in the name of an argument that the program does not name, as in TensorFlow."""


@dataclass(frozen=True)
class Group:
    """Like buffers at the peak, or an argument. Sizes are in bytes."""

    name: str
    """The op_name without JAX's wrappers and with folded layers, or the instruction without its number.

    Arguments without an op_name are groups by their shapes: `argument of f32[512,128]`.
    """
    category: str
    bytes: int
    n: int = 1
    shape: str | None = None
    """Shape of the largest buffer."""
    source_file: str | None = None
    source_line: int | None = None


@dataclass(frozen=True)
class Argument:
    """A donated argument."""

    name: str
    bytes: int
    shape: str | None = None


@dataclass(frozen=True)
class Entry:
    """A program in a baseline. Sizes are in bytes."""

    name: str | None
    """Module name."""
    platform: str | None
    program_fp: str | None
    interface_fp: str | None
    device_total: int
    peak: int | None
    """None without live ranges."""
    changelist: int | None = None
    format: tuple[str, ...] = ()
    """Features of the dump that depend on the version of the compiler."""
    flags: Mapping[str, str] | None = None
    """The flags that differ from their defaults; None if the dump has none."""
    bill: Mapping[str, int] = field(default_factory=dict)
    """Lines of the bill of device_total, as `line` or `line/part`."""
    donated: tuple[Argument, ...] = ()
    n_donated: int = 0
    """Number of donated arguments, also of those that are not listed."""
    arguments: frozenset[tuple[str, str | None]] | None = None
    """Names and shapes of all arguments; None if they were not kept."""
    groups: tuple[Group, ...] = ()
    """The largest groups of buffers at the peak, largest first."""
    rest: int = 0
    """Bytes at the peak in groups that are not listed."""
    chip: str | None = None
    """The chip that the program was compiled for, as the dump names it; None if it names none."""
    test: str | None = None
    """The test that compiles the program, in the baseline of a file of tests."""


def entry_of(p: Program, name: str | None, program_fp: str | None, interface_fp: str | None) -> Entry:
    """Return what a baseline keeps of a program, with all its groups of buffers."""
    module, lines = module_of(p), bill_lines(p)
    every = _arguments(p)
    donated = sorted((a for a, is_donated in every if is_donated), key=lambda a: (-a.bytes, a.name))
    groups, rest = _groups(p)
    return Entry(
        name=name,
        platform=module["platform"],
        program_fp=program_fp,
        interface_fp=interface_fp,
        device_total=sum(lines.values()),
        peak=peak_of(p, lines),
        changelist=module["changelist"],
        chip=chip_of(p),
        format=tuple(sorted(features_of(module) & frozenset().union(*ALTERNATIVES))),
        flags=flags_not_default(p),
        bill=lines,
        donated=tuple(donated),
        n_donated=len(donated),
        arguments=frozenset((a.name, a.shape) for a, _ in every),
        groups=groups,
        rest=rest,
    )


def bill_lines(p: Program) -> dict[str, int]:
    """Return the bytes of each line of the bill of `device_total`."""
    lines: dict[str, int] = {}
    rows = bill(p.tables)
    rows = pc.filter(rows, pc.equal(pc.cast(rows["account"], pa.string()), DEVICE_TOTAL))
    for row in rows.select(["line", "part", "bytes"]).to_pylist():
        key = row["line"] if row["part"] is None else f"{row['line']}/{row['part']}"
        lines[key] = lines.get(key, 0) + row["bytes"]
    return lines


def peak_of(p: Program, lines: Mapping[str, int]) -> int | None:
    """Return the peak of the memory spaces in `device_total` together, from its bill; None without live ranges."""
    return None if p.steps is None else sum(n for line, n in lines.items() if line.partition("/")[0] not in UNUSED)


def sum_of_lines(lines: Mapping[str, int], *, line: str = "", part: str = "") -> int:
    """Return the bytes of the lines of a bill with this name, or of the parts with this name."""
    names = [(key.partition("/"), n) for key, n in lines.items()]
    return sum(n for (of, _, its), n in names if (not line or of == line) and (not part or its == part))


def members(p: Program) -> pa.Table:
    """Return the rows of `live_set` of the device's main memory at the step of its peak; empty without live ranges."""
    rows = bill(p.tables)
    rows = pc.filter(rows, pc.equal(pc.cast(rows["account"], pa.string()), DEVICE_TOTAL))
    steps = pc.drop_null(rows["step"])
    if p.steps is None or not len(steps):
        return schema.COMPUTED["live_set"].empty
    live = live_set(p.tables, steps[0].as_py())
    colors = [s.color for s in p.spaces if schema.in_device_memory(p.tables.platform, s.color)]
    return pc.filter(live, arrow_array(np.isin(ints(live, "color"), colors)))


def named_bytes(p: Program) -> tuple[int, int]:
    """Return the temporary bytes at the peak that have a name, and all of them."""
    rows = members(p)
    rows = pc.filter(rows, pc.is_in(pc.cast(rows["category"], pa.string()), pa.array(TEMPORARIES)))
    has_name = np.asarray(pc.is_valid(rows["op_name"]).to_numpy(), bool) | (ints(rows, "argument") >= 0)
    size = ints(rows, "bytes")
    return int(size[has_name].sum()), int(size.sum())


def _arguments(p: Program) -> list[tuple[Argument, bool]]:
    """Return the arguments, and whether each is donated."""
    own = arguments(p)
    rows = zip(
        own.names.to_pylist(), p.allocation_size[own.allocation].tolist(), own.shapes.to_pylist(),
        own.donated.tolist(), strict=True,
    )  # fmt: skip
    return [(Argument(name or "?", size, plain_shape(shape) or None), donated) for name, size, shape, donated in rows]


def _groups(p: Program) -> tuple[tuple[Group, ...], int]:
    """Return the largest groups of like buffers at the peak, and the bytes of the others."""
    rows = members(p)
    alike = [_group(row) for row in like_buffers(rows.select(list(_COLUMNS)), MAX_GROUPS)]
    groups = sorted(by_key(alike).values(), key=lambda g: (-g.bytes, g.name, g.category))
    return tuple(groups), int(ints(rows, "bytes").sum()) - sum(g.bytes for g in groups)


def by_key(groups: Sequence[Group]) -> dict[tuple[str, str], Group]:
    """Return groups by their names with folded layers, and their categories; those with the same key are joined."""
    found: dict[tuple[str, str], Group] = {}
    folded = shortened_paths(pa.array([g.name for g in groups], pa.string()), None, fold=True).to_pylist()
    for short, group in zip(folded, groups, strict=True):
        name = group.name if group.name.startswith(UNNAMED) else short
        key = name, group.category
        found[key] = joined(found[key], group, name) if key in found else group  # from several source lines
    return found


def _group(row: dict[str, Any]) -> Group:
    shape = plain_shape(row["shape"]) or None
    unnamed = UNNAMED + shape if shape and row["opcode"] == "parameter" else ""
    name = row["name"] or unnamed or _NUMBER.sub("", row["instruction"] or "") or row["opcode"] or "unnamed"
    return Group(name, row["category"], row["bytes"], row["n"], shape, row["source_file"], row["source_line"])


def joined(a: Group, b: Group, name: str) -> Group:
    large = a if a.bytes >= b.bytes else b
    return replace(large, name=a.name if a.name == b.name else name, bytes=a.bytes + b.bytes, n=a.n + b.n)
