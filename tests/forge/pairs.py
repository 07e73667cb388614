"""The stored pairs of compiled programs that differ in one edit, whose cause is known."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import xlamem
from xlamem.input.find import find

FOLDER = Path(__file__).parent.parent / "data" / "pairs"


@dataclass(frozen=True)
class Pair:
    """A pair: the cause as a key and in words, and a regex of the scopes in which bytes change."""

    name: str
    platform: str
    cause: str
    words: str
    scope: str

    @property
    def archive(self) -> Path:
        return FOLDER / f"{self.name}.tar.xz"

    def sides(self) -> tuple[xlamem.Dump, xlamem.Dump]:
        """Return the dump before and the dump after the edit."""
        a, b = find(self.archive)
        return xlamem.read(a), xlamem.read(b)

    def unpack(self, folder: Path) -> tuple[Path, Path]:
        """Unpack the pair and return the folders of both sides."""
        with tarfile.open(self.archive) as archive:
            archive.extractall(folder, filter="data")
        return folder / "a", folder / "b"


@cache
def stored() -> tuple[Pair, ...]:
    return tuple(Pair(**row) for row in json.loads((FOLDER / "index.json").read_text()))


def flags_that_differ(a: xlamem.Dump, b: xlamem.Dump) -> set[str]:
    """Names of the flags that have other values, apart from paths."""
    sides = [
        {(r["name"], r["value"]) for r in d["flags"].to_pylist() if not re.search("dump_to|data_dir", r["name"])}
        for d in (a, b)
    ]
    return {name for name, _ in sides[0] ^ sides[1]}
