"""What the rules that find edits look at, and what they return."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ..compute.columns import Ints, Mask, encoded
from ..compute.op_names import matching, scopes
from ..dump import hlo_body
from .instructions import OUTPUT, RESIZED
from .interface import Interface
from .matching import Matching
from .rows import Rows, Shape, ShapePairs, text_matches

CONVERSION = r"(?:^|/)(?:convert_element_type|reduce_precision)$"
"""Operations that convert element types."""
MAX_NAMES = 3
"""Number of names in a clause."""


Evidence = Literal["interface", "names", "buffers", "files"]


class Edit(NamedTuple):
    """Something that differs between two programs, and the contributions that it explains."""

    kind: str
    """A key of `schema.EDITS`."""
    text: str
    """What differs, as a clause."""
    claims: Mask
    """The contributions; those that an earlier edit explains do not count."""
    evidence: Evidence
    """Where the edit was found: a key of `schema.EVIDENCE`."""


class Names(NamedTuple):
    """The op_names of the instructions of a program."""

    codes: Ints
    """By instruction; -1 for none."""
    texts: pa.Array

    def scopes_of(self, pattern: str) -> set[str]:
        """Return the scopes, with folded layers, of the op_names that match."""
        matched = self.texts.filter(pa.array(matching(self.texts, pattern)))
        return {name or "" for name in scopes(matched, fold=True).to_pylist()}

    def count(self, pattern: str) -> int:
        """Return the number of instructions whose op_name matches."""
        return int(text_matches(self.texts, self.codes, pattern).sum())


class Context:
    """What the rules look at: two programs, and the contributions to their difference."""

    def __init__(self, m: Matching, rows: Rows) -> None:
        self.m, self.rows = m, rows

    @cached_property
    def interface(self) -> Interface:
        return Interface(self.m)

    @property
    def none(self) -> Mask:
        """No contribution."""
        return np.zeros(self.rows.n, bool)

    @cached_property
    def _matched(self) -> tuple[Ints, Ints, Ints]:
        """Matched values of A and B, and the larger of their sizes."""
        a = np.flatnonzero(self.m.value >= 0)
        b = self.m.value[a]
        return a, b, np.maximum(self.m.a.size[a], self.m.b.size[b])

    @property
    def matched_bytes(self) -> int:
        return int(self._matched[2].sum())

    @cached_property
    def resized(self) -> list[tuple[Shape, Shape, int]]:
        """Distinct pairs of shapes that differ between values of the same operation, and the bytes of these values."""
        return self._reshaped(np.isin(self.m.rule[self._matched[0]], (OUTPUT, RESIZED)))

    @cached_property
    def reshaped(self) -> list[tuple[Shape, Shape, int]]:
        """Distinct pairs of shapes that differ between matched values, and the bytes of these values."""
        return self._reshaped(np.ones(len(self._matched[0]), bool))

    def _reshaped(self, chosen: Mask) -> list[tuple[Shape, Shape, int]]:
        a, b, size = (column[chosen] for column in self._matched)
        pairs = ShapePairs(self.m.a.value_text("shape", a), self.m.b.value_text("shape", b), size)
        return [(x, y, n) for x, y, n in pairs.weighed() if x != y]

    @cached_property
    def op_names(self) -> tuple[Names, Names]:
        """The op_names of both programs: from the HLO texts, which have those inside fusions, if both are there."""
        a, b = self._instructions("op_name")
        return Names(*a), Names(*b)

    @cached_property
    def opcodes(self) -> tuple[Names, Names]:
        """The opcodes of both programs, likewise."""
        a, b = self._instructions("opcode")
        return Names(*a), Names(*b)

    def _instructions(self, column: str) -> tuple[tuple[Ints, pa.Array], tuple[Ints, pa.Array]]:
        """Return codes and texts of a column of the instructions of both programs."""
        programs = self.m.a, self.m.b
        bodies = [hlo_body(p.tables) for p in programs]
        columns = [body.text(column) for body in bodies if body is not None]
        if len(columns) < 2:
            columns = [p.tables["instructions"][column] for p in programs]
        (codes_a, a), (codes_b, b) = (encoded(column) for column in columns)
        return (codes_a, a.cast(pa.string())), (codes_b, b.cast(pa.string()))



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
