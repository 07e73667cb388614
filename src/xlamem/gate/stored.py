"""The side of the baseline: programs in a file, in dumps, or in a dataset, and which is which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..compare.pairing import Pairing
from ..compare.programs import ProgramEntry, Programs
from ..compare.sketches import Sketches, no_sketches
from ..dump import Dump
from ..errors import DumpError
from ..parse.fingerprints import without_counters
from .entry import Entry


class EntryPrograms(Programs):
    """The programs of a baseline file. Their instructions are not known."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        super().__init__(_described(i, e) for i, e in enumerate(entries))

    def sketches(self, numbers: Sequence[int]) -> Sketches:
        return no_sketches(len(numbers))

    def read(self, number: int) -> Dump:
        raise DumpError(self.programs[number].module_name or "", "a dump; a baseline file has none")


def _described(row: int, e: Entry) -> ProgramEntry:
    return ProgramEntry(
        row=row, id=None, uri=None, module_name=e.name, platform=e.platform, program_fp=e.program_fp,
        interface_fp=e.interface_fp, device_total=e.device_total, peak=e.peak,
    )  # fmt: skip


class Selected(Programs):
    """Some of the programs of a side."""

    def __init__(self, side: Programs, numbers: Sequence[int]) -> None:
        self.side, self.numbers = side, numbers
        self.programs = [side.programs[i] for i in numbers]

    def sketches(self, numbers: Sequence[int]) -> Sketches:
        return self.side.sketches([self.numbers[i] for i in numbers])

    def read(self, number: int) -> Dump:
        return self.side.read(self.numbers[number])


class Partner(NamedTuple):
    """The program of the baseline that a program is compared with."""

    number: int
    how: str
    """A key of `schema.PAIRED`."""


def partners(baseline: Programs, programs: Programs) -> dict[int, Partner]:
    """Return the partner in the baseline of each program that has one, by number. Platforms are kept apart.

    The order of precedence is that of `xlamem.pair`. Programs that have only their name in common, while others have
    it too, are partners only if as many are left on both sides: otherwise one of them may be new.
    """
    found: dict[int, Partner] = {}
    for platform in {p.platform for p in programs.programs}:
        sides = [_of_platform(side, platform) for side in (baseline, programs)]
        pairing = Pairing(*sides)
        pairing.run()
        ambiguous = _ambiguous_names(pairing)
        for a, pair in pairing.pairs.items():
            if pair.how != "name" or _name(sides[0].programs[a]) not in ambiguous:
                found[sides[1].numbers[pair.b]] = Partner(sides[0].numbers[a], pair.how)
    return found


def by_name(side: Programs) -> dict[tuple[str | None, str], list[int]]:
    """Return the numbers of the programs with each platform and name. Programs without a name are left out."""
    numbers: dict[tuple[str | None, str], list[int]] = {}
    for i, program in enumerate(side.programs):
        if program.module_name:
            numbers.setdefault(platform_and_name(program), []).append(i)
    return numbers


def platform_and_name(program: ProgramEntry) -> tuple[str | None, str]:
    """Return the platform of a program, and its name without the number."""
    return program.platform, _name(program)


def gone(baseline: Programs, found: Mapping[int, Partner]) -> list[int]:
    """Return the programs of the baseline that are not among the others, by number.

    Of several that cannot be told apart, none is gone if one of them is there.
    """
    taken = {partner.number for partner in found.values()}
    keys = {baseline[i].key for i in taken}
    return [i for i in range(len(baseline)) if i not in taken and baseline[i].key not in keys]


def possibly_renamed(baseline: Programs, programs: Programs, found: Mapping[int, Partner]) -> dict[int, int]:
    """Return the program of the baseline that each new program may have been under another name, by number.

    Of each platform, the largest new program is put with the largest one that is gone, and so on. A program whose name
    the baseline has is not new here: it is compared with those.
    """
    names = by_name(baseline)
    known = {i for i, p in enumerate(programs.programs) if platform_and_name(p) in names}
    old = _by_platform(baseline, gone(baseline, found))
    new = _by_platform(programs, (i for i in range(len(programs)) if i not in known and i not in found))
    return {b: a for platform, rows in new.items() for b, a in zip(rows, old.get(platform, ()), strict=False)}


def _by_platform(side: Programs, numbers: Iterable[int]) -> dict[str | None, list[int]]:
    """Return the numbers of programs by platform, largest first."""
    by_platform: dict[str | None, list[int]] = {}
    for i in sorted(numbers, key=lambda i: -(side[i].device_total or 0)):
        by_platform.setdefault(side[i].platform, []).append(i)
    return by_platform


def _of_platform(side: Programs, platform: str | None) -> Selected:
    return Selected(side, [i for i, p in enumerate(side.programs) if p.platform == platform])


def _ambiguous_names(pairing: Pairing) -> set[str]:
    """Return the names of which the sides have different numbers of programs that nothing else identifies."""
    sure = {a: p.b for a, p in pairing.pairs.items() if p.how != "name"}
    paired = (set(sure), set(sure.values()))
    left = [
        Counter(_name(p) for i, p in enumerate(side.programs) if i not in done)
        for side, done in zip((pairing.a, pairing.b), paired, strict=True)
    ]
    return {name for name in left[0].keys() & left[1].keys() if left[0][name] != left[1][name]}


def _name(program: ProgramEntry) -> str:
    return without_counters(program.module_name or "")
