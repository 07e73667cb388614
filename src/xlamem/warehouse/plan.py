"""Which dumps are to be written, and which of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import xxhash

from .. import schema
from ..source import Source
from .ledger import State
from .worker import HUGE, Fault, Item, Job, Options

SMALLEST, LARGEST, BATCHES = 4 << 20, 128 << 20, 32
"""A run makes about BATCHES batches, unless they had fewer or more bytes of text than that."""
MOST = 8192
"""Dumps of a batch at most."""
TOGETHER = 256
"""Dumps whose identity one call finds out."""


@dataclass
class Plan:
    """What is to be done, and what need not be."""

    jobs: list[Job]
    """Biggest first."""
    stored: int = 0
    """Dumps that are there already, under this version."""
    known: int = 0
    """Dumps that are in quarantine already, under this version."""
    duplicates: int = 0
    """Dumps that are in the input more than once."""


def handfuls(sources: Sequence[Source]) -> list[list[Source]]:
    """The dumps in lists whose identity is found out together."""
    return [list(sources[i : i + TOGETHER]) for i in range(0, len(sources), TOGETHER)]


def plan(found: Iterable[Item | Fault], state: State, options: Options, *, reprocess: bool = False) -> Plan:
    """Jobs for the dumps that are not stored yet; a function of the dumps alone, not of their order or the workers."""
    items: dict[str, Item] = {}
    faults: dict[str, Fault] = {}
    made = Plan([])
    for one in found:
        if isinstance(one, Fault):
            faults[one.dump_id] = one
            continue
        made.duplicates += one.dump_id in items
        other = items.get(one.dump_id)
        if other is None or _place(one) < _place(other):
            items[one.dump_id] = one

    def current(batch: str) -> bool:
        b = state.batches[batch]
        return b.tool_version == options.tool_version and b.schema_version == schema.VERSION

    new: list[Item] = []
    again: dict[str, list[Item]] = {}
    for i, item in sorted(items.items()):
        stored, quarantined = state.stored.get(i), state.quarantined.get(i)
        if stored and current(stored) and not reprocess:
            made.stored += 1
        elif quarantined and current(quarantined) and not reprocess:
            made.known += 1  # also where an older version could read it, whose rows are kept
        elif batch := stored or quarantined:
            again.setdefault(batch, []).append(item)
        else:
            new.append(item)
    bad = tuple(f for i, f in sorted(faults.items()) if i not in state.quarantined)
    made.known += len(faults) - len(bad)
    made.jobs += [job_of(items_, options) for items_ in _batches(new)]
    if bad:
        made.jobs.append(job_of((), options, bad))
    for name, redone in again.items():
        made.jobs.append(replace(job_of(tuple(redone), options), old=state.batches[name]))
    made.jobs.sort(key=lambda j: (-j.bytes, j.batch))
    return made


def _place(item: Item) -> tuple[str, ...]:
    return tuple(m.place for m in item.source.members)


def _batches(items: list[Item]) -> list[tuple[Item, ...]]:
    """Huge dumps alone, the others in runs of neighbouring dump_ids."""
    small = [i for i in items if i.bytes <= HUGE]
    size = min(max(sum(i.bytes for i in small) // BATCHES, SMALLEST), LARGEST)
    batches: list[tuple[Item, ...]] = [(i,) for i in items if i.bytes > HUGE]
    batch: list[Item] = []
    held = 0
    for item in small:
        if batch and (held + item.bytes > size or len(batch) == MOST):
            batches.append(tuple(batch))
            batch, held = [], 0
        batch.append(item)
        held += item.bytes
    return [*batches, tuple(batch)] if batch else batches


def job_of(
    items: tuple[Item, ...], options: Options, faults: tuple[Fault, ...] = ()
) -> Job:
    """A job under its name: a function of the dumps, the versions and what is made of each dump."""
    ids = sorted({*(i.dump_id for i in items), *(f.dump_id for f in faults)})
    what = (str(schema.VERSION), options.tool_version, ",".join(options.tables), str(options.top), options.folder)
    name = xxhash.xxh3_128_hexdigest("\0".join((*what, *ids)).encode())
    return Job(name, items, options, faults)
