"""`xlamem schema`: the tables and the closed sets of values, described."""

from __future__ import annotations

from importlib import resources

import click

from ... import schema
from ...errors import UsageError
from ...formatting import similar
from .. import console, options
from ..completion import described_tables, documents, one_of
from ..reporters import schema as reporter


@click.command("schema")
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=one_of(described_tables))
@click.option(
    "--document", metavar="NAME", shell_complete=one_of(documents),
    help="Print the JSON Schema of what a command prints with --json.",
)  # fmt: skip
@options.output()
def command(tables: tuple[str, ...], document: str | None, output: options.Output) -> None:
    """Describe each TABLE; by default all tables and the values that they use.

    There are tables of a dump, tables computed from it, tables that compare two dumps or the programs of two
    sides, results of checks, tables of out-of-memory reports, and tables that only a dataset has.

    The documents have the names of the commands: peak, top, bill, … `xlamem schema` lists them at its end.
    """
    if document is not None:
        if tables:
            raise UsageError("--document describes the output of a command, not tables")
        return console.write(_json_schema(document))
    every = {**reporter.OF_DUMPS, **reporter.OF_DATASETS}
    if unknown := [name for name in tables if name not in every]:
        raise UsageError(f"no table {', '.join(unknown)}; {similar(unknown, every)}")
    if output.json:
        data = schema.as_json()
        for group in ("tables", "computed", "compared", "checked", "oom", "warehouse") if tables else ():
            data[group] = [t for t in data[group] if t["name"] in tables]
        console.write_document("schema", data)
    elif tables:
        reporter.write_tables(tables)
    else:
        reporter.write_all()


def _json_schema(name: str) -> str:
    """Return the JSON Schema of a document."""
    if name not in schema.DOCUMENTS:
        raise UsageError(f"no document {name!r}; {similar(name, schema.DOCUMENTS)}")
    folder = "page" if name == "report" else "cli/schemas"
    return resources.files("xlamem").joinpath(folder, f"{name}.schema.json").read_text("utf-8").rstrip("\n")
