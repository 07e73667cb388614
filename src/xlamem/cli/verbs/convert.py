"""`xlamem convert`: dumps to a Parquet dataset."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ... import warehouse
from ...errors import UsageError
from .. import console
from ..console import counted

SHOWN = 10
"""Unreadable dumps that are named; the table `quarantine` has them all."""


@click.command("convert", short_help="Write dumps to a Parquet dataset.")
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.option("--to", "to", required=True, metavar="DEST", help="Directory or URI of the dataset; made if missing.")
@click.option("--tables", metavar="A,B", help="Write only these tables (see `xlamem schema`).")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label these dumps; may be repeated.")
@click.option("--partition-by", metavar="KEY,KEY", help="Labels that are made part of the path.")
@click.option("--top", default=20, show_default=True, metavar="N", help="Rows of peak_members per memory space.")
@click.option("--workers", type=int, metavar="N", help="Processes; by default as cores and memory allow.")
@click.option(
    "--engine",
    type=click.Choice(["local", "dask", "here"]),
    default="local",
    show_default=True,
    help="Where jobs run: processes of this machine, a Dask cluster, or this process.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler (tcp://…); without it, one of this machine.")
@click.option("--reprocess", is_flag=True, help="Write again what is stored already, in its place.")
@click.option("--retry-quarantine", is_flag=True, help="Try again what is in quarantine because of its content.")
@click.option("--max-failures", type=int, metavar="N", help="Stop when more than N dumps could not be read.")
@click.option("--single-writer", is_flag=True, help="No other run writes to DEST now: do without conditional writes.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@click.option("--strict", is_flag=True, help="A truncated dump counts as unreadable (exit code 3).")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
def command(
    sources: tuple[str, ...],
    to: str,
    tables: str | None,
    labels: tuple[str, ...],
    partition_by: str | None,
    as_json: bool,
    strict: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Find the dumps under SRC (files, directories, tars, URIs, - for standard input) and write their tables to
    the dataset DEST, each distinct dump once. Stopped or killed at any point, the same command goes on.

    What cannot be read goes to the table `quarantine`, and the run goes on. `xlamem sql DEST` reads the dataset.
    """
    try:
        with _progress(hidden=quiet) as progress:
            made = warehouse.convert(
                *sources,
                to=to,
                tables=_words(tables),
                labels=_labels(labels),
                partition_by=_words(partition_by) or (),
                progress=progress,
                **options,
            )
    except warehouse.Interrupted as stop:
        stored = counted(stop.result.dumps, "dump")
        console.note(f"interrupted: {stored} written and committed; the same command goes on from there")
        return console.INTERRUPTED
    for fault in made.failed[:SHOWN]:
        console.complain(_said(fault), console.UNREADABLE)
    if len(made.failed) > SHOWN:
        console.note(f"and {counted(len(made.failed) - SHOWN, 'more', 'more')}: see the table quarantine")
    if not quiet:
        _notes(made)
    if as_json:
        console.out_json({"to": to, **dataclasses.asdict(made)})
    elif not quiet:
        console.out(_summary(made, to))
    return console.UNREADABLE if made.unreadable or (strict and made.cut) else console.FINE


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [t.strip() for t in text.split(",") if t.strip()]


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        key, equal, value = text.partition("=")
        if not equal or not key:
            raise UsageError(f"a label is written KEY=VALUE, not {text!r}")
        if key in found:
            raise UsageError(f"the label {key!r} is given twice")
        found[key] = value
    return found


def _said(fault: Any) -> str:
    where = fault.uri
    if fault.line is not None:
        where += f":{fault.line}"
    if fault.offset is not None:
        where += f" (byte {fault.offset:,})"
    found = f", found {fault.excerpt!r}" if fault.excerpt else ""
    tries = f" (the next run tries again; failed {fault.attempts:,} so far)" if fault.kind == "system" else ""
    return (fault.error if fault.uri in fault.error else f"{where}: {fault.error}{found}") + tries


def _notes(made: warehouse.Converted) -> None:
    if made.cut:
        shown = made.cut[:5]
        more = f" and {counted(len(made.cut) - len(shown), 'more', 'more')}" if len(made.cut) > len(shown) else ""
        console.note(f"truncated, converted as far as they go: {', '.join(shown)}{more}")
    if made.changed:
        console.note(
            f"{counted(len(made.changed), 'dump')} changed while being read and left for the next run: "
            + ", ".join(made.changed[:5])
        )
    if made.known:
        dumps = counted(made.known, "dump")
        console.note(f"{dumps} in quarantine since an earlier run (--retry-quarantine tries again)")
    if made.stopped:
        console.note("stopped: more failures than --max-failures; the same command goes on")


def _summary(made: warehouse.Converted, to: str) -> str:
    parts = [
        f"{counted(made.dumps, 'dump')} to {to}: {counted(made.rows, 'row')} in {counted(made.files, 'file')}, "
        f"{console.exact(made.bytes)}"
    ]
    if made.stored:
        parts.append(f"{made.stored:,} stored before")
    if made.duplicates:
        parts.append(counted(made.duplicates, "duplicate"))
    if made.unreadable:
        parts.append(f"{made.unreadable:,} unreadable")
    if made.dumps and made.seconds:
        rate = console.size(round(made.text_bytes / made.seconds))
        parts.append(f"{made.seconds:.1f} s ({made.dumps / made.seconds:,.0f} dumps/s, {rate}/s)")
    return "; ".join(parts)


# -- progress ------------------------------------------------------------------------------------

MINUTE = 60.0


@contextmanager
def _progress(*, hidden: bool) -> Iterator[Any]:
    """A bar on stderr where that is a terminal, else a line a minute."""
    if hidden:
        yield None
    elif sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Log()


class _Log:
    """One line a minute, for logs."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, status: warehouse.Status) -> None:
        if time.monotonic() - self.last >= MINUTE:
            self.last = time.monotonic()
            console.note(_line(status))


def _line(s: warehouse.Status) -> str:
    said = f"{s.phase}: {s.dumps:,} of {s.of_dumps:,} dumps"
    if s.of_bytes:
        said += f", {console.size(s.bytes)} of {console.size(s.of_bytes)}"
    if s.seconds and s.bytes:
        rate = s.bytes / s.seconds
        said += f", {console.size(round(rate))}/s, {(s.of_bytes - s.bytes) / rate / 60:.0f} min left"
    return said + (f", {s.failed:,} unreadable" if s.failed else "")


@contextmanager
def _bar() -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    parts: list[Any] = [TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[said]}")]
    parts.append(TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("find", total=None, said="")

        def show(s: warehouse.Status) -> None:
            said = f"{s.dumps:,}/{s.of_dumps:,}"
            if s.bytes and s.seconds:
                said += f" {console.size(round(s.bytes / s.seconds))}/s"
            if s.failed:
                said += f" {s.failed:,} failed"
            done, total = (s.bytes, s.of_bytes) if s.of_bytes else (s.dumps, s.of_dumps)
            bar.update(task, description=s.phase, completed=done, total=total or None, said=said)

        yield show
