"""`xlamem convert`: dumps to Parquet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .. import warehouse
from . import console
from .console import counted


@click.command("convert", short_help="Write dumps to Parquet.")
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.option("--to", "to", required=True, metavar="DEST", help="Directory to write to; made where it is missing.")
@click.option("--tables", metavar="A,B", help="Write only these tables (see `xlamem schema`).")
@click.option("--json", "as_json", is_flag=True, help="Print what was made as JSON.")
@click.option("--strict", is_flag=True, help="A cut dump counts as unreadable (exit code 3).")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def command(sources: tuple[str, ...], to: str, tables: str | None, as_json: bool, strict: bool, quiet: bool) -> int:
    """Find the dumps under SRC (files, directories, tars, URIs, - for standard input) and write each of their
    tables to DEST/<table>/<dump>.parquet. What cannot be read is named and passed over.
    """
    chosen = None if tables is None else [t.strip() for t in tables.split(",") if t.strip()]
    with _progress(hidden=quiet) as progress:
        made = warehouse.convert(*sources, to=to, tables=chosen, progress=progress)
    for name, error in made.failed:
        said = str(error)
        console.complain(said if name in said else f"{name}: {said}", console.UNREADABLE)
    if made.cut and not quiet:
        shown = made.cut[:5]
        more = f" and {counted(len(made.cut) - len(shown), 'more', 'more')}" if len(made.cut) > len(shown) else ""
        console.note(f"cut, converted as far as they go: {', '.join(shown)}{more}")
    if as_json:
        console.out_json(
            {
                "to": to,
                "dumps": made.dumps,
                "files": made.files,
                "bytes": made.bytes,
                "rows": made.rows,
                "failed": [{"name": name, "error": str(error)} for name, error in made.failed],
                "cut": made.cut,
            }
        )
    elif not quiet:
        failed = f", {len(made.failed)} unreadable" if made.failed else ""
        console.out(
            f"{counted(made.dumps, 'dump')} to {to}: {counted(made.files, 'file')}, "
            f"{counted(made.rows, 'row')}, {console.exact(made.bytes)}{failed}"
        )
    if made.failed or (strict and made.cut):
        return console.UNREADABLE
    return console.FINE


@contextmanager
def _progress(*, hidden: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on stderr, where that is a terminal."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts: list[Any] = [BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")]
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=escape(console.shortened(name, 30)))

        yield progress
