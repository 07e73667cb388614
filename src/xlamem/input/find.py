"""`find` lists the dumps under paths; `resolve` selects one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ..errors import DumpError, UsageError, utf8
from . import names
from .access import system_errors
from .contents import Contents, span_member
from .files import Buffer
from .groups import Groups
from .member import Member
from .source import Source
from .spans import is_one_module, member_spans
from .text import Text
from .walk import NoDumpError, Walker

__all__ = ["Member", "Readable", "Source", "SourceLike", "Text", "find", "resolve", "split_modules"]

MAX_PATHS = 3
"""Maximum number of paths without a dump that an error message names."""
MAX_LISTED = 40
"""Maximum number of modules that an error message lists."""
MAX_DIGITS = 18
"""Maximum number of digits of the number of a module."""


class Readable(Protocol):
    """A file object opened in binary mode."""

    def read(self) -> bytes: ...


SourceLike = Source | str | os.PathLike[str] | bytes | bytearray | memoryview | Readable
"""Anything a dump can be read from: a source, a path, bytes or a binary file."""


def find(*paths: str | os.PathLike[str]) -> list[Source]:
    """List the dumps under files, directories, globs, tar and zip archives and URIs; "-" is standard input.

    Members are grouped by name without opening them. Text files with other names in directories and archives are
    included if their first 16 MiB contain allocations or frames. Files given as paths or matched by globs are searched
    entirely, and the other members of their dump are added. Hidden directories are skipped.

    A path that cannot be examined (an unreadable directory, a broken link, a corrupt archive) does not stop the
    search: its source has a `fault`, which is raised when the source is read.

    Raises
    ------
    UsageError
        A path does not exist, or nothing under it is a dump or a fault.
    """
    if not paths:
        raise UsageError("no path given")
    sources, empty = find_all(*paths)
    if empty:
        raise empty[0]
    return sources


def find_all(*paths: str | os.PathLike[str]) -> tuple[list[Source], list[NoDumpError]]:
    """As `find`, but return an error for each path with no dump, unless no path has one: then raise an error."""
    walker = Walker()
    empty: list[NoDumpError] = []
    for path in paths:
        try:
            walker.add(_path(path))
        except NoDumpError as error:
            empty.append(error)
    sources = walker.groups.sources()
    if not sources:
        if len(paths) == len(empty) == 1:
            raise empty[0]
        raise NoDumpError(empty[0].path if len(empty) == 1 else _some(paths), walker.hint)
    return sources, empty


def _some(paths: Sequence[str | os.PathLike[str]]) -> str:
    """Return the first paths, for a message: shells expand `dir/*` to thousands."""
    more = f" and {len(paths) - MAX_PATHS:,} more" if len(paths) > MAX_PATHS else ""
    return ", ".join(utf8(_path(p)) for p in paths[:MAX_PATHS]) + more


def resolve(
    source: SourceLike, *, module: int | str | None = None, is_one: Callable[[Buffer], bool] = is_one_module
) -> Source:
    """Return the dump in a Source, a path (any member, a stem, a directory, "-"), bytes or a binary file.

    If there are several, ``module`` selects one by its name, label or number: its `module_id` if that is unique, else
    its position in the order of `find`. A number may be text. Raises UsageError unless exactly one dump is selected.
    """
    sources, name, is_member = _sources(source)
    if len(sources) == 1 and (is_member or module is not None):
        sources = split_modules(sources[0], is_one)
    return _choose(sources, module, name)


def split_modules(source: Source, is_one: Callable[[Buffer], bool] = is_one_module) -> list[Source]:
    """Return one source per module if the file contains several modules, or else only the source.

    ``is_one`` returns whether a text is only one module.
    """
    member = source.member("buffer-assignment")
    if member is None or member.form == "log" or member.begin or member.end is not None:
        return [source]
    try:
        with system_errors(member.location):
            file = member.open()
            data = file.read()
            spans = [] if is_one(data) else member_spans(data)
            if any(span.frame for span in spans):  # a captured stream that was given the name of a member
                groups = Groups()
                Contents(groups).add_content(replace(member, size=None), file, member.location)
                return groups.sources() or [source]
    except DumpError:
        return [source]  # the error is raised when the source is read
    if len(spans) < 2 and all(span.form == "plain" for span in spans):
        return [source]
    members = [span_member(member, s, file, "buffer-assignment") for s in spans]
    return [replace(source, members=(m,), module_id=None, module_name=None, timestamp_us=None) for m in members]


def _path(path: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        raise UsageError(f"not a path: {path!r}") from None


def _sources(source: SourceLike) -> tuple[list[Source], str, bool]:
    """Return the dumps in a source, its name, and whether it is the path of a member."""
    if isinstance(source, Source):
        return [source], source.name, False
    if isinstance(source, (str, os.PathLike)):
        path = _path(source)
        return find(path), path, names.split(os.path.basename(path)) is not None and os.path.isfile(path)
    data, name = _content(source)
    walker = Walker()
    walker.add_bytes(data, name)
    return walker.groups.sources(), name, False


def _content(source: bytes | bytearray | memoryview | Readable) -> tuple[bytes, str]:
    """Return the content and the name of bytes or of a file."""
    name = "<bytes>"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file>"))
        with system_errors(name):
            source = source.read()
    try:
        return source if isinstance(source, bytes) else bytes(memoryview(source)), name
    except TypeError:
        what = "a file opened as text: open it in binary mode" if isinstance(source, str) else type(source).__name__
        raise UsageError(f"cannot read a dump from {what}") from None


def _choose(sources: list[Source], module: int | str | None, name: str) -> Source:
    numbered = list(zip(_numbers(sources), sources, strict=True))
    chosen = numbered
    if module is not None:
        chosen = [(n, s) for n, s in numbered if module in (s.module_name, s.label, s.name)]
        if not chosen and (number := str(module)).isdecimal() and len(number) <= MAX_DIGITS:
            chosen = [(n, s) for n, s in numbered if n == int(number)]
    if len(chosen) == 1:
        return chosen[0][1]
    if not chosen:
        raise UsageError(f"no module {module!r} in {name}, which holds:\n{_listing(numbered)}")
    select = "select one with --module (module= in Python)"
    raise UsageError(f"{name} holds {len(chosen)} modules; {select}:\n{_listing(chosen)}")


def _numbers(sources: list[Source]) -> list[int | None]:
    """Return the number that selects each module: its own if no other has it, else its position.

    None if the position is the number of another module.
    """
    count = Counter(source.module_id for source in sources)
    numbers: list[int | None] = []
    for position, source in enumerate(sources):
        if source.module_id is not None and count[source.module_id] == 1:
            numbers.append(source.module_id)
        else:
            numbers.append(None if count[position] == 1 else position)
    return numbers


def _listing(numbered: list[tuple[int | None, Source]]) -> str:
    lines = [
        f"  {'-' if number is None else number}  {source.name}  {_summary(source)}"
        for number, source in numbered[:MAX_LISTED]
    ]
    if len(numbered) > MAX_LISTED:
        lines.append(f"  … and {len(numbered) - MAX_LISTED:,} more")
    return "\n".join(lines)


def _summary(source: Source) -> str:
    if source.fault:
        return f"unreadable: {source.fault}"
    size = source.bytes_on_disk()
    return "size unknown" if size is None else f"{size:,} bytes"
