"""Open the inputs of a command: dumps, one of several modules, or a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os.path import join
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import compute, schema
from ..dump import Dump, read
from ..errors import DumpError, UsageError
from ..formatting import count
from ..input.find import Source, find
from . import console

if TYPE_CHECKING:
    from ..warehouse import Dataset
    from . import documents

T = TypeVar("T")

ALL_SECTIONS = [t for t in schema.TABLES if t != "printed_stack"]
"""Tables from which the numbers, names and the state of a dump are computed: every section is read."""


class Failure(NamedTuple):
    """An input that could not be read."""

    name: str
    error: str

    def as_json(self) -> documents.Failure:
        return {"name": self.name, "error": self.error}


class Opened(NamedTuple):
    """An open dump or dataset, and the number of inputs that were skipped because they cannot be read."""

    source: Dump | Dataset
    n_skipped: int


class Program(NamedTuple):
    """A program: its numbers, its verdict if a capacity was given, and the problems of its dump."""

    overview: compute.Overview
    fits: compute.Fits | None
    problems: list[str]
    advice: Sequence[dict[str, Any]] = ()
    """Rows of `advice` that would make the program fit, if it does not, or nearly does not."""
    of_chip: compute.Fits | None = None
    """The verdict for the chip that the dump names, if no capacity was given and little of its memory is left."""


def compared(programs: Sequence[Program]) -> list[compute.Fits]:
    """Return the verdicts: those of programs for another platform than that of the device only if there are no others.

    Beside a program for a TPU, JAX compiles small ones for the CPU.
    """
    verdicts = [p.fits for p in programs if p.fits is not None]
    return [fits for fits in verdicts if not fits.other_platform] or verdicts


def path_of(source: Source) -> str:
    """Return the directory of a dump and the common stem of its files."""
    return join(source.location, source.name).removeprefix("./")


def read_each(sources: Iterable[Source], read_one: Callable[[Source], T]) -> tuple[list[T], list[Failure]]:
    """Read each dump; return the results, and the failures of dumps that cannot be read."""
    results, failures = [], []
    for source in sources:
        try:
            results.append(read_one(source))
        except (DumpError, OSError) as error:
            failures.append(Failure(path_of(source), str(error)))
    return results, failures


def report(failures: Iterable[Failure]) -> None:
    """Write each failure to stderr."""
    for failure in failures:
        console.error_about(failure.name, failure.error, console.UNREADABLE)


def open_dump(path: str, module: str | None, tables: Iterable[str] | None = None) -> Opened:
    """Open the dump at a path: the selected module, or else the one with the largest device_total."""
    if module is not None:
        return Opened(read(path, module=module, tables=tables), 0)
    sources = find(path)
    if len(sources) == 1:
        return Opened(read(sources[0], tables=tables), 0)
    largest, errors = compute.largest_program(sources)
    for error in errors:
        console.error(str(error), console.UNREADABLE)
    if largest is None:
        raise DumpError(path, "a readable dump")
    if (n := len(sources) - len(errors)) == 1:
        console.note(f"{largest.label} is the only module that can be read")
    else:
        readable = count(n, "readable module" if errors else "module")
        console.note(f"{largest.label} is the largest of {readable}; --module selects another")
    return Opened(read(largest, tables=tables), len(errors))


def open_source(path: str, module: str | None) -> Opened:
    """Open the dataset or the dump at a path."""
    from ..warehouse.dataset import Dataset, is_dataset  # imports pyarrow.dataset

    if not is_dataset(path):
        return open_dump(path, module)
    if module is not None:
        raise UsageError("--module selects a module of a dump, not of a dataset")
    return Opened(Dataset(path), 0)
