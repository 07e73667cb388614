"""`xlamem dataset`: inspect and maintain a Parquet dataset."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from ...errors import UsageError, without_passwords
from ...formatting import align, count, exact_size, similar
from .. import console, options
from ..completion import files, one_of, stored_tables
from ..reporters import convert as reporter


@click.group("dataset")
def command() -> None:
    """Inspect and maintain a dataset written by `xlamem convert`."""


@command.command("files")
@click.argument("dest", metavar="DEST", shell_complete=files)
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=one_of(stored_tables))
@click.option(
    "--format",
    "form",
    type=click.Choice(["list", "duckdb", "json"]),
    help="Print one path per line (default), SQL that creates views of the tables in DuckDB, or JSON.",
)
@click.option("--long", "-l", is_flag=True, help="Show rows, bytes and version of each file, and a sum.")
@options.output()
def list_files(dest: str, tables: tuple[str, ...], form: str | None, long: bool, output: options.Output) -> None:
    """List the files of a dataset.

    These are the committed files of the dataset DEST, of all tables or of each TABLE: the files that other tools
    should read. Files that a converter has not committed yet, or has replaced, are left out.

    \b
      xlamem dataset files DEST values > values.txt
      xlamem dataset files DEST --format duckdb > views.sql
      duckdb -init views.sql -c 'SELECT count(*) FROM "values"'
    """
    from ...warehouse.dataset import Dataset  # imports pyarrow.dataset

    if form and (long or (output.json and form != "json")):
        raise UsageError(f"--format {form} and {'--long' if long else '--json'} exclude each other")
    if long and output.json:
        raise UsageError("--long and --json exclude each other")
    dataset = Dataset(dest)
    if form == "duckdb":
        return console.write(dataset.duckdb_views(*tables).rstrip("\n"))
    if unknown := [t for t in tables if t not in dataset.tables]:
        raise UsageError(f"no table {', '.join(unknown)}; {similar(unknown, dataset.tables)}")
    rows = [f for f in dataset.files().to_pylist() if not tables or f["table"] in tables]
    if output.json or form == "json":
        console.write_document("dataset-files", {"files": rows})
    elif long:
        _write_long(rows)
    elif rows:
        console.write("\n".join(row["path"] for row in rows))


def _write_long(files: list[dict[str, Any]]) -> None:
    cells = [[f["table"], f"{f['rows']:,}", f"{f['bytes']:,}", f["tool_version"], f["path"]] for f in files]
    for line in align([["table", "rows", "bytes", "version", "path"], *cells], {0, 3, 4}):
        console.write(line)
    n_rows, n_bytes = sum(f["rows"] for f in files), sum(f["bytes"] for f in files)
    console.write(f"{count(len(files), 'file')}, {count(n_rows, 'row')}, {exact_size(n_bytes)}")


def _write_about(dest: str, text: str) -> None:
    console.write(f"{without_passwords(dest)}: {text}")


@command.command("migrate")
@click.argument("dest", metavar="DEST", shell_complete=files)
@click.option("--single-writer", is_flag=True, help="Promise that no run writes to DEST, and skip conditional writes.")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
@options.output()
def migrate(dest: str, single_writer: bool, quiet: bool, output: options.Output) -> None:
    """Convert the files of xlamem 0.1 (schema=v1) in the dataset DEST.

    Dumps with the same content are stored once, and the places where they were found become rows of `occurrences`. The
    dataset can be read and written meanwhile. To resume after an interruption, repeat the command.
    """
    from ... import warehouse

    with reporter.progress(hidden=quiet) as progress:
        result = warehouse.migrate(dest, single_writer=single_writer, progress=progress)
    if output.json:
        console.write_document("dataset-migrate", dataclasses.asdict(result))
    elif not quiet:
        stored = f"{count(result.dumps, 'dump')} to {count(result.contents, 'content')}"
        _write_about(dest, f"{count(result.batches, 'batch', 'batches')}, {stored}, {result.seconds:.1f} s")


@command.command("drop")
@click.argument("dest", metavar="DEST", shell_complete=files)
@click.option("--where", required=True, metavar="SQL", help="Condition on the columns of the view `dumps`.")
@click.option("--yes", is_flag=True, help="Drop them; without it, only count what would be dropped.")
@click.option("--single-writer", is_flag=True, help="Promise that no run writes to DEST, and skip conditional writes.")
@options.output()
def drop(dest: str, where: str, yes: bool, single_writer: bool, output: options.Output) -> None:
    """Drop occurrences, and contents that are found nowhere else.

    The condition can use every column of the view `dumps`, and labels as label.KEY. Without --yes, nothing is changed.

    \b
      xlamem dataset drop DEST --where "label.night < '2026-08-01'"
      xlamem dataset drop DEST --where "label.night < '2026-08-01'" --yes
    """
    from ... import warehouse

    result = warehouse.drop(dest, where, dry_run=not yes, single_writer=single_writer)
    if output.json:
        console.write_document("dataset-drop", dataclasses.asdict(result))
        return
    parts = [count(result.occurrences, "occurrence"), f"{count(result.contents, 'content')} found nowhere else"]
    if result.quarantined:
        parts.append(f"{result.quarantined:,} in quarantine")
    done = "would be dropped; --yes drops them" if result.dry_run else "dropped"
    _write_about(dest, f"{', '.join(parts)} {done}")


@command.command("compact")
@click.argument("dest", metavar="DEST", shell_complete=files)
@click.option("--single-writer", is_flag=True, help="Promise that no run writes to DEST, and skip conditional writes.")
@options.output()
def compact(dest: str, single_writer: bool, output: options.Output) -> None:
    """Merge the small files of the dataset DEST into few large ones.

    Files of one partition that the same version wrote are merged, and dumps are sorted by platform, module and program.
    The dataset can be read and written meanwhile. To resume after an interruption, repeat the command.
    """
    from ... import warehouse

    result = warehouse.compact(dest, single_writer=single_writer)
    if output.json:
        console.write_document("dataset-compact", dataclasses.asdict(result))
        return
    old = f"{count(result.files, 'file')}, {exact_size(result.bytes)}"
    _write_about(dest, f"{old} to {count(result.new_files, 'file')}, {exact_size(result.new_bytes)}")


@command.command("register")
@click.argument("dest", metavar="DEST", shell_complete=files)
@click.option("--to", "to", required=True, metavar="FORMAT", help="delta, iceberg or iceberg:CATALOG.NAMESPACE.")
@click.option("--single-writer", is_flag=True, help="Promise that no run writes to DEST, and skip conditional writes.")
@options.output()
def register(dest: str, to: str, single_writer: bool, output: options.Output) -> None:
    """Register the files of a dataset as Iceberg or Delta tables.

    From then on, the tables follow the dataset: every run, `compact` and `drop` update them. This command also repeats
    an update that failed. No file is copied.
    """
    from ... import warehouse

    result = warehouse.register(dest, to, single_writer=single_writer)
    if output.json:
        sums = {name: getattr(result, name) for name in ("tables", "files", "added", "removed")}
        console.write_document("dataset-register", {"to": result.format, **sums})
        return
    tables = f"{count(result.tables, f'{result.format} table')} of {count(result.files, 'file')}"
    _write_about(dest, f"{tables}; {result.added:,} added, {result.removed:,} removed")
