"""Copy a batch without some of its dumps."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from .. import kernels as pc
from .. import schema
from .batch import Batch, File
from .parquet import BatchWriter
from .storage import Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def rewrite(storage: Storage, old: Batch, removed: Set[str], failed: Set[str], run_id: str) -> Batch | None:
    """Copy a batch without the dumps in `removed`, and without the rows of `removed` and `failed` in `quarantine`.

    Return None if nothing is left.
    """
    dumps = tuple(i for i in old.dumps if i not in removed)
    quarantined = tuple(i for i in old.quarantined if i not in removed | failed)
    if not dumps and not quarantined:
        return None
    name = xxhash.xxh3_128_hexdigest("\0".join((old.name, *dumps, "", *quarantined)).encode())
    files: list[File] = []
    for file in old.files:
        number = sum(f.table == file.table for f in files)
        ids = pa.array(quarantined if file.table == "quarantine" else dumps, pa.string())
        files += _copy(storage, file, name, number, ids, run_id)
    return replace(
        old,
        name=name,
        dumps=dumps,
        quarantined=quarantined,
        files=tuple(files),
        attempts={i: n for i, n in old.attempts.items() if i in quarantined},
        system=tuple(i for i in old.system if i in quarantined),
        places={i: path for i, path in old.places.items() if i in quarantined},
        hosts={i: host for i, host in old.hosts.items() if i in quarantined},
    )


def _copy(storage: Storage, file: File, batch: str, number: int, ids: pa.Array, run_id: str) -> list[File]:
    """Copy the rows of these dumps, one row group at a time."""
    folder = "/".join(file.path.split("/")[1:-1])
    with storage.open_parquet(file.path) as parquet:
        order = {file.table: sort_order(parquet.metadata)}
    with BatchWriter(storage, folder, batch, first_file=number, run_id=run_id, sorted_by=order) as writer:
        for table in storage.row_groups(file.path):
            table = pc.filter(table, pc.is_in(table["content_id"], ids))
            writer.add(file.table, with_current_columns(table, schema.WAREHOUSE[file.table].warehouse))
        return writer.close()


def sort_order(metadata: pq.FileMetaData) -> tuple[str, ...]:
    """Return the names of the columns by which the rows of a file are sorted."""
    columns = metadata.row_group(0).sorting_columns if metadata.num_row_groups else ()
    return tuple(metadata.schema.column(column.column_index).name for column in columns)


def with_current_columns(table: pa.Table, spec: pa.Schema) -> pa.Table:
    """Convert a table of an older version to the columns of this version; missing columns are null."""
    names = set(table.column_names)
    columns: list[Any] = [
        pc.cast(table[f.name], f.type) if f.name in names else pa.nulls(table.num_rows, f.type) for f in spec
    ]
    return pa.table(columns, schema=spec)
