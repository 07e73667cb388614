"""List several programs, one per line."""

from __future__ import annotations

from rich.text import Text

from ...compute import Fits, Overview
from ...compute.wording import count_problems, problems
from ...formatting import align, count, shorten_distinct, size, wrap
from ..inputs import Program, compared
from .names import short_names

HEADINGS = ["device_total", "peak", "step", "space", "program"]


def list_programs(programs: list[Program], n_failed: int, limit: int, width: int | None) -> list[Text]:
    """Return a line for each of the first programs, and a summary of all programs."""
    shown = programs[:limit]
    head, *rows = align([HEADINGS, *(_cells(p.overview) for p in shown)], {3, 4})
    indent = head.rindex("program")
    states = ["".join(f"  {state}" for state in _states(p)) for p in shown]
    room = width and width - indent - max(map(len, states), default=0)
    names = shorten_distinct(short_names([p.overview.source for p in programs])[:limit], room)
    lines = [Text(head, "bold")]
    for program, row, name, state in zip(shown, rows, names, states, strict=True):
        line = Text.assemble(row.ljust(indent), name, (state, "bold red"))
        if program.fits is not None and not program.fits and not program.fits.other_platform:
            line.stylize("red")
        lines.append(line)
    if (more := len(programs) - limit) > 0:
        lines.append(Text(f"… and {count(more, 'smaller program')}: --limit shows more", "dim"))
    summary = f"{', '.join(_summary(programs, n_failed))}; the largest:"
    return lines + [Text(line) for line in wrap(summary, 0, width)]


def _cells(overview: Overview) -> list[str]:
    total = "-" if overview.device_total is None else size(overview.device_total)
    if not overview.spaces:
        return [total, "-", "-", "-", ""]
    space = overview.spaces[0]
    step = "-" if space["first_step"] is None else f"{space['first_step']:,}"
    return [total, "-" if space["peak"] is None else size(space["peak"]), step, space["memory_space"], ""]


def _states(program: Program) -> list[str]:
    """Return what is wrong with a program."""
    states = problems(program.overview.module)
    if program.fits is not None and program.fits.other_platform:
        states.append(f"for {program.overview.module['platform']}")
    elif program.fits is not None and not program.fits:
        states.append("does not fit" if program.fits.fits is False else "fit unknown")
    return states


def _summary(programs: list[Program], n_failed: int) -> list[str]:
    parts = [count(len(programs), "program")]
    verdicts = compared(programs)
    n_others = sum(p.fits is not None for p in programs) - len(verdicts)
    counts = _count_verdicts(verdicts)
    if n_others:
        counts = [*(text.replace("all fit", "all others fit") for text in counts), f"{n_others:,} not compared"]
    parts += counts
    parts += count_problems(p.overview.module for p in programs)
    return [*parts, f"{n_failed} unreadable"] if n_failed else parts


def _count_verdicts(verdicts: list[Fits]) -> list[str]:
    if not verdicts:
        return []
    device, available = verdicts[0].device, size(verdicts[0].available)
    memory = f"{device} ({available})" if device else available
    n_over, n_unknown = (sum(v.fits is verdict for v in verdicts) for verdict in (False, None))
    parts = [f"{n_over:,} {'does' if n_over == 1 else 'do'} not fit in {memory}"] if n_over else []
    parts += [f"fit unknown for {n_unknown:,}"] if n_unknown else []
    return parts or [f"all fit in {memory}"]
