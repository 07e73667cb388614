"""The screen of `xlamem top`: buffers, groups of buffers or a tree of scopes, by memory space."""

from __future__ import annotations

import re
from functools import reduce
from typing import Any

import pyarrow as pa
from rich.text import Text

from ... import kernels as pc
from ...compute import FoldedScope, fold_scopes, folded_rest, main_first, n_until_small, named, scope_tree
from ...compute.callers import shared_lines
from ...compute.wording import describe_problems
from ...dump import Dump
from ...formatting import GAP, count, exact_size, number, one_line, plain_shape, shorten, shorten_distinct, size, wrap
from .buffers import buffer_lines, category_name, more_line
from .chart import bar
from .header import header
from .labels import shorten_labels
from .scopes import amount, tree_lines

Row = dict[str, Any]

N_ROWS = 20
"""Number of rows per memory space without --limit."""
BAR_WIDTH = 16
MIN_OTHER = 12
"""Width of another key for which a shape is cut, at most to half of the room."""
NO_SOURCE = "No source lines: the dump lacks the HLO text (*after_optimizations.txt), which names them."
SHARED = "Called from several lines: {}. `xlamem buffer PATH NAME` shows the callers of a buffer."
MIN_SHARED = 0.1
"""Minimum share of the main memory for a source line to be named."""


class Screen:
    """Lines about the bytes in use at a step of one program."""

    def __init__(self, dump: Dump, width: int | None, limit: int | None, *, wide: bool, step: int | None) -> None:
        self.dump, self.width, self.wide, self.step = dump, width, wide, step
        self.limit = N_ROWS if limit is None else limit
        (self.module,) = dump.modules.to_pylist()

    def _header(self, spaces: list[Row]) -> list[Text]:
        lines = header(self.dump.source, self.module, describe_problems(self.dump), self.width)
        if any(s["bytes"] for s in spaces):
            return lines
        step = "" if self.step is None else f" at step {self.step:,} of {number(self.module['schedule_length'])}"
        return [*lines, Text(), Text(f"0 B in use{step}")]

    def _title(self, space: Row) -> Text:
        """Return the bytes in use in a memory space, and the step."""
        page = f" page {space['page']}" if space.get("page") else ""
        peak = " (its peak)" if space["bytes"] == space["peak"] else f" (peak {size(space['peak'])})"
        steps = f"at step {space['time'] or 0:,} of {number(self.module['schedule_length'])}"
        name = f"{space['memory_space']}{page}"
        text = f"  {exact_size(space['bytes'])} in use {steps}{peak}"
        if self.width and len(name) + len(text) > self.width:
            text = f"  {size(space['bytes'])} in use {steps}{peak}"
        return Text.assemble((name, "bold"), text)

    # -- buffers

    def buffers(self, spaces: list[Row], rows: pa.Table) -> list[Text]:
        """List the buffers of each memory space, the small ones by name."""
        lines = self._header(spaces)
        for space in _sorted(spaces):
            members = _of_space(rows, space, "color", "page")
            shown = members.slice(0, self.limit).to_pylist()
            lines += [Text(), self._title(space), *self._counts(space, members)]
            lines += buffer_lines(shown, self.width, wide=self.wide) if shown else []
            lines += self._rest(named(members), ["name"], space["bytes"])
        return lines

    def _counts(self, space: Row, rows: pa.Table) -> list[Text]:
        """Return the number of buffers, and the instruction at the step."""
        n_live = pc.sum(pc.equal(rows["role"], "value")).as_py() or 0
        counts = count(n_live, "live buffer")
        if reserved := rows.num_rows - n_live:
            counts += f", {count(reserved, 'allocation')} reserved but not live"
        step, schedule = space["time"] or 0, self.dump.schedule["instruction"]
        runs = f"step {step:,} runs {schedule[step].as_py()}" if step < len(schedule) else "after the last instruction"
        return [Text(f"  {line}", "dim") for line in wrap(f"{counts}; {runs}", 2, self.width)]

    # -- groups

    def groups(self, spaces: list[Row], rows: pa.Table, keys: list[str], *, tree: bool) -> list[Text]:
        """List the groups of each memory space, or draw its tree of scopes or functions."""
        lines = self._header(spaces)
        for space in _sorted(spaces):
            members = _of_space(rows, space, "memory_space")
            members = pc.filter(members, pc.greater(members["bytes"], 0))
            lines += [Text(), self._title(space)]
            if tree:
                lines += tree_lines(self._tree(members, keys[0]), space["bytes"], self.width)
            else:
                lines += self._list(members.slice(0, self.limit).to_pylist(), keys, space["bytes"])
                lines += self._rest(members, keys, space["bytes"])
        if "source" in keys and rows.num_rows:
            note = NO_SOURCE if self._lacks_source(rows) else self._about_callers(spaces, rows)
            lines += [Text(), *(Text(line, "dim") for line in wrap(note, 0, self.width))] if note else []
        return lines

    def _lacks_source(self, rows: pa.Table) -> bool:
        """Return whether no row has a source line because there is no HLO text."""
        return rows["source"].null_count == rows.num_rows and "hlo" not in self.dump.files["role"].to_pylist()

    def _about_callers(self, spaces: list[Row], rows: pa.Table) -> str:
        """Name the lines with more than a tenth of the main memory that several lines of the model call."""
        least = {space["memory_space"]: MIN_SHARED * space["bytes"] for space in _sorted(spaces)[:1]}
        large = [r["source"] for r in rows.to_pylist() if r["bytes"] > least.get(r["memory_space"], r["bytes"])]
        shared = shared_lines(self.dump.frames) if any(large) else set()
        names = ", ".join(dict.fromkeys(one_line(re.split(r"[/\\]", name)[-1]) for name in large if name in shared))
        return SHARED.format(names) if names else ""

    def _tree(self, rows: pa.Table, key: str) -> list[FoldedScope]:
        """Return the tree of scopes or functions, with layers and other numbers folded if it does not fit otherwise."""
        if key != "scope":
            paths = pc.fill_null(pc.cast(rows[key], pa.string()), f"(no {key})")
            rows = rows.append_column("scope", paths)
        scopes = fold_scopes(scope_tree(rows.to_pylist()), self.limit)
        if len(scopes) < self.limit:
            return scopes
        return fold_scopes(scope_tree(folded_rest(rows, ["scope"], 0)[0].to_pylist()), self.limit)

    def _list(self, rows: list[Row], keys: list[str], total: int) -> list[Text]:
        """Return a line for each group, with a bar."""
        starts = [(amount(r["bytes"], total), bar(r["bytes"], total, BAR_WIDTH).ljust(BAR_WIDTH)) for r in rows]
        numbers = [f"{r['n']:,}×" for r in rows]
        digits = max(map(len, numbers), default=0)
        keys = keys or ["memory_space"]
        room = self.width and self.width - max((len(a) + len(b) for a, b in starts), default=0) - digits - 4
        return [
            Text.assemble(start, (drawn, "cyan"), (f"  {n.rjust(digits)}  ", "dim"), name)
            for (start, drawn), n, name in zip(starts, numbers, _names(rows, keys, room), strict=True)
        ]

    # -- what is not listed

    def _rest(self, rows: pa.Table, keys: list[str], total: int) -> list[Text]:
        """Return a line about the rows that are not listed if they are small, or else lines by folded names."""
        n = rows.num_rows - self.limit
        if n <= 0:
            return []
        left = pc.sum(rows["bytes"].slice(self.limit)).as_py()
        more = f"in {count(n, 'more', 'more')}: --limit shows more"
        if n_until_small(rows, total) <= self.limit:
            return [more_line(left, more)]
        folded, n_shown = folded_rest(rows, keys, self.limit)
        title = Text(f"  {size(left)} in {count(n, 'more', 'more')}, {_folding(keys)}:", "dim")
        lines = [title, *self._list(folded.slice(0, n_shown).to_pylist(), keys, total)]
        if (hidden := folded.num_rows - n_shown) > 0:
            others = f"in {count(hidden, 'other group')}"
            lines.append(more_line(pc.sum(folded["bytes"].slice(n_shown)).as_py(), others))
        return lines


def _of_space(rows: pa.Table, space: Row, *columns: str) -> pa.Table:
    """Return the rows of a memory space."""
    masks = [pc.equal(rows[column], space[column]) for column in columns]
    return pc.filter(rows, reduce(pc.and_, masks))


def _sorted(spaces: list[Row]) -> list[Row]:
    """Return the memory spaces with bytes in use, main memory first, then by size."""
    used = [s for s in spaces if s["bytes"]]
    return sorted(used, key=lambda s: (main_first(s["memory_space"]), -s["bytes"]))


def _folding(keys: list[str]) -> str:
    """Say how `folded_rest` shortens the names of these keys."""
    if "shape" not in keys:
        return "with numbers folded to *"
    return "by element type and number of dimensions" if len(keys) == 1 else "with shapes and numbers folded"


def _names(rows: list[Row], keys: list[str], room: int | None) -> list[str]:
    """Return the name of each group. Shapes that do not fit lose their layout first, and their element type never."""
    columns = [[_group_name(key, row[key]) for row in rows] for key in keys]
    names = [GAP.join(cells) for cells in zip(*columns, strict=True)]
    if room is None or "shape" not in keys or max(map(len, names), default=0) <= room:
        return shorten_labels(names, room)
    n_others = len(keys) - 1
    limit = room if not n_others else max(room // 2, room - n_others * (MIN_OTHER + len(GAP)))
    shapes = _shapes(columns[keys.index("shape")], limit)
    left = room - max(map(len, shapes)) - n_others * len(GAP)
    for i, key in enumerate(keys):
        columns[i] = shapes if key == "shape" else shorten_distinct(columns[i], left // n_others)
    return [GAP.join(cells) for cells in zip(*columns, strict=True)]


def _shapes(shapes: list[str], limit: int) -> list[str]:
    """Return shapes without layouts, except for those that differ in nothing else; cut them where they do not fit."""
    plain = [plain_shape(shape) for shape in shapes]
    layouts: dict[str, set[str]] = {}
    for text, shape in zip(plain, shapes, strict=True):
        layouts.setdefault(text, set()).add(shape)
    texts = [text if len(layouts[text]) == 1 else shape for text, shape in zip(plain, shapes, strict=True)]
    for cut in (_without_end, shorten):
        shortened = [cut(text, limit) for text in texts]
        if len(set(shortened)) == len(set(texts)):
            return shortened
    types = [text.partition("[")[0] if text[:1] != "(" else "" for text in texts]
    sizes = [text.removeprefix(start) for start, text in zip(types, texts, strict=True)]
    sizes = shorten_distinct(sizes, limit - max(map(len, types)))
    return [start + text for start, text in zip(types, sizes, strict=True)]


def _without_end(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _group_name(key: str, name: str | None) -> str:
    if name is None:
        return "(no source, such as arguments)" if key == "source" else f"(no {key})"
    return one_line(category_name(name) if key == "category" else name)
