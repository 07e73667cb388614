"""List the programs of a directory, an archive or a dataset, largest first, without keeping any in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compare.account import levels
from ..compare.programs import stored_errors, stored_numbers
from ..compute.capacity import Fits
from ..compute.program import program
from ..compute.requirement import device_total
from ..compute.selection import program_size
from ..dump import Dump, read
from ..errors import DumpError, UsageError
from ..input.find import Source, find, split_modules
from ..warehouse import Dataset
from ..warehouse.dataset import is_dataset

Judge = Callable[[Dump], Fits]
"""Compares a program with the memory of a device."""

_MODULE = ("content_id", "module_name", "platform", "schedule_length", "complete", "program_fp", "interface_fp")


@dataclass(frozen=True)
class Summary:
    """What the table says of a program, taken from its first dump. Sizes are in bytes."""

    name: str
    path: str
    platform: str | None
    steps: int | None
    must_fit: int | None
    peak: int | None
    """Of the device's main memory; None without live ranges."""
    available: int | None
    """None if it was not compared with a device, as `fits`."""
    fits: bool | None
    complete: bool
    occurrences: int
    """Number of dumps with the same fingerprints."""


@dataclass(frozen=True)
class Listed(Summary):
    """A program that can be read."""

    read: Callable[[], Dump]
    other_platform: bool = False
    """Whether it is compiled for another platform than that of the device."""

    @property
    def size(self) -> int:
        """What the programs are ordered by."""
        return program_size(self.must_fit)


class Failed(NamedTuple):
    """A dump that cannot be read."""

    path: str
    error: str


@dataclass(frozen=True)
class Listing:
    """The programs, largest first, and the dumps that cannot be read."""

    programs: list[Listed]
    failed: list[Failed]

    @property
    def verdicts(self) -> set[bool | None]:
        """Whether the programs fit that were compared with a device."""
        return {p.fits for p in self.programs if p.available is not None}


def list_programs(path: str | os.PathLike[str] | Dataset, judge: Judge | None = None) -> Listing:
    """List the programs of a directory, an archive, a dataset, or anything else in which `find` finds dumps.

    Dumps of one program, which have the same fingerprints, are one program.

    Parameters
    ----------
    path
        The path, or the dataset.
    judge
        Compares each program with the memory of a device.

    Raises
    ------
    UsageError
        There is no dump.
    """
    if isinstance(path, Dataset):
        return _of_dataset(path, judge)
    if is_dataset(path):
        return _of_dataset(Dataset(path), judge)
    return list_sources(find(path), judge)


def list_sources(sources: Iterable[Source], judge: Judge | None = None) -> Listing:
    """List the programs of these dumps, each of which is read once."""
    failed: list[Failed] = []
    return _merged(_of_sources(sources, judge, failed), failed)


def _merged(dumps: Iterable[tuple[Hashable, Listed]], failed: list[Failed]) -> Listing:
    """Return the programs of dumps, of which those with the same key are one."""
    programs: dict[Hashable, Listed] = {}
    for key, dump in dumps:
        first = programs.get(key)
        programs[key] = replace(first, occurrences=first.occurrences + dump.occurrences) if first else dump
    found = sorted(programs.values(), key=lambda p: p.size, reverse=True)
    if not all(p.other_platform for p in found):  # then these are not compared with the device
        found = [replace(p, available=None) if p.other_platform else p for p in found]
    return Listing(found, failed)


# -- dumps in files ------------------------------------------------------------------------------


def _of_sources(
    sources: Iterable[Source], judge: Judge | None, failed: list[Failed]
) -> Iterator[tuple[Hashable, Listed]]:
    for number, source in enumerate(s for found in sources for s in split_modules(found)):
        try:
            dump = read(source, hashes=True)
            (module,) = dump.modules.to_pylist()
            fingerprints = module["program_fp"], module["interface_fp"]
            key = fingerprints if all(fingerprints) else module["content_hash"] or number
            yield key, _listed(source, dump, module, judge)
        except (DumpError, UsageError, OSError) as error:
            failed.append(Failed(_path_of(source), str(error)))


def _listed(source: Source, dump: Dump, module: dict[str, Any], judge: Judge | None) -> Listed:
    has_allocations = bool(dump.allocations.num_rows)
    fits = judge(dump) if judge else None
    return Listed(
        name=module["module_name"] or dump.name,
        path=_path_of(source),
        platform=dump.platform,
        steps=program(dump).steps if has_allocations else None,
        must_fit=device_total(dump),
        peak=_device_peak(dump) if has_allocations else None,
        available=None if fits is None else fits.available,
        fits=None if fits is None else fits.fits,
        other_platform=fits is not None and fits.other_platform,
        complete=bool(module["complete"]),
        occurrences=1,
        read=partial(read, source),
    )


def _device_peak(dump: Dump) -> int | None:
    p = program(dump)
    in_device = np.array([schema.in_device_memory(dump.platform, space.color) for space in p.spaces], bool)
    return None if p.steps is None else int(levels(p, in_device).max())


def _path_of(source: Source) -> str:
    """Return the directory of a dump and the common stem of its files."""
    return os.path.join(source.location, source.name).removeprefix("./")


# -- dumps in a dataset --------------------------------------------------------------------------


def _of_dataset(dataset: Dataset, judge: Judge | None) -> Listing:
    with dataset.damage_errors("modules", "peaks", "occurrences", "quarantine"):
        failed = [Failed(uri or identity, error or "") for identity, (uri, error) in stored_errors(dataset).items()]
        modules = dataset["modules"].to_table(columns=list(_MODULE))
        columns = {name: modules[name] for name in _MODULE}
        columns |= stored_numbers(dataset, modules["content_id"]) | _occurrences(dataset, modules["content_id"])
        rows = pa.table(columns).sort_by("path").to_pylist()
    return _merged(((_stored_key(row), _stored(dataset, row, judge)) for row in rows), failed)


def _occurrences(dataset: Dataset, ids: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return the first place of each of these dumps, and the number of places where it was found."""
    seen = dataset["occurrences"].to_table(columns=["content_id", "uri", "offset", "stem"])
    places = seen.group_by(["content_id", "uri", "offset", "stem"], use_threads=False).aggregate([])
    folders = pc.replace_substring_regex(places["uri"], r"[^/]*$", "")
    paths = places.append_column("path", pc.binary_join_element_wise(folders, places["stem"], ""))
    found = paths.group_by("content_id", use_threads=False).aggregate([("path", "min"), ("path", "count")])
    at = pc.index_in(ids, found["content_id"].combine_chunks())
    return {"path": found["path_min"].take(at), "occurrences": found["path_count"].take(at)}


def _stored_key(row: dict[str, Any]) -> Hashable:
    fingerprints = row["program_fp"], row["interface_fp"]
    return fingerprints if all(fingerprints) else row["content_id"]


def _stored(dataset: Dataset, row: dict[str, Any], judge: Judge | None) -> Listed:
    fits = judge(dataset.read(row["content_id"])) if judge else None
    path, steps = row["path"] or row["content_id"], row["schedule_length"]
    return Listed(
        name=row["module_name"] or os.path.basename(path),
        path=path,
        platform=row["platform"],
        steps=None if steps is None else steps + 1,
        must_fit=row["device_total"],
        peak=row["peak"],
        available=None if fits is None else fits.available,
        fits=None if fits is None else fits.fits,
        other_platform=fits is not None and fits.other_platform,
        complete=bool(row["complete"]),
        occurrences=row["occurrences"] or 1,
        read=partial(dataset.read, row["content_id"]),
    )
