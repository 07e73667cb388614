"""Sources: the members of a dump and the parts of their name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ..errors import DumpError, utf8, without_passwords
from ..formatting import visible
from ..schema import ROLES
from . import names
from .member import Member

_ORDER = {role: i for i, role in enumerate(ROLES)}


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """One dump: its members in the order of `schema.ROLES`, and the parts of their name."""

    name: str
    members: tuple[Member, ...]
    module_id: int | None = None
    module_name: str | None = None
    platform: names.Platform | None = None
    target: str | None = None
    changelist: int | None = None
    timestamp_us: int | None = None
    derived: bool = False
    """Whether xlamem wrote the texts, from a compiled program, and not XLA, which prints totals and peaks too."""

    def member(self, role: str) -> Member | None:
        """Return the member with a role, or None."""
        return next((m for m in self.members if m.role == role), None)

    @property
    def content(self) -> tuple[Member, ...]:
        """The members that identify the program: all but the flags, of which paths differ from run to run."""
        return tuple(m for m in self.members if m.role not in names.FLAG_EXTENSIONS)

    @property
    def label(self) -> str:
        """The number and the name of the module, without what XLA adds to them: ``0042.jit_step``; or else the name."""
        is_numbered = self.module_id is not None and self.module_name
        return f"{self.module_id:04d}.{self.module_name}" if is_numbered else self.name

    @property
    def location(self) -> str:
        """The directory, container or file that contains the dump."""
        first = self.members[0]
        inner_path = first.entry.name if first.entry else first.inner_name
        if not inner_path:
            return without_passwords(utf8(os.path.dirname(first.uri))) or "."
        folder = os.path.dirname(inner_path)
        return without_passwords(utf8(f"{first.uri}::{folder}" if folder else first.uri))

    @property
    def fault(self) -> DumpError | None:
        """Why the dump cannot be read, if `find` has detected it. Reading the dump raises this error."""
        return next((m.fault for m in self.members if m.fault), None)

    def bytes_on_disk(self) -> int | None:
        """Return the total size of the members; None if unknown without reading them."""
        sizes = [m.bytes_on_disk() for m in self.members]
        return None if None in sizes else sum(s for s in sizes if s is not None)

    def __reduce__(self) -> tuple[type[Source], tuple[object, ...]]:
        return Source, (
            self.name, self.members, self.module_id, self.module_name, self.platform, self.target, self.changelist,
            self.timestamp_us, self.derived,
        )  # fmt: skip

    def __repr__(self) -> str:
        roles = ", ".join(m.role for m in self.members)
        return f"<Source {visible(self.name)} in {visible(self.location)}: {roles}>"


def source_of(name: str, members: Iterable[Member], *, by_name: bool) -> Source:
    """Create a source from members. If ``by_name`` is True, parse the name that XLA gave them."""
    ordered = tuple(sorted(members, key=lambda m: _ORDER[m.role]))
    name = utf8(name)
    if not by_name:
        return Source(name, ordered)
    parts = names.describe(name, "hlo")
    return Source(
        name, ordered, parts.module_id, parts.module_name, parts.platform, parts.target, parts.changelist,
        parts.timestamp_us,
    )  # fmt: skip


def sort_key(source: Source) -> tuple[list[_NaturalKey], _NaturalKey, int]:
    """Return the sort key of a source: folder, name and position. Numbers in names are compared as numbers."""
    return _folders_key(source.location), _natural_key(source.name), source.members[0].begin


_NaturalKey = list[str | tuple[int, str]]
_DIGITS = re.compile("([0-9]+)")


@lru_cache(maxsize=4096)
def _natural_key(text: str) -> _NaturalKey:
    """Return a sort key that orders 2 before 10 and numbers before letters."""
    parts: list[str] = _DIGITS.split(text)  # text and numbers in turn
    key: _NaturalKey = [*parts]
    key[1::2] = [(len(number), number) for number in (digits.lstrip("0") for digits in parts[1::2])]
    return key


@lru_cache(maxsize=1024)
def _folders_key(path: str) -> list[_NaturalKey]:
    return [_natural_key(folder) for folder in path.replace("::", "/").replace(os.sep, "/").split("/")]
