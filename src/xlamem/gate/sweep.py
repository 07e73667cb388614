"""`sweep`: what a program needs for each value of a parameter, and the largest value that fits a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ..compute import Fits, available, device_total, fits
from ..dump import Dump
from ..errors import UsageError
from ..formatting import size
from .ahead import compile_ahead, lower
from .programs import main_peak

if TYPE_CHECKING:
    from ..display import View

OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""How the errors of XLA begin for a program that needs more memory than there is."""

Values = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Sweep:
    """What programs need over the values of parameters."""

    table: pa.Table
    """One row per program: the parameters, `device_total` and the `peak` of the main memory in bytes, `fits` (null if
    not known), and the `error` of a compile that ran out of memory."""
    parameters: tuple[str, ...]
    """Names of the parameters."""
    values: tuple[tuple[Any, ...], ...]
    """Values of the parameters, by row."""
    dumps: tuple[Dump | None, ...]
    """Dumps by row; None if XLA wrote none before it ran out of memory."""
    available: int | None = None
    """Bytes that a program may use; None without a device or capacity."""
    device: str | None = None

    @property
    def largest(self) -> Any:
        """The largest value known to fit, as compiled: smaller values need not fit. None if none is known to fit.

        With several parameters, the tuple of values that is largest, compared in the order of the parameters. Raises
        UsageError if the values have no order.
        """
        fitting = [v for v, fit in zip(self.values, self.table["fits"].to_pylist(), strict=True) if fit]
        try:
            largest = max(fitting, default=None)
        except TypeError as error:
            raise UsageError(f"the values of {', '.join(self.parameters)} have no order") from error
        return largest[0] if largest is not None and len(largest) == 1 else largest

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import View, fields  # not needed to compute
        from ..display.tables import TableGrid

        grid = TableGrid(_with_short_errors(self.table), self.table.num_rows)
        if self.available is None:
            return View("xlamem.Sweep", (grid,))
        memory = size(self.available) + (f" of {self.device}" if self.device else "")
        return View("xlamem.Sweep", (grid, fields([("available", memory), ("largest", self._largest())])))

    def _largest(self) -> str:
        """Return the largest value in words."""
        try:
            largest = self.largest
        except UsageError as error:
            return str(error)
        if largest is None:
            return "none is known to fit"
        values = largest if len(self.parameters) > 1 else (largest,)
        return ", ".join(f"{name}={value!r}" for name, value in zip(self.parameters, values, strict=True))


class _Row(NamedTuple):
    dump: Dump | None
    error: Exception | None
    fits: bool | None


def sweep(
    make: Callable[..., Any],
    *,
    topology: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    capacity: int | str | None = None,
    device: str | None = None,
    resident: int | str = 0,
    fraction: float = 1.0,
    **parameters: Iterable[Any],
) -> Sweep:
    """Compile a program for each value of a parameter, and return a table of what each needs.

    >>> def make(batch):
    ...     return step, state, jax.ShapeDtypeStruct((batch, 1024), "int32")
    >>> xlamem.sweep(make, batch=[8, 16, 32], topology="v5e:2x2").largest

    Nothing is executed, so the arguments may be shapes, and the device need not be there. A program that runs out of
    memory when it is compiled is a row as the others are; other errors propagate.

    Parameters
    ----------
    make
        Function of the parameters, which are passed by name. It returns what is compiled: a function and its arguments
        as a tuple, or what ``jax.jit(f).lower(…)`` returned.
    parameters
        Values of each parameter; with several parameters, all combinations are compiled.
    topology, compiler_options
        As for `xlamem.of`.
    capacity, device, resident, fraction
        Memory that the programs are compared with, as for `xlamem.fits`. By default that of the `topology`, if it is
        given by name; without any, `fits` is null.

    Raises
    ------
    UsageError
        There are no values, or not a list of them; `make` returns something else; or as for `xlamem.of` and
        `xlamem.fits`.
    """
    if capacity is None and device is None and isinstance(topology, str):
        device = topology.partition(":")[0]
    memory = {"capacity": capacity, "device": device, "resident": resident, "fraction": fraction}
    room = None if capacity is None and device is None else available(capacity, device, resident, fraction)
    names = tuple(parameters)
    combinations = list(product(*(_values(name, values) for name, values in parameters.items())))
    if not names or not combinations:
        raise UsageError("sweep needs values of at least one parameter, such as batch=[8, 16, 32]")
    rows = []
    for values in combinations:
        dump, error = _compile(make, dict(zip(names, values, strict=True)), topology, compiler_options)
        verdict = fits(dump, **memory) if dump is not None and room is not None else None  # type: ignore[arg-type]
        rows.append(_Row(dump, error, _known_to_fit(verdict, error)))
    table = _table(names, combinations, rows)
    name = room.device.name if room is not None and room.device else None
    return Sweep(table, names, tuple(combinations), tuple(r.dump for r in rows), room and room.bytes, name)


def _values(name: str, values: Iterable[Any]) -> Iterable[Any]:
    """Return the values of a parameter. Raises UsageError for a single value."""
    try:
        several = not isinstance(values, str) and iter(values)
    except TypeError:
        several = False
    if not several:
        raise UsageError(f"sweep needs a list of values such as {name}=[8, 16, 32], not {name}={values!r}")
    return several


def _compile(
    make: Callable[..., Any], values: Values, topology: Any, options: Mapping[str, Any] | None
) -> tuple[Dump | None, Exception | None]:
    """Compile the program for these values. Errors other than those of memory propagate."""
    function, *args = made if isinstance(made := make(**values), tuple) and made else (made,)
    dump, error = compile_ahead(lower(function, tuple(args), {}, topology), options)
    if error is not None and OUT_OF_MEMORY not in str(error):
        raise error
    if error is None and dump is None:
        raise UsageError("XLA wrote no dump of the program: this backend does not follow xla_dump_to")
    return dump, error


def _known_to_fit(verdict: Fits | None, error: Exception | None) -> bool | None:
    """Return whether a program fits. One that was not compiled never does, even if its buffers alone would fit."""
    if verdict is None:
        return None
    return None if error is not None and verdict.fits else verdict.fits


def _table(names: tuple[str, ...], values: list[tuple[Any, ...]], rows: list[_Row]) -> pa.Table:
    columns = {name: _array([v[i] for v in values]) for i, name in enumerate(names)}
    dumps = [row.dump for row in rows]
    columns["device_total"] = pa.array([None if d is None else device_total(d) for d in dumps], pa.int64())
    columns["peak"] = pa.array([None if d is None else main_peak(d)["peak"] for d in dumps], pa.int64())
    columns["fits"] = pa.array([row.fits for row in rows], pa.bool_())
    columns["error"] = pa.array([None if r.error is None else str(r.error) for r in rows], pa.string())
    return pa.table(columns)


def _with_short_errors(table: pa.Table) -> pa.Table:
    """Return the table for people, to whom the message of XLA says no more than that memory ran out."""
    errors = ["out of memory" if is_error else None for is_error in table["error"].is_valid().to_pylist()]
    return table.drop_columns(["error"]).append_column("error", pa.array(errors, pa.string()))


def _array(values: list[Any]) -> pa.Array:
    """Return the values of a parameter as a column: as text if Arrow has no type for them."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([str(value) for value in values])
