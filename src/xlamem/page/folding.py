"""Leave out the least important data of a program that is too large for a page, and say so.

Uses and aliases of the smallest buffers are left out first, then the names of the smallest buffers, then these buffers
themselves. The curves, the bill and all totals stay exact.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ..compute.columns import Ints, Mask, nullable, take
from ..formatting import count, size
from .columns import Encoder
from .model import Aliases, Program, Uses, columns_of, size_as_json
from .texts import compacted

N_AT_PEAKS = 10_000
"""Number of buffers that are in use at a peak, the largest ones, of which nothing is left out."""
BYTES_PER_NAME = 100
"""One buffer for each of so many bytes keeps its names: the others are left out before these lose theirs."""
N_ROUNDS = 8
"""Maximum number of times that more of the same is left out, since what it saves is estimated."""
SPARE = 20_000
"""Bytes that are saved in addition, so that few rounds are needed."""

NAMES = ("op_name", "source", "origin_instruction")
"""Columns of buffers that are names in a wider sense."""


def folded(program: Program, max_bytes: int, encoder: Encoder) -> Program:
    """Return a program of at most about `max_bytes` as JSON: the program itself if it is no larger."""
    encoder.start(columns_of(program))
    folding = _Folding(program, max_bytes // BYTES_PER_NAME, encoder)
    for leave_out in (folding.leave_out_uses, folding.leave_out_names, folding.leave_out_buffers):
        for _ in range(N_ROUNDS):
            excess = size_as_json(folding.program, encoder) - max_bytes
            if excess <= 0:
                return folding.result()
            leave_out(excess + SPARE)
    return folding.result()


class _Folding:
    """A program from which more and more is left out."""

    def __init__(self, program: Program, n_named: int, encoder: Encoder) -> None:
        self.program, self._encoder = program, encoder
        self._least_named = max(n_named, N_AT_PEAKS)
        self._program, self._size = program, program.buffers.size
        """The program with all buffers, and their sizes."""
        n = len(self._size)
        self._row = np.arange(n)
        """Row of each buffer in `program`, -1 if it is left out."""
        self._n_read, self._n_named, self._n_kept = n, n, n
        """Numbers of the first buffers that keep their uses, their names, and a row."""

    @cached_property
    def _order(self) -> Ints:
        """Rows of all buffers, the most important ones first."""
        return _by_importance(self._program)

    def result(self) -> Program:
        """Return the program with sentences about what is left out."""
        notes = [
            (self._n_read, "For {}, the page does not say which instructions read them, nor their aliases."),
            (self._n_named, "The names of {} are left out."),
            (self._n_kept, "Left out: {}. They are in the curves, the bill and all totals."),
        ]
        sentences = [text.format(self._smallest(n)) for n, text in notes if n < len(self._size)]
        return replace(self.program, folded=[*self.program.folded, *sentences])

    def _smallest(self, n: int) -> str:
        largest = int(self._size[self._order[n:]].max(initial=0))
        return f"{count(len(self._size) - n, 'buffer')} of at most {size(largest)}"

    def _first(self, n: int) -> Mask:
        """Return whether each row of the program is one of the n most important buffers."""
        rows = self._row[self._order[:n]]
        first = np.zeros(len(self.program.buffers.size), bool)
        first[rows[rows >= 0]] = True
        return first

    def leave_out_uses(self, excess: int) -> None:
        """Leave out uses and aliases of the smallest buffers."""
        uses, aliases, n = self.program.uses, self.program.aliases, len(self._size)
        weight = np.zeros(n)
        for part in (uses, aliases):
            per_row = size_as_json(part, self._encoder) / max(1, len(part.buffer))
            weight += per_row * np.bincount(part.buffer, minlength=n)
        self._n_read = _n_left(weight[self._order], self._n_read, excess, min(n, N_AT_PEAKS))
        kept = self._first(self._n_read)
        self.program = replace(
            self.program,
            uses=Uses(*(column[kept[uses.buffer]] for column in vars(uses).values())),
            aliases=_aliases(aliases, kept[aliases.buffer], np.arange(n)),
        )

    def leave_out_names(self, excess: int) -> None:
        """Leave out the names of the smallest buffers, and of instructions that define or read none of the others."""
        b, names = self.program.buffers, self.program.instructions.name
        columns = [getattr(b, name) for name in NAMES]
        texts = [names, b.op_name_names, b.source_names]
        total = sum(map(self._encoder.size, [*columns, *texts]))
        n = len(self._size)
        weight = np.full(n, total / max(1, self._n_named))
        self._n_named = _n_left(weight, self._n_named, excess, min(n, self._least_named))
        kept = self._first(self._n_named)
        op_name, op_names = _without(b.op_name, b.op_name_names, kept)
        source, sources = _without(b.source, b.source_names, kept)
        origin = np.where(kept, b.origin_instruction, -1)
        named = np.zeros(len(names) + 1, bool)
        for column in (b.instruction[kept], origin, self.program.uses.instruction, self.program.aliases.instruction):
            named[column] = True
        shown = np.flatnonzero(named[:-1])
        text = pa.concat_arrays([names.take(pa.array(shown)), pa.array([""])])
        place = np.full(len(names), len(shown))
        place[shown] = np.arange(len(shown))
        self.program = replace(
            self.program,
            buffers=replace(
                b, op_name=op_name, op_name_names=op_names, source=source, source_names=sources,
                origin_instruction=origin,
            ),
            instructions=replace(self.program.instructions, name=text.take(pa.array(place))),
        )  # fmt: skip

    def leave_out_buffers(self, excess: int) -> None:
        """Leave out the smallest buffers."""
        b = self.program.buffers
        columns = [c for c in vars(b).values() if _is_column(c)]
        weight = np.full(len(self._size), sum(map(self._encoder.size, columns)) / max(1, len(b.size)))
        self._n_kept = _n_left(weight, self._n_kept, excess, min(len(self._size), N_AT_PEAKS))
        kept = self._first(self._n_kept)
        row = np.where(kept, np.cumsum(kept) - 1, -1)
        uses, aliases = self.program.uses, self.program.aliases
        of_uses = kept[uses.buffer]
        rows: dict[str, Any] = {name: column[kept] for name, column in vars(b).items() if _is_column(column)}
        self.program = replace(
            self.program,
            buffers=replace(b, **rows),
            uses=Uses(row[uses.buffer[of_uses]], uses.instruction[of_uses], uses.step[of_uses]),
            aliases=_aliases(aliases, kept[aliases.buffer], row),
            advice=[a | {"buffer": int(row[a["buffer"]]) if a["buffer"] >= 0 else -1} for a in self.program.advice],
        )
        self._row = np.where(self._row >= 0, row[self._row], -1)


def _is_column(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _by_importance(program: Program) -> Ints:
    """Return the rows of buffers: the largest ones in use at peaks, then the others, largest first."""
    b = program.buffers
    steps = np.array([-1 if s.first_step is None else s.first_step for s in program.spaces], np.int64)
    step = take(steps, program.allocations.space[b.allocation]) if len(b.size) else b.size
    at_peak = (step >= 0) & (b.start >= 0) & (b.start <= step) & (step <= b.end)
    order = np.argsort(-b.size, kind="stable")
    is_first = np.zeros(len(order), bool)
    is_first[order[at_peak[order]][:N_AT_PEAKS]] = True
    return np.concatenate([order[is_first[order]], order[~is_first[order]]])


def _n_left(weight: Any, n: int, excess: int, least: int) -> int:
    """Return how many of the first n rows are left if the last ones, of these weights, are dropped to save `excess`."""
    saved = np.cumsum(weight[least:n][::-1])
    return max(least, n - int(np.searchsorted(saved, excess)) - 1)


def _without(codes: Ints, texts: pa.Array, kept: Mask) -> tuple[Ints, pa.Array]:
    """Return a column of texts that has none in rows that are not kept."""
    return compacted(pa.DictionaryArray.from_arrays(nullable(np.where(kept, codes, -1)), texts))


def _aliases(aliases: Aliases, kept: Mask, row: Ints) -> Aliases:
    """Return the aliases that are kept, with new rows of their buffers."""
    index, names = _without(aliases.shape_index[kept], aliases.shape_index_names, np.ones(int(kept.sum()), bool))
    return Aliases(row[aliases.buffer[kept]], aliases.instruction[kept], index, names)
