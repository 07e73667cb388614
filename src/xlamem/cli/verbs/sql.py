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
@click.option(
    "--sandbox", is_flag=True, help="Run only SELECT, without access to other files. Limits: 4 GiB and 60 s, or:"
)
@click.option("--memory-limit", metavar="SIZE", help="Memory that the query and its result may take.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Time that the query may take.")
@options.output(csv=True, limit="Rows shown.  [default: 100 on a terminal, else all]", wide=True)
def command(
    source: Dump | Dataset,
    query: str,
    sandbox: bool,
    memory_limit: str | None,
    timeout: float | None,
    output: options.Output,
) -> None:
    """Run an SQL query over PATH: a dataset written by `xlamem convert`, or a dump. It needs DuckDB
    (pip install 'xlamem[duckdb]').

    Every table that `xlamem schema` describes is a view; for a dump, also the tables that are computed from it. Quote
    "values", which is an SQL keyword. docs/warehouse.md has examples.

    \b
      xlamem sql DEST "SELECT platform, count(*) AS n FROM modules GROUP BY ALL"
      xlamem sql DEST "COPY (FROM scopes) TO 'scopes.csv'"
    """
    table = sql(source, query, sandbox=sandbox, memory_limit=memory_limit, timeout=timeout)
    write_table(table, output, "sql", {"columns": table.column_names})
