"""The numbers over time and space against the brute-force reference: hostile, forged and real dumps."""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from brute import TABLES, WHOLE, Arena, Brute, Space, hostile
from conftest import every, label, sources
from forge import ERAS, forge
from render import UNAVAILABLE, render

import xlamem
from xlamem import compute, schema
from xlamem.compute import in_use
from xlamem.compute.program import program
from xlamem.compute.removal import peak_step_without, saved_by_chain
from xlamem.input.find import Source

Row = dict[str, Any]

SPACE = ("memory_space", "color", "page")
TABLES_OF_A_DUMP = ("fragmentation", "savings", "padding", "donation", "idle")
"""Functions that give one table, and need nothing but the dump."""

HOSTILE = range(200)
VALUES, STEPS = 500, 700
"""Real dumps with more are checked against their own sums only."""


# ---------------------------------------------------------------- dumps and helpers


@cache
def hostile_dump(seed: int, **options: int) -> xlamem.Dump:
    """A dump that several tests share and none changes."""
    return xlamem.read(render(hostile(seed, **options))["buffer-assignment"])


def timed(dump: xlamem.Dump) -> xlamem.Dump:
    if not dump.live_ranges.num_rows:
        pytest.skip("no live range at all")
    return dump


def of(dump: xlamem.Dump) -> Brute:
    return Brute({name: dump[name].to_pylist() for name in TABLES})


def sizes(dump: xlamem.Dump) -> tuple[int, int]:
    return dump.values.num_rows, dump.modules["schedule_length"][0].as_py() or 0


@pytest.fixture(params=every(2, sources()), ids=label)
def real(request: pytest.FixtureRequest) -> xlamem.Dump:
    source: Source = request.param
    if "tuple_args_2500.tar" in source.location:
        pytest.skip("hundreds of megabytes")
    return read(source)


@cache
def read(source: Source) -> xlamem.Dump:
    """A dump that several tests share and none changes."""
    return xlamem.read(source)


@pytest.fixture
def small(real: xlamem.Dump) -> xlamem.Dump:
    values, steps = sizes(real)
    if values > VALUES or steps > STEPS:
        pytest.skip("too large for the reference")
    return real


def rows(table: pa.Table, name: str | None = None) -> list[Row]:
    """Return the rows after comparing the table with the schema."""
    table.validate(full=True)
    if name is not None:
        wanted = schema.COMPUTED[name]
        assert table.schema.equals(wanted.arrow), f"{name}: {table.schema}"
        for column in wanted.columns:
            assert column.nullable or not table[column.name].null_count, f"{name}.{column.name} has nulls"
    return table.to_pylist()


def text(row: Row, keys: Iterable[str]) -> str:
    return repr([(k, row[k]) for k in keys])


def same(ours: list[Row], theirs: list[Row], *, ordered: bool = False) -> None:
    """The rows agree in every column that the reference gives."""
    keys = list(theirs[0]) if theirs else []
    a, b = [text(r, keys) for r in ours], [text(r, keys) for r in theirs]
    if not ordered:
        a, b = sorted(a), sorted(b)
    for mine, wanted in zip(a, b, strict=False):
        assert mine == wanted
    assert len(a) == len(b), (a[len(b) :] or b[len(a) :])[:3]


def by_space(table: list[Row], value: str) -> dict[tuple[Any, ...], int]:
    total: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in table:
        total[tuple(row[c] for c in SPACE)] += row[value]
    return {key: size for key, size in total.items() if size}


def occupied(table: list[Row], time: int) -> dict[tuple[Any, ...], int]:
    return by_space([r for r in table if r["time"] == time], "occupied")


def moments(dump: xlamem.Dump, n: int) -> list[int | None]:
    """Return None (the peak of each space), the first and last step and some others; nothing without live ranges."""
    length = dump.modules["schedule_length"][0].as_py()
    if length is None or not dump.live_ranges.num_rows:
        return []
    times = range(length + 1)
    return [None, *sorted({0, length, *random.Random(length).sample(times, min(n, len(times)))})]


# ---------------------------------------------------------------- the reference itself


@pytest.mark.parametrize("seed", HOSTILE[:100])
def test_reference(seed: int) -> None:
    """On dumps small enough, the reference equals sets of single bytes."""
    tables = hostile(seed, size=16)
    unit = max(1, max((a["size"] for a in tables["allocations"]), default=0) // 16)
    tables = {name: [dict(row) for row in table] for name, table in tables.items()}
    for row in (*tables["allocations"], *tables["values"]):
        row["size"] //= unit
        if "offset" in row:
            row["offset"] //= unit
        row.setdefault("memory_space", "")
    brute = Brute(tables)
    for row in brute.occupancy():
        bitmap: dict[str, set[tuple[int, int]]] = {"temp": set(), "live": set()}
        for space in brute.spaces:
            for arena in space.held:
                if (space.color, space.page) != (row["color"], row["page"]):
                    continue
                for value in arena.values:
                    ranges = arena.ranges.get(value["value_id"])
                    kept = arena.category == "temp" if not ranges else any(s <= row["time"] <= e for s, e in ranges)
                    for byte in range(value["size"] if kept else 0):
                        bitmap["live"].add((arena.number, value["offset"] + byte))
                        if arena.category == "temp":
                            bitmap["temp"].add((arena.number, value["offset"] + byte))
        assert (len(bitmap["temp"]), len(bitmap["live"])) == (row["temp"], row["live"])


@pytest.mark.parametrize("seed", HOSTILE[::10])
def test_hostile_dumps_are_read_back(seed: int) -> None:
    tables, dump = hostile(seed), hostile_dump(seed)
    for name in ("allocations", "values", "live_ranges", "schedule", "printed_peak"):
        same(dump[name].to_pylist(), tables[name], ordered=name != "values")


@pytest.mark.parametrize("seed", range(40))
def test_windows_do_not_change_numbers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeping values and schedules in several windows gives the same numbers as sweeping them at once."""
    whole = hostile_dump(seed, size=16)
    steps, top = compute.occupancy(whole), compute.peak(whole)
    monkeypatch.setattr(in_use, "MAX_SWEPT_VALUES", 3)
    monkeypatch.setattr(in_use, "MAX_CELLS", 1)
    parts = hostile_dump.__wrapped__(seed, size=16)  # nothing is known of it so far
    again = compute.peak(parts)
    assert again.spaces.equals(top.spaces)
    assert again.plateaus.equals(top.plateaus)
    assert compute.occupancy(parts).equals(steps)
    assert compute.fragmentation(parts).equals(compute.fragmentation(whole))


def test_hostile_dumps_cover_each_case() -> None:
    """Each case that the generator is meant to produce occurs several times."""
    seen: dict[str, int] = defaultdict(int)
    for seed in HOSTILE:
        brute = Brute({**hostile(seed), "allocations": _named(seed)})
        seen["several temp arenas in a space"] += any(len(s.of("temp")) > 1 for s in brute.spaces)
        seen["several spaces"] += len(brute.spaces) > 1
        seen["pages"] += len({s.color for s in brute.spaces}) < len(brute.spaces)
        seen["thread-local space"] += any(not s.held for s in brute.spaces)
        if brute.times is None:
            continue
        seen["several plateaus"] += any((p["plateaus"] or 0) > 1 for p in brute.peaks)
        seen["nothing in use"] += any(p["peak"] == 0 for p in brute.peaks)
        seen["half-open is lower"] += any(p["half_open_peak"] < p["peak"] for p in brute.peaks)
        live = brute.live_set()
        seen["partly shared"] += any(0 < r["exclusive"] < r["size"] for r in live)
        seen["partly reserved"] += any(0 < r["bytes"] < r["size"] for r in live if r["role"] == "reserved")
        seen["no bytes"] += any(r["size"] == 0 for r in live)
        seen["saving less than its size"] += any(r["saving"] < r["size"] for r in brute.savings())
        temps = [v for space in brute.spaces for a in space.of("temp") for v in a.values]
        seen["no live range"] += any(v["value_id"] not in brute.ranges for v in temps)
    assert min(seen.values()) >= 5, dict(seen)


def _named(seed: int) -> list[Row]:
    return [row | {"memory_space": ""} for row in hostile(seed)["allocations"]]


# ---------------------------------------------------------------- against the reference


def check_over_time(dump: xlamem.Dump, brute: Brute) -> None:
    same(rows(compute.occupancy(dump), "occupancy"), brute.occupancy(), ordered=True)
    half_open = compute.occupancy(dump, interval="half-open")
    same(rows(half_open, "occupancy"), brute.occupancy("half-open"), ordered=True)
    for k in (5, 1):
        peak = compute.peak(dump, k=k)
        same(rows(peak.spaces, "peaks"), brute.peaks, ordered=True)
        same(rows(peak.plateaus, "plateaus"), brute.plateaus(k), ordered=True)


def check_at_instants(dump: xlamem.Dump, brute: Brute, n: int) -> None:
    for time in moments(dump, n):
        same(rows(compute.live_set(dump, time), "live_set"), brute.live_set(time))
        same(rows(compute.fragmentation(dump, time=time), "fragmentation"), brute.fragmentation(time))


def check_savings(dump: xlamem.Dump, brute: Brute) -> None:
    ours = rows(compute.savings(dump), "savings")
    if brute.times is not None:
        same(ours, brute.savings())
        p, chains = program(dump), brute.savings_of_chains()
        row, saved = {value: row for row, value in enumerate(p.value_ids.tolist())}, saved_by_chain(p)
        assert {v: saving for v, (saving, _) in chains.items()} == {v: saved[row[v]] for v in chains}
        for v, (_, step) in islice(chains.items(), 20):
            assert peak_step_without(p, row[v]) == step
    assert ours == sorted(ours, key=lambda r: (r["color"], r["page"], -r["saving"]))


@pytest.mark.parametrize("seed", every(6, HOSTILE))
def test_hostile(seed: int) -> None:
    dump = hostile_dump(seed)
    brute = of(dump)
    check_over_time(dump, brute)
    check_at_instants(dump, brute, 4)
    check_savings(dump, brute)
    check_sums(dump, 3)


@pytest.mark.parametrize("seed", every(2, range(8)))
def test_hostile_larger(seed: int) -> None:
    dump = hostile_dump(seed, arenas=12, values=40, steps=150, size=4000)
    brute = of(dump)
    check_over_time(dump, brute)
    check_at_instants(dump, brute, 4)
    check_savings(dump, brute)
    check_sums(dump, 3)


@pytest.mark.parametrize("seed", range(40))
def test_ranges_beyond_the_schedule(seed: int) -> None:
    """Time ends with the schedule, whatever a range says."""
    dump = hostile_dump(seed, beyond=3)
    brute = of(dump)
    check_over_time(dump, brute)
    check_at_instants(dump, brute, 2)
    check_savings(dump, brute)


@pytest.mark.parametrize("era", every(3, ERAS))
@pytest.mark.parametrize("platform", every(2, ["cpu", "gpu", "tpu"]))
def test_forged(era: str, platform: Any) -> None:
    for seed in (0, 2):
        forged = forge(seed, era=era, platform=platform, values=40, hostile=seed == 2)
        dump = xlamem.read(forged.files["buffer-assignment"]) if not ERAS[era].split else _joined(forged.files)
        brute = of(dump)
        check_over_time(dump, brute)
        check_at_instants(dump, brute, 3)
        check_savings(dump, brute)
        check_sums(dump, 3)
        module = forged.tables["modules"][0]
        if module["printed_peak_time"] is not None and not era.startswith("E2b"):
            assert compute.xla_rule(dump) == (module["printed_peak_time"], module["printed_peak_bytes"])


def _joined(files: dict[str, bytes]) -> xlamem.Dump:
    return xlamem.read(b"".join(data for role, data in files.items() if role != "hlo"))


def test_real(small: xlamem.Dump) -> None:
    brute = of(small)
    check_over_time(small, brute)
    check_at_instants(small, brute, 2)
    values, steps = sizes(small)
    if values * steps <= 150_000:
        check_savings(small, brute)


# ---------------------------------------------------------------- parts add up to wholes


def check_sums(dump: xlamem.Dump, n: int) -> None:
    curve = rows(compute.occupancy(dump), "occupancy")
    peaks = rows(compute.peak(dump).spaces, "peaks")
    for row in curve:
        assert row["occupied"] == row["temp"] + sum(row[name] for name in WHOLE)
        assert row["live"] <= row["occupied"]
    printed = dump.modules["total_bytes"][0].as_py()
    assert printed is None or not dump.complete or printed == sum(p["allocated"] for p in peaks)
    series = defaultdict(list)
    for row in curve:
        series[tuple(row[c] for c in SPACE)].append(row)
    temp = {key: max(r["temp"] for r in table) for key, table in series.items()}
    for p in peaks:
        key = tuple(p[c] for c in SPACE)
        if p["peak"] is None:
            assert key not in series
            continue
        assert p["peak"] == max(r["occupied"] for r in series[key]) <= p["reserved"] <= p["allocated"]
        assert p["half_open_peak"] <= p["peak"]
        if p["peak"]:
            run = series[key][p["first_step"] : p["last_step"] + 1]
            assert {r["occupied"] for r in run} == {p["peak"]}
            assert p["plateaus"] >= 1
    for time in moments(dump, n):
        if time is None:
            wanted = by_space([p | {"peak": p["peak"] or 0} for p in peaks], "peak")
        else:
            wanted = occupied(curve, time)
        live = rows(compute.live_set(dump, time), "live_set")
        assert by_space(live, "bytes") == wanted
        if time is not None:
            covered = by_space([r for r in live if r["role"] == "value"], "bytes")
            assert covered == by_space([r for r in curve if r["time"] == time], "live")
        for row in live:
            assert row["exclusive"] <= row["bytes"] <= row["size"]
            assert row["role"] == "reserved" or row["exclusive"] + row["shared"] == row["size"]
        names: dict[str, int] = defaultdict(int)
        for (name, _, _), size in wanted.items():
            names[name] += size
        for by in (("op_name",), ("category", "opcode"), ("scope",), ("source",), ("instruction", "shape")):
            parts = rows(compute.attribution(dump, ("memory_space", *by), time=time))
            total: dict[str, int] = defaultdict(int)
            for row in parts:
                total[row["memory_space"]] += row["bytes"]
            assert {name: size for name, size in total.items() if size} == names
    for row in rows(compute.fragmentation(dump), "fragmentation"):
        if row["peak"] is not None:
            assert row["size"] == row["unassigned"] + row["fragmentation"] + row["peak"]
    if curve:
        arenas = by_space(rows(compute.fragmentation(dump)), "size")
        for p in peaks:
            key = tuple(p[c] for c in SPACE)
            assert arenas.get(key, 0) == p["slack"] + temp[key]
        whole = {tuple(p[c] for c in SPACE): p["peak"] for p in peaks}
        for row in rows(compute.savings(dump), "savings"):
            assert 0 < row["saving"] <= min(row["size"], whole[tuple(row[c] for c in SPACE)])


def test_real_sums(real: xlamem.Dump) -> None:
    check_sums(real, 2)


def test_real_xla_rule(real: xlamem.Dump) -> None:
    """Step and bytes of XLA's peak follow from its rule on every dump that prints them."""
    module = real.modules.to_pylist()[0]
    if module["printed_peak_time"] is None:
        pytest.skip("no printed peak")
    if not module["complete"]:
        pytest.skip("cut")
    assert compute.xla_rule(real) == (module["printed_peak_time"], module["printed_peak_bytes"])


@pytest.mark.parametrize("seed", every(3, HOSTILE))
def test_hostile_xla_rule(seed: int) -> None:
    dump = hostile_dump(seed)
    module = dump.modules.to_pylist()[0]
    if not dump.live_ranges.num_rows:
        assert compute.xla_rule(dump) is None
        return
    assert compute.xla_rule(dump) == (module["printed_peak_time"], module["printed_peak_bytes"])


# ---------------------------------------------------------------- attribution


BY = ("memory_space", "category", "op_name", "opcode", "element_type", "shape", "instruction")
"""Columns of attribution that the live set has too."""


def check_attribution(dump: xlamem.Dump, time: int | None) -> None:
    live = rows(compute.live_set(dump, time), "live_set")
    for by in (*((name,) for name in BY), (), ("memory_space", "category"), ("opcode", "element_type", "op_name")):
        wanted: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        for row in live:
            entry = wanted[tuple(row[c] for c in by)]
            entry[0] += row["bytes"]
            entry[1] += 1
        table = compute.attribution(dump, by, time=time)
        assert table.column_names == [*by, "bytes", "n"]
        ours = rows(table)
        found = {tuple(r[c] for c in by): [r["bytes"], r["n"]] for r in ours}
        assert len(found) == len(ours)
        assert found == {key: entry for key, entry in wanted.items() if entry[0] or key in found}
        assert [r["bytes"] for r in ours] == sorted((r["bytes"] for r in ours), reverse=True)


@pytest.mark.parametrize("seed", every(2, HOSTILE[:60]))
def test_attribution_hostile(seed: int) -> None:
    dump = hostile_dump(seed)
    for time in moments(dump, 2):
        check_attribution(dump, time)


def test_attribution_real(small: xlamem.Dump) -> None:
    for time in moments(small, 1):
        check_attribution(small, time)


@pytest.mark.parametrize("seed", HOSTILE[:40])
def test_scopes(seed: int) -> None:
    """Shorter scopes and folded layers gather the same bytes in fewer rows."""
    dump = timed(hostile_dump(seed))
    whole = rows(compute.attribution(dump, ("scope",)))
    for options in ({"depth": 1}, {"depth": 2}, {"fold": True}, {"depth": 2, "fold": True}):
        parts = rows(compute.attribution(dump, ("scope",), **options))
        assert sum(r["bytes"] for r in parts) == sum(r["bytes"] for r in whole)
        assert len(parts) <= len(whole)
        names = [r["scope"] for r in parts]
        assert len(set(names)) == len(names)
        if options.get("fold"):
            assert not any("layers_1" in name for name in names if name)


# ---------------------------------------------------------------- one space


@pytest.mark.parametrize("seed", every(3, HOSTILE[:60]))
def test_space(seed: int) -> None:
    """`space` selects rows by name or color without changing them."""
    dump = timed(hostile_dump(seed))
    spaces = rows(compute.peak(dump).spaces)
    for chosen in {s["memory_space"] for s in spaces} | {s["color"] for s in spaces}:
        column = "color" if isinstance(chosen, int) else "memory_space"
        for function in (compute.occupancy, compute.live_set, compute.savings):
            everything = [r for r in function(dump).to_pylist() if r[column] == chosen]
            same(function(dump, space=chosen).to_pylist(), everything, ordered=True)
        parts = compute.attribution(dump, ("memory_space", "category"), space=chosen).to_pylist()
        live = [r for r in compute.live_set(dump).to_pylist() if r[column] == chosen]
        assert sum(r["bytes"] for r in parts) == sum(r["bytes"] for r in live)


def test_wrong_arguments() -> None:
    dump = hostile_dump(3)
    length = dump.modules["schedule_length"][0].as_py()
    for call in (
        lambda: compute.occupancy(dump, space="no such space"),
        lambda: compute.occupancy(dump, space=77),
        lambda: compute.occupancy(dump, interval="open"),  # type: ignore[arg-type]
        lambda: compute.live_set(dump, -1),
        lambda: compute.live_set(dump, length + 1),
        lambda: compute.live_set(dump, 0, space="no such space"),
        lambda: compute.fragmentation(dump, time=length + 1),
        lambda: compute.attribution(dump, ("no such column",)),  # type: ignore[arg-type]
        lambda: compute.attribution(dump, depth=0),
        lambda: compute.attribution(dump, time=length + 1),
        lambda: compute.peak(dump, k=-1),
        lambda: compute.idle(dump, limit=-1),
    ):
        with pytest.raises(xlamem.UsageError):
            call()


# ---------------------------------------------------------------- without live ranges, without anything


@pytest.mark.parametrize("seed", HOSTILE[:20])
def test_without_live_ranges(seed: int) -> None:
    """Columns that depend on time are null or empty, the others are filled."""
    tables = hostile(seed)
    features = "from_instruction,from_instruction_blank,human_total,live_inline,live_unavailable,values_inline"
    for row in (tables["modules"][0], tables["files"][0]):
        row["features"] = features
    dump = xlamem.read(render(tables)["buffer-assignment"].removesuffix(UNAVAILABLE.encode()))
    assert dump.modules["schedule_length"][0].as_py() is None
    brute = of(dump)
    peak = compute.peak(dump)
    same(rows(peak.spaces, "peaks"), brute.peaks, ordered=True)
    assert peak.plateaus.num_rows == compute.occupancy(dump).num_rows == 0
    same(rows(compute.fragmentation(dump), "fragmentation"), brute.fragmentation())
    assert compute.xla_rule(dump) is None
    for call in (compute.live_set, compute.attribution):
        with pytest.raises(xlamem.UsageError, match="live ranges"):
            call(dump)
    for name in (*TABLES_OF_A_DUMP, "explain"):
        rows(getattr(compute, name)(dump), name)
    assert rows(compute.idle(dump)) == []
    reserved = {tuple(p[c] for c in SPACE): p["reserved"] for p in rows(peak.spaces)}
    assert sum(reserved.values()) == sum(a.size for s in brute.spaces for a in s.held)


def test_empty() -> None:
    """Without allocations every table is empty."""
    tables = hostile(0, arenas=0)
    dump = xlamem.read(render(tables)["buffer-assignment"])
    assert dump.allocations.num_rows == 0
    for name in ("occupancy", *TABLES_OF_A_DUMP):
        assert rows(getattr(compute, name)(dump), name) == []
    assert rows(compute.peak(dump).spaces, "peaks") == rows(compute.peak(dump).plateaus, "plateaus") == []
    rows(compute.explain(dump), "explain")


# ---------------------------------------------------------------- padding, donation, idle, explain


def check_padding(dump: xlamem.Dump, brute: Brute) -> None:
    ours = rows(compute.padding(dump), "padding")
    same(ours, brute.padding())
    if brute.times is not None:
        same(rows(compute.space_padding(dump), "space_padding"), brute.space_padding())
    check_padding_sums(dump)


def check_padding_sums(dump: xlamem.Dump) -> None:
    """The rows add up: at the peak to the padding of the space, and over all never to more than its slots have."""
    ours = rows(compute.padding(dump), "padding")
    for row in ours:
        if row["padding"] is not None:
            assert 0 <= row["padding"] <= max(0, row["size"] - row["unpadded_size"])
    if dump.live_ranges.num_rows and dump.modules["schedule_length"][0].as_py() is not None:
        at_peak = [r | {"padding": r["padding"] or 0} for r in ours if r["at_peak"]]
        assert by_space(at_peak, "padding") == by_space(rows(compute.space_padding(dump)), "padding")
    offset = dict(zip(dump.values["value_id"].to_pylist(), dump.values["offset"].to_pylist(), strict=True))
    slots: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    most: dict[tuple[int, int, int], int] = defaultdict(int)
    for row in ours:
        if row["padding"] is not None:
            slot = (row["allocation"], offset[row["value_id"]], row["size"])
            slots[slot].append(row["padding"])
            most[slot] = max(most[slot], row["size"] - row["unpadded_size"])
    for slot, parts in slots.items():
        assert sum(parts) <= most[slot]


@pytest.mark.parametrize("seed", every(2, HOSTILE[:60]))
def test_padding_hostile(seed: int) -> None:
    dump = hostile_dump(seed)
    check_padding(dump, of(dump))


@pytest.mark.parametrize("seed", HOSTILE[:60])
def test_padding_of_unknown_sizes(seed: int) -> None:
    """Of the values of a slot, one with a known unpadded size has its padding, if there is one."""
    rng, text = random.Random(seed), render(hostile(seed, arenas=3, values=30, size=3))["buffer-assignment"]
    text = re.sub(rb"u8\[(\d+)\]", lambda m: rng.choice((m[0], b"unknown[%b]" % m[1])), text)
    dump = xlamem.read(text)
    assert dump.values["unpadded_size"].null_count or dump.values.num_rows < 20
    check_padding(dump, of(dump))


def test_padding_real(small: xlamem.Dump) -> None:
    check_padding(small, of(small))


def test_padding_adds_up(real: xlamem.Dump) -> None:
    check_padding_sums(real)


def test_donation(small: xlamem.Dump) -> None:
    """One row a parameter's allocation; what is taken is what the flags say; candidates are paired one by one."""
    brute = of(small)
    where = {arena.number: (space, arena) for space in brute.spaces for arena in space.arenas}
    parameters = {n for n, (_, arena) in where.items() if arena.category in ("parameter", "donated")}
    donors = {(a["parameter"], a["parameter_index"].replace(" ", "")) for a in small.aliases.to_pylist()}
    ours = rows(compute.donation(small), "donation")
    assert sorted(r["allocation"] for r in ours) == sorted(parameters)
    assert ours == sorted(ours, key=lambda r: (r["parameter"], numbers(r["parameter_index"])))
    partners = _partners(small, brute, [where[r["allocation"]] for r in ours if r["state"] != "taken"])
    last = _last_uses(small)
    for row in ours:
        space, arena = where[row["allocation"]]
        assert {c: row[c] for c in SPACE} == space.key
        assert (row["parameter"], row["size"]) == (arena.row["parameter_number"], arena.size)
        assert row["parameter_index"] == (arena.row["parameter_shape_index"] or "{}")
        refused = (row["parameter"], row["parameter_index"]) in donors
        assert row["state"] == ("taken" if arena.category == "donated" else "refused" if refused else "no")
        value = next(iter(brute.representative(arena)), None)
        assert row["last_use"] == (value and last.get(value["value_id"]))
        partner = partners.get(arena.number)
        assert row["candidate"] == (partner is not None)
        free, upper = None, None
        if partner is not None:
            index, output, other = partner
            assert (row["candidate_output"], row["exact"]) == (index, plain(output) == plain(value))
            assert row["candidate_instruction"] == output["instruction"]
            assert row["candidate_shape_index"] == output["shape_index"]
            begin = min((start for v in other.values for start, _ in brute.ranges.get(v["value_id"], [])), default=None)
            upper = arena.size
            if begin is not None and small.uses.num_rows:
                used = row["last_use"]
                free = used is None or begin >= used
        assert (row["saving_lower"], row["saving_upper"]) == (None if upper is None else 0, upper)
        assert row["free_in_schedule"] == free


def test_category_of_values(real: xlamem.Dump) -> None:
    """In an output's space the output is what the root of the program holds; the rest is temporary, or the argument."""
    timed(real)
    schedule = real.schedule.to_pylist()
    if not real.positions.num_rows or not schedule:
        pytest.skip("no positions")
    root = max(schedule, key=lambda r: r["time"])["instruction"]
    outputs = {p["value_id"] for p in real.positions.to_pylist() if p["instruction"] == root}
    opcode = dict(zip(*(real.instructions[c].to_pylist() for c in ("instruction", "opcode")), strict=True))
    for row in rows(compute.padding(real), "padding"):
        if row["category"] in ("live_out", "temp_in_output"):
            assert (row["value_id"] in outputs) == (row["category"] == "live_out")
        elif row["category"] == "donated":
            assert row["value_id"] in outputs or opcode[row["instruction"]] == "parameter"


def numbers(index: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", index)]


def plain(value: Row) -> str | None:
    """Element type and dimensions; None for what is no array."""
    found = re.match(r"\w+\[[^]]*\]", value["shape"] or "")
    return found[0] if found else None


def _last_uses(dump: xlamem.Dump) -> dict[int, int]:
    step = {r["instruction"]: r["time"] for r in dump.schedule.to_pylist()}
    last: dict[int, int] = {}
    for use in dump.uses.to_pylist():
        if use["instruction"] in step:
            last[use["value_id"]] = max(step[use["instruction"]], last.get(use["value_id"], 0))
    return last


def _partners(
    dump: xlamem.Dump, brute: Brute, parameters: list[tuple[Space, Arena]]
) -> dict[int, tuple[str | None, Row, Arena]]:
    """Allocation of a parameter -> index, value and allocation of the output that it would be aliased with."""
    schedule = {r["time"]: r["instruction"] for r in dump.schedule.to_pylist()}
    root = schedule[max(schedule)] if schedule else None
    at = {p["value_id"]: p["shape_index"] or "{}" for p in dump.positions.to_pylist() if p["instruction"] == root}
    outputs = []
    for space in brute.spaces:
        for arena in space.of("live_out"):
            for v in arena.values:
                ends = [end for _, end in brute.ranges.get(v["value_id"], [])]
                if (max(ends, default=-1) >= brute.last) if brute.last is not None else len(arena.values) == 1:
                    outputs.append((at.get(v["value_id"]), v, arena, space.key))
                    break
    outputs.sort(key=lambda o: (o[0] is not None, numbers(o[0] or "")))
    outputs = [o for o in outputs if plain(o[1])]
    collective = ("all-", "collective-", "reduce-scatter", "partition-id")
    several = any(
        re.search(r"devices=|'=([2-9]|\d\d)", i["sharding"] or "") or i["opcode"].startswith(collective)
        for i in dump.instructions.to_pylist()
    )

    def elements(shape: str | None) -> int:
        return 0 if several else math.prod(numbers((shape or "").partition("[")[2]))

    found: dict[int, tuple[str | None, Row, Arena]] = {}
    taken: list[int] = []
    rest = []
    for space, arena in parameters:
        for value in brute.representative(arena):
            if not plain(value):
                continue
            for i, (index, output, other, key) in enumerate(outputs):
                fits = (key, other.size, plain(output)) == (space.key, arena.size, plain(value))
                if fits and i not in taken:
                    taken.append(i)
                    found[arena.number] = (index, output, other)
                    break
            else:
                rest.append((space, arena, value))
    left = [o for i, o in enumerate(outputs) if i not in taken]
    counted = list(left)
    chosen = []
    for space, arena, value in rest:
        wanted = (space.key, arena.size, elements(plain(value)))
        for o in counted:
            if (o[3], o[2].size, elements(plain(o[1]))) == wanted:
                counted.remove(o)
                chosen.append((space, arena))
                break
    for space, arena in chosen:
        o = next(o for o in left if (o[3], o[2].size) == (space.key, arena.size))
        left.remove(o)
        found[arena.number] = o[:3]
    return found


def test_idle(small: xlamem.Dump) -> None:
    """The longest gap between neighbouring steps at which a value begins or is read."""
    brute = of(small)
    step = {r["instruction"]: r["time"] for r in small.schedule.to_pylist()}
    reads = defaultdict(set)
    for use in small.uses.to_pylist():
        reads[use["value_id"]].add(step.get(use["instruction"]))
    tops = {tuple(p[c] for c in SPACE): p["first_step"] for p in compute.peak(small).spaces.to_pylist()}
    wanted = []
    for space in brute.spaces:
        for arena in space.held:
            for value in arena.values:
                for start, end in brute.ranges.get(value["value_id"], []):
                    read = {t for t in reads[value["value_id"]] if t is not None and start <= t <= end}
                    gaps = list(pairwise(sorted({start} | read)))
                    if not value["size"] or not gaps:
                        continue
                    a, b = max(gaps, key=lambda gap: gap[1] - gap[0])
                    row = {**space.key, "value_id": value["value_id"], "allocation": arena.number}
                    row |= {"size": value["size"], "from_step": a, "to_step": b, "gap": b - a}
                    # At both ends the value is needed: it lies idle between them only.
                    top = tops[tuple(space.key.values())]
                    wanted.append(row | {"over_peak": top is not None and a < top < b})
    wanted = [row for row in wanted if row["gap"] > 1]
    ours = rows(compute.idle(small), "idle")
    same(ours, wanted)
    assert ours == sorted(ours, key=lambda r: -r["size"] * r["gap"])
    same(rows(compute.idle(small, min_bytes=1000), "idle"), [r for r in ours if r["size"] >= 1000], ordered=True)
    assert rows(compute.idle(small, limit=2), "idle") == ours[:2]


def test_explain(small: xlamem.Dump) -> None:
    ours = rows(compute.explain(small), "explain")
    assert len({(r["name"], r["memory_space"]) for r in ours}) == len(ours)
    module = small.modules.to_pylist()[0]
    printed = [r for r in ours if r["name"] == "xla_printed"]
    if module["printed_peak_time"] is not None:
        wanted = [(module["printed_peak_bytes"], module["printed_peak_time"])]
        assert [(r["bytes"], r["time"]) for r in printed] == wanted
    causes = rows(compute.explain_causes(small), "explain_causes")
    for row in ours:
        own = [c for c in causes if all(c[k] == row[k] for k in ("name", "color", "page"))]
        assert sum(c["bytes"] for c in own) == (row["difference"] or 0), row
        assert all(c["bytes"] for c in own)
        assert len({c["cause"] for c in own}) == len(own)
        assert (row["causes"] or "") == ", ".join(f"{c['cause']} {c['bytes']:+,}" for c in own)
        assert (row["basis"] is None) == (row["bytes"] is None)
        assert (row["n_equal"] is None) == (row["basis"] != "inferred")
    numbers = {r["name"]: r for r in ours if r["memory_space"] is None}
    if "xla_rule" in numbers:
        wanted = numbers["xla_printed"]
        assert (numbers["xla_rule"]["bytes"], numbers["xla_rule"]["time"]) == (wanted["bytes"], wanted["time"])
    assert numbers["device_total"]["bytes"] == compute.device_total(small)
    peaks = compute.peak(small).spaces.to_pylist()
    listed = {(r["memory_space"], r["bytes"], r["time"]) for r in ours if r["name"] == "peak"}
    if all(p["page"] == 0 and p["peak"] is not None for p in peaks):
        assert {(p["memory_space"], p["peak"], p["first_step"]) for p in peaks if p["allocated"]} <= listed


def test_memory_does_not_depend_on_a_printed_step(make: Callable[..., Path]) -> None:
    """A huge printed step must not allocate memory."""
    far = 2**63 - 1
    text = (
        "BufferAssignment:\nallocation 0: size 96, preallocated-temp:\n"
        " value: <0 a @0> (size=32,offset=0): u8[32]{0}\n value: <1 b @0> (size=64,offset=32): u8[64]{0}\n"
        "\nTotal bytes used: 96 (96B)\n\nUsed values:\n"
        "<0 a @0>\n positions:\n  a\n uses:\n from instruction: %a = u8[32]{0} iota()\n"
        "<1 b @0>\n positions:\n  b\n uses:\n from instruction: %b = u8[64]{0} iota()\n"
        "\n\nHloLiveRange (max 2):\n  InstructionSequence:\n    0:a\n    1:b\n  BufferLiveRange:\n"
        f"    a{{}}:0-1\n    b{{}}:1-{far}\n  Live ranges at 1 (peak):\n"
        "    b{}: 64 bytes (cumulative: 64 bytes)\n    a{}: 32 bytes (cumulative: 96 bytes)\n"
    )
    dump = xlamem.read(make({"buffer-assignment": text.encode()}, "cpu_after_optimizations"))
    assert compute.xla_rule(dump) == (1, 96)
    assert {r["name"] for r in compute.explain(dump).to_pylist()} >= {"xla_rule", "xla_printed", "reserved", "peak"}


def test_names() -> None:
    """Every public computation is importable from the package itself."""
    for name in ("occupancy", "peak", "live_set", "attribution", "memory_analysis", "explain", *TABLES_OF_A_DUMP):
        assert getattr(xlamem, name) is getattr(compute, name)
        assert name in xlamem.__all__


def with_clones(seed: int) -> xlamem.Dump:
    """A dump in which half of the names are those of clones of other values."""
    rng = random.Random(seed)
    text = render(hostile(seed, arenas=3, values=40, steps=8))["buffer-assignment"]
    names = [v["instruction"] for v in xlamem.read(text).values.to_pylist()]
    rng.shuffle(names)
    for i, clone in enumerate(names[::2]):
        name = rng.choice(names[1::2] or [clone]) + f"{rng.choice(['.remat', '.remat2', '.rematx'])}.{i}"
        text = re.sub(rb"(?<![\w.])%b(?![\w.])" % re.escape(clone.encode()), name.encode(), text)
    return xlamem.read(text)


@pytest.mark.parametrize("seed", range(40))
def test_rematerialized(seed: int) -> None:
    dump = with_clones(seed)
    values, brute = dump.values.to_pylist(), of(dump)
    found = {r["value_id"]: r for r in compute.rematerialized(dump).to_pylist()}
    if brute.times is None:
        assert not found
        return
    first = {(s["color"], s["page"]): s["first_step"] for s in xlamem.peak(dump).spaces.to_pylist()}
    ranges = {i: (min(s for s, _ in r), max(e for _, e in r)) for i, r in brute.ranges.items()}
    clones: dict[int | None, list[Row]] = defaultdict(list)
    for v in values:
        if name := re.fullmatch(r"(.*)\.remat\d*(\.\d+)*", v["instruction"]):
            wanted = name[1], v["shape_index"]
            original = next((o["value_id"] for o in values if (o["instruction"], o["shape_index"]) == wanted), None)
            clones[original].append(found.pop(v["value_id"]))
    assert not found
    for original, rows in clones.items():
        end = ranges.get(original, (None, None))[1]  # type: ignore[arg-type]
        after = []
        for r in rows:
            peak = first[r["color"], r["page"]]
            start, last = ranges.get(r["value_id"], (None, -1))
            assert (r["original_id"], r["original_end"], r["start"]) == (original, end, start)
            assert r["at_peak"] == (None not in (start, peak) and start <= peak <= last)
            if None not in (end, start, peak) and end < peak < start:
                after.append(r)
        counted = [] if any(r["at_peak"] for r in rows) else sorted(after, key=lambda r: r["start"])[:1]
        assert [r for r in rows if r["saved"]] == [r for r in counted if r["size"]]
        assert all(r["saved"] == r["size"] for r in counted)
