"""Dumps whose files are as an earlier run read them: their content_ids are known without reading them again.

A file is unchanged if its size, times and inode are the same or, on an object store, its ETag. What a run reads is
recorded in one file below `_ledger/known`, with a checksum. It only saves work: without it, all contents are read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from struct import Struct

import numpy as np
import xxhash

from .. import kernels as pc
from ..compute.columns import arrow_array
from ..input.access import URI
from ..input.find import Source
from ..input.names import FLAG_EXTENSIONS
from ..parse.arrays import Ints
from .etags import ETags
from .storage import Storage
from .task import DumpInput

FOLDER = "_ledger/known"
MAX_FILES, MAX_BYTES = 16, 16 << 20
"""When there are more files, they are merged. When they are larger, only what this run found is kept."""
RESOLUTION_NS = 2_000_000_000
"""Coarsest resolution of modification times (FAT). A file could have changed again within it, unnoticed."""

_RECORD = Struct("<16s16s16sq")
"""Key, content_id, content_hash and size of a dump."""


class KnownDumps:
    """The dumps that earlier runs with the same version have read, and those that this run adds."""

    def __init__(self, storage: Storage, version: str, run_id: str) -> None:
        self.storage, self.version, self.name = storage, version, f"{FOLDER}/{run_id}"
        self._etags = ETags()
        self._began = time.time_ns()
        self._keys: list[bytes | None] = []
        self._files: dict[str, bytes] = {}
        """The records in each file."""
        self._used: dict[bytes, bytes] = {}
        """The records of what this run found, by key."""
        self._new: dict[bytes, bytes] = {}

    def look_up(self, sources: Sequence[Source], *, check: bool = False) -> list[DumpInput | None]:
        """Return each dump that is known, and None for the others; with `check`, None for all."""
        self._keys = [self._key(source) for source in sources]
        self._files = {name: self._records(name) for name, _ in self.storage.files(FOLDER, recursive=False)}
        wanted = np.frombuffer(b"".join(key[:8] for key in self._keys if key), np.int64)
        for records in self._files.values():
            self._used.update(_matching(records, wanted))
        if check:
            return [None] * len(sources)
        return [self._dump(source, key) for source, key in zip(sources, self._keys, strict=True)]

    def _dump(self, source: Source, key: bytes | None) -> DumpInput | None:
        if key is None or (record := self._used.get(key)) is None:
            return None
        _, identity, content, size = _RECORD.unpack(record)
        return DumpInput(identity.hex(), source, size, content.hex())

    def _records(self, name: str) -> bytes:
        """Return the records of a file, none if it is gone or damaged."""
        data = self.storage.read(name) or b""
        digest, records = data[:16], data[16:]
        return records if xxhash.xxh3_128_digest(records) == digest and not len(records) % _RECORD.size else b""

    # -- the state of files

    def _key(self, source: Source) -> bytes | None:
        """Return a hash of a dump's name and of the state of its files; None if it has to be read."""
        parts = [self.version, source.name]
        uri = state = None
        for member in source.members:
            if member.role in FLAG_EXTENSIONS:  # as in `Source.content`
                continue
            if member.content is not None or member.fault is not None:
                return None
            if member.uri != uri:  # the members of an archive share its file
                uri, state = member.uri, self._state(member.uri)
            if state is None:
                return None
            parts += member.role, uri, state
            if member.begin or member.end is not None or member.inner_name or member.entry or member.form != "plain":
                entry = member.entry.name if member.entry else ""
                parts += member.form, entry, member.inner_name, f"{member.begin} {member.end}"
        return xxhash.xxh3_128_digest("\0".join(parts).encode("utf-8", "surrogateescape"))

    def _state(self, uri: str) -> str | None:
        if "://" in uri and URI.match(uri):
            return self._etags.find(uri)
        try:
            status = os.stat(uri)
        except OSError:
            return None
        if status.st_mtime_ns > self._began - RESOLUTION_NS:
            return None
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"

    # -- recording

    def add(self, number: int, dump: DumpInput) -> None:
        """Record what was read from a source, given its number in `look_up`."""
        if (key := self._keys[number]) is not None:
            record = _RECORD.pack(key, bytes.fromhex(dump.content_id), bytes.fromhex(dump.content_hash), dump.bytes)
            if self._used.get(key) != record:
                self._new[key] = record

    def save(self) -> None:
        """Write the new records, if there are any."""
        if not self._new:
            return
        merged, size = b"", sum(map(len, self._files.values()))
        is_full = len(self._files) >= MAX_FILES or size > MAX_BYTES
        if is_full:
            merged = b"".join(self._used.values() if size > MAX_BYTES else self._files.values())
        records = merged + b"".join(self._new.values())
        self.storage.write(self.name, xxhash.xxh3_128_digest(records) + records)
        self.storage.delete(self._files if is_full else ())


def _matching(records: bytes, wanted: Ints) -> dict[bytes, bytes]:
    """Return the records by key, at least those whose keys begin with one of these numbers."""
    begins = np.frombuffer(records, np.int64)[:: _RECORD.size // 8]
    is_wanted = pc.is_in(arrow_array(begins), arrow_array(wanted)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(is_wanted) * _RECORD.size
    return {records[row : row + 16]: records[row : row + _RECORD.size] for row in rows.tolist()}
