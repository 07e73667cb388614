"""Numbers, names and prose for people."""

from __future__ import annotations

import random
import re
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pytest

from xlamem import errors, formatting
from xlamem.cli.reporters import buffers


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (None, "?"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1048575, "1.00 MiB"),
        (1048576, "1.00 MiB"),
        (-2048, "-2.00 KiB"),
        (999 << 20, "999.00 MiB"),
        (1000 << 20, "0.98 GiB"),
        ((1000 << 20) - 5000, "0.98 GiB"),
        ((1000 << 20) - 6000, "999.99 MiB"),
        (-(1000 << 30), "-0.98 TiB"),
        (1023 << 10, "1.00 MiB"),
        ((1 << 30) - 1, "1.00 GiB"),
        (1 << 60, "1.00 EiB"),
        (1 << 72, "4096.00 EiB"),
    ],
)
def test_sizes_for_people(n: int | None, text: str) -> None:
    assert formatting.size(n) == text


@pytest.mark.parametrize("character", ["a", "é", "│", "😀"])
def test_excerpts_end_between_characters(character: str) -> None:
    n = errors.EXCERPT // len(character.encode())
    for begin in ("", "x", "xy", "xyz"):
        text = errors.excerpt((begin + character * 100).encode())
        assert text in {begin + character * (n - less) + "…" for less in range(4)}
        assert len(text.encode()) <= errors.EXCERPT + len("…".encode())
        assert errors.excerpt((begin + character * (n - 4)).encode() + b"\nnext") == begin + character * (n - 4)
    assert errors.excerpt(b"\x80" * 90) == r"\x80" * (errors.EXCERPT - 3) + "…"


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [(1024, 2048, "1.00 KiB to 2.00 KiB"), (5, 5, "5 B"), (0, 5, "up to 5 B"), (-5, 5, "up to 5 B")],
)
def test_bounds_that_promise_nothing_are_not_shown(lower: int, upper: int, text: str) -> None:
    assert formatting.saving(lower, upper) == text


def test_text_for_terminals() -> None:
    assert formatting.visible("a\x1b[31m\u202eb\ud800") == "a\\x1b[31m\\u202eb\\ud800"
    assert (formatting.visible("a\nb\t"), formatting.one_line("a\nb\t")) == ("a\nb\\t", "a\\nb\\t")
    assert formatting.shorten("abcdefghijkl", 9) == "abcd…ijkl"
    assert formatting.shorten("abc", 9) == "abc"
    assert formatting.shorten("abcde", 3) == "abcde"  # nothing is shortened to less than 9 characters
    assert formatting.wrap_items(["aa", "bb", "cc"], 0, 7) == ["aa, bb,", "cc"]
    assert formatting.wrap_items(["values 12", "uses 3"], 0, 12) == ["values 12,", "uses 3"]
    assert formatting.wrap("needs more than 1.50 GiB of memory", 0, 20) == ["needs more than", "1.50 GiB of memory"]
    assert formatting.align([["a", "1", "x"], ["bcd", "234", ""]], {0, 2}) == ["a      1  x", "bcd  234"]


@pytest.mark.parametrize(
    "texts",
    [
        ["jit(f)/layers_3/mlp/dot_general", "jit(f)/layers_17/mlp/dot_general"],
        [f"/home/u/{d}/models/transformer/layers.py:17" for d in "ab"],
        [f"{'x' * 30}{d}{'y' * 30}" for d in "abc"],
        [f"{'x' * 12}{c}{'z' * 9}{d}{'y' * 40}" for c in "ab" for d in "cd"],
        ["x" * n for n in (5, 19)] + [f"{'q' * 18}a{'r' * 8}", f"{'q' * 18}b{'r' * 8}"],
        [f"{c}{'x' * 20}{d}{'y' * 20}" for c in "ab" for d in "cd"],
        [f"{'x' * 20}{c}{'y' * 20}{d}" for c in "ab" for d in "cd"],
    ],
)
def test_what_differs_is_never_cut_off(texts: list[str]) -> None:
    for limit in (16, 20, 24):
        shortened = formatting.shorten_distinct([*texts, texts[0]], limit)
        assert max(map(len, shortened)) <= limit
        assert len(set(shortened)) == len(texts)
        assert shortened[-1] == shortened[0]
        assert all(s == t for s, t in zip(shortened, texts, strict=False) if len(t) <= limit)
    assert formatting.shorten_distinct(texts, None) == texts


@pytest.mark.parametrize(
    ("begin", "middle", "end", "limit", "shown"),
    [
        ("", "x" * 20, "y" * 20, 16, "{}xxxx…xxxx{}yyyy…"),
        ("x" * 12, "z" * 9, "y" * 40, 16, "…xx{}zz…zz{}yy…"),
        ("x" * 30, "y" * 30, "y" * 40, 4, "…{}…{}…"),
    ],
)
def test_differences_have_as_many_neighbours_as_fit(begin: str, middle: str, end: str, limit: int, shown: str) -> None:
    texts = [f"{begin}{a}{middle}{b}{end}" for a in "ab" for b in "cd"]
    assert formatting.shorten_distinct(texts, limit) == [shown.format(a, b) for a in "ab" for b in "cd"]


@pytest.mark.parametrize(
    ("limit", "shown", "longer"),
    [
        (3, "ab…z", "ab….…"),
        (4, "ab…z", "ab….…"),
        (7, "abc…yz", "ab….…"),
        (9, "abcd…xyz", "abc…z..…"),
        (12, "abcdef…vwxyz", "abcd…yz...…"),
    ],
)
def test_a_text_and_its_continuation_differ_at_the_end_of_the_text(limit: int, shown: str, longer: str) -> None:
    alike = [f"{c}{'x' * 20}{d}{'y' * 20}" for c in "ab" for d in "cd"]
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    for texts, expected in (([alphabet, alphabet + "." * 10], [shown, longer]), (["0123"], ["0123"])):
        assert formatting.shorten_distinct([*texts, *alike], limit)[: len(texts)] == expected


def test_names_too_long_for_a_line_keep_both_ends() -> None:
    """TensorFlow adds a hundred characters to the name of a function."""
    names = [f"{i}.a_inference_{name}_12__XlaMustCompile_{'x' * 90}_.{i}" for i, name in enumerate(("train", "test"))]
    for prefix in ("", "runs/"):
        first, second = formatting.shorten_distinct([prefix + name for name in names], 50)
        assert "_train_" in first
        assert "_test_" in second


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("aaaa/bbbb/cccc/dddd/eeee.py", "…/eeee.py"),
        ("aaaa/bbbb/cccc/dddd/eeee/ffff/gggg.py", "…/gggg.py"),
        (f"a/{'b' * 23}", "…" + "b" * 11),
        (f"a/{'b' * 23}c", f"a/bbbb…{'b' * 4}c"),
        ("b" * 24, "b" * 6 + "…" + "b" * 5),
    ],
)
def test_a_component_of_twice_the_limit_keeps_its_ends(text: str, shown: str) -> None:
    assert formatting.shorten_distinct([text], 12) == [shown]


def test_shortening() -> None:
    assert formatting.shorten_path("jit(f)/layers_3/mlp/dot", 16) == "…/mlp/dot"
    assert formatting.shorten_path("jit(f)/layers_3/mlp/dot", 20) == "…/layers_3/mlp/dot"
    assert formatting.shorten_path("abc", 3) == "abc"
    assert formatting.shorten_path("abc", 2) == "abc"  # nothing is shortened to less than 4 characters
    assert formatting.shorten_path("a" * 30, 10) == "…" + "a" * 9
    assert formatting.plain_shape("(f32[4,8]{1,0:T(8,128)S(1)}, u32[]{:S(2)})") == "(f32[4,8], u32[])"
    row = {"source_file": "/home/user/model/layers.py", "source_line": 17}
    assert buffers.source_line(row) == "/home/user/model/layers.py:17"
    assert buffers.source_line(row, 24) == "…/model/layers.py:17"
    assert buffers.source_line(row, 14) == "layers.py:17"
    assert buffers.source_line({"source_file": None, "source_line": None}, 9) == ""


def test_source_lines() -> None:
    assert formatting.file_line("model/train.py", 41) == "model/train.py:41"
    assert formatting.file_line("model/train.py", 0) == "model/train.py:0"
    assert formatting.file_line("model/train.py", None) == "model/train.py"
    assert formatting.file_line("model/train.py", 41, folder=False) == "train.py:41"
    assert formatting.file_line("C:\\model\\train.py", 41, folder=False) == "train.py:41"
    assert formatting.file_line(None, None) == formatting.file_line("", 1, folder=False) == ""


def test_numbers_for_people() -> None:
    assert [formatting.number(n) for n in (None, 0, -1234567)] == ["?", "0", "-1,234,567"]
    assert [formatting.exact_size(n) for n in (None, 0, 1023)] == ["?", "0 bytes", "1,023 bytes"]
    assert [formatting.exact_size(n) for n in (-1024, 1024)] == ["-1.00 KiB (-1,024 bytes)", "1.00 KiB (1,024 bytes)"]
    assert [formatting.count(n, "file") for n in (0, 1, 2, 1000)] == ["0 files", "1 file", "2 files", "1,000 files"]
    assert [formatting.count(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]
    shares = [formatting.percent(*pair) for pair in ((1, 0), (0, 9), (1, 2000), (1, 2001), (1, 3), (5, 5), (-1, 2))]
    assert shares[:-1] == ["-", "0.0 %", "0.1 %", "<0.1 %", "33.3 %", "100.0 %"]


def test_names_that_do_not_exist() -> None:
    known = ["Values", "allocations"]
    closest = [formatting.closest(name, known) for name in ("values", "ALOCATIONS", "q")]
    assert closest == ["Values", "allocations", None]
    assert formatting.similar("value", known) == "did you mean 'Values'?"
    assert formatting.similar(["value", "q", "allocation"], known) == "did you mean 'Values', 'allocations'?"
    assert formatting.similar("q", known) == "there are Values, allocations"
    assert formatting.similar("q", ["b", "a"]) == "there are b, a"
    assert formatting.similar("q", [], "it has") == "it has none"
    assert formatting.similar(["q", "value"], iter(known)) == "did you mean 'Values'?"
    assert formatting.similar(["q", "r"], iter(known)) == "there are Values, allocations"


def test_text_of_every_length_is_shortened() -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 30)))
    for n in range(31):
        text = letters[:n]
        assert formatting.shorten(text, None) == formatting.shorten_path(text, None) == text
        for limit in range(-1, 33):
            room = max(limit, 9)
            end = (room - 1) // 2
            middle = f"{text[: room - 1 - end]}…{text[n - end :]}" if n > room else text
            assert formatting.shorten(text, limit) == middle
            room = max(limit, 4)
            assert formatting.shorten_path(text, limit) == (f"…{text[n - room + 1 :]}" if n > room else text)


@pytest.mark.parametrize(
    ("text", "path"),
    [("123456789", "…3456789"), ("12/456789", "…/456789"), ("12345/789", "…/789"), ("123456/89", "…3456/89"),
     ("1/3456789", "…3456789"), ("1/3/5/789", "…/5/789")],
)  # fmt: skip
def test_where_a_path_is_cut(text: str, path: str) -> None:
    """At the first of the slashes in the first half of what fits, counted without the ellipsis."""
    assert formatting.shorten_path(text, 8) == path


def test_shapes_without_layouts() -> None:
    chance = random.Random(1)
    for _ in range(200):
        text = "".join(chance.choices("f[1,](){}:", k=chance.randrange(12)))
        depth = [text[:i].count("{") - text[:i].count("}") for i in range(len(text) + 1)]
        if min(depth) < 0 or depth[-1]:
            continue
        plain, n = text, 1
        while n:
            plain, n = re.subn(r"\{[^{}]*\}", "", plain)
        assert formatting.plain_shape(text) == plain
    assert formatting.plain_shape("f32[2]{{1}{0}}x{2}y") == "f32[2]xy"
    assert formatting.plain_shape(None) == formatting.plain_shape("") == ""


def test_wrapped_to_the_width_of_prose() -> None:
    words = ["word"] * 40
    assert formatting.wrap(" ".join(words)) == formatting.wrap(" ".join(words), 0, 80) == [" ".join(["word"] * 16), *[
        " ".join(["word"] * n) for n in (16, 8)
    ]]  # fmt: skip
    for n, n_lines in ((80, 1), (81, 2)):
        assert len(formatting.wrap(f"{'a' * (n - 41)} {'b' * 40}")) == n_lines
        assert len(formatting.wrap_items(["a" * (n - 42), "b" * 40])) == n_lines
    assert formatting.wrap("a well-known word of it", 70) == ["a well-known word of", "it"]
    assert max(map(len, formatting.wrap(" ".join(words), 6))) == 74
    assert max(map(len, formatting.wrap(" ".join(words), 70))) == 19  # there are at least 20 characters
    assert formatting.wrap("a text of twenty char", 70) == ["a text of twenty", "char"]
    assert formatting.wrap("") == [""]
    assert formatting.wrap("a sentence of well-known words", 0, 20) == ["a sentence of", "well-known words"]
    assert formatting.wrap("a well-known word of 5 KiB", 0, 20) == ["a well-known word of", "5 KiB"]
    assert max(map(len, formatting.wrap_items(words))) == 77
    assert max(map(len, formatting.wrap_items(words, 6))) == 71
    assert formatting.wrap_items(["ab", "cdefgh"], 9, 6) == ["ab,", "cdefgh"]
    assert formatting.wrap_items(["a", "all-gather.1"], 0, 8) == ["a,", "all-gather.1"]
    assert formatting.wrap_items([]) == []


def test_paths_are_wrapped_after_a_slash() -> None:
    path = "jit(f)/while/body/closed_call/Block_3/add_any"
    assert formatting.wrap_path(path) == [path]
    assert formatting.wrap_path(path, 0, 40) == ["jit(f)/while/body/closed_call/Block_3/", "add_any"]
    assert formatting.wrap_path(path, 0, len(path)) == [path]
    assert "".join(formatting.wrap_path(path, 20, 40)) == path
    assert formatting.wrap_path("a/" + "b" * 50 + "/c", 0, 20) == ["a/", "b" * 20, "b" * 20, "b" * 10 + "/", "c"]
    assert formatting.wrap_path("none") == ["none"]
    assert formatting.wrap_path("") == [""]


LATE = 253_402_300_800
"""Seconds until the year 10000."""
NANOSECONDS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("kind", "values", "python"),
    [
        (pa.timestamp("s"), [0, LATE, None], [datetime(1970, 1, 1), "10000-01-01 00:00:00", None]),
        (pa.timestamp("s", "Asia/Tokyo"), [LATE], ["10000-01-01 00:00:00"]),
        (pa.date32(), [0, LATE // 86400], [date(1970, 1, 1), "10000-01-01"]),
        (pa.duration("ns"), [1, 1000, None], ["1", timedelta(microseconds=1), None]),
        (pa.time64("ns"), [1, 1000], ["00:00:00.000000001", time(0, 0, 0, 1)]),
        (pa.list_(NANOSECONDS), [[1, None], []], [["1970-01-01 00:00:00.000000001", None], []]),
        (
            pa.struct({"at": NANOSECONDS, "n": pa.int64()}),
            [{"at": 1, "n": 2}],
            [{"at": "1970-01-01 00:00:00.000000001", "n": 2}],
        ),
    ],
)
def test_times_that_python_cannot_represent(kind: pa.DataType, values: list[Any], python: list[Any]) -> None:
    assert formatting.python_values(pa.chunked_array([pa.array(values, kind)])) == python


def test_natural_order() -> None:
    texts = ["night-9", "night-010", "night-10a", "²", "1²3", "night-", "9" * 5000, "night-" + "9" * 5000, "٣", ""]
    found = ["", "night-", "night-9", "night-010", "night-10a", "night-" + "9" * 5000, "²"]
    assert [text for text in sorted(texts, key=formatting.natural_order) if text in found] == found
