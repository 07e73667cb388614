"""`xlamem show`: a table of a dump or a dataset."""

from __future__ import annotations

import functools
import os
from typing import Any

import click
import pyarrow as pa

from ... import compute, schema
from ...dump import Dump
from ...errors import UsageError
from ...formatting import similar
from ...warehouse import Dataset
from .. import options
from ..completion import one_of, tables
from ..reporters.tables import default_limit, write_table


def _table_first(command: options.Command) -> options.Command:
    """Say so if the arguments are exchanged: other commands begin with the path."""

    @functools.wraps(command)
    def run(table: str, path: str, **arguments: Any) -> Any:
        is_table = path in schema.TABLES or path in compute.REGISTRY or path in schema.WAREHOUSE
        if is_table and os.path.exists(table) and not os.path.exists(path):
            raise UsageError(f"the table comes first: xlamem show {path} {table}")
        return command(table=table, path=path, **arguments)

    return run


@click.command("show")
@click.argument("table", shell_complete=one_of(tables))
@_table_first
@options.source()
@click.option("--columns", metavar="NAME,...", help="Columns to show, in this order.")
@options.output(csv=True, limit="Rows shown.  [default: 100 on a terminal, else all]", wide=True)
def command(table: str, source: Dump | Dataset, columns: str | None, output: options.Output) -> None:
    """Print a TABLE of PATH: a dump, or a dataset written by `xlamem convert`.

    `xlamem schema` describes the tables. Those of a dump include the ones that are computed from it: donation,
    fragmentation, idle, padding, savings and others. `dumps` shows where the dumps of a dataset were found.

    A terminal that is too narrow for all columns shows the most important ones: --columns selects others, --wide shows
    all.
    """
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    rows, n_rows = _rows_of(source, table, names, output)
    write_table(rows, output, "show", {"table": table}, n_rows, fit=names is None)


def _rows_of(
    source: Dump | Dataset, table: str, names: list[str] | None, output: options.Output
) -> tuple[pa.Table, int]:
    """Return these columns of a table, and the number of its rows, of which those of a dataset may be the first."""
    if isinstance(source, Dataset) and table != "dumps":
        return _stored_rows(source, table, names, default_limit(output))
    rows = source.dumps() if isinstance(source, Dataset) else _rows_of_dump(source, table)
    return rows.select(_known(names, rows.column_names, table)), rows.num_rows


def _known(names: list[str] | None, known: list[str], table: str) -> list[str]:
    if unknown := [name for name in names or () if name not in known]:
        raise UsageError(f"no column {unknown[0]!r} in {table}; {similar(unknown[0], known)}")
    return known if names is None else names


def _rows_of_dump(dump: Dump, table: str) -> pa.Table:
    if table in dump.tables:
        return dump[table]
    if table in compute.REGISTRY:
        return compute.REGISTRY[table](dump)
    raise UsageError(f"no table {table!r}; {similar(table, (*dump.tables, *compute.REGISTRY), 'a dump has')}")


def _stored_rows(dataset: Dataset, table: str, names: list[str] | None, limit: int | None) -> tuple[pa.Table, int]:
    if table not in dataset.tables and table in compute.REGISTRY:
        raise UsageError(f"{table!r} is computed from a dump; a dataset does not store it")
    if table not in dataset.tables:
        raise UsageError(f"no table {table!r}; {similar(table, (*dataset.tables, 'dumps'), 'a dataset has')}")
    with dataset.damage_errors(table):
        stored = dataset[table]
        columns = _known(names, stored.schema.names, table)
        rows = stored.to_table(columns=columns) if limit is None else stored.head(limit, columns=columns)
        return rows, stored.count_rows()
