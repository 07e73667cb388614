"""The batches that ledger entries add: dumps that were committed together, and their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class Lazy(Sequence[T_co]):
    """A sequence of known length whose items are loaded whenever they are needed."""

    def __init__(self, length: int, load: Callable[[], Sequence[T_co]]) -> None:
        self._length, self._load = length, load

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, item: int) -> T_co: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[T_co]: ...
    def __getitem__(self, item: int | slice) -> T_co | Sequence[T_co]:
        return self._load()[item]

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._load())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[list[Any]]]:
        return tuple, ([*self],)


@dataclass(frozen=True)
class File:
    """A Parquet file of a batch."""

    table: str
    path: str
    """Relative to the dataset."""
    rows: int
    bytes: int
    columns: int = 0
    """Number of columns; 0 if written by a version that did not record it."""


@dataclass(frozen=True)
class Batch:
    """Dumps that were committed together, and their files."""

    name: str
    dumps: Sequence[str]
    """The content_ids whose rows are in the files."""
    quarantined: tuple[str, ...]
    """The content_ids that have a row in `quarantine`."""
    files: Sequence[File]
    tool_version: str
    schema_version: int
    run_id: str
    tables: tuple[str, ...] = ()
    """The tables that were written."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of failed runs of each quarantined content_id; empty if written by a version that did not count them."""
    system: tuple[str, ...] = ()
    """The quarantined content_ids with a system failure, which the next run retries."""
    places: dict[str, str] = field(default_factory=dict)
    """Paths of quarantined dumps with content that could not be loaded, by content_id (a hash of the path)."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the occurrences, or of the run, in its files."""
    runs: tuple[str, ...] = ()
    """The run_ids that have a row in `runs`."""
    run_labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """Instead of `labels`, those of each run, if its files have occurrences of several runs."""
    merges: tuple[str, ...] = ()
    """In an entry: the batches that it replaces, and whose dumps it takes over."""
    merged_bytes: int = 0
    """Size of the files that were merged to those of this batch; 0 if it was not merged."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Hosts of those of `places` that are not URIs; empty if written by a version that did not record them."""

    @property
    def is_old(self) -> bool:
        """Whether version 1 wrote it: its ids are dump_ids, which depend on name and labels."""
        return self.schema_version < 2

    def has_labels(self, labels: Mapping[str, str]) -> bool:
        """Return whether it has occurrences with exactly these labels."""
        is_equal = labels in self.run_labels.values() if self.run_labels else self.labels == labels
        return is_equal and bool(self.table_files("occurrences"))

    def table_files(self, table: str) -> list[File]:
        """Return the files of one table."""
        return [file for file in self.files if file.table == table]

    def renamed(self, names: Mapping[str, str]) -> Batch:
        """Return the batch with new names of some of its files."""
        return replace(self, files=tuple(replace(file, path=names.get(file.path, file.path)) for file in self.files))

    def to_json(self) -> dict[str, Any]:
        """Return the batch as an entry of the ledger contains it."""
        files = [asdict(file) for file in self.files]
        return {**vars(self), "dumps": list(self.dumps), "files": files}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Batch:
        """Return the batch, ignoring fields that a later version added."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in data.items()
            if key in cls.__dataclass_fields__
        }
        if isinstance(fields["files"], tuple):
            names = File.__dataclass_fields__
            fields["files"] = tuple(File(**{k: v for k, v in file.items() if k in names}) for file in fields["files"])
            for file in fields["files"]:
                _check(vars(file), _TYPES_OF_FILE)
                if leaves_dataset(file.path):
                    raise ValueError(f"path is {file.path!r:.80}")
        _check(fields, _TYPES)
        return cls(**fields)


def leaves_dataset(path: str) -> bool:
    """Return whether a path could lead out of the dataset, to files that its readers did not mean to read."""
    return "/../" in f"/{path}"


_TYPES_OF_FILE = {"table": str, "path": str, "rows": int, "bytes": int, "columns": int}
_TYPES = {
    **dict.fromkeys(("name", "tool_version", "run_id"), str),
    **dict.fromkeys(("schema_version", "merged_bytes"), int),
    **dict.fromkeys(("dumps", "quarantined", "tables", "system", "runs", "merges"), Sequence),
    **dict.fromkeys(("attempts", "places", "labels", "run_labels", "hosts"), dict),
}


def _check(fields: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raise TypeError or ValueError if a damaged entry has other values in these fields, which are used later."""
    for name in fields.keys() & types.keys():
        value, wanted = fields[name], types[name]
        has_type = isinstance(value, wanted) and not (wanted is Sequence and isinstance(value, str))
        if not has_type:
            raise TypeError(f"{name} is {value!r:.80}")
        if wanted is int and not 0 <= value < 1 << 63:
            raise ValueError(f"{name} is {value!r:.80}")
        if wanted is not int and not isinstance(value, Lazy):
            "".join(value).encode()  # a lone surrogate cannot be encoded
