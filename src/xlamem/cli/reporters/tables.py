"""Write Arrow tables to a terminal, to a pipe in columns, as JSON or as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...display.tables import UNIMPORTANT, importance
from ...formatting import GAP, align, count, one_line, python_values, shorten
from .. import console
from ..options import Output

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.text import Text

N_ROWS = 100
"""Number of rows without --limit if the width is limited."""
MAX_WIDTH = 1 << 20
"""A width greater than that of any table."""
MIN_COLUMN_WIDTH = 8
"""Columns of text shrink to this width; if that is not enough, columns are left out, or each row becomes a list."""
READABLE_WIDTH = 24
"""Columns of text have at least this width if others are left out."""


def write_table(
    table: pa.Table,
    output: Output,
    document: str,
    about: Mapping[str, Any],
    n_rows: int | None = None,
    *,
    fit: bool = False,
) -> None:
    """Write the first rows of a table; as JSON in a document that begins with `about`.

    `n_rows` is the number of rows there are, if `table` holds only the first of them. If the columns are wider than
    the terminal, some are left out if `fit` is true; otherwise, and of a single row, each row is a list.
    """
    names = table.column_names
    n_rows = table.num_rows if n_rows is None else n_rows
    if output.json:
        rows = [dict(zip(names, row, strict=True)) for row in _rows(output.head(table))]
        console.write_document(document, {**about, "rows": rows, "n_rows": n_rows})
    elif output.csv:
        output.write_csv(names, _rows(output.head(table)))
    elif names:
        _write_text(table, output, n_rows, fit=fit)


def default_limit(output: Output) -> int | None:
    """Return the number of rows that are written."""
    if output.limit is not None or output.json or output.csv:
        return output.limit
    return None if output.width is None else N_ROWS


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = ([_plain(v) for v in python_values(column)] for column in table.columns)
    return list(zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON supports."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)


# -- text ----------------------------------------------------------------------------------------


def _write_text(table: pa.Table, output: Output, n_rows: int, *, fit: bool = False) -> None:
    from rich.text import Text

    width, shown = output.width, table.slice(0, default_limit(output))
    names = [one_line(name) for name in table.column_names]
    cells = [[_cell(v) for v in row] for row in zip(*map(python_values, shown.columns), strict=True)]
    numeric = [_is_numeric(field.type) for field in table.schema]
    n_hidden = 0
    if width is None:
        left = {i for i, is_number in enumerate(numeric) if not is_number}
        head, *rows = align([names, *cells], left)
        lines = [Text(head, "bold"), *map(Text, rows)]
    else:
        if fit and len(cells) > 1:
            kept = _important(names, cells, numeric, width)
            n_hidden = len(names) - len(kept)
            numeric = [numeric[i] for i in kept]
            names, *cells = ([row[i] for i in kept] for row in (names, *cells))
        lines = _fitted(names, cells, numeric, width)
    if n_hidden:
        lines.append(Text(f"and {count(n_hidden, 'more column')}: --columns selects, --wide shows all", "dim"))
    if n_rows > shown.num_rows:
        lines.append(Text(f"and {count(n_rows - shown.num_rows, 'more row')}: --limit shows more", "dim"))
    elif not n_rows:
        lines.append(Text("no rows", "dim"))
    console.write_lines(lines, width)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"
    return one_line(str(_plain(value)))


class _Cell:
    """Text that is shortened in the middle to the width of its column."""

    def __init__(self, text: str, style: str, *, fixed: bool) -> None:
        self.text, self.style, self.fixed = text, style, fixed

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        width = len(self.text)
        return Measurement(width if self.fixed else min(width, MIN_COLUMN_WIDTH), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(shorten(self.text, options.max_width), self.style, no_wrap=True, overflow="ellipsis")


def _important(names: list[str], rows: list[list[str]], numeric: list[bool], width: int) -> list[int]:
    """Return the columns to show: all if they fit, or else the most important ones that are not empty."""
    columns = [*zip(names, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    readable = [w if is_number else min(w, READABLE_WIDTH) for w, is_number in zip(widths, numeric, strict=True)]
    if sum(readable) + len(GAP) * (len(names) - 1) <= width:
        return [*range(len(names))]
    filled = [i for i, column in enumerate(columns) if set(column[1:]) != {"-"}]
    kept: list[int] = []
    for i in sorted(filled, key=lambda i: importance(names[i])):
        # Others only take what the texts of the important ones leave free.
        taken = readable if importance(names[i]) < UNIMPORTANT else widths
        if sum(taken[k] + len(GAP) for k in kept) + taken[i] <= width:
            kept.append(i)
    return sorted(kept) or [0]


def _fitted(names: list[str], rows: list[list[str]], numeric: list[bool], width: int) -> list[Text]:
    """Return columns if they fit the width, or else lists."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), show_header=False)
    for is_number in numeric:
        table.add_column(justify="right" if is_number else "left")
    for i, row in enumerate([names, *rows]):
        style = "bold" if i == 0 else ""
        table.add_row(*(_Cell(c, style, fixed=f) for c, f in zip(row, numeric, strict=True)))
    screen = Console(width=width)
    if Measurement.get(screen, screen.options.update(max_width=MAX_WIDTH), table).minimum > width:
        return _lists(names, rows, width)
    lines = screen.render_lines(table, pad=False)
    return [Text.assemble(*((segment.text, segment.style or "") for segment in line)) for line in lines]


def _lists(names: list[str], rows: list[list[str]], width: int) -> list[Text]:
    """Return each row as a list of cells, with a blank line between rows."""
    from rich.text import Text

    indent = max(map(len, names))
    room = max(10, width - indent - len(GAP))
    lines: list[Text] = []
    for row in rows:
        lines += [Text()] if lines else []
        lines += [
            Text.assemble((name.ljust(indent), "bold"), GAP, shorten(cell, room))
            for name, cell in zip(names, row, strict=True)
        ]
    return lines
