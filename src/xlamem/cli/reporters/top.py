"""The screen of `xlamem top`: buffers, groups of buffers or a tree of scopes, by memory space."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ...compute import ScopeNode, add_origins, main_first, scope_tree
from ...dump import Dump
from ...formatting import count, exact_size, number, one_line, percent, shorten_path, size, wrap
from .buffers import SIZE_WIDTH, buffer_lines, category_name, more_line
from .chart import bar
from .header import header
from .problems import describe_problems

Row = dict[str, Any]

N_ROWS = 20
"""Number of rows per memory space without --limit."""
BAR_WIDTH = 16
PERCENT_WIDTH = 7
MIN_SHARE = 0.005
"""Minimum share of the bytes in use for a scope to appear in the tree."""


class Screen:
    """Lines about the bytes in use at a step of one program."""

    def __init__(self, dump: Dump, width: int | None, limit: int | None, *, wide: bool, step: int | None) -> None:
        self.dump, self.width, self.wide, self.step = dump, width, wide, step
        self.limit = N_ROWS if limit is None else limit
        (self.module,) = dump.modules.to_pylist()

    def _header(self) -> list[Text]:
        return header(self.dump.source, self.module, describe_problems(self.dump), self.width)

    def _title(self, space: Row) -> Text:
        """Return the bytes in use in a memory space, and the step."""
        page = f" page {space['page']}" if space.get("page") else ""
        peak = " (its peak)" if space["bytes"] == space["peak"] else f" (peak {size(space['peak'])})"
        steps = f"at step {space['time'] or 0:,} of {number(self.module['schedule_length'])}"
        text = f"  {exact_size(space['bytes'])} in use {steps}{peak}"
        return Text.assemble((f"{space['memory_space']}{page}", "bold"), text)

    # -- buffers

    def buffers(self, spaces: list[Row], rows: list[Row]) -> list[Text]:
        """List the buffers of each memory space."""
        lines = self._header()
        for space in _sorted(spaces):
            members = [r for r in rows if (r["color"], r["page"]) == (space["color"], space["page"])]
            shown = members[: self.limit]
            add_origins(self.dump, shown)
            lines += [Text(), self._title(space), *self._counts(space, members)]
            lines += buffer_lines(shown, self.width, wide=self.wide) if shown else []
            if more := len(members) - len(shown):
                left = space["bytes"] - sum(r["bytes"] for r in shown)
                lines.append(more_line(left, f"in {count(more, 'more', 'more')}: --limit shows more"))
        return lines

    def _counts(self, space: Row, rows: list[Row]) -> list[Text]:
        """Return the number of buffers, and the instruction at the step."""
        n_live = sum(r["role"] == "value" for r in rows)
        counts = count(n_live, "live buffer")
        if reserved := len(rows) - n_live:
            counts += f", {count(reserved, 'allocation')} reserved but not live"
        step, schedule = space["time"] or 0, self.dump.schedule["instruction"]
        runs = f"step {step:,} runs {schedule[step].as_py()}" if step < len(schedule) else "after the last instruction"
        return [Text(f"  {line}", "dim") for line in wrap(f"{counts}; {runs}", 2, self.width)]

    # -- groups

    def groups(self, spaces: list[Row], rows: list[Row], keys: list[str], *, tree: bool) -> list[Text]:
        """List the groups of each memory space, or draw its tree of scopes."""
        lines = self._header()
        for space in _sorted(spaces):
            members = [r for r in rows if r["memory_space"] == space["memory_space"] and r["bytes"]]
            lines += [Text(), self._title(space)]
            lines += self._tree(members, space["bytes"]) if tree else self._list(members, keys, space["bytes"])
        return lines

    def _list(self, rows: list[Row], keys: list[str], total: int) -> list[Text]:
        shown, rest = rows[: self.limit], rows[self.limit :]
        digits = max((len(f"{r['n']:,}") for r in shown), default=1)
        lines = [self._group(r, keys, total, digits) for r in shown]
        if rest:
            start = _amount(sum(r["bytes"] for r in rest), total)
            lines.append(Text(f"{start}in {len(rest):,} more: --limit shows more", "dim"))
        return lines

    def _group(self, row: Row, keys: list[str], total: int, digits: int) -> Text:
        start = _amount(row["bytes"], total)
        drawn = bar(row["bytes"], total, BAR_WIDTH).ljust(BAR_WIDTH)
        n = f"  {row['n']:>{digits},}×  "
        room = self.width and self.width - len(start) - len(drawn) - len(n)
        names = "  ".join(_group_name(key, row[key]) for key in keys)
        return Text.assemble(start, (drawn, "cyan"), (n, "dim"), shorten_path(names, room))

    # -- tree

    def _tree(self, rows: list[Row], total: int) -> list[Text]:
        """Return the tree next to its sizes. `rich.tree` cannot draw columns before its branches."""
        lines: list[Text] = []
        self._branch(scope_tree(rows), total, "", lines)
        return lines

    def _branch(self, node: ScopeNode, total: int, indent: str, lines: list[Text]) -> None:
        children = node.largest_children()
        shown = [c for i, c in enumerate(children) if i < self.limit and c[1].bytes >= MIN_SHARE * total]
        rest = children[len(shown) :]
        for i, (name, child) in enumerate(shown):
            while only := child.only_child():
                name, child = f"{name}/{only[0]}", only[1]
            last = i == len(shown) - 1 and not rest
            start, branch = _amount(child.bytes, total), f"{indent}{'└─ ' if last else '├─ '}"
            room = self.width and self.width - len(start) - len(branch)
            lines.append(Text.assemble(start, (branch, "dim"), shorten_path(one_line(name), room)))
            self._branch(child, total, indent + ("   " if last else "│  "), lines)
        if rest:
            start = _amount(sum(c.bytes for _, c in rest), total)
            lines.append(Text(f"{start}{indent}└─ … {len(rest):,} more", "dim"))


def _sorted(spaces: list[Row]) -> list[Row]:
    """Return the memory spaces with bytes in use, main memory first, then by size."""
    used = [s for s in spaces if s["bytes"]]
    return sorted(used, key=lambda s: (main_first(s["memory_space"]), -s["bytes"]))


def _amount(n: int, total: int) -> str:
    return f"  {size(n).rjust(SIZE_WIDTH)}  {percent(n, total).rjust(PERCENT_WIDTH)}  "


def _group_name(key: str, name: str | None) -> str:
    if name is None:
        return f"(no {key})"
    return one_line(category_name(name) if key == "category" else name)
