"""The programs of a directory, of several dumps, or of a dataset: each once, however many processes dumped it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import encoded
from ..dump import Dump, as_tables, read
from ..errors import DumpError, UsageError
from ..formatting import closest, similar
from ..input import names
from ..input.find import Source, find, split_modules
from ..parse.fingerprints import Fingerprints
from ..parse.join import ReadDump, tables_of
from ..warehouse import Dataset
from ..warehouse.dataset import is_dataset
from ..warehouse.derived import device_numbers
from ..warehouse.identity import loaded_id
from ..warehouse.merged import DumpSet
from ..warehouse.offsets import with_columns
from ..warehouse.stored_fingerprints import KNOWN_BY, can_be_known
from .doubts import PROVEN_BY, are_proven, doubt_of_numbers
from .quarantined import is_one_of, unloaded
from .sketches import COLUMNS, Sketches, no_sketches, sketches

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset

Path = str | os.PathLike[str]
Dumps = Path | Source | Dump | Dataset | tuple[Dataset | Path, Mapping[str, str]] | Sequence[Path | Source | Dump]
"""One side of a comparison: a directory or another path, a dump, a dataset, the dumps of a dataset that have some
labels, or a list of paths and dumps."""

CHUNK_BYTES = 4 << 20
"""Approximate amount of text in the dumps that are read together."""

_TABLES = ("modules", *Fingerprints.TABLES, "frames")
_MODULE = ("module_name", "module_id", "platform", "program_fp", "interface_fp", "content_hash")
DESCRIBED_BY = (*KNOWN_BY, *PROVEN_BY)
"""The columns of `modules` from which the problem of a dump follows."""
_NUMBERS = ("device_total", "device_peak")
_SHOWN = 10
"""Number of labels that an error lists."""


@dataclass(frozen=True)
class ProgramEntry:
    """A program of a side, described by its first dump."""

    row: int
    """Number of that dump."""
    id: str | None
    """Hash of its content; in a dataset, its id there."""
    uri: str | None
    module_name: str | None = None
    module_id: int | None = None
    platform: str | None = None
    program_fp: str | None = None
    interface_fp: str | None = None
    content_hash: str | None = None
    device_total: int | None = None
    """Bytes, like the peak; None if they are not known to be right (`doubts`)."""
    peak: int | None = None
    problem: str | None = None
    """Why program_fp or these numbers are not known."""
    readable: bool = True
    """Whether the dump could be read."""
    occurrences: int = 1

    @property
    def key(self) -> tuple[str | int | None, ...]:
        """Equal for two dumps of one program."""
        if self.program_fp and self.interface_fp:
            return self.program_fp, self.interface_fp
        if self.content_hash:
            return "content", self.content_hash
        return ("id", self.id) if self.id else ("row", self.row)


class Programs(ABC):
    """Programs in the order of compilation: by the number of the module, then by place.

    Dumps of one program in several folders, which are those of several processes, are one program. Within a folder each
    counts: different functions can have the same fingerprints, and then only one of them may change.
    """

    def __init__(self, dumps: Iterable[ProgramEntry]) -> None:
        in_folder: dict[Any, int] = {}
        programs: dict[Any, ProgramEntry] = {}
        for dump in sorted(dumps, key=lambda p: (p.module_id is None, p.module_id, p.row)):
            folder = dump.key, os.path.dirname(dump.uri or "")
            in_folder[folder] = in_folder.get(folder, 0) + 1
            key = dump.key, in_folder[folder]
            known = programs.get(key)
            programs[key] = replace(known, occurrences=known.occurrences + 1) if known else dump
        self.programs = list(programs.values())

    def __len__(self) -> int:
        return len(self.programs)

    def __getitem__(self, number: int) -> ProgramEntry:
        return self.programs[number]

    def folders(self) -> list[str]:
        """Return the folder of each program, relative to the one that contains all of them."""
        return relative_folders([(program.uri or "").rpartition("/")[0] for program in self.programs])

    @abstractmethod
    def sketches(self, numbers: Sequence[int]) -> Sketches:
        """Return the sketches of these programs."""

    @abstractmethod
    def read(self, number: int) -> Dump:
        """Return the first dump of a program. Raises DumpError if it cannot be read."""


def relative_folders(folders: Sequence[str]) -> list[str]:
    """Return folders relative to the one that contains all of them."""
    names = [folder.split("/") if folder else [] for folder in folders]
    shared = next((k for k, level in enumerate(zip(*names, strict=False)) if len({*level}) > 1), None)
    shared = min(map(len, names), default=0) if shared is None else shared
    return ["/".join(parts[shared:]) for parts in names]


def programs_of(dumps: Dumps | Programs) -> Programs:
    """Return the programs in a directory, a dataset or a list of dumps.

    A list may be empty. What cannot be read is a program with a `problem`.

    Raises
    ------
    UsageError
        There is no dump, or the dataset has no such label.
    """
    if isinstance(dumps, Programs):
        return dumps
    if isinstance(dumps, Dataset):
        return StoredPrograms(dumps, {})
    if isinstance(dumps, tuple) and len(dumps) == 2 and isinstance(dumps[1], Mapping):
        dataset = dumps[0] if isinstance(dumps[0], Dataset) else Dataset(dumps[0])
        return StoredPrograms(dataset, dumps[1])
    if isinstance(dumps, (str, os.PathLike)) and is_dataset(dumps):
        return StoredPrograms(Dataset(dumps), {})
    return FilePrograms(list(_sources(dumps)))


def _sources(dumps: Any) -> Iterator[Source | Dump]:
    if isinstance(dumps, (Source, Dump)):
        yield dumps
    elif isinstance(dumps, (str, os.PathLike)):
        yield from find(dumps)
    elif isinstance(dumps, Iterable) and not isinstance(dumps, (bytes, Mapping)):
        for item in dumps:
            yield from _sources(item)
    else:
        raise UsageError(f"not a directory, a dump, a dataset or a list of these: {dumps!r}")


class FilePrograms(Programs):
    """The programs of dumps in files, all of which are read, and of dumps that were read before."""

    def __init__(self, sources: Sequence[Source | Dump]) -> None:
        self.sources: list[Source | Dump] = []
        self._sketches: list[Sketches] = [no_sketches(0)]
        super().__init__(p for chunk in _chunks(sources) for p in self._read_chunk(chunk))
        self._all_sketches = np.concatenate(self._sketches)

    def sketches(self, numbers: Sequence[int]) -> Sketches:
        return self._all_sketches[[self.programs[i].row for i in numbers]]

    def read(self, number: int) -> Dump:
        source = self.sources[self.programs[number].row]
        return source if isinstance(source, Dump) else read(source)

    def _read_chunk(self, sources: Sequence[Source | Dump]) -> Iterator[ProgramEntry]:
        dumps = [pair for source in sources for pair in _read(source)]
        readable = [(s, d) for s, d in dumps if isinstance(d, ReadDump) and isinstance(s, Source)]
        described = iter(_described_files(readable))
        begin = len(self.sources)
        self.sources += [source for source, _ in dumps]
        made = no_sketches(len(dumps))
        for i, (source, dump) in enumerate(dumps):
            origin = source.source if isinstance(source, Dump) else source
            uri = origin.members[0].location
            if isinstance(dump, Exception):
                yield unreadable(begin + i, loaded_id(origin), uri, str(dump))
            else:
                columns, made[i] = next(described) if isinstance(dump, ReadDump) else dump
                yield ProgramEntry(row=begin + i, uri=uri, **columns)
        self._sketches.append(made)


Described = tuple[dict[str, Any], Any]
"""The fields of a program that come from its tables, and its sketch."""


def _described_files(dumps: Sequence[tuple[Source, ReadDump]]) -> list[Described]:
    if not dumps:
        return []
    tables, counts = tables_of([dump for _, dump in dumps], _TABLES)
    dump_set = DumpSet([str(i) for i in range(len(dumps))], tables, counts)
    return _described(dump_set, lambda i: read(dumps[i][0]))


def _described_dump(dump: Dump) -> Described:
    """Describe a dump from its own tables: its files may be gone, or others."""
    tables = {name: dump[name] for name in _TABLES}
    (module,) = tables["modules"].to_pylist()
    if module["program_fp"] is None and module["interface_fp"] is None:  # they are computed on request only
        fingerprints = Fingerprints()
        for name in Fingerprints.TABLES:
            fingerprints.add(name, tables[name])
        columns = fingerprints.columns([(module["module_name"], module["platform"])], [can_be_known(module)])
        arrays = {name: pa.array(items, pa.string()) for name, items in columns.items()}
        tables["modules"] = with_columns(tables["modules"], **arrays)
    (described,) = _described(DumpSet.of_one("0", tables), lambda _: dump)
    return described


def _described(dumps: DumpSet, dump: Callable[[int], Dump]) -> list[Described]:
    """Describe dumps, of which `dump` returns one for a closer look."""
    total, peak = device_numbers(dumps)
    owner = np.asarray(dumps.dump_of_row["instructions"], np.int64)
    rows = sketches(dumps.tables["instructions"].select(COLUMNS), owner, len(dumps.ids))
    modules = dumps.tables["modules"]
    columns = {"id": modules["content_hash"], **{name: modules[name] for name in (*_MODULE, *DESCRIBED_BY)}}
    columns |= known_numbers(columns, {"device_total": total, "peak": peak}, _doubts(modules, dump))
    return [(with_problem(row), sketch) for row, sketch in zip(pa.table(columns).to_pylist(), rows, strict=True)]


def _read(source: Source | Dump) -> Iterator[tuple[Source | Dump, ReadDump | Described | Exception]]:
    """Yield the dumps of a source, or the error for one that cannot be read."""
    if isinstance(source, Dump):
        try:
            yield source, _described_dump(source)
        except (DumpError, UsageError) as error:
            yield source, error
        return
    for module in split_modules(source):
        try:
            yield module, ReadDump(module)
        except (DumpError, UsageError) as error:
            yield module, error


def _chunks(sources: Sequence[Source | Dump]) -> Iterator[list[Source | Dump]]:
    """Split the dumps into lists with about CHUNK_BYTES of text."""
    chunk: list[Source | Dump] = []
    size = 0
    for source in sources:
        chunk.append(source)
        size += 0 if isinstance(source, Dump) else source.bytes_on_disk() or 0
        if size > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def with_problem(row: dict[str, Any], dataset: Dataset | None = None) -> dict[str, Any]:
    """Replace the columns DESCRIBED_BY and `doubt` of a dump, which is in a dataset or in files, by `problem`."""
    described, doubt = {name: row.pop(name) for name in DESCRIBED_BY}, row.pop("doubt")
    if doubt:
        row["problem"] = doubt
    elif not described["complete"] or row["program_fp"] is None:
        row["problem"] = _problem(described, row["id"], dataset)
    return row


def _doubts(modules: Mapping[str, Any], dump: Callable[[int], Dump]) -> pa.Array:
    """Return why the numbers of each complete dump may be wrong, null if they are known to be right."""
    is_open = pc.and_(pc.fill_null(modules["complete"], False), pc.invert(are_proven(modules)))
    doubts: list[str | None] = [None] * len(is_open)
    for i in np.flatnonzero(is_open.to_numpy()).tolist():
        try:
            doubt = doubt_of_numbers(as_tables(dump(i)))
            doubts[i] = f"it {doubt}".removeprefix("it is not known: ") if doubt else None
        except UsageError as error:  # a table is not stored
            doubts[i] = str(error)
    return pa.array(doubts, pa.string())


def _problem(module: dict[str, Any], identity: str | None, dataset: Dataset | None) -> str:
    """Return why the numbers or program_fp are not known."""
    if not module["complete"]:
        return "it is truncated"
    if dataset is None or not can_be_known(module)[0]:
        return "its used values or live ranges are missing"
    hint = "; `xlamem dataset migrate` adds it" if identity in dataset.old.contents else ""
    return f"its fingerprint is not stored{hint}"


class StoredPrograms(Programs):
    """The programs of a dataset that have some labels, and what could not be read."""

    def __init__(self, dataset: Dataset, labels: Mapping[str, str]) -> None:
        self.dataset = dataset
        table = _labeled(dataset.dumps(), labels)
        with dataset.damage_errors("peaks", "quarantine", "occurrences", "labels"):
            super().__init__(self._occurrences(table, labels))

    def sketches(self, numbers: Sequence[int]) -> Sketches:
        return stored_sketches(self.dataset, pa.array([self.programs[i].id for i in numbers], pa.string()))

    def read(self, number: int) -> Dump:
        program = self.programs[number]
        return read_stored(self.dataset, program.id, program.uri)

    def _occurrences(self, table: pa.Table, labels: Mapping[str, str]) -> Iterator[ProgramEntry]:
        numbers = stored_numbers(self.dataset, table["content_id"])
        columns = {"id": table["content_id"], "uri": table["uri"], "offset": table["offset"]}
        columns |= {name: table[name] for name in (*_MODULE, *DESCRIBED_BY)}
        columns |= known_numbers(columns, numbers, stored_doubts(self.dataset, columns))
        rows, errors = pa.table(columns).sort_by("uri").to_pylist(), stored_errors(self.dataset)
        lost = unloaded(self.dataset, runs_with(self.dataset, labels) if labels else None).to_pylist()
        rows += [{"id": row["content_id"], "uri": row["uri"], "complete": None} for row in lost]
        seen = set()
        for i, row in enumerate(rows):
            offset = row.pop("offset", None)
            if row["complete"] is None:
                program = without_module(i, row["id"], row["uri"], self.dataset, errors)
            else:
                program = ProgramEntry(row=i, **with_problem(row, self.dataset))
            place = program.key, program.uri, offset
            if program.uri is None or place not in seen:  # runs with several sets of labels may find a dump
                yield program
            seen.add(place)


def runs_with(dataset: Dataset, labels: Mapping[str, str]) -> pa.Array:
    """Return the runs that have all of these labels."""
    table = dataset["labels"].to_table()
    runs = table["run_id"].combine_chunks().unique()
    for key, value in labels.items():
        having = pc.filter(table, pc.and_(pc.equal(table["key"], key), pc.equal(table["value"], value)))
        runs = pc.filter(runs, pc.is_in(runs, having["run_id"].combine_chunks()))
    return runs


def known_numbers(modules: Mapping[str, Any], numbers: Mapping[str, Any], doubts: pa.Array) -> dict[str, Any]:
    """Return the numbers, null where the dump is not complete or in doubt, and the doubts.

    What is missing is not a decrease.
    """
    known = pc.and_(pc.fill_null(modules["complete"], False), pc.is_null(doubts))
    return {name: pc.if_else(known, column, None) for name, column in numbers.items()} | {"doubt": doubts}


def stored_doubts(dataset: Dataset, modules: Mapping[str, Any]) -> pa.Array:
    """Return why the numbers of each complete dump may be wrong, null if they are known to be right."""
    codes, ids = encoded(modules["id"])
    first = np.unique(codes, return_index=True)[1]
    rows = {name: pc.take(modules[name], pa.array(first)) for name in ("id", "complete", *PROVEN_BY)}
    return pc.take(_doubts(rows, lambda i: dataset.read(ids[i].as_py())), pa.array(codes))


Errors = Mapping[str, tuple[str | None, str | None]]


def stored_errors(dataset: Dataset) -> Errors:
    """Return the file and the error of each dump in quarantine, by id."""
    rows = dataset["quarantine"].to_table(columns=["content_id", "uri", "error"]).to_pylist()
    return {row["content_id"]: (row["uri"], row["error"]) for row in rows}


def without_module(row: int, identity: str, uri: str | None, dataset: Dataset, errors: Errors) -> ProgramEntry:
    """Return a dump without a row in `modules`: it could not be read, or the table is not stored."""
    if identity in dataset:
        return _named(row, identity, uri, "the table modules is not stored")
    return unreadable(row, identity, uri, errors.get(identity, (None, None))[1])


def stored_numbers(dataset: Dataset, ids: pa.ChunkedArray) -> dict[str, Any]:
    """Return `device_total` and `peak` of these dumps."""
    is_wanted = is_one_of("definition", _NUMBERS)
    peaks = dataset["peaks"].to_table(columns=["content_id", "definition", "bytes"], filter=is_wanted)
    out = {}
    for name, definition in zip(("device_total", "peak"), _NUMBERS, strict=True):
        rows = pc.filter(peaks, pc.equal(peaks["definition"], definition))
        out[name] = pc.take(rows["bytes"].combine_chunks(), pc.index_in(ids, rows["content_id"]))
    return out


def stored_sketches(dataset: Dataset, wanted: pa.Array) -> Sketches:
    """Return the sketches of the dumps with these ids."""
    ids = wanted.unique()  # a program that was compiled twice is stored once
    is_wanted = is_one_of("content_id", ids)
    with dataset.damage_errors("instructions"):
        rows = _instructions(dataset, ids.to_pylist()).to_table(columns=["content_id", *COLUMNS], filter=is_wanted)
    codes, stored = encoded(rows["content_id"])
    owner = np.asarray(pc.index_in(stored, ids).to_numpy(zero_copy_only=False), np.int64)[codes]
    return np.asarray(sketches(rows, owner, len(ids))[pc.index_in(wanted, ids).to_numpy()])


def _instructions(dataset: Dataset, ids: Iterable[str]) -> arrow_dataset.Dataset:
    """Return the table `instructions`, without files that have none of these dumps."""
    if dataset.old.batches:
        return dataset["instructions"]
    batches = {*dataset.state.stored.find(ids).values()}
    files = [f for name in sorted(batches) for f in dataset.state.batches[name].table_files("instructions")]
    return dataset.scan_files("instructions", files)


def read_stored(dataset: Dataset, content_id: str | None, uri: str | None = None) -> Dump:
    """Return a dump of a dataset. Raises DumpError if it could not be read."""
    if content_id is None or content_id not in dataset:
        raise DumpError(uri or dataset.storage.uri, "a dump that is stored; it is in quarantine")
    return dataset.read(content_id)


def unreadable(row: int, identity: str | None, uri: str | None, error: str | None) -> ProgramEntry:
    """Return a dump that could not be read."""
    return replace(_named(row, identity, uri, f"it cannot be read: {error or 'it is in quarantine'}"), readable=False)


def _named(row: int, identity: str | None, uri: str | None, problem: str) -> ProgramEntry:
    """Return a dump of which only the name of its file is known, which may contain the name of the module."""
    name = names.parse(os.path.basename(uri or ""))
    described = (name.module_name, name.module_id, name.platform) if name else (None, None, None)
    return ProgramEntry(row, identity, uri, *described, problem=problem)


def _labeled(dumps: pa.Table, labels: Mapping[str, str]) -> pa.Table:
    """Return the dumps with these labels."""
    for key, value in labels.items():
        column = f"label_{key}"
        if column not in dumps.column_names:
            raise no_such_key(key, [c.removeprefix("label_") for c in dumps.column_names if c.startswith("label_")])
        selected = pc.filter(dumps, pc.equal(dumps[column], value))
        if not selected.num_rows:
            raise no_such_value(key, value, pc.unique(dumps[column]).to_pylist())
        dumps = selected
    return dumps


def no_such_key(key: str, keys: Iterable[str]) -> UsageError:
    return UsageError(f"no dump has the label {key!r}; {similar(key, sorted(keys))}")


def no_such_value(key: str, value: str, values: Iterable[str | None]) -> UsageError:
    known = sorted(v for v in values if v is not None)
    shown = [*known[:_SHOWN], "…"] if len(known) > _SHOWN else known
    match = closest(value, known)
    return UsageError(f"no dump has {key}={value}; {similar(value, [match] if match else shown)}")
