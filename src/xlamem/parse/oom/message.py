"""A message that is being read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from ... import schema
from .cells import METADATA, Row, integer, metadata_cells, size_of

TABLES: dict[str, pa.Schema] = {name: table.arrow for name, table in schema.OOM.items()}
"""The tables of `OomReport`; `schema.OOM` describes their columns."""

FORMS = {
    "tpu_hbm": "the compiler: a program does not fit into the TPU's HBM",
    "tpu_vmem": "the compiler: an instruction or program does not fit into the TPU's VMEM",
    "tpu_smem": "the compiler: the same for SMEM",
    "tpu_space": "the compiler: the same for another memory space",
    "tpu_allocation": "the compiler: one allocation is larger than its memory, as in Pallas kernels",
    "tpu_e1000": "the compiler: the short sentence of newer releases about HBM",
    "peak_buffers": "GPU and CPU: statistics of the buffer assignment and its largest buffers",
    "runtime": "the allocator of a device: one request that it could not serve",
    "usage": "no failure: the same totals, logged for a program that fits",
}
"""The forms of a message: reports.form."""

_WITH_TOTALS = ("tpu_hbm", "tpu_vmem", "tpu_smem", "tpu_space")
_SHAPE = re.compile(r"^%?[\w.-]+ = (\([^=]*?\)|\S+\[[^\]]*\](?:\{[^ ]*\})?) ")


@dataclass(eq=False)
class Message:
    """A message that is being read: its rows so far, and the section and buffer that the next line may belong to."""

    label: str | None
    thread: str | None
    line: int
    row: Row
    first_words: str = ""
    """The first line without its prefix, which is the same in all copies of a message."""

    usage: list[Row] = field(default_factory=list)
    buffers: list[Row] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)

    headings: set[str] = field(default_factory=set)
    usage_part: str = ""
    buffer_list: str = ""
    memory_space: str | None = None
    buffer: Row | None = None
    """The buffer that is being read."""
    _counts: Counter[str] = field(default_factory=Counter)
    """Number of buffers in each list, among the first `_n_counted` ones."""
    _n_counted: int = 0

    pending: list[tuple[int, str]] = field(default_factory=list)
    """Unknown lines since the last known line; they belong to the message only if a known line follows."""
    misses: int = 0
    last_line: int = 0
    labelled: bool = False
    """Whether a later line repeated the label; lines without it then belong to other messages."""
    threaded: bool = False
    """Whether a later line repeated the thread, because every line was logged separately."""
    warning: str | None = None
    """The size in a warning of a GPU's allocator, which mostly precedes another message about the same request."""
    truncated: bool = False
    """Whether the last line is known to be incomplete."""

    def __post_init__(self) -> None:
        self.last_line = self.line

    # -- rows

    def add_usage(self, part: str, label: str, size: str, **cells: Any) -> bool:
        row = dict.fromkeys(TABLES["usage"].names)
        row.update(memory_space=self.memory_space, part=part, label=label, bytes=size_of(size), size_text=size, **cells)
        self.usage.append(row)
        return True

    def add_failed(self, *, size: str, label: str | None, **cells: Any) -> None:
        """Add the one allocation that the message is about, as a buffer."""
        row = dict.fromkeys(TABLES["buffers"].names)
        row.update(list="failed allocation", ordinal=1, memory_space=self.row["memory_space"], complete=True)
        size_bytes = integer(size) if size.isdigit() else size_of(size)
        row.update(size_text=size, size_bytes=size_bytes, xla_label=label, **cells)
        if label and (m := METADATA.search(label)):
            row.update(metadata_cells(m[1]))
        if row["shape"] is None and label and (m := _SHAPE.match(label)):
            row["shape"] = m[1]
        self.buffers.append(row)

    def open_buffer(self, ordinal: int | None, size: str | None) -> bool:
        """Begin a buffer of the current list. If `ordinal` is None, it gets the next one."""
        self.close_buffer(False)
        row = dict.fromkeys(TABLES["buffers"].names)
        if ordinal is None:
            ordinal = self._next_ordinal()
        row.update(list=self.buffer_list, ordinal=ordinal, memory_space=self.memory_space, complete=False)
        row.update(size_text=size, size_bytes=size_of(size))
        self.buffer = row
        return True

    def _next_ordinal(self) -> int:
        """Return one more than the number of buffers in the current list."""
        for row in self.buffers[self._n_counted :]:
            self._counts[row["list"]] += 1
        self._n_counted = len(self.buffers)
        return 1 + self._counts[self.buffer_list]

    def close_buffer(self, complete: bool) -> None:
        if self.buffer is None:
            return
        row, self.buffer = self.buffer, None
        row["complete"] = complete
        if row["operator"] is None and row["xla_label"] and (m := METADATA.search(row["xla_label"])):
            row.update({**metadata_cells(m[1]), "operator": None})
        self.buffers.append(row)

    # -- lines

    def begin_heading(self, key: str) -> bool:
        """Begin the part below a heading; return False if the heading has already occurred."""
        if key in self.headings:
            return False
        self.headings.add(key)
        self.close_buffer(False)
        self.buffer_list = ""
        return True

    def in_program_list(self) -> bool:
        return self.buffer_list.startswith("program ")

    def take_empty_line(self) -> None:
        """End the buffer if it is from an old release's list, where an empty line is the only separator."""
        if self.buffer is not None and self.buffer["size_text"] is None and self.in_program_list():
            self.close_buffer(True)

    def take_known_line(self, number: int) -> None:
        self.unknown += self.pending
        self.pending.clear()
        self.misses, self.last_line = 0, number

    def take_unknown_line(self, number: int, text: str) -> None:
        self.pending.append((number, text))
        self.misses += 1

    # -- the end

    def is_truncated_at(self, number: int) -> bool:
        """Return whether the last line of the log is the only pending line and is indented like lines of a message."""
        return [n for n, _ in self.pending] == [number] and self.pending[0][1][:1] in (" ", "\t")

    def finish(self) -> None:
        """Complete the rows after the last line."""
        follows = bool(self.pending) and self.buffer is not None and self.pending[0][0] == self.last_line + 1
        if self.pending and (self.truncated or follows):
            self.unknown.append(self.pending[0])  # the line that was truncated
        if self.buffer is not None:
            self.close_buffer(self.buffer["size_text"] is None and not self.truncated)
        self.row["last_line"] = self.last_line
        self.row["complete"] = not (self.truncated or self._lacks_a_section())

    def _lacks_a_section(self) -> bool:
        row, is_listed = self.row, any(not b["list"].startswith("failed") for b in self.buffers)
        has_no_usage = self.usage_part != "" and not any(u["label"] != "total" for u in self.usage)
        has_no_totals = row["form"] in _WITH_TOTALS and row["used_text"] is None
        return (
            (has_no_totals and not is_listed)
            or bool(self.buffer_list and not is_listed)
            or any(not b["complete"] for b in self.buffers)
            or (has_no_usage and row["form"] != "usage")
            or (row["form"] == "peak_buffers" and "peak" not in self.headings)
        )


Rule: TypeAlias = Callable[[Message, re.Match[str]], bool]
"""Adds a matched line to a message; returns False if the line does not belong where it occurs."""
