"""What the verbs about one program share: their options, the program that is meant, its memory spaces, its title."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import compute, schema
from ..dump import Dump, read
from ..errors import DumpError, UsageError
from ..input.find import Source, find
from . import console
from .console import counted

if TYPE_CHECKING:
    from rich.text import Text

Row = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

NEEDED = [t for t in schema.TABLES if t not in ("uses", "positions", "printed_stack")]
"""Tables that the numbers and the states come from: every section is read."""

MAIN = ("hbm", "device", "memory", "color_0")
"""Spaces that are shown first."""

STATES = {
    "complete": ("truncated", {"truncated"}),
    "understood": ("not understood", schema.NOT_UNDERSTOOD),
    "consistent": ("not consistent", schema.NOT_CONSISTENT),
}
"""Columns of `modules`; the sentence shown where one is false, and the codes of diagnostics that make it so."""


def output_options(limit: int, what: str) -> Callable[[F], F]:
    """--space, --limit, --wide, --json, --csv."""

    def add(command: F) -> F:
        for option in (
            click.option("--csv", "as_csv", is_flag=True, help="Print CSV, all rows unless --limit is given."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON, all rows unless --limit is given."),
            click.option("--wide", is_flag=True, help="Shorten nothing."),
            click.option("--limit", "-n", type=click.IntRange(min=0), help=f"{what}  [default: {limit}]"),
            click.option("--space", metavar="NAME", help="Only this memory space: its name (hbm) or color (0)."),
        ):
            command = option(command)
        return command

    return add


def module_option(command: F) -> F:
    return click.option("--module", metavar="N|NAME", help="Which module, where PATH holds several; else the biggest.")(
        command
    )


def one(path: str, module: str | None, tables: Iterable[str] | None = None) -> Dump:
    """The dump at a path: the biggest where there are several and none is chosen."""
    found = find(path)
    if module is not None:
        if module.isdecimal() and len(matching := [s for s in found if s.module_id == int(module)]) == 1:
            return read(matching[0], tables=tables)
        return read(path, module=module, tables=tables)
    if len(found) == 1:
        return read(found[0], tables=tables)
    sizes = []
    for source in found:
        try:
            sizes.append((compute.device_total(read(source, tables=["allocations"])) or 0, source))
        except DumpError as error:
            console.complain(str(error), console.UNREADABLE)
    if not sizes:
        raise UsageError(f"nothing in {path} can be read")
    biggest = max(sizes, key=lambda s: s[0])[1]
    console.note(f"{counted(len(found), 'module')} in {path}; this is the biggest, {biggest.name}; --module chooses")
    return read(biggest, tables=tables)


def space_of(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() else text


def only(rows: list[Row], space: str | None, *, missing: bool = False) -> list[Row]:
    """Rows of one memory space; with `missing` it need not be there."""
    wanted = space_of(space)
    found = [r for r in rows if wanted is None or wanted in (r["memory_space"], r["color"])]
    if not found and space is not None and not missing:
        there = ", ".join(f"{r['memory_space']} (color {r['color']})" for r in rows) or "none"
        raise UsageError(f"no memory space {space!r}; this dump has {there}")
    return found


def wrong(module: Row) -> list[str]:
    """The states of a dump that are not as they should be, in words."""
    return [said for column, (said, _) in STATES.items() if not module[column]]


def in_words(modules: Iterable[Row]) -> list[str]:
    """How many dumps are in each of them."""
    counts = Counter(said for module in modules for said in wrong(module))
    return [f"{counts[said]:,} {said}" for said, _ in STATES.values() if counts[said]]


def states(dump: Dump) -> list[str]:
    """For each of them a sentence that says where it shows first."""
    (module,), diagnostics, sentences = dump.modules.to_pylist(), dump.diagnostics.to_pylist(), []
    for column, (said, codes) in STATES.items():
        if module[column]:
            continue
        found = [d for d in diagnostics if d["code"] in codes] or [d for d in diagnostics if d["severity"] == "error"]
        more = f", and {counted(len(found) - 1, 'more', 'more')}" if len(found) > 1 else ""
        d = found[0]
        what = {
            "complete": f"expected {d['wanted']}; the numbers are of what is there",
            "understood": d["excerpt"] or d["wanted"],
            "consistent": schema.CODES[d["code"]],
        }[column]
        offset = "" if d["offset"] is None else f" (byte {d['offset']:,})"
        sentences.append(console.visible(f"{said}: {file_of(d, dump.source)}{offset}{more}: {what}"))
    return sentences


def file_of(diagnostic: Row, source: Source) -> str:
    """File and line of a diagnostic, without the name that all files of the dump share."""
    name = os.path.basename(diagnostic["file"] or "") or "dump"
    short = name.removeprefix(source.name)
    line = f":{diagnostic['line']}" if diagnostic["line"] is not None else ""
    return f"…{short}{line}" if short.startswith("-") else f"{name}{line}"


def title(dump_source: Source, module: Row, width: int | None, wrong: list[str]) -> list[Text]:
    """Whose numbers these are; before it what is wrong with the dump, from `states`."""
    from rich.text import Text

    said = [" ".join(filter(None, [module["platform"], module["target"]]))]
    if module["schedule_length"] is not None:
        said.append(counted(module["schedule_length"], "step"))
    what = ", ".join(filter(None, said))
    name = console.visible(module["module_name"] or dump_source.name)
    room = width and width - len(what) - 2
    number = f"module {module['module_id']:04d} " if module["module_id"] is not None else ""
    place = console.tail(console.visible(dump_source.location), width and width - len(number) - 3)
    lines = [Text(line, "bold red") for sentence in wrong for line in console.fill(sentence, 0, width)]
    lines.append(Text.assemble((console.shortened(name, room), "bold"), f"  {what}" if what else ""))
    lines.append(Text.assemble((f"{number}in {place}", "dim")))
    return lines
