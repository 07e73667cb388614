"""Find out what was edited between two programs, and which buffers contribute to a difference because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..compute.columns import Ints, Mask
from .interface import Interface
from .matching import Matching
from .rows import Rows

MAX_NAMES = 3
"""Number of names in a clause."""


class Edit(NamedTuple):
    """Something that differs between two programs, and the contributions that it explains."""

    kind: str
    """A key of `schema.EDITS`."""
    text: str
    """What differs, as a clause."""
    claims: Mask
    """The contributions; those that an earlier edit explains do not count."""


class Context:
    """What the rules look at: two programs, and the contributions to their difference."""

    def __init__(self, m: Matching, rows: Rows) -> None:
        self.m, self.rows = m, rows

    @cached_property
    def interface(self) -> Interface:
        return Interface(self.m)

    @property
    def none(self) -> Mask:
        return np.zeros(self.rows.n, bool)


Rule = Callable[[Context], Iterator[Edit]]


def find_edits(m: Matching, rows: Rows) -> tuple[list[Edit], Ints]:
    """Return what differs between two programs, and the edit that explains each contribution, -1 for none."""
    from .program_edits import PROGRAM_RULES
    from .shape_edits import SHAPE_RULES

    context, edits = Context(m, rows), list[Edit]()
    explained = np.full(rows.n, -1, np.int64)
    for rule in (*PROGRAM_RULES[:3], *SHAPE_RULES, *PROGRAM_RULES[3:]):
        for edit in rule(context):
            explained[(explained < 0) & edit.claims] = len(edits)
            edits.append(edit)
    return edits, explained


def listed(names: list[str]) -> str:
    """Return the first names, separated by commas."""
    return ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")


def are(n: int, noun: str) -> str:
    """Return a number and a noun with its verb: `1 argument is`, `2 arguments are`."""
    return f"{n:,} {noun} is" if n == 1 else f"{n:,} {noun}s are"


def largest(names: pa.Array, rows: Ints, sizes: Ints) -> str:
    """Return the names of the largest of these rows."""
    order = rows[np.argsort(-sizes, kind="stable")]
    return listed(names.take(pa.array(order[: MAX_NAMES + 1])).to_pylist())
