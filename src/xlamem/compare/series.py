"""The numbers of each program of a dataset over many points, such as commits or nights, and where they jumped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.columns import Ints, Mask, decoded, ints, nullable, table_of_columns, take
from ..errors import UsageError
from ..formatting import count, size
from ..warehouse import Dataset
from .difference import Diff, diff
from .following import HOW, Following
from .points import Order, Points, read_points
from .programs import Path, read_stored
from .verdict import signed

if TYPE_CHECKING:
    from ..display import View

N_ROWS = 10
"""Maximum number of programs that a terminal shows."""
HASH_DIGITS = 7
"""Minimum number of digits of a short hash."""
_HASH = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, repr=False)
class Series:
    """The programs of a dataset over several points. Sizes are in bytes; points are numbered from 0."""

    over: str
    """Key of the label."""
    points: tuple[str, ...]
    """The values of the label, in order."""
    programs: pa.Table
    """Table ``series_programs``: each program; those with the largest changes first."""
    series: pa.Table
    """Table ``series``: the numbers of each program at each point at which it was found."""
    jumps: pa.Table
    """Table ``jumps``: where numbers changed, largest change first."""
    dataset: Dataset = field(compare=False)

    def diff(self, jump: int = 0) -> Diff:
        """Compare the dumps of a program before and after a jump, which is a row of `jumps`.

        Raises UsageError if there is no such row.
        """
        if not 0 <= jump < self.jumps.num_rows:
            raise UsageError(f"no jump {jump}; there are {self.jumps.num_rows:,}")
        (row,) = self.jumps.slice(jump, 1).to_pylist()
        a, b = (read_stored(self.dataset, row[f"content_id_{side}"]) for side in "ab")
        return diff(a, b)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Numbers of programs: all, those that changed, grew, are new, gone, or not known at some point.

        ``same`` are those at all points whose numbers never changed, as far as they are known; ``listed`` the others.
        """
        p, last = self.programs, len(self.points) - 1
        changed, new = pc.is_valid(p["jump"]), pc.greater(p["ordinal_first"], 0)
        gone = pc.less(p["ordinal_last"], last)
        masks = {
            "changed": changed,
            "grown": grew(p),
            "new": new,
            "gone": gone,
            "listed": pc.or_(changed, pc.or_(new, gone)),
        }
        counts = {name: pc.sum(mask).as_py() or 0 for name, mask in masks.items()}
        counts["unknown"] = pc.count_distinct(self.unknown["program"]).as_py()
        return {"programs": p.num_rows, **counts, "same": p.num_rows - counts["listed"]}

    @cached_property
    def unknown(self) -> pa.Table:
        """The rows of `series` with a number that is not known."""
        return pc.filter(self.series, pc.or_(pc.is_null(self.series["device_total"]), pc.is_null(self.series["peak"])))

    @cached_property
    def short_points(self) -> list[str]:
        """The points; if all are hashes, as few of their first digits as tell them apart, but at least 7."""
        length = HASH_DIGITS
        if all(map(_HASH.fullmatch, self.points)):
            while len({name[:length] for name in self.points}) < len(self.points):
                length += 1
            return [name[:length] for name in self.points]
        return list(self.points)

    @property
    def summary(self) -> str:
        """How many programs changed, in a sentence."""
        last, n = len(self.points) - 1, self.counts
        where = f"{self.over} {self.short_points[0]}{f' to {self.short_points[-1]}' if last else ''}"
        text = f"{count(n['programs'], 'program')} at {count(last + 1, 'point')} ({where})"
        if not last:
            return f"{text}: a single point cannot be compared."
        parts = [f"{n['changed']:,} changed{f' ({n_grown:,} grew)' if (n_grown := n['grown']) else ''}"]
        parts += [f"{n[how]:,} {how}" for how in ("new", "gone") if n[how]]
        parts += [f"{n['unknown']:,} not known at some points"] if n["unknown"] else []
        return f"{text}: {', '.join(parts)}, {n['same']:,} without a {'known ' if n['unknown'] else ''}change."

    @property
    def has_grown(self) -> bool:
        """Whether a program needs more at the last point at which it is known than at the first: `grew`."""
        return self.counts["grown"] > 0

    @property
    def is_known(self) -> bool:
        """Whether the numbers of all programs at the first and the last point are known."""
        return not pc.any(pc.is_in(self.unknown["ordinal"], pa.array([0, len(self.points) - 1]))).as_py()

    def rows(self, program: int) -> pa.Table:
        """Return the rows of `series` of a program."""
        first, end = np.searchsorted(self._numbers, [program, program + 1]).tolist()
        return self.series.slice(first, end - first)

    def first(self, n: int) -> pa.Table:
        """Return the rows of `series` of the first n programs."""
        return self.series.slice(0, int(np.searchsorted(self._numbers, n)))

    @cached_property
    def _numbers(self) -> Ints:
        return ints(self.series, "program")

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import Grid, View  # not needed to compute

        jumps = pc.filter(self.programs, pc.is_valid(self.programs["jump"]))
        rows = [
            [row["module_name"] or "", size(row["device_total_first"]), size(row["device_total_last"]),
             *(self.short_points[jump[f"ordinal_{side}"]] for side in "ab"),
             signed(jump["change"]), signed(jump["peak_change"] or 0)]
            for row in jumps.slice(0, N_ROWS).to_pylist()
            for jump in self.jumps.slice(row["jump"], 1).to_pylist()
        ]  # fmt: skip
        more = jumps.num_rows - len(rows)
        note = f"and {count(more, 'more program')}: the attribute programs has all" if more > 0 else ""
        headings = ["program", "must fit: first", "last", "largest jump: from", "to", "change", "peak"]
        grids = (Grid(headings, rows, frozenset((1, 2, 5, 6)), note),) if rows else ()
        return View(f"xlamem.Series: {self.summary}", grids)


def series(
    dataset: Dataset | Path, over: str, *, labels: Mapping[str, str] | None = None, order: Order | None = None
) -> Series:
    """Follow each program of a dataset over the values of a label, such as commits or nights.

    Programs are followed from point to point as `pair` pairs them. One that is missing at some points and then found
    again with the same fingerprints, or with the same interface, is the same program. Programs that cannot be told
    apart at any point count once.

    Parameters
    ----------
    dataset
        A `Dataset`, or its directory or URI.
    over
        Key of the label whose values are the points.
    labels
        Other labels that the runs must have, such as ``{"branch": "main"}``.
    order
        ``"seen"``: the points are in the order in which `convert` first found a dump with the label; ``"name"``: in the
        order of their values, with numbers compared as numbers. By default, dates (2025-01-31, 20250131) are ordered by
        name, and other values as seen.

    Returns
    -------
    Series
        Tables of `xlamem.schema.COMPARED`, in bytes.

    Raises
    ------
    UsageError
        There is no dataset, or it has no such label.
    """
    if order not in (None, "seen", "name"):
        raise UsageError(f"order must be 'seen' or 'name', not {order!r}")
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    points = read_points(opened, over, labels or {}, order)
    rows = _Rows(points, Following(points, opened))
    jumps, largest = _jumps(rows)
    programs, number = _programs(rows, jumps, largest)
    jumps = jumps.set_column(0, jumps.schema.field(0), pa.array(number[ints(jumps, "program")]))
    return Series(over, points.names, programs, _series(rows, number), jumps, opened)


def grew(programs: pa.Table) -> pa.ChunkedArray:
    """Return which programs of `series_programs` grew: more must fit, or is in use at the peak, than at first."""
    known = [pc.greater(programs[f"{n}_last"], programs[f"{n}_first"]) for n in ("device_total", "peak")]
    return pc.fill_null(pc.or_kleene(*known), False)


class _Rows:
    """The rows of the table `series`, by program and point."""

    def __init__(self, points: Points, following: Following) -> None:
        kept = np.flatnonzero(following.kept)
        rows = kept[np.lexsort((points.point[kept], following.program[kept]))]
        self.names = pa.array(points.names, pa.string())
        self.texts = points.contents.table
        self.program, self.ordinal = following.program[rows], points.point[rows]
        self.content, self.module_id = points.content[rows], points.module_id[rows]
        self.total, self.peak = (n[self.content] for n in (points.contents.device_total, points.contents.peak))
        self.how, self.score = following.how[rows], following.score[rows]
        self.occurrences = following.occurrences[rows]
        self.first = np.flatnonzero(np.diff(self.program, prepend=-1))
        """First row of each program."""
        self.last = np.append(self.first[1:], len(rows))[: len(self.first)] - 1
        self.before = self._before()
        """Last row before each at which the program is known, -1 without one."""

    def _before(self) -> Ints:
        known = np.flatnonzero(self.total >= 0)
        before = np.full(len(self.total), -1)
        same = self.program[known[1:]] == self.program[known[:-1]]
        before[known[1:][same]] = known[:-1][same]
        return before

    def ends(self, known: Mask) -> tuple[Ints, Ints]:
        """Return the first and the last row of each program in a mask, -1 without one."""
        first, last = np.full((2, len(self.first)), -1)
        at = np.flatnonzero(known)
        first[self.program[at[::-1]]] = at[::-1]
        last[self.program[at]] = at
        return first, last

    def change(self, numbers: Ints) -> tuple[Ints, Mask]:
        """Return the change of a number since the row before, and where it is known."""
        earlier = take(numbers, self.before)
        known = (earlier >= 0) & (numbers >= 0)
        return np.where(known, numbers - earlier, 0), known

    def text(self, name: str, rows: Ints) -> pa.Array:
        """Return a text about the contents of some rows."""
        return pc.take(pc.dictionary_encode(self.texts[name].combine_chunks()), pa.array(self.content[rows]))

    def point(self, rows: Ints) -> pa.Array:
        return decoded(self.ordinal[rows], self.names)

    def hows(self, rows: Ints) -> pa.Array:
        return decoded(self.how[rows], pa.array(HOW))


def _series(r: _Rows, number: Ints) -> pa.Table:
    """Return the table `series`, given the number of each program."""
    program = number[r.program]
    order = np.argsort(program, kind="stable")
    changes = {
        name: pa.array(change[order], mask=~known[order])
        for name, (change, known) in (("change", r.change(r.total)), ("peak_change", r.change(r.peak)))
    }
    columns = {
        "program": program[order],
        "module_name": r.text("module_name", order),
        "module_id": nullable(r.module_id[order]),
        "ordinal": r.ordinal[order],
        "point": r.point(order),
        "content_id": r.text("id", order),
        "device_total": nullable(r.total[order]),
        "peak": nullable(r.peak[order]),
        **changes,
        "how": r.hows(order),
        "score": _scores(r.score[order]),
        "occurrences": r.occurrences[order],
        "problem": r.text("problem", order),
    }
    return table_of_columns(schema.COMPARED["series"].columns, columns)


def _scores(score: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(np.round(score, 3), mask=np.isnan(score))


def _jumps(r: _Rows) -> tuple[pa.Table, Ints]:
    """Return the table `jumps`, and the row there of the largest jump of each program, -1 without one."""
    (change, _), (peak_change, peak_known) = r.change(r.total), r.change(r.peak)
    rows = np.flatnonzero((change != 0) | (peak_change != 0))
    rows = rows[np.lexsort((r.program[rows], r.ordinal[rows], -np.abs(peak_change[rows]), -np.abs(change[rows])))]
    columns: dict[str, Any] = {
        "program": r.program[rows],
        "module_name": r.text("module_name", rows),
        "change": change[rows],
        "peak_change": pa.array(peak_change[rows], mask=~peak_known[rows]),
        "how": r.hows(rows),
        "score": _scores(r.score[rows]),
    }
    for side, at in (("a", r.before[rows]), ("b", rows)):
        columns |= {
            f"ordinal_{side}": r.ordinal[at],
            f"point_{side}": r.point(at),
            f"content_id_{side}": r.text("id", at),
            f"device_total_{side}": r.total[at],
            f"peak_{side}": nullable(r.peak[at]),
        }
    largest = np.full(len(r.first), -1)
    largest[r.program[rows][::-1]] = np.arange(len(rows))[::-1]
    return table_of_columns(schema.COMPARED["jumps"].columns, columns), largest


def _programs(r: _Rows, jumps: pa.Table, largest: Ints) -> tuple[pa.Table, Ints]:
    """Return the table `series_programs`, and the place there of each program."""
    n, known = len(r.first), r.total >= 0
    first, last = r.ends(known)
    first_peak, last_peak = r.ends(r.peak >= 0)
    is_same = (r.ordinal[r.first] == 0) & (r.ordinal[r.last] == len(r.names) - 1)
    rank = np.where(largest >= 0, largest, len(jumps))
    order = np.lexsort((np.arange(n), -take(r.total, last), is_same, rank))
    number = np.empty(n, np.int64)
    number[order] = np.arange(n)
    points = np.diff(np.append(r.first, len(r.program)))
    columns = {
        "program": np.arange(n),
        "module_name": r.text("module_name", r.last[order]),
        "module_id": nullable(r.module_id[r.last[order]]),
        "n_points": points[order],
        "n_known": np.bincount(r.program[known], minlength=n)[order],
        **{f"ordinal_{end}": r.ordinal[rows[order]] for end, rows in (("first", r.first), ("last", r.last))},
        **{f"point_{end}": r.point(rows[order]) for end, rows in (("first", r.first), ("last", r.last))},
        "device_total_first": nullable(take(r.total, first[order])),
        "device_total_last": nullable(take(r.total, last[order])),
        "peak_first": nullable(take(r.peak, first_peak[order])),
        "peak_last": nullable(take(r.peak, last_peak[order])),
        "jump": nullable(largest[order]),
    }
    return table_of_columns(schema.COMPARED["series_programs"].columns, columns), number
