"""Tables of other formats (Iceberg, Delta) in which a dataset is registered, and which follow its ledger.

``_ledger/registered/<format>.json`` records where a dataset is registered. At the beginning and the end of each run and
command, before files are deleted, the files that each table names are compared with those of the ledger, and what
differs is added and removed in one commit of that table. So it does not matter how often this is repeated, and where a
run was killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .. import schema
from ..errors import OutputError, UsageError, XlaMemError
from .batch import File
from .state import State
from .storage import Storage

FOLDER = "_ledger/registered"
FORMATS = ("iceberg", "delta")
MAX_ATTEMPTS = 10
"""Number of attempts to change a table that others change at the same time."""
LAST = ("modules", "occurrences")
"""Tables that are updated after the others: readers find the rows of a dump by them."""
TABLES = (*(name for name in schema.WAREHOUSE if name not in LAST), *LAST)


class RegisteredTable(Protocol):
    """A table of another format, as of the time it was opened."""

    def files(self) -> Mapping[str, int]:
        """Return the sizes of its files by their paths relative to the dataset."""
        ...

    def replace(self, added: list[File], removed: list[str]) -> bool:
        """Add and remove files in one commit, unless the table was changed since it was opened; return whether."""
        ...


@dataclass(frozen=True)
class Target:
    """Where a dataset is registered."""

    format: str
    place: str = ""
    """Of Iceberg: CATALOG.NAMESPACE; the catalog in the folder of the dataset if empty."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return the target of ``iceberg``, ``iceberg:CATALOG.NAMESPACE`` or ``delta``."""
        name, colon, place = str(text).partition(":")
        if name not in FORMATS or (colon and (name != "iceberg" or not all(place.partition(".")))):
            raise UsageError(f"a dataset is registered as iceberg, iceberg:CATALOG.NAMESPACE or delta, not {text!r}")
        return cls(name, place)

    def __str__(self) -> str:
        return f"{self.format}:{self.place}" if self.place else self.format

    @property
    def name(self) -> str:
        """The name of the file that records it."""
        return f"{FOLDER}/{self.format}.json"

    def opened(self, storage: Storage) -> AbstractContextManager[Callable[[str], RegisteredTable]]:
        """Return a context manager of a function that opens a table by its name, and creates it if it is missing."""
        if self.format == "iceberg":
            from . import iceberg

            return iceberg.opened(storage, self.place)
        from . import delta

        return delta.opened(storage)


def registered(storage: Storage) -> list[Target]:
    """Return where a dataset is registered."""
    names = [name for name, _ in storage.files(FOLDER, recursive=False) if name.endswith(".json")]
    return [_target(storage, name) for name in names]


def _target(storage: Storage, name: str) -> Target:
    with storage.damage_errors(name, "where the dataset is registered"):
        return Target(**json.loads(storage.read(name) or b""))


def record_targets(storage: Storage, targets: Iterable[Target], state: State) -> None:
    """Record that a dataset is registered.

    Raises UsageError if it is registered in another catalog, has files of version 1, or if a library is missing.
    """
    there = {target.format: target for target in registered(storage)}
    for target in targets:
        if (other := there.get(target.format, target)) != target:
            file = storage.uri_of(other.name)
            raise UsageError(f"{storage.uri} is registered as {other}: delete {file} to change that")
        if state.old_batches:
            raise UsageError(f"{storage.uri} has files of xlamem 0.1: convert them with `xlamem dataset migrate`")
        if not storage.local and "#" in storage.uri:  # other libraries end the path there
            raise UsageError(f"{storage.uri} cannot be registered: there is a # in its path")
        if not storage.shared:
            raise UsageError(f"{storage.uri} is seen by this process only: other formats need a file system or a store")
        with _output_errors(storage, target), target.opened(storage):
            storage.write(target.name, json.dumps(vars(target)).encode())
            storage.sync([target.name])


@dataclass(frozen=True)
class Registered:
    """The tables of one format, after they have followed the ledger."""

    format: str
    tables: int
    files: int
    """Files that the tables name."""
    added: int
    """Files that were added, as they had been committed since."""
    removed: int
    """Files that were removed, as they had been replaced or dropped since."""


def follow(storage: Storage, refresh: Callable[[], State]) -> list[Registered]:
    """Give the registered tables the files that the ledger names. `refresh` returns its current state.

    Raises UsageError if a library is missing, and OutputError if a table cannot be changed.
    """
    return [_follow(storage, target, refresh) for target in registered(storage)]


def _follow(storage: Storage, target: Target, refresh: Callable[[], State]) -> Registered:
    counts = np.zeros(3, int)
    with _output_errors(storage, target), target.opened(storage) as open_table:
        for name in TABLES:
            counts += _follow_table(name, open_table, refresh)
    return Registered(target.format, len(TABLES), *counts.tolist())


def _follow_table(
    name: str, open_table: Callable[[str], RegisteredTable], refresh: Callable[[], State]
) -> tuple[int, int, int]:
    """Add and remove files until a table has those of the ledger. Return how many it has, and how many that were."""
    n_added = n_removed = 0
    for _ in range(MAX_ATTEMPTS):
        table = open_table(name)
        there = table.files()
        # After the table was opened, so that no file is removed that another run has committed and added meanwhile.
        wanted = {file.path: file for file in refresh().files(name)}
        removed = [path for path, size in there.items() if path not in wanted or wanted[path].bytes != size]
        added = [file for path, file in wanted.items() if path not in there]
        if not added and not removed:
            return len(wanted), n_added, n_removed
        if table.replace(added, removed):
            n_added, n_removed = n_added + len(added), n_removed + len(removed)
    raise OutputError(f"the table {name} is being changed by others again and again")


@contextmanager
def _output_errors(storage: Storage, target: Target) -> Iterator[None]:
    """Raise OutputError instead of the exceptions of a library."""
    try:
        yield
    except XlaMemError:
        raise
    except Exception as error:
        raise OutputError(
            f"cannot register {storage.uri} as {target} ({type(error).__name__}: {error}); what was committed to the "
            "dataset is kept, and the next run registers it"
        ) from error
