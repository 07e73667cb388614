"""Checkpoints of the ledger, which replace the entries before them.

A checkpoint, ``_ledger/checkpoints/<number>.json.z``, contains the batches without their dumps and files. These are in
Parquet files beside it. The files of the dataset are in one, which every checkpoint writes anew. The content_ids are in
segments, which are never changed: a checkpoint adds the ids of the entries since the last one, merges segments of
similar size, and refers to the others. An id is stored if it is in a segment with a batch that the checkpoint contains.
So a batch can be removed without reading a segment, and a segment is written again when most of it is of no use.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import arrow_array
from ..errors import DumpError
from .batch import leaves_dataset
from .rewrite import with_current_columns
from .segments import MAX_MERGED_ROWS, Ids, Segment, to_ids, to_parquet, write_segment
from .state import FILES, Members, State
from .storage import Storage

if TYPE_CHECKING:
    from ..parse.arrays import Ints

FOLDER = "_ledger/checkpoints"
ENTRIES = "_ledger/entries"
FOLD_SECONDS = 24 * 3600
"""Age of a checkpoint from which the entries before it are deleted. A converter that was suspended for less time
notices that its next entry exists."""
_NAME = re.compile(FOLDER + r"/(\d+)\.json\.z")


def entry_name(number: int) -> str:
    """Return the name of an entry."""
    return f"{ENTRIES}/{number:012}.json"


@dataclass
class Checkpoint:
    """A checkpoint that can be read."""

    name: str
    data: dict[str, Any]

    @property
    def number(self) -> int:
        """The last entry that it contains."""
        return int(self.data["number"])

    @property
    def files(self) -> dict[str, int]:
        """The names and sizes of its Parquet files."""
        if self.data.get("format", 2) < 3:
            return {}
        return {name: size for name, size, *_ in (*self.data["ids"], self.data["files"])}


class Checkpoints:
    """The checkpoints of a dataset."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    # -- reading

    def read(self) -> State:
        """Return the state of the newest checkpoint that can be read; an empty one if all entries are there.

        Raises DumpError if no checkpoint can be read, and entries were deleted.
        """
        for _ in range(2):  # a converter may have replaced the checkpoints meanwhile
            if checkpoint := next(self._readable(), None):
                return self._state(checkpoint)
            if not self._is_folded():
                return State()
        raise DumpError(self.storage.uri_of(FOLDER), "a readable checkpoint of the ledger")

    def _names(self) -> list[str]:
        """Return the names of the checkpoints, newest first."""
        return [name for name, _ in reversed(self.storage.files(FOLDER, recursive=False)) if _NAME.fullmatch(name)]

    def _readable(self) -> Iterator[Checkpoint]:
        """Yield the checkpoints that can be read, newest first."""
        yield from (checkpoint for name in self._names() if (checkpoint := self._load(name)))

    def _load(self, name: str) -> Checkpoint | None:
        """Return a checkpoint, None if it or one of its files is damaged or gone."""
        with suppress(zlib.error, ValueError, KeyError, TypeError):
            checkpoint = Checkpoint(name, json.loads(zlib.decompress(self.storage.read(name) or b"")))
            return checkpoint if checkpoint.number >= 0 and self._is_complete(checkpoint.files) else None
        return None

    def _is_complete(self, files: dict[str, int]) -> bool:
        infos = self.storage.system.get_file_info([self.storage.path(name) for name in files])
        return all(info.is_file and info.size == size for info, size in zip(infos, files.values(), strict=True))

    def _state(self, checkpoint: Checkpoint) -> State:
        data = checkpoint.data
        state = State(data["number"], hidden=set(data.get("hidden", ())))
        if checkpoint.files:
            segments = tuple(Segment(self.storage, *fields) for fields in data["ids"])
            state.members = Members(segments, lambda: self._read_files(data["files"][0]))
        for i, batch in enumerate(data["batches"]):
            state.add_stored({"ordinal": i, **batch})  # checkpoints of version 0.2 have no ordinals
        return state

    def _read_files(self, name: str) -> pa.Table:
        import pyarrow.parquet as pq

        try:
            data = self.storage.read(name)
            with pq.ParquetFile(BytesIO(data or b"")) as parquet:
                files = with_current_columns(parquet.read(), FILES)
        except (OSError, pa.ArrowException) as error:
            raise DumpError(self.storage.uri_of(name), "a readable checkpoint; open the dataset again") from error
        if any(map(leaves_dataset, files["path"].to_pylist())):
            raise DumpError(self.storage.uri_of(name), "paths of files within the dataset")
        return files

    def _is_folded(self) -> bool:
        """Return whether the first entry was deleted."""
        first = self.storage.read(entry_name(1))
        with self.storage.damage_errors(entry_name(1), "an entry of the ledger"):
            return first is not None and "folded" in json.loads(first)

    # -- writing

    def write(self, state: State) -> None:
        """Write a checkpoint of a state. It takes effect with its last file, which is created atomically."""
        prefix = f"{FOLDER}/{state.number:012}"
        segments = self._segments(state, prefix)
        files = _files(state)
        files_name = f"{prefix}-files-{secrets.token_hex(4)}.pq"
        content = to_parquet(files, compression="zstd")
        self.storage.write(files_name, content)
        self.storage.sync([files_name])
        data = {
            "format": 3, "number": state.number, "at": time.time(), "hidden": sorted(state.hidden),
            "batches": [*state.stored_batches()], "files": [files_name, len(content)],
            "ids": [[segment.name, segment.bytes, segment.rows] for segment in segments],
        }  # fmt: skip
        self.storage.create(f"{prefix}.json.z", zlib.compress(json.dumps(data).encode()))

    def _segments(self, state: State, prefix: str) -> list[Segment]:
        """Return the segments of a checkpoint, and write those that are new."""
        new = _added(state)
        kept, merged = _to_merge(state, len(new[0]))
        parts = [new, *(segment.read() for segment in merged)]
        ids, batches = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        is_used = np.isin(batches, state.ordinals)
        if not is_used.any():
            return kept
        name = f"{prefix}-ids-{secrets.token_hex(4)}.pq"
        return [*kept, write_segment(self.storage, name, ids[is_used], batches[is_used])]

    # -- deleting

    def delete_unused(self) -> None:
        """Delete what the two newest checkpoints replace. No other run may be active."""
        kept = [*islice(self._readable(), 2)]
        if len(kept) < 2:
            return
        used = {file for checkpoint in kept for file in (checkpoint.name, *checkpoint.files)}
        there = [name for name, _ in self.storage.files(FOLDER, recursive=False)]
        self.storage.delete(name for name in there if name not in used)
        if time.time() - kept[1].data.get("at", time.time()) > FOLD_SECONDS:
            self._fold(kept[1].number)

    def _fold(self, number: int) -> None:
        """Delete the entries up to a number. The first one remains, and says so: no version takes it for an entry."""
        names = [name for name, _ in self.storage.files(ENTRIES, recursive=False) if name <= entry_name(number)]
        if names[:1] == [entry_name(1)]:
            if not self._is_folded():
                self.storage.write(names[0], json.dumps({"format": 3, "number": 1, "folded": True}).encode())
            names = names[1:]
        self.storage.delete(names)


def _added(state: State) -> tuple[Ids, Ints]:
    """Return the ids that were added since the checkpoint, with the ordinals of their batches."""
    added = {content_id: ordinal for content_id, ordinal in state.stored.added.items() if ordinal in state.names}
    return to_ids(added), np.fromiter(added.values(), np.int64, len(added))


def _to_merge(state: State, n_added: int) -> tuple[list[Segment], list[Segment]]:
    """Return the segments that remain, and those that are merged with the ids that were added.

    Each segment is merged with a similar number of other ids, so that there are few, and each id is rarely written. If
    most ids belong to batches that were removed, all segments are merged.
    """
    kept, merged = [*state.members.segments], []
    if sum(segment.rows for segment in kept) > 2 * len(state.stored):
        return [], kept
    while kept and kept[-1].rows <= min(2 * n_added, MAX_MERGED_ROWS):
        merged.append(kept.pop())
        n_added += merged[-1].rows
    return kept, merged


def _files(state: State) -> pa.Table:
    """Return the files for a checkpoint, without those of version 1."""
    files = state.files_table()
    old = [ordinal for ordinal, name in state.names.items() if state.batches[name].is_old]
    kept = pc.filter(files, arrow_array(~np.isin(files["batch"].to_numpy(), old)))
    return pc.sort_by(kept, [("batch", "ascending")])
