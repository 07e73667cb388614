"""Find out where the contents of buffers without an op_name come from."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..dump import Dump
from .columns import encoded

Row = dict[str, Any]

MAX_HOPS = 6
"""Maximum number of instructions that are followed back from a buffer."""

_MOVES = re.compile("copy|bitcast|reshape|transpose|get-tuple-element|async-|slice|tuple$")
"""Opcodes with a result that consists of the bytes of the first operand."""
_OPERAND = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*)\s*(?:[,#]|$)")


def add_origins(dump: Dump, rows: list[Row]) -> None:
    """Add ``origin`` to rows of `live_set` without an op_name: the source of a copy, or the parameter it overwrites."""
    unnamed = [row for row in rows if not row["op_name"] and row["instruction"]]
    if not unnamed:
        return
    instructions = _Instructions(dump.instructions)
    for row in unnamed:
        source, name = _trace(instructions, row["instruction"])
        if not name and (parameter := _parameter_name(dump, instructions, row)):
            row["origin"] = f"in the allocation of {parameter}"
        elif source:
            row["origin"] = f"{row['instruction']} of {name or source}"


class _Instructions:
    """The instructions of a dump by name."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        codes, self.names = encoded(table["instruction"])
        self.first = np.full(len(self.names), -1, np.int64)
        self.first[codes[::-1]] = np.arange(len(codes))[::-1]

    def row(self, name: str) -> int | None:
        """Return the first row of an instruction, or None."""
        code = self.names.index(name).as_py()
        return int(self.first[code]) if code >= 0 and self.first[code] >= 0 else None

    def get(self, column: str, row: int) -> Any:
        return self.table[column][row].as_py()


def _trace(instructions: _Instructions, instruction: str) -> tuple[str | None, str | None]:
    """Follow copies back, and return the last instruction reached and its op_name, None if there is none."""
    row, source, name = instructions.row(instruction), None, None
    for _ in range(MAX_HOPS):
        if row is None or name or not _MOVES.match(instructions.get("opcode", row)):
            break
        operand = _OPERAND.search(instructions.get("operands", row))
        if operand is None:
            break
        source = operand[1]
        row = instructions.row(source)
        if row is None:  # only the start of an asynchronous pair defines a value
            row = instructions.row(source.replace("-done", "-start"))
        name = None if row is None else instructions.get("op_name", row)
    return source, name


def _parameter_name(dump: Dump, instructions: _Instructions, row: Row) -> str | None:
    """Return the op_name of the parameter in the same allocation as a buffer, or None."""
    if row["category"] not in ("parameter", "donated", "temp_in_output"):
        return None
    neighbors = dump.values.filter(pc.equal(dump.values["allocation"], row["allocation"]))
    rows = [instructions.row(i) for i in neighbors["instruction"].to_pylist() if i != row["instruction"]]
    parameters = [i for i in rows if i is not None and instructions.get("opcode", i) == "parameter"]
    return instructions.get("op_name", parameters[0]) if parameters else None
