"""What can go wrong: your arguments, your file, your disk, or a bug of ours."""

from __future__ import annotations

from dataclasses import dataclass

EXCERPT = 80
"""Bytes of the input that an error or a diagnostic quotes at most."""


class XlaMemError(Exception):
    """Base of every error that xlamem raises on purpose."""


class UsageError(XlaMemError):
    """The arguments do not make sense together, or name something that is not there."""


class NativeError(XlaMemError):
    """A native module is missing, stale or broke its own rules: a bug to be reported."""


class OutputError(XlaMemError):
    """The output cannot be written."""


@dataclass(eq=False)
class DumpError(XlaMemError):
    """A file could not be read as a dump.

    ``line`` counts from 1, ``column`` and ``offset`` from 0 and in bytes; all three mean the file
    after decompression and are None where the error is about the file as a whole. ``system`` says that not
    the content is at fault but how it was to be had (I/O, permissions, the network): a later try may succeed.
    """

    path: str
    wanted: str
    section: str = ""
    line: int | None = None
    column: int | None = None
    offset: int | None = None
    excerpt: str = ""
    system: bool = False

    def __post_init__(self) -> None:
        self.path = utf8(self.path)

    def __str__(self) -> str:
        where = self.path
        if self.line is not None:
            where += f":{self.line}"
            if self.column is not None:
                where += f":{self.column + 1}"
        if self.offset is not None:
            where += f" (byte {self.offset:,})"
        section = f" [{self.section}]" if self.section else ""
        found = f", found {self.excerpt!r}" if self.excerpt else ""
        return f"{where}{section}: expected {self.wanted}{found}"

    def __reduce__(self) -> tuple[type[DumpError], tuple[object, ...], dict[str, object]]:
        return type(self), (
            self.path, self.wanted, self.section, self.line, self.column, self.offset, self.excerpt,
        ), {"system": self.system}  # fmt: skip


def utf8(name: str) -> str:
    """A file name as text that can be encoded: bytes that are not UTF-8 (kept by `os.fsdecode`) as \\xNN."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def excerpt(raw: bytes | memoryview) -> str:
    """At most EXCERPT bytes of one line, as text: bad bytes and control characters as \\xNN."""
    head = bytes(raw[: EXCERPT + 4])
    line = head.split(b"\n", 1)[0]
    text = line[:EXCERPT].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() or c == " " else f"\\x{ord(c):02x}" for c in text)
    return text + ("…" if len(line) > EXCERPT else "")
