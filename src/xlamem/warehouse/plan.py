"""Which dumps are to be written, and which of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from .. import schema
from ..input.find import Source
from .ledger import State
from .worker import HUGE, Fault, Item, Job, Options, label

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
    healed: frozenset[str] = frozenset()
    """What is in quarantine and no longer fails, without anything to be written."""


def handfuls(sources: Sequence[Source]) -> list[list[Source]]:
    """The dumps in lists whose identity is found out together."""
    return [list(sources[i : i + TOGETHER]) for i in range(0, len(sources), TOGETHER)]


def plan(
    found: Sequence[Item | Fault],
    state: State,
    options: Options,
    *,
    given: Sequence[str] = (),
    reprocess: bool = False,
    retry_quarantine: bool = False,
) -> Plan:
    """Jobs for the dumps that are not stored yet; a function of the dumps alone, not of their order or the workers.

    `given` are the paths below which all was looked at.
    """
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

    def settled(i: str) -> bool:
        """Whether it is in quarantine and need not be tried again."""
        batch, _, system = state.failure(i)
        return batch is not None and current(batch.name) and not (system or reprocess or retry_quarantine)

    healed = _healed(found, state, given)
    new: list[Item] = []
    again: dict[str, list[Item]] = {}
    for i, item in sorted(items.items()):
        stored, (failed, attempts, system) = state.stored.get(i), state.failure(i)
        item = replace(item, attempts=attempts)
        if stored and current(stored) and not reprocess:
            made.stored += 1
            if system:
                healed.add(i)
        elif settled(i):
            made.known += 1  # also where an older version could read it, whose rows are kept
        elif stored or (failed and failed.dumps):  # rows of other dumps are in the same files
            again.setdefault(stored or state.quarantined[i], []).append(item)
        else:
            new.append(item)
    bad = tuple(replace(f, attempts=state.failure(i)[1] + 1) for i, f in sorted(faults.items()) if not settled(i))
    made.known += len(faults) - len(bad)
    made.jobs += [job_of(items_, options) for items_ in _batches(new)]
    if bad:
        made.jobs.append(job_of((), options, bad))
    for name, redone in again.items():
        made.jobs.append(replace(job_of(tuple(redone), options), old=state.batches[name]))
    made.jobs.sort(key=lambda j: (-j.bytes, j.batch))
    made.healed = frozenset(healed)
    return made


def _healed(found: Sequence[Item | Fault], state: State, given: Sequence[str]) -> set[str]:
    """What was in quarantine by its place, which was looked at again and does not fail so any more (or is gone)."""
    failing = {f.dump_id for f in found if isinstance(f, Fault)}
    rows = {i: place for b in state.batches.values() for i, place in b.places.items() if i not in failing}
    if not rows:
        return set()
    seen = set()
    for one in found:
        path = one.name if isinstance(one, Fault) else label(one.source)
        while path and path not in seen:  # with all that it lies in: directories and tars
            seen.add(path)
            path = path[: max(path.rfind("/"), path.rfind("::"), 0)]
    return {
        i
        for i, place in rows.items()
        if place in seen or any(f"{place}/".startswith((f"{path.rstrip('/')}/", f"{path}::")) for path in given)
    }


def _place(item: Item) -> tuple[str, ...]:
    return tuple(m.location for m in item.source.members)


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
    # What failed before makes another name: the files of that batch may still be there.
    tried = {i.dump_id: i.attempts for i in items} | {f.dump_id: f.attempts - 1 for f in faults}
    ids = sorted(f"{i}~{n}" if n else i for i, n in tried.items())
    what = (str(schema.VERSION), options.tool_version, ",".join(options.tables), str(options.top), options.folder)
    name = xxhash.xxh3_128_hexdigest("\0".join((*what, *ids)).encode())
    return Job(name, items, options, faults)
