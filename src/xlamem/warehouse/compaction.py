"""Merge small batches into large ones, so that a dataset has few large files.

Batches are merged if their files are in the same partition and were written by the same version with the same tables.
Each merge is one ledger entry, which names the batches whose dumps the new one takes over; readers see the batches
before it or the one after it. Dumps are sorted by platform, module and program: similar rows compress well, and those
that are filtered are together.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from .. import kernels as pc
from .. import schema
from ..parse.arrays import Ints
from .batch import Batch, File
from .ledger import Ledger
from .maintenance import maintained
from .parquet import BatchWriter
from .record import batch_name
from .rewrite import with_current_columns
from .state import State
from .storage import Storage

MAX_BYTES = 512 << 20
"""Batches are merged up to this size of their files, of all tables together."""
MAX_DUMPS = 1 << 15
"""Maximum number of dumps in a merged batch: another version replaces those that it finds again in one task."""
LARGE_DUMP_BYTES = 16 << 20
"""A batch with a single dump and larger files is not merged."""
COMPRESSION_LEVEL = 9
"""Files are 10 to 15 % smaller than at the level of the converter, for as much more CPU time."""
BLOOM_FILTER_BYTES = 16 << 20
"""A merged table with larger files gets Bloom filters: statistics do not tell which of its row groups have a dump."""
ORDER = ("platform", "module_name", "program_fp", "content_id")
"""The columns of `modules` by which dumps are sorted."""
SORTED_BY = {"modules": ORDER}
"""The columns by which the rows of merged files are sorted, by table. Other tables follow `modules`."""
SLICE_BYTES = 256 << 20
"""Size of the rows of a table that are sorted in memory together, as encoded in Parquet."""


@dataclass(frozen=True)
class Compacted:
    """The result of `compact`."""

    batches: int
    """Batches that were merged."""
    merged: int
    """Batches that they were merged into."""
    files: int
    """Files of the merged batches."""
    bytes: int
    """Total size of these files."""
    new_files: int
    """Files that replace them."""
    new_bytes: int
    """Total size of these files."""


def compact(dest: str | os.PathLike[str], *, single_writer: bool = False) -> Compacted:
    """Merge small batches of a dataset, and delete their files.

    Converters may run at the same time: batches that they replace meanwhile are left as they are. To resume after an
    interruption, repeat the call; without small batches, it changes nothing. Readers that have opened the dataset
    before must open it again when a file is gone.

    Raises
    ------
    UsageError
        `dest` is not a dataset, or does not support conditional writes.
    OutputError
        A file cannot be written. What was merged before is kept.
    """
    merged: list[tuple[list[Batch], Batch]] = []
    with maintained(dest, single_writer=single_writer) as (storage, ledger, run_id):
        planned = [({b.name: ledger.state.ordinal(b.name) for b in batches}, batches) for batches in plan(ledger.state)]
        for ordinals, batches in planned:
            if new := _merge(storage, ledger, batches, ordinals, run_id):
                merged.append((batches, new))
    old = [file for batches, _ in merged for batch in batches for file in batch.files]
    files = [file for _, batch in merged for file in batch.files]
    return Compacted(
        sum(len(batches) for batches, _ in merged), len(merged), len(old), sum(file.bytes for file in old),
        len(files), sum(file.bytes for file in files),
    )  # fmt: skip


# -- planning


def plan(state: State) -> list[list[Batch]]:
    """Return the batches that are merged, complete with their files."""
    groups: dict[Any, list[tuple[int, Batch]]] = defaultdict(list)
    sizes = _sizes(state)
    for batch in state.batches.values():
        size = batch.merged_bytes or sizes.get(state.ordinal(batch.name), 0)
        is_large = len(batch.dumps) == 1 and size > LARGE_DUMP_BYTES
        if not batch.is_old and batch.files and not is_large and _has_ended(batch):
            groups[_group(batch)].append((size, replace(batch, files=tuple(batch.files))))
    bins = (batches for group in groups.values() for batches in _bins(group))
    return [batches for batches in bins if len(batches) > 1]


def _sizes(state: State) -> dict[int, int]:
    """Return the size of the files of each batch, by ordinal."""
    sums = state.files_table().group_by("batch").aggregate([("bytes", "sum")])
    return dict(zip(sums["batch"].to_pylist(), sums["bytes_sum"].to_pylist(), strict=True))


def _has_ended(batch: Batch) -> bool:
    """Return whether no run will replace a batch: a run replaces the one with its row when it ends."""
    return not batch.runs or batch.merged_bytes > 0 or batch.name == batch_name(batch.run_id, "end")


def _group(batch: Batch) -> tuple[Any, ...]:
    """Return what batches that are merged have in common."""
    folder = batch.files[0].path.split("/")[1:-1]
    kinds = "occurrences" in {file.table for file in batch.files}, bool(batch.runs)
    return (
        *folder, batch.tool_version, batch.schema_version, batch.tables, *kinds, bool(batch.dumps),
        bool(batch.quarantined),
    )  # fmt: skip


def _bins(group: list[tuple[int, Batch]]) -> list[list[Batch]]:
    """Pack batches, largest first, into the first bin with room. No two bins could be packed into one."""
    bins: list[_Bin] = []
    for size, batch in sorted(group, key=lambda item: (-item[0], item[1].name)):
        fitting = (b for b in bins if b.bytes + size <= MAX_BYTES and b.dumps + len(batch.dumps) <= MAX_DUMPS)
        chosen = next(fitting, None)
        if chosen is None:
            bins.append(chosen := _Bin())
        chosen.add(size, batch)
    return [b.batches for b in bins]


@dataclass
class _Bin:
    batches: list[Batch] = field(default_factory=list)
    bytes: int = 0
    dumps: int = 0

    def add(self, size: int, batch: Batch) -> None:
        self.batches.append(batch)
        self.bytes += size
        self.dumps += len(batch.dumps)


# -- merging


def _merge(
    storage: Storage, ledger: Ledger, batches: list[Batch], ordinals: dict[str, int], run_id: str
) -> Batch | None:
    """Replace batches by one, unless one of them, with these ordinals, is replaced meanwhile; return it."""
    merged = _merged(storage, batches, run_id)
    return merged if ledger.commit_merged(merged, ordinals) else None


def _merged(storage: Storage, batches: list[Batch], run_id: str) -> Batch:
    """Write a batch with the rows of others."""
    names = tuple(sorted(batch.name for batch in batches))
    folder = "/".join(batches[0].files[0].path.split("/")[1:-1])
    name = xxhash.xxh3_128_hexdigest("\0".join(("compact", *names)).encode())
    order = _order(storage, batches)
    with BatchWriter(
        storage, folder, name, run_id=run_id, compression_level=COMPRESSION_LEVEL, sorted_by=SORTED_BY,
        bloom_filters=dict.fromkeys(_large_tables(batches), sum(len(batch.dumps) for batch in batches)),
    ) as writer:  # fmt: skip
        for table in schema.WAREHOUSE:
            files = [file for batch in batches for file in batch.table_files(table)]
            for rows in _sorted_rows(storage, table, files, order):
                writer.add(table, rows)
            writer.flush(table)
        written = tuple(writer.close())
    size = sum(batch.merged_bytes or sum(file.bytes for file in batch.files) for batch in batches)
    return replace(
        batches[0],
        name=name,
        dumps=(),
        merges=names,
        quarantined=tuple(i for batch in batches for i in batch.quarantined),
        files=written,
        run_id=run_id,
        attempts={i: n for batch in batches for i, n in batch.attempts.items()},
        system=tuple(i for batch in batches for i in batch.system),
        places={i: place for batch in batches for i, place in batch.places.items()},
        hosts={i: host for batch in batches for i, host in batch.hosts.items()},
        labels={},
        run_labels={run: labels for batch in batches for run, labels in _run_labels(batch)},
        runs=tuple(run for batch in batches for run in batch.runs),
        merged_bytes=size,
    )


def _large_tables(batches: list[Batch]) -> list[str]:
    """Return the tables of dumps that will have several row groups."""
    sizes: Counter[str] = Counter()
    for batch in batches:
        for file in batch.files:
            sizes[file.table] += file.bytes
    return [name for name, size in sizes.items() if size > BLOOM_FILTER_BYTES and name not in schema.RUN_TABLES]


def _run_labels(batch: Batch) -> list[tuple[str, dict[str, str]]]:
    if not batch.labels and not batch.table_files("occurrences"):
        return [*batch.run_labels.items()]
    return [*batch.run_labels.items()] or [(batch.run_id, batch.labels)]


def _order(storage: Storage, batches: list[Batch]) -> pa.Array:
    """Return the content_ids of the dumps in the order in which they are stored."""
    files = [file for batch in batches for file in batch.table_files("modules")]
    ids = pa.array([i for batch in batches for i in batch.dumps], pa.string())
    rows = pa.concat_tables([_read(storage, "modules", file).select(ORDER) for file in files]) if files else None
    if rows is None or rows.num_rows != len(ids):
        return ids.sort()
    plain = pa.table([column.cast(pa.string()) for column in rows.columns], names=ORDER)
    return plain.sort_by([(name, "ascending") for name in ORDER])["content_id"].combine_chunks()


def _sorted_rows(storage: Storage, table: str, files: Sequence[File], order: pa.Array) -> Iterator[pa.Table]:
    """Yield the rows of files, sorted: those of dumps by `order`, others by their columns."""
    if not files:
        return
    if table in schema.RUN_TABLES:
        rows = pa.concat_tables([_read(storage, table, file) for file in files]).unify_dictionaries()
        names = [name for name in ("content_id", "uri", "offset", "run_id", "key") if name in rows.column_names]
        plain = pa.table([rows[name].cast(schema.WAREHOUSE[table].warehouse.field(name).type) for name in names], names)
        yield rows.take(pc.sort_indices(plain, sort_keys=[(name, "ascending") for name in names]))
        return
    n_slices = 1 + sum(_encoded_bytes(storage, file) for file in files) // SLICE_BYTES
    for i in range(n_slices):
        first, last = (len(order) * k // n_slices for k in (i, i + 1))
        wanted = order.slice(first, last - first)
        parts = [part for file in files if (part := _select(_read_groups(storage, table, file), wanted)) is not None]
        if parts:
            rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
            yield rows.take(pa.array(np.argsort(_ranks(rows, wanted), kind="stable")))


def _select(groups: Iterator[pa.Table], wanted: pa.Array) -> pa.Table | None:
    """Return the rows of some dumps."""
    parts = [rows.filter(pa.array(_ranks(rows, wanted) >= 0)) for rows in groups]
    return pa.concat_tables(parts) if parts else None


def _ranks(rows: pa.Table, order: pa.Array) -> Ints:
    """Return the position of the dump of each row in `order`, or -1."""
    ids = rows["content_id"].combine_chunks()
    ids = ids if pa.types.is_dictionary(ids.type) else ids.dictionary_encode()
    ranks = pc.fill_null(pc.index_in(ids.dictionary.cast(pa.string()), order), -1).to_numpy()
    found: Ints = ranks.astype(np.int64)[ids.indices.to_numpy()] if len(ranks) else np.empty(0, np.int64)
    return found


# -- reading


def _read(storage: Storage, table: str, file: File) -> pa.Table:
    return pa.concat_tables([*_read_groups(storage, table, file)])


def _read_groups(storage: Storage, table: str, file: File) -> Iterator[pa.Table]:
    """Yield the rows of a file with the columns of this version, one row group at a time."""
    spec = schema.WAREHOUSE[table].arrow
    encoded = [field.name for field in spec if pa.types.is_dictionary(field.type)]
    for rows in storage.row_groups(file.path, read_dictionary=encoded):
        yield with_current_columns(rows, spec)


def _encoded_bytes(storage: Storage, file: File) -> int:
    with storage.open_parquet(file.path) as parquet:
        return sum(parquet.metadata.row_group(i).total_byte_size for i in range(parquet.num_row_groups))
