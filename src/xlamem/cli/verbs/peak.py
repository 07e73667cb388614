"""`xlamem peak`: what must fit, and what is in use at the peak."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from ... import compute, schema
from ...compare.compiler import chip_name
from ...compute.wording import describe_problems
from ...dump import Dump, read
from ...errors import UsageError, without_passwords
from ...formatting import one_line
from ...input.find import Source, find, resolve
from .. import console, inputs, options
from ..inputs import Failure, Program
from ..memory import Memory, memory

if TYPE_CHECKING:
    from .. import documents

N_SHOWN = 10
"""Number of programs listed, and of buffers read per memory space, without --limit."""
N_ADVICE = 2
"""Number of interventions that are mentioned if a program does not fit, or little memory is left."""
NEARLY_FULL = 0.9
"""Share of the memory from which little is left."""
LIMIT = (
    "Rows of buffers per memory space, and programs listed on the screen. JSON and CSV have all programs.  "
    "[default: one screen; all in JSON]"
)


@click.command("peak")
@options.paths()
@click.option("--module", metavar="N|NAME", help="Module to show if a PATH has several; by default all are listed.")
@options.space
@options.output(csv=True, limit=LIMIT, wide=True, verbose="Show notes in full.")
@memory(effect="exit with 3 if it is unknown whether a program fits, or else 1 if one does not")
@options.strict("Exit with 3 if a dump is truncated.")
def command(
    paths: tuple[str, ...], module: str | None, space: str | int | None, output: options.Output, memory: Memory | None,
    strict: bool,
) -> int:  # fmt: skip
    """Show what must fit into the device's memory (device_total), and for each memory space the bytes that are reserved
    and the peak of the bytes in use: over time, by scope of the model, and by buffer. Like buffers of all layers are
    one row. If the dump names the TPU, and the program needs more than 90 % of its memory, say so; the exit code is
    about --capacity and --device only.

    If the PATHs hold several programs, list them, largest first, and show the largest.
    """
    sources = find(*paths) if module is None else [resolve(path, module=module) for path in paths]
    several = len(sources) > 1
    limit = output.limit if output.json or output.limit is not None else N_SHOWN

    def read_one(source: Source, *, details: bool = output.json or not several) -> Program:
        is_screen = not output.json and not output.csv
        dump = read(source, tables=inputs.ALL_SECTIONS)
        overview = compute.summarize(dump, space=space, limit=limit, details=details, required=not several)
        fits = memory.fits(dump) if memory else None
        of_chip = _of_chip(dump) if is_screen and details and memory is None else None
        advice = _advice(dump, of_chip if fits is None else fits) if is_screen and details else ()
        return Program(overview, fits, describe_problems(dump), advice, of_chip)

    programs, failures = inputs.read_each(sources, read_one)
    code = _exit_code(programs, failures, strict=strict)
    if several and space is not None:
        programs = [p for p in programs if p.overview.spaces]
        if not programs and not failures:
            raise UsageError(f"none of {len(sources)} dumps has a memory space {space!r}")
    programs.sort(key=lambda p: compute.program_size(p.overview.device_total), reverse=True)
    if output.json:
        console.write_document("peak", _as_json(programs, failures, memory))
    elif output.csv:
        _write_csv(programs, output)
    elif programs:
        n_lines = 0
        if several:
            n_lines = _write_list(programs, len(failures), output)
            programs[0] = read_one(programs[0].overview.source, details=True)
        is_safe = len(paths) == 1 and module is None and without_passwords(paths[0]) == paths[0]
        path = shlex.quote(one_line(paths[0])) if is_safe else None
        _write_screen(programs[0], output, n_lines, path, all_spaces=space is None)
    inputs.report(failures)
    return code


def _of_chip(dump: Dump) -> compute.Fits | None:
    """Return the verdict for the chip that the dump names, unless enough of its memory is left."""
    if dump.platform != "tpu" or (name := chip_name(dump)) is None:
        return None
    fits = compute.fits(dump, device=name)
    return fits if _is_nearly_full(fits) else None


def _is_nearly_full(fits: compute.Fits) -> bool:
    return fits.fits is not None and (fits.device_total or 0) > NEARLY_FULL * fits.available


def _advice(dump: Dump, fits: compute.Fits | None) -> list[dict[str, Any]]:
    """Return the interventions that make a program fit, or may do so; or else the first ones. At most N_ADVICE.

    None if enough memory is left.
    """
    if fits is None or not _is_nearly_full(fits):
        return []
    table, plan = compute.plan_advice(dump, max(fits.available, 0))
    rows = table.to_pylist()
    planned = [row for row in rows if row["in_plan"]]
    return (planned + compute.enough_alone(rows, plan) if planned else rows)[:N_ADVICE]


def _exit_code(programs: list[Program], failures: list[Failure], *, strict: bool) -> int:
    verdicts = [fits.fits for fits in inputs.compared(programs)]
    truncated = not all(p.overview.module["complete"] for p in programs)
    if failures or None in verdicts or (strict and truncated):
        return console.UNREADABLE
    return console.CHECK_FAILED if False in verdicts else console.FINE


def _write_list(programs: list[Program], n_failed: int, output: options.Output) -> int:
    """List the programs and return the number of lines."""
    from ..reporters.programs import list_programs  # imports rich

    limit = N_SHOWN if output.limit is None else output.limit
    lines = list_programs(programs, n_failed, limit, output.width)
    console.write_lines(lines, output.width)
    console.write()
    return len(lines) + 1


def _write_screen(
    program: Program, output: options.Output, n_lines: int, path: str | None, *, all_spaces: bool
) -> None:
    from ..reporters.peak import HEIGHT, MIN_HEIGHT, Layout, screen  # imports rich

    program = program._replace(fits=program.of_chip if program.fits is None else program.fits)
    height = max(HEIGHT - n_lines, MIN_HEIGHT)
    layout = Layout(output.width, output.limit, output.wide, output.verbose, height, path)
    console.write_lines(screen(program, layout, all_spaces=all_spaces), output.width)


def _write_csv(programs: list[Program], output: options.Output) -> None:
    names = schema.COMPUTED["peaks"].names
    rows = [
        [o.source.location, o.source.name, *(s[n] for n in names), o.device_total, None if fits is None else fits.fits]
        for o, fits, *_ in programs
        for s in o.spaces
    ]
    output.write_csv(["place", "dump", *names, "device_total", "fits"], rows)


def _as_json(programs: list[Program], failures: list[Failure], memory: Memory | None) -> documents.Peak:
    return {
        "capacity": None if memory is None else memory.as_json(),
        "dumps": [
            {
                "name": overview.source.name,
                "place": overview.source.location,
                "module": overview.module,
                "device_total": overview.device_total,
                "fits": None if fits is None else fits.fits,
                "reason": None if fits is None else fits.reason,
                "spaces": overview.spaces,
            }
            for overview, fits, *_ in programs
        ],
        "failed": [failure.as_json() for failure in failures],
    }
