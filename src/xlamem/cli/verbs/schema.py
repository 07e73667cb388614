"""`xlamem schema`: the tables and the closed sets of values, described."""

from __future__ import annotations

import click

from ... import schema
from ...errors import UsageError
from .. import console, options
from ..reporters import schema as reporter


@click.command("schema")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@options.output()
def command(tables: tuple[str, ...], output: options.Output) -> None:
    """Describe each TABLE; by default all tables and the values that they use.

    There are tables of a dump, tables computed from it, tables that compare two dumps or the programs of two
    sides, results of checks, tables of out-of-memory reports, and tables that only a dataset has.
    """
    every = {**reporter.OF_DUMPS, **reporter.OF_DATASETS}
    if unknown := [name for name in tables if name not in every]:
        raise UsageError(f"no table {', '.join(unknown)}; there are {', '.join(every)}")
    if output.json:
        data = schema.as_json()
        for group in ("tables", "computed", "compared", "checked", "oom", "warehouse") if tables else ():
            data[group] = [t for t in data[group] if t["name"] in tables]
        console.write_json(data)
    elif tables:
        reporter.write_tables(tables)
    else:
        reporter.write_all()
