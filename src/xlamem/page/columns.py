"""Encode columns of integers and texts for JSON, compactly, and decode them.

Integers are zigzag-encoded (0, -1, 1, -2, … become 0, 1, 2, 3, …), as they are or as differences of consecutive ones.
Their bytes are then arranged in planes: the lowest bytes of all integers, then the next bytes, and so on. The planes
compress better than the integers. Texts are a JSON array. Both are compressed with zlib and encoded in base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UsageError
from ..parse.threads import Task, ThreadPool

Ints = npt.NDArray[np.int64]

LIMIT = 1 << 53
"""Integers are below this in magnitude, because JavaScript's numbers are exact only up to there."""
LEVEL = 6
"""zlib level. Higher ones take much longer and save less than 1 %."""
SAMPLE, N_SAMPLES = 1 << 14, 4
"""Rows and number of the samples of a column on which delta encoding is tried."""
OVERHEAD = 80
"""Bytes of a column as JSON besides its data."""
N_THREADS = 2
"""Threads that compute and encode."""


def encoded_ints(values: npt.NDArray[np.integer[Any]]) -> dict[str, Any]:
    """Return a column of integers as JSON. Raises UsageError for integers of 2^53 or more in magnitude."""
    column = np.ascontiguousarray(values, np.int64)
    if len(column) and not -LIMIT < int(column.min()) <= int(column.max()) < LIMIT:
        raise UsageError("a report cannot contain numbers of 2^53 or more")
    delta = _is_smaller_as_delta(column)
    planes = _planes(_differences(column) if delta else column)
    width = max(1, len(planes))
    return {"type": "int", "length": len(column), "width": width, "delta": delta, "data": _packed(planes.tobytes())}


def encoded_texts(texts: pa.Array) -> dict[str, Any]:
    """Return a column of texts as JSON; null becomes the empty text."""
    return {"type": "text", "length": len(texts), "data": _packed(_as_json(texts))}


def decoded_ints(column: Mapping[str, Any]) -> Ints:
    """Return the integers of a column that `encoded_ints` returned."""
    n, width = column["length"], column["width"]
    planes = np.frombuffer(zlib.decompress(base64.b64decode(column["data"])), np.uint8).reshape(width, n)
    raw = np.zeros((n, 8), np.uint8)
    raw[:, :width] = planes.T
    zigzag = raw.ravel().view("<u8")
    values = (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)
    return np.cumsum(values) if column["delta"] else values


def decoded_texts(column: Mapping[str, Any]) -> list[str]:
    """Return the texts of a column that `encoded_texts` returned."""
    texts: list[str] = json.loads(zlib.decompress(base64.b64decode(column["data"])))
    return texts


class Encoder:
    """Encodes columns on two threads, each column once."""

    def __init__(self) -> None:
        self._pool = ThreadPool(N_THREADS)
        self._tasks: dict[int, tuple[Any, Task[dict[str, Any]]]] = {}
        """By id of the column, with the column, which keeps its id."""

    def start(self, columns: Iterable[Any]) -> None:
        """Begin to encode these columns."""
        for column in columns:
            if id(column) not in self._tasks:
                encode = encoded_texts if isinstance(column, pa.Array) else encoded_ints
                self._tasks[id(column)] = column, self._pool.submit(partial(encode, column))

    def __call__(self, column: Any) -> dict[str, Any]:
        """Return a column as JSON."""
        self.start([column])
        return self._tasks[id(column)][1].result()

    def size(self, column: Any) -> int:
        """Return about how many bytes a column takes as JSON."""
        return OVERHEAD + len(self(column)["data"])


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, LEVEL)).decode("ascii")


def _as_json(texts: pa.Array) -> bytes:
    listed = texts.cast(pa.string()).fill_null("").to_pylist()
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _differences(values: Ints) -> Ints:
    return np.diff(values, prepend=0)


def _planes(values: Ints) -> npt.NDArray[np.uint8]:
    """Return the planes of zigzag-encoded integers, lowest bytes first, as an array (planes, integers)."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = max(1, (int(zigzag.max(initial=0)).bit_length() + 7) // 8)
    octets = zigzag.astype("<u8", copy=False).view(np.uint8).reshape(len(values), 8)
    return np.ascontiguousarray(octets[:, :width].T)


def _is_smaller_as_delta(values: Ints) -> bool:
    """Return whether differences compress better, according to samples."""
    if len(values) < 2:
        return False
    differences = _differences(values)
    if int(np.abs(differences).max()) >= LIMIT:
        return False
    size = [
        sum(len(zlib.compress(_planes(part).tobytes(), 1)) for part in _samples(column))
        for column in (values, differences)
    ]
    return size[1] < size[0]


def _samples(values: Ints) -> list[Ints]:
    """Return parts of a column at equal distances, or all of a short one."""
    if len(values) <= N_SAMPLES * SAMPLE:
        return [values]
    starts = np.linspace(0, len(values) - SAMPLE, N_SAMPLES).astype(int).tolist()
    return [values[start : start + SAMPLE] for start in starts]
