"""The baseline file: the programs of a run as JSON that belongs in the repository."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from ..errors import OutputError, UsageError, reason
from ..formatting import shorten
from ..parse.fingerprints import without_counters, without_number
from .amounts import MAX_NUMBER
from .entry import Argument, Entry, Group

FORMAT, VERSION = "xlamem-baseline", 1
MAX_SIZE = 1 << 28
"""Maximum number of bytes of a baseline file: /dev/zero has no end."""
MAX_KEPT = 20
"""Maximum number of groups of buffers of a program that a baseline keeps."""
MAX_DONATED = 100
"""Maximum number of donated arguments that a baseline lists."""
MAX_SHAPE = 80
"""Maximum length of a shape; those of tuples are long."""

_SCALARS = ("name", "platform", "program_fp", "interface_fp", "device_total", "peak", "changelist")


@dataclass(frozen=True)
class Baseline:
    """The programs of a baseline file, sorted by test, platform and name, then in order of compilation."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Baseline:
        """Return a baseline of programs in order of compilation."""
        return cls(tuple(sorted(map(_shortened, entries), key=_order)))

    def dumps(self) -> str:
        """Return the text of the file: sorted, with one line for each number, argument and group of buffers."""
        flag_sets = {_hash(e.flags): dict(sorted(e.flags.items())) for e in self.entries if e.flags is not None}
        data = {
            "format": FORMAT,
            "version": VERSION,
            "flags": dict(sorted(flag_sets.items())),
            "programs": [_entry_json(e) for e in self.entries],
        }
        return f"{_text(data)}\n"


def _order(entry: Entry) -> tuple[str, str, str]:
    return entry.test or "", entry.platform or "", plain_name(entry)


def plain_name(entry: Entry) -> str:
    """Return the module name without its numbers."""
    return without_counters(entry.name or "")


def _shortened(e: Entry) -> Entry:
    """Return an entry with the largest groups and arguments only, which is what the file keeps."""
    kept = tuple(map(_portable, e.groups[:MAX_KEPT]))
    rest = e.rest + sum(g.bytes for g in e.groups[MAX_KEPT:])
    name = without_number(e.name) if e.name else e.name
    donated = e.donated[:MAX_DONATED]
    return replace(e, name=name, groups=kept, rest=rest, donated=donated, arguments=None, bill=dict(e.bill))


def _portable(group: Group) -> Group:
    """Return a group without the folder of its source file, which differs from machine to machine."""
    file = group.source_file and re.split(r"[/\\]", group.source_file)[-1]
    return replace(group, source_file=file, shape=shorten(group.shape, MAX_SHAPE) if group.shape else None)


# -- writing -------------------------------------------------------------------------------------


def write(path: Path, baseline: Baseline) -> None:
    """Write a baseline atomically; a link stays one. Raises OutputError."""
    text, path = baseline.dumps(), Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as e:
        raise OutputError(f"{path}: the baseline cannot be written: {reason(e)}") from e


def _entry_json(e: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {} if e.test is None else {"test": e.test}
    row |= {name: getattr(e, name) for name in _SCALARS}
    row |= {} if e.chip is None else {"chip": e.chip}
    row["format"] = list(e.format)
    row["flags"] = None if e.flags is None else _hash(e.flags)
    row["bill"] = dict(e.bill)
    row["n_donated"] = e.n_donated
    row["donated"] = [_Line(asdict(a)) for a in e.donated]
    row["peak_buffers"] = [_Line(_without_nulls(asdict(g))) for g in e.groups]
    row["other_buffers"] = e.rest
    return row


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}


class _Line(dict[str, Any]):
    """An object that is written on one line."""


def _text(value: Any, indent: int = 0) -> str:
    """Return JSON with an item a line; short lists of texts and instances of _Line are on one line."""
    pad, inner = "  " * indent, "  " * (indent + 1)
    if isinstance(value, dict) and value and not isinstance(value, _Line):
        items = [f"{json.dumps(k, ensure_ascii=False)}: {_text(v, indent + 1)}" for k, v in value.items()]
    elif isinstance(value, list) and value and not all(isinstance(v, str) for v in value):
        items = [_text(v, indent + 1) for v in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    body = f",\n{inner}".join(items)
    return f"{opening}\n{inner}{body}\n{pad}{closing}"


def _hash(flags: Mapping[str, str]) -> str:
    text = json.dumps(sorted(flags.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- reading -------------------------------------------------------------------------------------


def is_baseline_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a baseline file, which may not exist yet."""
    return str(path).endswith(".json")


def is_baseline(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a baseline in a file, by its beginning."""
    try:
        with open(path, "rb") as file:
            return f'"format": "{FORMAT}"'.encode() in file.read(100)
    except OSError:
        return False


def load(path: Path) -> Baseline:
    """Read a baseline file. Raises UsageError."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SIZE + 1)
    except OSError as e:
        raise UsageError(f"{path}: {reason(e)}") from None
    if len(text) > MAX_SIZE:
        raise UsageError(f"{path}: a baseline has at most {MAX_SIZE:,} bytes")
    return loads(text, path)


def loads(text: str | bytes, path: Path | str) -> Baseline:
    """Return the baseline in the text of a file; `path` is for messages. Raises UsageError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{path} is not JSON: {e}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(f"{path} is not a baseline of xlamem: write one with xlamem check PATH --bless")
    if data.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {data.get('version')!r} of the format, and this xlamem reads version {VERSION}"
        )
    try:
        flag_sets = _object(data["flags"])
        return Baseline(tuple(_entry(row, flag_sets) for row in _list(data["programs"])))
    except (KeyError, TypeError, ValueError) as e:
        raise UsageError(f"{path} is damaged ({type(e).__name__}: {e}): write it again with --bless") from None


def _entry(row: Any, flag_sets: dict[str, Any]) -> Entry:
    row = _object(row)
    flags = _scalar("flags", row["flags"], str | None)
    return Entry(
        **_fields(Entry, {**row, "rest": row["other_buffers"]}, (*_SCALARS, "n_donated", "rest")),
        test=_scalar("test", row.get("test"), str | None),
        chip=_scalar("chip", row.get("chip"), str | None),
        format=tuple(_scalar("format", v, str) for v in _list(row["format"])),
        flags=None if flags is None else _object(flag_sets[flags], str),
        bill=_object(row["bill"], int),
        donated=_rows(Argument, row["donated"]),
        groups=_rows(Group, row["peak_buffers"]),
    )


def _rows(of: Any, value: Any) -> tuple[Any, ...]:
    """Return a list of objects as a dataclass. Raises KeyError or TypeError, and ValueError if sums could overflow."""
    rows = tuple(of(**_fields(of, _object(row))) for row in _list(value))
    for name in ("bytes", "n"):
        if (total := sum(getattr(row, name, 0) for row in rows)) > MAX_NUMBER:
            raise ValueError(f"{name} add up to {total}")
    return rows


def _fields(of: type, row: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return values as the fields of a dataclass; all those of the row by default. Raises KeyError or TypeError."""
    types = _types(of)
    return {name: _scalar(name, row[name], types[name]) for name in (row if names is None else names)}


@cache
def _types(of: type) -> dict[str, Any]:
    return get_type_hints(of)


def _scalar(name: str, value: Any, expected: Any) -> Any:
    """Return a text, a size in bytes or another number, or null. Raises TypeError or ValueError."""
    if not isinstance(value, expected) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}")
    if isinstance(value, int) and not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"{name} is {value}")
    if isinstance(value, str):
        value.encode()  # JSON can have half a character, which no table can hold
    return value


def _object(value: Any, of: Any = object) -> dict[str, Any]:
    """Return an object whose values have a type. Raises TypeError or ValueError."""
    if not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {value!r}")
    return value if of is object else {key: _scalar(key, v, of) for key, v in value.items()}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list is expected, not {value!r}")
    return value


def merged(old: Sequence[Entry], replaced: Mapping[int, Entry], new: Sequence[Entry], gone: Iterable[int]) -> Baseline:
    """Return a baseline in which entries of `old` are replaced, by number, or left out, and new ones are added."""
    left_out = set(gone)
    kept = [replaced.get(i, e) for i, e in enumerate(old) if i not in left_out]
    return Baseline.of([*kept, *new])
