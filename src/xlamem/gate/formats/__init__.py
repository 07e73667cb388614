"""Formats of the result of `xlamem check`: a function from the result to text for each name.

To add one, write a module with such a function and name it here.
"""

from __future__ import annotations

from collections.abc import Callable

from ..result import CheckResult
from .as_json import as_json
from .as_text import as_text

Format = Callable[[CheckResult], str]

FORMATS: dict[str, Format] = {
    "text": as_text,
    "json": as_json,
}
"""The formats by name. Each returns text without a newline at its end."""
