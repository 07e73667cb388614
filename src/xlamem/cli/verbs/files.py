"""`xlamem files`: the committed files of a dataset."""

from __future__ import annotations

import click

from ...errors import UsageError
from .. import console
from ..console import out


@click.command("files", short_help="List the files of a dataset.")
@click.argument("dest", metavar="DEST")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--long", "-l", "long", is_flag=True, help="Rows, bytes and version of each, and a sum.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(dest: str, tables: tuple[str, ...], long: bool, as_json: bool) -> None:
    """Print the path of each committed file of the dataset DEST, of these TABLEs or of all: what any other tool
    should read. Files that a converter is still writing, or has replaced, are not among them.

    \b
      duckdb -c "SELECT count(*) FROM read_parquet([$(xlamem files DEST values | sed "s/.*/'&'/" | paste -sd,)])"
    """
    from ...warehouse.dataset import Dataset  # brings pyarrow.dataset

    dataset = Dataset(dest)
    wanted = list(dict.fromkeys(tables))
    if unknown := [t for t in wanted if t not in dataset.tables]:
        raise UsageError(f"no table {', '.join(unknown)}; there are {', '.join(dataset.tables)}")
    rows = [f for f in dataset.files().to_pylist() if not wanted or f["table"] in wanted]
    if as_json:
        return console.out_json(rows)
    if not long:
        for row in rows:
            out(row["path"])
        return
    shown = [[row["table"], f"{row['rows']:,}", f"{row['bytes']:,}", row["tool_version"], row["path"]] for row in rows]
    total, size = sum(r["rows"] for r in rows), sum(r["bytes"] for r in rows)
    for line in console.columns([["table", "rows", "bytes", "version", "path"], *shown], {0, 3, 4}):
        out(line)
    out(f"{console.counted(len(rows), 'file')}, {console.counted(total, 'row')}, {console.exact(size)}")
