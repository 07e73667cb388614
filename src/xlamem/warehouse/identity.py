"""The identity of a dump: a hash of its content, name and labels."""

from __future__ import annotations

import os
from dataclasses import replace

import xxhash

from ..errors import DumpError, XlaMemError, utf8
from ..input.find import Source, split_modules
from ..input.spans import is_one_module
from .task import DumpInput, Failure, Options


def dump_id(content: str, source: Source, options: Options) -> str:
    """Return an XXH3-128 hash of the content hash, the name without its timestamp, the labels and the partition."""
    name = source.name
    if source.timestamp_us is not None:
        name = name.replace(str(source.timestamp_us), "", 1)
    # A dump that is partitioned by a label differs from one that merely has the label.
    labels = (f"{key}={value}" for key, value in sorted(options.labels))
    fields = (content, name, *labels, "/".join(options.partition))
    return xxhash.xxh3_128_hexdigest("\0".join(fields).encode("utf-8", "surrogateescape"))


def identify(sources: list[Source], options: Options) -> list[DumpInput | Failure]:
    """Return the dump_id and size of each dump, or a failure if it cannot be loaded."""
    return [dump for source in sources for dump in _identify(source, options)]


def _identify(source: Source, options: Options) -> list[DumpInput | Failure]:
    try:
        content, size, modules = _load(source)
    except MemoryError:
        raise
    except Exception as error:  # an unreadable dump, or a bug that it triggers, must not stop the run
        return [failure(error, source)]
    if len(modules) > 1:
        return identify(modules, options)
    return [DumpInput(dump_id(content, source, options), source, size)]


def _load(source: Source) -> tuple[str, int, list[Source]]:
    """Return the hash and size of the content, and the modules if the file contains several."""
    texts = [member.load() for member in source.content]
    try:
        has_several = not is_one_module(texts[0].raw)
        hashes = [xxhash.xxh3_128_hexdigest(text.raw) for text in texts]
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
        identity = xxhash.xxh3_128_hexdigest("\0".join(fields).encode())
    return replace(row, dump_id=identity)


def _describe(error: BaseException, source: Source) -> Failure:
    name = display_name(source)
    if isinstance(error, DumpError):
        message = f"expected {error.wanted}" + (f" [{error.section}]" if error.section else "")
        return Failure("", name, error.path, message, error.line, error.offset, error.excerpt)
    expected = isinstance(error, (XlaMemError, OSError, RuntimeError))
    message = str(error) if expected else f"{type(error).__name__}: {error} (a bug of xlamem: please report it)"
    return Failure("", name, source.members[0].location, utf8(message))
