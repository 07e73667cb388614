"""Everything that is computed from a dump: only errors of ours, and what must add up does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import xlamem
from xlamem import compute
from xlamem.compute import REGISTRY

Row = dict[str, Any]
Space = tuple[int | None, int | None]


class CheckError(AssertionError):
    """Something that must hold does not: what, and the details."""


@contextmanager
def errors_of_ours() -> Iterator[None]:
    """Let the documented errors pass: a dump may have no answer. A violated invariant is none of them."""
    try:
        yield
    except xlamem.NativeError as e:
        raise CheckError(f"native invariant of {e}") from e
    except xlamem.XlaMemError:
        pass


def plain(table: pa.Table) -> pa.Table:
    """Without dictionaries and chunks, so that tables compare by what they say."""
    table.validate(full=True)
    fields = [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def computed(dump: xlamem.Dump, rng: random.Random | None = None) -> None:
    """Compute every table, and the other computations with arguments of a generator."""
    found: dict[str, list[Row]] = {}
    for name, give in REGISTRY.items():
        with errors_of_ours():
            found[name] = plain(give(dump)).to_pylist()
    rng = rng or random.Random(0)
    for each in OTHERS:
        with errors_of_ours():
            each(rng, dump)
    if {"peaks", "bills"} <= found.keys():
        _bills_add_up(found["peaks"], found["bills"])
    if {"peaks", "live_set"} <= found.keys():
        _live_sets_add_up(found["peaks"], found["live_set"])
    for row in found.get("advice", ()):
        if not row["lower"] <= row["upper"]:
            raise CheckError(f"the bounds of an advice contradict each other: {row}")


def _bills_add_up(peaks: list[Row], rows: list[Row]) -> None:
    total = Counter[Space]()
    for row in rows:
        if row["bytes"] <= 0:
            raise CheckError(f"a row of the bill has no bytes: {row}")
        total[row["color"], row["page"]] += row["bytes"]
    for row in peaks:
        if total[row["color"], row["page"]] != row["reserved"]:
            raise CheckError(f"the bills add up to {total}, reserved is {row}")


def _live_sets_add_up(peaks: list[Row], rows: list[Row]) -> None:
    held = Counter[Space]()
    for row in rows:
        held[row["color"], row["page"]] += row["bytes"]
    for row in peaks:
        if row["first_step"] is not None and held[row["color"], row["page"]] != row["peak"]:
            raise CheckError(f"live_set adds up to {held}, the peak is {row}")
        if row["peak"] is not None and row["peak"] < row["half_open_peak"]:
            raise CheckError(f"the half-open peak is above the closed one: {row}")


# -- computations with arguments ---------------------------------------------------------------------


def _step(rng: random.Random, dump: xlamem.Dump) -> int | None:
    return rng.choice((None, 0, dump.schedule_length, rng.randint(-1, (dump.schedule_length or 0) + 1)))


def _budget(rng: random.Random) -> int:
    return rng.choice((0, 1, 4096, 1 << 20, 1 << 34, (1 << 62) - 1))


def _attribution(rng: random.Random, dump: xlamem.Dump) -> None:
    """The bytes of a step, whatever they are grouped by."""
    keys: Any = rng.sample(compute.KEYS, rng.randint(1, 3))
    time = _step(rng, dump)
    groups = compute.attribution(dump, keys, time=time, depth=rng.choice((None, 1, 3)), fold=rng.random() < 0.5)
    sums = [sum(t["bytes"].to_pylist()) for t in (groups, compute.live_set(dump, time))]
    if sums[0] != sums[1]:
        raise CheckError(f"attribution by {keys} at {time} adds up to {sums[0]}, live_set to {sums[1]}")


def _buffer(rng: random.Random, dump: xlamem.Dump) -> None:
    if dump.values.num_rows:
        row = dump.values.slice(rng.randrange(dump.values.num_rows), 1).to_pylist()[0]
        repr(compute.buffer(dump, rng.choice((row["value_id"], row["instruction"] or ""))))


def _repack(rng: random.Random, dump: xlamem.Dump) -> None:
    if rng.random() < 0.2:
        for packing in compute.repack(dump, 0):
            if not packing.lower_bound <= packing.found <= packing.size:
                raise CheckError(f"a packing is worse than the compiler's, or better than its bound: {packing}")


def _memory_analysis(_: random.Random, dump: xlamem.Dump) -> None:
    repr(compute.memory_analysis(dump))


def _fits(rng: random.Random, dump: xlamem.Dump) -> None:
    repr(compute.fits(dump, capacity=_budget(rng), resident=rng.choice((0, 1 << 30))))


def _plan(rng: random.Random, dump: xlamem.Dump) -> None:
    compute.plan_advice(dump, _budget(rng))[0].validate(full=True)


def _occupancy(_: random.Random, dump: xlamem.Dump) -> None:
    plain(compute.occupancy(dump, interval="half-open"))


def _inspect(_: random.Random, dump: xlamem.Dump) -> None:
    repr(compute.inspect(dump))


OTHERS: tuple[Callable[[random.Random, xlamem.Dump], None], ...] = (
    _memory_analysis, _fits, _plan, _attribution, _occupancy, _buffer, _repack, _inspect,
)  # fmt: skip
"""Computations that are not in `REGISTRY`, because they take arguments or return more than a table."""
