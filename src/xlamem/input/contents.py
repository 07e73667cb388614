"""Files that are not named like members: containers, captured output, logs, and text recognised by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import DumpError
from . import names
from .access import system_errors
from .containers import Container, Entry, recognize
from .files import Buffer, FileView, open_file
from .groups import Groups
from .member import Member
from .spans import MemberSpan, contains_dump, detect_role, member_spans

MAX_SEARCHED = 16 << 20
"""Bytes to search for a dump in files with unknown names in directories: in a log, the first dump may be far in.
Files that the user names are searched to the end."""

_HLO = b"HloModule "
_OUT_OF_MEMORY = b"RESOURCE_EXHAUSTED", b"Ran out of memory"
"""What out-of-memory messages contain. In a log, they are near the end."""

MAX_HEAD = 64 * 1024
"""Number of bytes to search for the first section of a text without a module."""


class Contents:
    """Examines files with unknown names, each only once, and adds their members to the groups.

    ``path`` is the real path of a file, which identifies it.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._hits: dict[str, int] = {}
        self._unfinished: set[str] = set()
        """Files without a dump near the beginning, of which the rest was not searched."""
        self.others: set[names.Other] = set()
        """What texts without a dump are."""

    def add_file(self, uri: str, path: str, *, search: bool = False) -> None:
        """Add the dumps in a file. If ``search`` is True, only files with a dump near the beginning are read."""
        self._add(Member("", uri), lambda: open_file(uri), path, search)

    def add_content(self, origin: Member, file: FileView, path: str) -> None:
        """Add the dumps in a decompressed file."""
        container = recognize(origin.file_name, file) if origin.entry is None else None
        if container is not None:
            return self._add_entries(container, origin, file, path)
        data = file.read()
        spans = member_spans(data)
        for number, span in enumerate(spans):
            if not span.frame:
                self._groups.add_single(span_member(origin, span, file, "buffer-assignment"), path, number)
        self._add_frames(origin, [span for span in spans if span.frame], file, path)
        if not spans and (role := detect_role(bytes(data[:MAX_HEAD]))):
            self._groups.add_single(replace(origin, role=role, size=file.size), path, 0)
        self._note_other(data)

    def _add(self, origin: Member, opener: Callable[[], FileView], path: str, search: bool) -> None:
        if path in self._hits and (search or path not in self._unfinished):
            self._groups.hits += self._hits[path]
            return
        hits = self._groups.hits
        try:
            with system_errors(origin.location):
                if search and not contains_dump(head := opener().head(MAX_SEARCHED)):
                    self._note_other(head)
                    self._unfinished.add(path)
                else:
                    self._unfinished.discard(path)
                    self.add_content(origin, opener().decompressed(), path)
        except DumpError as fault:
            self._groups.add_fault(origin, path, fault)
        self._hits[path] = self._groups.hits - hits

    def _note_other(self, text: Buffer) -> None:
        if bytes(text[: len(_HLO)]) == _HLO:
            self.others.add("hlo")
        ends = bytes(text[:MAX_HEAD]), bytes(text[-MAX_HEAD:])
        if any(phrase in end for phrase in _OUT_OF_MEMORY for end in ends):
            self.others.add("message")

    def _add_frames(self, origin: Member, frames: list[MemberSpan], file: FileView, path: str) -> None:
        """Add the frames that are members. If a role of a stem repeats, it is from another process."""
        roles_of_stem: dict[str, tuple[int, set[str]]] = {}
        for span in frames:
            member_name = names.split(span.frame)
            if name := member_name or names.split_flags(span.frame):
                stem, role = name
                number, roles = roles_of_stem.get(stem, (0, set()))
                if role in roles:
                    number, roles = number + 1, set()
                roles_of_stem[stem] = number, roles | {role}
                member = replace(span_member(origin, span, file, role), inner_name=span.frame)
                add = self._groups.add if member_name else self._groups.add_flags
                add(member, path, stem, 0, number=number)

    def _add_entries(self, container: Container, origin: Member, file: FileView, path: str) -> None:
        try:
            for number, entry in enumerate(container.entries(file)):
                self._add_entry(origin, file, path, entry, number)
        except DumpError as fault:
            self._groups.add_fault(origin, path, fault)

    def _add_entry(self, origin: Member, file: FileView, path: str, entry: Entry, number: int) -> None:
        folder, _, file_name = entry.name.rpartition("/")
        member_name = names.split(file_name)
        name = member_name or names.split_flags(file_name)
        if name is None and not names.is_text(file_name):
            return
        member = replace(origin, entry=entry, inner_name=entry.name)
        fault = DumpError(member.location, entry.expected) if entry.expected else None
        if fault and name and not member_name:
            return  # a dump can be read without its flags
        if name:
            stem, role = name
            rank = names.compression_rank(file_name)
            member = replace(member, role=role, fault=fault)
            # Of entries with the same name, the last one takes precedence, as it does when unpacking.
            add = self._groups.add if member_name else self._groups.add_flags
            add(member, f"{path}::{folder}", stem, (rank << 32) - number)
        elif fault:
            self._groups.add_fault(member, f"{path}::{entry.name}", fault)
        else:
            self._add(member, lambda: entry.open(file), f"{path}::{entry.name}", search=True)


def span_member(origin: Member, span: MemberSpan, file: FileView, role: names.Role) -> Member:
    """Return the member that this span of a file contains."""
    size = (file.size if span.end is None else span.end) - span.begin
    return replace(origin, role=role, form=span.form, begin=span.begin, end=span.end, size=size)
