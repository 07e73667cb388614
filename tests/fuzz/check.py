"""What must hold of every input: only errors of our own, and the same tables however it is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from compare_bodies import compare
from fuzz.mutate import Members

import xlamem
from xlamem import schema
from xlamem.compute import REGISTRY
from xlamem.input.find import Member, Source
from xlamem.input.names import variants
from xlamem.parse import pieces as streaming
from xlamem.parse import whole
from xlamem.parse.join import ReadDump, tables_of
from xlamem.parse.sections import SECTION_OF

SPAN = whole.SPAN_BYTES, streaming.SPAN_BYTES


class CheckError(AssertionError):
    """Something that must hold does not: what, and the details."""


def source_of(members: Members, platform: Any = None) -> Source:
    """The dump in memory."""
    made = tuple(Member(role, role, size=len(data), content=data) for role, data in members.items())
    return Source("m", made, platform=platform)


def plain(table: pa.Table) -> pa.Table:
    """Without dictionaries and chunks, so that tables compare by what they say."""
    table.validate(full=True)
    fields = [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def tables_or_error(give: Callable[[], dict[str, pa.Table]]) -> dict[str, pa.Table] | str:
    """The tables, or of which of our errors there are none."""
    try:
        return {name: plain(table) for name, table in give().items()}
    except xlamem.XlaMemError as e:
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


def computed(dump: xlamem.Dump) -> None:
    """Every computation ends in a table or an error of ours, and what must add up does."""
    found: dict[str, pa.Table] = {}
    for name, compute in REGISTRY.items():
        try:
            found[name] = plain(compute(dump))
        except xlamem.XlaMemError:
            continue
    try:
        xlamem.memory_analysis(dump)
    except xlamem.XlaMemError:
        return
    if {"peaks", "bills"} <= found.keys():
        bills_add_up(found["peaks"].to_pylist(), found["bills"].to_pylist())
    if {"peaks", "live_set"} <= found.keys():
        held: dict[tuple[int, int], int] = {}
        for row in found["live_set"].to_pylist():
            held[row["color"], row["page"]] = held.get((row["color"], row["page"]), 0) + row["bytes"]
        for row in found["peaks"].to_pylist():
            if row["first_step"] is not None and held.get((row["color"], row["page"]), 0) != row["peak"]:
                raise CheckError(f"live_set adds up to {held}, the peak is {row}")
            if row["peak"] is not None and row["peak"] < row["half_open_peak"]:
                raise CheckError(f"the half-open peak is above the closed one: {row}")


def bills_add_up(peaks: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    total: dict[tuple[int | None, int | None], int] = {}
    for row in rows:
        if row["bytes"] <= 0:
            raise CheckError(f"a row of the bill has no bytes: {row}")
        key = row["color"], row["page"]
        total[key] = total.get(key, 0) + row["bytes"]
    for row in peaks:
        if total.get((row["color"], row["page"]), 0) != row["reserved"]:
            raise CheckError(f"the bills add up to {total}, reserved is {row}")


def converted(members: Members, clean: Members, place: Path) -> None:
    """A conversion ends well whatever the dump is, and leaves none out in silence."""
    for i, each in enumerate((members, clean)):
        for role, data in each.items():
            folder = place / "dumps"
            folder.mkdir(exist_ok=True)
            (folder / variants(f"module_{i:04}.jit_m.cpu_after_optimizations", role)[0]).write_bytes(data)
    try:
        made = xlamem.convert(place / "dumps", to=place / "out", engine="here")
    except xlamem.XlaMemError as e:
        raise CheckError(f"convert stops: {e}") from e
    for fault in made.failed:
        if "bug of xlamem" in fault.error:
            raise CheckError(f"convert: {fault.error}")
    if made.dumps + len(made.failed) + made.duplicates < made.found:
        raise CheckError(f"convert has lost a dump: {made}")


def check(rng: random.Random, members: Members, clean: Members, place: Path | None) -> None:
    """Read it in every way, compute everything, and with a `place` to write to convert it."""
    platform = rng.choice((None, "cpu", "gpu", "tpu"))
    source = source_of(members, platform)
    try:
        dump = xlamem.read(source, text=True, threads=1, hashes=True)
        expected = tables_or_error(lambda: all_tables(dump))
        large = sum(map(len, members.values())) > 8000
        whole.SPAN_BYTES = streaming.SPAN_BYTES = rng.choice((300, 2000) if large else (1, 7, 64, 300))
        several = tables_or_error(
            lambda: all_tables(xlamem.read(source, text=True, threads=rng.randint(2, 4), hashes=True))
        )
        same(f"threads, SPAN {whole.SPAN_BYTES}", expected, several)
        same(f"streamed, SPAN {streaming.SPAN_BYTES}", expected, tables_or_error(lambda: streamed(source)))
        name = rng.choice(list(schema.TABLES))
        alone = tables_or_error(lambda: {name: xlamem.read(source, hashes=True, text=True).batches(name).read_all()})
        if not isinstance(expected, str) and name in SECTION_OF:  # the others are about the tables asked for
            same(f"batches of {name}", {name: expected[name]}, alone)
        whole.SPAN_BYTES, streaming.SPAN_BYTES = SPAN
        untexted = expected
        if not isinstance(expected, str):
            empty = pa.nulls(expected["instructions"].num_rows, pa.string())
            at = expected["instructions"].schema.get_field_index("text")
            untexted = expected | {"instructions": expected["instructions"].set_column(at, "text", empty)}
        same("together", untexted, tables_or_error(lambda: joined(source, source_of(clean))))
    finally:
        whole.SPAN_BYTES, streaming.SPAN_BYTES = SPAN
    computed(dump)
    if "hlo" in members:
        compare(members["hlo"])
    if place is not None:
        converted(members, clean, place)
