"""The rows of `occurrences`: where a run found which dump, once for each place and set of labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .. import schema
from ..errors import utf8
from ..input.filesystems import URI
from .ledger import State
from .offsets import with_columns
from .old import OldDumps
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
    order = occurrences.sort_by([(name, "ascending") for name in (*KEY, "seen_at", "run_id")])
    keys = keys_of(order)
    first = pa.array(range(len(keys)), pa.int64())
    groups = pa.table({"key": keys, "row": first}).group_by("key", use_threads=False).aggregate([("row", "min")])
    return order.take(groups["row_min"].sort())


def keys_of(occurrences: pa.Table) -> pa.Array:
    """Return the key of each occurrence as text."""
    uri, offset = pc.fill_null(occurrences["uri"], ""), pc.fill_null(occurrences["offset"], 0).cast(pa.string())
    host = pc.if_else(pc.match_substring_regex(uri, f"^{URI.pattern}"), "", pc.fill_null(occurrences["host"], ""))
    key = pc.binary_join_element_wise(occurrences["content_id"], uri, offset, host, "\0")
    return key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key


def are_recorded(storage: Storage, state: State, found: pa.Table, labels: Mapping[str, str]) -> pa.Array:
    """Return which of these occurrences are recorded with the same labels. Read one file at a time."""
    import pyarrow.parquet as pq

    keys = keys_of(found)
    recorded = pa.repeat(pa.scalar(False), len(keys))
    for batch in state.occurrences(labels):
        for file in batch.table_files("occurrences"):
            path = storage.path(file.path)
            table = pq.read_table(path, columns=list(KEY), filesystem=storage.system, partitioning=None)
            recorded = pc.or_(recorded, pc.is_in(keys, keys_of(table)))
    return recorded


def are_recorded_by_version_1(storage: Storage, state: State, found: pa.Table, labels: Mapping[str, str]) -> pa.Array:
    """Return which of these occurrences version 1 recorded with the same labels. It did not store offsets."""
    if not state.old_batches:
        return pa.repeat(pa.scalar(False), len(found))
    without_offset = with_columns(found, offset=pa.nulls(len(found), pa.int64()))
    return pc.is_in(keys_of(without_offset), keys_of(OldDumps(storage, state).occurrences_with(labels)))
