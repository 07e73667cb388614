"""Select one of several programs, and one of the memory spaces of a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..dump import DumpLike, read
from ..errors import DumpError
from ..input.find import Source
from .layout import no_such_space
from .program import program
from .requirement import device_total

Row = dict[str, Any]

MAIN_SPACES = ("hbm", "device", "memory", "color_0")
"""Names of the device's main memory, by platform; the last one is for unknown platforms."""


def main_first(space: str | None) -> bool:
    """Return a sort key that puts the main memory before other memory spaces."""
    return space not in MAIN_SPACES


def select_space(rows: list[Row], space: str | int | None, *, required: bool = True) -> list[Row]:
    """Return the rows of the memory space with this name or color, or all rows for None.

    Raises UsageError if no row matches and `required` is true.
    """
    if space is None:
        return rows
    matches = [row for row in rows if space in (row["memory_space"], row["color"])]
    if not matches and required:
        raise no_such_space(space, ((r["memory_space"], r["color"]) for r in rows if r["color"] is not None))
    return matches


def rows_of_space(dump: DumpLike, rows: list[Row], space: str | int | None) -> list[Row]:
    """Return the rows of the memory space of a dump with this name or color, or all rows for None.

    A space in which nothing is reserved may have no rows. Raises UsageError if the dump does not have the space.
    """
    program(dump).select_spaces(space)
    return select_space(rows, space, required=False)


def program_size(device_total: int | None) -> int:
    """Return the sort key of a program with this `device_total`; unknown totals sort as 0."""
    return device_total or 0


def largest_program(sources: Iterable[Source]) -> tuple[Source | None, list[DumpError | OSError]]:
    """Return the source with the largest `device_total`, and the errors of unreadable sources."""
    sizes: list[tuple[int, Source]] = []
    errors: list[DumpError | OSError] = []
    for source in sources:
        try:
            sizes.append((program_size(device_total(read(source, tables=["allocations"]))), source))
        except (DumpError, OSError) as error:
            errors.append(error)
    return (max(sizes, key=lambda s: s[0])[1] if sizes else None), errors
