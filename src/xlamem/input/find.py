"""From paths to texts: which dumps are there, and which texts make up each of them."""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from pyarrow import fs as arrow_fs

from ..errors import DumpError, UsageError, utf8
from ..schema import ROLES
from . import files as streams
from . import names
from .files import URI, Stream, reading
from .text import Member, Text, is_one_module, may_hold, pieces, promising, role_of

__all__ = ["Member", "Source", "Text", "find", "resolve", "split_modules"]

SNIFF = 16 << 20
"""So much of a file of unknown name is looked at when a directory is searched: in a log the first dump can come
late. A file that is named itself is looked through wholly."""

HEAD = 64 * 1024
"""So much of a text without a module's head line is looked at to tell what it is."""

LISTED = 40

SOUGHT = (
    "files named "
    + ", ".join("*" + names.EXTENSIONS[r] for r in names.EXTENSIONS if r != "hlo")
    + " (also "
    + " ".join(names.COMPRESSED)
    + "), tars of them, and other texts with a line 'BufferAssignment:' or '*** Begin NAME ***' (in a directory: "
    + "within their first 16 MiB)"
)

_WILD = re.compile(r"[*?[]")
_TAR = re.compile(r"\.(?:tar(?:\.(?:gz|zst|xz|bz2))?|tgz|tzst|txz|tbz2?)\Z", re.IGNORECASE)
_ORDER = {role: i for i, role in enumerate(ROLES)}


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """One dump: its members in the order of `schema.ROLES`, and what their name says."""

    name: str
    members: tuple[Member, ...]
    module_id: int | None = None
    module_name: str | None = None
    platform: names.Platform | None = None
    target: str | None = None
    changelist: int | None = None
    timestamp_us: int | None = None

    def member(self, role: str) -> Member | None:
        return next((m for m in self.members if m.role == role), None)

    @property
    def place(self) -> str:
        """The directory, tar or file in which it lies."""
        first = self.members[0]
        inside = first.entry[0] if first.entry else first.inner
        if not inside:
            return utf8(os.path.dirname(first.uri)) or "."
        folder = os.path.dirname(inside)
        return utf8(f"{first.uri}::{folder}" if folder else first.uri)

    @property
    def fault(self) -> DumpError | None:
        """Why it cannot be read, if `find` has met with that already; reading it raises the same."""
        return next((m.fault for m in self.members if m.fault), None)

    def bytes_on_disk(self) -> int | None:
        sizes = [m.bytes_on_disk() for m in self.members]
        return None if None in sizes else sum(s for s in sizes if s is not None)

    def __reduce__(self) -> tuple[type[Source], tuple[Any, ...]]:
        return Source, (
            self.name, self.members, self.module_id, self.module_name, self.platform, self.target, self.changelist,
            self.timestamp_us,
        )  # fmt: skip

    def __repr__(self) -> str:
        roles = ", ".join(m.role for m in self.members)
        return f"<Source {self.name} in {self.place}: {roles}>"


# -- the two verbs -------------------------------------------------------------------------------


def find(*paths: str | os.PathLike[str]) -> list[Source]:
    """The dumps under files, directories, patterns, tars and URIs; '-' is standard input.

    Members are put together by name, without being opened. In directories, texts of other names are
    taken if their first 16 MiB hold allocations or frames; a file that is named is looked through
    wholly, and the other members of its dump are joined. Hidden directories are passed over.

    What is there but cannot be examined (a directory that cannot be listed, a broken link, a broken tar) stops
    nothing: it is a source that has a `fault`, and raises it when it is read.

    Raises
    ------
    UsageError
        A path that does not exist, or under which there is neither a dump nor a fault.
    """
    if not paths:
        raise UsageError("no path given")
    finder = _Finder()
    for path in paths:
        finder.add(_path(path))
    found = finder.sources()
    if not found:
        raise UsageError(f"no dump in {', '.join(utf8(_path(p)) for p in paths)}: looked for {SOUGHT}")
    return found


def resolve(source: Any, *, module: int | str | None = None) -> Source:
    """The one dump that is meant: by a Source, a path (any member, a stem, a directory, '-'), bytes or a file.

    Where there are several, ``module`` chooses one: its number in the order of `find`, or its name.
    """
    named = False
    if isinstance(source, Source):
        found, name = [source], source.name
    elif isinstance(source, (str, os.PathLike)):
        name = _path(source)
        found = find(name)
        named = names.split(os.path.basename(name)) is not None and os.path.isfile(name)
    else:
        name = "<bytes>"
        if hasattr(source, "read"):
            name = str(getattr(source, "name", "<file>"))
            source = source.read()
        try:
            data = source if isinstance(source, bytes) else bytes(memoryview(source))
        except TypeError:
            what = "a file opened as text: open it in binary mode" if isinstance(source, str) else type(source).__name__
            raise UsageError(f"cannot read a dump from {what}") from None
        finder = _Finder()
        finder.add_held(data, name)
        found = finder.sources()
    if len(found) == 1 and (named or module is not None):
        found = split_modules(found[0])
    return _choose(found, module, name)


def split_modules(source: Source) -> list[Source]:
    """One source per module if several dumps were put into its file one after the other; else itself alone."""
    member = source.member("buffer-assignment")
    if member is None or member.form == "log" or member.begin or member.end is not None:
        return [source]
    try:
        with reading(member.place):
            data = member.stream().span()
            found = [] if is_one_module(data) else pieces(data)
    except DumpError:
        return [source]  # to be told by whoever reads it
    if len(found) < 2 and all(piece.form == "plain" for piece in found):
        return [source]
    members = [replace(member, form=p.form, begin=p.begin, end=p.end, size=None) for p in found if not p.frame]
    return [replace(source, members=(m,), module_id=None, module_name=None, timestamp_us=None) for m in members]


def _path(path: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        raise UsageError(f"not a path: {path!r}") from None


def _choose(found: list[Source], module: int | str | None, name: str) -> Source:
    numbered = list(enumerate(found))
    if isinstance(module, str):
        numbered = [(i, s) for i, s in numbered if module in (s.module_name, s.name)]
    elif module is not None:
        numbered = numbered[module : module + 1] if module >= 0 else []
    if len(numbered) == 1:
        return numbered[0][1]
    if not numbered:
        raise UsageError(f"no module {module!r} in {name}, which holds:\n{_listing(enumerate(found))}")
    raise UsageError(f"{name} holds {len(numbered)} modules; choose one with module=:\n{_listing(numbered)}")


def _listing(numbered: Iterable[tuple[int, Source]]) -> str:
    rows = list(numbered)
    lines = []
    for number, source in rows[:LISTED]:
        size = None if source.fault else source.bytes_on_disk()
        what = f"unreadable: {source.fault}" if source.fault else "size unknown" if size is None else f"{size:,} bytes"
        lines.append(f"  {number}  {source.name}  {what}")
    if len(rows) > LISTED:
        lines.append(f"  … and {len(rows) - LISTED:,} more")
    return "\n".join(lines)


# -- finding -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Members of one dump while they are being found, each with its rank: the smallest one stays."""

    name: str
    by_name: bool = True
    keep: bool = False
    members: dict[str, tuple[int, Member]] = field(default_factory=dict)

    def source(self) -> Source:
        members = tuple(sorted((m for _, m in self.members.values()), key=lambda m: _ORDER[m.role]))
        name = utf8(self.name)
        if not self.by_name:
            return Source(name, members)
        said = names.describe(name, "hlo")
        known = said.module_id, said.module_name, said.platform, said.target, said.changelist, said.timestamp_us
        return Source(name, members, *known)


class _Finder:
    """Collects dumps; what is reached twice, by whatever way, is there once.

    ``there`` is what a file really is (its real path), ``real`` the directory that it really lies in.
    """

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, int], _Group] = {}
        self.walked: set[str] = set()
        self.looked: dict[str, int] = {}
        self.hits = 0
        self.protos = False

    def add(self, path: str) -> None:
        """Everything under a path; UsageError if there is nothing."""
        if path == "-":
            if "-" not in self.looked:  # can be read only once
                self.looked["-"] = 1
                self.add_held(sys.stdin.buffer.read(), "<stdin>")
            return
        if path[:7].lower() == "file://":
            path = url2pathname(urlsplit(path).path)
        before, self.protos = self.hits, False
        if URI.match(path):
            self.add_uri(path)
        else:
            self.add_local(path)
        if self.hits == before:
            if not os.path.isdir(path) and names.is_dumped(os.path.basename(path)):
                return  # XLA's, but no memory text: `dir/*` is made of such
            hint = "; there are only protos: add xla_dump_hlo_as_text to the flags" if self.protos else ""
            raise UsageError(f"no dump in {utf8(path)}: looked for {SOUGHT}{hint}")

    def add_held(self, data: bytes, name: str) -> None:
        before = self.hits
        with reading(name):
            stream = streams.held(name, data).undone()
        held = stream.span()
        self.look_into(Member("", name, held=held), stream, f"{name}#{id(held)}")
        if self.hits == before:
            raise UsageError(f"no dump in {name}: looked for {SOUGHT}")

    # -- paths

    def add_local(self, path: str) -> None:
        directory, name = os.path.split(path)
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and os.path.lexists(path):  # a link that leads nowhere, or to itself
                self.unusable(path, error)
            elif not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise UsageError(f"cannot look at {path!r}: {getattr(error, 'strerror', None) or error}") from error
            elif _WILD.search(path):
                for match in sorted(glob.glob(path, recursive=True)):
                    if self.entry(match):
                        self.walk(match)
            elif not (name and self.siblings(directory, name)):
                raise UsageError(
                    f"{utf8(path)} does not exist: neither a file, a directory nor the stem of a dump"
                ) from None
        else:
            if stat.S_ISDIR(mode):
                self.walk(path)
            elif not stat.S_ISREG(mode):  # a pipe, as in <(zcat …): can be read only once
                with reading(path), open(path, "rb") as file:
                    self.add_held(file.read(), path)
            elif found := names.split(name):
                self.siblings(directory, found[0], name)
            else:
                self.look(Member("", path), lambda: streams.raw(path), os.path.realpath(path))

    def siblings(self, directory: str, stem: str, given: str = "") -> bool:
        """The members with this stem, by asking for each name (the directory may be huge); any there?"""
        before = self.hits
        real, _ = _real(os.path.join(directory, given or stem))
        for role, extension in names.EXTENSIONS.items():
            choice = [stem + extension + packed for packed in ("", *names.COMPRESSED)]
            for name in [given] if given in choice else choice:
                path = os.path.join(directory, name)
                if os.path.isfile(path):
                    self.member(real, stem, _rank(name), Member(role, path), keep=True)
                    break
        return self.hits > before

    def walk(self, top: str) -> None:
        """A directory and all below it; hidden directories are passed over."""
        stack = [(top, os.path.realpath(top))]
        while stack:
            directory, real = stack.pop()
            if real in self.walked:
                self.hits += bool(self.groups)  # reached before: what is there counts for this path too
                continue
            self.walked.add(real)
            found: list[os.DirEntry[str]] = []
            try:
                with os.scandir(directory) as entries:
                    found.extend(entries)  # keeps those before the one that fails
            except OSError as error:
                self.unusable(directory, error, "a directory that can be listed")
            below = os.path.join(real, "")
            for entry in sorted(found, key=lambda e: e.name, reverse=True):
                path = entry.path
                try:
                    plain = entry.is_file(follow_symlinks=False)  # known without a system call, mostly
                except OSError:
                    plain = False
                if plain:
                    self.listed(path, real, below + entry.name)
                elif self.entry(path) and not entry.name.startswith("."):
                    stack.append((path, os.path.realpath(path)))

    def entry(self, path: str) -> bool:
        """An entry of a directory, links followed: a file is taken, a bad entry reported; is it a directory?"""
        name = os.path.basename(path)
        member = names.split(name) is not None
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            if member or not (name.startswith(".") or names.is_dumped(name)):
                self.unusable(path, error)
            return False
        if stat.S_ISREG(mode):
            self.listed(path, *_real(path))
        elif not stat.S_ISDIR(mode) and (member or _TAR.search(name)):
            self.unusable(path, "a pipe, a socket or a device")
        return stat.S_ISDIR(mode)

    def unusable(self, path: str, why: OSError | str, wanted: str = "a readable file") -> None:
        """What is there but cannot be examined is a dump, or a member of one, that fails when it is read."""
        path = path.rstrip(os.sep) or path
        fault = DumpError(path, f"{wanted} ({why if isinstance(why, str) else why.strerror or why})", system=True)
        if found := names.split(os.path.basename(path)):
            self.member(_real(path)[0], found[0], sys.maxsize, Member(found[1], path, fault=fault))
        else:
            self.broken(Member("", path), os.path.abspath(path), fault)

    def add_uri(self, uri: str) -> None:
        bare, mark, query = uri.partition("?")  # here '?' begins a query
        base, wanted = uri, None
        if wild := _WILD.search(bare):
            base, wanted = bare[: bare.rfind("/", 0, wild.start()) + 1] + mark + query, streams.pattern(uri)
        system, root = streams.filesystem(base)
        with reading(base, "a place that answers"):
            info = system.get_file_info(root)
            if info.type == arrow_fs.FileType.Directory:
                for path in streams.files_below(base, system, root):
                    if wanted is None or wanted.match(path):
                        self.listed(path, path.partition("?")[0].rpartition("/")[0], path)
                return
            found = names.split(Member("", base).file_name)
            if info.type == arrow_fs.FileType.File and not found:
                return self.look(Member("", base), lambda: streams.raw(base), base)
            directory, _, name = bare.rpartition("/")
            folder = root.rpartition("/")[0]
            stem = found[0] if found else unquote(name)
            asked = [stem + e + packed for e in names.EXTENSIONS.values() for packed in ("", *names.COMPRESSED)]
            infos = system.get_file_info([f"{folder}/{n}" if folder else n for n in asked])
        there = [n for n, i in zip(asked, infos, strict=True) if i.type == arrow_fs.FileType.File]
        for path in there:
            self.listed(f"{directory}/{path}{mark}{query}", directory, "", keep=True)
        if not there:
            raise UsageError(f"{utf8(uri)} does not exist: neither a file, a directory nor the stem of a dump")

    def listed(self, path: str, real: str, there: str, *, keep: bool = False) -> None:
        """A file from a listing."""
        origin = Member("", path)
        name = origin.file_name
        if found := names.split(name):
            self.member(real, found[0], _rank(name), Member(found[1], path), keep=keep)
        elif _TAR.search(name) or may_hold(name):
            self.look(origin, lambda: streams.raw(path), there, sniff=not _TAR.search(name))
        elif name.endswith((".hlo.pb", ".hlo.pb.gz")):
            self.protos = True

    # -- contents

    def look(self, origin: Member, opened: Callable[[], Stream], there: str, *, sniff: bool = False) -> None:
        """Look into a file of unknown name; with `sniff`, only if its first bytes are promising."""
        if there in self.looked:
            self.hits += self.looked[there]
            return
        before = self.hits
        try:
            with reading(origin.place):
                if not sniff or promising(opened().head(SNIFF)):
                    self.look_into(origin, opened().undone(), there)
        except DumpError as fault:
            self.broken(origin, there, fault)
        self.looked[there] = self.hits - before

    def look_into(self, origin: Member, stream: Stream, there: str) -> None:
        if origin.entry is None and (_TAR.search(origin.file_name) or bytes(stream.span(257, 262)) == b"ustar"):
            return self.tar(origin, stream, there)
        data = stream.span()
        found = pieces(data)
        seen: dict[str, tuple[int, set[str]]] = {}
        for i, piece in enumerate(found):
            size = (stream.size if piece.end is None else piece.end) - piece.begin
            span = replace(origin, form=piece.form, begin=piece.begin, end=piece.end, size=size)
            if not piece.frame:
                self.alone(replace(span, role="buffer-assignment"), there, i)
            elif name := names.split(piece.frame):
                stem, role = name
                number, roles = seen.get(stem, (0, set()))
                if role in roles:  # another process wrote to the same stream
                    number, roles = number + 1, set()
                seen[stem] = number, roles | {role}
                self.member(there, stem, 0, replace(span, role=role, inner=piece.frame), number)
        if not found and (content := role_of(bytes(data[:HEAD]))):
            self.alone(replace(origin, role=content, size=stream.size), there, 0)

    def tar(self, origin: Member, stream: Stream, there: str) -> None:
        try:
            with stream.open() as file, tarfile.open(fileobj=file, mode="r:") as tar:
                for number, info in enumerate(tar):
                    if info.isreg() and not info.issparse():
                        self.tar_entry(origin, stream, there, info, number)
        except (tarfile.TarError, OSError, ValueError, OverflowError) as error:  # the last two: absurd headers
            fault = DumpError(origin.uri, f"a whole tar ({error})", system=isinstance(error, OSError))
            self.broken(origin, there, fault)

    def tar_entry(self, origin: Member, stream: Stream, there: str, info: tarfile.TarInfo, number: int) -> None:
        span = info.name, info.offset_data, info.offset_data + info.size
        member = replace(origin, entry=span, inner=info.name)
        folder, _, name = info.name.rpartition("/")
        if found := names.split(name):
            rank = _rank(name)
            member = replace(member, role=found[1], size=None if rank else info.size)
            # Of two entries with one name the later one is what unpacking would leave.
            self.member(f"{there}::{folder}", found[0], (rank << 32) - number, member)
        elif may_hold(name):
            self.look(member, lambda: stream.within(*span), f"{there}::{info.name}", sniff=True)

    # -- results

    def member(self, real: str, stem: str, rank: int, member: Member, number: int = 0, *, keep: bool = False) -> None:
        """A member whose name is known."""
        group = self.groups.setdefault((real, stem, number), _Group(stem))
        group.keep |= keep
        self.hits += keep or member.role != "hlo"
        if member.role not in group.members or rank < group.members[member.role][0]:
            group.members[member.role] = rank, member

    def alone(self, member: Member, there: str, number: int) -> None:
        """A member whose role comes from its content: a dump of its own."""
        self.hits += 1
        self.groups[there, "", number] = _Group(member.file_name, False, True, {member.role: (0, member)})

    def broken(self, origin: Member, there: str, fault: DumpError) -> None:
        """What cannot be looked into is a dump that fails when it is read: one bad file of many stops nothing."""
        self.alone(replace(origin, role="buffer-assignment", fault=fault), there, -1)

    def sources(self) -> list[Source]:
        # HLO text alone says nothing about memory; it counts only where the user named it.
        found = [g.source() for g in self.groups.values() if g.keep or g.members.keys() != {"hlo"}]
        return sorted(found, key=lambda s: (_folders(s.place), _natural(s.name), s.members[0].begin))


def _real(path: str) -> tuple[str, str]:
    """The directory in which a file really lies (under its own name), and its real path."""
    there = os.path.realpath(path)
    real, name = os.path.split(there)
    return (real if name == os.path.basename(path) else os.path.realpath(os.path.dirname(path) or ".")), there


def _rank(name: str) -> int:
    """Which of several files of one role is taken: the plain one, then the others in the order of COMPRESSED."""
    return next((i for i, extension in enumerate(names.COMPRESSED, 1) if name.endswith(extension)), 0)


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which 2 comes before 10, and numbers before letters."""
    parts = re.findall("[0-9]+|[^0-9]+", text)
    return [(len(p.lstrip("0")), p.lstrip("0")) if p[0] in "0123456789" else (sys.maxsize, p) for p in parts]


@lru_cache(maxsize=1024)
def _folders(place: str) -> list[list[tuple[int, str]]]:
    return [_natural(part) for part in place.replace("::", "/").replace(os.sep, "/").split("/")]
