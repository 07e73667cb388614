"""The content_ids of a checkpoint: Parquet files sorted by id, of which only the row groups that matter are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import DumpError
from .storage import Storage

if TYPE_CHECKING:
    from ..parse.arrays import Ints

ID_BYTES = 16
ROW_GROUP_ROWS = 1 << 16
MAX_MERGED_ROWS = 1 << 20
"""Segments with more rows are not merged with others, so that a merge takes bounded time and memory."""

Ids = npt.NDArray[np.bytes_]
"""content_ids as 16 bytes each."""


@dataclass(frozen=True)
class Segment:
    """A file with the content_ids of some batches, each with the ordinal of its batch."""

    storage: Storage
    name: str
    bytes: int
    rows: int

    def find(self, wanted: Ids) -> tuple[Ids, Ints]:
        """Return those of the ids (sorted) that it contains, with the ordinals of their batches."""
        found: list[tuple[Ids, Ints]] = [_empty()]
        with self._open() as parquet:
            for i in range(parquet.num_row_groups):
                statistics = parquet.metadata.row_group(i).column(0).statistics
                limits = np.array([statistics.min, statistics.max], f"S{ID_BYTES}")
                first, last = np.searchsorted(wanted, limits[:1])[0], np.searchsorted(wanted, limits[1:], "right")[0]
                if first < last:
                    ids, batches = _columns(parquet.read_row_group(i))
                    rows = np.searchsorted(ids, wanted[first:last])
                    rows = rows[ids[rows] == wanted[first:last]]
                    found.append((ids[rows], batches[rows]))
        return _joined(found)

    def starting_with(self, prefix: str) -> Ids:
        """Return the ids that begin with some hexadecimal digits."""
        limits = to_ids(prefix.ljust(2 * ID_BYTES, digit) for digit in "0f")
        found = [_empty()[0]]
        with self._open() as parquet:
            for i in range(parquet.num_row_groups):
                statistics = parquet.metadata.row_group(i).column(0).statistics
                if statistics.max >= limits[0] and statistics.min <= limits[1]:
                    ids = _columns(parquet.read_row_group(i))[0]
                    found.append(ids[np.searchsorted(ids, limits[0]) : np.searchsorted(ids, limits[1], "right")])
        return np.concatenate(found)

    def read(self) -> tuple[Ids, Ints]:
        """Return all ids, with the ordinals of their batches."""
        with self._open() as parquet:
            groups = (parquet.read_row_group(i) for i in range(parquet.num_row_groups))
            return _joined([_empty(), *map(_columns, groups)])

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        path = self.storage.path(self.name)
        try:
            with pq.ParquetFile(path, filesystem=self.storage.system, page_checksum_verification=True) as parquet:
                yield parquet
        except (OSError, pa.ArrowException) as error:
            wanted = f"a readable checkpoint; open the dataset again ({str(error).partition(chr(10))[0]})"
            raise DumpError(self.storage.uri_of(self.name), wanted) from error


def write_segment(storage: Storage, name: str, ids: Ids, batches: Ints) -> Segment:
    """Write a segment. The ids need not be sorted."""
    high, low = ids.view(">u8").reshape(-1, 2).T
    order = np.lexsort((low, high))
    table = pa.table(
        {
            "id": pa.Array.from_buffers(pa.binary(ID_BYTES), len(ids), [None, pa.py_buffer(ids[order].tobytes())]),
            "batch": pa.array(batches[order], pa.int64()),
        }
    )
    compression = {"id": "none", "batch": "zstd"}  # hashes cannot be compressed
    data = to_parquet(table, row_group_size=ROW_GROUP_ROWS, use_dictionary=["batch"], compression=compression)
    storage.write(name, data)
    storage.sync([name])
    return Segment(storage, name, len(data), len(ids))


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    import pyarrow.parquet as pq

    sink = BytesIO()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    return sink.getvalue()


def to_ids(texts: Iterable[str]) -> Ids:
    """Convert content_ids. Raises ValueError if they are not 32 hexadecimal digits."""
    data = bytes.fromhex("".join(texts))
    return np.frombuffer(data, f"S{ID_BYTES}")


def to_texts(ids: Ids) -> list[str]:
    """Return content_ids as text."""
    text = ids.tobytes().hex()
    return [text[i : i + 2 * ID_BYTES] for i in range(0, len(text), 2 * ID_BYTES)]


def _columns(table: pa.Table) -> tuple[Ids, Ints]:
    ids = table["id"].combine_chunks()
    data = np.frombuffer(ids.buffers()[1], f"S{ID_BYTES}", len(ids), ids.offset * ID_BYTES)
    return data, table["batch"].to_numpy()


def _empty() -> tuple[Ids, Ints]:
    return np.empty(0, f"S{ID_BYTES}"), np.empty(0, np.int64)


def _joined(parts: list[tuple[Ids, Ints]]) -> tuple[Ids, Ints]:
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([batches for _, batches in parts])
