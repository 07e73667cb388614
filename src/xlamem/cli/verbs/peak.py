"""`xlamem peak`: what must fit, how much is in use at the worst moment, and by what. The first screen."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ... import compute, schema
from ...compute import Available, available
from ...dump import Dump, read
from ...errors import DumpError, UsageError
from ...input.find import find
from .. import console
from ..buffers import trace
from ..console import counted
from ..program import MAIN, NEEDED, Row, in_words, only, output_options, states, wrong
from ..screen import CATEGORIES, View, draw

if TYPE_CHECKING:
    from rich.text import Text


@click.command("peak", short_help="Say what must fit, how much is in use at the peak, and by what.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@output_options(10, "Buffers shown per memory space; in a directory also programs.")
@click.option(
    "--capacity",
    metavar="SIZE",
    help="Compare with this much memory (16GiB); exit with 1 if it does not fit, with 3 if that is not known.",
)
@click.option("--device", "device_name", metavar="NAME", help="The same with the memory of a device (v5e, h100, …).")
@click.option("--resident", metavar="SIZE", help="What else is in that memory meanwhile, such as other arrays.")
@click.option(
    "--fraction", type=float, default=1.0, metavar="X", help="Part of that memory that the runtime may use (0.92)."
)
@click.option("--strict", is_flag=True, help="Exit with 3 if a dump is truncated.")
def command(
    paths: tuple[str, ...],
    space: str | None,
    limit: int | None,
    wide: bool,
    as_json: bool,
    as_csv: bool,
    capacity: str | None,
    device_name: str | None,
    resident: str | None,
    fraction: float,
    strict: bool,
) -> int:
    """Say what must fit into the device's memory (device_total) and, for each memory space, how much is reserved, how
    much is in use at the worst moment (the peak), what that is made of and which buffers are the largest, with their
    place in the model. With several programs under PATH: a line for each, the biggest first, and the screen of the
    biggest.
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    given: Row = {"capacity": capacity, "device": device_name, "resident": resident or 0, "fraction": fraction}
    limits = None
    if capacity is not None or device_name is not None:
        limits = available(**given)
    elif resident is not None or fraction != 1:
        raise UsageError("--resident and --fraction need --capacity or --device")
    sources = find(*paths)
    views: list[View] = []
    failed: list[tuple[str, str]] = []
    shown = limit if limit is not None else 10
    for source in sources:
        try:
            dump = read(source, tables=NEEDED)
            brief = len(sources) > 1 and not as_json
            several = len(sources) > 1
            views.append(view(dump, space, limit if as_json else shown, brief=brief, missing=several))
            if limits is not None:
                views[-1].verdict = compute.fits(dump, **given)
        except (DumpError, OSError) as error:
            failed.append((os.path.join(source.place, source.name).removeprefix("./"), str(error)))
    known = [v.verdict.fits for v in views if v.verdict is not None]
    if space is not None and len(sources) > 1:
        views = [v for v in views if v.spaces]
        if not views and not failed:
            raise UsageError(f"none of {len(sources)} dumps has a memory space {space!r}")
    views.sort(key=lambda v: (-(v.device_total or 0), -sum(s["reserved"] for s in v.spaces)))
    if as_json:
        console.out_json(_as_json(views, failed, limits))
    elif as_csv:
        names = [c.name for c in schema.COMPUTED["peaks"].columns]
        rows = [
            [v.source.place, v.source.name, *(s[n] for n in names), v.device_total, v.fits]
            for v in views
            for s in v.spaces
        ]
        console.out_csv(["place", "dump", *names, "device_total", "fits"], rows)
    elif views:
        width = None if wide else console.width()
        if len(sources) > 1:
            console.rich_out(*_summary(views, limits, shown, width, len(failed)), width=width)
            console.out()
            biggest = view(read(views[0].source, tables=NEEDED), space, shown)
            views[0] = replace(biggest, verdict=views[0].verdict)
        console.rich_out(*draw(views[0], space, limits, limit, width, wide=wide), width=width)
    for name, said in failed:
        console.complain(said if name in said else f"{name}: {said}", console.UNREADABLE)
    if failed or None in known or (strict and not all(v.module["complete"] for v in views)):
        return console.UNREADABLE
    return console.CHECK_FAILED if False in known else console.FINE


def view(
    dump: Dump,
    space: str | None = None,
    limit: int | None = None,
    *,
    brief: bool = False,
    missing: bool = False,
) -> View:
    """The numbers of one dump; with `brief` only those of the summary; with `missing` it may lack the space."""
    import pyarrow.compute as pc

    (module,) = dump.modules.to_pylist()
    if not dump.allocations.num_rows:
        return View(dump.source, module, only([], space, missing=missing), wrong=states(dump))
    found = compute.peak(dump)
    every = found.spaces.to_pylist()
    spaces = only(every, space, missing=missing)
    spaces.sort(key=lambda s: (s["memory_space"] not in MAIN, -(s["peak"] or 0), -s["reserved"]))
    parts: Counter[str] = Counter()
    for s in every:
        s["in_device_memory"] = schema.in_device_memory(dump.platform, s["color"])
        parts[s["memory_space"]] += s["reserved"] * s["in_device_memory"]
    known = View(dump.source, module, spaces, found.device_total, +parts, states(dump))
    if brief:
        return known
    timed = known.timed
    times = compute.occupancy(dump) if timed else None
    lives = compute.live_set(dump) if timed else None
    plateaus = found.plateaus.to_pylist()
    for row in spaces:
        key = (row["memory_space"], row["color"], row["page"])
        row["plateau_list"] = [p for p in plateaus if (p["memory_space"], p["color"], p["page"]) == key]
        if times is None or lives is None:
            row["categories"], row["buffers"], row["n_buffers"] = _sizes(dump, row, limit)
            continue
        own = times.filter(pc.and_(pc.equal(times["color"], row["color"]), pc.equal(times["page"], row["page"])))
        known.series[row["memory_space"], row["page"]] = own["occupied"].to_numpy()
        at = row["first_step"] or 0
        row["categories"] = {c: own[c][at].as_py() for c in CATEGORIES}
        held = lives.filter(pc.and_(pc.equal(lives["color"], row["color"]), pc.equal(lives["page"], row["page"])))
        row["n_buffers"] = held.num_rows
        row["buffers"] = (held if limit is None else held.slice(0, limit)).to_pylist()
    if limit is not None:
        trace(dump, [b for row in spaces for b in row["buffers"]])
    return known


def _sizes(dump: Dump, space: Row, limit: int | None) -> tuple[dict[str, int], list[Row], int]:
    """Without live ranges: the space's allocations by category, and its largest values at whatever time."""
    kinds = ("thread_local", "constant", "donated", "parameter", "live_out", "temp")
    names = ("allocation", "size", "color", "page", "is_thread_local", "is_constant", "is_parameter", "is_live_out")
    totals, kind_of = dict.fromkeys(CATEGORIES, 0), {}
    for a in dump.allocations.select(names).to_pylist():
        if (a["color"], a["page"] or 0) != (space["color"], space["page"]):
            continue
        parameter, out = a["is_parameter"], a["is_live_out"]
        flags = (a["is_thread_local"], a["is_constant"], parameter and out, parameter, out, True)
        kind_of[a["allocation"]] = kind = kinds[flags.index(True)]
        if kind in totals:
            totals[kind] += a["size"]
    known = [v for v in dump.values.to_pylist() if kind_of.get(v["allocation"], "thread_local") != "thread_local"]
    known.sort(key=lambda v: -(v["size"] or 0))
    lines = {
        i["instruction"]: i
        for i in dump.instructions.select(["instruction", "op_name", "source_file", "source_line"]).to_pylist()
    }
    nothing = {"op_name": None, "source_file": None, "source_line": None}
    rows = []
    for v in known if limit is None else known[:limit]:
        where = lines.get(v["instruction"], nothing)
        more = {"role": "value", "bytes": v["size"], "category": kind_of[v["allocation"]]}
        rows.append({**v, **more, **{k: where[k] for k in nothing}})
    return totals, rows, len(known)


# -- JSON ------------------------------------------------------------------------------------------


def _as_json(views: list[View], failed: list[tuple[str, str]], limits: Available | None) -> Row:
    compared: Row | None = None
    if limits is not None:
        compared = {
            "name": limits.device.name if limits.device else "capacity",
            "bytes": limits.capacity,
            "resident": limits.resident,
            "available": limits.bytes,
        }
        if limits.device is not None:
            d = limits.device
            compared |= {
                "stated": d.stated,
                "source": d.source,
                "stated_bytes": d.bytes,
                "reported_by": d.reporter or None,
            }
    return {
        "schema_version": schema.VERSION,
        "capacity": compared,
        "dumps": [
            {
                "name": v.source.name,
                "place": v.source.place,
                "module": v.module,
                "device_total": v.device_total,
                "fits": v.fits,
                "reason": v.verdict.reason if v.verdict is not None else None,
                "spaces": v.spaces,
            }
            for v in views
        ],
        "failed": [{"name": name, "error": said} for name, said in failed],
    }


# -- several programs ------------------------------------------------------------------------------


def _summary(views: list[View], limits: Available | None, limit: int, width: int | None, n_failed: int) -> list[Text]:
    from rich.text import Text

    from .info import _names

    rows = [["device_total", "peak", "step", "space", "program"]]
    names = _names(views)  # type: ignore[arg-type]
    for v in views[:limit]:
        total = "-" if v.device_total is None else console.size(v.device_total)
        main = v.spaces[0] if v.spaces else None
        if main is None:
            rows.append([total, "-", "-", "-", ""])
            continue
        step = "-" if main["first_step"] is None else f"{main['first_step']:,}"
        peak = "-" if main["peak"] is None else console.size(main["peak"])
        rows.append([total, peak, step, main["memory_space"], ""])
    lines = console.columns(rows, {3, 4})
    indent = lines[0].rindex("program")
    texts = [Text(lines[0], "bold")]
    for v, line, name in zip(views, lines[1:], names, strict=False):
        said = wrong(v.module)
        if v.verdict is not None and not v.fits:
            said.append("does not fit" if v.fits is False else "not known whether it fits")
        state = "".join(f"  {s}" for s in said)
        room = width and width - indent - len(state)
        text = Text.assemble(line.ljust(indent), console.tail(name, room), (state, "bold red"))
        if v.verdict is not None and not v.fits:
            text.stylize("red")
        texts.append(text)
    more = len(views) - limit
    if more > 0:
        texts.append(Text(f"… and {counted(more, 'smaller program')}; --limit shows more of them", "dim"))
    said = [counted(len(views), "program")]
    if limits is not None:
        where = f"{limits.device.name if limits.device else 'capacity'} ({console.size(limits.bytes)})"
        n, unknown = (sum(v.fits is verdict for v in views) for verdict in (False, None))
        said += [f"{n} {'does' if n == 1 else 'do'} not fit in {where}"] if n else []
        said += [f"of {unknown:,} it is not known"] if unknown else []
        said += [] if n or unknown else [f"each fits in {where}"]
    said += in_words(v.module for v in views)
    said += [f"{n_failed} unreadable"] if n_failed else []
    return [*texts, *(Text(line) for line in console.fill(", ".join(said) + "; the biggest:", 0, width))]
