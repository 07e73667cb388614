"""Make a report, and write it as a file: an HTML page, JSON, SVG or a pprof profile, by suffix."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dump import Dump, read
from ..errors import UsageError
from .model import FORMAT, VERSION, Program, as_json
from .output import write_file
from .program_model import program_model

if TYPE_CHECKING:
    pass

SUFFIXES = (".html", ".json", ".svg", ".pb.gz", ".pprof")


@dataclass(frozen=True, repr=False)
class Report:
    """What a page shows: one program, a comparison of two, or a directory of programs."""

    title: str
    kind: str
    programs: list[Program]
    difference: Any = None
    directory: Any = None
    max_bytes: int = 10_000_000
    """Maximum size of a page. What is left out for it is said in the page."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON, which `report.schema.json` describes."""
        from .. import __version__

        data = {name: as_json(getattr(self, name)) for name in ("title", "kind", "programs", "difference", "directory")}
        return {"format": FORMAT, "version": VERSION, "tool": __version__, **data}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file, in the format of its suffix.

        Raises
        ------
        UsageError
            No format has this suffix, or the format cannot show this kind of report.
        OutputError
            The file cannot be written.
        """
        write_file(Path(path), self._content(os.fspath(path).lower()))

    def _content(self, path: str) -> bytes | str:
        if path.endswith(".json"):
            return json.dumps(self.as_json(), ensure_ascii=False, separators=(",", ":"))
        if path.endswith(".html"):
            from .document import document

            return document(self.as_json())
        raise UsageError(f"{path}: a report is written to a file that ends in {', '.join(SUFFIXES)}")

    def __repr__(self) -> str:
        return f"xlamem.Report({self.title!r}, {self.kind})"


def report(
    a: Any,
    b: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    capacity: int | str | None = None,
    device: str | None = None,
    resident: int | str = 0,
    fraction: float = 1.0,
    max_bytes: int = 10_000_000,
) -> Report:
    """Make the picture of a program."""
    memory = None
    if capacity is not None or device is not None:
        memory = {"capacity": capacity, "device": device, "resident": resident, "fraction": fraction}
    dump = a if isinstance(a, Dump) else read(a)
    model = program_model(dump, memory)
    made = Report(model.name, "program", [model], max_bytes=max_bytes)
    if output is not None:
        made.save(output)
    return made
