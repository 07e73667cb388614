"""The scans of small texts: every edit of every form of line, at any place of a page, and beside any other text."""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from collections.abc import Iterator
from functools import cache

import pytest
import stored
from conftest import every
from scans import BLOCKS, Block, blocks, digest, edits, limits, pools, result, scan, variants

PAGE = mmap.PAGESIZE


@cache
def all_blocks() -> list[Block]:
    return list(blocks())


def of_kind(kind: str) -> list[Block]:
    return [block for block in all_blocks() if block.kind == kind]


def text_of(block: Block) -> bytes:
    return b"".join(line + b"\n" for line in block.lines)


@pytest.mark.parametrize("kind", every(2, BLOCKS))
def test_edits_of_every_form(kind: str) -> None:
    """No column of any scan changes unnoticed. The slow reader and the other tests say which are right."""

    def digests() -> Iterator[tuple[str, str]]:
        for n, block in enumerate(of_kind(kind)):
            texts = [text_of(block), *(text for i in block.new for text in edits(block.lines, i))]
            found = digest(result(kind, text, len(text)) for text in texts)
            yield f"{n} {block.lines[block.new[0]][:40]!r}", f"{found} {digest(variants(kind, texts[0]))}"

    stored.check(f"native/{kind}", digests())


def test_limits() -> None:
    stored.check("native/limits", ((name, digest([result(kind, text, len(text))])) for name, kind, text in limits()))


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_span_is_of_whole_lines(kind: str) -> None:
    text = text_of(of_kind(kind)[0])
    first = text.index(b"\n") + 1
    for begin, end in ((0, len(text)), (first, len(text)), (0, first), (0, 0), (len(text), len(text))):
        scan(kind, text, end, pools(kind), begin if kind != "header" else 0)
    wrong = [(0, len(text) + 1), (0, first - 1), (0, len(text) - 1)]
    for begin, end in [*wrong, (-1, len(text)), (-1, first)] if kind != "header" else wrong:
        with pytest.raises(ValueError, match=r"a span must"):
            scan(kind, text + b"\n" if end <= len(text) else text, end, pools(kind), begin)
    if kind == "body":
        for names in (pools(kind)[1:], [*pools(kind), *pools(kind)[:1]]):
            with pytest.raises(ValueError, match="one interner"):
                scan(kind, text, len(text), names)


@pytest.mark.parametrize("kind", BLOCKS)
def test_what_is_beside_a_text_does_not_count(kind: str) -> None:
    """Steps over many characters at once look behind the text."""
    for block in of_kind(kind):
        text = text_of(block)
        expected = digest([result(kind, text, len(text))])
        for after in (b"a" * 64, b"7" * 64, b"\n" * 64, b'"}' * 32, b", " * 32, b"\xff" * 64):
            assert digest([result(kind, text + after, len(text))]) == expected, block


@pytest.mark.skipif(sys.gettrace() is not None, reason="Cython copies the C strings that traced functions return")
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_page_may_end_anywhere(kind: str) -> None:
    """Characters before the end of a page are read in another way than others; nothing behind the text is read."""
    rng = random.Random(kind)
    pages = mmap.mmap(-1, 24 * PAGE)
    if sys.platform == "linux":
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + 23 * PAGE), PAGE, 0)
    view = memoryview(pages)
    for block in of_kind(kind):
        text = text_of(block)
        expected = digest([result(kind, text, len(text))])
        ends = range(len(text)) if len(text) < 400 else rng.choices(range(len(text)), k=60)
        for begin in [23 * PAGE - len(text), *(12 * PAGE - k for k in ends)]:
            view[begin : begin + len(text)] = text
            assert digest([result(kind, view[begin : begin + len(text)], len(text))]) == expected, block
