"""Numbers, names and prose for people."""

from __future__ import annotations

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


def test_text_for_terminals() -> None:
    assert formatting.visible("a\x1b[31m\u202eb\ud800") == "a\\x1b[31m\\u202eb\\ud800"
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


def test_names_too_long_for_a_line_keep_both_ends() -> None:
    """TensorFlow adds a hundred characters to the name of a function."""
    names = [f"{i}.a_inference_{name}_12__XlaMustCompile_{'x' * 90}_.{i}" for i, name in enumerate(("train", "test"))]
    for prefix in ("", "runs/"):
        first, second = formatting.shorten_distinct([prefix + name for name in names], 50)
        assert "_train_" in first
        assert "_test_" in second


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
    assert formatting.file_line("model/train.py", None) == "model/train.py"
    assert formatting.file_line("model/train.py", 41, folder=False) == "train.py:41"
    assert formatting.file_line("C:\\model\\train.py", 41, folder=False) == "train.py:41"
    assert formatting.file_line(None, None) == formatting.file_line("", 1, folder=False) == ""
