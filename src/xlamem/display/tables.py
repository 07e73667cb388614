"""Arrow tables for people: sizes with units, columns that say nothing left out, and only the first rows."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa

from .. import schema
from ..errors import UsageError
from ..formatting import GAP, count, plain_shape, python_values, shorten_distinct, size
from .grid import Grid
from .view import View

MAX_TEXT = 30
"""Maximum width of a text in a terminal."""
IMPORTANT = (
    "lower", "upper", "kind", "argument", "line", "part",
    "bytes", "saving", "padding", "gap", "reserved", "peak", "state", "memory_space", "op_name", "scope",
    "instruction", "n", "shape", "source_line", "source_file", "category", "size", "name", "first_step", "parameter",
    "candidate",
)  # fmt: skip
"""Columns that are shown first if a terminal is too narrow for all."""
UNIMPORTANT = len(IMPORTANT)
"""The place of others among them."""


def importance(column: str) -> int:
    """Return the place of a column among those that a narrow terminal shows: small for the first ones."""
    return IMPORTANT.index(column) if column in IMPORTANT else UNIMPORTANT


def _byte_columns(table: pa.Table) -> set[str]:
    """Return the columns that hold sizes: those of the table of the schema with these columns, else by their names.

    Offsets are shown as numbers.
    """
    groups = (schema.TABLES, schema.COMPUTED, schema.COMPARED, schema.CHECKED)
    tables = [table for group in groups for table in group.values()]
    same = [t for t in tables if [*t.names] == table.column_names] or tables
    # The texts of printed_report are sizes as XLA prints them, under the names of columns that hold bytes.
    columns = [c for t in same if t.name != "printed_report" for c in t.columns]
    others = {c.name for c in columns if c.unit != "bytes"}
    return {c.name for c in columns} - others - {"offset"}


class TableGrid:
    """The first rows of an Arrow table."""

    def __init__(self, table: pa.Table, limit: int) -> None:
        self.n_rows, self.table = table.num_rows, table.slice(0, limit)
        self.sizes = _byte_columns(table)
        self.names = table.column_names
        # By position, because columns of other tables may have the same name.
        self.columns = [i for i, column in enumerate(table.columns) if not 0 < table.num_rows == column.null_count]

    def html(self) -> str:
        return self._grid(self.columns, None).html()

    def text(self) -> str:
        """Return as many columns as fit the terminal."""
        widths = {i: max(map(len, [self.names[i], *self._cells(i, MAX_TEXT)])) for i in self.columns}
        room = shutil.get_terminal_size().columns - 2
        fitting: set[int] = set()
        for i in sorted(self.columns, key=lambda i: importance(self.names[i])):
            if widths[i] + len(GAP) <= room or not fitting:
                fitting.add(i)
                room -= widths[i] + len(GAP)
        return self._grid([i for i in self.columns if i in fitting], MAX_TEXT).text()

    def _grid(self, columns: list[int], limit: int | None) -> Grid:
        names, cells = [self.names[i] for i in columns], [self._cells(i, limit) for i in columns]
        right = frozenset(k for k, i in enumerate(columns) if _is_number(self.table.schema.field(i).type))
        return Grid(names, [list(row) for row in zip(*cells, strict=True)], right, self._note(len(names)))

    def _note(self, n_columns: int) -> str:
        hidden = [(self.n_rows - self.table.num_rows, "more row"), (len(self.columns) - n_columns, "more column")]
        return " and ".join(count(n, what) for n, what in hidden if n > 0)

    def _cells(self, column: int, limit: int | None) -> list[str]:
        values = python_values(self.table.column(column))
        if self.names[column] in self.sizes and pa.types.is_integer(self.table.schema.field(column).type):
            return ["" if v is None else size(v) for v in values]
        texts = [_text(v) for v in values]
        if limit is not None and self.names[column] == "shape":  # dimensions say more than the layout
            texts = [text if len(text) <= limit else plain_shape(text) for text in texts]
        return shorten_distinct(texts, limit)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show(table: pa.Table, *, limit: int = 20) -> View:
    """Return a table as a view for people, which a terminal and a notebook print well.

    >>> xlamem.show(xlamem.live_set(dump))

    Sizes have units, numbers are aligned to the right, and columns that are entirely null are left out. A terminal
    shows as many columns as fit, a notebook all.

    Parameters
    ----------
    table
        A `pyarrow.Table`, such as those of a dump and those that computations return.
    limit
        Number of rows that are shown.

    Raises
    ------
    UsageError
        `table` is not a table, or `limit` is negative.
    """
    if not isinstance(table, pa.Table):
        raise UsageError(f"show needs a pyarrow.Table, not {type(table).__name__}, which shows itself")
    if limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}")
    return View("", (TableGrid(table, limit),))
