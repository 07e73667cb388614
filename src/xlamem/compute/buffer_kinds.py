"""Tell what kind of buffer a value is for a bill, from its phase, its element type and its opcode."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from .buffer_names import KINDS as NAMED_KINDS
from .buffer_names import contents
from .columns import Ints, Mask, encoded, take
from .program import Program

KINDS = tuple(schema.BILL_KINDS)

_ASYNC_COPY, _COLLECTIVE, _COPY = range(3)
_PATTERNS = {
    _ASYNC_COPY: r"^(copy|slice|dynamic-slice|dynamic-update-slice)-(start|update|done)$",
    _COLLECTIVE: r"^(all-gather|all-reduce|reduce-scatter|(ragged-)?all-to-all|collective-(broadcast|permute)|"
    r"recv|send)(-start|-update|-done)?$",
    _COPY: r"^copy$",
}
"""Opcodes, by group."""
_TABLES = {_ASYNC_COPY: "async copy table", _COLLECTIVE: "collective table", _COPY: "tuple table", -1: "tuple table"}
_ARRAYS = {_ASYNC_COPY: "async copy", _COLLECTIVE: "collective", _COPY: "copy"}
"""Kinds of tuple tables and of arrays, by group."""


_OF_CONTENT = np.array([KINDS.index(name) if name in KINDS else -1 for name in NAMED_KINDS])
"""Index in KINDS of each kind of `live_set`."""


def buffer_kinds(p: Program, values: Ints) -> Ints:
    """Return the kind of each of these values as an index in KINDS; -1 for all other kinds, and for the value -1.

    A copy has the kind of what it copies, if that is known.
    """
    group = _opcode_groups(p, values)
    codes, types = encoded(p.tables["values"]["element_type"])
    code = take(codes, values)
    is_table = (code >= 0) & (code == pc.index(types, "tuple").as_py())
    kinds = np.full(len(values), -1, np.int64)
    for names, selected in ((_TABLES, is_table), (_ARRAYS, ~is_table)):
        for number, kind in names.items():
            kinds[selected & (group == number)] = KINDS.index(kind)
    content = contents(p, np.where(is_table | (group == _COLLECTIVE) | ~_is_temp(p, values), -1, values))
    return np.where(content >= 0, take(_OF_CONTENT, content), kinds)


def _is_temp(p: Program, values: Ints) -> Mask:
    return take(p.in_temp, values) > 0


def _opcode_groups(p: Program, values: Ints) -> Ints:
    """Return the group of the opcode of each value, or -1."""
    codes, opcodes = encoded(p.tables["instructions"]["opcode"])
    group_of_opcode = np.full(len(opcodes), -1, np.int64)
    for group, pattern in _PATTERNS.items():
        matches = pc.match_substring_regex(pc.cast(opcodes, pa.string()), pattern)
        group_of_opcode[matches.to_numpy(zero_copy_only=False)] = group
    return take(group_of_opcode, take(codes, take(p.instruction_row, values)))
