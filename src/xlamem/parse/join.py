"""Reads many small dumps into common tables: building separate tables would cost more than reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..input.find import Source
from .arrays import INTERNER_OF, NULL, Codes, Ints
from .batch import Span
from .checks import check
from .fingerprints import Fingerprints, are_known
from .hashes import content_hash
from .interners import FixedDictionary, Interner, Interners
from .sections import SECTION_OF, SECTIONS
from .summary import summary_rows
from .tables import Chunk, Column, Row, table_of, table_of_rows
from .whole import READING_ORDER, WholeReader

_MODULES = {c.name: i for i, c in enumerate(schema.MODULES.columns)}

Dictionaries = Sequence[Interner | FixedDictionary | None]

_NULL_CODE = np.full(1, -1, np.int32)


class SmallReader(WholeReader):
    """Reads all of a small dump at once. Several dumps may share interners."""

    def __init__(self, source: Source, interners: Interners | None = None) -> None:
        super().__init__(source, text=False, threads=1, interners=interners)

    def read_all(self) -> None:
        """Read all sections, and run the cross-checks."""
        for kind in READING_ORDER if self.assignment is not None else SECTIONS:
            section_reader = SECTIONS[kind]
            names = self.interners.names(section_reader.interners)
            sections = section_reader.sections(self)
            spans = [Span(section, section.begin, section.end) for section in sections]
            self._complete(kind, [section_reader.scan_unchanged(span, names).load(self.interners) for span in spans])
        check(self)
        self.release_checked()


class ReadDump:
    """A dump that has been read and checked, without its tables. Raises DumpError if it cannot be read at all."""

    def __init__(self, source: Source, *, interners: Interners | None = None) -> None:
        self.reader = SmallReader(source, interners)
        hashes = [content_hash(f.text.raw) for f in self.reader.files]
        self.reader.read_all()
        self.rows: dict[str, list[Row]] = summary_rows(self.reader, schema.TABLES.keys(), hashes)
        self.fingerprints_known = are_known(self.reader, schema.TABLES)
        self.unknown = self.reader.diagnostics.unknown_table(self.reader.files)

    def module(self, column: str) -> Any:
        """Return a value of the dump's row in `modules`."""
        return self.rows["modules"][0][_MODULES[column]]

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        if table == "unknown_text":
            return int(self.unknown.num_rows)
        return (self.reader.count(table) or 0) if table in SECTION_OF else len(self.rows[table])


def tables_of(
    dumps: Sequence[ReadDump], names: Iterable[str] = schema.TABLES
) -> tuple[dict[str, pa.Table], dict[str, Ints]]:
    """Return concatenated tables of several dumps, and the number of rows per table and dump.

    `names` must include `modules` and the tables from which its fingerprints are computed.
    """
    tables: dict[str, pa.Table] = {}
    counts: dict[str, Ints] = {}
    join = _Join()
    for name in names:
        rows = [d.count(name) for d in dumps]
        counts[name] = np.array(rows, np.int64)
        if name in SECTION_OF:
            chunks = [c for d, n in zip(dumps, rows, strict=True) if n for c in d.reader.chunks(name)]
            tables[name] = join.table(name, chunks)
        elif name == "unknown_text":
            unknown = [schema.UNKNOWN.empty, *(d.unknown for d, n in zip(dumps, rows, strict=True) if n)]
            tables[name] = pa.concat_tables(unknown).unify_dictionaries().combine_chunks()
        else:
            tables[name] = table_of_rows(name, [row for d in dumps for row in d.rows[name]])
    tables["modules"] = _with_fingerprints(tables, counts, dumps)
    return tables, counts


def _with_fingerprints(tables: dict[str, pa.Table], counts: dict[str, Ints], dumps: Sequence[ReadDump]) -> pa.Table:
    """Return the table `modules`, with fingerprints."""
    fingerprints = Fingerprints(len(dumps))
    for name in Fingerprints.TABLES:
        fingerprints.add(name, tables[name], np.repeat(np.arange(len(dumps)), counts[name]))
    modules = [(d.module("module_name"), d.module("platform")) for d in dumps]
    table = tables["modules"]
    for name, items in fingerprints.columns(modules, [d.fingerprints_known for d in dumps]).items():
        table = table.set_column(table.schema.get_field_index(name), table.field(name), pa.array(items, pa.string()))
    return table


class _Join:
    """Concatenates the columns of several dumps and recodes them to common interners."""

    def __init__(self) -> None:
        self._interners: dict[str, Interner] = {}
        self._maps: dict[str, list[Codes]] = {}
        """By meaning: for each absorbed dictionary, _NULL_CODE and then the common codes of its texts."""
        self._lengths: dict[str, int] = {}
        """Total length of these maps."""
        self._starts: dict[tuple[str, int], tuple[int, Interner | FixedDictionary]] = {}
        """Start of each dictionary's map, by meaning and id(); the reference keeps the id from being reused."""

    def table(self, name: str, chunks: Sequence[Chunk]) -> pa.Table:
        columns = schema.TABLES[name].columns

        def has_values(chunk: Chunk) -> list[bool]:
            """Return which flag and text columns have values; chunks that differ in this cannot be joined."""
            pairs = zip(columns, chunk.columns, strict=True)
            return [items is not None for c, (items, _) in pairs if c.kind in ("bool", "text")]

        if len(chunks) > 1:
            chunks = [self._chunk(columns, list(run)) for _, run in groupby(chunks, has_values)]
        return table_of(name, chunks).combine_chunks() if chunks else schema.TABLES[name].empty

    def _chunk(self, specs: Sequence[schema.Column], chunks: Sequence[Chunk]) -> Chunk:
        if len(chunks) == 1:
            return chunks[0]
        lengths = [c.rows for c in chunks]
        columns = (zip(*parts, strict=True) for parts in zip(*(c.columns for c in chunks), strict=True))
        return Chunk(
            sum(lengths),
            [_JOIN[spec.kind](self, spec.name, lengths, *parts) for spec, parts in zip(specs, columns, strict=True)],
        )

    def ints(self, _: str, lengths: Sequence[int], items: Sequence[Any], __: Dictionaries) -> Column:
        return _filled(items, lengths, NULL, np.int64), None

    def flags(self, _: str, __: Sequence[int], items: Sequence[Any], ___: Dictionaries) -> Column:
        if items[0] is None:
            return None, None
        if isinstance(items[0], tuple):  # one bit of each byte
            return (np.concatenate([values for values, _ in items]), items[0][1]), None
        return np.concatenate(items), None

    def texts(self, _: str, __: Sequence[int], items: Sequence[Any], ___: Dictionaries) -> Column:
        if items[0] is None:
            return None, None
        data, offsets, valid = zip(*items, strict=True)
        lengths = np.diff(np.concatenate(offsets).view(np.uint32), prepend=np.uint32(0))
        # The first offset of a chunk is the end of the text before it.
        ends = np.delete(lengths, np.cumsum([0, *map(len, offsets[:-1])]))
        joined = np.append(np.uint32(0), np.cumsum(ends, dtype=np.uint32)).view(np.int32)
        return (b"".join(data), joined, np.concatenate(valid)), None

    def names(self, name: str, lengths: Sequence[int], items: Sequence[Any], dictionaries: Dictionaries) -> Column:
        codes = _filled(items, lengths, -1, np.int32)
        if codes is None or all(d is dictionaries[0] for d in dictionaries):
            return codes, dictionaries[0]
        meaning = INTERNER_OF.get(name, name)
        starts = [0 if d is None else self._start(meaning, d) for d in dictionaries]
        maps = self._maps[meaning]
        if len(maps) > 1:
            maps[:] = [np.concatenate(maps)]
        return maps[0][codes + np.repeat(np.array(starts, np.int32) + 1, lengths)], self._interners[meaning]

    def _start(self, meaning: str, dictionary: Interner | FixedDictionary) -> int:
        """Return the start of this dictionary's map; absorb the dictionary if it is new."""
        start = self._starts.get((meaning, id(dictionary)))
        if start is None:
            if meaning not in self._interners:
                self._interners[meaning], self._maps[meaning] = Interner(), [_NULL_CODE]
                self._lengths[meaning] = 1
            codes = self._interners[meaning].absorb(dictionary)
            start = self._starts[meaning, id(dictionary)] = self._lengths[meaning], dictionary
            self._maps[meaning] += _NULL_CODE, codes
            self._lengths[meaning] += 1 + len(codes)
        return start[0]


_JOIN: dict[schema.Kind, Callable[[_Join, str, Sequence[int], Sequence[Any], Dictionaries], Column]] = {
    "int": _Join.ints,
    "bool": _Join.flags,
    "text": _Join.texts,
    "name": _Join.names,
}


def _filled(items: Sequence[Any], lengths: Sequence[int], null: int, dtype: type[Any]) -> Any:
    """Concatenate columns, with `null` for columns without items; None if none has items."""
    if all(values is None for values in items):
        return None
    pairs = zip(items, lengths, strict=True)
    return np.concatenate([np.full(n, null, dtype) if values is None else values for values, n in pairs])
