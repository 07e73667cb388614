"""Access to inputs: which names are URIs or globs, and the errors of opening and reading."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from ..errors import DumpError, XlaMemError, reason

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")
WILDCARD = re.compile(r"[*?[]")


def local_path(path: str) -> str:
    """Return the path in a ``file://`` URI; other URIs and paths are returned unchanged."""
    if path[:7].lower() != "file://":
        return path
    from urllib.parse import unquote, urlsplit  # most paths are no URIs

    return unquote(urlsplit(path, allow_fragments=False).path)


@contextmanager
def system_errors(name: str, expected: str = "a readable file") -> Iterator[None]:
    """Convert errors of the system, pyarrow, and the library that handles a URI to a DumpError about `name`."""
    try:
        yield
    except (XlaMemError, MemoryError):
        raise
    except Exception as error:  # libraries that handle URIs have their own exceptions
        if not isinstance(error, (OSError, pa.ArrowException)) and not URI.match(name):
            raise
        text = reason(error) if isinstance(error, OSError) else str(error)
        raise DumpError(name, f"{expected} ({_first_line(text) or type(error).__name__})", system=True) from error


def standard_input() -> bytes:
    """Read standard input."""
    if sys.stdin is None:
        raise DumpError("<stdin>", "standard input; it is closed")
    with system_errors("<stdin>"):
        return sys.stdin.buffer.read()


def _first_line(text: str) -> str:
    """Return the first line, without the details that Google's library adds to its messages."""
    return text.partition("\n")[0].partition(" error_info=")[0]
