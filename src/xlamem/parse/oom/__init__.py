"""Out-of-memory reports: XLA's error messages, from a log or alone, as tables.

A log is searched for the few phrases that such messages begin with. The lines that follow are split by rank and
thread, and each line of a message becomes a row. Sizes in these messages are rounded, so ``…_bytes`` is only as exact
as the printed text, which is in the column ``…_text``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import pyarrow as pa

from ...errors import DumpError, UsageError
from ...input.access import standard_input, system_errors
from ...input.files import FileView
from ...input.member import Member
from ...input.text import Text
from .cells import Row, size_of
from .message import FORMS, TABLES, Message
from .scan import find_messages, has_anchor

__all__ = ["FORMS", "TABLES", "OomReport", "read_oom", "size_of"]

LogLike: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO


@dataclass(frozen=True)
class OomReport:
    """The out-of-memory reports of one log, in the order in which they begin."""

    source: str
    reports: pa.Table
    usage: pa.Table
    buffers: pa.Table
    unknown: pa.Table

    def __len__(self) -> int:
        return int(self.reports.num_rows)

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} {getattr(self, name).num_rows}" for name in TABLES)
        return f"<OomReport {self.source}: {tables}>"


def read_oom(source: LogLike) -> OomReport:
    """Read the out-of-memory reports of a log or of a single message.

    ``source`` is a path or URI (compressed or not, ``-`` for standard input), bytes, a binary file,
    or the text of a message itself, as in ``read_oom(str(error))``.
    """
    name, text = _load(source)
    with text:
        messages = find_messages(text.data)
    return OomReport(name, **_tables(messages))


# -- the log -------------------------------------------------------------------------------------


def _load(source: LogLike) -> tuple[str, Text]:
    """Return the name and the text of a log."""
    if isinstance(source, str) and ("\n" in source or has_anchor(source)):
        return "<text>", Text(source.encode("utf-8", "backslashreplace"), "<text>")
    if not isinstance(source, (str, os.PathLike)):
        name, data = _content(source)
        return name, _text(data, name)
    path = os.fsdecode(source)
    if path == "-":
        return "<stdin>", _text(standard_input(), "<stdin>")
    return path, _load_file(path)


def _content(source: bytes | BinaryIO) -> tuple[str, bytes]:
    """Return the name and the content of bytes or of a file."""
    name = "<bytes>"
    content: bytes | str = b""
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file>"))
        with system_errors(name):
            content = source.read()
    else:
        content = source
    try:
        return name, content.encode("utf-8", "backslashreplace") if isinstance(content, str) else bytes(content)
    except TypeError:
        raise UsageError(f"cannot read a log from {type(source).__name__}") from None


def _load_file(path: str) -> Text:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        mode = stat.S_IFREG  # a URI, or a missing file, which fails when it is opened
    if stat.S_ISDIR(mode):
        raise DumpError(path, "a log (this is a directory; `xlamem peak` reads dumps)")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # such as /dev/zero, which has no end
        raise DumpError(path, "a log (this is a device)")
    if not stat.S_ISREG(mode):  # a pipe can be read only once
        with system_errors(path), open(path, "rb") as file:
            return _text(file.read(), path)
    return Member("", path).load()


def _text(data: bytes, name: str) -> Text:
    with system_errors(name):
        return Text(FileView.from_bytes(name, data).decompressed().read(), name)


# -- the tables ----------------------------------------------------------------------------------


def _tables(messages: list[Message]) -> dict[str, pa.Table]:
    rows: dict[str, list[Row]] = {name: [] for name in TABLES}
    first_reports: dict[Hashable, int] = {}
    for report, m in enumerate(messages):
        content = (m.row["form"], m.first_words, repr(m.usage), repr(m.buffers))
        first = first_reports.setdefault(content, report)
        m.row.update(report=report, rank=m.label, thread=m.thread or None, line=m.line)
        m.row["same_as"] = None if first == report or m.row["form"] == "usage" else first
        rows["reports"].append(m.row)
        rows["usage"] += [{**u, "report": report, "ordinal": i} for i, u in enumerate(m.usage)]
        rows["buffers"] += [{**b, "report": report} for b in m.buffers]
        rows["unknown"] += [{"report": report, "line": n, "text": text} for n, text in m.unknown]
    return {name: pa.Table.from_pylist(rows[name], schema=spec) for name, spec in TABLES.items()}
