"""The screen of `xlamem diff` for two programs: the verdict, the accounts, and what contributes to the change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ...compare.difference import Diff
from ...compare.groups import difference_groups, of_account
from ...compare.verdict import LINES, other_edits, signed
from ...compare.view import moved, numbers
from ...compare.wording import OTHER_EDITS, label, mark, relative, shapes, share, sources
from ...compute.bills import DEVICE_TOTAL
from ...compute.wording import describe_problems
from ...dump import Dump
from ...formatting import (
    DEFAULT_WIDTH,
    count,
    one_line,
    shorten,
    shorten_distinct,
    shorten_path,
    size,
    visible,
    wrap,
    wrap_items,
)
from ..options import Output
from .labels import shorten_labels

Row = dict[str, Any]

HEIGHT = 40
MIN_ROWS, MAX_ROWS, N_DETAILED = 3, 12, 4
"""Fewest and most groups of buffers without --limit, and how many of them have two lines if possible."""
SIGNED_WIDTH, SHARE_WIDTH = 11, 9
SHAPE_INDENT = 15
MIN_NAME_WIDTH = 20
N_SPACES, N_EDITS = 3, 3
"""Number of memory spaces and of edits that are listed."""
MAX_VERDICT = 6
"""Maximum number of lines of the verdict."""
SMALL_LINE = 0.005
"""Lines of a bill with less than this share of the largest one's change are shown together."""
SMALL_GROUP = 0.002
"""Groups with less than this share of the largest one's change are only listed with --limit."""
LARGE_REST = 0.5
"""Groups that are not listed are described if they have this share of the largest one's change together."""
UP, DOWN, PLACE = "red", "green", "cyan"


@dataclass(frozen=True)
class Comparison:
    """What is shown of two dumps."""

    diff: Diff
    dumps: tuple[Dump, Dump]
    account: str
    """Memory space, or device_total."""
    by: tuple[str, ...]

    @property
    def row(self) -> Row:
        """Row of the account in `account_differences`."""
        (row,) = of_account(self.diff.accounts, self.account).to_pylist()
        return dict(row)

    @property
    def peak_change(self) -> int:
        return int(self.row["peak_b"] - self.row["peak_a"])

    @property
    def reserved(self) -> str:
        """What `reserved` is called."""
        return "must fit" if self.account == DEVICE_TOTAL else "reserved"

    def groups(self) -> list[Row]:
        rows: list[Row] = difference_groups(self.diff, self.by, account=self.account).to_pylist()
        return rows

    def bill(self) -> list[tuple[str, int]]:
        """Return the name and the change of each line of the bill that changed, largest first."""
        changes: dict[str, int] = {}
        for row in of_account(self.diff.bills, self.account).to_pylist():
            changes[row["line"]] = changes.get(row["line"], 0) + row["change"]
        return sorted(((LINES[line], n) for line, n in changes.items() if n), key=lambda pair: -abs(pair[1]))

    def other_edits(self) -> list[Row]:
        """Return the edits that the verdict does not state."""
        return other_edits(self.diff)

    def problems(self) -> list[str]:
        """Return a sentence for each problem of each dump."""
        sides = zip("AB", self.dumps, strict=True)
        return [f"{side}: {text}" for side, dump in sides for text in describe_problems(dump)]


def screen(c: Comparison, output: Output) -> list[Text]:
    """Return the lines of the screen; one line if nothing changed."""
    width, d = output.width, c.diff
    lines = _verdict(d, width)
    edits = _edits(c, width, OTHER_EDITS[d.is_same])
    if d.is_same and d.is_known and not c.problems():
        return lines + ([Text(), *edits] if edits else [])
    lines += [Text(line, "red") for text in c.problems() for line in wrap(text, 0, width)]
    lines += [Text(), *_sides(c, width)]
    if d.is_same:
        return lines + ([Text(), *edits] if edits else [])
    lines += [Text(), *_accounts(c), *_section(_bill(c, width))]
    room = HEIGHT - len(lines) - (len(edits) + 1 if edits else 0) - 4
    return lines + _section(_contributors(c, output, room)) + _section(edits)


def _verdict(d: Diff, width: int | None) -> list[Text]:
    lines = wrap(visible(d.verdict), 0, width)
    if len(lines) > MAX_VERDICT:
        lines[MAX_VERDICT - 1 :] = [f"{lines[MAX_VERDICT - 1][: (width or DEFAULT_WIDTH) - 2]} …"]
    return [Text(line, "bold") for line in lines]


def _section(lines: list[Text]) -> list[Text]:
    return [Text(), *lines] if lines else []


def _sides(c: Comparison, width: int | None) -> list[Text]:
    """Return a line for each dump: its module, platform, steps and directory."""
    lines = []
    for side, dump in zip("AB", c.dumps, strict=True):
        (module,) = dump.modules.to_pylist()
        name = one_line(module["module_name"] or dump.name)
        steps = "" if module["schedule_length"] is None else count(module["schedule_length"], "step")
        about = ", ".join(filter(None, [module["platform"], steps]))
        about = f"  {about}" if about else ""
        place = visible(dump.source.location)
        name = shorten(name, width and max(MIN_NAME_WIDTH, width // 2 - len(about)))
        place = shorten_path(place, width and width - len(name) - len(about) - 10)
        lines.append(Text.assemble((f"{side}  ", "bold"), name, (f"{about}  in {place}", "dim")))
    return lines


# -- accounts ------------------------------------------------------------------------------------


def _accounts(c: Comparison) -> list[Text]:
    """Return a table of what must fit and of the peaks: of device_total, and of the memory spaces that changed most."""
    rows = numbers(c.diff)
    largest: dict[str, int] = {}
    for r in rows:
        largest[r["account"]] = max(largest.get(r["account"], 0), abs(r["change"]))
    first = [DEVICE_TOTAL, *([c.account] if c.account in largest else [])]
    others = sorted((name for name in largest if name not in first), key=lambda name: -largest[name])
    least = SMALL_LINE * max(largest.values())
    shown = [*first, *(name for name in others[:N_SPACES] if largest[name] >= least)]
    lines = _number_table([r for r in rows if r["account"] in shown])
    rest = [name for name in others if name not in shown]
    return [*lines, Text(f"also changed: {', '.join(rest)}", "dim")] if rest else lines


def _number_table(rows: list[Row]) -> list[Text]:
    first = max(len(r["account"]) for r in rows)
    lines = [Text(f"{'':{first}}{'':10}  {'A':>11}  {'B':>11}  {'change':>{SIGNED_WIDTH}}", "dim")]
    for i, r in enumerate(rows):
        account = "" if i and rows[i - 1]["account"] == r["account"] else r["account"]
        before = f"{account:{first}}  {r['number']:8}  {size(r['a']):>11}  {size(r['b']):>11}  "
        change = f"{signed(r['change']):>{SIGNED_WIDTH}}", _style(r["change"])
        lines.append(Text.assemble(before, change, f"  {relative(r['a'], r['b']):>{SHARE_WIDTH}}"))
    return lines


def _style(change: int) -> str:
    return "" if not change else UP if change > 0 else DOWN


def _bill(c: Comparison, width: int | None) -> list[Text]:
    """Return the lines of the bill that changed; they add up to the number in the title."""
    lines = c.bill()
    if not lines:
        return []
    total = sum(n for _, n in lines)
    title = Text.assemble((f"{c.reserved} {signed(total)}", "bold"), ("  the sum of the lines of the bill:", "dim"))
    least = SMALL_LINE * abs(lines[0][1])
    large, small = ([x for x in lines if (abs(x[1]) >= least) is wanted] for wanted in (True, False))
    if len(small) == 1:
        large, small = lines, []
    result = [title, *(Text(f"  {signed(n):>{SIGNED_WIDTH}}  {name}") for name, n in large)]
    if small:
        first, *more = wrap_items([f"{name} {signed(n)}" for name, n in small], SIGNED_WIDTH + 4, width)
        result.append(Text(f"  {signed(sum(n for _, n in small)):>{SIGNED_WIDTH}}  {first}", "dim"))
        result += [Text(f"{'':{SIGNED_WIDTH + 4}}{line}", "dim") for line in more]
    return result


# -- contributors --------------------------------------------------------------------------------


def _contributors(c: Comparison, output: Output, height: int) -> list[Text]:
    """Return the groups of buffers; with the last lines they add up to the number in the title."""
    groups, row = c.groups(), c.row
    if not groups and not row["moved"]:
        return []
    listed = _largest_groups(groups, output.limit, height)
    number = "peak" if c.diff.has_peaks else "reserved"
    lines = [Text.assemble((f"{number} {signed(c.peak_change)}", "bold"), (f"  {_steps(c)}", "dim"))]
    lines += _with_details(_groups(c, listed, output.width), None if output.limit is not None else height)
    if rest := groups[len(listed) :]:
        lines.append(_amount(sum(g["change"] for g in rest), c.peak_change, _rest(rest, groups[0], output.width)))
    if row["moved"]:
        lines.append(_amount(row["moved"], c.peak_change, moved(row)))
    return lines


def _rest(groups: list[Row], largest: Row, width: int | None) -> str:
    """Describe the groups that are not listed; with their main causes, as far as they fit, if they are large together.
    """
    text = count(len(groups), "other group")
    changes: Counter[str] = Counter()
    for g in groups:
        changes[mark(g)] += g["change"]
    causes = sorted(filter(None, changes), key=lambda cause: -abs(changes[cause]))
    if abs(sum(changes.values())) < LARGE_REST * abs(largest["change"]) or not causes:
        return f"{text}: --limit shows more"
    texts = [f"{cause} {signed(changes[cause])}" for cause in causes[:2]]
    room = width and width - (SIGNED_WIDTH + SHARE_WIDTH + 4)
    while texts and room is not None and len(f"{text}: {', '.join(texts)}, …") > room:
        texts.pop()
    return f"{text}: {', '.join(texts)}, …" if texts else text


def _largest_groups(groups: list[Row], limit: int | None, height: int) -> list[Row]:
    """Return the groups that are listed: `limit`, or else as many as fit, without those that are much smaller."""
    if limit is not None:
        return groups[:limit]
    large = [g for g in groups if abs(g["change"]) >= SMALL_GROUP * abs(groups[0]["change"])]
    return large[: min(MAX_ROWS, max(MIN_ROWS, height - min(N_DETAILED, height // 4)))]


def _with_details(groups: list[list[Text]], height: int | None) -> list[Text]:
    """Return the first line of each group, and the second ones of as many as fit the height."""
    room = len(groups) if height is None else max(0, height - len(groups))
    lines = []
    for first, *second in groups:
        lines += [first, *second[:room]]
        room -= min(room, len(second))
    return lines


def _steps(c: Comparison) -> str:
    """Say which steps are compared."""
    if not c.diff.has_peaks:
        return "all of A against all of B, by buffer:"
    return f"step {c.row['step_a']:,} of A against step {c.row['step_b']:,} of B, by buffer:"


def _amount(change: int, total: int, text: str) -> Text:
    return Text(f"  {signed(change):>{SIGNED_WIDTH}}{share(change, total):>{SHARE_WIDTH}}  {text}", "dim")


def _groups(c: Comparison, groups: list[Row], width: int | None) -> list[list[Text]]:
    """Return one or two lines for each group: change, share, cause, number and name; shapes and source lines."""
    marks = [mark(g) for g in groups]
    numbers = [f"{g['n']:,}×" if g["n"] > 1 else "" for g in groups]
    columns = [f"{share(g['change'], c.peak_change):>{SHARE_WIDTH}}" for g in groups]
    for texts, left in ((marks, True), (numbers, False)):
        if widest := max(map(len, texts), default=0):
            columns = [f"{c}  {t:{'<' if left else '>'}{widest}}" for c, t in zip(columns, texts, strict=True)]
    indent = 2 + SIGNED_WIDTH + len(columns[0] if columns else "") + 2
    names = _names(groups, c.by, width and max(MIN_NAME_WIDTH, width - indent))
    places = shorten_distinct([sources(g) for g in groups], width and width // 3)
    texts = [shapes(g) for g in groups]
    widths = [max(map(len, column), default=0) for column in (names, texts, places)]
    in_columns = width is None or indent + sum(widths) + 4 <= width
    result = []
    for g, column, name, shape, place in zip(groups, columns, names, texts, places, strict=True):
        if in_columns:
            name, shape = name.ljust(widths[0]), shape.ljust(widths[1])
        change = f"  {signed(g['change']):>{SIGNED_WIDTH}}", _style(g["change"])
        result.append(_lines_of(Text.assemble(change, column, "  ", name), shape, place, width))
    return result


def _names(groups: list[Row], by: tuple[str, ...], room: int | None) -> list[str]:
    """Return the names of the groups. Of paths, the ends tell more; of sentences, the beginnings."""
    names = [label(g, by) for g in groups]
    if "edit" not in by or room is None:
        return shorten_labels(names, room)
    return [name if len(name) <= room else f"{name[: room - 1]}…" for name in names]


def _lines_of(text: Text, shape: str, place: str, width: int | None) -> list[Text]:
    """Return the name, shape and source of a group on one line if there is room, or else on two."""
    if width is None or len(text) + len(shape) + len(place) + 4 <= width:
        return [text.append(f"  {shape}", "dim").append(f"  {place}", PLACE)]
    shape = shorten(shape, max(MIN_NAME_WIDTH, width - SHAPE_INDENT - len(place) - 2))
    return [text, Text.assemble(" " * SHAPE_INDENT, (f"{shape}  " if shape else "", "dim"), (place, PLACE))]


def _edits(c: Comparison, width: int | None, title: str = OTHER_EDITS[False]) -> list[Text]:
    """Return what else was edited, on at most two lines each."""
    edits = c.other_edits()
    lines = [Text(title, "bold")] if edits else []
    n_lines = 2 if len(edits) <= N_EDITS else 1
    for edit in edits[:N_EDITS]:
        change = f"{signed(edit['change'])}: " if edit["change"] else ""
        wrapped = wrap(f"{change}{one_line(edit['text'])}", 4, width and width - 2)
        if len(wrapped) > n_lines:
            wrapped[n_lines - 1] += " …"
        lines += [Text(f"{'    ' if i else '  '}{line}") for i, line in enumerate(wrapped[:n_lines])]
    if len(edits) > N_EDITS:
        lines.append(Text(f"  and {len(edits) - N_EDITS} more: --json lists them", "dim"))
    return lines
