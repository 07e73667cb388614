"""The all-gathers of two programs: what they make whole of parts on several devices."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import arrow_array, texts_of
from ..compute.op_names import folded_paths
from ..compute.origins import has_opcode
from ..compute.program import Program
from ..compute.replica_groups import replica_groups
from .context import Context
from .graph import both_sides
from .rows import Shape, parsed

ALL_GATHER = r"^all-gather(?:-start)?$"
_DIMENSION = re.compile(r"\bdimensions=\{(\d{1,9})\}")
_ARRAY = re.compile(r"\b\w+\[[\d,]*\]")


class Gather(NamedTuple):
    """An all-gather: what it makes whole, of parts on several devices."""

    path: str
    """The op_name without wrappers and with folded layers."""
    part: Shape
    whole: Shape
    devices: int
    """Number of parts."""
    all_devices: int
    """Number of devices that run the program."""

    @property
    def dimension(self) -> tuple[int, int]:
        """The dimension of a part, and of the whole array."""
        return next(pair for pair in zip(self.part.dimensions, self.whole.dimensions, strict=True) if len({*pair}) == 2)


def gathers(c: Context) -> tuple[set[Gather], set[Gather]]:
    """Return the all-gathers of both programs."""
    return c.once("gathers", partial(both_sides, _gathers_of, c.m.a, c.m.b))


def _gathers_of(p: Program) -> set[Gather]:
    table = p.tables["instructions"]
    rows = np.flatnonzero(has_opcode(p, np.arange(table.num_rows), ALL_GATHER))
    codes, names = p.texts("instructions", "op_name")
    path_codes, paths = folded_paths(pc.cast(names, pa.string()))
    path = texts_of((path_codes, paths), codes[rows]).to_pylist()
    columns = [pc.take(table[name], arrow_array(rows)).to_pylist() for name in ("opcode", "shape", "attributes")]
    found = (_gather(*texts) for texts in set(zip(path, *columns, strict=True)) if None not in texts)
    return {gather for gather in found if gather}


def _gather(path: str, opcode: str, shape: str, attributes: str) -> Gather | None:
    """Return an all-gather of several parts, from its printed result: `(part, whole)` if it is asynchronous.

    None for those that the compiler has combined: their op_name is that of one of them.
    """
    arrays, dimension, groups = _ARRAY.findall(shape), _DIMENSION.search(attributes), replica_groups(attributes)
    is_one = len(arrays) == (2 if opcode.endswith("start") else 1) and not shape.startswith("((")
    whole = parsed(arrays[-1]) if is_one else None
    if not path or not whole or not dimension or not groups or groups.size < 2:
        return None
    k, sizes = int(dimension[1]), list(whole.dimensions)
    if k >= len(sizes) or not sizes[k] or sizes[k] % groups.size:
        return None
    sizes[k] //= groups.size
    return Gather(path, Shape(whole.element_type, tuple(sizes)), whole, groups.size, groups.devices)
