"""Formats of the result of `xlamem check`: a function from the result to text for each name.

To add one, write a module with such a function and name it here.
"""

from __future__ import annotations

from collections.abc import Callable

from ..result import CheckResult
from .as_github import as_github
from .as_json import as_json
from .as_junit import as_junit
from .as_markdown import as_markdown
from .as_text import as_text

Format = Callable[[CheckResult], str]

FORMATS: dict[str, Format] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "markdown": as_markdown,
    "junit": as_junit,
}
"""The formats by name. Each returns text without a newline at its end."""
