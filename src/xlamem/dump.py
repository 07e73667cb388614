"""One dump: its tables, read when first asked for."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from . import errors, schema
from .errors import DumpError, UsageError
from .input.find import Source, resolve
from .parse.hashes import content_hash
from .parse.pieces import pieces
from .parse.sections import SECTION_OF
from .parse.summary import summaries
from .parse.whole import WholeReader

if TYPE_CHECKING:
    Input = str | os.PathLike[str] | bytes | BinaryIO | Source


class Dump:
    """What XLA wrote about one compiled module, as Arrow tables.

    Each table of `xlamem.schema` is an attribute (``dump.values``) and a key (``dump["values"]``): a
    `pyarrow.Table`, tokenised when first asked for and kept. A Dump never changes, may be used from many
    threads, and is pickled as the source that it was read from.
    """

    __slots__ = ("_cache", "_hashes", "_names", "_options", "_own", "_reading", "source")

    source: Source
    """Where it was read: its member files."""

    # The tables, for type checkers and completion; __getattr__ reads them.
    modules: pa.Table
    files: pa.Table
    allocations: pa.Table
    values: pa.Table
    cross_color: pa.Table
    positions: pa.Table
    uses: pa.Table
    instructions: pa.Table
    schedule: pa.Table
    live_ranges: pa.Table
    printed_peak: pa.Table
    printed_stack: pa.Table
    printed_report: pa.Table
    frames: pa.Table
    aliases: pa.Table
    diagnostics: pa.Table
    unknown_text: pa.Table

    def __init__(
        self,
        source: Source,
        tables: frozenset[str],
        *,
        text: bool = False,
        threads: int | None = None,
        hashes: bool = False,
    ) -> None:
        put = object.__setattr__
        put(self, "source", source)
        put(self, "_names", tables)
        put(self, "_options", {"text": text, "threads": threads, "hashes": hashes})
        put(self, "_reading", WholeReader(source, text=text, threads=threads))
        put(self, "_own", {})
        put(self, "_cache", {})  # what xlamem.compute has derived
        put(self, "_hashes", hashes)

    # -- tables ----------------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that this dump gives, in the schema's order."""
        return tuple(name for name in schema.TABLES if name in self._names)

    def _known(self, name: str) -> None:
        if name not in schema.TABLES:
            raise UsageError(f"no table {name!r}; there are {', '.join(schema.TABLES)}")
        if name not in self._names:
            raise UsageError(f"the table {name!r} was left out: tables={', '.join(self.tables)}")

    def __getitem__(self, name: str) -> pa.Table:
        self._known(name)
        return self._reading.table(name) if name in SECTION_OF else self._summary(name)

    def __getattr__(self, name: str) -> Any:
        if name in schema.TABLES:
            return self[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]

    @property
    def schedule_length(self) -> int | None:
        """Steps of the schedule as printed, None without live ranges. No table is read for it."""
        length: int | None = self._reading.schedule_length
        return length

    @property
    def platform(self) -> str | None:
        """tpu, gpu or cpu; None where the dump does not say. At most the allocations are read for it."""
        platform: str | None = self._reading.platform
        return platform

    def _numbers(self, name: str, *columns: str) -> list[Any]:
        """Columns of a table that hold integers (int64, null the least), without the rest of it."""
        self._known(name)
        found: list[Any] = self._reading.numbers(name, *columns)
        return found

    def _rows(self, name: str) -> int:
        """Rows of a table, which need not be asked for."""
        return int(self._reading.rows(name))

    def batches(self, table: str) -> pa.RecordBatchReader:
        """One table in bounded memory: read anew, span by span, as a stream of record batches.

        The batches hold the rows of ``self[table]`` in their order, in the schema's Arrow types; each has
        dictionaries of its own, and for text of the size of memory and more it is the way to go. What the dump
        needs besides is about 100 bytes per value. The reader is an Arrow C stream (``__arrow_c_stream__``), so
        that Polars, DuckDB and pyarrow's writers take it as it is. Only the sections that the table needs are
        tokenised (`modules`, `files` and `diagnostics` need those of all tables asked for).

        Raises UsageError for a table that is not there; DumpError comes with the first batch.
        """
        self._known(table)
        names = frozenset([table]) if table in SECTION_OF else self._names
        found = pieces(self.source, names, hashes=self._hashes, text=self._options["text"])
        batches = (batch for name, piece in found if name == table for batch in piece.to_batches())
        return pa.RecordBatchReader.from_batches(schema.TABLES[table].arrow, batches)

    def _summary(self, name: str) -> pa.Table:
        """modules, files or diagnostics: made of the tables asked for, all at once."""
        with self._reading.lock:
            if not self._own:
                hashes = [content_hash(f.text.raw) if self._hashes else None for f in self._reading.files]
                self._reading.read_and_check(self._names)
                self._own.update(summaries(self._reading, self._names, hashes))
            return self._own[name]

    def verify(self) -> pa.Table:
        """Read all of the dump, run every cross-check, and give the table `diagnostics`.

        An empty table means: every line was understood, nothing says that a file was cut, and XLA's own
        numbers agree with each other.
        """
        if self._names == frozenset(schema.TABLES):
            return self["diagnostics"]
        everything = Dump(self.source, frozenset(schema.TABLES), threads=self._options["threads"])
        return everything["diagnostics"]

    @property
    def complete(self) -> bool:
        """Whether nothing says that a file was cut (reads all tables asked for)."""
        return bool(self._summary("modules")["complete"][0].as_py())

    @property
    def name(self) -> str:
        """The stem of its files, or the name of the stream that it was in."""
        return self.source.name

    # -- Python ----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Dump cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Dump cannot be changed")

    def __reduce__(self) -> tuple[Callable[..., Dump], tuple[Any, ...]]:
        return _again, (self.source, self._names, self._options)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dump):
            return NotImplemented
        return (self.source, self._names, self._options) == (other.source, other._names, other._options)

    def __hash__(self) -> int:
        return hash((self.source, self._names))

    def __repr__(self) -> str:
        lines = [f"<xlamem.Dump {self.name}>"]
        lines += [f"  {label:<14}{text}" for label, text in self._facts()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html  # for notebooks only

        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for label, text in self._facts()
        )
        return f"<strong>xlamem.Dump {html.escape(self.name)}</strong><table>{cells}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        """Label and text of what a person wants to see first."""
        try:
            module, n = self._summary("modules").to_pylist()[0], self._summary("files").num_rows
        except errors.XlaMemError as e:
            return [("unreadable", str(e))]
        size = sum(self._summary("files")["bytes"].to_pylist())
        facts = [
            ("module", f"{module['module_name'] or '?'}  ({module['platform'] or 'platform unknown'})"),
            ("files", f"{n}, {size:,} bytes"),
        ]
        if module["total_bytes"] is not None:
            facts.append(("total", f"{module['total_bytes']:,} bytes allocated, as printed"))
        counts = [(t, module[f"n_{t}"]) for t in self.tables if module.get(f"n_{t}")]
        for i in range(0, len(counts), 3):
            facts.append(("rows" if i == 0 else "", ", ".join(f"{t} {c:,}" for t, c in counts[i : i + 3])))
        words = {"complete": "truncated", "understood": "not understood", "consistent": "not consistent"}
        states = [state if module[state] else wrong for state, wrong in words.items()]
        facts.append(("state", f"{', '.join(states)}; {module['n_diagnostics']} diagnostics"))
        return facts


def _again(source: Source, names: frozenset[str], options: dict[str, Any]) -> Dump:
    return Dump(source, names, **options)


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
        A `Source` from `find`; any member file of a dump (its siblings are joined), a stem, a directory,
        a tar or zip, a captured stream, a URI, ``"-"`` for standard input, bytes or a binary file object. Gzip,
        zstd, xz and bz2 are undone.
    module
        Which module, by number or name, where there are several.
    tables
        The tables wanted; all by default. Sections that fill none of them are not tokenised.
    text
        Fill `instructions.text` with each instruction verbatim.
    strict
        Read all at once and raise `DumpError` at the first line that was not understood, the first rule
        that does not hold, or where the text was cut.
    threads
        Threads that tokenise one file; by default as many as cores, at most 4.
    hashes
        Fill `files.content_hash` and `modules.content_hash`.

    Raises
    ------
    UsageError
        Arguments that make no sense; several modules and no `module`, with their list.
    DumpError
        A file that cannot be read at all, or, with `strict`, the first diagnostic.
    """
    names = frozenset(schema.TABLES) if tables is None else frozenset([tables] if isinstance(tables, str) else tables)
    if unknown := sorted(names - schema.TABLES.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; there are {', '.join(schema.TABLES)}")
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be 1 or more, not {threads}")
    if isinstance(source, io.TextIOBase):
        raise UsageError("the file object must be opened in binary mode")
    found = resolve(source, module=module)
    dump = Dump(found, names, text=text, threads=threads, hashes=hashes)
    if strict:
        first = dump.verify().slice(0, 1).to_pylist()
        if first:
            d = first[0]
            where = d["file"] or found.name
            raise DumpError(where, d["wanted"], d["section"], d["line"], None, d["offset"], d["excerpt"])
    return dump
