"""The schema as text."""

from __future__ import annotations

from collections.abc import Iterable

from ... import schema
from ...formatting import GAP, align, wrap
from ..console import bold, dim, width, write

OF_DUMPS = {**schema.TABLES, **schema.COMPUTED, **schema.COMPARED, **schema.CHECKED, **schema.OOM}
OF_DATASETS = {**schema.DERIVED, **schema.RUN_TABLES}


def write_all() -> None:
    """Describe every table and every closed set of values."""
    for table in OF_DUMPS.values():
        _write_table(table)
    _write_values("features", "what a dump can show: modules.features, files.features", schema.FEATURES)
    _write_values("codes", "what can be wrong: diagnostics.code", schema.CODES)
    _write_values("roles", "what a file can contain: files.role", schema.ROLES)
    spaces = {p: ", ".join(f"{color} {name}" for color, name in s.items()) for p, s in schema.SPACES.items()}
    _write_values("memory spaces", "names of the colors, by platform: allocations.memory_space", spaces)
    _write_dataset()
    for table in OF_DATASETS.values():
        _write_table(table, "in a dataset: ")
    _write_definitions()
    _write_bills()
    _write_comparison({**schema.COMPARED, **schema.CHECKED})
    documents = {name: f"version {d.version}: {d.command}" for name, d in schema.DOCUMENTS.items()}
    _write_values("documents", "what --json prints: `xlamem schema --document NAME` has the JSON Schema", documents)
    write(f"schema version {schema.VERSION}")


def write_tables(names: Iterable[str]) -> None:
    """Describe some tables."""
    for name in names:
        if name in OF_DUMPS:
            _write_table(OF_DUMPS[name])
    for name in names:
        if name in OF_DATASETS:
            _write_table(OF_DATASETS[name], "in a dataset: ")
    if "peaks" in names:
        _write_definitions()
    if "bills" in names:
        _write_bills()
    _write_comparison(names)


def _write_dataset() -> None:
    """Describe the columns that a dataset adds to the tables of a dump."""
    stored, dump_columns = schema.WAREHOUSE["modules"].columns, set(schema.MODULES.names)
    added = {c.name: f"modules: {c.doc}" for c in stored if c.name not in dump_columns}
    added[stored[0].name] = f"every table but labels and runs, first column: {stored[0].doc}"
    about = "a dataset has the tables of a dump, with names as plain text, these columns, and the tables below"
    _write_values("in a dataset", about, added)


def _write_definitions() -> None:
    _write_values("definitions", "numbers of a dump: peaks.definition in a dataset", schema.DEFINITIONS)


def _write_bills() -> None:
    _write_values("bills.line", "what takes the bytes", schema.BILL_LINES)
    _write_values("bills.part", "parts of a line", schema.BILL_PARTS)
    _write_values("bills.kind", "kinds of buffers", schema.BILL_KINDS)


def _write_comparison(names: Iterable[str]) -> None:
    """Describe the values that tables with these names use."""
    values = {
        "differences": ("cause", "why a buffer contributes; of several causes, the first", schema.CAUSES),
        "matches": ("match", "how values were matched", schema.MATCHES),
        "edits": ("kind", "what differs", schema.EDITS),
        "pairs": ("how", "how programs were paired", schema.PAIRED),
        "series": ("how", "how programs were paired", schema.PAIRED),
        "jumps": ("how", "how programs were paired", schema.PAIRED),
        "findings": ("rule", "what was checked", schema.RULES),
        "checked_programs": ("status", "results, from best to worst", schema.STATUSES),
    }
    for table, (column, about, texts) in values.items():
        if table in names:
            _write_values(f"{table}.{column}", about, texts)


def _write_table(table: schema.Table, prefix: str = "") -> None:
    cells = [[c.name, c.kind + ("?" if c.nullable else "")] for c in table.columns]
    texts = [c.doc + (f" [{c.unit}]" if c.unit else "") for c in table.columns]
    _write(table.name, f"{prefix}one row per {table.row}; from: {table.source}", align(cells, {0, 1}), texts)


def _write_values(title: str, about: str, values: dict[str, str]) -> None:
    _write(title, about, list(values), values.values())


def _write(title: str, about: str, names: list[str], texts: Iterable[str]) -> None:
    """Write a title with a description, and names with descriptions."""
    columns = width()
    indent = len(title) + len(GAP)
    first, *more = wrap(about, indent, columns)
    write(f"{bold(title)}{GAP}{dim(first)}")
    for line in more:
        write(" " * indent + dim(line))
    indent = max(map(len, names)) + 4
    for name, text in zip(names, texts, strict=True):
        first, *more = wrap(text, indent, columns)
        write(f"  {name.ljust(indent - 2)}{first}")
        for line in more:
            write(" " * indent + line)
    write()
