"""A dump read piece by piece gives the tables that reading it whole gives, in bounded memory."""

from __future__ import annotations

import gzip
import mmap
import random
import re
from pathlib import Path
from typing import Any

import duckdb
import forge
import fsspec
import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset as pd
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS, every, label, sources, texts
from test_checks import PLANTED
from test_cuts import SMALL, held, shipped, targets
from test_whole import repeats

import xlamem
from xlamem import UsageError, _lookup, schema
from xlamem._column import Names
from xlamem.input import files
from xlamem.input.find import Source
from xlamem.parse import pieces as streaming
from xlamem.parse import stores
from xlamem.parse.arrays import NULL, codes, flags, ints

SHIPPED = xlamem.find(DUMPS)
LARGE = 32 << 20


def plain(table: pa.Table) -> pa.Table:
    """Without dictionaries, so that tables compare by what they say."""
    fields = [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def joined(source: Source, tables: Any = None, **options: bool) -> dict[str, pa.Table]:
    """The pieces of each table, joined."""
    found: dict[str, list[pa.Table]] = {}
    for name, piece in streaming.pieces(source, tables, **options):
        assert piece.num_rows
        assert piece.schema.equals(schema.TABLES[name].arrow)
        piece.validate(full=True)
        found.setdefault(name, []).append(plain(piece))
    last = [n for n in found if n in ("files", "diagnostics", "modules", "unknown_text")]
    assert last == list(found)[len(found) - len(last) :]
    return {n: pa.concat_tables(found[n]) if n in found else plain(schema.TABLES[n].empty) for n in schema.TABLES}


def same(source: Source, tables: Any = None, **options: bool) -> dict[str, pa.Table]:
    """Assert that pieces and whole are equal, in every table asked for; or that both find no section to read."""
    whole = xlamem.read(source, threads=1, tables=tables, **options)
    try:
        whole._tables.reader.files  # noqa: B018
    except xlamem.DumpError as error:
        with pytest.raises(xlamem.DumpError, match=re.escape(str(error))):
            joined(source, tables, **options)
        return {}
    found = joined(source, tables, **options)
    for name in ("allocations", *whole.tables, "diagnostics") if tables is None else whole.tables:
        expected = plain(whole[name])
        assert found[name].equals(expected), (
            name, [(a, b) for a, b in zip(found[name].to_pylist(), expected.to_pylist(), strict=False) if a != b][:1],
            found[name].num_rows, expected.num_rows,
        )  # fmt: skip
    return found


@pytest.mark.parametrize("source", every(2, sources()), ids=label)
def test_every_dump(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(m.size or 0 for m in source.members)
    if size > LARGE:
        pytest.skip("too large to compare")
    same(source, text=True, hashes=True)
    monkeypatch.setattr(streaming, "SPAN_BYTES", max(300, size // 100))
    same(source, text=True)


@pytest.mark.parametrize("span", every(3, [1, 2, 3, 64, 7]))
def test_tiny_spans(span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [s for s in SHIPPED if sum(m.size or 0 for m in s.members) < 60_000][::3]
    assert len(small) > 4
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    for source in small:
        same(source, text=True)


@pytest.mark.parametrize(("source", "role"), targets(6))
def test_cut(source: Source, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that end anywhere, alone and among their siblings."""
    members = texts(source)
    rng = random.Random(source.name + role)
    monkeypatch.setattr(streaming, "SPAN_BYTES", 200)
    for _ in range(4 if sum(map(len, members.values())) < 8 * SMALL else 1):
        cut = members[role][: rng.randrange(len(members[role]))]
        same(held("x", {role: cut}, source.platform))
        same(held("x", members | {role: cut}, source.platform))


@pytest.mark.parametrize("source", shipped()[::9], ids=label)
def test_missing_siblings_and_broken_lines(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    members = texts(source)
    rng = random.Random(source.name)
    monkeypatch.setattr(streaming, "SPAN_BYTES", 500)
    for role in members:
        if len(members) > 1:
            same(held("x", {r: d for r, d in members.items() if r != role}))
        lines = members[role].split(b"\n")
        for _ in range(4):
            broken = list(lines)
            for _ in range(3):
                i = rng.randrange(len(broken))
                if broken[i] != b"BufferAssignment:":  # one more would be one more module
                    broken[i : i + 1] = rng.choice(([], [b"what?"], [broken[i], broken[i]], [broken[i][:-1]], [b"<x"]))
            same(held("x", members | {role: b"\n".join(broken)}, source.platform), text=True)


@pytest.mark.parametrize(("code", "name", "role", "old", "new", "complete"), PLANTED)
@pytest.mark.parametrize("span", [150, 1 << 20])
def test_planted(
    code: str, name: str, role: str, old: bytes, new: bytes, complete: bool, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cross-check is made, and says the same."""
    source = xlamem.find(DUMPS / name)[0]
    members = texts(source)
    members[role] = members[role].replace(old, new, 1)
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    found = same(held(source.name, members, source.platform), text=True)
    assert code in found["diagnostics"]["code"].to_pylist()


@pytest.mark.parametrize("era", sorted(forge.ERAS))
@pytest.mark.parametrize("hostile", every(2, [True, False]))
def test_forged(era: str, hostile: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = forge.forge(5, era=era, values=150, hostile=hostile)
    monkeypatch.setattr(streaming, "SPAN_BYTES", 400)
    same(held("x", made.files, "tpu" if int(era[1]) % 2 else None), text=True)


@pytest.mark.parametrize("span", [1 << 20, 700])
@pytest.mark.parametrize("change", [None, 0, 1, 20, 39])
def test_a_repeated_instruction(change: int | None, span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text is one row over all spans; one byte makes it another."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    found = same(held("x", repeats(change)), text=True)
    assert (found["diagnostics"]["code"].to_pylist() == ["instruction_differs"]) == (change is not None)


@pytest.mark.parametrize("name", schema.TABLES)
def test_one_table_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SPAN_BYTES", 900)
    for source in SHIPPED[::4]:
        same(source, {name})


def test_only_the_sections_needed_are_tokenised() -> None:
    def parts(*tables: str) -> list[str]:
        return streaming.PieceReader(source, frozenset(tables), text=False).kinds

    source = next(s for s in SHIPPED if s.member("buffer-assignment-values") and s.member("live-range"))
    assert parts("values") == parts("cross_color") == ["allocations"]
    assert parts("uses", "positions") == ["used values"]
    assert parts("schedule") == parts("live_ranges") == ["allocations", "live ranges"]
    assert parts("printed_report") == ["report"]
    assert parts("frames", "aliases") == ["hlo"]


# -- batches -------------------------------------------------------------------------------------


@pytest.fixture
def dump(monkeypatch: pytest.MonkeyPatch) -> xlamem.Dump:
    monkeypatch.setattr(streaming, "SPAN_BYTES", 1000)
    return xlamem.read(next(s for s in SHIPPED if "scan_while" in s.location), text=True)


@pytest.mark.parametrize("name", schema.TABLES)
def test_batches(name: str, dump: xlamem.Dump) -> None:
    reader = dump.batches(name)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.equals(dump[name].schema)
    assert reader.read_all().to_pylist() == dump[name].to_pylist()


@pytest.mark.parametrize("name", ["values", "instructions", "live_ranges", "modules"])
def test_batches_are_an_arrow_stream(name: str, dump: xlamem.Dump, tmp_path: Path) -> None:
    expected = dump[name].to_pylist()
    assert len(list(dump.batches(name))) > (name != "modules")
    assert polars.DataFrame(dump.batches(name)).to_dicts() == expected
    with duckdb.connect() as connection:
        connection.register("t", dump.batches(name))
        assert connection.sql("from t").to_arrow_table().to_pylist() == expected
    pd.write_dataset(dump.batches(name), tmp_path, format="parquet")
    assert sorted(map(repr, pq.read_table(tmp_path).to_pylist())) == sorted(map(repr, expected))  # in any order


def test_wrong_names(dump: xlamem.Dump) -> None:
    with pytest.raises(UsageError, match="no table 'valves'"):
        dump.batches("valves")
    with pytest.raises(UsageError, match="left out"):
        xlamem.read(dump.source, tables=["uses"]).batches("values")
    with pytest.raises(UsageError, match="no table valves"):
        streaming.pieces(dump.source, ["valves"])


@pytest.mark.parametrize("head", ["positions:", "positions new:", "positions new=1:"])
@pytest.mark.parametrize("members", [("buffer-assignment",), ("buffer-assignment", "hlo")])
def test_uses_in_allocations_with_unknown_text(head: str, members: tuple[str, ...]) -> None:
    """They are found without the sections of used values, although no head ends as usual."""
    text = (
        f"BufferAssignment:\nallocation 0: size 4, preallocated-temp:\n  1 a @0, {head}\n  a\n uses:\n"
        "  b, operand 0\n [0,4]: f32[1]{0}\n"
    )
    texts = {"buffer-assignment": text.encode(), "hlo": b"HloModule m, is_scheduled=true\n\n%f () -> f32[] {\n}\n"}
    source = held("x", {role: texts[role] for role in members})
    values = pa.concat_tables(rows for name, rows in streaming.pieces(source, ["values"]) if name == "values")
    assert values.to_pylist() == xlamem.read(source).values.to_pylist()
    assert values["uses_known"].to_pylist() == [True]


# -- bounded memory ------------------------------------------------------------------------------


def test_pages_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)) * 4096)
    data = files.open_file(str(path)).read(5000, 900_000)
    before = bytes(data)
    for begin, end in ((0, len(data)), (1, 2), (4096, 70_001), (7, 7)):
        files.evict_pages(data, begin, end)
        assert bytes(data) == before
    files.evict_pages(b"not mapped", 0, 10)


def test_undone_and_remote_texts_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large lies in a temporary file without a name, not in memory."""
    monkeypatch.setattr(files, "MAX_IN_MEMORY", 1000)
    monkeypatch.setattr(streaming, "SPAN_BYTES", 500)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    source = next(s for s in SHIPPED if "scan_while" in s.location)
    members = texts(source)
    for role, data in members.items():
        (tmp_path / f"x.cpu_after_optimizations-{role}.txt.gz").write_bytes(gzip.compress(data))
    packed = xlamem.find(tmp_path)[0]
    with fsspec.open(f"memory://{tmp_path.name}/x.txt", "wb") as f:
        f.write(members["buffer-assignment"])
    remote = xlamem.find(f"memory://{tmp_path.name}/x.txt")[0]
    for found in (packed, remote):
        data = found.members[0].load().data
        assert isinstance(data.obj if isinstance(data, memoryview) else data, mmap.mmap)
        same(found)
    assert list((tmp_path / "temporary").iterdir()) == []


# -- native --------------------------------------------------------------------------------------


def test_texts() -> None:
    data = b"%a = x\n%a = x\n%a = y\n%ab = x\n%a.1 = x\n%a = x\n%a = y\n"
    ends = np.array([i for i, b in enumerate(data) if b == 10], np.int64)
    begins = np.concatenate([[0], ends[:-1] + 1])
    seen = _lookup.Texts(_lookup.Files([data, b"%ab = x\n%b = x\n"]))
    new, repeat, other = _lookup.NEW, _lookup.REPEAT, _lookup.OTHER
    assert flags(seen.add(begins, ends)).tolist() == [new, repeat, other, new, new, repeat, repeat]
    second = np.array([0, 8], np.int64) + (1 << 48)
    assert flags(seen.add(second, second + np.array([7, 6]))).tolist() == [repeat, new]
    assert len(seen) == 5
    with pytest.raises(ValueError, match="must lie"):
        seen.add(np.array([len(data)]), np.array([len(data)]))
    with pytest.raises(ValueError, match="must lie"):
        seen.add(np.array([2 << 48]), np.array([2 << 48]))


def test_texts_that_do_not_end_their_line() -> None:
    """As those whose line goes on with the head of the next record."""
    data = b"%a = x<7 b>\n%a = x\n%a = x<7\n%a = x<7 b>\n%b = x<8\n"
    seen = _lookup.Texts(_lookup.Files([data]))
    first = [(12, 18), (0, 6), (28, 34), (19, 27), (0, 8), (28, 36), (40, 46), (40, 48)]
    told = flags(seen.add(*(np.array(c, np.int64) for c in zip(*first, strict=True)))).tolist()
    new, repeat, other = _lookup.NEW, _lookup.REPEAT, _lookup.OTHER
    assert told == [new, repeat, repeat, other, repeat, repeat, new, other]
    again = _lookup.Texts(_lookup.Files([data]))
    told = flags(again.add(np.array([28, 0, 12, 19]), np.array([34, 6, 18, 27]))).tolist()
    assert told == [new, repeat, repeat, other]


def test_many_texts() -> None:
    """More than the first table holds, and each found again."""
    rng = random.Random(1)
    lines = [f"%n.{rng.randrange(3000)} = f32[{rng.randrange(3)}] x()\n".encode() for _ in range(9000)]
    ends = np.cumsum([len(x) for x in lines]).astype(np.int64)
    seen = _lookup.Texts(_lookup.Files([b"".join(lines)]))
    begins = np.concatenate([[0], ends[:-1]])
    said = [flags(seen.add(begins[i : i + 500], ends[i : i + 500] - 1)).tolist() for i in range(0, 9000, 500)]
    known: dict[bytes, set[bytes]] = {}
    expected = []
    for line in lines:
        texts_ = known.setdefault(line.split(b" ")[0], set())
        expected.append(_lookup.REPEAT if line in texts_ else _lookup.OTHER if texts_ else _lookup.NEW)
        texts_.add(line)
    assert [s for part in said for s in part] == expected


def test_values() -> None:
    text = b"".join(b"<%d n.%d{%d} @0>\n" % (i, i % 70, i // 70) for i in range(140))
    text += b"<140 m @0>\n<141 old[1,2](#141\n"
    places = np.array([i for i in range(len(text)) if text[i : i + 1] == b"<"], np.int64)
    files = _lookup.Files([text])
    at = ints(files.names(places[:141])).tolist()
    assert [text[p : p + 1] for p in at] == [b"n"] * 140 + [b"m"]
    old = text.index(b"old")
    values = _lookup.Values(files, np.array([*at, old]))
    names, indices = Names(), Names()

    def match(*wanted: tuple[bytes, bytes]) -> list[int]:
        columns = [(names.code(n), indices.code(i)) for n, i in wanted]
        both = [np.array(c, np.int32) for c in zip(*columns, strict=True)]
        return codes(values.match(names, indices, *both)).tolist()

    assert match((b"n.3", b"{0}"), (b"n.4", b"{0}"), (b"n.4", b"{1}"), (b"n.4", b"{2}")) == [3, 4, 74, -1]
    assert match((b"m", b"{}"), (b"m", b"{0}"), (b"old", b"{1,2}"), (b"n", b"{}")) == [140, -1, 141, -1]
    assert match((b"n.69", b"{1}"), (b"n.0", b"{0}")) == [139, 0]


def test_same_names() -> None:
    text = b"a{0} a[0] a{1} a ab a{} a{0"
    at = {w: text.index(w) for w in (b"a{0}", b"a[0]", b"a{1}", b"a ", b"ab", b"a{} ")}
    files = _lookup.Files([text])
    pairs = [(x, y) for x in at.values() for y in at.values()]
    said = flags(files.same_names(*(np.array(c, np.int64) for c in zip(*pairs, strict=True)))).tolist()
    equal = {(at[b"a{0}"], at[b"a[0]"]), (at[b"a[0]"], at[b"a{0}"])}
    assert said == [x == y or (x, y) in equal for x, y in pairs]


def test_find() -> None:
    data = b"abcabcabd"
    assert [_lookup.find(data, b, e, b"abd") for b, e in ((0, 9), (6, 9), (7, 9), (0, 8), (3, 3))] == [6, 6, -1, -1, -1]
    with pytest.raises(ValueError, match="must lie"):
        _lookup.find(data, 0, 10, b"a")


@pytest.mark.parametrize(
    "column", [[], [NULL], [5, NULL, 7], [0, 126], [0, 127], [0, 128], [-(1 << 62), 1 << 62, NULL], [1 << 40]]
)
def test_narrow(column: list[int]) -> None:
    values = np.array(column, np.int64)
    out = np.empty(len(values), np.int64)
    stores.widen(stores.narrow(values), out)
    assert out.tolist() == column


def test_codes_are_those_of_the_pool() -> None:
    files = _lookup.Files([b"a\n"])
    values = _lookup.Values(files, np.array([0]))
    with pytest.raises(ValueError, match="a code"):
        values.match(Names(), Names(), codes(b"\0" * 4), codes(b"\0" * 4))
