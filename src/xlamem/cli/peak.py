"""`xlamem peak`: what must fit, how much is in use at the worst moment, and by what. The first screen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from .. import compute, schema
from ..devices import device, parse_bytes
from ..dump import Dump, read
from ..errors import DumpError, UsageError
from ..source import find
from . import console
from .buffers import trace
from .console import counted
from .program import DEVICE_MEMORY, MAIN, NEEDED, Row, only, output_options
from .screen import CATEGORIES, Capacity, View, draw

if TYPE_CHECKING:
    from rich.text import Text


@click.command("peak", short_help="Say what must fit, how much is in use at the peak, and by what.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@output_options(10, "Buffers shown per memory space; in a directory also programs.")
@click.option(
    "--capacity", metavar="SIZE", help="Compare with this much memory (16GiB); exit with 1 if it does not fit."
)
@click.option("--device", "device_name", metavar="NAME", help="The same with the memory of a device (v5e, h100, …).")
@click.option("--strict", is_flag=True, help="Exit with 3 if a dump is cut.")
def command(
    paths: tuple[str, ...],
    space: str | None,
    limit: int | None,
    wide: bool,
    as_json: bool,
    as_csv: bool,
    capacity: str | None,
    device_name: str | None,
    strict: bool,
) -> int:
    """Say for each memory space how much the device must hold (reserved), how much is in use at the worst moment (the
    peak), what that is made of and which buffers are the largest, with their place in the model. With several
    programs under PATH: a line for each, the biggest first, and the screen of the biggest.
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    limits = _capacity(capacity, device_name)
    sources = find(*paths)
    views: list[View] = []
    failed: list[tuple[str, str]] = []
    shown = limit if limit is not None else 10
    for source in sources:
        try:
            dump = read(source, tables=NEEDED)
            brief = len(sources) > 1 and not as_json
            views.append(view(dump, space, limit if as_json else shown, brief=brief, missing=len(sources) > 1))
        except (DumpError, OSError) as error:
            failed.append((os.path.join(source.place, source.name).removeprefix("./"), str(error)))
    if space is not None and len(sources) > 1:
        views = [v for v in views if v.spaces]
        if not views and not failed:
            raise UsageError(f"none of {len(sources)} dumps has a memory space {space!r}")
    views.sort(key=lambda v: (-v.reserved, -sum(s["reserved"] for s in v.spaces)))
    if as_json:
        console.out_json(_as_json(views, failed, limits))
    elif as_csv:
        names = [c.name for c in schema.COMPUTED["peaks"].columns]
        rows = [[v.source.place, v.source.name, *(s[n] for n in names)] for v in views for s in v.spaces]
        console.out_csv(["place", "dump", *names], rows)
    elif views:
        width = None if wide else console.width()
        if len(sources) > 1:
            console.rich_out(*_summary(views, limits, shown, width, len(failed)), width=width)
            console.out()
            views[0] = view(read(views[0].source, tables=NEEDED), space, shown)
        console.rich_out(*draw(views[0], space, limits, limit, width, wide=wide), width=width)
    for name, said in failed:
        console.complain(said if name in said else f"{name}: {said}", console.UNREADABLE)
    if failed or (strict and not all(v.module["complete"] for v in views)):
        return console.UNREADABLE
    over = limits is not None and any(v.reserved > limits.bytes for v in views)
    return console.CHECK_FAILED if over else console.FINE


def _capacity(text: str | None, name: str | None) -> Capacity | None:
    if text is not None and name is not None:
        raise UsageError("--capacity or --device, not both")
    if name is not None:
        found = device(name)
        return Capacity(found.usable, found.name, found)
    return None if text is None else Capacity(parse_bytes(text), "capacity")


def view(
    dump: Dump, space: str | None = None, limit: int | None = None, *, brief: bool = False, missing: bool = False
) -> View:
    """The numbers of one dump; with `brief` only those of the summary; with `missing` it may lack the space."""
    import pyarrow.compute as pc

    found = compute.peak(dump)
    every = found.spaces.to_pylist()
    spaces = only(every, space, missing=missing)
    spaces.sort(key=lambda s: (s["memory_space"] not in MAIN, -(s["peak"] or 0), -s["reserved"]))
    must_fit = sum(s["reserved"] for s in every if s["memory_space"] in DEVICE_MEMORY)
    known = View(dump.source, dump.modules.to_pylist()[0], spaces, must_fit)
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


def _as_json(views: list[View], failed: list[tuple[str, str]], limits: Capacity | None) -> Row:
    compared: Row | None = None
    if limits is not None:
        compared = {"name": limits.label, "bytes": limits.bytes}
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
                "reserved_in_device_memory": v.reserved,
                "fits": None if limits is None else v.reserved <= limits.bytes,
                "spaces": [{**s, "in_device_memory": s["memory_space"] in DEVICE_MEMORY} for s in v.spaces],
            }
            for v in views
        ],
        "failed": [{"name": name, "error": said} for name, said in failed],
    }


# -- several programs ------------------------------------------------------------------------------


def _summary(views: list[View], limits: Capacity | None, limit: int, width: int | None, n_failed: int) -> list[Text]:
    from rich.text import Text

    from .info import _names

    rows = [["reserved", "peak", "step", "space", "program"]]
    names = _names(views)  # type: ignore[arg-type]
    for v in views[:limit]:
        main = v.spaces[0] if v.spaces else None
        if main is None:
            rows.append(["-", "-", "-", "-", ""])
            continue
        step = "-" if main["first_step"] is None else f"{main['first_step']:,}"
        peak = "-" if main["peak"] is None else console.size(main["peak"])
        rows.append([console.size(main["reserved"]), peak, step, main["memory_space"], ""])
    lines = console.columns(rows, {3, 4})
    indent = max(len(line) for line in lines[:1]) - len("program")
    indent = lines[0].rindex("program")
    texts = [Text(lines[0], "bold")]
    for v, line, name in zip(views, lines[1:], names, strict=False):
        state = "" if v.module["complete"] else "  CUT"
        over = limits is not None and v.reserved > limits.bytes
        state += "  does not fit" if over else ""
        room = width and width - indent - len(state)
        text = Text.assemble(line.ljust(indent), console.tail(name, room), (state, "bold red"))
        if over:
            text.stylize("red")
        texts.append(text)
    more = len(views) - limit
    if more > 0:
        texts.append(Text(f"… and {counted(more, 'smaller program')}; --limit shows more of them", "dim"))
    said = [counted(len(views), "program")]
    if limits is not None:
        n = sum(v.reserved > limits.bytes for v in views)
        said.append(
            f"{n} {'does' if n == 1 else 'do'} not fit in {limits.label} ({console.size(limits.bytes)})"
            if n
            else f"each fits in {limits.label}"
        )
    said += [f"{cut} cut"] if (cut := sum(not v.module["complete"] for v in views)) else []
    said += [f"{n_failed} unreadable"] if n_failed else []
    texts.append(Text(", ".join(said) + "; the biggest:"))
    return texts
