"""The rows of `occurrences`: where a run found which dump, once for each place and set of labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from .. import kernels as pc
from .. import schema
from ..compute.columns import arrow_array
from ..errors import utf8
from ..input.access import URI
from .batch import Batch, File
from .offsets import with_columns
from .old import OldDumps
from .parquet import BatchWriter
from .state import State
from .storage import Storage
from .task import DumpInput, Options

KEY = ("content_id", "uri", "offset", "host")
"""An occurrence is recorded once for each of these and for the labels. The host counts only for paths."""


def occurrence_table(dumps: Iterable[DumpInput], options: Options) -> pa.Table:
    """Return the occurrences of dumps that a run has identified, sorted and without repetitions."""
    rows = [
        (
            dump.content_id, dump.source.members[0].location, dump.source.name,
            utf8(",".join(member.file_name for member in dump.source.members)), dump.source.members[0].begin,
            dump.source.module_id, dump.source.timestamp_us, options.run_id, options.host, options.started,
        )
        for dump in dumps
    ]  # fmt: skip
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [[] for _ in schema.OCCURRENCES.names]
    spec = schema.OCCURRENCES.warehouse
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, spec, strict=True)], schema=spec)
    return distinct(table)


def distinct(occurrences: pa.Table) -> pa.Table:
    """Sort occurrences that have the same labels, and keep the first of those with the same key."""
    order = pc.sort_by(occurrences, [(name, "ascending") for name in (*KEY, "seen_at", "run_id")])
    codes = pc.dictionary_encode(keys_of(order)).indices.to_numpy()
    is_first = np.diff(np.maximum.accumulate(codes), prepend=-1) > 0  # codes count the keys in the order of the rows
    return pc.filter(order, arrow_array(is_first))


def keys_of(occurrences: pa.Table) -> pa.Array:
    """Return the key of each occurrence as text."""
    uri = pc.fill_null(occurrences["uri"], "")
    offset = pc.fill_null(pc.cast(occurrences["offset"], pa.string()), "")
    host = pc.if_else(pc.match_substring_regex(uri, f"^{URI.pattern}"), "", pc.fill_null(occurrences["host"], ""))
    key = pc.binary_join_element_wise(occurrences["content_id"], uri, offset, host, "\0")
    return key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key


def row_keys(occurrences: pa.Table) -> pa.Array:
    """Return what identifies each row: its key and its run."""
    run = pc.cast(occurrences["run_id"], pa.string()).combine_chunks()
    return pc.binary_join_element_wise(keys_of(occurrences), run, "\0")


def new_occurrences(found: pa.Table, recorded: Iterable[pa.Table]) -> pa.Table:
    """Return the occurrences that none of the tables contains. Version 1 recorded no offsets: null matches any."""
    keys = keys_of(found), keys_of(with_columns(found, offset=pa.nulls(len(found), pa.int64())))
    is_new = pa.repeat(pa.scalar(True), len(found))
    for table in recorded:
        known = keys_of(table)
        for key in keys:
            is_new = pc.and_not(is_new, pc.is_in(key, known))
    return pc.filter(found, is_new)


def recorded_occurrences(storage: Storage, state: State, labels: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield the keys of the occurrences that are recorded with exactly these labels, one file at a time."""
    for batch in state.occurrences(labels):
        runs = pa.array([run for run, found in batch.run_labels.items() if found == labels], pa.string())
        for file in batch.table_files("occurrences"):
            with storage.open_parquet(file.path) as parquet:
                rows = parquet.read([*KEY, "run_id"])
            yield pc.filter(rows, pc.is_in(rows["run_id"], runs)) if batch.run_labels else rows


def occurrences_of_version_1(storage: Storage, state: State, labels: Mapping[str, str]) -> Iterator[pa.Table]:
    """Yield the occurrences that version 1 recorded with exactly these labels."""
    if state.old_batches:
        yield OldDumps(storage, state).occurrences_with(labels)


def read_occurrences(storage: Storage, files: Iterable[File]) -> pa.Table:
    """Return the rows of files of `occurrences`."""
    tables = []
    for file in files:
        with storage.open_parquet(file.path) as parquet:
            tables.append(parquet.read())
    return pa.concat_tables(tables)


def with_occurrences(storage: Storage, old: Batch, rows: pa.Table, run_id: str) -> Batch:
    """Write a batch that has these rows of the occurrences of another."""
    folder = "/".join(old.table_files("occurrences")[0].path.split("/")[1:-1])
    name = xxhash.xxh3_128_hexdigest("\n".join((old.name, *row_keys(rows).to_pylist())).encode())
    with BatchWriter(storage, folder, name, run_id=run_id) as writer:
        writer.add("occurrences", rows)
        files = writer.close()
    others = (file for file in old.files if file.table != "occurrences")
    return replace(old, name=name, files=(*others, *files))
