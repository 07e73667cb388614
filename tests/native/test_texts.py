"""Texts that differ in little: their codes, their kinds, and what is beside them in the data."""

from __future__ import annotations

import mmap
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest

from xlamem import _shapes, _unknown, _values
from xlamem._column import Names
from xlamem.parse.arrays import NULL, codes, flags, ints
from xlamem.parse.interners import Interner


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15, 16, 17, 24, 29, 30, 31, 32, 33, 40, 63, 64, 65, 200])
def test_names_that_differ_in_one_character(length: int) -> None:
    """Each character counts, at every place, and so does the length."""
    text = bytes(97 + i % 26 for i in range(length))
    texts = [text, *(text[:i] + b"_" + text[i + 1 :] for i in range(length)), text + b"_", text[:-1]]
    for page in (0, 1):  # at the end of a page, texts are compared in another way
        names = Names()
        joined = b" " * page + b"".join(texts)
        assert [names.code(t) for t in texts] == list(range(len(texts)))
        assert [names.code(t) for t in reversed(texts)] == list(reversed(range(len(texts))))
        data, ends = names.export()
        assert bytes(data) == joined[page:]
        assert ints(ends).tolist() == np.cumsum([len(t) for t in texts]).tolist()


def sizes(shapes: list[bytes]) -> list[tuple[int, int | None]]:
    ends = np.cumsum([len(s) for s in shapes]).astype(np.int64)
    kinds, found = _shapes.sizes(b"".join(shapes), ends, (names := Interner()).names)
    texts = [*names.arrays(codes(kinds))[0].to_pylist()]
    return list(zip(texts, [None if n == NULL else n for n in ints(found).tolist()], strict=True))


@pytest.mark.parametrize(
    "shape",
    [
        b"b(f32[4]{0})", b"(f32[2]{0}, (s32[], pred[]), u8[0])", b"s4[3,5]{1,0:E(4)}", b"f32[<=3,2]{1,0:T(8,128)}",
        b"(f32[2]{0}, /*index=5*/f32[1,2]{1,0})", b"token[]",
    ],
)  # fmt: skip
def test_a_shape_ends_where_it_ends(shape: bytes) -> None:
    """Cut at any place, it is the same whatever follows."""
    cuts = [shape[:n] for n in range(len(shape) + 1)]
    alone = [sizes([cut])[0] for cut in cuts]
    for n, cut in enumerate(cuts):
        for after in (shape[n:], b"(f32[2]{0})", b"7]{0}", b"E(4)}"):
            assert sizes([cut, after])[0] == alone[n]
    assert alone[-1][1] is not None


def gaps(*bounds: tuple[int, int, int]) -> np.ndarray:
    return np.array([(0, row, begin, end) for row, begin, end in bounds], np.int64).reshape(-1, 4)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b", word=3", "word"), (b" a.b-12, x", "a.b"), (b"9abc9", "abc"), (b"-.x", "x"), (b"12:34", "NN:NN"),
        (b" (7) ", "(N)"), (b"1" * 30, "N" * 24), (b"()" * 12, "()" * 12), (b"()" * 13, "()" * 12), (b"x1", "x"),
        (b"", ""), (b" ,;:\t", ""), (b"f32[2]", "f"),
    ],
)  # fmt: skip
def test_kinds_of_unknown_text(text: bytes, kind: str) -> None:
    names = Names()
    data = b"<" + text + b"word>"
    (code,) = codes(_unknown.kinds(data, gaps((0, 1, 1 + len(text))), names)).tolist()
    assert code == 0
    assert bytes(names.export()[0]).decode() == kind


def test_unknown_text_is_joined_by_row() -> None:
    data = b"a, b; c:\td"
    out, ends, valid = _unknown.attributes(data, gaps((0, 0, 2), (0, 3, 5), (2, 5, 6), (3, 6, 10), (3, 2, 3)), 5)
    texts = pa.Array.from_buffers(pa.string(), 5, [None, pa.py_buffer(ends), pa.py_buffer(out)])
    assert texts.to_pylist() == ["a, b", "", "", "c:\td", ""]
    assert flags(valid).tolist() == [1, 0, 0, 1, 0]
    with pytest.raises(ValueError, match="lie in the data"):
        _unknown.attributes(data, gaps((0, 3, 2)), 1)
    with pytest.raises(ValueError, match="lie in the data"):
        _unknown.kinds(data, gaps((0, 0, len(data) + 1)), Names())
    _unknown.kinds(data, gaps((0, len(data), len(data))), Names())
    for bad in (gaps((0, -1, 2)), gaps((0, 3, 2)), gaps((0, 0, 99)), np.zeros((1, 3), int), np.zeros((1, 5), int)):
        with pytest.raises(ValueError, match="a gap"):
            _unknown.kinds(data, bad, Names())
        with pytest.raises(ValueError, match="a gap"):
            _unknown.attributes(data, bad, 1)


def test_lines_end_at_their_newline() -> None:
    found = _unknown.line_ends(b"ab\n\ncd", np.array([0, 2, 3, 4, 5]))
    assert ints(found).tolist() == [3, 3, 4, 6, 6]
    for begin in (-1, 6):
        with pytest.raises(ValueError, match="lie in the data"):
            _unknown.line_ends(b"ab\n\ncd", np.array([begin]))


def escaped(raw: bytes) -> bytes:
    """Bytes that are not UTF-8 as \\xNN."""
    text = raw.decode("utf-8", "surrogateescape")
    return b"".join(
        c.encode() if not 0xDC80 <= ord(c) <= 0xDCFF else rb"\x%02x" % (ord(c) - 0xDC00) for c in text
    )


def test_every_start_of_a_character() -> None:
    """All two bytes, and all ends of the ranges of longer sequences, alone and cut."""
    edges = (0x00, 0x2F, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
    texts = [bytes(pair) for pair in product(range(256), repeat=2)]
    texts += [bytes(t) for t in product((0xC2, *range(0xDF, 0xF1)), edges, edges)]
    texts += [bytes(t) for t in product(range(0xEF, 0xF8), edges, (0x7F, 0x80, 0xBF, 0xC0), (0x41, 0x80, 0xBF, 0xC0))]
    texts += [b"\xe2\x82\xac" * n + b"\xff" + b"a" * n for n in range(20)] + [b"a" * n + b"\xc3" for n in range(40)]
    ends = np.cumsum([len(t) for t in texts]).astype(np.int64)
    data, offsets, valid = _values.texts(b"".join(texts), np.concatenate([[0], ends[:-1]]), ends)
    out, cuts = bytes(data), codes(offsets).tolist()
    assert [out[a:b] for a, b in pairwise(cuts)] == [escaped(t) for t in texts]
    assert flags(valid).all()


def test_characters_at_the_end_of_a_page() -> None:
    """There, they are copied one by one."""
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * page) as data:
        for text in (*(bytes([c]) for c in range(256)), *(bytes(t) for t in product((0, 65, 128, 195, 255), repeat=3))):
            data[page - len(text) : page] = text
            found, _, _ = _values.texts(data, np.array([page - len(text)]), np.array([page]))
            assert bytes(found) == escaped(text)


def test_texts_at_two_places() -> None:
    data, other = b"abcabc" + b"x" * 40, b"bcab" + b"x" * 40
    spans = [(a, b) for a in range(5) for b in range(a, 7)] + [(6, 46), (7, 46), (6, 45)]
    others = [(a, b) for a in range(4) for b in range(a, 5)] + [(4, 44), (5, 44), (4, 43)]
    pairs = [(*s, *t) for s in spans for t in others]
    a, b, c, d = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    assert flags(_values.same(data, a, b, other, c, d)).tolist() == [data[i:j] == other[k:m] for i, j, k, m in pairs]
    zero, far = np.zeros(1, np.int64), np.array([47])
    for bad in ((-far, zero, zero, zero), (far, zero, zero, zero), (zero, far, zero, zero), (zero, zero, -far, zero),
                (zero, zero, far, far), (zero, zero, zero, far), (zero, zero, far - 3, zero)):  # fmt: skip
        with pytest.raises(ValueError, match="lie within"):
            _values.same(data, bad[0], bad[1], other, bad[2], bad[3])
    for begin, end in ((-far, zero), (far, zero), (zero, far)):
        with pytest.raises(ValueError, match="lie within"):
            _values.texts(data, begin, end)


def test_lines_of_offsets() -> None:
    data = b"a\n\nbc\n"
    offsets = np.arange(len(data) + 1, dtype=np.int64)
    assert ints(_values.line_starts(data, offsets)).tolist() == [0, 0, 2, 3, 3, 3, 6]
    assert ints(_values.line_starts(b"", offsets[:1])).tolist() == [0]
    for bad in (-1, len(data) + 1):
        with pytest.raises(ValueError, match="lie within"):
            _values.line_starts(data, np.array([0, bad]))
