"""The class `Dump`: an immutable dump with lazily read tables; and `read`, which creates it."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, overload

import pyarrow as pa

from . import errors, schema
from .errors import DumpError, UsageError
from .formatting import count, exact_size, similar
from .input.find import Source, resolve
from .parse.arrays import Ints
from .parse.fingerprints import Fingerprints
from .parse.hashes import content_hash
from .parse.modules import is_one_module
from .parse.sections import SECTION_OF
from .parse.summary import summaries
from .parse.whole import WholeReader

if TYPE_CHECKING:
    from .display import View
    from .parse.hlo_body import HloBody

Input = str | os.PathLike[str] | bytes | BinaryIO | Source
"""The types that `read` accepts."""


class Tables(Protocol):
    """The tables of one dump, independent of their origin: the interface that computations need.

    It is implemented by dumps in text, dumps in Parquet, and several dumps combined. Implementations are
    thread-safe.
    """

    @property
    def name(self) -> str:
        """Name of the dump, for messages."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, in the schema's order."""
        ...

    @property
    def schedule_length(self) -> int | None:
        """Steps of the schedule as printed, None without live ranges. Reads no table."""
        ...

    @property
    def platform(self) -> str | None:
        """tpu, gpu or cpu; None if unknown. Reads at most the allocations."""
        ...

    @property
    def cache(self) -> dict[str, Any]:
        """Results that computations cache for this dump, for as long as the dump exists."""
        ...

    def __getitem__(self, name: str) -> pa.Table:
        """Return a table, read on first use. Raises UsageError if `name` is not one of `tables`."""
        ...

    def integers(self, name: str, *columns: str) -> list[Ints]:
        """Return integer columns of a table as int64, null as `parse.arrays.NULL`, without building the table."""
        ...

    def count_rows(self, name: str) -> int:
        """Return the number of rows of a table, whether or not it is one of `tables`."""
        ...


class DumpTables(Tables, Protocol):
    """The interface that a `Dump` needs in addition: its source, and reading tables in bounded memory.

    Implementations are compared and pickled by the identity of the dump, not by its content.
    """

    @property
    def source(self) -> Source:
        """The member files."""
        ...

    def table(self, name: str) -> pa.Table:
        """Return a table like `__getitem__`, and start to read the others, which users mostly request next."""
        ...

    def summary(self, name: str) -> pa.Table:
        """Return `modules`, `files`, `diagnostics` or `unknown_text`, whether or not it is one of `tables`."""
        ...

    def batches(self, name: str) -> pa.RecordBatchReader:
        """Return a table as a stream of record batches, in bounded memory."""
        ...

    def verify(self) -> pa.Table:
        """Return the diagnostics of every table and every cross-check."""
        ...


def check_table(name: str, available: Collection[str]) -> None:
    """Raise UsageError unless `name` is a table of the schema and one of those available."""
    if name not in schema.TABLES:
        raise UsageError(f"no table {name!r}; {similar([name], schema.TABLES)}")
    if name not in available:
        raise UsageError(f"the table {name!r} was left out: tables={', '.join(available)}")


@dataclass(unsafe_hash=True)
class TextTables:
    """The tables of a dump in text. The first table requested from a section tokenises that section."""

    source: Source
    requested: frozenset[str]
    """Names of the tables."""
    text: bool = False
    threads: int | None = None
    hashes: bool = False

    def __post_init__(self) -> None:
        self.cache: dict[str, Any] = {}
        self.reader = WholeReader(self.source, text=self.text, threads=self.threads, tables=self.requested)
        self._summaries: dict[str, pa.Table] = {}

    def __reduce__(self) -> tuple[type[TextTables], tuple[Any, ...]]:
        return TextTables, (self.source, self.requested, self.text, self.threads, self.hashes)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(name for name in schema.TABLES if name in self.requested)

    @property
    def schedule_length(self) -> int | None:
        return self.reader.schedule_length

    @property
    def platform(self) -> str | None:
        return self.reader.platform

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self.requested:
            check_table(name, self.tables)
        return self.reader.table(name) if name in SECTION_OF else self.summary(name)

    def table(self, name: str) -> pa.Table:
        if name in self.requested and name in SECTION_OF:
            self.reader.read_ahead(name)
        return self[name]

    def integers(self, name: str, *columns: str) -> list[Ints]:
        check_table(name, self.tables)
        return self.reader.numbers(name, *columns)

    def count_rows(self, name: str) -> int:
        return self.reader.rows(name)

    def summary(self, name: str) -> pa.Table:
        with self.reader.lock:
            if not self._summaries:
                hashes = [content_hash(f.text.raw) if self.hashes else None for f in self.reader.files]
                self.reader.read_and_check(self.requested)
                fingerprints = self._fingerprints() if self.hashes else None
                self._summaries.update(summaries(self.reader, self.requested, hashes, fingerprints))
            return self._summaries[name]

    def _fingerprints(self) -> Fingerprints:
        fingerprints = Fingerprints()
        for name in self.requested.intersection(Fingerprints.TABLES):
            fingerprints.add(name, self.reader.table(name))
        return fingerprints

    def batches(self, name: str) -> pa.RecordBatchReader:
        from .parse.pieces import pieces  # for large dumps only

        check_table(name, self.tables)
        requested = frozenset([name]) if name in SECTION_OF else self.requested
        chunks = pieces(self.source, requested, hashes=self.hashes, text=self.text)
        batches = (batch for table, rows in chunks if table == name for batch in rows.to_batches())
        return pa.RecordBatchReader.from_batches(schema.TABLES[name].arrow, batches)

    def verify(self) -> pa.Table:
        if self.requested == frozenset(schema.TABLES):
            return self["diagnostics"]
        return TextTables(self.source, frozenset(schema.TABLES), threads=self.threads)["diagnostics"]


class _TableAttribute:
    """A table as a read-only attribute of `Dump`."""

    def __set_name__(self, owner: type[Dump], name: str) -> None:
        self.name = name
        self.__doc__ = f"One row per {schema.TABLES[name].row}."

    @overload
    def __get__(self, dump: None, owner: type[Dump]) -> _TableAttribute: ...
    @overload
    def __get__(self, dump: Dump, owner: type[Dump]) -> pa.Table: ...
    def __get__(self, dump: Dump | None, owner: type[Dump]) -> _TableAttribute | pa.Table:
        return self if dump is None else dump[self.name]


class Dump:
    """The memory dump of one compiled module, as Arrow tables.

    Each table of `xlamem.schema` is an attribute (``dump.values``) and a key (``dump["values"]``): a
    `pyarrow.Table`, tokenised on first use and then cached. A Dump is immutable and thread-safe, and is
    pickled as the source that it was read from.
    """

    __slots__ = ("_tables",)

    _tables: DumpTables

    modules = _TableAttribute()
    files = _TableAttribute()
    allocations = _TableAttribute()
    values = _TableAttribute()
    cross_color = _TableAttribute()
    positions = _TableAttribute()
    uses = _TableAttribute()
    instructions = _TableAttribute()
    schedule = _TableAttribute()
    live_ranges = _TableAttribute()
    printed_peak = _TableAttribute()
    printed_stack = _TableAttribute()
    printed_report = _TableAttribute()
    frames = _TableAttribute()
    aliases = _TableAttribute()
    flags = _TableAttribute()
    diagnostics = _TableAttribute()
    unknown_text = _TableAttribute()

    def __init__(self, tables: DumpTables) -> None:
        object.__setattr__(self, "_tables", tables)

    # -- tables ----------------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables of this dump, in the schema's order."""
        return self._tables.tables

    def __getitem__(self, name: str) -> pa.Table:
        return self._tables.table(name)

    def batches(self, table: str) -> pa.RecordBatchReader:
        """Return one table as a stream of record batches, in bounded memory.

        The dump is read again, span by span. The batches hold the rows of ``self[table]`` in the same order and with
        the schema's Arrow types; each batch has its own dictionaries. Use it for dumps that approach or exceed the
        size of memory: apart from the batches, reading takes about 100 bytes per value. The reader is an Arrow C
        stream (``__arrow_c_stream__``), which Polars, DuckDB and pyarrow's writers accept. Only the sections that
        the table needs are tokenised (`modules`, `files` and `diagnostics` need those of every requested table).

        Raises UsageError for an unknown table, and DumpError with the first batch.
        """
        return self._tables.batches(table)

    def verify(self) -> pa.Table:
        """Read the entire dump, run every cross-check, and return the table `diagnostics`.

        An empty table means that every line was understood, no file is known to be truncated, and XLA's own numbers
        agree with each other.
        """
        return self._tables.verify()

    # -- facts -----------------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        """The member files that the dump was read from."""
        return self._tables.source

    @property
    def name(self) -> str:
        """The stem of its files, or the name of the stream that contained it."""
        return self._tables.name

    @property
    def platform(self) -> str | None:
        """tpu, gpu or cpu; None if the dump does not say. Reads at most the allocations."""
        return self._tables.platform

    @property
    def schedule_length(self) -> int | None:
        """Steps of the schedule as printed, None without live ranges. Reads no table."""
        return self._tables.schedule_length

    @property
    def complete(self) -> bool:
        """Whether no file is known to be truncated. Reads every requested table."""
        return bool(self._tables.summary("modules")["complete"][0].as_py())

    # -- Python ----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Dump cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Dump cannot be changed")

    def __reduce__(self) -> tuple[type[Dump], tuple[DumpTables]]:
        return Dump, (self._tables,)

    def __eq__(self, other: object) -> bool:
        return self._tables == other._tables if isinstance(other, Dump) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._tables)

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from .display import View, fields  # not needed to read

        return View(f"xlamem.Dump {self.name}", (fields(_overview(self._tables)),))


def _overview(tables: DumpTables) -> list[tuple[str, str]]:
    """Return the lines of a dump's repr: label and text."""
    try:
        module, files = tables.summary("modules").to_pylist()[0], tables.summary("files")
    except errors.XlaMemError as error:
        return [("unreadable", str(error))]
    lines = [
        ("module", f"{module['module_name'] or '?'}  ({module['platform'] or 'platform unknown'})"),
        ("files", f"{count(files.num_rows, 'file')}, {exact_size(sum(files['bytes'].to_pylist()))}"),
    ]
    if module["total_bytes"] is not None:
        lines.append(("total", f"{exact_size(module['total_bytes'])} in all memory spaces, as printed"))
    counts = [f"{name} {module[f'n_{name}']:,}" for name in tables.tables if module.get(f"n_{name}")]
    for i in range(0, len(counts), 3):
        lines.append(("rows" if i == 0 else "", ", ".join(counts[i : i + 3])))
    states = ", ".join(state if module[state] else negation for state, negation in schema.PROBLEMS.items())
    return [*lines, ("state", f"{states}; {count(module['n_diagnostics'], 'diagnostic')}")]


DumpLike = Input | Dump | Tables
"""The types that computations accept: a Dump, other `Tables`, or anything that `read` accepts."""

_TABLES_METHODS = ("__getitem__", "integers", "count_rows")


def as_tables(dump: DumpLike) -> Tables:
    """Return the tables of a Dump, `Tables` unchanged, and for anything else the tables of the Dump that is read."""
    if isinstance(dump, Dump):
        return dump._tables
    if all(hasattr(type(dump), method) for method in _TABLES_METHODS):
        return dump  # type: ignore[return-value]  # mypy does not narrow by attributes
    return read(dump)._tables  # type: ignore[arg-type]


def hlo_body(tables: Tables) -> HloBody | None:
    """Return the instructions of the HLO text beside a dump, which is scanned on first use.

    None if there is no HLO text, or if the tables are not those of a dump in text. Raises DumpError if the file cannot
    be read.
    """
    if not isinstance(tables, TextTables):
        return None
    from .parse.hlo_body import read_body  # for few dumps only

    with tables.reader.lock:
        if "hlo_body" not in tables.cache:
            tables.cache["hlo_body"] = read_body(tables.reader)
    body: HloBody | None = tables.cache["hlo_body"]
    return body


def read(
    source: Input,
    *,
    module: int | str | None = None,
    tables: Iterable[str] | None = None,
    text: bool = False,
    strict: bool = False,
    threads: int | None = None,
    hashes: bool = False,
) -> Dump:
    """Read one dump.

    Parameters
    ----------
    source
        A `Source` from `find`; any member file of a dump (its siblings are read too), a stem, a directory,
        a tar, a captured stream, a URI, ``"-"`` for standard input, bytes or a binary file object. Gzip,
        zstd, xz and bz2 are decompressed.
    module
        Number or name of the module, if there are several. The number is the `module_id`, which file names contain; if
        it is missing or not unique, the position in the order of `find`.
    tables
        Names of the tables to read; all by default. Sections that fill none of them are not tokenised. Name them if
        you need few: the first one that is requested makes other threads scan the rest, and `values` waits for the
        used values, which say whether `uses_known`.
    text
        Fill `instructions.text` with the verbatim text of each instruction.
    strict
        Read everything at once and raise `DumpError` for the first diagnostic: a line that was not understood, a
        failed cross-check, or truncated text.
    threads
        Number of threads that tokenise one file; by default the number of cores, at most 4.
    hashes
        Fill `files.content_hash`, and `content_hash`, `program_fp` and `interface_fp` of `modules`.

    Raises
    ------
    UsageError
        The arguments contradict each other, or `module` is needed to select one of several modules, which the
        message lists.
    DumpError
        The file cannot be read at all, or, with `strict`, the first diagnostic.
    """
    requested = _requested(tables)
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be 1 or more, not {threads}")
    if isinstance(source, io.TextIOBase):
        raise UsageError("the file object must be opened in binary mode")
    resolved = resolve(source, module=module, is_one=is_one_module)
    dump = Dump(TextTables(resolved, requested, text=text, threads=threads, hashes=hashes))
    if strict:
        for d in dump.verify().slice(0, 1).to_pylist():
            raise DumpError(
                d["file"] or resolved.name, d["wanted"], d["section"], d["line"], None, d["offset"], d["excerpt"]
            )
    return dump


def _requested(tables: Iterable[str] | None) -> frozenset[str]:
    if tables is None:
        return frozenset(schema.TABLES)
    names = frozenset([tables] if isinstance(tables, str) else tables)
    if unknown := sorted(names - schema.TABLES.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; {similar(unknown, schema.TABLES)}")
    return names
