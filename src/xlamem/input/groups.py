"""Grouping of members into dumps during a search."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..errors import DumpError
from . import names
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
        return self.requested or len(self.members) != 1 or "hlo" not in self.members


class Groups:
    """Groups members into dumps. Members may be added repeatedly.

    The ``folder`` of a member is the real path of its directory, or the path of its container or file.
    """

    def __init__(self) -> None:
        self.hits = 0
        """Number of members added so far, to detect paths without dumps."""
        self._groups: dict[tuple[str, str, int], _Group] = {}
        self._flags: dict[tuple[str, str, int], dict[str, tuple[int, Member]]] = {}
        """Files with flags by role, which belong to every dump with their stem."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(
        self, member: Member, folder: str, stem: str, rank: int, *, number: int = 0, requested: bool = False
    ) -> None:
        """Add a member whose role and stem are known. ``number`` distinguishes dumps with the same stem in one file."""
        if (group := self._groups.get((folder, stem, number))) is None:
            group = self._groups[folder, stem, number] = _Group(stem)
        group.requested |= requested
        self.hits += requested or member.role != "hlo"
        _keep_best(group.members, member, rank)

    def add_flags(self, member: Member, folder: str, stem: str, rank: int, *, number: int = 0) -> None:
        """Add a file with flags. Without a dump of its stem, it is ignored."""
        _keep_best(self._flags.setdefault((folder, stem, number), {}), member, rank)

    def add_single(self, member: Member, path: str, number: int) -> None:
        """Add a member, whose role comes from its content, as a dump of its own."""
        self.hits += 1
        self._groups[path, "", number] = _Group(member.file_name, by_name=False, members={member.role: (0, member)})

    def add_fault(self, origin: Member, path: str, fault: DumpError) -> None:
        """Add a dump for a file that cannot be examined; reading it raises the fault."""
        self.add_single(replace(origin, role="buffer-assignment", fault=fault), path, -1)

    def sources(self) -> list[Source]:
        """Return the dumps in listing order."""
        dumps = [(key, group) for key, group in self._groups.items() if group.is_dump()]
        sources = [source_of(g.name, self._members(key, g), by_name=g.by_name) for key, g in dumps]
        return sorted(sources, key=sort_key)

    def _members(self, key: tuple[str, str, int], group: _Group) -> list[Member]:
        """Return the members of a dump and the files with its flags."""
        folder, stem, number = key
        flags = self._flags.get((folder, names.flags_stem(stem), number), {}) if self._flags and group.by_name else {}
        return [member for _, member in (*group.members.values(), *flags.values())]


def _keep_best(members: dict[str, tuple[int, Member]], member: Member, rank: int) -> None:
    """Add a member unless one of its role has a lower rank."""
    if member.role not in members or rank < members[member.role][0]:
        members[member.role] = rank, member
