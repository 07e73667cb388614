"""Follow each program of a dataset from point to point: which program of a point is which of the points before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import schema
from ..compute.columns import Ints, Mask, groups_of
from ..dump import Dump
from ..parse.fingerprints import without_counters
from ..warehouse import Dataset
from .ordering import in_order
from .pairing import Pairing
from .points import Points
from .programs import ProgramEntry, Programs, read_stored, stored_sketches
from .sketches import Sketches

HOW = tuple(schema.PAIRED)
SAME, NEW = HOW.index("same"), HOW.index("new")
RETURNS = ("same", "interface")
"""How a program must be paired to be one that was missing: others only look alike."""


class Following:
    """Programs followed over all points. A program is a number, in the order in which programs appear."""

    def __init__(self, points: Points, dataset: Dataset) -> None:
        self.points, self.sketches = points, _StoredSketches(dataset)
        n = len(points.point)
        self.program: Ints = np.full(n, -1)
        """Program of each row of `points`."""
        self.how: Ints = np.full(n, NEW)
        """How it was paired with the program before: an index of HOW."""
        self.score: npt.NDArray[np.float64] = np.full(n, np.nan)
        self._last: Ints = np.empty(0, np.int64)
        """Row of each program at the last point at which it was found."""
        self._known: Ints = np.empty(0, np.int64)
        """The last of its rows with fingerprints; without any, its last row."""
        self._begin, self._end = _extent(points.contents.interface[points.content], points.point)
        for point in range(len(points.names)):
            self._follow(point)
        self._merge_copies()

    def _follow(self, point: int) -> None:
        """Pair the programs of a point: first with those of the point before, then with those that were missing."""
        here = self.points.at(point)
        was_here = self.points.point[self._last] == point - 1
        live = np.flatnonzero(was_here)
        self._pair_consecutive(live[np.argsort(self._last[live])], here)
        self._pair_returning(np.flatnonzero(~was_here), here[self.program[here] < 0])
        new = here[self.program[here] < 0]
        self.program[new] = len(self._last) + np.arange(len(new))
        self._last, self._known = np.append(self._last, new), np.append(self._known, new)
        self._advance(here)

    def _advance(self, here: Ints) -> None:
        """Remember the rows of a point."""
        program = self.program[here]
        self._last[program] = here
        content, known = self.points.content, self.points.contents.has_fingerprints
        better = known[content[here]] >= known[content[self._known[program]]]
        self._known[program[better]] = here[better]

    def _pair_consecutive(self, programs: Ints, here: Ints) -> None:
        """Pair programs with equal fingerprints in order, and by `Pairing` those that differ."""
        keys, keys_here = self._keys(self._known[programs]), self._keys(here)
        at_a, at_b = in_order(keys, keys_here)
        changed = [np.setdiff1d(np.arange(len(n)), at) for n, at in ((keys, at_a), (keys_here, at_b))]
        if not len(changed[0]) or not len(changed[1]):
            self._set(here[at_b], programs[at_a])
            return
        open_keys = np.concatenate([keys[changed[0]], keys_here[changed[1]]])
        fixed = ~np.isin(keys[at_a], open_keys)
        self._set(here[at_b[fixed]], programs[at_a[fixed]])
        near = _around(at_a[fixed], changed[0]) | _around(at_b[fixed], changed[1])
        a = np.union1d(np.flatnonzero(np.isin(keys, open_keys)), at_a[fixed][near])
        b = np.union1d(np.flatnonzero(np.isin(keys_here, open_keys)), at_b[fixed][near])
        self._pair(programs[a], here[b])

    def _pair_returning(self, missing: Ints, here: Ints) -> None:
        """Pair programs that were missing with programs that have their fingerprints or interface."""
        if not len(missing) or not len(here):
            return
        contents, rows = self.points.contents, self._known[missing]
        shared = np.zeros((2, max(len(missing), len(here))), bool)
        for of in (contents.key, contents.interface):
            a, b = of[self.points.content[rows]], of[self.points.content[here]]
            shared[0, : len(a)] |= np.isin(a, b) & (a >= 0)
            shared[1, : len(b)] |= np.isin(b, a) & (b >= 0)
        missing, here = missing[shared[0, : len(missing)]], here[shared[1, : len(here)]]
        if len(missing):
            self._pair(missing[np.argsort(self._last[missing])], here, RETURNS)

    def _pair(self, programs: Ints, here: Ints, hows: Sequence[str] = HOW) -> None:
        """Pair programs with rows of a point, by what is known of both."""
        a, b = (_Part(self.points, rows, self.sketches) for rows in (self._known[programs], here))
        pairing = Pairing(a, b)
        pairing.run()
        for i, pair in pairing.pairs.items():
            row = here[pair.b]
            keeps_name = _has_same_name(a[i], b[pair.b])
            if pair.how in hows and (keeps_name or self._is_renamed(self._known[programs[i]], row)):
                self.program[row], self.how[row], self.score[row] = programs[i], HOW.index(pair.how), pair.score

    def _is_renamed(self, before: int, row: int) -> bool:
        """Return whether the old interface never comes back, and the new one was never there before."""
        point, (old, new) = self.points.point[row], self.points.contents.interface[self.points.content[[before, row]]]
        return bool((old < 0 or self._end[old] <= point) and (new < 0 or self._begin[new] >= point))

    def _set(self, rows: Ints, programs: Ints) -> None:
        self.program[rows], self.how[rows], self.score[rows] = programs, SAME, 1

    def _keys(self, rows: Ints) -> Ints:
        return self.points.contents.key[self.points.content[rows]]

    def _merge_copies(self) -> None:
        """Drop programs that cannot be told apart from an earlier one at any of their points, and number the others."""
        n, group = len(self._last), groups_of(self.points.point, self._keys(np.arange(len(self.how))))[1]
        first = np.full(group.max(initial=-1) + 1, n)
        np.minimum.at(first, group, self.program)
        leader = first[group]
        low, high = np.full(n, n), np.full(n, -1)
        np.minimum.at(low, self.program, leader)
        np.maximum.at(high, self.program, leader)
        is_copy = (low == high) & (low != np.arange(n))
        self.kept: Mask = ~is_copy[self.program]
        """Rows of `points` that are not copies."""
        self.occurrences = self._occurrences(group)
        self.program = (np.cumsum(~is_copy) - 1)[self.program]

    def _occurrences(self, group: Ints) -> Ints:
        """Return the number of dumps of each row, with those of its copies added to the first row of the group."""
        out = self.points.occurrences.copy()
        rows = np.flatnonzero(self.kept)
        receiver = np.full(group.max(initial=-1) + 1, -1)
        receiver[group[rows[::-1]]] = rows[::-1]
        copies = np.flatnonzero(~self.kept)
        np.add.at(out, receiver[group[copies]], out[copies])
        return out


def _has_same_name(a: ProgramEntry, b: ProgramEntry) -> bool:
    return without_counters(a.module_name or "") == without_counters(b.module_name or "")


def _extent(codes: Ints, point: Ints) -> tuple[Ints, Ints]:
    """Return the first and the last point at which each code occurs."""
    n = codes.max(initial=-1) + 1
    begin, end = np.full(n, point.max(initial=0)), np.zeros(n, np.int64)
    np.minimum.at(begin, codes[codes >= 0], point[codes >= 0])
    np.maximum.at(end, codes[codes >= 0], point[codes >= 0])
    return begin, end


def _around(fixed: Ints, changed: Ints) -> Mask:
    """Return which of the fixed places are next to a changed one."""
    order = np.sort(fixed)
    at = np.searchsorted(order, changed)
    neighbors = np.concatenate([at[at > 0] - 1, at[at < len(order)]])
    return np.isin(fixed, order[neighbors])


class _Part(Programs):
    """Some programs of a dataset, in this order."""

    def __init__(self, points: Points, rows: Ints, stored: _StoredSketches) -> None:
        self.programs = points.programs(rows)  # each is a program of its own
        self.stored = stored
        self._folders = points.folders_of(rows)

    def folders(self) -> list[str]:
        return self._folders

    def sketches(self, numbers: Sequence[int]) -> Sketches:
        return self.stored.of([self.programs[i].id or "" for i in numbers])

    def read(self, number: int) -> Dump:
        return read_stored(self.stored.dataset, self.programs[number].id)


class _StoredSketches:
    """The sketches of dumps, each read once."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._sketches: dict[str, npt.NDArray[np.uint32]] = {}

    def of(self, ids: Sequence[str]) -> Sketches:
        if unread := sorted({*ids} - self._sketches.keys()):
            rows = stored_sketches(self.dataset, pa.array(unread, pa.string()))
            self._sketches |= zip(unread, rows, strict=True)
        return np.stack([self._sketches[i] for i in ids])
