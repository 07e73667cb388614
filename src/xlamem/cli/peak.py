"""`xlamem peak`: what must fit, how much is in use at the worst moment, and by what. The first screen."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .. import compute, schema
from ..devices import Device, device, parse_bytes
from ..dump import Dump, read
from ..errors import DumpError, UsageError
from ..source import Source, find
from . import console
from .console import counted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.text import Text

Row = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

LABEL = 10
"""Columns taken by the labels."""
SIZES = 11
"""Columns taken by a size."""
ROOMY = 140
"""From this width on a buffer takes one line."""
SMALL = 3
"""Buffers shown of a space that is not the first one."""
CHART, TALL = 60, 3
"""Columns and rows of the chart of the first space."""
TINY = 0.001
"""Spaces and buffers below this part of the largest space's, or their space's, peak are not shown one by one."""

NEEDED = [t for t in schema.TABLES if t not in ("printed_report", "uses", "positions", "printed_stack")]
"""Tables that the numbers come from."""

MAIN = ("hbm", "device", "memory", "color_0")
DEVICE_MEMORY = (*MAIN, "collective", "temp")
"""Spaces in the device's memory; a GPU has its colors 1 and 2 there too."""

CATEGORIES = {
    "parameter": "parameters",
    "donated": "donated",
    "live_out": "outputs",
    "constant": "constants",
    "temp": "temporaries",
}
COLORS = {"parameter": "blue", "donated": "cyan", "live_out": "green", "constant": "magenta", "temp": "yellow"}


MOVES = re.compile("copy|bitcast|reshape|transpose|get-tuple-element|async-|slice|tuple$")
"""Opcodes that pass bytes on."""
OPERAND = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*)\s*(?:[,#]|$)")


@dataclass(frozen=True)
class Capacity:
    """What a program is compared with."""

    bytes: int
    label: str
    device: Device | None = None


@dataclass
class View:
    """One dump as plain data."""

    source: Source
    module: Row
    spaces: list[Row]
    """Rows of `peaks`, the main space first, each with its `categories`, `plateaus` and `buffers`."""
    reserved: int = 0
    """Bytes that the device's own memory must hold, whatever spaces are shown."""
    series: dict[tuple[str, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    """Bytes in use at each step, by (space, page)."""

    @property
    def timed(self) -> bool:
        return any(s["peak"] is not None for s in self.spaces)

    def at(self, time: int) -> int | None:
        """Bytes in use of all spaces together at a step."""
        known = [int(s[time]) for s in self.series.values() if time < len(s)]
        return sum(known) if known else None

    @property
    def together(self) -> tuple[int, int] | None:
        """Most bytes of all spaces together and the first step of that; None where it is not known."""
        if not self.series:
            return None
        total = sum(self.series.values())
        at = int(total.argmax())  # type: ignore[union-attr]
        return int(total[at]), at  # type: ignore[index]


# -- what the verbs about one program share --------------------------------------------------------


def output_options(limit: int, what: str) -> Callable[[F], F]:
    """--space, --limit, --wide, --json, --csv."""

    def add(command: F) -> F:
        for option in (
            click.option("--csv", "as_csv", is_flag=True, help="Print CSV, all rows unless --limit is given."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON, all rows unless --limit is given."),
            click.option("--wide", is_flag=True, help="Shorten nothing."),
            click.option("--limit", "-n", type=click.IntRange(min=0), help=f"{what}  [default: {limit}]"),
            click.option("--space", metavar="NAME", help="Only this memory space: its name (hbm) or color (0)."),
        ):
            command = option(command)
        return command

    return add


def module_option(command: F) -> F:
    return click.option("--module", metavar="N|NAME", help="Which module, where PATH holds several; else the biggest.")(
        command
    )


def one(path: str, module: str | None, tables: Iterable[str] | None = None) -> Dump:
    """The dump at a path: the biggest where there are several and none is chosen."""
    found = find(path)
    if module is not None:
        if module.isdecimal() and len(matching := [s for s in found if s.module_id == int(module)]) == 1:
            return read(matching[0], tables=tables)
        return read(path, module=module, tables=tables)
    if len(found) == 1:
        return read(found[0], tables=tables)
    sizes = []
    for source in found:
        try:
            sizes.append((_allocated(read(source, tables=["allocations"])), source))
        except DumpError as error:
            console.complain(str(error), console.UNREADABLE)
    if not sizes:
        raise UsageError(f"nothing in {path} can be read")
    biggest = max(sizes, key=lambda s: s[0])[1]
    console.note(f"{counted(len(found), 'module')} in {path}; this is the biggest, {biggest.name}; --module chooses")
    return read(biggest, tables=tables)


def _allocated(dump: Dump) -> int:
    rows = dump.allocations
    found = zip(*(rows[c].to_pylist() for c in ("size", "memory_space", "is_thread_local")), strict=True)
    return sum(int(size) for size, space, local in found if space in DEVICE_MEMORY and not local)


def space_of(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() else text


def only(rows: list[Row], space: str | None, *, missing: bool = False) -> list[Row]:
    """Rows of one memory space; with `missing` it need not be there."""
    wanted = space_of(space)
    found = [r for r in rows if wanted is None or wanted in (r["memory_space"], r["color"])]
    if not found and space is not None and not missing:
        there = ", ".join(f"{r['memory_space']} (color {r['color']})" for r in rows) or "none"
        raise UsageError(f"no memory space {space!r}; this dump has {there}")
    return found


def title(dump_source: Source, module: Row, width: int | None) -> list[Text]:
    """Whose numbers these are."""
    from rich.text import Text

    said = [" ".join(filter(None, [module["platform"], module["target"]]))]
    if module["schedule_length"] is not None:
        said.append(counted(module["schedule_length"], "step"))
    what = ", ".join(filter(None, said))
    name = console.visible(module["module_name"] or dump_source.name)
    room = width and width - len(what) - 2
    number = f"module {module['module_id']:04d} " if module["module_id"] is not None else ""
    place = console.tail(console.visible(dump_source.place), width and width - len(number) - 3)
    lines = [
        Text.assemble((console.shortened(name, room), "bold"), f"  {what}" if what else ""),
        Text.assemble((f"{number}in {place}", "dim")),
    ]
    if not module["complete"]:
        why = "CUT: a file of this dump ends too early; the numbers are of what is there"
        lines += [Text(line, "bold red") for line in console.fill(why, 0, width)]
    return lines


def source_of(row: Row, room: int | None = None, *, wide: bool = False) -> str:
    """file:line; of the file only its name, with its folder where there is room."""
    file, line = row["source_file"], row["source_line"]
    if not file:
        return ""
    end = f":{line}" if line else ""
    text = console.visible(f"{file}{end}")
    if wide or room is None or len(text) <= room:
        return text
    folder = "…/" + "/".join(text.split("/")[-2:])
    return folder if len(folder) <= room else console.shortened(text.rsplit("/", 1)[-1], room)


def plain_shape(shape: str | None) -> str:
    """A shape without its layout."""
    if not shape:
        return ""
    out, depth = [], 0
    for c in shape:
        depth += c == "{"
        if not depth:
            out.append(c)
        depth -= c == "}"
    return "".join(out)


def value_of(row: Row) -> str:
    """The value's name, as XLA prints it."""
    index = row["shape_index"]
    return f"{row['instruction'] or '?'}{index if index and index != '{}' else ''}"


def scope_of(row: Row) -> str:
    return console.visible(row["op_name"] or row.get("origin") or "").replace("\n", "\\n")


def padding_of(row: Row) -> int:
    """Bytes of padding in a row of `live_set`; those of a reserved row are of the allocation's value."""
    if row["unpadded_size"] is None or row["role"] != "value":
        return 0
    size, plain = int(row["size"]), int(row["unpadded_size"])
    return max(0, size - plain)


# -- the verb --------------------------------------------------------------------------------------


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
        console.rich_out(*_screen(views[0], space, limits, limit, width, wide=wide), width=width)
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


def trace(dump: Dump, rows: list[Row]) -> None:
    """Give each row without op_name the key `origin`: what its instruction moves, or whose place it takes."""
    import pyarrow.compute as pc

    todo = [row for row in rows if not row["op_name"] and row["instruction"]]
    if not todo:
        return
    table = dump.instructions
    places = {name: i for i, name in reversed(list(enumerate(table["instruction"].to_pylist())))}
    for row in todo:
        at, name = places.get(row["instruction"]), None
        moved = None
        for _ in range(6):
            if at is None or name or not MOVES.match(table["opcode"][at].as_py()):
                break
            operand = OPERAND.search(table["operands"][at].as_py())
            if operand is None:
                break
            moved = operand[1]
            # Of an asynchronous pair only the start defines a value.
            at = places.get(moved, places.get(moved.replace("-done", "-start")))
            name = None if at is None else table["op_name"][at].as_py()
        if not name and row["category"] in ("parameter", "donated"):
            inside = dump.values.filter(pc.equal(dump.values["allocation"], row["allocation"]))[
                "instruction"
            ].to_pylist()
            found = [places[i] for i in inside if i in places and i != row["instruction"]]
            named = [table["op_name"][i].as_py() for i in found if table["opcode"][i].as_py() == "parameter"]
            if named and named[0]:
                row["origin"] = f"in the place of {named[0]}"
                continue
        if moved:
            row["origin"] = f"{row['instruction']} of {name or moved}"


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


# -- one program -----------------------------------------------------------------------------------


def _screen(
    v: View, space: str | None, limits: Capacity | None, limit: int | None, width: int | None, *, wide: bool
) -> list[Text]:
    from rich.text import Text

    texts = title(v.source, v.module, width)
    if not v.timed:
        why = "no live ranges in this dump: what is in use when is not known, only what is reserved"
        why = why if v.spaces else "no allocations in this dump: nothing can be said about memory"
        texts += [Text(line, "yellow") for line in console.fill(why, 0, width)]
    used = [s for s in v.spaces if s["peak"] or (s["peak"] is None and s["reserved"])]
    least = TINY * max((s["peak"] or 0 for s in v.spaces), default=0)
    shown = [s for i, s in enumerate(used) if i == 0 or s["peak"] is None or s["peak"] >= least or wide]
    for i, s in enumerate(shown):
        texts.append(Text())
        main = i == 0
        n = limit if limit is not None else 10 if main else SMALL
        texts += _space(v, s, limits, n, width, main=main, wide=wide)
    said = [f"{_label(s)}: peak {console.size(s['peak'])} {_when(v, s)}" for s in used if s not in shown]
    rest = [s for s in v.spaces if s not in used]
    named = [f"{_label(s)} ({console.size(s['reserved'])} reserved)" if s["reserved"] else _label(s) for s in rest]
    said += [f"nothing in use: {', '.join(named)}"] if rest else []
    if said:
        texts.append(Text())
    for sentence in said:
        texts += [Text(line, "dim") for line in console.fill(sentence, 0, width)]
    texts += _printed(v, space, width)
    return texts


def _label(s: Row) -> str:
    page = f" page {s['page']}" if s["page"] else ""
    return f"{s['memory_space']}{page}"


def _facts(label: str, *parts: Any) -> Text:
    from rich.text import Text

    return Text.assemble("  ", (label.ljust(LABEL), "dim"), *parts)


def _space(
    v: View, s: Row, limits: Capacity | None, n: int, width: int | None, *, main: bool, wide: bool
) -> list[Text]:
    from rich.text import Text

    texts = [Text(_label(s), "bold")]
    fits = _fit(v, s, limits, width)
    room = width or 100
    amounts = console.columns([[console.size(b), f"({b:,} bytes)"] for b in (s["reserved"], s["peak"] or 0)], {1})
    why = "what the device must hold" if main else ""
    texts.append(_facts("reserved", (amounts[0], "bold"), f"  {why}" if why else ""))
    if s["peak"] is not None:
        texts.append(_facts("peak", (amounts[1], "bold"), f"  {_when(v, s)}"))
    texts += fits
    total = s["peak"] if s["peak"] is not None else sum(s["categories"].values())
    if s["peak"]:
        texts += _chart(v, s, limits if main else None, room - LABEL - 2, TALL if main else 1)
    parts = [(c, b) for c, b in sorted(s["categories"].items(), key=lambda p: -p[1]) if b]
    if main:
        names = max((len(CATEGORIES[c]) for c, _ in parts), default=0)
        length = max(10, min(40, room - LABEL - 2 - names - SIZES - 15))
        for i, (c, b) in enumerate(parts):
            share = console.percent(b, total).rjust(9)
            drawn = (console.bar(b, total, length), COLORS[c])
            label = "made of" if i == 0 else ""
            texts.append(
                _facts(label, CATEGORIES[c].ljust(names), console.size(b).rjust(SIZES + 1), share, "  ", drawn)
            )
    else:
        said = ", ".join(f"{CATEGORIES[c]} {console.size(b)}" for c, b in parts)
        texts.append(_facts("made of", said))
    texts += _buffers(s, n, width, wide=wide)
    return texts


def _when(v: View, s: Row) -> str:
    first, last = s["first_step"], s["last_step"]
    steps = f"at step {first:,}" if first == last else f"at steps {first:,}-{last:,}"
    times = f", {s['plateaus']:,}×" if s["plateaus"] > 1 else ""
    return f"{steps} of {v.module['schedule_length']:,}{times}"


def _fit(v: View, s: Row, limits: Capacity | None, width: int | None) -> list[Text]:
    """The line that says whether it fits."""
    if limits is None or s["memory_space"] not in MAIN:
        return []
    spare = limits.bytes - v.reserved
    size = console.size(limits.bytes)
    share = console.percent(v.reserved, limits.bytes)
    also = [x["memory_space"] for x in v.spaces if x["memory_space"] in DEVICE_MEMORY and x is not s and x["reserved"]]
    others = ", ".join(also) or "the other spaces"
    with_them = f" ({console.size(v.reserved)} with {others})" if v.reserved != s["reserved"] else ""
    if spare < 0:
        said = (f"{size}: DOES NOT FIT, {console.size(-spare)} too much{with_them}", "bold red")
    else:
        said = (f"{size}: fits, {console.size(spare)} to spare, {share} reserved{with_them}", "green")
    texts = [_facts(limits.label[:LABEL], said)]
    d = limits.device
    if d is not None:
        more = f"{size} by {d.reporter}" if d.reported is not None else "less is usable"
        where = f"{d.stated} by the {d.source}; {more}".replace(size, size.replace(" ", "\N{NO-BREAK SPACE}"))
        for text in console.fill(where, LABEL + 2, width):
            texts.append(_facts("", (text.replace("\N{NO-BREAK SPACE}", " "), "dim")))
    return texts


def _chart(v: View, s: Row, limits: Capacity | None, room: int, rows: int) -> list[Text]:
    """The bytes in use over the schedule, the peak marked below, the capacity where it is near.

    The chart stands on 0, or on what is in use at every step where that is most of it; both ends are labelled.
    """
    from numpy import arange
    from rich.text import Text

    heights, per = console.timeline(
        v.series[s["memory_space"], s["page"]], min(CHART if room < 100 else 100, room - SIZES)
    )
    top = s["peak"]
    line = limits.bytes if limits is not None and s["memory_space"] in MAIN and limits.bytes <= 2 * top else None
    always = sum(b for c, b in s["categories"].items() if c != "temp")
    floor = always if line is None and 2 * always > top > always else 0
    scale = max(top, line or 0) - floor
    at = min(int(s["first_step"] / per), len(heights) - 1)
    limit_row = None if line is None else min(rows - 1, int(line / scale * rows))
    over = (heights > line if line is not None else heights < 0) | (arange(len(heights)) == at)
    rule = "┄" if console.blocks()[1] == "▁" else "-"
    texts = []
    for i, cells in enumerate(console.spark(heights - floor, scale, rows)):
        crossed = limit_row == rows - 1 - i
        marked = [
            (rule, "red") if crossed and c == " " else (c, "bold red" if over[k] else "cyan")
            for k, c in enumerate(cells)
        ]
        drawn = Text.assemble(*(("".join(c for c, _ in run), style) for style, run in groupby(marked, lambda m: m[1])))
        ends = [console.size(floor + scale), console.size(floor)]
        if ends[0] == ends[1]:
            ends[0] = f"+ {console.size(scale)}"
        label = ends[0] if i == 0 else ends[1] if i == rows - 1 else ""
        if line is not None and crossed:
            label = console.size(line)
        texts.append(_facts("in use" if i == 0 else "", drawn, (f" {label}", "dim")))
    step = f"step {s['first_step']:,}"
    mark = "▲" if console.blocks()[1] == "▁" else "^"
    below = f"{' ' * at}{mark} {step}" if at + len(step) + 2 <= len(heights) else f"{step} {mark}".rjust(at + 1)
    if floor and rows == 1:
        below = f"{below.ljust(len(heights))} from {console.size(floor)}"
    texts.append(_facts("", (below, "dim")))
    return texts


def _buffers(s: Row, n: int, width: int | None, *, wide: bool) -> list[Text]:
    from rich.text import Text

    least = 0 if wide or s["peak"] is None else TINY * s["peak"]
    rows = [b for i, b in enumerate(s["buffers"][:n]) if b["bytes"] and (i < SMALL or b["bytes"] >= least)]
    if not rows:
        return []
    when = f"at step {s['first_step']:,}" if s["peak"] is not None else "at whatever time (not all at once)"
    texts = [_facts("largest", (f"buffers {when}", "dim"))]
    texts += one_line(rows, width, wide=wide) if (width or ROOMY) >= ROOMY or wide else two_lines(rows, width or 80)
    if s["peak"] is not None and (more := s["n_buffers"] - len(rows)) > 0:
        left = s["peak"] - sum(b["bytes"] for b in rows)
        texts.append(
            Text(
                f"  {console.size(left).rjust(SIZES)}  in {counted(more, 'more', 'more')}: xlamem live, xlamem top",
                "dim",
            )
        )
    return texts


def _note(b: Row) -> str:
    """What a buffer is, besides its shape and name."""
    padding = padding_of(b)
    kind: str = b["category"]
    said = ["output" if kind == "live_out" else kind]
    if b["role"] == "reserved":
        said.append("held, not live now")
    elif b.get("shared") and b["bytes"] < b["size"]:
        said.append(f"shares {console.size(b['size'] - b['bytes'])}")
    if padding:
        said.append(f"{console.size(padding)} padding")
    return ", ".join(said)


def two_lines(rows: list[Row], width: int) -> list[Text]:
    """Bytes, scope and source line; below them shape, value and what it is."""
    from rich.text import Text

    texts = []
    indent = 2 + SIZES + 2
    for b in rows:
        room = width - indent
        source = source_of(b, min(30, room // 2))
        scope, value = scope_of(b), value_of(b)
        if not scope:
            scope, value = value, ""
        space = room - len(source) - 2 if source else room
        head = console.tail(scope, space)
        gap = " " * max(2, room - len(head) - len(source)) if source else ""
        texts.append(
            Text.assemble("  ", (console.size(b["bytes"]).rjust(SIZES), "bold"), "  ", head, gap, (source, "green"))
        )
        note = _note(b)
        shape = console.shortened(plain_shape(b["shape"]), max(12, room - len(note) - 22))
        value = console.shortened(value, max(9, room - len(shape) - len(note) - 4))
        parts = console.GAP.join(filter(None, [shape, value, ""]))
        texts.append(
            Text.assemble(" " * indent, (f"{parts}  ", "dim"), (note, "yellow" if "padding" in note else "dim"))
        )
    return texts


def one_line(rows: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """The same in columns."""
    from rich.text import Text

    cells = []
    for b in rows:
        shape, value = plain_shape(b["shape"]) if not wide else b["shape"] or "", value_of(b)
        if width is not None:
            shape, value = console.shortened(shape, 24), console.shortened(value, 24)
        source = source_of(b, None if width is None else 28, wide=wide)
        padding = padding_of(b)
        kind = _note(b).partition(",")[0] + (", held" if b["role"] == "reserved" else "")
        cells.append(
            [
                console.size(b["bytes"]),
                console.size(padding) if padding else "",
                scope_of(b),
                source,
                shape,
                value,
                kind,
            ]
        )
    heads = ["bytes", "padding" if any(c[1] for c in cells) else "", "scope", "source", "shape", "value", "what"]
    sizes = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    if width is not None:
        fixed = sum(sizes) - sizes[2] + 2 * sum(1 for s in sizes if s) + 2
        sizes[2] = min(sizes[2], max(20, width - fixed))
    texts = []
    for row in [heads, *cells]:
        styles = ["dim"] * 7 if row is heads else ["bold", "yellow", "", "green", "dim", "dim", "dim"]
        row[2] = console.tail(row[2], sizes[2])
        parts: list[tuple[str, str]] = []
        for i, (text, size) in enumerate(zip(row, sizes, strict=True)):
            if size:
                parts.append(("  ", ""))
                parts.append((text.rjust(size) if i < 2 else text.ljust(size), styles[i]))
        line = Text.assemble(*parts)
        line.rstrip()
        texts.append(line)
    return texts


def _printed(v: View, space: str | None, width: int | None) -> list[Text]:
    """A word about XLA's own peak where it is another one."""
    from rich.text import Text

    ours, printed = v.together, v.module["printed_peak_bytes"]
    if printed is None or ours is None or space is not None:
        return []
    if printed == ours[0] and v.at(v.module["printed_peak_time"]) == ours[0]:
        return []
    sizes = [console.size(n) for n in (printed, ours[0])]
    if sizes[0] == sizes[1]:
        sizes = [f"{n:,} bytes" for n in (printed, ours[0])]
    at = [f"at step {n:,}" for n in (v.module["printed_peak_time"], ours[1])]
    at = at if at[0] != at[1] else ["", at[0]]
    said = (
        f"XLA's own dump prints {' '.join(filter(None, (sizes[0], at[0])))} as the peak of all memory spaces together, "
        f"not {sizes[1]} {at[1]}: xlamem explain says why."
    )
    return [Text(), *(Text(line) for line in console.fill(said, 0, width))]
