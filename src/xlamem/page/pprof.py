"""Write the bytes in use at the peak as a pprof profile: `go tool pprof -http=: FILE.pb.gz`."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from .. import __version__, schema
from ..compute import live_set, peak
from ..compute.columns import encoded, groups_of, ints, sums_of
from ..compute.grouping import key_column
from ..compute.tree import NO_SCOPE, path_of
from ..dump import Dump
from ..errors import UsageError
from ..formatting import exact_size, one_line

if TYPE_CHECKING:
    from .profile_pb2 import Profile

VALUES = (("inuse_objects", "count"), ("inuse_space", "bytes"))
"""Types and units of the two values of each sample."""
LABELS = ("memory_space", "category", "role", "phase", "kind", "shape")
"""Columns of `live_set` that are labels of the samples. The label ``bytes`` is the size of one buffer."""

_STACK = ("memory_space", "page", "scope", "opcode", "kind", "category", "source_file", "source_line")
"""Columns that make up a stack."""


def pprof(dump: Dump) -> bytes:
    """Return what is in use at the peak of each memory space as a pprof profile.

    A sample is a group of buffers with the same stack and labels. Its stack, from the inside, is the opcode with the
    source line, the scopes, and the memory space. The sum of the samples of a memory space is its peak in bytes. The
    peaks of different memory spaces may be at different steps.

    Returns
    -------
    bytes
        A message of profile.proto, compressed by gzip.

    Raises
    ------
    UsageError
        The dump has no live ranges, or protobuf is not installed.
    """
    new_profile = _profile_type()
    members = live_set(dump)
    writer = _Writer(new_profile())
    writer.header(dump)
    for group in _groups(members):
        writer.sample(group)
    return gzip.compress(writer.finished().SerializeToString(deterministic=True), mtime=0)


def _profile_type() -> type[Profile]:
    try:
        from .profile_pb2 import Profile
    except ImportError as error:
        raise UsageError("a pprof profile needs protobuf: pip install 'xlamem[pprof]'") from error
    return Profile


def _groups(members: pa.Table) -> list[dict[str, Any]]:
    """Return the groups of rows of `live_set` with the same stack, labels and size, with ``bytes`` and ``n``."""
    members = members.append_column("scope", key_column(members, "scope", None, False))
    keys = {name: members[name] for name in dict.fromkeys((*_STACK, *LABELS, "size"))}
    first, group = groups_of(*(encoded(column)[0] for column in keys.values()))
    rows = pa.table(keys).take(pa.array(first))
    sizes, numbers = sums_of(ints(members, "bytes"), group, len(first)), np.bincount(group, minlength=len(first))
    order = pa.array(np.argsort(-sizes, kind="stable"))
    groups: list[dict[str, Any]] = (
        rows.append_column("bytes", pa.array(sizes)).append_column("n", pa.array(numbers)).take(order).to_pylist()
    )
    return groups


@dataclass
class _Writer:
    """Fills a profile. Texts, functions and locations are written once and numbered."""

    profile: Profile
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    functions: dict[tuple[int, int], int] = field(default_factory=dict)
    """Numbers of functions by name and file."""
    locations: dict[tuple[int, int], int] = field(default_factory=dict)
    """Numbers of locations by function and line."""

    def header(self, dump: Dump) -> None:
        """Write what the values measure, the name of the program, and what the numbers mean."""
        profile = self.profile
        for kind, unit in VALUES:
            profile.sample_type.add(type=self.text(kind), unit=self.text(unit))
        profile.default_sample_type = self.text(VALUES[1][0])
        profile.period_type.type, profile.period_type.unit = self.text("space"), self.text("bytes")
        profile.period = 1
        (module,) = dump.modules.to_pylist()
        name = module["module_name"] or dump.name
        known = {"has_functions": True, "has_filenames": True, "has_line_numbers": True}  # nothing to look up
        profile.mapping.add(id=1, filename=self.text(name), **known)
        profile.comment.extend(self.text(line) for line in _comments(name, module, peak(dump).spaces.to_pylist()))

    def sample(self, group: dict[str, Any]) -> None:
        sample = self.profile.sample.add(location_id=self._stack(group), value=[group["n"], group["bytes"]])
        for name in LABELS:
            if group[name] is not None:
                sample.label.add(key=self.text(name), str=self.text(group[name]))
        sample.label.add(key=self.text("bytes"), num=group["size"], num_unit=self.text("bytes"))

    def finished(self) -> Profile:
        self.profile.string_table.extend(self.texts)
        return self.profile

    def text(self, text: str) -> int:
        """Return the number of a text. pprof prints texts as they are, so control characters are escaped."""
        return self.texts.setdefault(one_line(text), len(self.texts))

    def _stack(self, group: dict[str, Any]) -> list[int]:
        """Return the locations of a group, the innermost first."""
        leaf = group["opcode"] or group["kind"] or group["category"]
        frames = [_space_name(group), *_frames(group["scope"])]
        innermost = self._location(leaf, group["source_file"] or "", group["source_line"] or 0)
        return [innermost, *(self._location(frame) for frame in reversed(frames))]

    def _location(self, name: str, file: str = "", line: int = 0) -> int:
        number = self._function(self.text(name), self.text(file))
        location = self.locations.get((number, line))
        if location is None:
            location = self.locations[number, line] = len(self.locations) + 1
            self.profile.location.add(id=location, mapping_id=1).line.add(function_id=number, line=line)
        return location

    def _function(self, name: int, file: int) -> int:
        number = self.functions.get((name, file))
        if number is None:
            number = self.functions[name, file] = len(self.functions) + 1
            self.profile.function.add(id=number, name=name, system_name=name, filename=file)
        return number


def _frames(scope: str | None) -> list[str]:
    """Return a frame for each scope around a buffer, the outermost first.

    The scopes of `Model/layers_0` are `Model` and `layers_0`; those of `params['w'].b`, `params`, `params['w']` and
    `params['w'].b`.
    """
    if scope is None:
        return [NO_SCOPE]
    parts = path_of(scope)
    return list(accumulate(parts)) if "".join(parts) == scope else list(parts)


def _space_name(space: dict[str, Any]) -> str:
    page = f" page {space['page']}" if space["page"] else ""
    return f"{space['memory_space']}{page}"


def _comments(name: str, module: dict[str, Any], spaces: list[dict[str, Any]]) -> list[str]:
    """Return the definition of the numbers, the peak of each memory space, and what is wrong with the dump."""
    lines = [
        f"xlamem {__version__}: {name}, in use at the first step of the peak of each memory space",
        f"peak: {schema.DEFINITIONS['peak']}",
        "inuse_space: parameters, constants and outputs in full, temporaries where live values cover bytes",
        "inuse_objects: live buffers, and allocations with bytes that no live buffer covers (role=reserved)",
    ]
    for s in spaces:
        if s["peak"]:
            lines.append(f"{_space_name(s)}: {exact_size(s['peak'])} at step {s['first_step']:,}")
    return lines + [f"the dump is {problem}" for state, problem in schema.PROBLEMS.items() if not module[state]]
