"""`xlamem sql`: a query over a dataset or a dump."""

from __future__ import annotations

import click

from ...dump import Dump
from ...warehouse import Dataset, sql
from .. import options
from ..reporters.tables import write_table


@click.command("sql")
@options.source()
@click.argument("query")
@options.output(csv=True, limit="Rows shown.  [default: 100 on a terminal, else all]", wide=True)
def command(source: Dump | Dataset, query: str, output: options.Output) -> None:
    """Run an SQL query (DuckDB) over PATH: a dataset written by `xlamem convert`, or a dump.

    Every table that `xlamem schema` describes is a view; for a dump, also the tables that are computed from it. Quote
    "values", which is an SQL keyword. docs/warehouse.md has examples.

    \b
      xlamem sql DEST "SELECT platform, count(*) AS dumps FROM modules GROUP BY ALL"
      xlamem sql DEST "COPY (FROM scopes) TO 'scopes.csv'"
    """
    write_table(sql(source, query), output)
