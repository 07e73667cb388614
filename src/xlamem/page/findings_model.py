"""Advice, published numbers and diagnostics of a program for the page."""

from __future__ import annotations

from collections import defaultdict
from os.path import basename
from typing import Any

import numpy as np
import pyarrow as pa

from ..compute.columns import Ints
from ..formatting import file_line
from ..parse.arrays import Rows

Row = dict[str, Any]

N_DIAGNOSTICS = 200
"""Maximum number of diagnostics that a page lists."""


def advice_rows(table: pa.Table, value_ids: Ints) -> list[Row]:
    """Return the table ``advice``, with the row of the largest buffer in a column of value ids."""
    rows = table.to_pylist()
    wanted = np.array([-1 if row["value_id"] is None else row["value_id"] for row in rows], np.int64)
    found = Rows(value_ids)(wanted).tolist() if len(value_ids) else [-1] * len(rows)
    return [_advice(row, buffer) for row, buffer in zip(rows, found, strict=True)]


def _advice(row: Row, buffer: int) -> Row:
    names = ("kind", "action", "lower", "upper", "bytes", "n_buffers", "confidence", "in_plan")
    subject = row["function"] or row["argument"] or row["scope"] or row["instruction"] or ""
    source = file_line(row["source_file"], row["source_line"])
    return {name: row[name] for name in names} | {"subject": subject, "source": source, "buffer": buffer}


def explanations(numbers: list[Row], causes: list[Row]) -> list[Row]:
    """Return the rows of ``explain``, each with its rows of ``explain_causes``."""
    by_number: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for cause in causes:
        by_number[_key(cause)].append({"cause": cause["cause"], "bytes": cause["bytes"]})
    return [
        {
            **{name: n[name] for name in ("name", "memory_space", "bytes", "definition", "difference")},
            "step": n["time"],
            "basis": _basis(n),
            "causes": by_number[_key(n)],
        }
        for n in numbers
    ]


def _key(row: Row) -> tuple[Any, ...]:
    return row["name"], row["color"], row["page"]


def _basis(number: Row) -> str:
    """Say whether the number is in the dump, or how well the formula is confirmed by which it was computed."""
    if number["basis"] == "inferred":
        return f"inferred, matches {number['n_equal']} of {number['n_compared']} dumps"
    return number["basis"] or "not in the dump"


def diagnostic_rows(table: pa.Table) -> list[Row]:
    """Return the first diagnostics."""
    names = ("severity", "code", "line", "offset", "wanted", "excerpt")
    rows = table.slice(0, N_DIAGNOSTICS).to_pylist()
    return [{**{n: r[n] if r[n] is not None or n in ("line", "offset") else "" for n in names},
             "file": basename(r["file"] or "")} for r in rows]
