"""Modules that pyarrow uses only if they are there, and that a command does not wait for."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

from xlamem import cli


def test_modules_are_hidden_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not afterwards: functions of a caller of `main` may import them."""
    before = [*sys.meta_path]
    with cli._optional_modules_hidden():  # pyarrow is there already
        assert sys.meta_path == before
    monkeypatch.delitem(sys.modules, "pyarrow")
    for error in ([], [KeyError]):
        with suppress(KeyError), cli._optional_modules_hidden():
            first, *others = sys.meta_path
            assert others == before
            for name in ("pandas", "dateutil", "cloudpickle"):
                with pytest.raises(ModuleNotFoundError):
                    first.find_spec(name, None)
            assert first.find_spec("json", None) is None
            for kind in error:
                raise kind
        assert sys.meta_path == before


def test_pyarrow_looks_for_them_while_they_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so with the first array, and not again."""
    calls = []

    def array(values: list[int]) -> None:
        with pytest.raises(ModuleNotFoundError):
            sys.meta_path[0].find_spec("pandas", None)
        calls.append(values)

    monkeypatch.delitem(sys.modules, "pyarrow")
    with cli._optional_modules_hidden():
        monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(array=array))
    assert calls == [[]]
