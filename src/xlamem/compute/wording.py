"""Sentences about one program, for the terminal and the page: problems of its dump, and what must fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from os.path import basename
from typing import Any

from .. import schema
from ..dump import Dump
from ..formatting import count, percent, size, visible
from ..input.find import Source
from ..schema import PROBLEMS
from .capacity import Fits
from .devices import Device

Row = dict[str, Any]

# -- problems of the dump ------------------------------------------------------------------------

NO_ALLOCATIONS = "this dump has no allocations: its memory use is unknown; XLA writes them to *-buffer-assignment.txt"

CAUSES: dict[str, set[str]] = {
    "complete": {"truncated"},
    "understood": schema.NOT_UNDERSTOOD,
    "consistent": set(schema.NOT_CONSISTENT),
}
"""Diagnostic codes that make each of these columns false."""


def without_live_ranges(module: Row) -> str:
    """Say what is known of a dump without live ranges. Without a total, nothing shows a cut between allocations."""
    text = "this dump has no live ranges: only reserved sizes are known, not what is in use at which step"
    has_total = module["total_bytes"] is not None or module["n_printed_report"]
    return text if has_total else f"{text}; it has no total either, so it may have been cut between two allocations"


def problems(module: Row) -> list[str]:
    """Return the problems of a dump."""
    return [problem for column, problem in PROBLEMS.items() if not module[column]]


def count_problems(modules: Iterable[Row]) -> list[str]:
    """Return how many dumps have each problem."""
    counts = Counter(problem for module in modules for problem in problems(module))
    return [f"{counts[problem]:,} {problem}" for problem in PROBLEMS.values() if counts[problem]]


def describe_problems(dump: Dump) -> list[str]:
    """Return a sentence for each problem of a dump, with the location of its first diagnostic."""
    (module,) = dump.modules.to_pylist()
    return describe(dump.source, module, dump.diagnostics.to_pylist() if problems(module) else [])


def describe(source: Source, module: Row, diagnostics: list[Row]) -> list[str]:
    """Return the same sentences, given rows that were already read."""
    return [_describe(column, diagnostics, source) for column in PROBLEMS if not module[column]]


def _describe(column: str, diagnostics: list[Row], source: Source) -> str:
    causes = [d for d in diagnostics if d["code"] in CAUSES[column]]
    causes = causes or [d for d in diagnostics if d["severity"] == "error"]
    first = causes[0]
    more = f" and {count(len(causes) - 1, 'more', 'more')}" if len(causes) > 1 else ""
    offset = "" if first["offset"] is None else f" (byte {first['offset']:,})"
    return visible(f"{PROBLEMS[column]}: {location(first, source)}{offset}{more}: {_explain(column, first)}")


def _explain(column: str, diagnostic: Row) -> str:
    if column == "complete":
        return f"expected {diagnostic['wanted']}; the numbers cover only what is present"
    if column == "understood":
        return str(diagnostic["excerpt"] or diagnostic["wanted"])
    return schema.CODES[diagnostic["code"]]


def location(diagnostic: Row, source: Source) -> str:
    """Return file and line of a diagnostic, without the part of the file name that all files of the dump share."""
    name = basename(diagnostic["file"] or "") or "dump"
    suffix = name.removeprefix(source.name)
    line = f":{diagnostic['line']}" if diagnostic["line"] is not None else ""
    return f"…{suffix}{line}" if suffix.startswith("-") else f"{name}{line}"


# -- what must fit -------------------------------------------------------------------------------


def verdict_sentence(fits: Fits) -> str:
    """Say how much memory there is and whether the program fits, or why that is not known."""
    if fits.fits is None:
        return f"CANNOT TELL whether it fits: {fits.reason}"
    total, available = fits.device_total or 0, available_text(fits)
    if not fits.fits:
        return f"{available}: DOES NOT FIT, {size(total - fits.available)} over"
    share = percent(total, fits.available)
    return f"{available}: fits, {size(fits.available - total)} to spare, {share} used"


def available_text(fits: Fits) -> str:
    """Return the available memory, and how it is computed from the capacity."""
    if fits.available == fits.capacity:
        return size(fits.available)
    fraction = "" if fits.fraction == 1 else f"{100 * fits.fraction:g} % of "
    resident = f" minus {size(fits.resident)} resident" if fits.resident else ""
    return f"{size(fits.available)} = {fraction}{size(fits.capacity)}{resident}"


def memory_note(device: Device) -> str:
    """Say who states the size of the memory of a device."""
    usable = "less is usable"
    if device.reported is not None:
        usable = f"usable: {size(device.usable)} according to {device.reporter}"
    return f"{device.stated} according to the {device.source}; {usable}"


PROGRAM_CODE = "program code also takes device memory but is not in the dump"
"""What is not counted in TPU programs."""


# -- names of buffers ----------------------------------------------------------------------------

MOVES = ("copy", "slice", "dynamic-slice", "convert", "reshape", "transpose", "all-gather", "reduce-scatter")
"""Opcodes that are mentioned if a buffer has the name of another."""


def move_of(opcode: str | None) -> str:
    """Return how the name of a buffer begins that only moves the bytes of another: `all-gather of `; empty if not."""
    verb = (opcode or "").removesuffix("-start").removesuffix("-done")
    return f"{verb} of " if verb in MOVES else ""


# -- what to do ----------------------------------------------------------------------------------

NO_ADVICE_WITHOUT_STEPS = "The dump has no live ranges, so nothing can be said about what would save memory."
NO_ADVICE = "No intervention that xlamem knows would save 1 % of this or more."
