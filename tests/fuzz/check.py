"""What must hold of every input: only errors of our own, and the same tables however and by whom it is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from compare import differences
from compare_bodies import compare
from fuzz.computations import CheckError, computed, plain
from fuzz.mutate import Members
from fuzz.outputs import differ, outputs

import xlamem
from xlamem import schema
from xlamem.input.find import Member, Source
from xlamem.parse import pieces as streaming
from xlamem.parse import whole
from xlamem.parse.join import ReadDump, tables_of
from xlamem.parse.sections import SECTION_OF

SPAN = whole.SPAN_BYTES, streaming.SPAN_BYTES

DIFFERENCES = 1 / 4
"""Part of the executions that compare two dumps."""


def source_of(members: Members, platform: Any = None) -> Source:
    """The dump in memory."""
    made = tuple(Member(role, role, size=len(data), content=data) for role, data in members.items())
    return Source("m", made, platform=platform)


def tables_or_error(give: Callable[[], dict[str, pa.Table]]) -> dict[str, pa.Table] | str:
    """The tables, or the name of the error that says why there are none."""
    try:
        return {name: plain(table) for name, table in give().items()}
    except (xlamem.DumpError, xlamem.UsageError) as e:
        return type(e).__name__


def same(what: str, expected: dict[str, pa.Table] | str, found: dict[str, pa.Table] | str) -> None:
    if isinstance(expected, str) or isinstance(found, str):
        if expected is not found and expected != found:
            raise CheckError(f"{what}: {_short(expected)}, but {_short(found)}")
        return
    for name, table in expected.items():
        if not found[name].equals(table):
            ours, theirs = table.to_pylist(), found[name].to_pylist()
            first = next((p for p in zip(ours, theirs, strict=False) if p[0] != p[1]), None)
            raise CheckError(f"{what}: {name} differs, {len(ours)} and {len(theirs)} rows, first {first}")


def _short(found: dict[str, pa.Table] | str) -> str:
    return found if isinstance(found, str) else "tables"


def all_tables(dump: xlamem.Dump) -> dict[str, pa.Table]:
    dump.verify()
    return {name: dump[name] for name in dump.tables}


def streamed(source: Source) -> dict[str, pa.Table]:
    pieces: dict[str, list[pa.Table]] = {name: [] for name in schema.TABLES}
    for name, piece in streaming.pieces(source, text=True, hashes=True):
        pieces[name].append(plain(piece))
    return {n: pa.concat_tables([plain(schema.TABLES[n].empty), *found]) for n, found in pieces.items()}


def joined(source: Source, clean: Source) -> dict[str, pa.Table]:
    """Of both dumps together the rows of the first one."""
    made, counts = tables_of([ReadDump(source), ReadDump(clean)])
    return {name: table.slice(0, int(counts[name][0])) for name, table in made.items()}


def without_text(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables as `joined` reads them."""
    at = tables["instructions"].schema.get_field_index("text")
    empty = pa.nulls(tables["instructions"].num_rows, pa.string())
    return tables | {"instructions": tables["instructions"].set_column(at, "text", empty)}


def read_alike(rng: random.Random, source: Source, clean: Source) -> dict[str, pa.Table] | str:
    """Read a dump in every way, and return its tables."""
    expected = tables_or_error(lambda: all_tables(xlamem.read(source, text=True, threads=1, hashes=True)))
    large = sum(len(m.content or b"") for m in source.members) > 8000
    span = rng.choice((300, 2000) if large else (1, 7, 64, 300))
    threads, name = rng.randint(2, 4), rng.choice(list(schema.TABLES))
    whole.SPAN_BYTES = streaming.SPAN_BYTES = span
    try:
        several = tables_or_error(lambda: all_tables(xlamem.read(source, text=True, threads=threads, hashes=True)))
        same(f"{threads} threads, SPAN {span}", expected, several)
        same(f"streamed, SPAN {span}", expected, tables_or_error(lambda: streamed(source)))
        alone = tables_or_error(lambda: {name: xlamem.read(source, hashes=True, text=True).batches(name).read_all()})
        if not isinstance(expected, str) and name in SECTION_OF:  # the others are about the tables asked for
            same(f"batches of {name}", {name: expected[name]}, alone)
    finally:
        whole.SPAN_BYTES, streaming.SPAN_BYTES = SPAN
    untexted = expected if isinstance(expected, str) else without_text(expected)
    same("together", untexted, tables_or_error(lambda: joined(source, clean)))
    return expected


def agree(source: Source, members: Members) -> None:
    """The slow reader gives the same tables and findings."""
    if differing := differences(xlamem.read(source, text=True), members):
        raise CheckError("the slow reader differs: " + "\n    ".join(differing))


def check(
    rng: random.Random, members: Members, clean: Members, place: Path | None, *, slowly: bool = False
) -> None:
    """Read it in every way, `slowly` too, compute everything, and with a `place` to write to, convert and show it."""
    source, other = source_of(members, rng.choice((None, "cpu", "gpu", "tpu"))), source_of(clean)
    found = read_alike(rng, source, other)
    dump = xlamem.read(source)
    computed(dump, rng)
    if "hlo" in members:
        compare(members["hlo"])
    if slowly and not isinstance(found, str):
        agree(source, members)
    if rng.random() < DIFFERENCES:
        differ(rng, dump, xlamem.read(other))
    if place is not None:
        outputs(rng, members, clean, place)
