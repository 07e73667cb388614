"""The page of many programs: a table, `Directory` in script/data/model.ts, and a page of each program.

The pages are in the same file up to a size, otherwise in files of their own in a folder. At most as many models as fit
the one file are in memory at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..dump import Dump
from ..errors import DumpError, UsageError
from ..formatting import count
from .document import document
from .listing import Failed, Listed, Listing, Summary
from .model import FORMAT, VERSION, as_json
from .output import write_file

Json = dict[str, Any]
Build = Callable[[Dump], Mapping[str, Any]]
"""Returns the model of a program as JSON."""

MAX_PROGRAMS = 200
"""Default of the maximum number of programs that have a page."""
MAX_FILE_NAME = 80
ROWS_SHARE = 0.9
"""Share of a file that the rows of the table have at most; the rest is the script and the styles."""
MAX_FAILED = 1000
"""Maximum number of dumps that cannot be read that are listed."""
INDEX, FOLDER = "index.html", "programs"


@dataclass(frozen=True)
class Row(Summary):
    """A program in the table, and where its page is."""

    program: int = -1
    """Row of the programs of the report, -1 for none."""
    file: str = ""
    """Relative path of a page of its own, empty without one."""


@dataclass(frozen=True)
class Directory:
    """The programs, largest first, and what cannot be shown."""

    rows: list[Row]
    failed: list[Json]
    folded: list[str]


def write_directory(
    listing: Listing,
    output: Path,
    *,
    title: str,
    build: Build,
    cap: int,
    max_programs: int = MAX_PROGRAMS,
    unbuilt: list[Failed] | None = None,
) -> Path:
    """Write the page of a directory, and return the file to open.

    Parameters
    ----------
    listing
        The programs.
    output
        The file. If all pages together are larger than `cap`, the page is a folder instead: `report.html` becomes
        `report/index.html`, with the pages of the programs in `report/programs`. The index is written last.
    title
        Title of the page.
    build
        Returns the model of a program, of at most `cap` bytes, as JSON.
    cap
        Maximum size of a file in bytes.
    max_programs
        Maximum number of programs that have a page, the largest ones.
    unbuilt
        Gets the listed programs that cannot be read again or built, which have no page.

    Raises
    ------
    OutputError
        A file cannot be written.
    """
    unbuilt = [] if unbuilt is None else unbuilt
    built = _built(listing, build, max_programs, unbuilt)
    held, fits = _held(built, cap)
    if fits:
        page = document(_in_one(listing, held, title, [*listing.failed, *unbuilt], max_programs, cap))
        if len(page) <= cap:
            write_file(output, page)
            return output
    folder = output.with_suffix("")
    files = _write_pages(listing, chain(held, built), folder, min(max_programs, len(listing.programs)))
    rows = [replace(row, file=files.get(i, "")) for i, row in enumerate(_rows(listing))]
    failed = [*listing.failed, *unbuilt]
    write_file(folder / INDEX, document(_report(title, [], _directory(rows, failed, max_programs, cap))))
    if output != folder:
        output.unlink(missing_ok=True)  # an earlier page, which the folder replaces
    return folder / INDEX


def directory_report(
    listing: Listing,
    *,
    title: str,
    build: Build,
    cap: int,
    max_programs: int = MAX_PROGRAMS,
    unbuilt: list[Failed] | None = None,
) -> Json:
    """Return the report of a directory as JSON, with the models of the largest programs that fit `cap` bytes.

    `unbuilt` gets the listed programs that cannot be read again or built.
    """
    unbuilt = [] if unbuilt is None else unbuilt
    held, fits = _held(_built(listing, build, max_programs, unbuilt), cap)
    if not fits:
        held.pop()
    report = _in_one(listing, held, title, [*listing.failed, *unbuilt], max_programs, cap)
    if not fits:
        report["directory"]["folded"].append(f"This file contains the {count(len(held), 'largest program')} only.")
    return report


def _built(listing: Listing, build: Build, n: int, unbuilt: list[Failed]) -> Iterator[tuple[int, Json]]:
    """Yield the models of the n largest programs and their rows; add those that cannot be built to `unbuilt`."""
    for number, listed in enumerate(listing.programs[:n]):
        try:
            yield number, dict(build(listed.read()))
        except (DumpError, UsageError, OSError) as error:
            unbuilt.append(Failed(listed.path, str(error)))


def _held(built: Iterable[tuple[int, Json]], cap: int) -> tuple[list[tuple[int, Json]], bool]:
    """Return models up to the first with which they are larger than `cap`, and whether they are not."""
    held, size = [], 0
    for number, program in built:
        held.append((number, program))
        size += len(json.dumps(program, separators=(",", ":")))
        if size > cap:
            return held, False
    return held, True


def _in_one(listing: Listing, held: list[tuple[int, Json]], title: str, failed: list[Failed], n: int, cap: int) -> Json:
    """Return the report that contains these models, of the first n programs."""
    place = {number: i for i, (number, _) in enumerate(held)}
    rows = [replace(row, program=place.get(i, -1)) for i, row in enumerate(_rows(listing))]
    return _report(title, [program for _, program in held], _directory(rows, failed, n, cap))


def _rows(listing: Listing) -> list[Row]:
    return [_row(listed) for listed in listing.programs]


def _row(listed: Listed) -> Row:
    columns = dict(vars(listed))
    del columns["read"], columns["other_platform"]
    return Row(**columns)


def _directory(rows: list[Row], failed: list[Failed], max_programs: int, cap: int) -> Directory:
    """Return the table, with as many rows as fit a file."""
    sizes = np.cumsum([len(json.dumps(vars(row))) for row in rows])
    shown = rows[: int(np.searchsorted(sizes, int(ROWS_SHARE * cap), "right"))]
    n, folded = len(rows), []
    if n > max_programs:
        folded.append(f"Only the largest {max_programs:,} of {n:,} programs have a page (see --max-programs).")
    if n > len(shown):
        folded.append(f"Only the largest {len(shown):,} of {n:,} programs are listed, for the size of this file.")
    if len(failed) > MAX_FAILED:
        folded.append(f"Only the first {MAX_FAILED:,} of {len(failed):,} dumps that cannot be read are listed.")
    return Directory(shown, [failure._asdict() for failure in failed[:MAX_FAILED]], folded)


def _report(title: str, programs: list[Json], directory: Directory | None) -> Json:
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool": __version__,
        "kind": "directory" if directory else "program",
        "title": title,
        "programs": programs,
        "difference": None,
        "directory": as_json(directory),
    }


# -- a folder ------------------------------------------------------------------------------------


def _write_pages(listing: Listing, built: Iterable[tuple[int, Json]], folder: Path, n: int) -> dict[int, str]:
    """Write the page of each program, and return their paths in the folder by row."""
    width, files = max(3, len(str(n))), {}
    for number, program in built:
        name = listing.programs[number].name
        file = f"{FOLDER}/{number + 1:0{width}}-{file_name(name)}.html"
        write_file(folder / file, document(_report(name, [program], None)))
        files[number] = file
    return files


def file_name(name: str) -> str:
    """Return a name that is safe in files and links: letters, digits, `-`, `_` and `.`, which is not the first."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:MAX_FILE_NAME] or "program"
