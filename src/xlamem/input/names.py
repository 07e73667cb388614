"""Parsing of the file names that XLA gives to its dumps."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Literal, NamedTuple

Role = Literal[
    "buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report", "hlo", "debug-options",
    "tpu-environment", "target-arguments",
]  # fmt: skip
Platform = Literal["tpu", "gpu", "cpu"]
Other = Literal["proto", "hlo", "profile", "message", "nothing"]
"""What has no dump, though people may expect one: also an out-of-memory message, and a directory without entries."""

COMPRESSED = (".gz", ".zst", ".xz", ".bz2")
"""Compression extensions in order of preference; uncompressed files are preferred to all of them."""

EXTENSIONS: dict[Role, str] = {
    "buffer-assignment": "-buffer-assignment.txt",
    "buffer-assignment-values": "-buffer-assignment-values.txt",
    "live-range": "-live-range.txt",
    "memory-usage-report": "-memory-usage-report.txt",
    "hlo": ".txt",
}

FLAG_EXTENSIONS: dict[Role, str] = {
    "debug-options": ".debug_options",
    "tpu-environment": ".tpu_comp_env.txt",
    "target-arguments": ".target_arguments.txt",
}
"""Files with the flags and the target of a compile, whose stem is that of the dump without the platform."""

_OTHERS: dict[Other, str] = {"profile": ".xplane.pb", "proto": ".pb", "hlo": ".hlo"}
_ENDINGS = {kind: tuple(end + extension for extension in ("", *COMPRESSED)) for kind, end in _OTHERS.items()}
_TEXTS = tuple(f".txt{extension}" for extension in ("", *COMPRESSED))

_RANKS = {extension: 1 + i for i, extension in enumerate(COMPRESSED)}

# Module names may contain dots, so every name is matched from its right end.
_MEMORY_EXTENSIONS = tuple((role, extension) for role, extension in EXTENSIONS.items() if role != "hlo")
_BACKEND = re.compile(
    r"(?:\.cl_(?P<changelist>[0-9]{1,18}))?(?:\A|\.)"
    r"(?:(?P<cpu>cpu_)|(?P<gpu>(?:(?P<target>sm_[0-9]+(?:\.[0-9]+)?[a-z]*|[^.]+)_)?gpu_))?after_optimizations\Z"
)
_FLAGS = re.compile(r"(\.debug_options|\.(?:tpu_comp_env|target_arguments)\.txt)(?:\.(?:gz|zst|xz|bz2))?\Z")
_ROLE_OF_FLAGS = {extension: role for role, extension in FLAG_EXTENSIONS.items()}
_MODULE = re.compile(r"(?:(?P<timestamp>[0-9]{1,18})\.)?module_(?P<id>[0-9]{1,18})(?:\.(?P<name>.+))?", re.DOTALL)
_DUMPED = re.compile(r"(?:[0-9]+\.)?module_[0-9]{4,}\.")


class DumpName(NamedTuple):
    """The parts of a member's file name; missing parts are None."""

    stem: str
    role: Role
    timestamp_us: int | None = None
    module_id: int | None = None
    module_name: str | None = None
    changelist: int | None = None
    platform: Platform | None = None
    target: str | None = None


def split(file_name: str) -> tuple[str, Role] | None:
    """Return the stem and the role of a member's file name; None for any other file."""
    name = file_name if file_name.endswith(".txt") else without_compression(file_name)
    # macOS adds "._NAME" next to NAME in archives.
    if not name.endswith(".txt") or name.startswith("._"):
        return None
    for role, extension in _MEMORY_EXTENSIONS:  # by hand: a search for a pattern takes twice as long
        if name.endswith(extension):
            stem = name[: -len(extension)]
            return (stem, role) if stem else None
    return (name[:-4], "hlo") if name.endswith("after_optimizations.txt") else None


def split_flags(file_name: str) -> tuple[str, Role] | None:
    """Return the stem and the role of a file with flags; None for any other file."""
    match = _FLAGS.search(file_name)
    if match is None or match.start() == 0 or file_name.startswith("._"):
        return None
    return file_name[: match.start()], _ROLE_OF_FLAGS[match[1]]


def flags_stem(stem: str) -> str:
    """Return the stem of the files with the flags of a dump: its own without the platform."""
    backend = _BACKEND.search(stem)
    if backend is None:
        return stem
    return stem[: backend.start()] + (f".cl_{backend['changelist']}" if backend["changelist"] else "")


def parse(file_name: str) -> DumpName | None:
    """Parse the file name (without directory) of a member; None for any other file."""
    stem_and_role = split(file_name)
    return describe(*stem_and_role) if stem_and_role else None


@lru_cache(maxsize=4096)  # many runs dump the same modules
def describe(stem: str, role: Role) -> DumpName:
    """Parse the stem of a dump. Stems chosen by users are valid, but have few parts."""
    backend = _BACKEND.search(stem)
    module = _MODULE.fullmatch(stem[: backend.start()] if backend else stem)
    return DumpName(
        stem=stem,
        role=role,
        timestamp_us=_int(module["timestamp"]) if module else None,
        module_id=_int(module["id"]) if module else None,
        module_name=module["name"] if module else None,
        changelist=_int(backend["changelist"]) if backend else None,
        platform=_platform(backend) if backend else None,
        target=backend["target"] if backend else None,
    )


def is_dumped(file_name: str) -> bool:
    """Return whether XLA wrote a file of this name. Such a file without a role (an HLO pass, a proto) has no dump."""
    return _DUMPED.match(file_name) is not None


def kind_without_dump(file_name: str) -> Other | None:
    """Return what a file that is not a member contains, if people take it for a dump, judging by its name."""
    for kind, endings in _ENDINGS.items():
        if file_name.endswith(endings):
            return kind
    return "hlo" if is_dumped(file_name) and file_name.endswith(_TEXTS) else None


def is_text(file_name: str) -> bool:
    """Return whether a file that is not a member may be a text with dumps, judging by its name."""
    if is_dumped(file_name) or file_name.startswith("."):
        return False
    return os.path.splitext(without_compression(file_name))[1] in ("", ".txt", ".log")


def without_compression(file_name: str) -> str:
    """Remove the extension of a compression from a file name."""
    base, extension = os.path.splitext(file_name)
    return base if extension in COMPRESSED else file_name


def compression_rank(file_name: str) -> int:
    """Return the preference of a file: 0 if uncompressed, otherwise by the order of COMPRESSED."""
    return _RANKS.get(file_name[file_name.rfind(".") :], 0)


def variants(stem: str, role: Role) -> list[str]:
    """Return the possible file names of a member in order of preference."""
    name = flags_stem(stem) + FLAG_EXTENSIONS[role] if role in FLAG_EXTENSIONS else stem + EXTENSIONS[role]
    return [name + extension for extension in ("", *COMPRESSED)]


def _platform(backend: re.Match[str]) -> Platform | None:
    if backend["cpu"]:
        return "cpu"
    if backend["gpu"]:
        return "gpu"
    # TPU dumps and very old dumps of other platforms have the same suffix.
    return "tpu" if backend["changelist"] else None


def _int(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
