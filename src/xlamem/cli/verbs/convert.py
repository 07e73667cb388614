"""`xlamem convert`: dumps to a Parquet dataset."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click

from ... import warehouse
from ...errors import UsageError, without_passwords
from ...formatting import count
from .. import console, options
from ..completion import files, some_of, stored_tables
from ..reporters import convert as reporter


@click.command("convert")
@click.argument("sources", nargs=-1, required=True, metavar="SRC...", shell_complete=files)
@click.option(
    "--to", "to", required=True, metavar="DEST", shell_complete=files,
    help="Directory or URI of the dataset; created if missing.",
)  # fmt: skip
@click.option(
    "--tables", metavar="TABLE,TABLE", shell_complete=some_of(stored_tables),
    help="Write only these tables (see `xlamem schema`).",
)  # fmt: skip
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label the dumps; can be repeated.")
@click.option("--partition-by", metavar="KEY,KEY", help="Labels that become part of the paths.")
@click.option("--top", default=20, show_default=True, metavar="N", help="Rows of peak_members per memory space.")
@click.option("--workers", type=int, metavar="N", help="Worker processes and threads; by default as memory allows.")
@click.option(
    "--engine",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Where dumps are read: local (processes of this machine), here (this process), dask or ray (a cluster), or an "
    "engine that another package adds.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Dask scheduler (tcp://…) or address of a Ray cluster; by default a cluster on this machine.",
)
@click.option("--reprocess", is_flag=True, help="Convert dumps again that are already stored, and replace them.")
@click.option("--retry-quarantine", is_flag=True, help="Retry dumps that are in quarantine because of their content.")
@click.option("--check-content", is_flag=True, help="Read all files, also those unchanged since an earlier run.")
@click.option(
    "--min-age",
    type=float,
    default=0,
    metavar="SECONDS",
    help="Leave dumps that were modified in the last SECONDS to the next run.",
)
@click.option("--max-failures", type=int, metavar="N", help="Stop after more than N new unreadable dumps.")
@click.option(
    "--single-writer", is_flag=True, help="Promise that no other run writes to DEST, and skip conditional writes."
)
@click.option("--compact", is_flag=True, help="Merge small files afterwards, as `xlamem dataset compact` does.")
@click.option(
    "--register",
    multiple=True,
    metavar="FORMAT",
    help="Register the files as tables that follow the dataset from now on: delta, iceberg or "
    "iceberg:CATALOG.NAMESPACE; can be repeated.",
)
@options.output()
@options.strict("Exit with 3 if a dump is truncated, or a SRC has no dump.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
def command(
    sources: tuple[str, ...],
    to: str,
    tables: str | None,
    labels: tuple[str, ...],
    partition_by: str | None,
    output: options.Output,
    strict: bool,
    quiet: bool,
    **settings: Any,
) -> int:
    """Write the tables of the dumps at each SRC (files, directories, archives, URIs, - for standard input) to the
    dataset DEST, each distinct content once, and record where it was found. To resume an interrupted run, repeat the
    command.

    Dumps that cannot be read are recorded in the table `quarantine`. `xlamem sql DEST` queries the dataset.
    """
    if settings["scheduler"] is not None and settings["engine"] in ("local", "here"):
        raise UsageError(f"--scheduler needs an engine that has one, not {settings['engine']}: --engine dask or ray")
    settings |= {"tables": _names(tables), "labels": options.labels_of(labels)}
    settings["partition_by"] = _names(partition_by) or ()
    try:
        # Engines may print: Ray reports each worker that dies on stdout, which is for the result.
        with reporter.progress(hidden=quiet) as progress, _without_garbage_collection(), redirect_stdout(sys.stderr):
            result = warehouse.convert(*sources, to=to, progress=progress, **settings)
    except warehouse.Interrupted as stop:
        written = count(stop.result.dumps, "dump")
        console.note(f"interrupted: {written} written and committed; repeat the command to resume")
        return console.INTERRUPTED
    reporter.report_failures(result)
    if not quiet or strict:
        reporter.report_incomplete(result)
    if not quiet:
        reporter.report_notes(result)
    to = without_passwords(to)
    if output.json:
        console.write_document("convert", {"to": to, **dataclasses.asdict(result)})
    elif not quiet:
        console.write(reporter.summary(result, to))
    return console.UNREADABLE if result.unreadable or (strict and (result.cut or result.empty)) else console.FINE


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Do not search thousands of dumps for reference cycles, which takes a third of the time to find them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
