"""Dumps to Parquet: one file per table and dump, ``DEST/<table>/<dump>.parquet``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .. import schema
from ..dump import Dump, read
from ..errors import DumpError, OutputError, UsageError
from ..source import Source, find

if TYPE_CHECKING:
    import numpy.typing as npt

Progress = Callable[[int, int, str], None]
"""Called with the number of dumps done, the number of all, and the name of the next one ("" at the end)."""

ROW_GROUP = 64 << 20
"""Most bytes of a row group before compression, except where one row alone has more."""

ID = pa.field("dump_id", pa.string())
"""The column that stands before those of the schema in every file."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Converted:
    """What `convert` made."""

    dumps: int
    """Dumps converted, cut ones included."""
    files: int
    bytes: int
    """Size of those files."""
    rows: int
    """Rows in them."""
    failed: list[tuple[str, Exception]]
    """Name and error of each dump that could not be read."""
    cut: list[str]
    """Names of the dumps that were converted as far as they go."""


def convert(
    *sources: str | os.PathLike[str] | Source,
    to: str | os.PathLike[str],
    tables: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Read each dump under ``sources`` and write its tables as Parquet files under ``to``.

    Every row begins with `dump_id`, which is also in the file's name: a hash of the place, the name and
    the content of the dump, so the same input gives the same files again. Where a table has no rows,
    its file has none either. A dump that cannot be read is named in the result and stops nothing.

    Parameters
    ----------
    sources
        Whatever `find` takes, or what it gave.
    to
        The directory to write to; it is made where it is missing.
    tables
        The tables to write; all by default. All are read in any case, so that every check is made.
    progress
        Called before each dump and once at the end.

    Raises
    ------
    UsageError
        No dump anywhere, or a table that there is not.
    OutputError
        A file cannot be written.
    """
    wanted = _tables(tables)
    found = _found(sources)
    place = os.fspath(to)
    with _writing(place):
        for name in wanted:
            os.makedirs(os.path.join(place, name), exist_ok=True)
    n_dumps = n_files = n_bytes = n_rows = 0
    failed: list[tuple[str, Exception]] = []
    cut: list[str] = []
    for i, source in enumerate(found):
        name = _label(source)
        if progress:
            progress(i, len(found), name)
        try:
            dump = read(source, hashes=True)
            dump.verify()  # reads all tables: from here on nothing fails because of the input
            complete = dump.complete
        except (DumpError, UsageError, OSError) as error:
            failed.append((name, error))
            continue
        files, size, rows = _write(dump, wanted, place)
        n_dumps, n_files, n_bytes, n_rows = n_dumps + 1, n_files + files, n_bytes + size, n_rows + rows
        if not complete:
            cut.append(name)
    if progress:
        progress(len(found), len(found), "")
    return Converted(n_dumps, n_files, n_bytes, n_rows, failed, cut)


def dump_id(dump: Dump) -> str:
    """Hash of where the dump lies, what it is called and what is in it (read with ``hashes=True``)."""
    import xxhash

    source = dump.source
    # Two modules of one stream differ in where they begin, if in nothing else.
    begins = ",".join(str(m.begin) for m in source.members)
    parts = (_absolute(source.place), source.name, begins, dump.modules["content_hash"][0].as_py() or "")
    return xxhash.xxh3_64_hexdigest("\0".join(parts).encode("utf-8", "surrogateescape"))


def _tables(tables: Iterable[str] | None) -> list[str]:
    wanted = set(schema.TABLES if tables is None else [tables] if isinstance(tables, str) else tables)
    if unknown := sorted(wanted - schema.TABLES.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; there are {', '.join(schema.TABLES)}")
    if not wanted:
        raise UsageError("no table to write")
    return [name for name in schema.TABLES if name in wanted]


def _found(sources: tuple[str | os.PathLike[str] | Source, ...]) -> list[Source]:
    if not sources:
        raise UsageError("nothing to convert")
    # One call for all paths: a dump that several of them reach is there once.
    paths = [s for s in sources if not isinstance(s, Source)]
    given = [s for s in sources if isinstance(s, Source)]
    return list(dict.fromkeys([*given, *(find(*paths) if paths else [])]))


def _label(source: Source) -> str:
    return source.name if source.place == "." else os.path.join(source.place, source.name)


def _absolute(place: str) -> str:
    return place if "://" in place else os.path.abspath(place)


# -- writing -------------------------------------------------------------------------------------


def _write(dump: Dump, wanted: list[str], place: str) -> tuple[int, int, int]:
    """All files of one dump, or none: number, bytes, rows."""
    identity = dump_id(dump)
    stem = _UNSAFE.sub("_", dump.name).lstrip(".-")[:150]
    finished = [os.path.join(place, name, f"{stem}-{identity}.parquet") for name in wanted]
    unfinished = [f"{path}.{os.getpid()}.tmp" for path in finished]
    try:
        with _writing(place):
            rows = sum(_table(dump, name, identity, path) for name, path in zip(wanted, unfinished, strict=True))
            size = sum(os.path.getsize(path) for path in unfinished)
            for temporary, path in zip(unfinished, finished, strict=True):
                os.replace(temporary, path)
    finally:
        for temporary in unfinished:
            with suppress(OSError):
                os.unlink(temporary)
    return len(finished), size, rows


def _table(dump: Dump, name: str, identity: str, path: str) -> int:
    """Write one table; gives its number of rows."""
    import pyarrow.parquet as pq

    table = dump[name]
    plain = schema.TABLES[name].warehouse
    with pq.ParquetWriter(
        path, plain.insert(0, ID), compression="zstd", compression_level=3, write_page_index=True
    ) as writer:
        for begin, end in _row_groups(table):
            # Names become plain text only here, a row group at a time: whole columns of them may be huge.
            piece = table.slice(begin, end - begin).cast(plain)
            ids = pa.repeat(pa.scalar(identity), end - begin)
            writer.write_table(piece.add_column(0, ID, ids), row_group_size=max(end - begin, 1))
    return int(table.num_rows)


def _row_groups(table: pa.Table) -> Iterator[tuple[int, int]]:
    """First and last row (exclusive) of each row group; one empty group for no rows at all."""
    ends = np.cumsum(_row_bytes(table))
    row = 0
    while row < table.num_rows or row == 0:
        done = int(ends[row - 1]) if row else 0
        stop = max(row + 1, int(np.searchsorted(ends, done + ROW_GROUP, "right")))
        yield row, min(stop, table.num_rows)
        row = stop


def _row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Bytes of each row before compression, names counted as the text that they stand for."""
    import pyarrow.compute as pc

    size = np.full(table.num_rows, 16, np.int64)
    for column in table.columns:
        if not (pa.types.is_dictionary(column.type) or pa.types.is_string(column.type)):
            size += 8
            continue
        row = 0
        for chunk in column.chunks:
            named = isinstance(chunk, pa.DictionaryArray)
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices) if named else pc.binary_length(chunk)
            size[row : row + len(chunk)] += lengths.fill_null(0).to_numpy(zero_copy_only=False)
            row += len(chunk)
    return size


@contextmanager
def _writing(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write to {error.filename or place}: {reason}") from error
