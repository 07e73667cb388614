"""The small parts that all readers share, compared with the obvious way to do the same on random inputs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from xlamem import _lines, schema
from xlamem.input import spans
from xlamem.input.text import Text
from xlamem.parse import arrow, diagnostics, hashes, interners, outline, report_checks, stores
from xlamem.parse.arrays import NULL, Rows, distinct_of, joined, numbers_of, order_by, row_of, stable_order, text_ends
from xlamem.parse.batch import Batch, File, Section, Span
from xlamem.parse.fingerprints import _sums, without_counters, without_number
from xlamem.parse.interners import FixedDictionary, Interner, Interners
from xlamem.parse.modules import is_one_module
from xlamem.parse.sections import SECTIONS
from xlamem.parse.tables import Chunk, table_of, table_of_rows
from xlamem.parse.threads import ThreadPool

WORDS = ["aa", "bbbb", "", "cc", "dddddddd", "e", "ff"]


def some_keys(seed: int) -> Iterator[np.ndarray[Any, Any]]:
    """Keys that are dense, sparse, ascending or not, with and without repeats."""
    chance = np.random.default_rng(seed)
    for n, high in product((0, 1, 2, 7, 300), (2, 50, 4000, 1 << 40, 1 << 62)):
        keys = chance.integers(-high, high, n)
        yield keys
        yield np.sort(keys)
        yield np.unique(keys)


# -- lookups


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_keys(seed: int) -> None:
    for keys in some_keys(seed):
        first = {key: row for row, key in reversed([*enumerate(keys.tolist())])}
        wanted = np.concatenate([keys[::2], keys[::-1] + 1, np.array([0, -1, NULL + 1])])
        for order in (wanted, np.sort(wanted), wanted[:0]):
            expected = [first.get(key, -1) for key in order.tolist()]
            assert Rows(keys)(order).tolist() == expected
            if keys.size and abs(keys).max() < 1 << 31:
                assert Rows(keys.astype(np.int32))(order).tolist() == expected
            assert row_of(keys, order).tolist() == expected


def test_rows_in_the_order_of_the_keys() -> None:
    for keys in some_keys(5):
        assert stable_order(keys).tolist() == sorted(range(len(keys)), key=keys.tolist().__getitem__)
        assert distinct_of(keys) == sorted({*keys.tolist()})


def test_the_order_by_several_keys() -> None:
    chance = np.random.default_rng(7)
    for n in (0, 1, 5, 200):
        keys = [chance.integers(0, 4, n) for _ in range(3)]
        rows = sorted(range(n), key=lambda row: (*(int(k[row]) for k in keys), row))
        assert order_by(*keys).tolist() == rows


def test_numbers_of_a_column() -> None:
    column = pa.chunked_array([pa.array([1, None], pa.int64()), pa.array([None, -3], pa.int64())])
    assert numbers_of(column).tolist() == [1, NULL, NULL, -3]
    assert numbers_of(column.slice(3)).tolist() == [-3]
    one = np.arange(3)
    assert joined([one], np.int64) is one
    assert joined([one, one[:0], one + 3], np.int64).tolist() == [0, 1, 2, 3, 4, 5]
    assert joined([], np.int32).dtype == np.int32


# -- texts


def parts_of(words: list[str | None]) -> tuple[bytes, Any, Any]:
    lengths = [0 if word is None else len(word) for word in words]
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    return "".join(word or "" for word in words).encode(), offsets, np.array([w is not None for w in words], np.uint8)


@pytest.mark.parametrize("limit", [1, 2, 4, 6, 8, 10, 100])
def test_texts_in_chunks(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk has more text than the limit, unless it is a single text, and none has room for the next text."""
    monkeypatch.setattr(arrow, "CHUNK_BYTES", limit)
    words: list[str | None] = [*WORDS, None, *WORDS]
    chunks = [chunk.to_pylist() for chunk in arrow.text_arrays(parts_of(words))]
    assert [word for chunk in chunks for word in chunk] == words
    sizes = [sum(len(word or "") for word in chunk) for chunk in chunks]
    assert all(size <= limit or len(chunk) == 1 for size, chunk in zip(sizes, chunks, strict=True))
    for size, following in zip(sizes, chunks[1:], strict=False):
        assert size + len(following[0] or "") > limit
    assert text_ends(parts_of(words)).tolist() == np.cumsum([len(w or "") for w in words]).tolist()


@pytest.mark.parametrize("limit", [1, 4, 8, 22, 23, 100])
def test_names_in_chunks(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "CHUNK_BYTES", limit)
    pool, chance = Interner(), random.Random(limit)
    rows = [*WORDS, *chance.choices([*WORDS, None], k=20)]
    codes = np.array([-1 if row is None else pool.code(row) for row in rows], np.int32)
    found = pool.arrays(codes)
    assert pa.chunked_array(found).cast(pa.string()).to_pylist() == rows
    used = [{w for w in chunk.cast(pa.string()).to_pylist() if w is not None} for chunk in found]
    assert all(sum(map(len, words)) <= limit or len(chunk) == 1 for words, chunk in zip(used, found, strict=True))
    assert (len(found) == 1) == (limit >= sum(map(len, WORDS)))


def test_an_interner_grows() -> None:
    pool = Interner()
    assert pool.texts_from(0) is None
    for n in range(1, len(WORDS) + 1):
        assert pool.code(WORDS[n - 1]) == n - 1 == pool.code(WORDS[n - 1])
        data, offsets, count = pool.dictionary()  # type: ignore[misc]
        assert (bytes(data), offsets.tolist(), count) == (
            "".join(WORDS[:n]).encode(), np.cumsum([0, *map(len, WORDS[:n])]).tolist(), n
        )  # fmt: skip
        assert [pool.text(code) for code in range(-1, n)] == [None, *WORDS[:n]]
        for code in range(n):
            texts, ends = pool.texts_from(code)  # type: ignore[misc]
            assert bytes(texts) == "".join(WORDS[code:n]).encode()
            assert ends.tolist() == np.cumsum([*map(len, WORDS[code:n])]).tolist()
        assert pool.texts_from(n) is None
    other = FixedDictionary("e", None, "new", "aa")
    assert pool.absorb(other).tolist() == [5, 7, 0]
    assert pool.find(pa.array(["new", "unknown", ""])).tolist() == [7, -1, 2]
    assert other.codes_of(["aa", None, "e"]).tolist() == [2, -1, 0]
    assert other.codes(np.array([3, 1, 0])).tolist() == [2, -1, 0]


@pytest.mark.parametrize("add", [False, True])
def test_finding_the_texts_of_a_slice(add: bool) -> None:
    texts = pa.array(["a", "", "bb", "ccc", "bb"])
    for begin in range(6):
        for length in range(6 - begin):
            pool = Interner()
            pool.code("bb")
            found = pool.find(texts.slice(begin, length), add=add).tolist()
            wanted = texts.to_pylist()[begin : begin + length]
            assert [pool.text(code) for code in found] == [w if add or w == "bb" else None for w in wanted]


def test_shapes_that_are_added_later() -> None:
    shapes = [
        "f32[4]{0}", "f32[8,128]{1,0:T(8,128)}", "(f32[2]{0}, s8[3]{0:T(128)})", "bf16[3]{0}", "pred[]",
        "f32[7]{0:T(8)}",
    ]  # fmt: skip
    sizes, tiled = [16, 4096, None, 6, 1, 28], [False, True, True, False, False, True]
    for step in (1, 2, 5):
        pools = Interners()
        for begin in range(0, len(shapes), step):
            for shape in shapes[begin : begin + step]:
                pools["shape"].code(shape)
            n = min(begin + step, len(shapes))
            assert pools.tiled_shapes().tolist() == tiled[:n]
            found = pools.shape_sizes()[1].tolist()
            assert [size for size, known in zip(found, sizes, strict=False) if known] == [s for s in sizes[:n] if s]


# -- tables


def test_tables_of_python_rows() -> None:
    """Null and the empty text are different, in columns with few and many distinct texts."""
    for n in (1, 3, 20):
        rows = [
            ("file", i or None, None if i % 2 else i, f"section {i}", "" if i % 3 else "code", "error", "wanted", "")
            for i in range(n)
        ]
        table = table_of_rows("diagnostics", rows)
        assert [tuple(row.values()) for row in table.to_pylist()] == rows
        assert table.schema == schema.TABLES["diagnostics"].arrow
    module: dict[str, Any] = dict.fromkeys(schema.MODULES.names) | {"module_name": "", "complete": True}
    module |= {"understood": True, "consistent": True, "features": "", "n_diagnostics": 0}
    (found,) = table_of_rows("modules", [[*module.values()]]).to_pylist()
    assert {k: found[k] for k in ("module_name", "platform", "features")} == {
        "module_name": "", "platform": None, "features": ""
    }  # fmt: skip
    assert table_of_rows("diagnostics", []).num_rows == 0


@pytest.mark.parametrize("limit", [3, 1000])
def test_tables_of_chunks(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more text than a chunk may hold, columns are divided differently, and have the same rows."""
    monkeypatch.setattr(arrow, "CHUNK_BYTES", limit)
    spec, rows, chunks = schema.TABLES["frames"], 3, []
    pool = Interner()
    for number in range(2):
        columns: list[Any] = []
        for column in spec.columns:
            if column.kind == "int":
                columns.append((np.array([number, NULL if column.nullable else 7, 9]), None))
            else:
                columns.append((np.array([pool.code("abcd"), -1, pool.code(f"{number}")], np.int32), pool))
        chunks.append(Chunk(rows, columns))
    found = table_of("frames", chunks)
    for column in spec.columns:
        expected = [
            value
            for number in range(2)
            for value in (
                [number, None if column.nullable else 7, 9] if column.kind == "int" else ["abcd", None, f"{number}"]
            )
        ]
        plain = pa.int64() if column.kind == "int" else pa.string()
        assert found[column.name].cast(plain).to_pylist() == expected


def test_rows_of_a_batch() -> None:
    batch = Batch(None, {"a": {"text": parts_of(["x", None, "yy"])}, "b": {"n": np.arange(2)}, "c": {}})  # type: ignore[arg-type]
    assert [batch.rows(table) for table in "abcd"] == [3, 2, 0, 0]


def test_the_last_section_of_a_file() -> None:
    file = File(0, "hlo", None, 0, 0)  # type: ignore[arg-type]
    import weakref

    file.sections += [Section("report", weakref.ref(file), i, i + 5, i) for i in range(3)]
    assert [section.last for section in file.sections] == [False, False, True]
    assert [Span(file.sections[1], 1, end).ends_section for end in (5, 6)] == [False, True]


# -- columns that are kept


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
def test_arrays_of_all_lengths_share_a_block(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BLOCK_BYTES", 64)
    blocks = stores._Blocks(np.empty)
    given = [np.arange(n).astype(kind) + n for n in (3, 0, 1, 5, 9, 2, 40, 7)]
    kept = [blocks.copy(array) for array in given]
    assert [k.tolist() for k in kept] == [g.tolist() for g in given]
    assert blocks.copy(np.arange(2)).tolist() == [0, 1]  # aligned after any other


def test_adding_to_narrow_columns() -> None:
    for values in ([1, 2, 300], [-(1 << 62), 1 << 62], [0], [1 << 40, (1 << 40) + 5]):
        narrow = stores.narrow(np.array(values)).plus(1000)
        out = np.empty(len(values), np.int64)
        stores.widen(narrow, out)
        assert out.tolist() == [v + 1000 for v in values]


def test_columns_minus_a_base() -> None:
    """The same from columns that are kept as scanned and from narrow ones: negative numbers and nulls too."""
    for values in ([3, 9, 120], [3, NULL, 7], [1 << 40, 5], [0, 1000]):
        batch = Batch(None, {"t": {"a": np.array(values)}})  # type: ignore[arg-type]
        compact = stores.CompactStore()
        compact.keep("t", batch.tables["t"], ["a"])
        for base in (0, 3, 1000, 1 << 41, -(1 << 41)):
            expected = [v if v == NULL else v - base for v in values]
            assert stores.FullStore([batch]).packed("t", "a", base).tolist() == expected
            assert compact.packed("t", "a", base).tolist() == expected


def test_narrow_columns_are_narrow() -> None:
    for low in (-5, 0, 1 << 50):
        for extent, kind in ((127, np.int8), (128, np.int16), (1 << 15, np.int32), (1 << 31, np.int64)):
            assert stores.narrow(np.array([low, low + extent])).items.dtype == kind


# -- hashes and modules


def test_a_hash_releases_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    evicted: list[tuple[int, int]] = []
    monkeypatch.setattr(hashes, "STEP_BYTES", 4)
    monkeypatch.setattr(hashes, "evict_pages", lambda data, begin, end: evicted.append((begin, end)))
    for data in (b"0123456789", b"01234567", b"01234"):
        evicted.clear()
        assert hashes.evicting_hash(data) == hashes.content_hash(data) == xxhash.xxh3_128_hexdigest(data)
        assert evicted == [(begin, min(begin + 4, len(data))) for begin in range(0, len(data), 4)]
    evicted.clear()
    for data in (b"", b"0", b"0123"):
        assert hashes.evicting_hash(data) == hashes.content_hash(data) == xxhash.xxh3_128_hexdigest(data)
    assert not evicted  # small files are not mapped


def test_a_text_of_one_module() -> None:
    heads = [b"BufferAssignment:\n", b"BufferAssignment (new):\n", b"BufferAssignment stats:\n"]
    lines = [b"x\n", b"\n", b"x ", b"a line of another program\n" * 20, *heads]
    chance = random.Random(3)
    results = set()
    for _ in range(300):
        text = b"".join(chance.choices(lines, k=chance.randrange(6)))
        assert is_one_module(text) == spans.is_one_module(text)
        results.add(is_one_module(text))
    assert results == {False, True}


# -- numbers of reports


def test_sums_that_do_not_overflow() -> None:
    for n in (1, 64, 65, 100):
        for value in (1, -1, 1 << 55, (1 << 63) - 1, -(1 << 62)):
            assert report_checks.total_of(np.full(n, value)) == n * value


def test_sizes_as_xla_prints_them() -> None:
    kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
    for size, text in [
        (0, "0B"), (1, "1B"), (1023, "1023B"), (kib, "1.0KiB"), (kib + 512, "1.5KiB"), (mib - 1, "1024.0KiB"),
        (mib, "1.00MiB"), (3 * mib // 2, "1.50MiB"), (gib - 1, "1024.00MiB"), (gib, "1.00GiB"), (-kib, "-1.0KiB"),
        (1 << 40, "1.00TiB"), (1 << 50, "1.00PiB"), (1 << 60, "1.00EiB"), ((1 << 63) - 1, "8.00EiB"),
        (2049, "2.0KiB"), (2 * mib + 1, "2.00MiB"),
    ]:  # fmt: skip
        assert report_checks.human_size(size) == text


# -- lines


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1 << 20])
def test_lines_with_text(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "BLOCK_SIZE", block)
    chance = random.Random(block)
    for _ in range(60):
        text = b"".join(chance.choices([b"a\n", b"\n", b"bcd\n", b"e"], k=chance.randrange(9)))
        expected, offset = [], 0
        for line in text.splitlines(keepends=True):
            expected += [offset] * (line != b"\n")
            offset += len(line)
        found = [n for part in outline._lines_with_text(text, 0, len(text)) for n in part.tolist()]
        assert found == expected
        assert outline._without_empty_lines(text, 0, len(text)) == min(len(text.rstrip(b"\n")) + 1, len(text)) * bool(
            text.rstrip(b"\n")
        )


@pytest.mark.parametrize("n", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 17, (1 << 17) + 1])
def test_the_end_of_complete_lines(n: int) -> None:
    for text in (b"x" * n, b"\n" + b"x" * n, b"ab\n" + b"x" * n, b"x" * n + b"\n", b"\n\n" + b"x" * n + b"\nx"):
        assert outline._end_of_lines(text) == text.rfind(b"\n") + 1


HEADS = b"""BufferAssignment:
allocation 0: size 8, constant:

Total bytes used: 8 (8B)

Used values:
HloLiveRange (max 2):
  BufferLiveRange:
HloLiveRange not available

"""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 7, 18, 30, 60])
def test_heads_that_are_searched_piece_by_piece(size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same are found as in one piece, and each piece is evicted."""
    evicted: list[tuple[int, int]] = []

    def evict(data: memoryview, begin: int, end: int) -> None:
        assert begin < end
        evicted.append((begin, end))

    monkeypatch.setattr(outline, "evict_pages", evict)
    pool = ThreadPool(threads)
    whole = memoryview(HEADS)
    expected = outline._locate(whole, False, pool)
    words = [b"Buffer", b"Total", b"Used", b"HloLiveRange (", b"HloLiveRange n"]
    assert ([offset for _, offset in expected], evicted) == ([HEADS.index(word) for word in words], [])
    monkeypatch.setattr(outline, "MIN_PIECE_BYTES", 1)
    monkeypatch.setattr(outline, "MAX_PIECE_BYTES", size)
    for text in (whole, whole[:-1], whole[: HEADS.index(b"Used")]):
        evicted.clear()
        assert outline._locate(text, False, pool) == [head for head in expected if head[1] < len(text)]
        begins, ends = zip(*sorted(evicted), strict=True)
        assert (*begins, len(text)) == (0, *ends)
        assert all(text[end - 1] == 10 for end in ends[:-1])
    evicted.clear()
    assert (outline._locate(whole, True, pool), evicted) == (expected[:1], [])


# -- fingerprints


def test_sums_by_group() -> None:
    chance = np.random.default_rng(1)
    for n, groups in ((0, 1), (1, 3), (50, 4), (50, 60)):
        group, values = chance.integers(0, groups, n), chance.integers(-(1 << 62), 1 << 62, n)
        expected = [sum(values[group == g].tolist()) for g in range(groups)]
        for order in (np.arange(n), np.argsort(group, kind="stable")):
            found = _sums(group[order], values[order], groups).tolist()
            assert [f % (1 << 64) for f in found] == [e % (1 << 64) for e in expected]


def test_names_of_modules_without_their_number() -> None:
    names = {"jit_f.12": "jit_f", "jit_f.1.2": "jit_f.1", "a.1.b": "a.1.b", "jit_f": "jit_f", ".1": ""}
    for name, plain in names.items():
        assert without_number(name) == plain
        assert without_counters(name) == plain


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a_inference_step_10411__.86", "a_inference_step"), ("a_inference_step_2_7__", "a_inference_step_2"),
        ("a_inference_mlp_40__XlaMustCompile_true_config_proto_317_executor_type_114_.54", "a_inference_mlp"),
        ("a_inference_step_4", "a_inference_step_4"), ("jit_a_inference_step_4__", "jit_a_inference_step_4__"),
        ("a_inference_step_4__2__", "a_inference_step_4_"), ("a_inference__4__", "a_inference__4__"),
        ("a_inference_a__b_4__", "a_inference_a__b"), ("a_inference_4__", "a_inference_4__"),
        ("a_inference_step_" + "_1__XlaMustCompile_" * 20_000, "a_inference_step_"),
    ],
)  # fmt: skip
def test_names_of_modules_without_counters(name: str, plain: str) -> None:
    """TensorFlow numbers its functions."""
    assert without_counters(name) == plain


# -- diagnostics


@pytest.mark.parametrize("n", [0, 1, 4, 5, 6, 9])
def test_the_rest_of_many_diagnostics_is_counted(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "MAX_ROWS", 5)
    found, file = diagnostics.Diagnostics(), File(0, "hlo", None, 0, 0)  # type: ignore[arg-type]
    for i in range(n):
        assert found.is_full(file, "s", "c") == (i >= 5)
        found.add(file, i, "s", "c", f"{i}")
    assert len(found._items.get((0, "s", "c"), ())) == min(n, 5)
    assert found._overflow.get((0, "s", "c"), 0) == max(n - 5, 0)
    assert found.has_unknown_lines(file, "s") is False


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("seed", range(12))
def test_diagnostics_of_several_files_and_sections(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file lists the first of a code, wherever they are said, and counts the others by section."""
    monkeypatch.setattr(diagnostics, "MAX_ROWS", most)
    chance, found = random.Random(seed), diagnostics.Diagnostics()
    data = b"".join(b"line %d\n" % i for i in range(9))
    files = [File(i, "hlo", Text(data, f"f{i}"), len(data), len(data)) for i in (3, 0, 1)]
    kept: dict[tuple[int, str, str], list[tuple[int | None, str, str, str]]] = {}
    more: dict[tuple[int, str, str], int] = {}
    for i in range((0, 3, 5, 40)[seed % 4]):
        file, section, code = chance.choice(files), chance.choice("st"), chance.choice("cd")
        offset = chance.choice([None, 0, 7, 14, 9, 63])
        key, wanted = (file.ordinal, section, code), f"{chance.randrange(3)}"
        if i % 7 == 6:
            found.count(file, section, code, 2)
            more[key] = more.get(key, 0) + 2
        elif len(items := kept.setdefault(key, [])) == most:
            found.add(file, offset, section, code, wanted)
            more[key] = more.get(key, 0) + 1
        else:
            found.add(file, offset, section, code, wanted)
            items += [item for item in [(offset, section, code, wanted)] if item not in items]
    expected: list[Any] = []
    for ordinal in sorted({key[0] for key in kept}):
        uri, rest = f"f{ordinal}", {key[1:]: n for key, n in more.items() if key[0] == ordinal}
        items = [item for key, items in kept.items() if key[0] == ordinal for item in items]
        for item in sorted(items, key=lambda item: (item[0] is None, item[0] or 0, *item[1:])):
            offset, section, code, wanted = item
            if sum(row[0] == uri and row[4] == code for row in expected) == most:
                rest[section, code] = rest.get((section, code), 0) + 1
            else:
                line = None if offset is None else data[:offset].count(b"\n") + 1
                text = "" if offset is None else data[offset:].split(b"\n")[0].decode()
                expected.append((uri, line, offset, section, code, "warning", wanted, text))
        for (section, code), n in sorted(rest.items()):
            expected.append((uri, None, None, section, "more_diagnostics", "warning", f"{n} more of {code}", ""))
    assert [tuple(row) for row in found.rows()] == expected
    assert found.codes == {key[2] for key in kept}


def test_what_an_interrupted_attempt_added_is_undone() -> None:
    """Also what it added to fields that were known before."""
    data = b"a=1 b=2 a=3\n"
    found, file = diagnostics.Diagnostics(), File(0, "hlo", Text(data, "f"), len(data), len(data))
    gaps = np.array([[-1, 0, 4, 7], [-1, 0, 8, 11]])
    found.add(file, 0, "s", "c", "w")
    found.unknown_fields(file, "s", gaps, (), ())
    expected, unknown = found.rows(), found.unknown_table([file])
    undo = found.save([file])
    found.unknown_fields(file, "s", np.array([[-1, 0, 0, 3]]), (), ())
    found.unknown_lines(file, "s", np.zeros(1, np.int64))
    found.add(file, 4, "s", "c", "w")
    found.count(file, "s", "c", 2)
    found.truncated(file, 3, "s", "more")
    assert (found.rows() == expected, file.truncated) == (False, True)
    undo()
    assert (found.rows(), file.truncated) == (expected, False)
    assert found.unknown_table([file]) == unknown


def test_two_faults_of_a_line() -> None:
    """Each is listed once, in the order of the text."""
    import weakref

    data = b"one\ntwo\n"
    found, file = diagnostics.Diagnostics(), File(0, "hlo", Text(data, "f"), len(data), len(data))
    section = Section("s", weakref.ref(file), 0, len(data), 0)
    found.faults(section, np.array([[0, 4, 1], [0, 0, 1], [0, 0, 0], [0, 0, 1]]))
    first, second = _lines.WANTED[:2]
    assert [(row[2], row[4], row[6]) for row in found.rows()] == [
        (0, "unknown_line", first), (0, "unknown_line", second), (4, "unknown_line", second)
    ]  # fmt: skip


def test_a_truncated_file_is_reported_once() -> None:
    found, file = diagnostics.Diagnostics(), File(0, "hlo", None, 0, 0)  # type: ignore[arg-type]
    for wanted in ("a", "b"):
        found.truncated(file, 3, "s", wanted)
    assert [d.wanted for items in found._items.values() for d in items] == ["a"]
    assert file.truncated


def test_fixed_dictionaries_of_few_texts_are_shared() -> None:
    assert interners.fixed_dictionary("a", None) is interners.fixed_dictionary("a", None)


def test_spans_that_must_be_scanned_in_turn() -> None:
    """Those of the report and of the HLO header carry names over to the next span."""
    shared = {kind for kind, reader in SECTIONS.items() if reader.shares_interners}
    assert shared == {"report", "hlo"}
