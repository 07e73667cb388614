"""Display names of programs in the results of a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from .. import kernels as pc
from ..compare.programs import relative_folders

Row = dict[str, Any]


def name_of(row: Row) -> str:
    """Return the name of the module of a program or a finding, or else of its first file."""
    return row["module_name"] or (row["uri"] or "?").rpartition("/")[2]


def distinct_names(rows: list[Row]) -> dict[int | None, str]:
    """Return longer names of programs that share a name: with their folder, and where needed the number."""
    names = [name_of(row) for row in rows]
    folders = relative_folders([(row["uri"] or "").rpartition("/")[0] for row in rows])
    folders = [f"{folder}/" if folder else "" for folder in folders]
    numbers = ["" if row["module_id"] is None else f"{row['module_id']:04d}." for row in rows]
    for prefixes in (folders, map("".join, zip(folders, numbers, strict=True))):
        n = Counter(names)
        longer = [prefix + name_of(row) for prefix, row in zip(prefixes, rows, strict=True)]
        names = [name if n[name] == 1 else long for name, long in zip(names, longer, strict=True)]
    return {row["program"]: name for row, name in zip(rows, names, strict=True) if name != name_of(row)}


def renamed(table: pa.Table, names: Mapping[int | None, str]) -> pa.Table:
    """Return a table with these names of programs as `module_name`."""
    at = table.column_names.index("module_name")
    rows = table.select(("program", "module_name")).to_pylist()
    texts = [names.get(row["program"], row["module_name"]) for row in rows]
    return table.set_column(at, table.field(at), pc.cast(pa.array(texts, pa.string()), table.field(at).type))
