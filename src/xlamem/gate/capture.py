"""`capture`: the dumps of everything that JAX compiles in a block."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar, overload

import pyarrow as pa

from ..compute import device_total
from ..dump import Dump
from ..errors import UsageError, output_error
from ..formatting import count
from ..input.find import Source
from . import hook
from .programs import main_peak, program_name, read_program

if TYPE_CHECKING:
    from ..display import View

NOT_AGAIN = (
    "JAX does not compile a function again that it has compiled before for the same shapes: call jax.clear_caches() "
    "before the block, or use xlamem.of(function, *args)"
)
P = ParamSpec("P")
R = TypeVar("R")


class _Program(NamedTuple):
    dump: Dump
    of_jax: bool


class _Numbers(NamedTuple):
    """How many programs were captured and compiled when a block began."""

    captured: int = 0
    compiled: int = 0


_AT_FIRST = _Numbers()


class Capture(Sequence[Dump]):
    """The dumps of the programs that were compiled in a block, in the order of their compilation.

    A sequence of `Dump`, also by name: ``captured["jit_step"]`` or ``captured["step"]``. It grows while the block runs.
    """

    _place, _way_out = "the block", NOT_AGAIN
    """Where programs are captured, and what to do if a function is not compiled there."""

    def __init__(self, directory: str | None, match: str) -> None:
        self._directory, self._match = directory, match
        self._programs: list[_Program] = []
        self._n_compiled = 0
        self._error: Exception | None = None
        self._blocks: list[_Numbers] = []

    # -- the block -------------------------------------------------------------------------------

    def __enter__(self) -> Capture:
        self._begin()
        self._blocks.append(_Numbers(len(self._programs), self._n_compiled))
        return self

    def _begin(self) -> None:
        if self._directory is not None:
            _make_directory(self._directory)
        hook.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hook.remove(self)
        before = self._blocks.pop()
        if error is None:
            self.require(before)
        self._error = None

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function such that each call is captured. A call that compiles nothing may follow one that did."""

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self._begin()
            try:
                result = function(*args, **kwargs)
            finally:
                hook.remove(self)
            self.require()
            return result

        return call

    def require(self, before: _Numbers = _AT_FIRST) -> None:
        """Raise the error of a dump that could not be kept, or UsageError if there is no dump since the numbers."""
        failed, self._error = self._error, None
        if failed:
            raise failed
        if len(self._programs) == before.captured:
            raise UsageError(self._why_empty(self._n_compiled - before.compiled))

    def compiled(self, event: hook.Compile) -> None:
        """Keep the dumps of one compile."""
        self._n_compiled += 1
        for source in event.sources:
            if fnmatchcase(source.module_name or source.name, self._match):
                self._programs.append(_Program(read_program(self._keep(source)), event.of_jax))

    def failed(self, error: Exception) -> None:
        """Keep the first error of a dump that could not be read or written, for the end of the block."""
        self._error = self._error or error

    def _keep(self, source: Source) -> Source:
        return hook.in_memory(source) if self._directory is None else _copy(source, self._directory)

    def _why_empty(self, n_compiled: int) -> str:
        """Return why there is no dump."""
        if not n_compiled:
            return f"nothing was compiled in {self._place}. {self._way_out}"
        compiled = f"{count(n_compiled, 'program')} compiled in {self._place}"
        if self._match == "*":
            return f"XLA wrote no dump of the {compiled}: this backend does not follow xla_dump_to"
        return f"none of the {compiled} has a name like {self._match!r}. {self._way_out}"

    # -- the dumps -------------------------------------------------------------------------------

    @property
    def dumps(self) -> tuple[Dump, ...]:
        """All dumps, those of helpers too."""
        return tuple(p.dump for p in self._programs)

    @property
    def programs(self) -> tuple[Dump, ...]:
        """The dumps without those of helpers; all if there is nothing else."""
        return tuple(p.dump for p in self._programs if not p.of_jax) or self.dumps

    @property
    def dump(self) -> Dump:
        """The dump of the only program, helpers left out.

        Helpers are programs that JAX compiles for its own functions, such as ``jit_broadcast_in_dim`` for `jnp.ones`.
        Raises UsageError, which lists the programs, if there are several or none.
        """
        dumps = self.programs
        if len(dumps) == 1:
            return dumps[0]
        raise UsageError(
            f"{count(len(dumps), 'program')} captured: select one with ['NAME'], .largest or match=\n{_listing(dumps)}"
        )

    @property
    def largest(self) -> Dump:
        """The dump with the greatest `device_total`, the first of several. Raises UsageError without dumps."""
        if not self._programs:
            raise UsageError("no program captured")
        return max(self.dumps, key=lambda dump: device_total(dump) or 0)

    @overload
    def __getitem__(self, key: int | str) -> Dump: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Dump, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Dump | tuple[Dump, ...]:
        return self._named(key) if isinstance(key, str) else self.dumps[key]

    def __len__(self) -> int:
        return len(self._programs)

    def __iter__(self) -> Iterator[Dump]:
        return iter(self.dumps)

    def __contains__(self, key: object) -> bool:
        return bool(self._all_named(key)) if isinstance(key, str) else key in self.dumps

    def _all_named(self, name: str) -> list[Dump]:
        return [dump for dump in self.dumps if name in (program_name(dump), program_name(dump).removeprefix("jit_"))]

    def _named(self, name: str) -> Dump:
        found = self._all_named(name)
        if len(found) == 1:
            return found[0]
        if not found:
            raise UsageError(f"no program {name!r} was captured. {self._way_out}. Captured:\n{_listing(self.dumps)}")
        numbers = ", ".join(f"[{i}]" for i, dump in enumerate(self.dumps) if dump in found)
        raise UsageError(f"{name} was compiled {len(found)} times: select one with {numbers}")

    @property
    def table(self) -> pa.Table:
        """One row per dump: program, device_total and the peak of its main memory in bytes, whether it is a helper."""
        rows = [_row(p) for p in self._programs]
        return pa.Table.from_pylist(rows, schema=_TABLE)

    # -- Python ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import View  # not needed to capture
        from ..display.tables import TableGrid

        table = self.table
        return View(f"xlamem.Capture: {count(len(self), 'program')}", (TableGrid(table, len(table)),))


_TABLE = pa.schema(
    {
        "program": pa.string(),
        "device_total": pa.int64(),
        "peak": pa.int64(),
        "memory_space": pa.string(),
        "helper": pa.bool_(),
    }
)


def capture(*, dir: str | os.PathLike[str] | None = None, match: str = "*") -> Capture:  # noqa: A002
    """Capture the dumps of everything that JAX compiles in a block.

    >>> with xlamem.capture() as captured:
    ...     step(state, batch)
    >>> captured.dump

    The result is a context manager and a decorator (``@xlamem.capture(dir="dumps")``), and afterwards a sequence of
    `Dump` objects. The flags of the process do not matter, nor does JAX's persistent cache, which is neither read nor
    written in the block. Compiles in other threads are captured too. Blocks can be nested: each gets the dumps of what
    is compiled in it. If a compile fails because memory runs out, the dump that XLA has written is captured and the
    error propagates. When the block ends, nothing in JAX remains changed.

    Parameters
    ----------
    dir
        Directory for the files of the dumps that xlamem reads; it is created if it is missing. XLA numbers modules
        per process, so each process and run needs its own: no file is overwritten. By default they are kept in memory
        only, and such dumps cannot be pickled.
    match
        Glob of module names, such as ``"jit_train_*"``; other programs are left out.

    Raises
    ------
    UsageError
        JAX is missing or its version is not supported; or, at the end of the block, nothing was compiled, or nothing
        with a name that matches, or a file in `dir` exists.
    OutputError
        `dir` cannot be created; or, at the end of the block, a file could not be written.
    DumpError
        At the end of the block: a dump could not be read.
    """
    return Capture(None if dir is None else os.path.abspath(os.fsdecode(dir)), match)


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise output_error(path, error) from error


def _copy(source: Source, directory: str) -> Source:
    """Copy the files of a source to a directory and return the source there. Raises UsageError if one exists there."""
    try:
        members = tuple(replace(m, uri=_copy_file(m.uri, directory)) for m in source.members)
    except FileExistsError as error:
        raise UsageError(
            f"{error.filename} exists: a dump of another process or run, whose modules have the same numbers; give "
            "each its own dir"
        ) from None
    except OSError as error:
        raise output_error(directory, error) from error
    return replace(source, members=members)


def _copy_file(path: str, directory: str) -> str:
    copy = os.path.join(directory, os.path.basename(path))
    with open(path, "rb") as file, open(copy, "xb") as target:
        shutil.copyfileobj(file, target)
    return copy


def _listing(dumps: Sequence[Dump]) -> str:
    return "\n".join(f"  [{i}]  {program_name(dump)}" for i, dump in enumerate(dumps))


def _row(program: _Program) -> dict[str, object]:
    dump = program.dump
    total = device_total(dump)
    return {"program": program_name(dump), "device_total": total, **main_peak(dump), "helper": program.of_jax}
