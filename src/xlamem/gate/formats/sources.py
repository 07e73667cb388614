"""Which file of the repository a source file of a dump is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...compute.callers import INSTALLED
from ...formatting import file_line
from ..result import Row
from ..stacks import Line, Stack


class Place(NamedTuple):
    """A source line."""

    file: str
    """As in the dump."""
    line: int | None
    path: str | None
    """The file in the repository, relative to the workspace; None if the repository does not have it."""

    def __str__(self) -> str:
        return file_line(self.file, self.line)


class Sources:
    """The source files of a repository, by the names that they have in dumps."""

    def __init__(self, root: Path, stacks: Mapping[int, Mapping[Line, Stack]] | None = None) -> None:
        self.root = os.path.abspath(root)
        self.stacks = stacks or {}
        self.workspace = os.path.abspath(os.environ.get("GITHUB_WORKSPACE") or ".")
        """What the paths of the service are relative to."""
        self.n_lines: dict[str, int] = {}

    def place(self, row: Row) -> Place | None:
        """Return the source line of a finding, or that of its innermost caller which the repository has."""
        own = row["source_file"], row["source_line"]
        if own[0] is None:
            return None
        for line in self.stacks.get(row["program"], {}).get(own, (own,)):
            if path := self.find(*line):
                return Place(*line, path)
        return Place(*own, None)

    def find(self, file: str | None, line: int | None) -> str | None:
        """Return the path from the workspace of a source file of a dump, or None if the repository does not have it.

        The file may have been compiled in another folder or on another machine: the longest end of its path that
        exists below the root, and has this line, is the file. Of an installed package, only the whole path below
        `site-packages` counts.
        """
        if not file or not file.isprintable():
            return None
        for path in self._candidates(re.split(r"[/\\]", file)):
            if os.path.isfile(path) and (line or 0) <= self._lines_of(path):
                return self._from_workspace(path)
        return None

    def _candidates(self, parts: list[str]) -> list[str]:
        installed = [i + 1 for i, part in enumerate(parts) if re.fullmatch(INSTALLED, part)]
        starts = installed[-1:] or range(len(parts))
        ends = (parts[i:] for i in starts)
        return [os.path.join(self.root, *end) for end in ends if end and end[0] and ".." not in end]

    def _lines_of(self, path: str) -> int:
        if path not in self.n_lines:
            with open(path, "rb") as file:
                self.n_lines[path] = sum(1 for _ in file)
        return self.n_lines[path]

    def _from_workspace(self, path: str) -> str:
        inside = os.path.commonpath([path, self.workspace]) == self.workspace
        return Path(os.path.relpath(path, self.workspace) if inside else path).as_posix()
