"""One job: read the dumps of a batch and write its Parquet files. Runs in a worker, wherever that is.

`process` is a pure function of its job but for the files it writes: only paths go in, only a row of the
manifest comes out.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from .. import schema
from ..compute.columns import Ints, ints
from ..errors import DumpError, OutputError, XlaMemError, utf8
from ..input.find import Source, split_modules
from ..input.text import is_one_module
from ..parse.arrow import Codes, Pool, joined, row_of
from ..parse.join import Whole, tables_of
from ..parse.reader import PART_OF
from ..parse.stream import pieces
from .derived import derive
from .large import COUNTED_TABLE, INTEGER_COLUMNS, IntegerColumns, LargePeaks, large_peaks
from .ledger import Batch, File
from .merged import DERIVED_FROM, DumpSet
from .parquet import Sink, owned, release
from .spill import Scratch, Spill
from .storage import Place

CHUNK = 4 << 20
"""Bytes of text that are read, and written, together."""
HUGE = 256 << 20
"""A dump with more bytes of text than this is read in pieces."""
LAST = np.iinfo(np.int64).max
"""Above every id."""
DERIVED = frozenset(schema.DERIVED) - {"labels"}


@dataclass(frozen=True)
class Options:
    """What a run does to every dump."""

    dest: str
    tables: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    partition: tuple[str, ...] = ()
    """Labels that are part of the path."""
    top: int = 20
    tool_version: str = ""
    run_id: str = ""
    host: str = ""
    started: datetime | None = None

    @property
    def folder(self) -> str:
        """What stands between a table's folder and its files."""
        from urllib.parse import quote

        values = dict(self.labels)
        parts = (f"{quote(k, safe='')}={quote(values[k], safe='')}" for k in self.partition)
        return "/".join([f"schema=v{schema.VERSION}", *parts])


@dataclass(frozen=True)
class Fault:
    """A dump that could not be read: a row of `quarantine`."""

    dump_id: str
    name: str
    uri: str
    error: str
    line: int | None = None
    offset: int | None = None
    excerpt: str = ""
    kind: str = "content"
    """content, or system: see the column of `quarantine`."""
    attempts: int = 1
    """Runs that failed, this one included."""
    identified: bool = True
    """Whether its content could be had, and its dump_id is of that; else it is of the place."""


@dataclass(frozen=True)
class Item:
    """A dump of a job."""

    dump_id: str
    source: Source
    bytes: int
    """Size of its text."""
    attempts: int = 0
    """Runs before that failed."""


@dataclass(frozen=True)
class Job:
    """A batch to be written."""

    batch: str
    items: tuple[Item, ...]
    options: Options
    faults: tuple[Fault, ...] = ()
    """What is known to be unreadable already."""
    old: Batch | None = None
    """A batch that holds these dumps as they were stored before: what else it holds is kept."""
    careful: bool = False
    """Leave word of which dump is being read, for whoever finds the worker dead."""

    @property
    def bytes(self) -> int:
        return sum(i.bytes for i in self.items)


@dataclass(frozen=True)
class Done:
    """What came of a job: a row of the manifest."""

    batch: str
    files: tuple[File, ...]
    dumps: tuple[str, ...]
    faults: tuple[Fault, ...]
    changed: tuple[str, ...] = ()
    """Names of dumps that are no longer what they were when the run began."""
    cut: tuple[str, ...] = ()
    bytes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Rows by table."""
    kept: Batch | None = None
    """What is left of the batch that this one replaces."""


# -- identity ------------------------------------------------------------------------------------


def dump_id(content: str, source: Source, options: Options) -> str:
    """XXH3-128 of the members' content, the name without timestamp, the labels and the partition."""
    name = source.name
    if source.timestamp_us is not None:
        name = name.replace(str(source.timestamp_us), "", 1)
    # Labels that are part of the path too make it another dump_id than the same labels alone.
    parts = (content, name, *(f"{k}={v}" for k, v in sorted(options.labels)), "/".join(options.partition))
    return xxhash.xxh3_128_hexdigest("\0".join(parts).encode("utf-8", "surrogateescape"))


def identify(sources: list[Source], options: Options) -> list[Item | Fault]:
    """The dump_id and the size of each dump, or why its text cannot be had."""
    return [one for source in sources for one in _identify(source, options)]


def _identify(source: Source, options: Options) -> list[Item | Fault]:
    try:
        texts = [member.load() for member in source.members]
        try:
            several = not is_one_module(texts[0].raw)
            hashes = [xxhash.xxh3_128_hexdigest(t.raw) for t in texts]
            size = sum(t.size for t in texts)
        finally:
            for text in texts:
                text.close()
        if several and len(parts := split_modules(source)) > 1:  # files put together under the name of one
            return identify(parts, options)
    except MemoryError:
        raise
    except Exception as error:  # one bad dump, or a bug that shows in it, stops nothing
        return [fault(error, source)]
    content = xxhash.xxh3_128_hexdigest("\n".join(hashes).encode())
    return [Item(dump_id(content, source, options), source, size)]


def label(source: Source) -> str:
    """The name by which people know a dump."""
    return source.name if source.place == "." else os.path.join(source.place, source.name)


def fault(error: BaseException, source: Source, identity: str = "", attempts: int = 1) -> Fault:
    """A row of `quarantine`; without an identity the place is one, together with what is wrong with the content."""
    system = error.system if isinstance(error, DumpError) else isinstance(error, (OSError, MemoryError))
    if isinstance(error, DumpError):
        uri, said = error.path, f"expected {error.wanted}" + (f" [{error.section}]" if error.section else "")
        row = Fault("", label(source), uri, said, error.line, error.offset, error.excerpt)
    else:
        known = isinstance(error, (XlaMemError, OSError, RuntimeError))
        said = str(error) if known else f"{type(error).__name__}: {error} (a bug of xlamem: please report it)"
        row = Fault("", label(source), source.members[0].place, utf8(said))
    row = replace(row, kind="system" if system else "content", attempts=attempts, identified=bool(identity))
    if not identity:
        parts = ("place", row.name) if system else (row.name, row.uri, row.error, str(row.offset))
        identity = xxhash.xxh3_128_hexdigest("\0".join(parts).encode())
    return replace(row, dump_id=identity)


# -- the job -------------------------------------------------------------------------------------


def process(job: Job) -> Done:
    """Read the dumps of a batch and write its files; nothing counts until the ledger says so."""
    place = Place(job.options.dest)
    lean = any(i.bytes > HUGE for i in job.items)
    sink = Sink(place, job.options.folder, job.batch, replace=bool(job.old), lean=lean, run_id=job.options.run_id)
    work = _Work(job, place, sink)
    try:
        with place.writing():
            work.run()
            files = tuple(sink.close())
            failed = {f.dump_id for f in work.faults}
            kept = keep(place, job.old, set(work.dumps), failed, job.options.run_id) if job.old else None
    except BaseException:
        sink.abandon()
        raise
    return Done(
        job.batch,
        files,
        tuple(work.dumps),
        tuple(work.faults),
        tuple(work.changed),
        tuple(work.cut),
        work.bytes,
        work.counts,
        kept,
    )


class _Work:
    """The state of a job."""

    def __init__(self, job: Job, place: Place, sink: Sink) -> None:
        self.job, self.place, self.sink = job, place, sink
        self.dumps: list[str] = []
        self.faults = list(job.faults)
        self.changed: list[str] = []
        self.cut: list[str] = []
        self.counts: dict[str, int] = {}
        self.bytes = 0

    def run(self) -> None:
        for items in _chunks(self.job.items):
            if len(items) == 1 and items[0].bytes > HUGE:
                self.huge(items[0])
            else:
                self.chunk(items)
        self.quarantine()

    # -- dumps that fit

    def chunk(self, items: list[Item]) -> None:
        """Dumps that are read, held and written together."""
        with _uncollected():
            read = self.read(items)
            self.say("")
            if read:
                self.write(read)

    def read(self, items: list[Item]) -> dict[str, Whole]:
        """What can be read, by dump_id."""
        found: dict[str, Whole] = {}
        for item in items:
            self.say(item.dump_id)
            try:
                dump = Whole(item.source)
            except MemoryError:
                raise
            except Exception as error:  # one bad dump, or a bug that shows in it, stops nothing
                self.faults.append(fault(error, item.source, item.dump_id, item.attempts + 1))
                continue
            if not self.same(item, dump.fact("content_hash")):
                continue
            found[item.dump_id] = dump
            self.dumps.append(item.dump_id)
            self.bytes += item.bytes
            if not dump.fact("complete"):
                self.cut.append(label(item.source))
        return found

    def same(self, item: Item, content: str | None) -> bool:
        """Whether the dump is still the one that was planned: it may have been written to meanwhile."""
        if dump_id(content or "", item.source, self.job.options) == item.dump_id:
            return True
        self.changed.append(label(item.source))
        return False

    def write(self, read: dict[str, Whole]) -> None:
        ids = list(read)
        together, counts = tables_of(list(read.values()))
        read.clear()
        dumps = DumpSet(ids, together, counts)
        texts = pa.array(ids, pa.string())
        for name, table in together.items():
            if name in self.job.options.tables:
                which = pa.array(dumps.dump_of_row[name].astype(np.int32))
                self.put(name, self.stored(name, table, pa.DictionaryArray.from_arrays(which, texts)))
        self.derived(dumps)
        self.labels(ids)

    def derived(self, dumps: DumpSet) -> None:
        wanted = DERIVED & set(self.job.options.tables)
        for name, table in derive(dumps, self.job.options.top).items() if wanted else ():
            if name in wanted:
                self.put(name, table)

    def stored(self, name: str, table: pa.Table, identity: pa.Array) -> pa.Table:
        """A table with its dump_id and, in `modules`, where it comes from."""
        columns = [identity]
        if name == "modules":
            columns += self.lineage(table.num_rows).values()
        return pa.table([*columns, *table.columns], names=schema.WAREHOUSE[name].arrow.names)

    def lineage(self, n: int) -> dict[str, pa.Array]:
        o = self.job.options
        types = schema.QUARANTINE.warehouse
        found = {
            "tool_version": o.tool_version,
            "schema_version": schema.VERSION,
            "run_id": o.run_id,
            "host": o.host,
            "converted_at": o.started,
        }
        return {name: pa.repeat(pa.scalar(value, types.field(name).type), n) for name, value in found.items()}

    def labels(self, ids: list[str]) -> None:
        labels = self.job.options.labels
        if labels and "labels" in self.job.options.tables:
            columns = [
                pa.array([i for i in ids for _ in labels], pa.string()),
                pa.array([k for k, _ in labels] * len(ids), pa.string()),
                pa.array([v for _, v in labels] * len(ids), pa.string()),
            ]
            self.put("labels", pa.table(columns, schema=schema.WAREHOUSE["labels"].warehouse))

    def put(self, name: str, table: pa.Table) -> None:
        self.counts[name] = self.counts.get(name, 0) + table.num_rows
        self.sink.add(name, table)

    # -- a dump that does not fit

    def huge(self, item: Item) -> None:
        """A dump that is read in pieces, twice: first the numbers that say what its peaks are made of."""
        self.say(item.dump_id)
        derived = DERIVED & set(self.job.options.tables)
        scratch = Scratch()
        try:
            known = self.numbers(item, scratch) if derived else None
            release()
            kept, rows = self.pieces(item, known, scratch)
            release()
        except (MemoryError, OutputError):
            raise
        except Exception as error:
            self.restart()
            self.faults.append(fault(error, item.source, item.dump_id, item.attempts + 1))
            return
        modules = kept["modules"]
        if not self.same(item, modules["content_hash"][0].as_py()):
            return self.restart()
        self.dumps.append(item.dump_id)
        self.bytes += item.bytes
        if not modules["complete"][0].as_py():
            self.cut.append(label(item.source))
        self.say("")
        if derived:
            self.derived(DumpSet.of_one(item.dump_id, kept, known and replace(known, instruction_row=rows)))
        self.labels([item.dump_id])

    def numbers(self, item: Item, scratch: Scratch) -> LargePeaks | None:
        found = IntegerColumns(scratch.empty)
        with found.spilled:
            for name, piece in pieces(item.source, {*INTEGER_COLUMNS, COUNTED_TABLE}, checks=False, empty=scratch.empty):
                if name != COUNTED_TABLE:
                    found.add(name, piece)
            release()
            return large_peaks(item.dump_id, found)

    def pieces(self, item: Item, known: LargePeaks | None, scratch: Scratch) -> tuple[dict[str, pa.Table], Ints]:
        """Write all tables; give those that `derive` needs, of the values that the peaks need, and `Needs.rows`."""
        needs = Needs(known.values if known else np.empty(0, np.int64))
        specs = {name: schema.TABLES[name].empty.select(columns).schema for name, columns in DERIVED_FROM.items()}
        with Spill(specs) as kept:
            before = ""
            matched = known.matched if known else None
            for name, piece in pieces(item.source, hashes=True, matched=matched, empty=scratch.empty):
                piece = owned(piece)
                if name in self.job.options.tables:
                    which = pa.array(np.zeros(len(piece), np.int32))
                    identity = pa.DictionaryArray.from_arrays(which, pa.array([item.dump_id]))
                    self.put(name, self.stored(name, piece, identity))
                if PART_OF.get(name) != PART_OF.get(before):  # a part is over: nothing more comes of its tables
                    for done in schema.TABLES:
                        if PART_OF.get(done) == PART_OF.get(before):
                            self.sink.flush(done)
                before = name
                if name in DERIVED_FROM:
                    kept.add(name, needs.of(name, piece))
            return kept.tables(), needs.rows()

    def restart(self) -> None:
        """Take back what was written so far: the dump alone makes up the batch."""
        self.sink.abandon()
        self.counts.clear()

    # -- what fails

    def say(self, reading: str) -> None:
        """Leave word of what is being read: who dies here may have died of it."""
        if self.job.careful:
            self.place.put(last_words(self.job.batch), reading.encode())

    def quarantine(self) -> None:
        if not self.faults:
            return
        spec = schema.QUARANTINE.warehouse
        columns = self.lineage(len(self.faults))
        columns |= {
            f.name: pa.array([getattr(fault, f.name) for fault in self.faults], f.type)
            for f in spec
            if f.name not in columns
        }
        self.put("quarantine", pa.table(columns).select(spec.names).cast(spec))


class Needs:
    """Which rows of a dump's tables its derived tables need: some values, their live ranges and instructions."""

    def __init__(self, values: Ints) -> None:
        self.values = np.append(np.unique(values), LAST)
        self.names = Pool()
        self.codes: dict[str, list[Codes]] = {"values": [], "instructions": []}
        self.live = False

    def rows(self) -> Ints:
        """The row in the instructions given of each value given."""
        values, instructions = (joined(codes, np.int32).astype(np.int64) for codes in self.codes.values())
        return row_of(instructions, values)

    def of(self, name: str, piece: pa.Table) -> pa.Table:
        """These rows of a piece, in the columns that are needed."""
        piece = piece.select(DERIVED_FROM[name])
        if name == "live_ranges":
            self.names = Pool()  # all instructions were there
        if name in ("values", "live_ranges"):
            ids = ints(piece, "value_id")  # of a range that no value has: -1
            rows = np.flatnonzero(self.values[np.searchsorted(self.values, ids)] == ids)
            if name == "live_ranges" and not self.live:  # that there are any counts too
                rows, self.live = np.union1d(rows, [0]), True
            piece = piece.take(pa.array(rows))
        elif name == "instructions":
            column = piece["instruction"].combine_chunks()
            code = self.names.find(column.dictionary)[column.indices.to_numpy()]
            piece = piece.filter(pa.array(code >= 0))
            self.codes[name].append(code[code >= 0])
        columns = [
            # What is left of a dictionary, not all of it.
            c.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(c.type) else c
            for c in piece.columns
        ]
        piece = pa.table(columns, schema=piece.schema)
        if name == "values":
            for chunk in piece["instruction"].chunks:
                code = self.names.find(chunk.dictionary, add=True)
                self.codes[name].append(code[chunk.indices.to_numpy()])
        return piece


def keep(place: Place, old: Batch, redone: Set[str], failed: Set[str], run_id: str) -> Batch | None:
    """What a batch holds besides the dumps that were read again: the same rows, in files of their own."""
    dumps = tuple(i for i in old.dumps if i not in redone)
    quarantined = tuple(i for i in old.quarantined if i not in redone | failed)
    if not dumps and not quarantined:
        return None
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    name = xxhash.xxh3_128_hexdigest("\0".join((old.name, *dumps, "", *quarantined)).encode())
    wanted = {True: pa.array(quarantined, pa.string()), False: pa.array(dumps, pa.string())}
    files: list[File] = []
    for file in old.files:
        folder = "/".join(file.path.split("/")[1:-1])
        sink = Sink(place, folder, name, first=len([f for f in files if f.table == file.table]), run_id=run_id)
        with pq.ParquetFile(place.path(file.path), filesystem=place.system) as parquet:
            for i in range(parquet.num_row_groups):
                table = parquet.read_row_group(i)
                table = table.filter(pc.is_in(table["dump_id"], wanted[file.table == "quarantine"]))
                sink.add(file.table, evolved(table, schema.WAREHOUSE[file.table].warehouse))
        files += sink.close()
    return replace(
        old,
        name=name,
        dumps=dumps,
        quarantined=quarantined,
        files=tuple(files),
        attempts={i: n for i, n in old.attempts.items() if i in quarantined},
        system=tuple(i for i in old.system if i in quarantined),
        places={i: place for i, place in old.places.items() if i in quarantined},
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Tables by the thousand are no garbage, and looking through them again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def last_words(batch: str) -> str:
    """The file in which a careful worker says which dump it is reading."""
    return f"_ledger/careful/{batch}"


def evolved(table: pa.Table, spec: pa.Schema) -> pa.Table:
    """A table of an older version in the columns of this one: what it did not have is null."""
    there = set(table.column_names)
    columns: list[Any] = [
        table[f.name].cast(f.type) if f.name in there else pa.nulls(table.num_rows, f.type) for f in spec
    ]
    return pa.table(columns, schema=spec)


def _chunks(items: tuple[Item, ...]) -> Iterator[list[Item]]:
    """Items whose texts make up about CHUNK bytes."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        if chunk and size + item.bytes > CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item.bytes
    if chunk:
        yield chunk
