"""`xlamem schema`: the tables, for people and as JSON."""

from __future__ import annotations

import click

from ... import schema
from ...errors import UsageError
from .. import console
from ..console import bold, dim, out


@click.command("schema", short_help="Describe the tables.")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(tables: tuple[str, ...], as_json: bool) -> None:
    """Describe TABLEs, or all of them and the words that they use: those of a dump, what is computed of it, and those
    that a dataset of `xlamem convert` has besides.
    """
    known = {**schema.TABLES, **schema.COMPUTED, **schema.OOM}
    stored = {**schema.DERIVED, "quarantine": schema.QUARANTINE}
    for name in tables:
        if name not in known and name not in stored:
            raise UsageError(f"no table {name!r}; there are {', '.join({**known, **stored})}")
    if as_json:
        data = schema.as_json()
        for group in ("tables", "computed", "oom", "warehouse") if tables else ():
            data[group] = [t for t in data[group] if t["name"] in tables]
        return console.out_json(data)
    width = console.width()
    for name in tables or known:
        if name in known:
            _table(known[name], width)
    if not tables:
        _words("features", "what a dump can show: modules.features, files.features", schema.FEATURES, width)
        _words("codes", "what can be wrong: diagnostics.code", schema.CODES, width)
        _words("roles", "what a file can be: files.role", schema.ROLES, width)
        spaces = {p: ", ".join(f"{c} {n}" for c, n in s.items()) for p, s in schema.SPACES.items()}
        _words("memory spaces", "names of the colors by platform: allocations.memory_space", spaces, width)
        _dataset(width)
    for name in tables or stored:
        if name in stored:
            _table(stored[name], width, "in a dataset: ")
    if not tables or "peaks" in tables:
        _words("definitions", "numbers of a dump: peaks.definition in a dataset", schema.DEFINITIONS, width)
    if not tables:
        out(f"schema version {schema.VERSION}")


def _dataset(width: int | None) -> None:
    """What a dataset adds to the tables of a dump."""
    there = {c.name for c in schema.MODULES.columns}
    added = {c.name: f"modules: {c.doc}" for c in schema.WAREHOUSE["modules"].columns if c.name not in there}
    first = schema.WAREHOUSE["modules"].columns[0]
    added[first.name] = f"every table, first column: {first.doc}"
    what = (
        "of xlamem convert: the tables of a dump, a name being plain text there, with these columns more, "
        "and the tables that follow"
    )
    _words("in a dataset", what, added, width)


def _table(table: schema.Table, width: int | None, where: str = "") -> None:
    indent = len(table.name) + len(console.GAP)
    first, *more = console.fill(f"{where}one row per {table.row}; from: {table.source}", indent, width)
    out(f"{bold(table.name)}{console.GAP}{dim(first)}")
    for line in more:
        out(" " * indent + dim(line))
    rows = [[c.name, c.kind + ("?" if c.nullable else "")] for c in table.columns]
    heads = console.columns(rows, {0, 1})
    indent = max(len(h) for h in heads) + 4
    for column, head in zip(table.columns, heads, strict=True):
        unit = f" [{column.unit}]" if column.unit else ""
        first, *more = console.fill(column.doc + unit, indent, width)
        out(f"  {head.ljust(indent - 2)}{first}")
        for line in more:
            out(" " * indent + line)
    out()


def _words(title: str, what: str, words: dict[str, str], width: int | None) -> None:
    indent = len(title) + len(console.GAP)
    first, *more = console.fill(what, indent, width)
    out(f"{bold(title)}{console.GAP}{dim(first)}")
    for line in more:
        out(" " * indent + dim(line))
    indent = max(map(len, words)) + 4
    for word, doc in words.items():
        first, *more = console.fill(doc, indent, width)
        out(f"  {word.ljust(indent - 2)}{first}")
        for line in more:
            out(" " * indent + line)
    out()
