"""The native modules, one by one."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import forge
import numpy as np
import oracle
import pyarrow as pa
import pytest

from xlamem import (
    _allocations,
    _hlo,
    _hlo_body,
    _lines,
    _liveness,
    _record,
    _rules,
    _shapes,
    _sweep,
    _usage,
    _values,
)  # fmt: skip
from xlamem._column import Names, hashes, in_order, recode, take
from xlamem.parse import arrays, arrow
from xlamem.parse.arrays import NULL, codes, flags, ints
from xlamem.parse.interners import Interner


def shape_sizes(shapes: list[str]) -> list[tuple[str | None, int | None]]:
    data = "".join(shapes).encode()
    ends = np.cumsum([len(s.encode()) for s in shapes]).astype(np.int64)
    types = Interner()
    kinds, sizes = _shapes.sizes(data, ends, types.names)
    names = types.arrays(codes(kinds))[0].to_pylist()
    return [(t, None if n == NULL else n) for t, n in zip(names, ints(sizes).tolist(), strict=True)]


@pytest.mark.parametrize(
    ("shape", "element", "size"),
    [
        ("f32[2,3]{1,0}", "f32", 24),
        ("pred[]", "pred", 1),
        ("bf16[8,128]{1,0:T(8,128)(2,1)}", "bf16", 2048),
        ("s4[3,5]{1,0}", "s4", 15),
        ("s4[3,5]{1,0:E(4)}", "s4", 8),
        ("u2[9]{0:T(1024)E(2)S(1)}", "u2", 3),
        ("f8e4m3b11fnuz[10]", "f8e4m3b11fnuz", 10),
        ("f4e2m1fn[10]", "f4e2m1fn", 10),
        ("c64[4]", "c64", 32),
        ("c128[4]", "c128", 64),
        ("s64[<=50,2]{1,0}", "s64", 800),
        ("f32[?,2]", "f32", None),
        ("f32[0,0,3]", "f32", 0),
        ("token[]", "token", 0),
        ("opaque[]", "opaque", 8),
        ("()", "tuple", 0),
        ("(f32[2]{0}, (s32[], pred[]), u8[0])", "tuple", 24),
        ("(f32[2]{0}, /*index=5*/f32[1,2]{1,0})", "tuple", 16),
        ("b(f32[4]{0})", "buffer", 16),
        ("<unknown shape>", None, None),
        ("f32[2,3", "f32", None),
        ("mystery[3]", "mystery", None),
        ("b(" * 100_000 + "f32[4]{0}" + ")" * 100_000, "buffer", 16),
        ("c128[1073741824,1073741824]", "c128", None),
        ("c128[536870912,1073741823]", "c128", 16 * 536870912 * 1073741823),
        ("u8[9223372036854775807]", "u8", None),  # more than 18 digits are no number
        ("f32[1073741824,1073741824]{1,0:E(1023)}", "f32", None),
        ("u8[1,100000000000000000]{1,0:E(8)}", "u8", 100_000_000_000_000_000),
        ("u8[49,188232082384791343]", "u8", (1 << 63) - 1),
        ("u8[49,188232082384791344]", "u8", None),
        ("s16[49,94116041192395671]", "s16", (1 << 63) - 50),
        ("s16[50,92233720368547759]", "s16", None),
        ("s4[100,92233720368547758]{1,0:E(1)}", "s4", (1 << 60) - 1),
        ("s4[100,92233720368547759]{1,0:E(1)}", "s4", None),
        ("s4[2]{0:E(4)}", "s4", 1),
        ("s4[3]{0:E(4)}", "s4", 2),
        ("u8[1,100000000000000000]{1,0:E(99999999999)}", "u8", None),
    ],
)
def test_shape(shape: str, element: str | None, size: int | None) -> None:
    assert shape_sizes([shape, shape]) == [(element, size)] * 2


def test_names_are_numbered_in_order_of_appearance() -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase + "0123456789.", k=rng.randrange(40))) for _ in range(5000)]
    words += [f"fusion.{i}" for i in range(3000)] + ["x" * n for n in range(200)]
    rng.shuffle(words)
    words += rng.choices(words, k=5000)
    names = Names()
    seen: dict[str, int] = {}
    for word in words:
        assert names.code(word.encode()) == seen.setdefault(word, len(seen))
    assert len(names) == len(seen)
    data, ends = names.export()
    cuts = [0, *ints(ends).tolist()]
    assert [bytes(data)[a:b].decode() for a, b in pairwise(cuts)] == list(seen)
    other = Names()
    for word in ("new", *words[:50]):
        other.code(word.encode())
    mapped = np.full(len(other), -7, np.int32)
    names.look_up(other, mapped, 0, 20)
    names.look_up(other, mapped, 20, len(other))
    assert not names.add(other, mapped)
    assert mapped[0] == len(seen)
    assert [int(c) for c in mapped[1:]] == [seen[w] for w in dict.fromkeys(words[:50])]


def test_bytes_that_are_not_utf8_are_escaped_once() -> None:
    names = Names()
    first = names.code(b"a\xffb")
    assert names.code(b"a\xffb") == first == names.code(rb"a\xffb")
    data, _ = names.export()
    assert bytes(data) == rb"a\xffb"


@pytest.mark.parametrize(
    "raw", [b"", b"plain", "é│├──".encode(), b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]
)
def test_text_is_valid_utf8(raw: bytes) -> None:
    data, offsets, valid = _values.texts(raw, np.array([0], np.int64), np.array([len(raw)], np.int64))
    escaped = b"".join(
        c.encode() if not 0xDC80 <= ord(c) <= 0xDCFF else rb"\x%02x" % (ord(c) - 0xDC00)
        for c in raw.decode("utf-8", "surrogateescape")
    )
    assert bytes(data) == escaped
    assert codes(offsets).tolist() == [0, len(escaped)]
    assert flags(valid).tolist() == [1]


def test_empty_tables_of_every_section() -> None:
    """pyarrow aborts the process on a null pointer: a column without rows must not be one."""
    pools = tuple(Names() for _ in _values.POOLS)
    _values.scan(b"", 0, 0, pools, False, True)
    _liveness.scan(b"", 0, 0, 0, pools[0], pools[1])
    _usage.scan(b"", 0, 0, pools[0])
    _hlo.scan(b"", 0, pools[0], pools[1])
    _hlo_body.scan(b"", 0, 0, pools[: len(_hlo_body.INTERNERS)])
    assert Interner().arrays(np.empty(0, np.int32))[0].to_pylist() == []
    assert arrow.int_array(np.empty(0, np.int64)).to_pylist() == []


def test_a_span_must_be_whole_lines() -> None:
    with pytest.raises(ValueError, match="newline"):
        _liveness.scan(b"abc", 0, 3, 0, Names(), Names())
    with pytest.raises(ValueError, match="span"):
        _liveness.scan(b"abc\n", 0, 9, 0, Names(), Names())


def test_locate_finds_heads_at_any_place() -> None:
    for shift in (0, 1, 31, 32, 63, 1023, 1024, 1025, 4096):
        text = b"x" * shift + b"\nHloLiveRange (max 3):\n" + b" y\n" * 700 + b"BufferAssignment:\n"
        assert [k for k, _ in _lines.locate(text, False)] == [_lines.LIVE, _lines.ASSIGNMENT]
        assert _lines.locate(text, False)[0][1] == shift + 1


@pytest.mark.parametrize("place", [0, 30, 5000])
def test_uses_unknown_is_found(place: int) -> None:
    text = b"\n positions:\n  a\n uses:\n" * place + b"\n uses are not initialized yet.\n"
    assert _lines.uses_unknown(text, 0, len(text))
    assert not _lines.uses_unknown(b"\n uses:\n  abcdef, operand 0\n" * 100, 0, 2600)


@pytest.mark.parametrize("text", [r"plain", r"p\303\244r \"q\" \\ \'x\' \n\t\101\x41g", r"\8 \x", "\\"])
def test_escapes_of_both_readers(text: str) -> None:
    line = f'HloModule m\n\nFileNames\n1 "{text}"\n\n%f {{\n'.encode()
    _, parts = _hlo.scan(line, len(line), Names(), Names())["files"]
    if text == "\\":  # the quote is escaped: no string
        assert codes(parts[1]).tolist() == [0]
    else:
        assert bytes(parts[0]).decode() == oracle.unescape(text)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40])
def test_a_row_of_many_unknown_fields(n: int) -> None:
    """All of them are kept, or the line is unknown."""
    fields = " ".join(f"k{i}={i} line={i}" for i in range(n))
    text = f"HloModule m\n\nFileLocations\n1 {{line=7 {fields}}}\n\n%f {{\n".encode()
    found = _hlo.scan(text, len(text), Names(), Names())
    gaps = ints(found["gap"]).reshape(-1, 4)[:, 2:].tolist()
    kept = b"".join(text[a:b] for a, b in gaps).decode().split()
    if 2 * n <= 16:
        assert ints(found["locations"]).tolist()[3] == 7
        assert kept == fields.split()
    else:
        assert [_lines.CODES[f[0]] for f in ints(found["faults"]).reshape(-1, 3).tolist()] == ["unknown_line"]
        assert not kept


def test_text_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk of a column holds more text than the limit."""
    words = ["aa", "bbbb", "", "cc", "dddddddd", "e", "ff"]
    data = "".join(words).encode()
    offsets = np.cumsum([0, *map(len, words)]).astype(np.int32)
    whole = pa.chunked_array(arrow.text_arrays((data, offsets, np.ones(7, np.uint8)))).to_pylist()
    monkeypatch.setattr(arrow, "CHUNK_BYTES", 6)
    chunks = arrow.text_arrays((data, offsets, np.ones(7, np.uint8)))
    assert len(chunks) > 2
    assert pa.chunked_array(chunks).to_pylist() == whole == words
    assert all(len("".join(c.to_pylist())) <= 6 or len(c) == 1 for c in chunks)
    pool = Interner()
    place = np.array([pool.code(w) for w in words * 3] + [-1], np.int32)
    arrays = pool.arrays(place)
    assert pa.chunked_array(arrays).cast(pa.string()).to_pylist() == [*words * 3, None]
    assert all(sum(map(len, a.dictionary.to_pylist())) <= 6 or len(a) == 1 for a in arrays)


def record(rows: int, kinds: list[tuple[str, pa.DataType]], columns: list[Any]) -> pa.RecordBatch:
    where = _record.record(rows, columns)
    return pa.RecordBatch._import_from_c(where, pa.schema(kinds))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1001])
def test_a_record_of_columns(n: int) -> None:
    """Every kind of column, with and without nulls, shown to Arrow and let go."""
    number = np.arange(n, dtype=np.int64)
    number[::3] = arrays.NULL
    bits = (np.arange(n) % 7).astype(np.uint8)
    data, offsets = b"ab" * n, np.arange(0, 2 * n + 2, 2, np.int32)
    valid = (np.arange(n) % 5 != 0).astype(np.uint8)
    words = b"xyyzzz", np.array([0, 1, 3, 6], np.int32), 3
    code = (np.arange(n) % 4 - 1).astype(np.int32)
    name = pa.dictionary(pa.int32(), pa.string())
    kinds = [
        ("int", pa.int64()), ("whole", pa.int64()), ("bool", pa.bool_()), ("bit", pa.bool_()),
        ("text", pa.string()), ("name", name), ("no_int", pa.int64()), ("no_text", pa.string()), ("no_name", name),
    ]  # fmt: skip
    columns = [
        (_record.INT, True, number, None), (_record.INT, False, np.arange(n), None),
        (_record.BOOL, False, bits & 1, None), (_record.BOOL, False, (bits, 2), None),
        (_record.TEXT, True, (data, offsets, valid), None), (_record.NAME, True, code, words),
        (_record.INT, True, None, None), (_record.TEXT, True, None, None), (_record.NAME, True, None, words),
    ]  # fmt: skip
    batch = record(n, kinds, columns)
    batch.validate(full=True)
    assert batch["int"].to_pylist() == [None if i % 3 == 0 else i for i in range(n)]
    assert batch["whole"].to_pylist() == list(range(n))
    assert batch["bool"].to_pylist() == [i % 7 % 2 == 1 for i in range(n)]
    assert batch["bit"].to_pylist() == [i % 7 >= 4 for i in range(n)]
    assert batch["text"].to_pylist() == [None if i % 5 == 0 else "ab" for i in range(n)]
    assert batch["name"].to_pylist() == [[None, "x", "yy", "zzz"][i % 4] for i in range(n)]
    assert all(batch[c].null_count == n for c in ("no_int", "no_text", "no_name"))
    held = sys.getrefcount(number)
    del batch
    assert sys.getrefcount(number) < held


@pytest.mark.parametrize("n", [1, 8, 13])
def test_nulls_of_a_record(n: int) -> None:
    """Each place of a bitmap, each bit of a byte, and columns that are not nullable."""
    bits = [(_record.BOOL, False, (np.arange(n, dtype=np.uint8) * 37, bit), None) for bit in range(8)]
    names = b"xy", np.array([0, 1, 2], np.int32), 2
    for null in range(n):
        number, code, valid = np.arange(n), np.zeros(n, np.int32), np.ones(n, np.uint8)
        number[null], code[null], valid[null] = NULL, -1, 0
        text = b"ab" * n, np.arange(0, 2 * n + 2, 2, np.int32), valid
        name = pa.dictionary(pa.int32(), pa.string())
        kinds = [("i", pa.int64()), ("j", pa.int64()), ("n", name), ("t", pa.string())]
        columns = [
            (_record.INT, True, number, None), (_record.INT, False, number, None), (_record.NAME, True, code, names),
            (_record.TEXT, True, text, None),
        ]  # fmt: skip
        batch = record(n, [*kinds, *((f"b{k}", pa.bool_()) for k in range(8))], [*columns, *bits])
        batch.validate(full=True)
        present = [i != null for i in range(n)]
        for nullable in ("i", "n", "t"):
            assert batch[nullable].is_valid().to_pylist() == present
            assert batch[nullable].null_count == 1
        assert (batch["j"].null_count, batch["j"].to_pylist()) == (0, number.tolist())
        for k in range(8):
            assert batch[f"b{k}"].to_pylist() == [bool(i * 37 % 256 >> k & 1) for i in range(n)]


@pytest.mark.parametrize("n", [1, 7, 100])
def test_a_record_refuses_columns_without_their_last_item(n: int) -> None:
    name = b"", np.zeros(n + 1, np.int32), n
    long, short, flags, ends = np.zeros(n, np.int64), np.zeros(n, np.int32), bytes(n), np.zeros(n + 1, np.int32)
    good: list[Any] = [
        (_record.INT, True, long, None), (_record.INT, False, long, None), (_record.BOOL, True, flags, None),
        (_record.BOOL, True, (flags, 3), None), (_record.TEXT, True, (b"", ends, flags), None),
        (_record.NAME, True, short, name),
    ]  # fmt: skip
    kinds = [pa.int64(), pa.int64(), pa.bool_(), pa.bool_(), pa.string(), pa.dictionary(pa.int32(), pa.string())]
    record(n, [(f"c{i}", kind) for i, kind in enumerate(kinds)], good)
    for kind, nullable, value, dictionary in (
        (_record.INT, True, long[1:], None), (_record.INT, True, bytes(8 * n - 1), None),
        (_record.BOOL, True, flags[1:], None), (_record.BOOL, True, (flags[1:], 3), None),
        (_record.TEXT, True, (b"", ends[1:], flags), None), (_record.TEXT, True, (b"", ends, flags[1:]), None),
        (_record.NAME, True, short[1:], name), (_record.NAME, True, bytes(4 * n - 1), name),
        (_record.NAME, True, short, (b"", name[1][1:], n)), (_record.NAME, True, None, (b"", name[1][1:], n)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="shorter"):
            _record.record(n, [*good, (kind, nullable, value, dictionary)])


def test_a_record_refuses_short_columns() -> None:
    short = np.arange(3)
    for column in (
        (_record.INT, True, short, None),
        (_record.BOOL, True, b"abc", None),
        (_record.TEXT, True, (b"", np.zeros(5, np.int32), b"abc"), None),
        (_record.TEXT, True, (b"", np.zeros(4, np.int32), b"abcd"), None),
        (_record.TEXT, True, (b"", np.array([0, 0, 0, 0, 9], np.int32), b"abcd"), None),
        (_record.TEXT, True, (b"ab", np.array([0, 0, 0, 0, 3], np.int32), b"abcd"), None),
        (_record.TEXT, True, (b"ab", np.array([0, 0, 0, 0, -1], np.int32), b"abcd"), None),
        (_record.NAME, True, short.astype(np.int32), (b"", np.zeros(1, np.int32), 0)),
        (_record.NAME, True, np.zeros(4, np.int32), (b"", np.zeros(1, np.int32), 1)),
    ):
        with pytest.raises(ValueError, match=r"must lie|shorter"):
            _record.record(4, [column])
    assert sys.getrefcount(short) < 5


def schedule(data: Any, begin: int, end: int) -> tuple[list[int], list[str]]:
    """Times and names of the lines of a schedule."""
    names = Names()
    found = _liveness.scan(data, begin, end, _liveness.SCHEDULE, names, Names())
    assert not len(found[1])
    text, ends = names.export()
    words = [bytes(text)[a:b].decode() for a, b in pairwise([0, *ints(ends).tolist()])]
    columns = found[0]["schedule"]
    return ints(columns["time"]).tolist(), [words[c] for c in codes(columns["instruction"])]


def test_numbers_and_names_of_every_length() -> None:
    times = [int("1234567890123456789"[:n]) for n in range(1, 20)]
    times += [-t for t in times] + [0, 9, 10, 99, 9999999, 10000000, 99999999, (1 << 63) - 1]
    words = ["x" * (n + 1) for n in range(len(times))]
    text = "".join(f"    {t}:{w}\n" for t, w in zip(times, words, strict=True)).encode()
    assert schedule(text, 0, len(text)) == (times, words)


def test_text_at_the_end_of_a_page() -> None:
    """What is read by 16 or 32 characters reads no page behind the one where the text is."""
    page = mmap.PAGESIZE
    line = b"    1234567:get-tuple-element.12345678901\n"
    with mmap.mmap(-1, 2 * page) as memory:
        for end in range(page - 40, page + 41):
            memory[end - len(line) : end] = line
            assert schedule(memory, end - len(line), end) == ([1234567], ["get-tuple-element.12345678901"])


def fenced(memory: mmap.mmap, text: bytes) -> memoryview:
    """The text, right before a page that cannot be read."""
    size = len(memory) - mmap.PAGESIZE
    memory[size - len(text) : size] = text
    return memoryview(memory)[size - len(text) : size]


@pytest.fixture
def fence() -> Iterator[mmap.mmap]:
    size = 256 << 10
    with mmap.mmap(-1, size + mmap.PAGESIZE) as memory:
        libc = ctypes.CDLL(None, use_errno=True)
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        behind = ctypes.c_void_p(ctypes.addressof(view) + size)
        assert libc.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        yield memory
        assert libc.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 3) == 0
        del view


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect and pages of a known size")
@pytest.mark.parametrize("era", sorted(forge.ERAS))
def test_no_scan_looks_into_the_next_page(era: str, fence: mmap.mmap) -> None:
    """Every prefix of whole lines of every section, up to the end of its page."""
    files = forge.forge(1, era=era, values=10).files
    types = Names()
    for role, text in files.items():
        ends = [i + 1 for i, c in enumerate(text) if c == 10]
        for end in [*ends[:80], *ends[-20:]]:
            data = fenced(fence, text[:end])
            _lines.locate(data, False)
            _lines.two_modules(data)
            _lines.uses_unknown(data, 0, end)
            _allocations.scan(data, 0, end, Names(), Names(), Names())
            _values.scan(data, 0, end, tuple(Names() for _ in _values.POOLS), True, True)
            for kind in range(5):
                _liveness.scan(data, 0, end, kind, Names(), Names())
            _usage.scan(data, 0, end, Names())
            if role == "hlo":
                _hlo.scan(data, end, Names(), Names())
                _hlo_body.scan(data, 0, end, tuple(Names() for _ in _hlo_body.INTERNERS))
            del data
    shape = b"f32[128,256]{1,0:T(8,128)(2,1)E(16)}"
    for n in range(1, len(shape) + 1):
        _shapes.sizes(fenced(fence, shape[:n]), np.array([n]), types)
        names = Names()
        assert names.code(fenced(fence, shape[:n])) == names.code(fenced(fence, shape[:n])) == 0


def used(*texts: str) -> tuple[Any, list[tuple[int, ...]]]:
    """The instructions of records that all have one name, and the faults."""
    record = "<{} a @0>\n positions:\n  a\n uses:\n from instruction: {}\n"
    text = "".join(record.format(i, t) for i, t in enumerate(texts)).encode()
    found = _values.scan(text, 0, len(text), tuple(Names() for _ in _values.POOLS), False, True)
    return found[0]["instructions"], [tuple(r) for r in ints(found[1]).reshape(-1, 3).tolist()]


def test_a_repeated_instruction_is_one_row() -> None:
    one, two = "%a = f32[2]{0} add(%b, %c), kind=kLoop", "%a = f32[2]{0} add(%b, %d), kind=kLoop"
    rows, faults = used(one, one, one)
    assert len(codes(rows["instruction"])) == 1
    assert not faults
    rows, faults = used(one, two, two, one)
    assert len(codes(rows["instruction"])) == 2
    assert [_lines.CODES[f[0]] for f in faults] == ["instruction_differs"]


@pytest.mark.parametrize("size", [1023, 1024, 1025, 2048, 2049, 5000])
def test_a_long_repeat_is_compared_to_its_end(size: int) -> None:
    """Long texts are compared a block at a time. One byte that differs, in whichever block, makes another row."""
    head, end = "%a = f32[2]{0} add(", ")"
    text = head + "x" * (size - len(head) - len(end)) + end
    rows, faults = used(text, text)
    assert len(codes(rows["instruction"])) == 1
    assert not faults
    for k in {len(head), *range(1023, size, 1024), *range(1024, size, 1024), size - 2}:
        if k < size - 1:
            rows, faults = used(text, text[:k] + "y" + text[k + 1 :])
            assert len(codes(rows["instruction"])) == 2, k
            assert [_lines.CODES[f[0]] for f in faults] == ["instruction_differs"], k


def test_each_broken_instruction_is_reported() -> None:
    broken = "%a = f32[2]{0} add(%b, %c"
    rows, faults = used(broken, broken, "%a = f32[2]{0} add(%b), kind=k", broken)
    assert [_lines.CODES[f[0]] for f in faults] == ["unknown_line"] * 3
    assert len({f[1] for f in faults}) == 3
    assert len(codes(rows["instruction"])) == 1


def test_plain_and_other_metadata_say_the_same() -> None:
    """Brackets within make the long way be taken; the columns are the same."""
    plain = '%a = f32[] add(%b), metadata={op_name="x {y" source_file="f.py" source_line=7 other=1}, kind=k'
    rows, faults = used(plain, plain.replace("other=1", "other=(1)"))
    assert [_lines.CODES[f[0]] for f in faults] == ["instruction_differs"]
    for name in ("op_name", "source_file", "kind"):
        column = codes(rows["fusion_kind" if name == "kind" else name]).tolist()
        assert column == [0, 0]
    assert ints(rows["source_line"]).tolist() == [7, 7]
    assert bytes(rows["attributes"][0]) == b"metadata={other=1}metadata={other=(1)}"


@pytest.mark.parametrize("high", [40, 2000, 1 << 62])
def test_rows_by_id(high: int) -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(-high, high, 500)
    wanted = np.concatenate([keys[::3], rng.integers(-high - 9, high + 9, 100)])
    first: dict[int, int] = {}
    for row, key in enumerate(keys.tolist()):
        first.setdefault(key, row)
    assert arrays.Rows(keys)(wanted).tolist() == [first.get(k, -1) for k in wanted.tolist()]
    assert arrays.distinct_of(keys % 5) == [0, 1, 2, 3, 4]
    assert arrays.distinct_of(keys) == sorted(first)
    ids = np.array(list(first), np.int64)
    order = in_order(ids)
    assert codes(order).tolist() == np.argsort(ids).tolist()
    assert in_order(np.array([3, 1, 3])) is None


def test_names_of_two_pools_become_one() -> None:
    ours, theirs, empty = Names(), Names(), Names()
    for word in (b"a", b"b", b"\xff"):
        ours.code(word)
    for word in (b"b", b"c", rb"\xff", b"d"):
        theirs.code(word)
    codes_ = np.empty(4, np.int32)
    ours.look_up(theirs, codes_, 0, 4)
    assert codes_.tolist() == [1, -1, 2, -1]
    assert not ours.add(theirs, codes_)
    assert codes_.tolist() == [1, 3, 2, 4]
    assert ours.code(b"d") == 4
    assert not ours.adopt(theirs)
    assert empty.adopt(ours)
    assert len(empty) == 5
    assert len(ours) == 0
    again = np.empty(5, np.int32)
    ours.look_up(empty, again, 0, 5)
    assert ours.add(empty, again)
    with pytest.raises(IndexError):
        ours.look_up(empty, again, 0, 6)
    with pytest.raises(IndexError):
        ours.add(empty, again[:4])


def test_codes_are_replaced_in_place() -> None:
    text = b"".join(b"allocation %d: size 8, maybe-live-out:\n" % i for i in range(3))
    column = _allocations.scan(text, 0, len(text), Names(), Names(), Names())[0]["allocations"]["parameter_shape"]
    recode(column, np.zeros(0, np.int32), 0)  # nothing but nulls
    assert codes(column).tolist() == [-1, -1, -1]
    line = b"allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
    column = _allocations.scan(line, 0, len(line), Names(), Names(), Names())[0]["allocations"]["parameter_shape"]
    assert codes(column).tolist() == [0]
    with pytest.raises(IndexError):
        recode(column, np.zeros(0, np.int32), 0)
    recode(column, np.array([7], np.int32), 0)
    assert codes(column).tolist() == [7]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps freed blocks for a while")
def test_columns_are_unmapped() -> None:
    """Address space is exact, however busy the machine is: a block that is not freed adds to it with each scan."""
    record = (
        b"<%d fusion.%d @0>\n positions:\n  fusion.%d\n uses:\n"
        b" from instruction: %%fusion.%d = f32[2]{0} add(%%a)\n"
    )
    text = b"".join(record % (i, i, i, i) for i in range(20_000))

    def mapped_pages() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[0])

    assert len(text) > 1 << 20
    pages = []
    for _ in range(20):
        _values.scan(text, 0, len(text), tuple(Names() for _ in _values.POOLS), False, False)
        Names().expect(1 << 20)
        pages.append(mapped_pages())
    assert max(pages[10:]) <= max(pages[:10])


def test_exported_texts_outlive_their_names() -> None:
    """Memory that is handed out again holds what was in it: nothing of it may be seen."""
    for i in range(6):
        names = Names()
        names.expect(10_000 << (i & 1))
        found = [names.code(b"%d" % (7 * k + i)) for k in range(10_000)]
        assert found == list(range(10_000))
        data, _ = names.export()
        del names
        assert bytes(data) == b"".join(b"%d" % (7 * k + i) for k in range(10_000))


def test_offsets_beyond_32_bits() -> None:
    """Texts of more than 4 GB together, of which the offsets say only the lower half."""
    ends = [3 << 30, 3 << 30, (6 << 30) + 5, 9 << 30]
    offsets = np.array([0, *ends], np.int64).astype(np.uint32).view(np.int32)
    assert arrays.text_ends((b"", offsets, np.ones(4, np.uint8))).tolist() == ends


def text_of(names: Names) -> list[str]:
    data, ends = names.export()
    return [bytes(data)[a:b].decode() for a, b in pairwise([0, *ints(ends).tolist()])]


def test_names_based_on_others() -> None:
    """Texts of the base keep their codes, whatever is added to it behind its back; own ones follow."""
    base, plain = Names(), Names()
    for i in range(200):
        base.code(b"name.%d" % i)
    known = base.snapshot()
    names = Names(known)
    assert (len(names), names.n_base) == (200, 200)
    for i in range(5000):  # the base's slots move meanwhile, and it comes to hold other texts with the same codes
        base.code(b"later.%d" % i)
    assert [names.code(b"name.%d" % i) for i in (0, 7, 199)] == [0, 7, 199]
    assert names.code(b"later.3") == 200
    assert [names.code(b"own.%d" % i) for i in range(1000)] == list(range(201, 1201))
    assert [names.code(t) for t in (b"later.3", b"own.999", b"name.7", b"")] == [200, 1200, 7, 1201]
    assert (len(names), names.n_base) == (1202, 200)

    ours = plain
    for text in text_of(base)[:200]:
        ours.code(text.encode())
    ours.code(b"own.5")
    assert not ours.adopt(names)
    place = np.empty(len(names) - names.n_base, np.int32)
    ours.look_up(names, place, 0, len(place))
    assert place[6] == 200
    assert (np.delete(place, 6) == -1).all()
    assert not ours.add(names, place)
    assert [text_of(ours)[c] for c in place[[0, 1, 6, 1001]]] == ["later.3", "own.0", "own.5", ""]
    column = _values.scan(RECORD, 0, len(RECORD), tuple(Names(known) for _ in _values.POOLS), False, True)
    recode(column[0]["uses"]["instruction"], np.array([500, 501], np.int32), 200)
    assert codes(column[0]["uses"]["instruction"]).tolist() == [7, 500]
    with pytest.raises(ValueError, match="have a base"):
        names.snapshot()
    assert len(Names(Names().snapshot())) == 0


RECORD = b"""<1 name.3 @0>
 positions:
  name.3
 uses:
  name.7, operand 0
  new.1, operand 1
 from instruction:%name.3 = f32[] add(%a, %b)
"""


def test_checks_of_columns() -> None:
    rng = np.random.default_rng(0)
    n = 100
    ids, names, indices = np.arange(n) * 2 + 5, *rng.integers(-1, 9, (2, n)).astype(np.int32)
    phis, colors = rng.integers(0, 2, n).astype(np.uint8), rng.integers(0, 3, n)
    order = rng.permutation(n)
    records = [names, indices, phis, colors, ids]
    values = [column[order] for column in records]

    def agree(*other: Any, first: int = 0) -> bool:
        return _rules.agree(np.argsort(order).astype(np.int32), tuple(values), other, first)

    assert agree(*records)
    assert agree(*(c[:0] for c in records))
    assert agree(*(c[5:] for c in records), first=5)
    assert not agree(*records, first=5)
    for k in range(4):
        wrong = list(records)
        wrong[k] = wrong[k].copy()
        wrong[k][70] ^= 1
        assert not agree(*wrong)
    for bad in (ids[::-1].copy(), ids + 1, np.full(n, 1 << 62), np.full(n, -5)):
        assert not agree(*records[:4], bad)
    with pytest.raises(ValueError, match="one length"):
        agree(*records[:4], ids[1:])

    room, place = np.array([10, 20]), np.array([0, 1, -1, 0, 1, 2])
    offset, size = np.array([3, 3, 99, 4, 21, 99]), np.array([7, 18, 99, 7, 0, 99])
    assert ints(_rules.beyond(room, place, offset, size)).tolist() == [1, 3, 4]

    owner, start, end = np.array([0, -1, 2, 2, 9], np.int32), np.array([0, 0, 3, 5, 0]), np.array([4, 9, 5, 9, 9])
    seen = np.zeros(4, np.uint8)
    assert _rules.live_at(5, owner, start, end, np.array([1, 1, 1, 0], np.uint8), seen) == 2
    assert seen.tolist() == [1, 0, 1, 0]
    assert ints(_rules.unseen(np.array([0, 7], np.uint8), np.array([1, 1, 0, 0]), seen)).tolist() == [1]
    assert [_rules.first_gap(np.array(v), 3) for v in ([3, 4, 5], [3, 5], [2])] == [-1, 1, 0]


def test_a_base_may_grow_while_names_are_looked_up() -> None:
    """Slots that the base and its snapshot share come to hold codes that the snapshot does not know."""
    base = Names()
    base.expect(60_000)
    for i in range(10):
        base.code(b"name.%d" % i)
    known = base.snapshot()
    for i in range(50_000):
        base.code(b"later.%d" % i)
    record = b"<%d later.%d @0>\n positions:\n  later.%d\n uses:\n  name.3, operand 0\n"
    text = b"".join(record % (i, i, i) for i in range(900))
    names = Names(known)
    columns = _values.scan(text, 0, len(text), (names, *(Names() for _ in _values.POOLS[1:])), False, True)[0]
    assert codes(columns["records"]["instruction"]).tolist() == list(range(10, 910))
    assert set(codes(columns["uses"]["instruction"]).tolist()) == {3}


@pytest.mark.parametrize("n", [10, 250, 300, 5000])
def test_what_touches_many_others(n: int) -> None:
    """All candidates at one address, changed by one event: the list of those is longer than a small block."""
    start, end = np.zeros(n, np.int64), np.full(n, 2)
    end[0] = 3
    size = np.full(n, 8)
    occupied = np.full(5, 8, np.int64)
    found = ints(_sweep.inside(start, end, start, size, np.ones(n, np.uint8), occupied))
    assert found.tolist() == [8] * n if n > 1 else [0]


def test_sweeps_refuse_addresses_whose_sum_overflows() -> None:
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    far, row = np.array([1 << 62]), np.zeros(1, np.int32)
    for offset, size in ((far, one), (one, far), (np.array([-1]), one), (one, np.array([-1])), (far, far)):
        with pytest.raises(ValueError, match="in its group"):
            _sweep.charge(zero, zero, offset, size)
        with pytest.raises(ValueError, match="in its group"):
            _sweep.covered(row, row, zero, zero, offset, size, zero, np.zeros((1, 1), np.int64))
        with pytest.raises(ValueError, match="in its group"):
            _sweep.inside(zero, zero, offset, size, np.ones(1, np.uint8), one)
    assert ints(_sweep.charge(zero, zero, zero, far)[0]).tolist() == [1 << 62]


def test_what_ends_beyond_its_room() -> None:
    top = (1 << 63) - 1
    room, place = np.array([16, top, -8]), np.array([0, 0, 0, 0, 0, 1, 1, 0, 2, -1])
    offset = np.array([0, 8, 9, top, top, top, 1, -8, 0, top])
    size = np.array([16, 8, 8, 1, top, 1, top, 8, 0, top])
    assert ints(_rules.beyond(room, place, offset, size)).tolist() == [2, 3, 4, 5, 6, 7, 8]
    nulls = np.full(2, NULL)
    assert ints(_rules.beyond(room, place[:2], nulls, nulls)).tolist() == []


@pytest.mark.parametrize("n", [10, 40, 5000])
@pytest.mark.parametrize("bits", [20, 52, 56, 61, 62])
def test_sweeps_of_far_addresses(n: int, bits: int) -> None:
    """Values that do not touch, in any order, all of which are charged in full."""
    rng = np.random.default_rng(0)
    offset = rng.permutation(n) * ((1 << bits) // n)
    size = rng.integers(0, (1 << bits) // n, n)
    charged, alone = _sweep.charge(np.zeros(n, np.int64), np.arange(n), offset, size)
    assert ints(charged).tolist() == size.tolist() == ints(alone).tolist()


def test_hashes_of_texts_stay_inside() -> None:
    out = np.empty(2, np.int64)
    hashes(b"abcd", np.array([0, 4, 4], np.int32), out)
    assert out[1] == 0 != out[0]
    for bad in ([0, 4], [-1, 0, 4], [0, 4, 5]):
        with pytest.raises(IndexError):
            hashes(b"abcd", np.array(bad, np.int32), out)


def test_items_are_taken_by_row() -> None:
    rows = np.array([2, 0, 2], np.int32)
    assert ints(take(np.array([5, 6, 7]), rows)).tolist() == [7, 5, 7]
    assert codes(take(np.array([5, 6, 7], np.int32), rows)).tolist() == [7, 5, 7]
    assert ints(take(np.array([5]), rows[:0])).size == 0
    for bad in ([3], [-1]):
        with pytest.raises(IndexError):
            take(np.array([5, 6, 7]), np.array(bad, np.int32))


COLUMNS = r"""
#include <stdio.h>
#include "columns.h"

typedef struct { xla_buffer a, b, c; } three;
typedef struct { xla_buffer a; long n; } mixed;

int main(void) {
    STRUCT s;
    xla_buffer *last = (xla_buffer *)(void *)(&s + 1) - 1;
    memset(&s, 0, sizeof s);
    if (!xla_reserve_rows(&s, 4)) return 1;
    printf("%zu %d", xla_n_columns(s), xla_reserved(last, 32));
    last->size = last->capacity;
    printf(" %d", xla_reserved(last, 8));
    printf(" %d", last->failed == XLA_UNRESERVED);
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("struct", "checked", "shown"),
    [("three", True, "3 1 0 1"), ("three", False, "3 1 1 0"), ("mixed", True, None)],
)
def test_columns_are_counted_by_the_compiler(tmp_path: Path, struct: str, checked: bool, shown: str | None) -> None:
    """A struct with another member does not compile; a checked build refuses a row that was not reserved."""
    (tmp_path / "columns.c").write_text(COLUMNS)
    native = Path(__file__).parents[2] / "_native"
    flags = ["-D_GNU_SOURCE", f"-DSTRUCT={struct}", f"-I{native}", *(["-DXLAMEM_CHECKED"] if checked else [])]
    built = subprocess.run(
        ["cc", *flags, "columns.c", "-o", "columns"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if shown is None:
        assert built.returncode
        assert "negative" in built.stderr
        return
    assert not built.returncode, built.stderr
    assert subprocess.run([tmp_path / "columns"], capture_output=True, text=True, check=True).stdout == shown
