"""`xlamem sql`: a query over a dataset, or over one dump."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...errors import UsageError
from .. import console
from ..console import counted
from ..program import module_option, one

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

LIMIT = 100
"""Rows shown on a terminal."""
NARROW = 8
"""No column is made narrower than this; where there are too many for that, each row becomes a list."""


@click.command("sql", short_help="Query a dataset, or a dump, by SQL.")
@click.argument("path", metavar="DEST|DUMP")
@click.argument("query")
@click.option("--limit", type=click.IntRange(0), metavar="N", help=f"Rows shown; on a terminal {LIMIT}, else all.")
@click.option("--json", "as_json", is_flag=True, help="Print an array with an object for each row.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@module_option
def command(path: str, query: str, limit: int | None, as_json: bool, as_csv: bool, module: str | None) -> int:
    """Ask by SQL (DuckDB) what is in the dataset DEST of `xlamem convert`, or in one DUMP.

    Every table that `xlamem schema` describes is a view: of a dataset those that are stored, of a dump those that
    are read and those that are computed. "values" must be quoted: it is a word of SQL. docs/warehouse.md has queries
    worth having.

    \b
      xlamem sql DEST "SELECT platform, count(*) AS dumps FROM modules GROUP BY ALL"
      xlamem sql DEST "COPY (FROM scopes) TO 'scopes.csv'"
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    table = _answer(path, query, module)
    names = table.column_names
    shown = table if limit is None else table.slice(0, limit)
    if as_json:
        rows = [[_plain(v) for v in row] for row in _rows(shown)]
        console.out_json([dict(zip(names, row, strict=True)) for row in rows])
    elif as_csv:
        console.out_csv(names, ([_plain(v) for v in row] for row in _rows(shown)))
    elif names:
        _print(table, limit)
    return console.FINE


def _answer(path: str, query: str, module: str | None) -> pa.Table:
    from ...warehouse.dataset import Dataset, is_dataset, sql  # imports pyarrow.dataset

    if is_dataset(path):
        return Dataset(path).sql(query)
    return sql(one(path, module), query)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers and text."""
    from datetime import datetime
    from decimal import Decimal
    from math import isfinite

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


# -- for people ----------------------------------------------------------------------------------


def _print(table: pa.Table, limit: int | None) -> None:
    from rich.text import Text

    width = console.width()
    if limit is None and width is not None:
        limit = LIMIT
    shown = table.slice(0, limit)
    numeric = [_numeric(field.type) for field in table.schema]
    cells = [[_cell(v) for v in row] for row in _rows(shown)]
    heads = [console.visible(name) for name in table.column_names]
    widths = _widths([heads, *cells], numeric, width)
    texts = _table(heads, cells, numeric, widths) if widths else _lists(heads, cells, width or 80)
    if table.num_rows > shown.num_rows:
        more = counted(table.num_rows - shown.num_rows, "more row", "more rows")
        texts.append(Text(f"and {more}: --limit shows more", "dim"))
    elif not table.num_rows:
        texts.append(Text("no rows", "dim"))
    console.rich_out(*texts, width=width)


def _numeric(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1f}"
    return console.visible(str(_plain(value))).replace("\n", "\\n")


def _widths(rows: list[list[str]], numeric: list[bool], total: int | None) -> list[int]:
    """How wide each column is: as wide as it needs to be, the widest texts shortened; none if that is not enough."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if total is None:
        return widths
    widths = [w if number else min(w, total) for w, number in zip(widths, numeric, strict=True)]
    room = total - len(console.GAP) * (len(widths) - 1)
    while sum(widths) > room:
        texts = [i for i, number in enumerate(numeric) if not number and widths[i] > NARROW]
        if not texts:
            return []
        widest = max(texts, key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _table(heads: list[str], rows: list[list[str]], numeric: list[bool], widths: list[int]) -> list[Text]:
    from rich.text import Text

    def line(cells: list[str]) -> str:
        fitted = (console.shortened(c, w)[:w] for c, w in zip(cells, widths, strict=True))
        parts = zip(fitted, widths, numeric, strict=True)
        return console.GAP.join(c.rjust(w) if number else c.ljust(w) for c, w, number in parts).rstrip()

    return [Text(line(heads), "bold"), *(Text(line(row)) for row in rows)]


def _lists(heads: list[str], rows: list[list[str]], width: int) -> list[Text]:
    """Each row as a list of its cells, where the columns do not fit beside each other."""
    from rich.text import Text

    indent = max(map(len, heads))
    texts: list[Text] = []
    for i, row in enumerate(rows):
        if i:
            texts.append(Text())
        for head, cell in zip(heads, row, strict=True):
            cut = console.shortened(cell, max(10, width - indent - len(console.GAP)))
            texts.append(Text.assemble((head.ljust(indent), "bold"), console.GAP, cut))
    return texts
