"""The readers to compare: xlamem and its alternatives.

Each function reads folders, one per dump, and returns the number of rows and the objects that it keeps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"  # read at import; all readers use one thread

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.csv
import rivals
import touching
from touching import Reader, Result

import xlamem

PEAK_TABLES = ["allocations", "values", "live_ranges"]
"""The tables from which a peak is computed."""
BATCHED = ["values", "uses", "live_ranges", "printed_report"]
"""The longest table of each section."""
LINE = {"line": pa.string()}


def _files(folders: Iterable[str | Path]) -> Iterator[Path]:
    return (path for folder in folders for path in rivals.memory_files(Path(folder)))


# ------------------------------------------------------------------------------- xlamem


def for_a_peak(folders: Iterable[str | Path]) -> Result:
    return touching.read(folders, PEAK_TABLES)


def batches(folders: Iterable[str | Path]) -> Result:
    """Read one table of each section in batches, so that all text is read once and no table is complete in memory."""
    rows = 0
    for folder in folders:
        dump = xlamem.read(folder, threads=1)
        for name in BATCHED:
            rows += sum(batch.num_rows for batch in dump.batches(name))
    return rows, []


# ------------------------------------------------------------------------------- Python


def regex(folders: Iterable[str | Path], finish: Callable[[Any], Any] = lambda tables: tables) -> Result:
    rows, kept = 0, None
    for folder in folders:
        tables = rivals.read(rivals.memory_files(Path(folder)))
        rows += sum(len(next(iter(columns.values()))) for columns in tables.values())
        kept = finish(tables)
    return rows, [kept]


def regex_arrow(folders: Iterable[str | Path]) -> Result:
    rows, kept = regex(folders, rivals.to_arrow)
    return rows, list(kept[0].values())


# ------------------------------------------------------------------------------- lines only, one thread


def _each(read: Callable[[Path], tuple[int, Any]]) -> Reader:
    """Make a reader of folders from a reader of one file."""

    def reader(folders: Iterable[str | Path]) -> Result:
        rows, kept = 0, None
        for path in _files(folders):
            made, kept = read(path)
            rows += made
        return rows, [kept]

    return reader


@_each
def arrow_plain(path: Path) -> tuple[int, Any]:
    table = pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(use_threads=False, column_names=["line"]),
        pyarrow.csv.ParseOptions(delimiter="\x01", quote_char=False, ignore_empty_lines=False),
    )
    return table.num_rows, table


@_each
def arrow_lean(path: Path) -> tuple[int, Any]:
    """Read with larger blocks, given types and no UTF-8 check."""
    table = pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(use_threads=False, column_names=["line"], block_size=4 << 20),
        pyarrow.csv.ParseOptions(delimiter="\x01", quote_char=False, ignore_empty_lines=False),
        pyarrow.csv.ConvertOptions(column_types=LINE, check_utf8=False),
    )
    return table.num_rows, table


@_each
def polars_plain(path: Path) -> tuple[int, Any]:
    frame = polars.read_csv(path, has_header=False, separator="\x01", quote_char=None, new_columns=["line"])
    return frame.height, frame


@_each
def polars_lean(path: Path) -> tuple[int, Any]:
    """Read with `polars.read_lines`."""
    frame = polars.read_lines(path)
    return frame.height, frame


DUCKDB = """read_csv('{}', columns={{'line': 'VARCHAR'}}, delim='\x01', quote='', escape='', header=false,
    auto_detect=false, null_padding=false, max_line_size=16777216)"""


@cache
def connection() -> Any:
    return duckdb.connect(config={"threads": 1})


def _duckdb(path: Path, query: str) -> Any:
    return connection().sql(query.format(DUCKDB.format(path))).to_arrow_table()


@_each
def duckdb_plain(path: Path) -> tuple[int, Any]:
    table = _duckdb(path, "SELECT line FROM {}")
    return table.num_rows, table


@_each
def duckdb_lean(path: Path) -> tuple[int, Any]:
    """Count only, keep nothing."""
    return _duckdb(path, "SELECT count(line) FROM {}").column(0)[0].as_py(), None


# ------------------------------------------------------------------------------- references


class Copy:
    """Copy the bytes between two arrays that are already mapped."""

    def __init__(self, folders: Iterable[str | Path]):
        self.source = np.frombuffer(b"".join(path.read_bytes() for path in _files(folders)), np.uint8)
        self.target = np.ones(len(self.source), np.uint8)

    def __call__(self, _: Any) -> Result:
        np.copyto(self.target, self.source)
        return 0, []


def prepare(name: str) -> None:
    """Import what the reader imports later."""
    READERS[name]([touching.TINY])


def _measured(read: Reader) -> Callable[[list[str]], dict[str, Any]]:
    """Make a task for a new process, which reports the bytes of its tables."""

    def work(folders: list[str]) -> dict[str, Any]:
        import measure

        rows, kept = read(folders)
        HELD.extend(kept)
        tables = [table for table in kept if isinstance(table, pa.Table)]
        return {"rows": rows, "tables_bytes": measure.tables_bytes(tables)}

    return work


HELD: list[Any] = []
READERS: dict[str, Reader] = {
    "all": touching.read,
    "peak": for_a_peak,
    "arrow": arrow_plain,
    "arrow_lean": arrow_lean,
    "polars": polars_plain,
    "polars_lean": polars_lean,
    "duckdb": duckdb_plain,
    "duckdb_lean": duckdb_lean,
    "re": regex,
    "re_arrow": regex_arrow,
    "batches": batches,
}
WORKS = {name: _measured(read) for name, read in READERS.items()}
