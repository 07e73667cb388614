"""Search of files, directories, globs and URIs for members."""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import DumpError, UsageError, reason, utf8, without_passwords
from . import containers, names
from .access import URI, WILDCARD, local_path, standard_input, system_errors
from .contents import Contents
from .files import FileView
from .groups import Groups
from .member import Member

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SEARCHED_FOR = (
    "files named "
    + ", ".join("*" + names.EXTENSIONS[role] for role in names.EXTENSIONS if role != "hlo")
    + f" (also {' '.join(names.COMPRESSED)}), tar and zip archives of them, and other texts with a line "
    + "'BufferAssignment:' or '*** Begin NAME ***' (in a directory: within their first 16 MiB)"
)


FLAGS = 'XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text"'
HINTS: dict[names.Other, str] = {
    "proto": f"there are only protos, and xlamem reads text; compile with {FLAGS}",
    "hlo": f"there is HLO text, but no *-buffer-assignment.txt, which XLA writes at the end of a compile with {FLAGS}",
    "profile": f"there are only profiles, which show a run and not the compiler's plan; compile with {FLAGS}",
    "message": "there is an out-of-memory message, which `xlamem oom FILE` reads",
    "nothing": f"the directory is empty; XLA writes dumps if {FLAGS} is set before the program starts",
}
"""What to do about files that have no dump. The first one that applies is shown."""


def _hint(others: set[names.Other]) -> str:
    return next((text for kind, text in HINTS.items() if kind in others), "")


class NoDumpError(UsageError):
    """A path exists, but nothing under it is a dump."""

    def __init__(self, path: str, hint: str = "") -> None:
        super().__init__(f"no dump in {path}: {f'{hint}; ' if hint else ''}searched for {SEARCHED_FOR}")
        self.path, self.hint = without_passwords(path), hint

    def __reduce__(self) -> tuple[type[NoDumpError], tuple[str, str]]:
        return type(self), (self.path, self.hint)


class Walker:
    """Adds the dumps under paths to its groups, each only once even if several paths lead to it."""

    def __init__(self) -> None:
        self.groups = Groups()
        self._contents = Contents(self.groups)
        self._walked: set[str] = set()
        self._has_read_stdin = False
        self._others: set[names.Other] = set()
        """Of the last path."""
        self._all_others: set[names.Other] = set()

    def add(self, path: str) -> None:
        """Add all dumps under a path. Raises NoDumpError if there are none."""
        if path == "-":
            return self._add_stdin()
        path = local_path(path)
        hits = self.groups.hits
        self._others.clear()
        self._contents.others.clear()
        if URI.match(path):
            self._add_uri(path)
        else:
            self._add_local(path)
        self._others |= self._contents.others
        self._all_others |= self._others
        if self.groups.hits == hits and not _is_other_dump_file(path):
            raise NoDumpError(utf8(path), _hint(self._others))

    @property
    def hint(self) -> str:
        """What to do if there is no dump under any of several paths; empty if that is not known."""
        return _hint(self._all_others - {"nothing"})  # which of the directories would not be clear

    def add_bytes(self, data: bytes, name: str) -> None:
        """Add the dumps in bytes. Raises NoDumpError if there are none."""
        hits = self.groups.hits
        with system_errors(name):
            file = FileView.from_bytes(name, data).decompressed()
        content = file.read()
        self._contents.others.clear()
        self._contents.add_content(Member("", name, content=content), file, f"{name}#{id(content)}")
        self._all_others |= self._contents.others
        if self.groups.hits == hits:
            raise NoDumpError(name, _hint(self._contents.others))

    def _add_stdin(self) -> None:
        if not self._has_read_stdin:
            self._has_read_stdin = True
            self.add_bytes(standard_input(), "<stdin>")

    # -- local paths

    def _add_local(self, path: str) -> None:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError) as error:
            self._add_missing(path, error)
        else:
            self._add_existing(path, mode)

    def _add_existing(self, path: str, mode: int) -> None:
        directory, file_name = os.path.split(path)
        if stat.S_ISDIR(mode):
            self._walk(path)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # such as /dev/zero, which has no end
            raise DumpError(path, "a file, a directory or a pipe (a device)")
        elif not stat.S_ISREG(mode):  # a pipe, such as <(zcat …), can be read only once
            with system_errors(path), open(path, "rb") as file:
                self.add_bytes(file.read(), path)
        elif name := names.split(file_name):
            self._add_siblings(directory, name[0], file_name)
        else:
            self._note_other(file_name)
            self._contents.add_file(path, os.path.realpath(path))

    def _add_missing(self, path: str, error: OSError | ValueError) -> None:
        """Add a path that does not exist: a broken link, a glob or a stem."""
        directory, stem = os.path.split(path)
        if isinstance(error, OSError) and os.path.lexists(path):  # a link to nothing, or to itself
            self._add_fault(path, error)
        elif not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise UsageError(f"cannot access {path!r}: {getattr(error, 'strerror', None) or error}") from error
        elif WILDCARD.search(path):
            self._add_glob(path)
        elif not (stem and self._add_siblings(directory, stem)):
            raise _does_not_exist(path)

    def _add_glob(self, pattern: str) -> None:
        for path in sorted(glob.glob(pattern, recursive=True)):
            directory, file_name = os.path.split(path)
            name = names.split(file_name)
            if name and os.path.isfile(path):
                self._note_hlo(name[1])
                self._add_siblings(directory, name[0], file_name, requested=False)
            elif self._add_linked(path, search=False):
                self._walk(path)

    def _add_siblings(self, directory: str, stem: str, given: str = "", *, requested: bool = True) -> bool:
        """Add the members with a stem without listing the directory, and return whether any exist.

        The file ``given`` is preferred to others with the same role.
        """
        hits = self.groups.hits
        folder, _ = _real_paths(os.path.join(directory, given or stem))
        for role in names.EXTENSIONS:
            choice = names.variants(stem, role)
            for name in [given] if given in choice else choice:
                path = os.path.join(directory, name)
                if os.path.isfile(path):
                    rank = names.compression_rank(name)
                    self.groups.add(Member(role, path), folder, stem, rank, requested=requested)
                    break
        for role in names.FLAG_EXTENSIONS:
            for name in names.variants(stem, role):
                if os.path.isfile(path := os.path.join(directory, name)):
                    self.groups.add_flags(
                        Member(role, path), folder, names.flags_stem(stem), names.compression_rank(name)
                    )
                    break
        return self.groups.hits > hits

    def _walk(self, top: str) -> None:
        """Add the files of a directory and of its subdirectories, except hidden ones."""
        stack = [(top, os.path.realpath(top))]
        while stack:
            directory, real = stack.pop()
            if real in self._walked:
                self.groups.hits += bool(self.groups)  # visited before: its dumps count for this path too
                continue
            self._walked.add(real)
            below = os.path.join(real, "")
            entries = self._entries(directory)
            if not entries and directory == top:
                self._others.add("nothing")
            for entry in sorted(entries, key=lambda e: e.name, reverse=True):
                path = entry.path
                if _is_plain_file(entry):
                    self._add_listed(path, entry.name, real, below + entry.name)
                elif self._add_linked(path) and not entry.name.startswith(".") and not _is_of_kernel(below, entry.name):
                    stack.append((path, os.path.realpath(path)))

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        """List a directory. If an error occurs, the entries before it are kept."""
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(directory) as listing:
                entries.extend(listing)
        except OSError as error:
            self._add_fault(directory, error, "a directory that can be listed")
        return entries

    def _add_linked(self, path: str, *, search: bool = True) -> bool:
        """Add a path from a directory or glob, following links, and return whether it is a directory."""
        file_name = os.path.basename(path)
        is_member = names.split(file_name) is not None
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            if is_member or not (file_name.startswith(".") or names.is_dumped(file_name)):
                self._add_fault(path, error)
            return False
        if stat.S_ISREG(mode):
            self._add_listed(path, file_name, *_real_paths(path), search=search)
        elif not stat.S_ISDIR(mode) and (is_member or containers.by_name(file_name)):
            self._add_fault(path, "a pipe, a socket or a device")
        return stat.S_ISDIR(mode)

    def _add_fault(self, path: str, cause: OSError | str, expected: str = "a readable file") -> None:
        """Add a dump or member for a path that cannot be examined; reading it raises the fault."""
        path = path.rstrip(os.sep) or path
        text = cause if isinstance(cause, str) else reason(cause)
        fault = DumpError(path, f"{expected} ({text})", system=True)
        if name := names.split(os.path.basename(path)):
            self.groups.add(Member(name[1], path, fault=fault), _real_paths(path)[0], name[0], sys.maxsize)
        else:
            self.groups.add_fault(Member("", path), os.path.abspath(path), fault)

    # -- URIs

    def _add_uri(self, uri: str) -> None:
        from pyarrow.fs import FileType

        from .filesystems import decoder, files_below, filesystem, split_glob

        base, pattern = split_glob(uri)
        system, root = filesystem(base)
        decode = decoder(base)  # a file is the same however its URI is quoted
        bare, mark, query = base.partition("?")
        with system_errors(base, "a server that answers"):
            info = system.get_file_info(root)
            if info.type == FileType.Directory:
                listed = {path: decode(path.partition("?")[0]) for path in files_below(base, system, root)}
                matching = {path for path, location in listed.items() if pattern is None or pattern.match(location)}
                for path in _with_siblings(matching, listed):
                    folder, key = listed[path].rpartition("/")[0], listed[path] + mark + query
                    self._add_listed(path, _file_name(path), folder, key, search=pattern is None)
            elif info.is_file and not names.split(_file_name(base)):
                self._contents.add_file(base, decode(bare) + mark + query)
            elif pattern:
                raise _does_not_exist(uri)
            else:
                self._add_remote_siblings(base, system, root, decode)

    def _add_remote_siblings(self, uri: str, system: FileSystem, root: str, decode: Callable[[str], str]) -> None:
        from urllib.parse import unquote

        bare, mark, query = uri.partition("?")
        directory, _, last = bare.rpartition("/")
        folder = root.rpartition("/")[0]
        name = names.split(_file_name(uri))
        stem = name[0] if name else unquote(last)
        roles = (*names.EXTENSIONS, *names.FLAG_EXTENSIONS)
        choice = [variant for role in roles for variant in names.variants(stem, role)]
        infos = system.get_file_info([f"{folder}/{variant}" if folder else variant for variant in choice])
        present = [v for v, i in zip(choice, infos, strict=True) if i.is_file]
        for variant in present:
            self._add_listed(f"{directory}/{variant}{mark}{query}", variant, decode(directory), "", requested=True)
        if not present:
            raise _does_not_exist(uri)

    # -- listed files

    def _add_listed(
        self, uri: str, file_name: str, folder: str, path: str, *, requested: bool = False, search: bool = True
    ) -> None:
        """Add a listed file if it has the name of a member, a container or a text.

        If ``search`` is True, only the beginning of a text is searched for a dump.
        """
        if name := names.split(file_name):
            stem, role = name
            self._note_hlo(role)
            rank = names.compression_rank(file_name)
            self.groups.add(Member(role, uri), folder, stem, rank, requested=requested)
        elif name := names.split_flags(file_name):
            stem, role = name
            self.groups.add_flags(Member(role, uri), folder, stem, names.compression_rank(file_name))
        elif containers.by_name(file_name):
            self._contents.add_file(uri, path)
        elif names.is_text(file_name):
            self._contents.add_file(uri, path, search=search)
        else:
            self._note_other(file_name)

    def _note_hlo(self, role: names.Role) -> None:
        if role == "hlo":
            self._others.add("hlo")

    def _note_other(self, file_name: str) -> None:
        if kind := names.kind_without_dump(file_name):
            self._others.add(kind)


_KERNEL = tuple(os.path.join(os.sep, name, "") for name in ("proc", "sys", "dev"))
"""Directories of the kernel, whose subdirectories lead to all other files."""
_SHARED_MEMORY = os.path.join(os.sep, "dev", "shm", "")
"""A file system in memory, where programs write what they will soon read."""


def _is_of_kernel(directory: str, name: str) -> bool:
    """Return whether a subdirectory is the kernel's."""
    return directory.startswith(_KERNEL) and not os.path.join(directory, name, "").startswith(_SHARED_MEMORY)


def _is_other_dump_file(path: str) -> bool:
    """Return whether XLA wrote the file, which is not a member: shells expand `dir/*` to many of these."""
    return not os.path.isdir(path) and names.is_dumped(os.path.basename(path))


def _with_siblings(matching: set[str], listed: dict[str, str]) -> Iterator[str]:
    """Yield the matching files, the other members of their dumps, and all files with flags, which need a dump.

    ``listed`` contains the decoded URI of each file.
    """
    stems = {stem for path in matching if (stem := _stem(listed[path]))}
    for path, location in listed.items():
        if path in matching or _stem(location) in stems or names.split_flags(location.rpartition("/")[2]):
            yield path


def _stem(file: str) -> tuple[str, str] | None:
    """Return the folder and the stem of a member; None for any other file."""
    folder, _, file_name = file.rpartition("/")
    name = names.split(file_name)
    return (folder, name[0]) if name else None


def _file_name(uri: str) -> str:
    return Member("", uri).file_name


def _does_not_exist(path: str) -> UsageError:
    return UsageError(f"{utf8(path)} does not exist: neither a file, a directory nor the stem of a dump")


def _is_plain_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)  # usually needs no system call
    except OSError:
        return False


def _real_paths(path: str) -> tuple[str, str]:
    """Return the real directory of a file (under its own name), and its real path."""
    real = os.path.realpath(path)
    directory, name = os.path.split(real)
    is_same_name = name == os.path.basename(path)
    return (directory if is_same_name else os.path.realpath(os.path.dirname(path) or ".")), real
