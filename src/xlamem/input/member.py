"""Members: the texts of a dump."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import DumpError, utf8, without_passwords
from .access import URI, system_errors
from .containers import Entry
from .files import Buffer, FileView, open_decompressed, read_small
from .logs import LogText
from .spans import Form
from .text import Text


@dataclass(slots=True, eq=False)  # a frozen one takes three times as long to create
class Member:
    """One text of a dump and its location. It is never changed.

    Texts in memory are equal only if they are in the same bytes object, because their name does not identify them.

    ``begin`` and ``end`` delimit the text in the decompressed file ``uri`` or, if it is a container, in its
    decompressed ``entry``.
    """

    role: str
    uri: str
    inner_name: str = ""
    """The name of the container's entry or of the frame."""
    form: Form = "plain"
    begin: int = 0
    end: int | None = None
    size: int | None = None
    """Size of the text in bytes, if known without reading it."""
    entry: Entry | None = None
    fault: DumpError | None = None
    """Why the text cannot be read, if `find` has detected it."""
    content: Buffer | None = field(default=None, repr=False)
    """The decompressed file, if it is in memory or can be read only once."""

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Member) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return (
            self.role, self.uri, self.inner_name, self.form, self.begin, self.end, self.size, self.entry,
            id(self.content),
        )  # fmt: skip

    @property
    def file_name(self) -> str:
        """The file name of this text, given by XLA or the user, for `names.parse`."""
        path = self.inner_name or self.uri
        if "://" in path and URI.match(path):
            from urllib.parse import unquote  # most paths are local

            path = unquote(path.partition("?")[0])
        return path[max(path.rfind("/"), path.rfind("\\")) + 1 :]

    @property
    def location(self) -> str:
        """The file that lines and offsets refer to, as named in errors and tables."""
        if self.entry is None and "://" not in self.uri:  # most files
            return utf8(self.uri)
        return without_passwords(utf8(f"{self.uri}::{self.entry.name}" if self.entry else self.uri))

    @property
    def is_whole_file(self) -> bool:
        """Whether the text is all of a file that is not in memory."""
        is_part = self.begin or self.end is not None or self.entry is not None or self.form != "plain"
        return not is_part and self.content is None

    def open(self) -> FileView:
        """Open the decompressed file that contains the text."""
        if self.fault is not None:  # such as a pipe, which may never have an end
            raise self.fault.with_traceback(None)
        file = FileView.from_bytes(self.uri, self.content) if self.content is not None else open_decompressed(self.uri)
        return self.entry.open(file).decompressed() if self.entry else file

    def load(self) -> Text:
        """Load the text, memory-mapped where possible."""
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        with system_errors(self.location):
            if self.is_whole_file and (content := read_small(self.uri)) is not None:
                return Text(content, self.location)
            file = self.open()
            begin = min(self.begin, file.size)
            data = file.read(begin, self.end)
            text = Text(data, self.location, base=begin, count_lines_before=lambda: file.count_newlines(begin))
            return LogText(text) if self.form == "log" else text

    def bytes_on_disk(self) -> int | None:
        """Return the size of the text or of its compressed file; None if unknown without reading it."""
        if self.end is not None:
            return self.end - self.begin
        if self.size is not None:
            return self.size
        if self.entry is not None:
            return self.entry.size
        with suppress(OSError):
            return os.stat(self.uri).st_size
        return None

    def __reduce__(self) -> tuple[type[Member], tuple[object, ...]]:
        if self.content is not None:
            raise TypeError("a dump from bytes or standard input cannot be pickled")
        # Written out: for ten thousand members, a loop over the fields would take as long as opening the files.
        return Member, (
            self.role, self.uri, self.inner_name, self.form, self.begin, self.end, self.size, self.entry, self.fault,
        )  # fmt: skip
