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
@options.output(csv=True, limit="Rows shown.  [default: 100 on a terminal, else all]", wide=True)
def command(table: str, source: Dump | Dataset, output: options.Output) -> None:
    """Print a TABLE of PATH: a dump, or a dataset written by `xlamem convert`.

    `xlamem schema` describes the tables. Those of a dump include the ones that are computed from it: donation,
    fragmentation, idle, padding, savings and others. `dumps` shows where the dumps of a dataset were found.
    """
    rows, n_rows = _rows_of_dump(source, table) if isinstance(source, Dump) else _rows_of(source, table, output)
    write_table(rows, output, "show", {"table": table}, n_rows)


def _rows_of_dump(dump: Dump, table: str) -> tuple[pa.Table, int]:
    if table in dump.tables:
        rows = dump[table]
    elif table in compute.REGISTRY:
        rows = compute.REGISTRY[table](dump)
    else:
        raise UsageError(f"no table {table!r}; {similar(table, (*dump.tables, *compute.REGISTRY), 'a dump has')}")
    return rows, rows.num_rows


def _rows_of(dataset: Dataset, table: str, output: options.Output) -> tuple[pa.Table, int]:
    """Return the first rows of a table of a dataset, and the number of its rows."""
    limit = default_limit(output)
    if table == "dumps":
        return (dumps := dataset.dumps()).slice(0, limit), dumps.num_rows
    if table not in dataset.tables and table in compute.REGISTRY:
        raise UsageError(f"{table!r} is computed from a dump; a dataset does not store it")
    if table not in dataset.tables:
        raise UsageError(f"no table {table!r}; {similar(table, (*dataset.tables, 'dumps'), 'a dataset has')}")
    with dataset.damage_errors(table):
        stored = dataset[table]
        return (stored.to_table() if limit is None else stored.head(limit)), stored.count_rows()
