"""Grouping of members into dumps during a search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..errors import DumpError
from .member import Member
from .source import Source, sort_key, source_of


@dataclass(slots=True)
class _Group:
    """The members of one dump by role. Of members with the same role, the one with the lowest rank is kept."""

    name: str
    by_name: bool = True
    requested: bool = False
    """Whether the user named a member of the dump."""
    members: dict[str, tuple[int, Member]] = field(default_factory=dict)

    def is_dump(self) -> bool:
        """Return whether the members form a dump. HLO text alone has no memory tables and must be named by the user."""
        return self.requested or self.members.keys() != {"hlo"}


class Groups:
    """Groups members into dumps. Members may be added repeatedly.

    The ``folder`` of a member is the real path of its directory, or the path of its container or file.
    """

    def __init__(self) -> None:
        self.hits = 0
        """Number of members added so far, to detect paths without dumps."""
        self._groups: dict[tuple[str, str, int], _Group] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(
        self, member: Member, folder: str, stem: str, rank: int, *, number: int = 0, requested: bool = False
    ) -> None:
        """Add a member whose role and stem are known. ``number`` distinguishes dumps with the same stem in one file."""
        group = self._groups.setdefault((folder, stem, number), _Group(stem))
        group.requested |= requested
        self.hits += requested or member.role != "hlo"
        if member.role not in group.members or rank < group.members[member.role][0]:
            group.members[member.role] = rank, member

    def add_single(self, member: Member, path: str, number: int) -> None:
        """Add a member, whose role comes from its content, as a dump of its own."""
        self.hits += 1
        self._groups[path, "", number] = _Group(member.file_name, by_name=False, members={member.role: (0, member)})

    def add_fault(self, origin: Member, path: str, fault: DumpError) -> None:
        """Add a dump for a file that cannot be examined; reading it raises the fault."""
        self.add_single(replace(origin, role="buffer-assignment", fault=fault), path, -1)

    def sources(self) -> list[Source]:
        """Return the dumps in listing order."""
        dumps = [group for group in self._groups.values() if group.is_dump()]
        sources = [source_of(g.name, (m for _, m in g.members.values()), by_name=g.by_name) for g in dumps]
        return sorted(sources, key=sort_key)
