"""Dumps with one line changed: the native reader and the slow reader say the same of them."""

from __future__ import annotations

import random

import pytest
from compare import differences
from conftest import DUMPS, label, texts
from fuzz.check import source_of
from fuzz.edits import KINDS, edits, has_section

import xlamem
from xlamem.input.find import Source

PER_DUMP = 3 * len(KINDS)


def shipped() -> list[Source]:
    return [s for s in xlamem.find(DUMPS) if s.bytes_on_disk()]


def check(source: Source, seed: int, count: int) -> None:
    found = []
    for what, members in edits(random.Random(f"{label(source)}/{seed}"), texts(source), count):
        dump = xlamem.read(source_of(members, source.platform), text=True)
        if not has_section(members):
            with pytest.raises(xlamem.DumpError):
                dump.verify()
        elif differing := differences(dump, members):
            found.append("\n    ".join([what, *differing]))
    assert not found, f"{len(found)} of {count} edits:\n" + "\n".join(found[:10])


@pytest.mark.parametrize("source", shipped(), ids=label)
def test_single_line_edits(source: Source) -> None:
    size = sum(map(len, texts(source).values()))
    check(source, 0, PER_DUMP if size < 150_000 else len(KINDS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("source", shipped(), ids=label)
def test_more_single_line_edits(source: Source, seed: int) -> None:
    size = sum(map(len, texts(source).values()))
    check(source, seed, 200 if size < 150_000 else 2 * len(KINDS))
