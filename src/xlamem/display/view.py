"""What a terminal or a notebook shows of a result."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Protocol

from ..formatting import visible


class Part(Protocol):
    """A part of a view."""

    def text(self) -> str:
        """Return lines for a terminal; empty if there is nothing to show there."""
        ...

    def html(self) -> str: ...


@dataclass(frozen=True, repr=False)
class View:
    """A title and parts below it. Its repr is text, and notebooks show it as HTML."""

    title: str
    parts: tuple[Part, ...] = ()

    def __repr__(self) -> str:
        title = f"<{visible(self.title)}>" if self.title else ""
        return "\n".join(filter(None, [title, *(part.text() for part in self.parts)]))

    def _repr_html_(self) -> str:
        title = f"<div><strong>{escape(visible(self.title))}</strong></div>" if self.title else ""
        return f"<div>{title}{''.join(part.html() for part in self.parts)}</div>"
