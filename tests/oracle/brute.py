"""The numbers of docs/numbers.md, computed the slow and obvious way from the rows of the tables.

An allocation is cut at every offset at which one of its values begins or ends. A set of the pieces
between is an int with one bit for each, so a union is `|`; its bytes are the widths of its pieces.
Time is walked step by step. Nothing of the package is used.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from oracle import COLUMNS

Row = dict[str, Any]
Tables = Mapping[str, list[Row]]

TABLES = ("allocations", "values", "live_ranges", "instructions", "modules")
"""What the reference reads."""

WHOLE = ("parameter", "donated", "constant", "live_out")
"""Categories of allocations that are occupied whole, at every step."""


def category(allocation: Row) -> str:
    """The first that holds."""
    if allocation["is_thread_local"]:
        return "thread_local"
    if allocation["is_constant"]:
        return "constant"
    if allocation["is_parameter"]:
        return "donated" if allocation["is_live_out"] else "parameter"
    return "live_out" if allocation["is_live_out"] else "temp"


class Arena:
    """One allocation and its values, cut into pieces."""

    def __init__(self, row: Row, values: list[Row], ranges: Mapping[int, list[tuple[int, int]]]):
        self.row = row
        self.number: int = row["allocation"]
        self.size: int = row["size"]
        self.category = category(row)
        self.values = sorted(values, key=lambda v: v["value_id"])
        self.ranges = ranges
        ends = {0, self.size} | {v["offset"] for v in values} | {v["offset"] + v["size"] for v in values}
        self.cuts = sorted(ends)
        self.mask = {v["value_id"]: self._mask(v["offset"], v["offset"] + v["size"]) for v in values}

    def _mask(self, begin: int, end: int) -> int:
        """The pieces between two cuts."""
        return (1 << self.cuts.index(end)) - (1 << self.cuts.index(begin))

    def bytes(self, pieces: int) -> int:
        return sum(end - begin for begin, end in self.runs(pieces))

    def runs(self, pieces: int) -> Iterator[tuple[int, int]]:
        """(begin, end) in bytes of each longest run of pieces, first to last."""
        i = 0
        while rest := pieces >> i:
            begin = i + _zeros(rest)
            i = begin + _zeros(~(pieces >> begin))
            yield self.cuts[begin], self.cuts[i]

    def holds(self, value: Row, time: int, interval: str = "closed") -> bool:
        """Whether a value is live at a step. A temp value that has no live range always is."""
        ranges = self.ranges.get(value["value_id"], [])
        if not ranges:
            return self.category == "temp"
        if interval == "closed":
            return any(start <= time <= end for start, end in ranges)
        return any(start <= time < max(end, start + 1) for start, end in ranges)

    def category_of(self, value: Row, last: int | None) -> str:
        """That of the allocation, but `temp_in_output` for what only borrows an output's bytes; `last`: time's end."""
        ranges = self.ranges.get(value["value_id"], [])
        if self.category not in ("live_out", "donated") or not ranges or last is None:
            return self.category
        is_output = any(end >= last for _, end in ranges)
        is_parameter = self.category == "donated" and any(start == 0 for start, _ in ranges)
        return self.category if is_output or is_parameter else "temp_in_output"

    def live(self, time: int, interval: str = "closed") -> list[Row]:
        return [v for v in self.values if self.holds(v, time, interval)]

    def covered(self, values: Iterable[Row]) -> int:
        pieces = 0
        for value in values:
            pieces |= self.mask[value["value_id"]]
        return pieces

    def exclusive(self, values: Iterable[Row]) -> dict[int, int]:
        """value_id -> the pieces that none of the other values covers."""
        once = twice = 0
        values = list(values)
        for value in values:
            twice |= once & self.mask[value["value_id"]]
            once |= self.mask[value["value_id"]]
        return {v["value_id"]: self.mask[v["value_id"]] & ~twice for v in values}


def _zeros(bits: int) -> int:
    """How many bits are 0 before the lowest 1."""
    return (bits & -bits).bit_length() - 1


@dataclass
class Space:
    """The allocations of one (color, page)."""

    memory_space: str
    color: int
    page: int
    arenas: list[Arena] = field(default_factory=list)

    @property
    def key(self) -> Row:
        return {"memory_space": self.memory_space, "color": self.color, "page": self.page}

    def of(self, *categories: str) -> list[Arena]:
        return [a for a in self.arenas if a.category in categories]

    @property
    def held(self) -> list[Arena]:
        """All but the thread-local ones."""
        return self.of(*WHOLE, "temp")


class Brute:
    """The reference for one dump."""

    def __init__(self, tables: Tables):
        self.tables = tables
        length = tables["modules"][0]["schedule_length"]
        # A list cut before its first range says no more about time than none at all.
        self.times = range(length + 1) if length is not None and tables["live_ranges"] else None
        self.last = length if self.times else None
        ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for r in tables["live_ranges"]:
            if r["value_id"] is not None:
                ranges[r["value_id"]].append((r["start"], r["end"]))
        self.ranges = dict(ranges)
        self.instructions = {i["instruction"]: i for i in reversed(tables["instructions"])}
        values = defaultdict(list)
        for v in tables["values"]:
            values[v["allocation"]].append(v)
        found: dict[tuple[int, int], Space] = {}
        for a in tables["allocations"]:
            key = (a["color"], a["page"] or 0)
            space = found.setdefault(key, Space(a["memory_space"], *key))
            space.arenas.append(Arena(a, values[a["allocation"]], self.ranges))
        self.spaces = [found[key] for key in sorted(found)]

    # -- over time -------------------------------------------------------------------------------

    def _curve(self, space: Space, interval: str) -> Iterator[Row]:
        whole = {name: sum(a.size for a in space.of(name)) for name in WHOLE}
        for time in self.times or ():
            temp = live = 0
            for arena in space.held:
                covered = arena.bytes(arena.covered(arena.live(time, interval)))
                live += covered
                temp += covered if arena.category == "temp" else 0
            occupied = {"occupied": sum(whole.values()) + temp}
            yield {**space.key, "time": time, **occupied, **whole, "temp": temp, "live": live}

    @cached_property
    def _closed(self) -> list[list[Row]]:
        return [list(self._curve(space, "closed")) for space in self.spaces]

    @cached_property
    def _half_open(self) -> list[list[Row]]:
        return [list(self._curve(space, "half-open")) for space in self.spaces]

    def occupancy(self, interval: str = "closed") -> list[Row]:
        return [row for rows in (self._closed if interval == "closed" else self._half_open) for row in rows]

    @cached_property
    def peaks(self) -> list[Row]:
        curves = zip(self.spaces, self._closed, self._half_open, strict=True)
        return [self._peak(space, rows, half_open) for space, rows, half_open in curves]

    def _peak(self, space: Space, rows: list[Row], half_open: list[Row]) -> Row:
        row = {
            **space.key,
            "allocated": sum(a.size for a in space.arenas),
            "reserved": sum(a.size for a in space.held),
        }
        row |= dict.fromkeys(("peak", "first_step", "last_step", "plateaus", "live_peak", "live_step"))
        row |= dict.fromkeys(("half_open_peak", "slack"))
        if self.times is None:
            return row
        row["peak"] = max(r["occupied"] for r in rows)
        top = [p for p in self._runs(rows) if p["bytes"] == row["peak"]]
        row["plateaus"] = len(top) if row["peak"] else 0
        if row["peak"]:
            row["first_step"], row["last_step"] = top[0]["first_step"], top[0]["last_step"]
        row["live_peak"] = max(r["live"] for r in rows)
        if row["live_peak"]:
            row["live_step"] = next(r["time"] for r in rows if r["live"] == row["live_peak"])
        row["half_open_peak"] = max(r["occupied"] for r in half_open)
        row["slack"] = sum(a.size for a in space.of("temp")) - max(r["temp"] for r in rows)
        return row

    @staticmethod
    def _runs(rows: list[Row]) -> list[Row]:
        """Longest runs of equal occupied bytes."""
        runs = []
        for size, group in groupby(rows, key=lambda r: r["occupied"]):
            times = [r["time"] for r in group]
            runs.append({"first_step": times[0], "last_step": times[-1], "bytes": size})
        return runs

    def plateaus(self, k: int = 5) -> list[Row]:
        found = []
        for space, rows in zip(self.spaces, self._closed, strict=True):
            if not any(r["occupied"] for r in rows):
                continue
            runs = self._runs(rows)
            lower = {"bytes": -1}
            around = zip([lower, *runs], runs, [*runs[1:], lower], strict=False)
            tops = [run for before, run, after in around if before["bytes"] < run["bytes"] > after["bytes"]]
            tops.sort(key=lambda run: (-run["bytes"], run["first_step"]))
            found += [{**space.key, "rank": rank, **run} for rank, run in enumerate(tops[:k])]
        return found

    # -- at an instant ---------------------------------------------------------------------------

    def at(self, time: int | None) -> list[tuple[Space, int]]:
        """Each space with the step asked for, or with the first step of its own peak."""
        if self.times is None:
            return []
        steps = [(s, p["first_step"] if time is None else time) for s, p in zip(self.spaces, self.peaks, strict=True)]
        return [(space, step) for space, step in steps if step is not None]

    def live_set(self, time: int | None = None) -> list[Row]:
        found = []
        for space, step in self.at(time):
            for arena in space.held:
                base = {**space.key, "allocation": arena.number, "category": arena.category}
                live = arena.live(step)
                exclusive = arena.exclusive(live)
                charged = 0
                for value in live:  # by value_id: what is covered already was charged to a lower one
                    mask, alone = arena.mask[value["value_id"]], arena.bytes(exclusive[value["value_id"]])
                    row = base | {"role": "value", "bytes": arena.bytes(mask & ~charged)}
                    row |= {"category": arena.category_of(value, self.last)}
                    row |= {"exclusive": alone, "shared": value["size"] - alone}
                    same = ("value_id", "instruction", "shape_index", "offset", "size")
                    found.append(row | {c: value[c] for c in (*same, "shape", "element_type", "unpadded_size")})
                    charged |= mask
                rest = arena.size - arena.bytes(charged)
                if arena.category != "temp" and rest:
                    row = base | {"role": "reserved", "bytes": rest, "exclusive": rest, "shared": 0}
                    row |= dict.fromkeys(("value_id", "instruction", "shape_index", "offset"))
                    row |= {"size": arena.size} | dict.fromkeys(("shape", "element_type", "unpadded_size"))
                    names = ("instruction", "shape_index", "shape", "element_type", "unpadded_size")
                    row |= {c: v[c] for v in self.representative(arena) for c in names}
                    found.append(row)
        return found

    def padding(self) -> list[Row]:
        """One row per value that is not thread-local: each byte of padding is in one row."""
        steps = {id(space): step for space, step in self.at(None)}
        found = []
        for space in self.spaces:
            for arena in space.held:
                step = steps.get(id(space))
                live = arena.live(step) if step is not None else []
                padding = self._padding(arena, live)
                for v in arena.values:
                    row = {**space.key, "value_id": v["value_id"], "allocation": arena.number}
                    row |= {"category": arena.category_of(v, self.last), "size": v["size"]}
                    row |= {"unpadded_size": v["unpadded_size"], "at_peak": arena.category != "temp" or v in live}
                    row |= {"padding": None if v["unpadded_size"] is None else padding.get(v["value_id"], 0)}
                    found.append(row)
        return found

    def _padding(self, arena: Arena, live: list[Row]) -> dict[int, int]:
        """value_id -> its share of the padding of an allocation."""

        def waste(value: Row) -> int:
            known = value["unpadded_size"]
            return 0 if known is None else max(0, value["size"] - known)

        found, charged = {}, 0
        for value in live:  # by value_id
            mask = arena.mask[value["value_id"]]
            found[value["value_id"]] = min(waste(value), arena.bytes(mask & ~charged))
            charged |= mask
        if arena.category != "temp":
            if self.times is None or any(arena in space.held for space, _ in self.at(None)):
                for value in self.representative(arena):
                    found.setdefault(value["value_id"], min(waste(value), arena.size - arena.bytes(charged)))
            return found
        done = {(v["offset"], v["size"]) for v in live}
        for value in sorted(arena.values, key=lambda v: (v["unpadded_size"] is None, v["value_id"])):
            slot = (value["offset"], value["size"])
            if slot not in done:
                done.add(slot)
                found[value["value_id"]] = waste(value)
        return found

    def space_padding(self) -> list[Row]:
        """Bytes in use at the peak of each space, how many of them are padding, and of how many that is not known."""
        found = []
        for space, step in self.at(None):
            row = {**space.key, "peak": 0, "padding": 0, "unknown": 0}
            for arena in space.held:
                live = arena.live(step)
                row["padding"] += sum(self._padding(arena, live)[v["value_id"]] for v in live)
                charged = 0
                for value in live:
                    mask = arena.mask[value["value_id"]]
                    row["peak"] += arena.bytes(mask & ~charged)
                    row["unknown"] += arena.bytes(mask & ~charged) if value["unpadded_size"] is None else 0
                    charged |= mask
                rest = arena.size - arena.bytes(charged)
                if arena.category == "temp" or not rest:
                    continue
                row["peak"] += rest
                stands = self.representative(arena)
                row["unknown"] += rest if not stands or stands[0]["unpadded_size"] is None else 0
                if stands and stands[0] not in live:
                    row["padding"] += self._padding(arena, live)[stands[0]["value_id"]]
            if row["peak"]:
                found.append(row)
        return found

    def representative(self, arena: Arena) -> list[Row]:
        """The value that a whole allocation is charged to: its parameter or output, else the largest; or none.

        Without instructions, a value that is live at step 0 is the parameter.
        """

        def is_parameter(value: Row) -> bool:
            if not arena.row["is_parameter"] or value["is_phi"]:
                return False
            if (value["shape_index"] or "{}") != arena.row["parameter_shape_index"]:
                return False
            if not self.instructions:
                return min((start for start, _ in self.ranges.get(value["value_id"], [])), default=-1) == 0
            made = self.instructions.get(value["instruction"], {"opcode": None, "operands": None})
            return (made["opcode"], made["operands"]) == ("parameter", str(arena.row["parameter_number"]))

        def is_output(value: Row) -> bool:
            category = arena.category_of(value, self.last)
            return category == "live_out" and value["value_id"] in arena.ranges

        return sorted(arena.values, key=lambda v: (is_parameter(v), is_output(v), v["size"]))[-1:]

    @cached_property
    def _most(self) -> dict[int, int]:
        """Temp allocation -> most bytes that its live values cover at any step."""
        temps = [arena for space in self.spaces for arena in space.of("temp")]
        return {a.number: max(a.bytes(a.covered(a.live(t))) for t in self.times or ()) for a in temps}

    def fragmentation(self, time: int | None = None) -> list[Row]:
        steps = {id(space): step for space, step in self.at(time)}
        found = []
        for space in self.spaces:
            for arena in space.of("temp"):
                total = sum(v["size"] for v in arena.values)
                unassigned = arena.size - arena.bytes(arena.covered(arena.values))
                row = {**space.key, "allocation": arena.number, "size": arena.size, "unassigned": unassigned}
                row |= {"value_bytes": total, "reuse": total / arena.size if arena.size else None}
                row |= dict.fromkeys(("peak", "fragmentation", "n_holes", "hole_bytes", "largest_hole"))
                if self.times is not None:
                    row["peak"] = self._most[arena.number]
                    row["fragmentation"] = arena.size - unassigned - row["peak"]
                if id(space) in steps:
                    everything = (1 << (len(arena.cuts) - 1)) - 1
                    free = everything & ~arena.covered(arena.live(steps[id(space)]))
                    holes = [end - begin for begin, end in arena.runs(free)]
                    row |= {"n_holes": len(holes), "hole_bytes": sum(holes), "largest_hole": max(holes, default=0)}
                found.append(row)
        return found

    # -- what if ---------------------------------------------------------------------------------

    def savings(self) -> list[Row]:
        """Rows with saving > 0, in no order; none without live ranges."""
        if self.times is None:
            return []
        found = []
        for space, rows in zip(self.spaces, self._closed, strict=True):
            peak = max(r["occupied"] for r in rows)
            for arena in space.held:
                base = {**space.key, "allocation": arena.number}
                if arena.category != "temp":
                    row = base | {"role": "allocation", "value_id": None, "size": arena.size, "saving": arena.size}
                    found.append(row)
                    continue
                without = {v["value_id"]: [r["occupied"] for r in rows] for v in arena.values}
                for time in self.times or ():
                    for value_id, pieces in arena.exclusive(arena.live(time)).items():
                        without[value_id][time] -= arena.bytes(pieces)
                for value in arena.values:
                    saving = peak - max(without[value["value_id"]])
                    row = base | {"role": "value", "value_id": value["value_id"], "size": value["size"]}
                    found.append(row | {"saving": saving})
        return [row for row in found if row["saving"] > 0]

    def savings_of_chains(self) -> dict[int, tuple[int, int]]:
        """value_id -> how much lower the peak is without the temporary and what is updated in its place, and where."""
        saved: dict[int, tuple[int, int]] = {}
        for space, rows in zip(self.spaces, self._closed, strict=True):
            peak = max(r["occupied"] for r in rows)
            for arena in space.of("temp"):
                for chain in self._chains(arena):
                    without = [r["occupied"] for r in rows]
                    for time in self.times or ():
                        live = arena.live(time)
                        others = [v for v in live if v["value_id"] not in chain]
                        without[time] -= arena.bytes(arena.covered(live) & ~arena.covered(others))
                    saved |= dict.fromkeys(chain, (peak - max(without), without.index(max(without))))
        return saved

    def _chains(self, arena: Arena) -> list[set[int]]:
        """The values of each slot, joined as long as the next one begins before those before it end."""
        chains: list[set[int]] = []
        ends: dict[tuple[Any, ...], tuple[int, set[int]]] = {}
        for v in sorted(arena.values, key=lambda v: min(arena.ranges.get(v["value_id"], [(-1, 0)]))):
            ranges = arena.ranges.get(v["value_id"], [(-1, 1 << 62)])
            start, end = min(s for s, _ in ranges), max(e for _, e in ranges)
            slot = v["offset"], v["size"], v["unpadded_size"], v["element_type"]
            last, chain = ends.get(slot, (-1, set()))
            if start > last:
                chains.append(chain := set())
            chain.add(v["value_id"])
            ends[slot] = max(end, last), chain
        return chains


# ---------------------------------------------------------------- hostile dumps

COLORS = (0, 0, 0, 1, 5)
PAGES = (None, None, 0, 2)
KINDS = {
    "temp": ("is_temp",),
    "parameter": ("is_parameter",),
    "donated": ("is_parameter", "is_live_out"),
    "constant": ("is_constant",),
    "constant output": ("is_constant", "is_live_out"),
    "output": ("is_live_out",),
    "thread": ("is_thread_local",),
    "thread parameter": ("is_thread_local", "is_parameter"),
}
WEIGHTS = (12, 2, 2, 1, 1, 2, 1, 1)
FLAGS = ("is_parameter", "is_entry_root", "is_constant", "is_thread_local", "is_live_out", "is_temp")
FEATURES = "from_instruction,from_instruction_blank,human_total,live_inline,peak_c,values_inline"
SCOPES = (None, "jit(f)/layers_0/attn/dot", "jit(f)/layers_1/attn/dot", "jit(f)/layers_1/mlp/add", "jit(f)/layers_12/x")


def hostile(
    seed: int, *, arenas: int = 8, values: int = 6, steps: int = 12, size: int = 24, beyond: int = 0
) -> dict[str, list[Row]]:
    """Tables of a small dump that no compiler would write; `render` makes the text of it.

    Several temp arenas in one space, spaces that differ in the page alone, values that share some of
    their bytes, values of no bytes, values without a live range, ranges that end up to so many steps
    `beyond` the schedule.
    """
    rng = random.Random(seed)
    unit = rng.choice((1, 1, 8, 4096, 1 << 33))
    length = rng.randint(0, steps)
    pages = rng.random() < 0.5
    tables: dict[str, list[Row]] = {name: [] for name in (*TABLES, "cross_color", "positions", "uses", "schedule")}
    tables |= {name: [] for name in ("printed_peak", "printed_stack", "printed_report", "frames", "aliases", "flags")}
    for number in range(rng.randint(min(1, arenas), arenas)):
        kind = rng.choices(list(KINDS), WEIGHTS)[0]
        color, page = rng.choice(COLORS), rng.choice(PAGES) if pages else None
        row = dict.fromkeys(COLUMNS["allocations"].split())
        del row["memory_space"]  # follows from the platform
        row |= dict.fromkeys(FLAGS, False) | dict.fromkeys(KINDS[kind], True)
        row |= {"allocation": number, "size": rng.randint(0, size) * unit, "color": color, "page": page}
        if row["is_parameter"]:
            row |= {"parameter_number": number, "parameter_shape": f"u8[{row['size']}]", "parameter_shape_index": "{}"}
        tables["allocations"].append(row)
    ids = iter(rng.sample(range(1000), arenas * values))
    for row in tables["allocations"]:
        numbers = sorted(next(ids) for _ in range(rng.randint(0, values)))
        entry = rng.choice(numbers) if numbers and row["is_parameter"] else None
        for value_id in numbers:
            begin, end = sorted(rng.randint(0, row["size"] // unit) * unit for _ in range(2))
            _value(rng, tables, row, value_id, begin, end - begin, is_entry=value_id == entry)
            chance = 0 if row["is_constant"] else 0.1 if row["is_thread_local"] else 0.9
            if rng.random() < chance:
                _range(rng, tables, value_id, length, beyond)
    tables["instructions"].sort(key=lambda r: r["value_id"])
    tables["live_ranges"].sort(key=lambda r: r["value_id"])
    tables["schedule"] = [{"time": t, "instruction": f"step.{t}"} for t in range(length)]
    _finish(tables, length)
    return tables


def _value(
    rng: random.Random, tables: dict[str, list[Row]], row: Row, value_id: int, offset: int, size: int, *, is_entry: bool
) -> None:
    name, tuple_shaped = f"v.{value_id}", not is_entry and rng.random() < 0.3
    shape, index = f"u8[{rng.choice((size, size // 2))}]", "{0}" if tuple_shaped else None
    value = {"value_id": value_id, "instruction": name, "shape_index": index}
    value |= {"is_phi": not is_entry and rng.random() < 0.3}
    value |= {"color": row["color"], "allocation": row["allocation"], "offset": offset, "size": size}
    value |= {"shape": shape, "element_type": "u8", "unpadded_size": int(shape[3:-1]), "uses_known": True}
    tables["values"].append(value)
    tables["positions"].append({"value_id": value_id, "ordinal": 0, "instruction": name, "shape_index": index})
    # The parameters of a loop's body are phis of the same opcode.
    opcode = "parameter" if is_entry or value["is_phi"] else rng.choice(("fusion", "copy", "add"))
    operands = row["parameter_number"] if is_entry else 0 if value["is_phi"] else ""
    scope = rng.choice(SCOPES)
    metadata = "" if scope is None else f', metadata={{op_name="{scope}" source_file="f.py" source_line={len(scope)}}}'
    whole = f"({shape}, u8[4])" if tuple_shaped else shape
    text = f"%{name} = {whole} {opcode}({operands}){metadata}"
    instruction = {"instruction": name, "shape": whole, "opcode": opcode, "operands": str(operands)}
    tables["instructions"].append(instruction | {"op_name": scope, "text": text, "value_id": value_id})


def _range(rng: random.Random, tables: dict[str, list[Row]], value_id: int, length: int, beyond: int) -> None:
    value = tables["values"][-1]
    start, end = sorted(rng.randint(0, length) for _ in range(2))
    if rng.random() < 0.2:
        end = min(end, length) + rng.randint(0, beyond)
    row = {"value_id": value_id, "instruction": value["instruction"], "shape_index": value["shape_index"]}
    tables["live_ranges"].append(row | {"start": start, "end": end})


def _finish(tables: dict[str, list[Row]], length: int) -> None:
    """The printed peak, by XLA's rule, and the rows about the dump itself."""
    moment = xla_moment(tables)
    values = {v["value_id"]: v for v in tables["values"]}
    live = [values[r["value_id"]] for r in tables["live_ranges"] if r["start"] <= moment <= r["end"]]
    running = 0
    for value in sorted(live, key=lambda v: (-v["unpadded_size"], v["instruction"])):
        if value["unpadded_size"]:
            running += value["unpadded_size"]
            row = {"ordinal": len(tables["printed_peak"]), "instruction": value["instruction"], "cumulative": running}
            row |= {"shape_index": value["shape_index"], "bytes": value["unpadded_size"]}
            tables["printed_peak"].append(row)
    module = {"features": FEATURES, "total_bytes": sum(a["size"] for a in tables["allocations"])}
    module |= {"schedule_length": length, "printed_peak_time": moment, "printed_peak_bytes": running}
    tables["modules"] = [module]
    tables["files"] = [{"role": "buffer-assignment", "features": FEATURES}]


def xla_moment(tables: Tables) -> int:
    """The step that XLA calls the peak: all starts of a step before all ends, the first strict maximum.

    Each value weighs as much as the whole shape of its instruction; a tuple weighs 8 bytes an element.
    """
    weight = {}
    for v in tables["values"]:
        weight[v["value_id"]] = v["unpadded_size"] if v["shape_index"] is None else 16
    now = best = moment = 0
    for time in sorted({r["start"] for r in tables["live_ranges"]} | {r["end"] + 1 for r in tables["live_ranges"]}):
        now += sum(weight[r["value_id"]] for r in tables["live_ranges"] if r["start"] == time)
        if now > best:
            best, moment = now, time
        now -= sum(weight[r["value_id"]] for r in tables["live_ranges"] if r["end"] + 1 == time)
    return moment
