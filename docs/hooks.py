"""Pages and files that the site has beside those of this folder: tables, commands, changelog, JSON schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from xlamem import cli, schema

ROOT = Path(__file__).parents[1]
WIDTH = 88
"""Columns of the help of commands."""
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)\)")
"""Links from a page to a file of the repository that is not in this folder."""

GROUPS = {
    "Tables of a dump": ("What a dump contains, as it is printed.", schema.TABLES),
    "Computed tables": ("What xlamem computes from a dump.", schema.COMPUTED),
    "Comparisons": ("What differs between two programs, or between the programs of two sides.", schema.COMPARED),
    "Checks": ("Results of `xlamem check`.", schema.CHECKED),
    "Out-of-memory reports": ("What `xlamem oom` reads from a log.", schema.OOM),
    "Datasets": (
        "A dataset has the tables of a dump, with names as plain text and `content_id` as the first column, and these.",
        {**schema.DERIVED, **schema.RUN_TABLES},
    ),
}
VALUES: dict[str, tuple[str, Mapping[str, str]]] = {
    "Numbers": ("`peaks.definition` in a dataset. [Numbers](numbers.md) derives them.", schema.DEFINITIONS),
    "Lines of the bill": ("`bills.line`", schema.BILL_LINES),
    "Parts of a line": ("`bills.part`", schema.BILL_PARTS),
    "Kinds of buffers in the bill": ("`bills.kind`", schema.BILL_KINDS),
    "Causes of a difference": ("`differences.cause`; of several, the first", schema.CAUSES),
    "Matching of values": ("`matches.match`", schema.MATCHES),
    "Edits": ("`edits.kind`", schema.EDITS),
    "Pairing of programs": ("`pairs.how`, `series.how`, `jumps.how`", schema.PAIRED),
    "Rules of checks": ("`findings.rule`", schema.RULES),
    "Statuses of checks": ("`checked_programs.status`, from best to worst", schema.STATUSES),
    "Roles of files": ("`files.role`", schema.ROLES),
    "Features of a dump": ("`modules.features`, `files.features`", schema.FEATURES),
    "Diagnostics": ("`diagnostics.code`", schema.CODES),
}
KINDS = {
    "int": "integer",
    "float": "double",
    "bool": "boolean",
    "name": "dictionary of text",
    "text": "text",
    "time": "timestamp",
}


# -- the page of tables ----------------------------------------------------------------------------


def tables_page() -> str:
    """Return the reference of all tables, columns and closed sets of values as Markdown."""
    return "\n".join(_tables_page()) + "\n"


def _tables_page() -> Iterator[str]:
    yield "# Tables and columns\n"
    yield f"Schema version {schema.VERSION}. Within a version, columns are only appended, never renamed or moved."
    yield "`xlamem schema TABLE` prints the same in a terminal, and `xlamem schema --json` as data."
    yield "`dump.values` or `xlamem show values PATH` gives a table, and `xlamem sql PATH` queries all of them.\n"
    for title, (about, tables) in GROUPS.items():
        yield f"## {title}\n\n{about}\n"
        for table in tables.values():
            anchor = f"dataset-{table.name}" if title == "Datasets" else table.name  # some are in both
            yield f"### `{table.name}` {{ #{anchor} }}\n\nOne row per {table.row}. Source: {table.source}.\n"
            yield from _rows(("column", "type", "meaning"), map(_column, table.columns))
    yield "## Values\n\nColumns with these names contain nothing else.\n"
    for title, (about, texts) in VALUES.items():
        yield f"### {title}\n\n{about}\n"
        yield from _rows(("value", "meaning"), ((f"`{name}`", text) for name, text in texts.items()))
    yield "### Memory spaces\n\n`allocations.memory_space`: the name of each color, by platform.\n"
    spaces = ((p, ", ".join(f"{color} `{name}`" for color, name in s.items())) for p, s in schema.SPACES.items())
    yield from _rows(("platform", "colors"), spaces)


def _column(column: schema.Column) -> tuple[str, str, str]:
    kind = KINDS[column.kind] + (", nullable" if column.nullable else "")
    return f"`{column.name}`", kind, column.doc + (f" ({column.unit})" if column.unit else "")


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Return the lines of a Markdown table."""
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(_escaped(cell) for cell in cells) + " |"
    yield ""


def _escaped(cell: str) -> str:
    return re.sub(r"([|<>*\[])", r"\\\1", cell)


# -- the page of commands --------------------------------------------------------------------------


def commands_page() -> str:
    """Return the help of every command as Markdown."""
    return "\n".join(_commands_page()) + "\n"


def _commands_page() -> Iterator[str]:
    yield "# Commands\n"
    yield "What `--help` prints. [In the terminal](terminal.md) explains the screens.\n"
    yield from _help(click.Context(cli.cli, info_name="xlamem", terminal_width=WIDTH, **cli.cli.context_settings), "#")


def _help(context: click.Context, level: str) -> Iterator[str]:
    """Return the help of a command, and of its commands below."""
    yield f"```text\n{context.get_help()}\n```\n"
    for name, command in _commands(context):
        yield f"{level}# {name if level == '#' else f'{context.info_name} {name}'}\n"
        yield from _help(click.Context(command, info_name=name, parent=context), f"{level}#")


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if command := context.command.get_command(context, name):
                yield name, command


# -- other files of the repository -----------------------------------------------------------------


def changelog() -> str:
    """Return the changelog, with links that start from this folder."""
    return (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")


def inside(markdown: str) -> str:
    """Return a page whose links to files outside of this folder lead to their copies in the site."""
    return OUTSIDE.sub(r"](source/\1)", markdown)


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and copies of the files that pages link to."""
    from mkdocs.structure.files import File

    linked = {path for page in files.documentation_pages() for path in OUTSIDE.findall(page.content_string)}
    for path in sorted(linked):
        files.append(File.generated(config, f"source/{path}", abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "tables.md", content=tables_page()))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    files.append(File.generated(config, "changelog.md", content=changelog()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to other files of the repository lead to their copies."""
    return inside(markdown)
