"""Exceptions for invalid arguments, input, output, and bugs in the native modules."""

from __future__ import annotations

import errno
import os
import re

EXCERPT = 80
"""Maximum number of bytes of the input that an error or a diagnostic quotes."""

_PASSWORD = re.compile(r"(?i)(\bs3a?://)[^/?#\s]*@|(://[^/?#\s:@]*):[^/?#\s]*@")


class XlaMemError(Exception):
    """Base class of the errors that xlamem raises. Messages have no passwords of URIs."""

    def __str__(self) -> str:
        return without_passwords(super().__str__())


class UsageError(XlaMemError):
    """The arguments are invalid, contradict each other, or ask for something that does not exist, or that the dump does
    not tell."""


class NativeError(XlaMemError):
    """A native module is missing, is outdated, or violated an invariant. Please report it as a bug."""


class OutputError(XlaMemError):
    """The output cannot be written."""


def output_error(path: object, error: OSError) -> OutputError:
    """Return the error about a file that the system does not write."""
    if is_file_limit(error):
        return OutputError(f"{path}: {reason(error)}")  # the path may well be writable
    return OutputError(f"cannot write to {path}: {error.strerror or error}")


def is_file_limit(error: BaseException) -> bool:
    """Return whether a system call failed because this process, or the system, has too many open files."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def reason(error: OSError) -> str:
    """Return why a system call failed; for too many open files, with the limit."""
    if not is_file_limit(error):
        return error.strerror or str(error)
    try:
        import resource
    except ImportError:  # not a POSIX system
        return os.strerror(errno.EMFILE)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{os.strerror(errno.EMFILE)} (this process may open {limit:,}; ulimit -n raises the limit)"


class DumpError(XlaMemError):
    """A file cannot be read as a dump.

    ``line`` counts from 1; ``column`` and ``offset`` are in bytes and count from 0. All three refer to the decompressed
    file and are None if the error concerns the entire file. ``system`` is True if the cause is not the content but
    access to it (I/O, permissions, the network); a retry may succeed.
    """

    def __init__(
        self,
        path: str,
        wanted: str,
        section: str = "",
        line: int | None = None,
        column: int | None = None,
        offset: int | None = None,
        excerpt: str = "",
        system: bool = False,
    ) -> None:
        self.path = without_passwords(utf8(path))
        self.wanted = without_passwords(wanted)
        self.section = section
        self.line = line
        self.column = column
        self.offset = offset
        self.excerpt = excerpt
        self.system = system

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __str__(self) -> str:
        section = f" [{self.section}]" if self.section else ""
        excerpt = f", found {self.excerpt!r}" if self.excerpt else ""
        return f"{self._location()}{section}: expected {self.wanted}{excerpt}"

    def _location(self) -> str:
        location = self.path
        if self.line is not None:
            location += f":{self.line}"
            if self.column is not None:
                location += f":{self.column + 1}"
        return location if self.offset is None else f"{location} (byte {self.offset:,})"

    def __reduce__(self) -> tuple[type[DumpError], tuple[object, ...], dict[str, object]]:
        return type(self), (
            self.path, self.wanted, self.section, self.line, self.column, self.offset, self.excerpt,
        ), {"system": self.system}  # fmt: skip


def utf8(name: str) -> str:
    """Return a file name that can be encoded as UTF-8: other bytes (kept by `os.fsdecode`) become \\xNN."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def without_passwords(text: str) -> str:
    """Remove passwords, and keys of S3 with their names, from the URIs in a text. Other users belong to the place."""
    return _PASSWORD.sub(lambda match: match[1] or f"{match[2]}@", text) if "://" in text else text


def excerpt(raw: bytes | memoryview) -> str:
    """Return at most EXCERPT bytes of one line as text: invalid bytes and control characters become \\xNN."""
    head = bytes(raw[: EXCERPT + 4])
    line = head.split(b"\n", 1)[0]
    end = EXCERPT
    while EXCERPT - 3 < end < len(line) and line[end] & 0xC0 == 0x80:  # within a character
        end -= 1
    text = line[:end].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() or c == " " else f"\\x{ord(c):02x}" for c in text)
    return text + ("…" if len(line) > EXCERPT else "")
