"""What is looked up in texts, against a few lines of Python: names, values, instructions, headings and lines."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from xlamem import _lines, _liveness, _lookup
from xlamem._column import Names
from xlamem.parse.arrays import NULL, codes, flags, ints


def long(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def short(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


# -- headings and lines

HEADINGS = {
    b"BufferAssignment:": _lines.ASSIGNMENT, b"BufferAssignment (x": _lines.ASSIGNMENT,
    b"Total bytes used: 7": _lines.TOTAL, b"Used values:": _lines.USED, b"Used values (x": _lines.USED,
    b"HloLiveRange (max": _lines.LIVE, b"HloLiveRange not available": _lines.LIVE_UNAVAILABLE,
    b"Allocations sorted by size:": _lines.REPORT_LIST, b"Allocations sorted by size (x": _lines.REPORT_LIST,
    b"Memory Space: x": _lines.SPACE,
}  # fmt: skip
SHORTEST = (17, 18, 17, 12, 13, 14, 26, 27, 28, 14)
"""Characters of each heading that count."""


@pytest.mark.parametrize("before", [b"", b"\n", b"\n\n\n", b"x\n", b" " * 1023 + b"\n", b" " * 1024 + b"\nX\n"])
def test_headings(before: bytes) -> None:
    for (heading, kind), n in zip(HEADINGS.items(), SHORTEST, strict=True):
        found = [(kind, len(before))]
        for text in (heading, heading[:n], heading + b"\n", heading + b"\n\nXyz\n"):
            assert _lines.locate(before + text, False) == _lines.locate(before + text, True) == found, text
        wrong = [heading[:i] + b"~" + heading[i + 1 :] for i in range(n)]
        for text in (*wrong, heading[: n - 1], b" " + heading, b"x" + heading):
            assert _lines.locate(before + text, False) == [], text
        two = before + heading + b"\nz\n" + heading + b"\n" + heading
        second = len(before) + len(heading) + 3
        assert _lines.locate(two, False) == [*found, (kind, second), (kind, second + len(heading) + 1)]
        assert _lines.locate(two, True) == found
    assert _lines.locate(b"", False) == []


@pytest.mark.parametrize("shift", [0, 1, 15, 16, 31, 1007, 1008, 1009, 1023, 1024, 1025, 5000])
def test_two_modules(shift: int) -> None:
    words = b"BufferAssignment"
    for before in (b"x" * shift, b"B" * shift, words[:-1] * shift):
        for between in (b"", b"\n", b"Buffer Assignment\n", b"y" * 1023, b"BufferA" * 300):
            first = len(before)
            n = first + len(words) + len(between)
            assert _lines.two_modules(before + words + between) == (first, n)
            assert _lines.two_modules(before + words + between + words) == (first, n)
            assert _lines.two_modules(before + words + between + words + b"z" * shift) == (first, n)
            assert _lines.two_modules(before + between) == (n - len(words),) * 2
    for n in range(len(words)):
        assert _lines.two_modules(words[:n]) == (n, n)


def test_next_line() -> None:
    for n in range(7):
        for text in (bytes(c) for c in product(b"a\n", repeat=n)):
            for begin, end, prefix in product(range(n + 1), range(n + 1), (b"", b"a", b"aa", b"a\n", b"\n")):
                starts = [i for i in range(begin + 1, end) if text[i - 1] == 10 and text[:end].startswith(prefix, i)]
                assert _lines.next_line(text, begin, end, prefix) == (starts[0] if starts else end)
    for begin, end in ((-1, 1), (0, 3)):
        with pytest.raises(ValueError, match="must lie"):
            _lines.next_line(b"ab", begin, end, b"a")


def test_uses_unknown() -> None:
    """True wherever the line is, if seven characters follow its newline."""
    line = b"\n uses are not initialized yet.\n"
    for shift in (*range(70), 1000, 1023, 1024):
        text = b"x" * shift + line
        assert _lines.uses_unknown(text, 0, len(text))
        assert _lines.uses_unknown(text, shift, shift + 8)
        assert not _lines.uses_unknown(text, shift, shift + 7)
        assert not _lines.uses_unknown(text, shift + 1, len(text))
        assert not _lines.uses_unknown(b"x" * shift + line.replace(b"u", b"x"), 0, len(text))
        assert not _lines.uses_unknown(b"x" * shift + b"\n uses:\n  ab, operand 0\n", 0, shift + 20)
    for begin, end in ((-1, 1), (2, 1), (0, 3)):
        with pytest.raises(ValueError, match="must lie"):
            _lines.uses_unknown(b"ab", begin, end)


def test_find() -> None:
    for n in range(6):
        for text in (bytes(c) for c in product(b"ab", repeat=n)):
            for begin in range(n + 1):
                for end in range(begin, n + 1):
                    for wanted in (b"a", b"b", b"ab", b"aa", b"aab", b"bab"):
                        assert _lookup.find(text, begin, end, wanted) == text.find(wanted, begin, end)
    for begin, end, wanted in ((-1, 1, b"a"), (0, 3, b"a"), (2, 1, b"a"), (0, 2, b"")):
        with pytest.raises(ValueError, match="must lie"):
            _lookup.find(b"ab", begin, end, wanted)


# -- values by name and index

Name = tuple[str, str]
"""Name and index."""
INDICES = ("", "{}", "{0}", "{1}", "{10}", "{0,1}", "{1,0}")


def random_names(rng: random.Random, n: int) -> list[Name]:
    words = [word + "x" * n for word in ("a", "ab", "a.1", "b") for n in (0, 0, 31, 33)]
    return [(rng.choice(words), rng.choice(INDICES)) for _ in range(n)]


def matches(values: list[Name], wanted: list[Name]) -> list[int]:
    """The value of each name: one of the next eight, or the first of all. No index equals {}."""
    known = [(n, i or "{}") for n, i in values]
    found, following = [], 0
    for name in wanted:
        near = [k for k in range(following, min(following + 8, len(known))) if known[k] == name]
        k = near[0] if near else known.index(name) if name in known else -1
        following = k + 1 if k >= 0 else following
        found.append(k)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_live_ranges_find_their_values(seed: int) -> None:
    """By codes, and by places in the text."""
    rng = random.Random(seed)
    values = random_names(rng, rng.choice((0, 1, 5, 9, 30, 70)))
    wanted = [(n, i or "{}") for n, i in random_names(rng, 20)]
    if seed % 3 and values:  # as they are printed, with a few left out
        wanted = [(n, i or "{}") for n, i in values if rng.random() < rng.choice((0.5, 0.95))]
    expected = matches(values, wanted)

    names, indices = Names(), Names()
    indices.code(b"{0}")
    array = indices.code(b"{}")

    def coded(items: list[Name]) -> tuple[Any, Any]:
        return (
            np.array([names.code(n.encode()) for n, _ in items], np.int32),
            np.array([indices.code(i.encode()) if i else -1 for _, i in items], np.int32),
        )

    place = rng.sample(range(len(values)), len(values))  # the rows of the values, in the order of their ids
    table: list[Name] = [("", "")] * len(values)
    ids = np.empty(len(values), np.int64)
    for k, row in enumerate(place):
        table[row], ids[row] = values[k], 100 + 3 * k
    found, rows = _liveness.match(*coded(table), ids, short(*place), *coded(wanted), array)
    assert ints(found).tolist() == [NULL if k < 0 else 100 + 3 * k for k in expected]
    assert codes(rows).tolist() == [-1 if k < 0 else place[k] for k in expected]

    text = "".join(f"<{k} {n}{i} @0>\n" for k, (n, i) in enumerate(values)).encode()
    at = [i for i in range(len(text)) if text[i : i + 1] == b"<"]
    half = text.index(b"\n", len(text) // 2) + 1 if text else 0
    files = _lookup.Files([text[:half], text[half:]])
    records = long(*(i if i < half else (1 << 48) + i - half for i in at))
    places = files.names(records)
    said = [text[(p & ((1 << 48) - 1)) + (half if p >> 48 else 0) :] for p in ints(places).tolist()]
    assert all(s.startswith(f"{n}{i} @".encode()) for s, (n, i) in zip(said, values, strict=True))
    found = _lookup.Values(files, ints(places)).match(names, indices, *coded(wanted))
    assert codes(found).tolist() == expected


def test_values_whose_names_have_one_hash() -> None:
    """Of so many names, about ten pairs have the same 32 bits, whatever the seed of the process."""
    n = 300_000
    names, indices = Names(), Names()
    instructions = np.array([names.code(b"n%d" % k) for k in range(n)], np.int32)
    text = b"".join(b"n%d\n" % k for k in range(n))
    lines = np.append(0, np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))[:-1] + 1)
    values = _lookup.Values(_lookup.Files([text]), lines)
    order = np.arange(n)[::-1]
    found = values.match(names, indices, instructions[order], np.full(n, indices.code(b"{}"), np.int32))
    assert np.array_equal(codes(found), order)


def test_match_refuses_columns_of_other_lengths() -> None:
    one, row, id_ = short(1), short(0), long(5)
    for columns in (
        (one[:0], one, id_, row), (one, one[:0], id_, row), (one, one, id_, row[:0]), (one, one, id_[:0], row),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="one length"):
            _liveness.match(*columns, one, one, 0)
    with pytest.raises(ValueError, match="one length"):
        _liveness.match(one, one, id_, row, one, one[:0], 0)
    for wrong in (-1, 1):
        with pytest.raises(ValueError, match="no such row"):
            _liveness.match(one, one, id_, short(wrong), one, one, 0)
    names, indices = Names(), Names()
    names.code(b"a")
    indices.code(b"{}")
    values = _lookup.Values(_lookup.Files([b"a\n"]), long(0))
    assert codes(values.match(names, indices, short(0), short(0))).tolist() == [0]
    for name, index in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        with pytest.raises(ValueError, match="a code"):
            values.match(names, indices, short(name), short(index))
    with pytest.raises(ValueError, match="one length"):
        values.match(names, indices, short(0), short())


def test_places_of_names() -> None:
    """In values with fields that do not exist yet, too; 0 where none is."""
    lines = [b"<5 ab{1} @0>", b"zz=7 <6 cd>", b"<7 zz=7 ef @1>", b"<x>", b"-", b"<8 g", b"<9 h (phi) @-1> tail"]
    text = b"\n".join(lines) + b"\n"
    at = [0, *(i + 1 for i, c in enumerate(text[:-1]) if c == 10)]
    for number in (0, 2, 63):
        files = _lookup.Files([b"" if i < number else text for i in range(number + 1)])
        found = ints(files.names(long(*(a + (number << 48) for a in at)))).tolist()
        assert [p and text[p & 0xFFFF :][:2] for p in found] == [b"ab", b"cd", b"ef", 0, 0, 0, b"h "]
        assert all(p >> 48 == number for p in found if p)
        for wrong in (len(text) + (number << 48), (number + 1) << 48, -1):
            with pytest.raises(ValueError, match="must lie"):
                files.names(long(wrong))
    assert ints(_lookup.Files([b"<5 ab>"]).names(long(0))).tolist() == [3]
    assert ints(_lookup.Files([b"<5 zz=7 ab"]).names(long(0))).tolist() == [0]
    with pytest.raises(ValueError, match="too many files"):
        _lookup.Files([b""] * 65)


def test_equal_labels() -> None:
    """Names and indices at two places; brackets are braces unless the index is long."""
    index = b"{" + b"1," * 127 + b"1}"
    labels = [
        b"a", b"ab", b"b", b"a{}", b"a[]", b"a{0}", b"a[0]", b"a{1}", b"a{0,1}", b"a{0", b"a[0", b"a.b-c_9",
        b"a" + index,        b"a" + index.replace(b"{", b"[").replace(b"}", b"]"), b"a" + b"{" + b"1," * 126 + b"1}",
        b"a" + b"[" + b"1," * 126 + b"1]", b"a{" + b"11," + b"1," * 125 + b"1}", b"a[" + b"11," + b"1," * 125 + b"1]",
    ]  # fmt: skip

    def parts(label: bytes) -> tuple[bytes, bytes]:
        n = min((label.index(c) for c in (b"{", b"[") if c in label), default=len(label))
        inner = label[n:] if label[-1:] in b"}]" else b""
        return label[:n], inner if len(inner) > 256 else inner.replace(b"[", b"{").replace(b"]", b"}")

    text = b"\n".join(labels) + b"\n" + labels[-1]
    at = [0, *(i + 1 for i, c in enumerate(text) if c == 10)]
    labels.append(labels[-1])
    files = _lookup.Files([text])
    pairs = list(product(range(len(labels)), repeat=2))
    found = flags(files.same_names(long(*(at[i] for i, _ in pairs)), long(*(at[j] for _, j in pairs)))).tolist()
    for (i, j), same in zip(pairs, found, strict=True):
        assert same == (parts(labels[i]) == parts(labels[j])), (labels[i], labels[j])
    with pytest.raises(ValueError, match="as many"):
        files.same_names(long(0), long())


# -- instructions


@pytest.mark.parametrize("seed", range(40))
def test_instructions(seed: int) -> None:
    """Texts of a name, in several files, with ends before the line's, added in parts."""
    rng = random.Random(seed)
    names = [rng.choice(("a", "ab", "abc", "n.1", "n.11", "n.2")) + "x" * rng.choice((0, 0, 30)) for _ in range(8)]
    many = rng.random() < 0.4
    lines = []
    for _ in range(rng.choice((3, 40, 400))):
        body = f"%{rng.choice(names)} = f32[{rng.randrange(60 if many else 3)}] x({'y' * rng.randrange(3)})"
        lines.append((body, rng.choice(("", "", "", "<7 n @0>", " "))))
    texts, places = [""] * 3, []
    for body, after in lines:
        file = rng.randrange(3)
        places.append(((file << 48) + len(texts[file]), (file << 48) + len(texts[file]) + len(body)))
        texts[file] += body + after + "\n"
    seen = _lookup.Texts(_lookup.Files([t.encode() for t in texts]))
    order = sorted(range(len(lines)), key=lambda i: places[i])
    if rng.random() < 0.5:
        rng.shuffle(order)
    known: dict[str, set[str]] = {}
    expected = []
    for i in order:
        body = lines[i][0]
        said = known.setdefault(body.split(" ")[0], set())
        expected.append(_lookup.REPEAT if body in said else _lookup.OTHER if said else _lookup.NEW)
        said.add(body)
    found: list[int] = []
    step = rng.choice((1, 7, 1000))
    for k in range(0, len(order), step):
        part = [places[i] for i in order[k : k + step]]
        found += flags(seen.add(long(*(b for b, _ in part)), long(*(e for _, e in part)))).tolist()
    assert found == expected
    assert len(seen) == sum(map(len, known.values()))
    with pytest.raises(ValueError, match="as many"):
        seen.add(long(0), long())
