"""Texts that end where their memory ends, so that the address sanitizer reports a read of one byte beyond them.

Behind a mapped file are the rest of its last page, and behind `bytes` a null: reads of these are not reported. In a
build with sanitizers, `install` makes the native modules scan copies in blocks of their own instead.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from xlamem import _lines
from xlamem.input.member import Member
from xlamem.input.text import Text

NATIVE = [path.stem for path in sorted((Path(__file__).parents[1] / "_native").glob("*.pyx"))]


def exact(data: Any) -> memoryview:
    """Copy data to a block of the heap of its size."""
    return memoryview(np.array(np.frombuffer(data, np.uint8)))


def install() -> None:
    """Scan copies: of each text that is loaded, and of the bytes that a test passes to a native function."""
    Member.load = _exact_text(Member.load)  # type: ignore[method-assign]
    for (module, name), function in native_functions().items():
        setattr(module, name, _exact_arguments(function))


def native_functions() -> dict[tuple[ModuleType, str], Callable[..., Any]]:
    """The functions of the native modules, by module and name."""
    modules = [importlib.import_module(f"xlamem.{name}") for name in NATIVE]
    kind = type(_lines.locate)
    return {(m, name): f for m in modules for name, f in vars(m).items() if type(f) is kind and name[0] != "_"}


def _exact_text(load: Callable[[Member], Text]) -> Callable[[Member], Text]:
    @functools.wraps(load)
    def loaded(member: Member) -> Text:
        text = load(member)
        text.data = exact(text.data)
        return text

    return loaded


def _exact_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        return function(*(exact(a) if type(a) is bytes else a for a in arguments), **options)

    return called
