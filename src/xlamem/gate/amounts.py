"""Sizes and shares in a configuration: `14.5GiB`, `0 %`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..compute.capacity import byte_count
from ..errors import UsageError

MAX_NUMBER = 1 << 60
"""Maximum of a limit and of a number in a baseline: what is computed from them fits into 64 bits."""
_PERCENT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?|\.[0-9]{1,18})\s*%")
_AMOUNT = "a share such as '5 %' or a size such as '64MiB'"


@dataclass(frozen=True)
class Amount:
    """A limit in bytes, or as a share of another number."""

    text: str
    """As in the configuration."""
    bytes: int | None = None
    share: Fraction | None = None

    def of(self, whole: int) -> int:
        """Return the limit in bytes; a share is that of `whole`, rounded down."""
        return self.bytes if self.bytes is not None else min(int((self.share or 0) * whole), MAX_NUMBER)


def size_limit(name: str, value: Any) -> int:
    """Return a size in bytes: an integer, or text with a unit. Raises UsageError."""
    if isinstance(value, bool) or (isinstance(value, str) and "%" in value):
        raise UsageError(f"{name} must be a size such as '14.5GiB', not {value!r}")
    try:
        size = byte_count(name, value, limited=False)
    except UsageError as e:
        raise UsageError(str(e) if name in str(e) else f"{name}: {e}") from None
    if size > MAX_NUMBER:
        raise UsageError(f"{name} must be at most 2^60 bytes, not {value!r}")
    return size


def amount(name: str, value: Any) -> Amount:
    """Return a size or a share of something. Raises UsageError."""
    if isinstance(value, str) and "%" in value:
        return Amount(value.strip(), share=share(name, value, _AMOUNT))
    if not isinstance(value, (int, str)) or isinstance(value, bool):
        raise UsageError(f"{name} must be {_AMOUNT}, not {value!r}")
    text = f"{value:,} bytes" if isinstance(value, int) else value.strip()
    return Amount(text, bytes=size_limit(name, value))


def share(name: str, value: Any, wanted: str = "a share such as '95 %'", *, most: int | None = None) -> Fraction:
    """Return a share of at most `most` percent. Raises UsageError, which says what is `wanted`."""
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UsageError(f"{name} must be {wanted}, not {value!r}")
    percent = Fraction(match[1])
    if most is not None and percent > most:
        raise UsageError(f"{name} must be at most {most} %, not {value!r}")
    return percent / 100
