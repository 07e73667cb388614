"""Make a report, and write it as a file: an HTML page, JSON, SVG or a pprof profile, by suffix."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..compute.capacity import available, fits
from ..dump import Dump, Input, read
from ..errors import UsageError, without_passwords
from ..formatting import count, one_line, shorten, size
from ..input.find import find, split_modules
from .columns import Encoder
from .folding import folded
from .model import FORMAT, VERSION, Program, as_json
from .output import write_file
from .program_model import program_model

if TYPE_CHECKING:
    from ..display import View
    from ..warehouse import Dataset
    from .comparison import Difference
    from .listing import Failed, Listing

Json = dict[str, Any]

MAX_BYTES = 10_000_000
"""Default of the maximum size of a page."""
MAX_PROGRAMS = 200
"""Default of the maximum number of programs of a directory that have a page."""
RESERVED = 1 << 16
"""Bytes of a page for what is neither data nor script nor styles."""
VERDICTS = {True: "fits", False: "does not fit", None: "not known"}
N_LISTED, NAME_WIDTH = 20, 60
"""Programs of a directory that its repr lists, and the length of their names there."""
SUFFIXES = (".html", ".json", ".svg", ".pb.gz", ".pprof")


@dataclass(frozen=True, repr=False)
class Report:
    """What a page shows: one program, two that are compared, or those of a directory."""

    title: str
    kind: Literal["program", "comparison", "directory"]
    programs: list[Program] = field(default_factory=list)
    """The program, or A and B. Those of a directory are read when it is written."""
    difference: Difference | None = None
    listing: Listing | None = None
    """The programs of a directory."""
    _dump: Dump | None = None
    _encoder: Encoder = field(default_factory=Encoder)
    _build: Callable[[Dump], Program] | None = None
    """Returns the model of a program of a directory."""
    _unbuilt: list[Failed] = field(default_factory=list)
    """Programs of a directory without a page, as found when it was written last."""
    _max_bytes: int = MAX_BYTES
    _max_programs: int = MAX_PROGRAMS

    @property
    def fits(self) -> bool | None:
        """Whether all programs fit; None if that is not known, or if no device was given."""
        found = {p.verdict.fits for p in self.programs}
        found |= self.listing.verdicts if self.listing else set()
        return False if False in found else None if None in found or not found else True

    @property
    def failed(self) -> list[Json]:
        """The dumps of a directory that cannot be read, and once it is written, those without a page."""
        return [failure._asdict() for failure in (*self.listing.failed, *self._unbuilt)] if self.listing else []

    def as_json(self) -> Json:
        """Return the report as JSON, which `report.schema.json` describes."""
        from .. import __version__

        if self.listing is not None:
            from .directory import directory_report

            return directory_report(self.listing, **self._of_directory(self.listing))
        names = ("title", "kind", "programs", "difference")
        data = {name: as_json(getattr(self, name), self._encoder) for name in names}
        return {"format": FORMAT, "version": VERSION, "tool": __version__, **data, "directory": None}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report in the format of the suffix, and return the file to open.

        That is another file only if the pages of a directory do not fit into one: `report.html` then becomes the folder
        `report` with `index.html`.

        Raises
        ------
        UsageError
            There is no format with this suffix, or it cannot show this kind of report.
        OutputError
            The file cannot be written.
        """
        path = Path(path)
        suffix = require_suffix(path)
        if suffix == ".html" and self.listing is not None:
            from .directory import write_directory

            return write_directory(self.listing, path, **self._of_directory(self.listing))
        write_file(path, self._content(suffix))
        return path

    def _content(self, suffix: str) -> bytes | str:
        if suffix == ".json":
            return json.dumps(self.as_json(), ensure_ascii=False, separators=(",", ":"))
        if suffix == ".html":
            from .document import document

            return document(self.as_json())
        if suffix == ".svg":
            return self._picture()
        if self._dump is None:
            raise UsageError(f"a pprof profile is of one program, not of a {self.kind}")
        from .pprof import pprof

        return pprof(self._dump)

    def _picture(self) -> str:
        if not self.programs:
            raise UsageError("a picture is of one program or of two, not of a directory")
        from .pictures import picture

        return picture(self.programs, summary=self.difference.verdict if self.difference else "")

    def _of_directory(self, listing: Listing) -> Json:
        """Return the keyword arguments of the functions that write a directory."""
        self._unbuilt.clear()
        cap = self._max_bytes - _overhead()
        build = self._build or partial(program_model)

        def built(dump: Dump) -> Json:
            encoder = Encoder()
            program: Json = as_json(folded(build(dump), cap, encoder), encoder)
            return program

        limits = {"cap": self._max_bytes, "max_programs": self._max_programs}
        return {"title": self.title, "build": built, "unbuilt": self._unbuilt, **limits}

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._picture() if self.programs else self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import Grid, View, fields  # not needed to write

        title = f"xlamem.Report of {self.title}"
        if self.listing is None:
            texts = [(one_line(p.name), p.verdict.headline) for p in self.programs]
            texts += [("change", self.difference.verdict)] if self.difference else []
            return View(title, (fields(texts),))
        rows = [
            [
                shorten(p.name, NAME_WIDTH),
                size(p.must_fit),
                size(p.peak),
                "" if p.available is None else VERDICTS[p.fits],
            ]
            for p in self.listing.programs[:N_LISTED]
        ]
        more = len(self.listing.programs) - len(rows)
        note = f"and {count(more, 'smaller program')}" if more else ""
        return View(title, (Grid(["program", "must fit", "peak", ""], rows, frozenset({1, 2}), note),))


def report(
    a: Input | Dump | Dataset,
    b: Input | Dump | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    capacity: int | str | None = None,
    device: str | None = None,
    resident: int | str = 0,
    fraction: float = 1.0,
    max_bytes: int = MAX_BYTES,
    max_programs: int = MAX_PROGRAMS,
) -> Report:
    """Make the picture of where the memory of a program goes, of what changed between two, or of many programs.

    Parameters
    ----------
    a
        A `Dump`, or anything that `read` accepts; or a directory, an archive or a dataset of several programs.
    b
        A second program to compare `a` with.
    output
        File to write; its suffix selects the format: .html, .json, .svg, .pb.gz or .pprof. See also `Report.save`.
    capacity, device, resident, fraction
        Memory of a device, as for `fits`; by default, programs are not compared with any.
    max_bytes
        Maximum size of a page in bytes. The page says what is left out for it.
    max_programs
        Maximum number of programs of a directory that have a page, the largest ones.

    Raises
    ------
    UsageError
        The arguments contradict each other, there is no such format, or `a` or `b` is not one program.
    DumpError
        A file cannot be read.
    OutputError
        The file cannot be written.
    """
    if output is not None:
        require_suffix(output)
    memory = _memory(capacity, device, resident, fraction)
    made = _compared(a, b, memory, max_bytes) if b is not None else _shown(a, memory, max_bytes, max_programs)
    if output is not None:
        made.save(output)
    return made


def require_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file to write. Raises UsageError if there is no such format."""
    name = os.fspath(path).lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise UsageError(f"{os.fspath(path)}: the suffix of the file selects its format: {', '.join(SUFFIXES)}")


def _memory(capacity: int | str | None, device: str | None, resident: int | str, fraction: float) -> Json | None:
    """Return the arguments of `fits`, or None without a device. Raises UsageError."""
    memory: Json = {"capacity": capacity, "device": device, "resident": resident, "fraction": fraction}
    if capacity is None and device is None:
        if resident or fraction != 1:
            raise UsageError("resident and fraction require a capacity or a device")
        return None
    available(**memory)
    return memory


# -- one program, or many ------------------------------------------------------------------------


def _shown(a: Any, memory: Json | None, max_bytes: int, max_programs: int) -> Report:
    shown = _dump_or_listing(a, memory)
    if not isinstance(shown, Dump):
        title = without_passwords(os.fspath(a) if isinstance(a, (str, os.PathLike)) else a.storage.uri)
        build = partial(program_model, memory=memory)
        return Report(title, "directory", listing=shown, _build=build, _max_bytes=max_bytes, _max_programs=max_programs)
    encoder = Encoder()
    program = folded(program_model(shown, memory), max_bytes - _overhead(), encoder)
    return Report(program.name, "program", [program], _dump=shown, _encoder=encoder)


def _opened(source: Any) -> Dump:
    return source if isinstance(source, Dump) else read(source)


def _dump_or_listing(a: Any, memory: Json | None) -> Dump | Listing:
    """Return the dump if it is a single program, or else the programs of a path or a dataset."""
    is_path = isinstance(a, (str, os.PathLike))
    if not is_path and type(a).__name__ != "Dataset":
        return _opened(a)
    from ..warehouse.catalog import is_dataset  # imports pyarrow.dataset

    is_data = not is_path or (not os.path.isfile(a) and is_dataset(a))
    sources = [] if is_data else find(a)  # once: standard input and pipes cannot be read again
    if len(sources) == 1 and len(modules := split_modules(sources[0])) == 1:
        return read(modules[0])
    from .listing import list_programs, list_sources

    judge = None if memory is None else partial(fits, **memory)
    return list_programs(a, judge) if is_data else list_sources(sources, judge)


def _overhead() -> int:
    """Return the bytes of a page that are no data."""
    folder = files(__package__)
    return RESERVED + sum(len(folder.joinpath(name).read_bytes()) for name in ("page.js", "page.css"))


# -- two programs --------------------------------------------------------------------------------


def _compared(a: Any, b: Any, memory: Json | None, max_bytes: int) -> Report:
    from ..compare.difference import diff
    from .comparison import difference

    dumps = [_opened(a), _opened(b)]
    models = [program_model(dump, memory) for dump in dumps]
    d, encoder = diff(*dumps), Encoder()
    whole = json.dumps(as_json(difference(d, *(model.buffers.value_id for model in models))))
    room = max_bytes - _overhead() - len(whole)
    programs = [folded(model, room // 2, encoder) for model in models]
    found = difference(d, *(p.buffers.value_id for p in programs))
    names = list(dict.fromkeys(p.name for p in programs))
    return Report(" → ".join(names), "comparison", programs, found, _encoder=encoder)
