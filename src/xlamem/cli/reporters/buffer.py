"""The screen of `xlamem buffer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.text import Text

from ...compute import Buffer
from ...compute.wording import describe_problems
from ...dump import Dump
from ...formatting import NO_BREAK, count, exact_size, number, one_line, shorten, shorten_path, size, wrap, wrap_path
from .buffers import call_text, category_name, origin_text, padding_bytes, shape_text, source_line, value_name
from .header import header
from .verdict import INDENT, field

Row = dict[str, Any]

N_ROWS = 6
"""Number of users, positions and mates without --limit."""
MIN_NAME = 12
"""Minimum width of an op_name; if there is less, what precedes it is shortened, too."""
N_CALLS = 4
"""Maximum number of calls that are shown."""
BY = f"<{NO_BREAK}"
"""Before a caller, on the same line."""


def screen(dump: Dump, buffer: Buffer, width: int | None, limit: int | None) -> list[Text]:
    """Return the lines of the screen."""
    (module,) = dump.modules.to_pylist()
    n, value = N_ROWS if limit is None else limit, buffer.value
    lines = [*header(dump.source, module, describe_problems(dump), width), Text()]
    title = f"  {shape_text(value, wide=False)}  {exact_size(value['size'])}"
    lines.append(Text.assemble((value_name(value), "bold"), title))
    lines += _fields(_about(buffer, module["schedule_length"]), width)
    lines += _list("read by", map(_user, _latest(buffer.users, n)), buffer.users, n, width)
    positions = [value_name(row) for row in buffer.positions if value_name(row) != value_name(value)]
    lines += _list("also", positions[:n], positions, n, width)
    lines += _list("shares", map(_mate, buffer.mates[:n]), buffer.mates, n, width)
    return lines


def _about(buffer: Buffer, steps: int | None) -> Iterable[tuple[str, str]]:
    """Return labels and texts of what is known about a buffer."""
    value = buffer.value
    padding = padding_bytes(value)
    yield "in", ", ".join(
        [
            f"allocation {value['allocation']} of {value['memory_space']}, at offset {number(value['offset'])}",
            category_name(value["category"]),
            *([f"{exact_size(padding)} of padding"] if padding else []),
        ]
    )
    yield "name", one_line(value["op_name"] or "none")
    yield "", source_line(value)
    yield "calls", _calls(buffer.calls)
    yield "origin", origin_text(value)
    yield "layer", value["layer"].replace("*", str(value["layer_index"]), 1) if value["layer"] else ""
    yield "kind", ", ".join(filter(None, [value["phase"], value["kind"], _iterations(value)]))
    if buffer.definer is not None:
        yield "definer", f"{buffer.definer['instruction']}, {buffer.definer['opcode']}"
    yield "live", _live(buffer, steps)
    if buffer.saving is not None:
        change = "does not change"
        if not buffer.saving and buffer.peak_step_without not in (None, buffer.peak_step):
            change = f"is as high, at step {number(buffer.peak_step_without)}"
        elif buffer.saving:
            change = f"is at most {exact_size(buffer.saving)} lower: {size(buffer.peak_without or 0)}"
            if buffer.peak_step_without not in (None, buffer.peak_step):
                change += f", at step {number(buffer.peak_step_without)}"
        yield "saving", f"without the buffer, the peak of {value['memory_space']} {change}"


def _calls(calls: list[Row]) -> str:
    """Return the innermost calls in one line of text; empty if the line has no known callers."""
    if len(calls) < 2:
        return ""
    texts = [call_text(call).replace(" ", NO_BREAK) for call in calls[:N_CALLS]]
    return f" {BY}".join([*texts, *(["…"] if len(calls) > N_CALLS else [])])


def _iterations(value: Row) -> str:
    return f"a slice for each of {number(value['iterations'])} iterations" if value["iterations"] else ""


def _live(buffer: Buffer, steps: int | None) -> str:
    if buffer.start is None or buffer.end is None:
        return "at unknown steps: it has no live range"
    text = f"steps {number(buffer.start)}-{number(buffer.end)} of {number(steps)}"
    if buffer.peak_step is not None:
        is_live = buffer.start <= buffer.peak_step <= buffer.end
        text += f", {'including' if is_live else 'not at'} the peak (step {number(buffer.peak_step)})"
    if steps is not None and buffer.end >= steps:
        is_fixed = buffer.value["category"] in ("parameter", "donated", "live_out")
        return f"{text}; {'kept to the end as a parameter or output' if is_fixed else 'live to the end'}"
    last = buffer.last_user
    return f"{text}; last read by {last['instruction']} at step {number(last['step'])}" if last else text


def _fields(rows: Iterable[tuple[str, str]], width: int | None) -> list[Text]:
    lines = []
    for label, text in rows:
        if text:
            wrapped = (wrap_path if label == "name" else wrap)(text, INDENT, width)
            lines += [field("" if i else label, line) for i, line in enumerate(wrapped)]
    return lines


def _latest(users: list[Row], n: int) -> list[Row]:
    """Return the last n uses with a step: they keep the buffer alive."""
    timed = [user for user in users if user["step"] is not None]
    return (timed or users)[-n:][::-1] if n else []


def _list(label: str, shown: Iterable[str], rows: list[Any], n: int, width: int | None) -> list[Text]:
    lines = [field("" if i else label, _shortened(text, width and width - INDENT)) for i, text in enumerate(shown)]
    if len(rows) > n:
        more = f"{count(len(rows) - n, 'more', 'more')}: --limit shows more"
        lines.append(field("" if lines else label, (more, "dim")))
    return lines


def _shortened(text: str, limit: int | None) -> str:
    """Shorten the op_name at the end of a line, so that steps stay whole."""
    head, gap, name = text.rpartition("  ")
    if limit is None or len(text) <= limit:
        return text
    room = limit - len(head + gap)
    return f"{head}{gap}{shorten_path(name, room)}" if room >= MIN_NAME else shorten(text, limit)


def _user(use: Row) -> str:
    step = "        " if use["step"] is None else f"{use['step']:>8,}"
    line = source_line(use).rsplit("/", 1)[-1]
    return "  ".join(filter(None, [step, use["instruction"], line, one_line(use["op_name"] or "")]))


def _mate(row: Row) -> str:
    return f"{row['start']:>8,}-{row['end']:,}  {value_name(row)}  {one_line(row['op_name'] or '')}".rstrip()
