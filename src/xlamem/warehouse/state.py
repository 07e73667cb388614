"""The contents of a dataset, as of a ledger entry."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import arrow_array
from .batch import Batch, File, Lazy
from .segments import ID_BYTES, Ids, Segment, to_ids, to_texts

ORDINALS_PER_ENTRY = 1 << 16
"""The batches that an entry adds are numbered from this multiple of its number."""

FILES = pa.schema(
    {
        "batch": pa.int64(), "table": pa.dictionary(pa.int32(), pa.string()), "path": pa.string(), "rows": pa.int64(),
        "bytes": pa.int64(), "columns": pa.int64(),
    }
)  # fmt: skip
"""The files in a checkpoint, sorted by the ordinals of their batches."""

_PREFIX = re.compile("[0-9a-f]{0,32}")


@dataclass
class Members:
    """Which batch, by ordinal, has which ids and files. Those of a checkpoint are read when they are needed."""

    segments: tuple[Segment, ...] = ()
    read_files: Any = FILES.empty_table
    """Returns the files as a table."""

    @cached_property
    def files(self) -> pa.Table:
        """The files in the checkpoint."""
        table: pa.Table = self.read_files()
        return table

    @cached_property
    def file_batches(self) -> npt.NDArray[np.int64]:
        """The ordinals of the batches of the files in the checkpoint, sorted."""
        ordinals: npt.NDArray[np.int64] = self.files["batch"].to_numpy()
        return ordinals

    def files_of(self, ordinal: int) -> list[File]:
        first, last = np.searchsorted(self.file_batches, [ordinal, ordinal + 1]).tolist()
        return to_files(self.files.slice(first, last - first))

    @cached_property
    def ids(self) -> tuple[Ids, npt.NDArray[np.int64]]:
        """All ids in the checkpoint, sorted by the ordinals of their batches."""
        parts = [segment.read() for segment in self.segments]
        ids = np.concatenate([np.empty(0, f"S{ID_BYTES}"), *(ids for ids, _ in parts)])
        batches = np.concatenate([np.empty(0, np.int64), *(batches for _, batches in parts)])
        order = np.argsort(batches, kind="stable")
        return ids[order], batches[order]

    def ids_of(self, ordinal: int) -> list[str]:
        ids, batches = self.ids
        return sorted(to_texts(ids[slice(*np.searchsorted(batches, [ordinal, ordinal + 1]))]))


def to_files(table: pa.Table) -> list[File]:
    """Return files from rows of a table."""
    columns = (table[name].to_pylist() for name in FILES.names[1:])
    return [File(*row) for row in zip(*columns, strict=True)]


class Stored(Mapping[str, str]):
    """The batch of each stored content_id. Looking up many ids at once, with `find`, reads a checkpoint only once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.added: dict[str, int] = {}
        """The ordinals of the batches of ids that were added since the checkpoint."""
        self._read: dict[str, list[int]] = {}
        """The same of ids that were looked up in the checkpoint; none if it does not contain them."""

    def find(self, content_ids: Iterable[str]) -> dict[str, str]:
        """Return the batch of each of these ids that is stored."""
        ids = content_ids if isinstance(content_ids, Collection) else tuple(content_ids)
        self._look_up(i for i in ids if i not in self._read)
        return {i: name for i in ids if (name := self._batch_of(i)) is not None}

    def _look_up(self, content_ids: Iterable[str]) -> None:
        segments = self._state.members.segments
        ids = {i for i in content_ids if len(i) == 2 * ID_BYTES and _PREFIX.fullmatch(i)} if segments else ()
        if not ids:
            return
        self._read.update((i, []) for i in ids)
        wanted = np.sort(to_ids(ids))
        for segment in segments:
            found, batches = segment.find(wanted)
            for content_id, ordinal in zip(to_texts(found), batches.tolist(), strict=True):
                self._read[content_id].append(ordinal)

    def _batch_of(self, content_id: str) -> str | None:
        # Batches that were removed have no name; the checkpoint may list a content_id in some of them too.
        for ordinal in (self.added.get(content_id, -1), *self._read.get(content_id, ())):
            if (name := self._state.names.get(ordinal)) is not None:
                return name
        return None

    def __getitem__(self, content_id: str) -> str:
        return self.find((content_id,))[content_id]

    def __contains__(self, content_id: object) -> bool:
        return bool(self.find((str(content_id),)))

    def __len__(self) -> int:
        return sum(len(batch.dumps) for batch in self._state.batches.values() if not batch.is_old)

    def __iter__(self) -> Iterator[str]:
        names = self._state.names
        yield from (content_id for content_id, ordinal in self.added.items() if ordinal in names)
        for segment in self._state.members.segments:
            ids, batches = segment.read()
            yield from to_texts(ids[np.isin(batches, self._state.ordinals)])

    def starting_with(self, prefix: str) -> list[str]:
        """Return the ids that begin with a prefix, sorted."""
        found = [content_id for content_id in self.added if content_id.startswith(prefix)]
        if _PREFIX.fullmatch(prefix):
            found += [i for segment in self._state.members.segments for i in to_texts(segment.starting_with(prefix))]
        return sorted(self.find(set(found)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self.find(tuple(self)) == dict(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class State:
    """The contents of the dataset after entry `number`.

    The `dumps` and `files` of batches in a checkpoint are read when they are needed, and so is `stored`.
    """

    number: int = 0
    batches: dict[str, Batch] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    """The batch of each quarantined content_id."""
    runs: dict[str, str] = field(default_factory=dict)
    """The batch with the row of each run."""
    hidden: set[str] = field(default_factory=set)
    """The dump_ids of version 1 that are stored or quarantined again by their content_id, or no longer fail."""
    members: Members = field(default_factory=Members, compare=False)
    names: dict[int, str] = field(default_factory=dict, compare=False)
    """The batch of each ordinal. A batch that is removed and added again, with other dumps, has a new one."""

    def __post_init__(self) -> None:
        self._ordinals: dict[str, int] = {}
        self._first_added = sys.maxsize
        """The least ordinal in `stored.added`."""
        self._merged: dict[str, tuple[int, ...]] = {}
        """The ordinals of the batches whose dumps a batch has taken over."""
        self.stored = Stored(self)
        """The batch of each stored content_id."""

    @property
    def ordinals(self) -> npt.NDArray[np.int64]:
        """The ordinals of all batches, and of those whose dumps they have taken over."""
        return np.fromiter(self.names, np.int64, len(self.names))

    def add(self, batch: Batch, ordinal: int) -> None:
        """Add a batch. Its ordinal must not have been used before."""
        self.batches[batch.name] = batch
        self.names[ordinal] = batch.name
        self._ordinals[batch.name] = ordinal
        if batch.is_old:
            return
        self.runs.update(dict.fromkeys(batch.runs, batch.name))
        self.quarantined.update(dict.fromkeys(batch.quarantined, batch.name))
        if not isinstance(batch.dumps, Lazy):
            self.stored.added.update(dict.fromkeys(batch.dumps, ordinal))
            self._first_added = min(self._first_added, ordinal)

    def ordinal(self, name: str) -> int:
        """Return the ordinal of a batch, or -1."""
        return self._ordinals.get(name, -1)

    def merge(self, batch: Batch, ordinal: int) -> None:
        """Add a batch that replaces others, and takes over their dumps."""
        ordinals = tuple(o for name in batch.merges for o in (self._ordinals[name], *self._merged.get(name, ())))
        n_dumps = sum(len(self.batches[name].dumps) for name in batch.merges)
        for name in batch.merges:
            self.remove(name)
        dumps = Lazy(n_dumps, lambda: self._ids_of(ordinals))
        self.add(replace(batch, merges=(), dumps=dumps), ordinal)
        self._take_over(batch.name, ordinals)

    def _take_over(self, name: str, ordinals: tuple[int, ...]) -> None:
        self._merged[name] = ordinals
        self.names.update(dict.fromkeys(ordinals, name))

    def _ids_of(self, ordinals: Collection[int]) -> list[str]:
        is_wanted = {ordinal for ordinal in ordinals if ordinal >= self._first_added}
        added = [i for i, ordinal in self.stored.added.items() if ordinal in is_wanted] if is_wanted else []
        return sorted([*added, *(i for ordinal in ordinals for i in self.members.ids_of(ordinal))])

    def add_stored(self, data: Mapping[str, Any]) -> None:
        """Add a batch of a checkpoint."""
        ordinal = data["ordinal"]
        if "dumps" in data:
            return self.add(Batch.from_json(data), ordinal)
        merged = tuple(data.get("merged", ()))
        dumps = Lazy(data["n_dumps"], lambda: self._ids_of((ordinal, *merged)))
        files = Lazy(data["n_files"], lambda: self.members.files_of(ordinal))
        self.add(Batch.from_json({**data, "dumps": dumps, "files": files}), ordinal)
        self._take_over(data["name"], merged)

    def stored_batches(self) -> Iterator[dict[str, Any]]:
        """Yield all batches as `add_stored` takes them. Those of version 1 are complete, since their ids differ."""
        for name, batch in self.batches.items():
            ordinals = {"ordinal": self._ordinals[name], "merged": self._merged.get(name, ())}
            if batch.is_old:
                yield {**batch.to_json(), **ordinals}
            else:
                fields = {key: value for key, value in vars(batch).items() if key not in ("dumps", "files")}
                yield {**fields, **ordinals, "n_dumps": len(batch.dumps), "n_files": len(batch.files)}

    def attempts(self, content_id: str) -> int:
        """Return how many runs failed to read a dump; 0 if it is not quarantined."""
        batch = self.quarantine_batch(content_id)
        return batch.attempts.get(content_id, 1) if batch else 0

    def quarantine_batch(self, content_id: str) -> Batch | None:
        """Return the batch that a quarantined dump belongs to, or None."""
        name = self.quarantined.get(content_id)
        return None if name is None else self.batches[name]

    def remove(self, name: str) -> None:
        batch = self.batches.pop(name)
        for ordinal in (self._ordinals.pop(name), *self._merged.pop(name, ())):
            del self.names[ordinal]
        for ids, batch_of in ((batch.quarantined, self.quarantined), (batch.runs, self.runs)):
            for key in ids:
                if batch_of.get(key) == name:
                    del batch_of[key]
        if batch.is_old and not self.old_batches:
            self.hidden.clear()

    @property
    def old_batches(self) -> list[Batch]:
        """The batches that version 1 wrote."""
        return [batch for batch in self.batches.values() if batch.is_old]

    @property
    def old_ids(self) -> set[str]:
        """The dump_ids that version 1 stored or quarantined."""
        return {i for batch in self.old_batches for i in (*batch.dumps, *batch.quarantined)}

    def occurrences(self, labels: Mapping[str, str]) -> list[Batch]:
        """Return the batches with occurrences that have exactly these labels."""
        return [batch for batch in self.batches.values() if batch.has_labels(labels)]

    # -- files

    def files_table(self, table: str | None = None) -> pa.Table:
        """Return the committed files of one table, or of all tables, as a table with the columns in FILES."""
        files = self.members.files
        ordinals = pa.array(self._ordinals.values(), pa.int64())
        is_selected = pc.is_in(arrow_array(self.members.file_batches), ordinals)
        if table is not None:
            is_selected = pc.and_(is_selected, pc.equal(files["table"].combine_chunks(), table))
        files = pc.filter(files, is_selected)
        added = [
            (self._ordinals[batch.name], *vars(file).values())
            for batch in self.batches.values()
            if not isinstance(batch.files, Lazy)
            for file in batch.files
            if table in (None, file.table)
        ]
        rows = pa.Table.from_pylist([dict(zip(FILES.names, row, strict=True)) for row in added], FILES)
        return pa.concat_tables([files, rows]).unify_dictionaries()

    def files(self, table: str | None = None) -> list[File]:
        """Return the committed files of one table, or of all tables, sorted by path."""
        return sorted(to_files(self.files_table(table)), key=lambda f: f.path)
