"""The tables of a dump from CSV with typed columns, read by pyarrow.csv, Polars and DuckDB on one thread."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.csv
import pytest
import readers
import touching
from inputs import Shape
from measure import cpu_seconds
from tabular import Row

import xlamem
from xlamem import schema

ROUNDS = 3
Tables = dict[Path, pa.Schema]
"""The columns of each CSV file: 64-bit integers, Booleans and strings."""
POLARS = {pa.int64(): polars.Int64, pa.bool_(): polars.Boolean, pa.string(): polars.String}
DUCKDB = {pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN", pa.string(): "VARCHAR"}


def write(shape: Shape, to: Path) -> Tables:
    """Write every table that has rows."""
    (folder,) = shape.folders
    dump, tables = xlamem.read(folder), {}
    for name in schema.TABLES:
        table = dump[name]
        plain = pa.schema((f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema)
        if table.num_rows:
            pyarrow.csv.write_csv(table.cast(plain), path := to / f"{name}.csv")
            tables[path] = plain
    return tables


def with_pyarrow(path: Path, columns: pa.Schema) -> Any:
    return pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(use_threads=False, block_size=4 << 20),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=columns, check_utf8=False, strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def with_polars(path: Path, columns: pa.Schema) -> Any:
    return polars.read_csv(path, schema={field.name: POLARS[field.type] for field in columns})


def with_duckdb(path: Path, columns: pa.Schema) -> Any:
    types = {field.name: DUCKDB[field.type] for field in columns}
    query = f"SELECT * FROM read_csv('{path}', columns={types}, header=true, auto_detect=false, delim=',', quote='\"')"
    return readers.connection().sql(query).to_arrow_table()


READERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    "csv, pyarrow.csv": with_pyarrow,
    "csv, Polars": with_polars,
    "csv, DuckDB": with_duckdb,
}


@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_typed(shape: Shape, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    if shape.dumps > 1:
        pytest.skip("one dump only")
    tables = write(shape, tmp_path)
    size = {"dump, xlamem": shape.bytes} | dict.fromkeys(READERS, sum(path.stat().st_size for path in tables))
    used: dict[str, list[float]] = defaultdict(list)

    def timed(label: str, read: Callable[[], Any]) -> None:
        start = cpu_seconds()
        kept = read()
        used[label].append(cpu_seconds() - start)
        del kept

    def once() -> None:
        timed("dump, xlamem", lambda: touching.read(shape.folders))
        for label, read in READERS.items():
            timed(label, lambda read=read: [read(path, columns) for path, columns in tables.items()])

    benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=1)
    median = {label: statistics.median(times) for label, times in used.items()}
    speed = {label: size[label] / cpu / 1e9 for label, cpu in median.items()}
    for label, cpu in median.items():
        cells = {
            "MB": f"{size[label] / 1e6:.1f}",
            "columns": str(sum(map(len, tables.values()))),
            "CPU s": f"{cpu:.4f}",
            "x xlamem": f"{cpu / median['dump, xlamem']:.2f}",
            "GB/s CPU": f"{speed[label]:.3f}",
            "GB/s, xlamem / it": f"{speed['dump, xlamem'] / speed[label]:.2f}",
        }
        rows.append(Row(f"typed reads of the same tables, {shape.title}", label, cells))
    benchmark.extra_info.update(median)
