"""Dumps of programs that this process compiled: how they show themselves, and the numbers that lists of them show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..compute import live_set, main_first, peak
from ..dump import Dump, Input, read
from ..errors import XlaMemError
from ..formatting import file_line

if TYPE_CHECKING:
    from ..display import View
    from ..display.view import Part

N_BUFFERS = 10
"""Number of buffers that a dump shows."""


class ProgramDump(Dump):
    """A dump that shows itself as its first screen: what must fit, the peaks, and the largest buffers."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self._screen(curves=False))

    def _repr_html_(self) -> str:
        return self._screen(curves=True)._repr_html_()

    def _screen(self, *, curves: bool) -> View:
        from ..display import View  # not needed to compile

        try:
            parts = peak(self)._view(curves=curves).parts
        except XlaMemError:
            return self._view()
        return View(f"xlamem.Dump {program_name(self)} ({self.platform})", (*parts, *_largest_buffers(self)))


def read_program(source: Input) -> Dump:
    """Read a dump that shows itself as its first screen."""
    return ProgramDump(read(source)._tables)


def _largest_buffers(dump: Dump) -> list[Part]:
    """Return the largest buffers at the peak of the main memory; none if the dump does not tell."""
    from ..display.tables import TableGrid

    try:
        members = live_set(dump, space=main_peak(dump)["memory_space"])
    except XlaMemError:
        return []
    rows = members.slice(0, N_BUFFERS).to_pylist()
    names = ("bytes", "kind", "op_name", "instruction", "shape")
    columns = {name: pa.array([row[name] for row in rows], members.schema.field(name).type) for name in names}
    lines = [file_line(row["source_file"], row["source_line"], folder=False) or None for row in rows]
    columns["line"] = pa.array(lines, pa.string())
    return [TableGrid(pa.table(columns), N_BUFFERS)] if rows else []


def program_name(dump: Dump) -> str:
    """Return the name of the module, or of the dump if that is not known."""
    return dump.source.module_name or dump.name


def main_peak(dump: Dump) -> dict[str, Any]:
    """Return `peak` (bytes) and `memory_space` of the main memory; None without allocations."""
    spaces = sorted(peak(dump).spaces.to_pylist(), key=lambda s: main_first(s["memory_space"]))
    main = spaces[0] if spaces else {}
    return {name: main.get(name) for name in ("peak", "memory_space")}
