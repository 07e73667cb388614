"""Short names of programs in a list."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonpath, join, relpath

from ...formatting import visible
from ...input.find import Source


def short_names(sources: Sequence[Source]) -> list[str]:
    """Return names without the directories that all sources share, and without what XLA adds to the module name."""
    directories = [s.location for s in sources]
    try:
        shared = commonpath(directories)
    except ValueError:  # both absolute and relative paths
        shared = ""
    return [_short_name(s, relpath(d, shared) if shared else d) for s, d in zip(sources, directories, strict=True)]


def _short_name(source: Source, directory: str) -> str:
    return visible(join(directory, source.label).removeprefix("./"))
