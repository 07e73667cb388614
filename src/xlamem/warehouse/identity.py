"""The identity of a dump: a hash of its content, and of what its file name says of the program."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Protocol

import xxhash

from ..errors import DumpError, XlaMemError, utf8, without_passwords
from ..input.access import URI
from ..input.find import Source, split_modules
from ..parse.hashes import evicting_hash
from ..parse.modules import is_one_module
from .task import DumpInput, Failure


class NameParts(Protocol):
    """What a file name says of the program; `Source` and `input.names.DumpName` have these attributes."""

    @property
    def module_name(self) -> str | None: ...
    @property
    def platform(self) -> str | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def changelist(self) -> int | None: ...


def content_id(content_hash: str, name: NameParts | None) -> str:
    """Return an XXH3-128 hash of the content hash and of the parts of the name that determine columns of tables.

    The number of the module and the timestamp are left out: they differ between compilations of one program. So are the
    roles of the members, because their text tells them apart. `name` is None for a file that XLA did not name.
    """
    parts = (name.module_name, name.platform, name.target, name.changelist) if name else (None,) * 4
    return _hash(content_hash, *("" if part is None else str(part) for part in parts))


def id_of_version_1(content_hash: str, source: Source, labels: tuple[tuple[str, str], ...], partition: str) -> str:
    """Return the `dump_id` of a dump in `schema=v1`, which depended on its name and labels."""
    name = source.name
    if source.timestamp_us is not None:
        name = name.replace(str(source.timestamp_us), "", 1)
    return _hash(content_hash, name, *(f"{key}={value}" for key, value in sorted(labels)), partition)


def _hash(*fields: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(fields).encode("utf-8", "surrogateescape"))


def identify(sources: list[Source]) -> list[list[DumpInput | Failure]]:
    """Return the dumps of each source, one per module, with their content_ids; a failure if it cannot be loaded."""
    return [_identify(source) for source in sources]


def loaded_id(source: Source) -> str | None:
    """Return the content_id of one dump, or None if it cannot be loaded."""
    found = _identify(source)[0]
    return found.content_id if isinstance(found, DumpInput) else None


def _identify(source: Source) -> list[DumpInput | Failure]:
    try:
        content, size, modules = _load(source)
    except MemoryError:
        raise
    except Exception as error:  # an unreadable dump, or a bug that it triggers, must not stop the run
        return [failure(error, source)]
    if len(modules) > 1:
        return [dump for module in modules for dump in _identify(module)]
    return [DumpInput(content_id(content, source), source, size, content)]


def _load(source: Source) -> tuple[str, int, list[Source]]:
    """Return the hash and size of the content, and the modules if the file contains several."""
    texts = [member.load() for member in source.content]
    try:
        has_several = not is_one_module(texts[0].raw)
        hashes = [evicting_hash(text.raw) for text in texts]
        size = sum(text.size for text in texts)
    finally:
        for text in texts:
            text.close()
    content = xxhash.xxh3_128_hexdigest("\n".join(hashes).encode())
    return content, size, split_modules(source) if has_several else []


def display_name(source: Source) -> str:
    """Return the path and name of a dump, for messages."""
    return source.name if source.location == "." else os.path.join(source.location, source.name)


def failure(error: BaseException, source: Source, identity: str = "", attempts: int = 1) -> Failure:
    """Return the row of `quarantine`. Without an identity, hash the path and, for bad content, the error."""
    row = _describe(error, source)
    system = error.system if isinstance(error, DumpError) else isinstance(error, (OSError, MemoryError))
    row = replace(row, kind="system" if system else "content", attempts=attempts, identified=bool(identity))
    if not identity:
        fields = ("place", row.name) if system else (row.name, row.uri, row.error, str(row.offset))
        identity = _hash(*fields)
    return replace(row, content_id=identity)


def is_local(failure: Failure) -> bool:
    """Return whether a failure is about a path, which other hosts may have too, rather than about a URI."""
    return not URI.match(failure.name)


def with_host(failure: Failure, host: str) -> Failure:
    """Return a failure without an identity as one of a path of this host. A worker may run on another one."""
    if failure.identified or not is_local(failure):
        return failure
    return replace(failure, content_id=_hash(host, failure.content_id))


def _describe(error: BaseException, source: Source) -> Failure:
    name = display_name(source)
    if isinstance(error, DumpError):
        message = f"expected {error.wanted}" + (f" [{error.section}]" if error.section else "")
        return Failure("", name, error.path, message, error.line, error.offset, error.excerpt)
    expected = isinstance(error, (XlaMemError, OSError, RuntimeError))
    message = str(error) if expected else f"{type(error).__name__}: {error} (a bug of xlamem: please report it)"
    return Failure("", name, source.members[0].location, without_passwords(utf8(message)))
