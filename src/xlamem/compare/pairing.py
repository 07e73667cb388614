"""Pair the programs of two sides one to one: which program of B is which program of A."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import schema
from ..compute.columns import Ints, Mask, table_of_columns
from ..parse.fingerprints import without_counters
from .programs import Dumps, ProgramEntry, Programs, programs_of
from .sketches import EMPTY, Similarity, Sketches, no_sketches, similarity

MIN_INTERFACE = 0.2
"""Least similarity of two programs with the same interface, if others have it too."""
MIN_NAME = 0.5
"""Least similarity of two programs with the same name and different interfaces, if others have that name too."""
MIN_OTHER = 0.6
"""Least similarity of two programs with different names."""
MIN_UNSCOPED = 0.8
"""The same, if scopes are left out because they may have been renamed too."""
MIN_SHARED = 8
"""Least number of hashes that two programs with different interfaces share, unless they are alone with their name."""

MAX_CANDIDATES = 1 << 20
"""Maximum number of pairs that are compared in a group. Larger groups are cut into parts, in order of compilation."""
MAX_SHARED = 1 << 10
"""A hash that more pairs of programs have in common does not make them candidates."""
MAX_SHARING = 1 << 22
"""Number of pairs that share hashes above which no further hashes are looked at."""
MAX_ROUNDS = 64
"""Rounds of choosing all pairs that are each other's best; then the remaining ones are chosen one by one."""

Key = Callable[[ProgramEntry], Hashable]
Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]


def pair(a: Dumps | Programs, b: Dumps | Programs) -> pa.Table:
    """Pair the programs of A and B.

    A program counts once, however many processes dumped it. Pairs are made in this order: programs with the same
    fingerprints or content; with the same interface; with the same module name; with another name but similar
    instructions. Among several, the most similar are paired first, and equally similar ones in order of compilation
    between the programs that are the same. Programs that cannot be told apart share a row; if only some of them
    changed, these have a row of their own.

    Parameters
    ----------
    a, b
        A directory or another path, a `Source`, a `Dump`, a list of these (which may be empty), a dataset, or
        ``(dataset, {"commit": "abc"})`` for the dumps of a dataset with these labels.

    Returns
    -------
    pyarrow.Table
        The table ``pairs`` of `xlamem.schema.COMPARED`: pairs and gone programs in the order of A, then new ones in the
        order of B. Dumps that cannot be read are rows too, with a problem.

    Raises
    ------
    UsageError
        There is no dump in a path, or no such label in a dataset.
    """
    pairing = Pairing(programs_of(a), programs_of(b))
    pairing.run()
    return pairing.table()


class Pair(NamedTuple):
    """The partner of a program of A."""

    b: int
    how: str
    score: float
    """NaN if it is not known."""
    reason: str


@dataclass(frozen=True)
class _Row:
    """A row of `pairs`: numbers of the programs, and how many dumps there are of each."""

    a: int | None
    b: int | None
    how: str
    score: float
    reason: str
    n_a: int
    n_b: int

    def plus(self, other: _Row) -> _Row:
        return replace(self, n_a=self.n_a + other.n_a, n_b=self.n_b + other.n_b)


class Pairing:
    """The programs of both sides and the pairs found so far."""

    def __init__(self, a: Programs, b: Programs) -> None:
        self.a, self.b = a, b
        self.pairs: dict[int, Pair] = {}
        """By number of the program of A."""
        self.taken: set[int] = set()
        """Numbers of the paired programs of B."""

    def run(self) -> None:
        """Find all pairs."""
        self._pair_same()
        left_a, left_b = self._left()
        self._sketches = _Sketches(self.a, left_a), _Sketches(self.b, left_b)
        self._pair_interfaces()
        self._pair_names()
        self._pair_renamed()
        self._pair_others()

    def table(self) -> pa.Table:
        """Return the table `pairs`."""
        rows = self._rows()
        columns: dict[str, Any] = {
            "how": pa.array([r.how for r in rows], pa.string()),
            "score": pa.array([None if np.isnan(r.score) else round(r.score, 3) for r in rows], pa.float64()),
            "reason": pa.array([r.reason for r in rows], pa.string()),
            **_columns_of("a", self.a, [r.a for r in rows], [r.n_a for r in rows]),
            **_columns_of("b", self.b, [r.b for r in rows], [r.n_b for r in rows]),
        }
        return table_of_columns(schema.COMPARED["pairs"].columns, columns)

    def _rows(self) -> list[_Row]:
        """Return the pairs and the programs without a partner. Programs with equal keys share a row."""
        pairs: list[_Row] = [
            _Row(i, p.b, p.how, p.score, p.reason, self.a[i].occurrences, self.b[p.b].occurrences)
            for i, p in sorted(self.pairs.items())
        ]
        left_a, left_b = self._left()
        pairs += [_Row(i, None, "gone", np.nan, _alone(self.a[i]), self.a[i].occurrences, 0) for i in left_a]
        pairs += [_Row(None, j, "new", np.nan, _alone(self.b[j]), 0, self.b[j].occurrences) for j in left_b]
        rows: dict[Hashable, _Row] = {}
        first: dict[Hashable, Hashable] = {}
        for row in pairs:
            keys = tuple((side, number.key) for side, number in self._sides(row))
            place = first.get(keys[0], keys) if len(keys) == 1 else keys
            rows[place] = rows[place].plus(row) if place in rows else row
            first |= {key: first.get(key, place) for key in keys}
        return sorted(rows.values(), key=lambda r: (r.a is None, r.b if r.a is None else r.a))

    def _sides(self, row: _Row) -> Iterator[tuple[str, ProgramEntry]]:
        if row.a is not None:
            yield "a", self.a[row.a]
        if row.b is not None:
            yield "b", self.b[row.b]

    # -- steps

    def _pair_same(self) -> None:
        """Pair programs with equal keys: first those with the same number on both sides, which give the order."""
        groups_a, groups_b = (_groups(p, range(len(p)), _key) for p in (self.a, self.b))
        uneven = []
        for key in groups_a.keys() & groups_b.keys():
            in_a, in_b = groups_a[key], groups_b[key]
            if len(in_a) == len(in_b):
                for i, j in zip(in_a, in_b, strict=True):
                    self._add_same(i, j)
            else:
                uneven += list(_products(in_a, in_b))
        self._order = _Order(self.pairs, len(self.a), len(self.b))
        candidates = _joined(uneven)
        for i, j, _ in self._best(*candidates, np.ones(len(candidates[0]))):
            self._add_same(i, j)

    def _add_same(self, i: int, j: int) -> None:
        by_content = self.a[i].key[0] in ("content", "id")
        self._add(i, j, 1.0, "same", "same content" if by_content else "same interface and memory behaviour")

    def _pair_interfaces(self) -> None:
        """Pair programs with the same interface. One of several equal programs can be the changed one."""
        left = self._groups_left(_interface, spare=True)
        paired = {self.a[i].key for i in self.pairs}
        alone = {
            k
            for k, (in_a, in_b) in left.items()
            if len(in_a) == len(in_b) == 1 and paired.isdisjoint((self.a[in_a[0]].key, self.b[in_b[0]].key))
        }
        self._pair_groups(left, alone, MIN_INTERFACE, 0, _by_interface)

    def _pair_names(self) -> None:
        """Pair programs with the same module name."""
        sizes = [{k: len(v) for k, v in _groups(p, range(len(p)), _name).items()} for p in (self.a, self.b)]
        left = self._groups_left(_name, spare=False)
        alone = {k for k in left if sizes[0][k] == sizes[1][k] == 1}
        self._pair_groups(left, alone, MIN_NAME, MIN_SHARED, _by_name)

    def _pair_groups(
        self,
        groups: Mapping[Hashable, tuple[list[int], list[int]]],
        alone: Set[Hashable],
        least: float,
        shared: int,
        describe: Callable[[float, int], tuple[str, str]],
    ) -> None:
        """Pair programs of each group that are similar enough; those in groups `alone` need no similarity.

        `describe` returns `how` and `reason` from the score and the number of choices.
        """
        parts = [(k, pair) for k, sides in groups.items() for pair in _products(*sides)]
        i, j = _joined(pair for _, pair in parts)
        found = self._similarity(i, j)
        is_alone = np.repeat([k in alone for k, _ in parts], [len(pair[0]) for _, pair in parts]).astype(bool)
        n = np.repeat([max(map(len, groups[k])) for k, _ in parts], [len(pair[0]) for _, pair in parts])
        choices = dict(zip(i.tolist(), n.tolist(), strict=True))
        good = np.isnan(found.score) | ((found.score > least) & (found.shared >= shared)) | is_alone
        for x, y, s in self._best(i[good], j[good], found.score[good], self._elsewhere(i[good], j[good])):
            self._add(x, y, s, *describe(s, choices[x]))

    def _pair_renamed(self) -> None:
        """Pair programs with the same program_fp: the name or the interface differs."""
        i, j = _joined(p for sides in self._groups_left(_program, spare=False).values() for p in _products(*sides))
        for x, y, s in self._best(i, j, self._similarity(i, j).score):
            self._add(x, y, s, "similar", "another name or interface, but the same memory behaviour (program_fp)")

    def _pair_others(self) -> None:
        """Pair programs with similar instructions."""
        left_a, left_b = self._left(spare=False)
        rows_a, rows_b = _sharing(self._sketches[0].of(left_a), self._sketches[1].of(left_b))
        i, j = np.array(left_a, np.int64)[rows_a], np.array(left_b, np.int64)[rows_b]
        found = self._similarity(i, j)
        score = np.maximum(found.score, found.unscoped)
        good = ((found.score >= MIN_OTHER) | (found.unscoped >= MIN_UNSCOPED)) & (found.shared >= MIN_SHARED)
        for x, y, s in self._best(i[good], j[good], score[good]):
            self._add(x, y, s, "similar", "another name or interface, but similar instructions")

    def _elsewhere(self, i: Ints, j: Ints) -> Mask:
        """Return whether programs are in different folders, relative to the folder of all programs of their side."""
        folders_a, folders_b = self._folders
        elsewhere: Mask = folders_a[i] != folders_b[j]
        return elsewhere

    @cached_property
    def _folders(self) -> tuple[Texts, Texts]:
        return (np.array(self.a.folders(), object), np.array(self.b.folders(), object))

    def _best(self, i: Ints, j: Ints, score: Floats, last: Mask | None = None) -> Iterator[tuple[int, int, float]]:
        """Yield disjoint candidates, best first; unknown scores are last, ties are in order of compilation.

        Candidates in the mask `last` follow all others.
        """
        known = np.where(np.isnan(score), -1, np.round(score, 2))
        last = np.zeros(len(i), bool) if last is None else last
        order = np.lexsort((j, i, self._order.distance(i, j), -known, last))
        i, j, score = i[order], j[order], score[order]
        for _ in range(MAX_ROUNDS):
            if not len(i):
                return
            best_a, best_b = (np.zeros(len(i), bool) for _ in range(2))
            best_a[np.unique(i, return_index=True)[1]] = True
            best_b[np.unique(j, return_index=True)[1]] = True
            best = best_a & best_b
            yield from zip(i[best].tolist(), j[best].tolist(), score[best].tolist(), strict=True)
            rest = ~(np.isin(i, i[best]) | np.isin(j, j[best]))
            i, j, score = i[rest], j[rest], score[rest]
        yield from _greedy(i, j, score)

    # -- helpers

    def _add(self, i: int, j: int, score: float, how: str, reason: str) -> None:
        problems = [f"{side}: {p.problem}" for side, p in (("A", self.a[i]), ("B", self.b[j])) if p.problem]
        self.pairs[i] = Pair(j, how, score, "; ".join([reason, *problems]))
        self.taken.add(j)

    def _left(self, *, spare: bool = True) -> tuple[list[int], list[int]]:
        """Return the programs without a partner; without `spare`, not those equal to one with a partner."""
        left_a = [i for i in range(len(self.a)) if i not in self.pairs]
        left_b = [j for j in range(len(self.b)) if j not in self.taken]
        if spare:
            return left_a, left_b
        keys_a, keys_b = {self.a[i].key for i in self.pairs}, {self.b[j].key for j in self.taken}
        return [i for i in left_a if self.a[i].key not in keys_a], [j for j in left_b if self.b[j].key not in keys_b]

    def _groups_left(self, key: Key, *, spare: bool) -> dict[Hashable, tuple[list[int], list[int]]]:
        """Return the numbers of the programs of both sides without a partner, by the keys that both sides have."""
        left = self._left(spare=spare)
        groups_a, groups_b = (_groups(p, numbers, key) for p, numbers in zip((self.a, self.b), left, strict=True))
        return {k: (in_a, groups_b[k]) for k, in_a in groups_a.items() if k in groups_b}

    def _similarity(self, i: Ints, j: Ints) -> Similarity:
        a, b = self._sketches
        return similarity(a.rows, b.rows, a.row_of[i], b.row_of[j])


class _Sketches:
    """The sketches of those programs of a side that are not paired by their fingerprints."""

    def __init__(self, programs: Programs, numbers: Sequence[int]) -> None:
        self.row_of = np.full(len(programs), -1)
        self.row_of[list(numbers)] = np.arange(len(numbers))
        self.rows: Sketches = programs.sketches(numbers) if numbers else no_sketches(0)

    def of(self, numbers: Sequence[int]) -> Sketches:
        return np.asarray(self.rows[self.row_of[list(numbers)]])


class _Order:
    """The place of each program among the pairs that are the same, on the scale of B."""

    def __init__(self, same: dict[int, Pair], n_a: int, n_b: int) -> None:
        in_a = np.array(sorted(same), np.int64)
        in_b = np.array([same[i].b for i in in_a.tolist()], np.int64)
        fraction, gap = _between(in_a, n_a)
        self.a = np.append(-1, in_b)[gap] + fraction
        in_b.sort()
        fraction, gap = _between(in_b, n_b)
        self.b = np.append(-1, in_b)[gap] + fraction

    def distance(self, i: Ints, j: Ints) -> Floats:
        distance: Floats = np.abs(self.a[i] - self.b[j])
        return distance


def _greedy(i: Ints, j: Ints, score: Floats) -> Iterator[tuple[int, int, float]]:
    """Yield disjoint candidates in their order."""
    taken_i, taken_j = set[int](), set[int]()
    for x, y, s in zip(i.tolist(), j.tolist(), score.tolist(), strict=True):
        if x not in taken_i and y not in taken_j:
            taken_i.add(x)
            taken_j.add(y)
            yield x, y, s


def _between(anchors: Ints, n: int) -> tuple[Floats, Ints]:
    """Return for each of n numbers its place between the anchors around it, from 0 to 1, and how many are before it."""
    numbers = np.arange(n)
    gap = np.searchsorted(anchors, numbers, "right")
    bounds = np.concatenate([[-1], anchors, [n]])
    return (numbers - bounds[gap]) / (bounds[gap + 1] - bounds[gap]), gap


def _by_interface(score: float, choices: int) -> tuple[str, str]:
    return "interface", f"{_choice(score, choices)} with this interface"


def _by_name(score: float, choices: int) -> tuple[str, str]:
    if np.isnan(score):
        return "name", f"{_choice(score, choices)} with this name; the instructions of one of them are not known"
    return "similar", f"{_choice(score, choices)} with this name; the interface differs"


def _choice(score: float, choices: int) -> str:
    if choices == 1:
        return "the only program left"
    return f"{'one, by order,' if np.isnan(score) else 'the most similar'} of {choices:,} programs"


def _alone(program: ProgramEntry) -> str:
    return f"no such program on the other side{f'; {program.problem}' if program.problem else ''}"


def _key(program: ProgramEntry) -> Hashable:
    return program.key if program.key[0] != "row" else None


def _program(program: ProgramEntry) -> Hashable:
    return program.program_fp


def _interface(program: ProgramEntry) -> Hashable:
    return program.interface_fp


def _name(program: ProgramEntry) -> Hashable:
    return without_counters(program.module_name) if program.module_name else None


def _groups(programs: Programs, numbers: Iterable[int], key: Key) -> dict[Hashable, list[int]]:
    """Return the numbers of the programs by key, without those whose key is None."""
    groups: dict[Hashable, list[int]] = {}
    for number in numbers:
        if (value := key(programs[number])) is not None:
            groups.setdefault(value, []).append(number)
    return groups


def _products(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[Ints, Ints]]:
    """Yield all pairs of two lists; if there are more than MAX_CANDIDATES, those of parts in the same order."""
    parts = int(np.ceil(len(a) * len(b) / MAX_CANDIDATES))
    for part_a, part_b in zip(np.array_split(a, parts), np.array_split(b, parts), strict=True):
        yield np.repeat(part_a, len(part_b)), np.tile(part_b, len(part_a))


def _joined(pairs: Iterable[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Concatenate pairs of numbers."""
    i, j = zip((np.empty(0, np.int64),) * 2, *pairs, strict=True)
    return np.concatenate(i), np.concatenate(j)


def _sharing(a: Sketches, b: Sketches) -> tuple[Ints, Ints]:
    """Return the pairs of rows that have a hash in the same bucket in common, unless too many do."""
    keys = np.empty(0, np.int64)
    for x, y in zip(a.T, b.T, strict=True):
        rows_a, rows_b = _equal(x, y)
        keys = np.unique(np.concatenate([keys, rows_a * len(b) + rows_b]))
        if len(keys) > MAX_SHARING:
            break
    return keys // max(len(b), 1), keys % max(len(b), 1)


def _equal(x: npt.NDArray[np.uint32], y: npt.NDArray[np.uint32]) -> tuple[Ints, Ints]:
    """Return the pairs of rows with equal hashes, without those of hashes that more than MAX_SHARED pairs share."""
    order_x, order_y = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    values = np.setdiff1d(np.intersect1d(x, y), [EMPTY])
    begin_x, end_x = (np.searchsorted(x[order_x], values, side) for side in ("left", "right"))
    begin_y, end_y = (np.searchsorted(y[order_y], values, side) for side in ("left", "right"))
    n_y, n = end_y - begin_y, (end_x - begin_x) * (end_y - begin_y)
    n[n > MAX_SHARED] = 0
    value = np.repeat(np.arange(len(values)), n)
    place = np.arange(len(value)) - np.repeat(np.cumsum(n) - n, n)
    return order_x[begin_x[value] + place // n_y[value]], order_y[begin_y[value] + place % n_y[value]]


def _columns_of(side: str, programs: Programs, numbers: Sequence[int | None], dumps: Sequence[int]) -> dict[str, Any]:
    """Return the columns of `pairs` about the programs of one side."""
    rows = [None if n is None else programs[n] for n in numbers]
    columns: dict[str, Any] = {f"program_{side}": numbers, f"occurrences_{side}": [n or None for n in dumps]}
    for name in ("module_name", "module_id", "id", "uri", "device_total", "peak", "problem", "readable"):
        columns[f"{name}_{side}"] = [row and getattr(row, name) for row in rows]
    specs = schema.COMPARED["pairs"]
    return {name: pa.array(values, specs[name].arrow.type) for name, values in columns.items()}
