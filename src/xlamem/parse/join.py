"""Several dumps read into common tables: of many small ones, making each one's tables costs more than reading it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..input.find import Source
from .arrow import NULL, POOL_OF, Codes, Ints, Labels, Made, Pool, Row, Value, assembled, rows
from .reader import PART_OF, SECTIONS, Reading
from .summary import content_hash, summary_rows


class Whole:
    """One dump, read and checked, of which no table has been made yet; DumpError if it cannot be read at all."""

    def __init__(self, source: Source) -> None:
        self.reading = Reading(source, text=False, threads=1)
        content: list[str | None] = [content_hash(f.text.raw) for f in self.reading.files]
        self.rows: dict[str, list[Row]] = summary_rows(
            self.reading, SECTIONS.keys(), frozenset(schema.TABLES), content
        )
        self.unknown = self.reading.findings.unknown_table(self.reading.files)

    def fact(self, column: str) -> Any:
        """What `modules` says of it."""
        return self.rows["modules"][0][_MODULES[column]]

    def count(self, table: str) -> int:
        if table == "unknown_text":
            return int(self.unknown.num_rows)
        return self.reading.makers[table].rows if table in PART_OF else len(self.rows[table])

    def made(self, table: str) -> Sequence[Made]:
        """What a table of its sections is made of."""
        return self.reading.makers[table].made(self.reading) if self.count(table) else ()


_MODULES = {c.name: i for i, c in enumerate(schema.MODULES.columns)}


def tables_of(dumps: Sequence[Whole]) -> tuple[dict[str, pa.Table], dict[str, Ints]]:
    """All their tables, the rows of one dump after those of another, and how many rows each dump has in each."""
    found: dict[str, pa.Table] = {}
    counts: dict[str, Ints] = {}
    join = _Join()
    for name in schema.TABLES:
        counts[name] = np.array([d.count(name) for d in dumps], np.int64)
        if name in PART_OF:
            found[name] = join.table(name, [m for d in dumps for m in d.made(name)])
        elif name == "unknown_text":
            unknown = [schema.UNKNOWN.empty, *(d.unknown for d in dumps)]
            found[name] = pa.concat_tables(unknown).unify_dictionaries().combine_chunks()
        else:
            found[name] = rows(name, [row for d in dumps for row in d.rows[name]])
    return found, counts


NOBODY = np.full(1, -1, np.int32)
"""The code of a null, at the beginning of each map."""


class _Join:
    """Puts the columns of several dumps together; the codes of each dump become those of pools for all of them."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.maps: dict[str, list[Codes]] = {}
        """By meaning: for each pool that was absorbed our codes of its texts, and before them NOBODY."""
        self.sizes: dict[str, int] = {}
        """How long they are together."""
        self.places: dict[tuple[str, int], tuple[int, Pool | Labels]] = {}
        """Where the map of a pool begins."""

    def table(self, name: str, made: Sequence[Made]) -> pa.Table:
        columns = schema.TABLES[name].columns

        def known(one: Made) -> list[bool]:
            """Flags and texts have no null among their items: rows without them stay apart."""
            return [v is not None for c, (v, _) in zip(columns, one[1], strict=True) if c.kind in ("bool", "text")]

        if len(made) > 1:
            made = [self.rows(columns, list(run)) for _, run in groupby(made, known)]
        return assembled(name, made).combine_chunks() if made else schema.TABLES[name].empty

    def rows(self, columns: Sequence[schema.Column], made: Sequence[Made]) -> Made:
        if len(made) == 1:
            return made[0]
        lengths = [n for n, _ in made]
        parts = zip(*(values for _, values in made), strict=True)
        return sum(lengths), [_JOIN[c.kind](self, c.name, lengths, p) for c, p in zip(columns, parts, strict=True)]

    def ints(self, _: str, lengths: Sequence[int], parts: Sequence[Value]) -> Value:
        return _filled(parts, lengths, NULL, np.int64), None

    def flags(self, _: str, __: Sequence[int], parts: Sequence[Value]) -> Value:
        first = parts[0][0]
        if first is None:
            return None, None
        if isinstance(first, tuple):  # one bit of each byte
            return (np.concatenate([v[0] for v, _ in parts]), first[1]), None
        return np.concatenate([v for v, _ in parts]), None

    def texts(self, _: str, __: Sequence[int], parts: Sequence[Value]) -> Value:
        if parts[0][0] is None:
            return None, None
        data, offsets, valid = zip(*(v for v, _ in parts), strict=True)
        lengths = [np.diff(o.view(np.uint32)) for o in offsets]
        joined = np.cumsum(np.concatenate([np.zeros(1, np.uint32), *lengths]), dtype=np.uint32).view(np.int32)
        return (b"".join(data), joined, np.concatenate(valid)), None

    def names(self, column: str, lengths: Sequence[int], parts: Sequence[Value]) -> Value:
        codes, pool = _filled(parts, lengths, -1, np.int32), parts[0][1]
        if all(other is pool for _, other in parts):
            return codes, pool
        meaning = POOL_OF.get(column, column)
        begins = [0 if other is None else self.place(meaning, other) for _, other in parts]
        maps = self.maps[meaning]
        if len(maps) > 1:
            maps[:] = [np.concatenate(maps)]
        return maps[0][codes + np.repeat(np.array(begins, np.int32) + 1, lengths)], self.pools[meaning]

    def place(self, meaning: str, pool: Pool | Labels) -> int:
        """Where the map of this pool begins; makes it."""
        known = self.places.get((meaning, id(pool)))
        if known is None:
            if meaning not in self.pools:
                self.pools[meaning], self.maps[meaning], self.sizes[meaning] = Pool(), [NOBODY], 1
            found = self.pools[meaning].absorb(pool)
            known = self.places[meaning, id(pool)] = self.sizes[meaning], pool
            self.maps[meaning] += NOBODY, found
            self.sizes[meaning] += 1 + len(found)
        return known[0]


_JOIN: dict[schema.Kind, Callable[[_Join, str, Sequence[int], Sequence[Value]], Value]] = {
    "int": _Join.ints,
    "bool": _Join.flags,
    "text": _Join.texts,
    "name": _Join.names,
}


def _filled(parts: Sequence[Value], lengths: Sequence[int], null: int, dtype: type[Any]) -> Any:
    """One array of several, with `null` where one is missing; None if all are."""
    if all(v is None for v, _ in parts):
        return None
    columns = ((v, n) for (v, _), n in zip(parts, lengths, strict=True))
    return np.concatenate([np.full(n, null, dtype) if v is None else v for v, n in columns])
