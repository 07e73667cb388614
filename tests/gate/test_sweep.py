"""What programs need over the values of a parameter."""

from __future__ import annotations

from typing import Any

import pytest
from with_jax import jax, jnp

import xlamem
from xlamem.errors import UsageError
from xlamem.gate import sweep as module


def double(rows: int, columns: int = 1024) -> tuple[Any, ...]:
    return (lambda x: x * 2), jax.ShapeDtypeStruct((rows, columns), "float32")


def test_a_row_for_each_value() -> None:
    result = xlamem.sweep(double, rows=[1, 2, 4], capacity="16KiB")
    assert result.table.to_pydict() == {
        "rows": [1, 2, 4],
        "device_total": [8192, 16384, 32768],
        "peak": [8192, 16384, 32768],
        "fits": [True, True, False],
        "error": [None, None, None],
    }
    assert result.largest == 2
    assert [xlamem.peak(dump).device_total for dump in result.dumps if dump] == [8192, 16384, 32768]


def test_the_largest_value_is_of_those_compiled_in_any_order() -> None:
    assert xlamem.sweep(double, rows=[4, 2, 1], capacity="16KiB").largest == 2
    assert xlamem.sweep(double, rows=[4], capacity="16KiB").largest is None
    assert xlamem.sweep(double, rows=[1], capacity="16KiB", resident="10KiB").largest is None


def test_needs_that_do_not_grow_with_the_value() -> None:
    """A smaller value need not fit."""
    result = xlamem.sweep(lambda rows: double(8 - rows), rows=[1, 7], capacity="16KiB")
    assert result.table["fits"].to_pylist() == [False, True]
    assert result.largest == 7


def test_without_a_device_nothing_is_said_about_fitting() -> None:
    result = xlamem.sweep(double, rows=[1, 2])
    assert result.table["fits"].to_pylist() == [None, None]
    assert result.largest is None
    assert "fits" not in repr(result)


def test_all_combinations_of_several_parameters() -> None:
    result = xlamem.sweep(double, rows=[1, 2], columns=[1024, 2048], capacity="16KiB")
    assert result.table.select(["rows", "columns", "fits"]).to_pylist() == [
        {"rows": 1, "columns": 1024, "fits": True},
        {"rows": 1, "columns": 2048, "fits": True},
        {"rows": 2, "columns": 1024, "fits": True},
        {"rows": 2, "columns": 2048, "fits": False},
    ]
    assert result.largest == (2, 1024)
    assert "largest    rows=2, columns=1024" in repr(result)


def test_values_that_arrow_does_not_know() -> None:
    """Such as functions; they have no order either."""
    functions = [jnp.sin, jnp.cos]
    result = xlamem.sweep(lambda f: (f, double(1)[1]), f=functions, capacity="1GiB")
    assert result.table["f"].to_pylist() == [str(f) for f in functions]
    with pytest.raises(UsageError, match="values of f have no order"):
        _ = result.largest
    assert "have no order" in repr(result)


def test_what_make_may_return() -> None:
    def lowered(rows: int) -> Any:
        function, x = double(rows)
        return jax.jit(function).lower(x)

    assert xlamem.sweep(lowered, rows=[2]).table["device_total"].to_pylist() == [16384]
    assert xlamem.sweep(lambda n: lambda: jnp.ones(n), n=[16]).table["peak"][0].as_py() >= 64
    with pytest.raises(UsageError, match="a function is needed, not int"):
        xlamem.sweep(lambda rows: rows, rows=[2])


@pytest.mark.parametrize("parameters", [{}, {"rows": []}, {"rows": [1], "columns": []}])
def test_without_values(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="values of at least one parameter"):
        xlamem.sweep(double, **parameters)


@pytest.mark.parametrize("value", [5, "5", None])
def test_a_single_value(value: Any) -> None:
    with pytest.raises(UsageError, match=rf"sweep needs a list of values such as batch=\[.*, not batch={value!r}"):
        xlamem.sweep(double, batch=value)


def test_an_unknown_device() -> None:
    with pytest.raises(UsageError, match=r"no device 'nope'.* give a capacity such as 16GiB$") as raised:
        xlamem.sweep(double, rows=[1], device="nope")
    assert "--" not in str(raised.value)


def test_errors_other_than_of_memory_propagate() -> None:
    def make(rows: int) -> tuple[Any, ...]:
        return (lambda x: x.reshape(7)), jax.ShapeDtypeStruct((rows,), "float32")

    with pytest.raises(TypeError, match="reshape"):
        xlamem.sweep(make, rows=[7, 8])


def test_a_program_that_was_not_compiled_is_never_known_to_fit() -> None:
    dump = xlamem.of(*double(1))
    error = RuntimeError("RESOURCE_EXHAUSTED: program code")
    assert module._known_to_fit(xlamem.fits(dump, capacity="1GiB"), error) is None
    assert module._known_to_fit(xlamem.fits(dump, capacity="1KiB"), error) is False
    assert module._known_to_fit(xlamem.fits(dump, capacity="1GiB"), None) is True
    assert module._known_to_fit(None, error) is None


def test_a_notebook_shows_a_table() -> None:
    assert "<td" in xlamem.sweep(double, rows=[1], device="v5e")._repr_html_()
