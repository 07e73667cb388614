"""`xlamem report`: the picture of a program, of two, or of a directory, as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...compute.devices import parse_bytes
from ...dump import Dump, read
from ...errors import UsageError
from ...formatting import exact_size
from ...page.writing import Report, report, require_suffix
from .. import console, inputs, options
from ..completion import files
from ..memory import Memory, memory

if TYPE_CHECKING:
    from .. import documents


@click.command("report")
@click.argument("paths", nargs=-1, required=True, metavar="PATH [PATH2]", shell_complete=files)
@click.option(
    "--output", "-o", "file", default="report.html", show_default=True, metavar="FILE", shell_complete=files,
    help="File to write; its suffix selects the format: .html, .json (the data of the page), .svg,"
    " .pb.gz or .pprof (pprof).",
)  # fmt: skip
@click.option("--module", metavar="N|NAME", help="Module to show if a PATH has several; by default all are listed.")
@memory()
@click.option(
    "--max-size", default="10MB", show_default=True, metavar="SIZE",
    help="Largest size of a page. What is left out for it is stated in the page.",
)  # fmt: skip
@click.option(
    "--max-programs", type=click.IntRange(min=1), default=200, show_default=True, metavar="N",
    help="Programs of a directory that have a page, the largest first.",
)  # fmt: skip
@options.output()
def command(
    paths: tuple[str, ...], file: str, module: str | None, memory: Memory | None, max_size: str, max_programs: int,
    output: options.Output,
) -> int:  # fmt: skip
    """Write one HTML page that shows where the memory of the program in PATH goes: what must fit and why, bytes in use
    over time, the address of every buffer, and what to do. It needs no network and no other file.

    With PATH2, the page shows what changed from PATH to PATH2. If PATH has several programs, it is a table of them with
    a page for each: in one file, or in a folder if that exceeds --max-size.

    The exit code says whether the programs fit, as that of `xlamem peak`; the file is written in any case.
    """
    if len(paths) > 2:
        raise UsageError(f"report shows one path, or compares two, not {len(paths)}")
    suffix, limit = require_suffix(file), parse_bytes(max_size)
    arguments = memory.arguments if memory else {}
    opened = (_opened(path, module) for path in paths)
    made = report(*opened, max_bytes=limit, max_programs=max_programs, **arguments)
    written = made.save(file)
    if suffix == ".html" and written.stat().st_size > limit:
        console.note(f"{written} is larger than --max-size, because a page without buffers is")
    for problem in dict.fromkeys(problem for program in made.programs for problem in program.problems):
        console.note(problem)
    for failure in made.failed:
        console.error_about(failure["path"], failure["error"], console.UNREADABLE)
    if output.json:
        console.write_document("report-file", _as_json(made, written))
    else:
        console.write(f"wrote {written}  {exact_size(written.stat().st_size)}")
    return _exit_code(made, memory)


def _opened(path: str, module: str | None) -> str | Dump:
    return path if module is None else read(path, module=module, tables=inputs.ALL_SECTIONS)


def _exit_code(made: Report, memory: Memory | None) -> int:
    verdicts = made.listing.verdicts if made.listing else {p.verdict.fits for p in made.programs}
    if made.failed or (memory is not None and None in verdicts):
        return console.UNREADABLE
    return console.CHECK_FAILED if made.fits is False else console.FINE


def _as_json(made: Report, written: Path) -> documents.ReportFile:
    return {
        "output": os.fspath(written),
        "bytes": written.stat().st_size,
        "kind": made.kind,
        "title": made.title,
        "fits": made.fits,
        "failed": [{"path": f["path"], "error": f["error"]} for f in made.failed],
    }
