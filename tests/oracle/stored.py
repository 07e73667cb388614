"""Results that are compared with those of an earlier commit, so that no number changes unnoticed.

`tests/data/results` holds a line per result: the value itself, or a digest of each column of a table. After a change
that is meant to alter results, write them again with `XLAMEM_STORE_RESULTS=1 pytest TEST` and commit what changed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import EnumMeta
from itertools import islice, zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from xlamem.errors import XlaMemError
from xlamem.input.find import Source

TESTS = Path(__file__).parents[1]
RESULTS = TESTS / "data" / "results"
LONGEST = 120
"""Characters of a value that is stored as it is."""
PLAIN = bool | int | float | str | tuple
"""Types of settings."""
MOST = 20
"""Differing results that are shown. The others are not computed."""


def check(name: str, results: Iterable[tuple[str, Any]], *folders: Path) -> None:
    """Compare results with the stored ones. The place of the tests and of `folders` does not count."""
    path = RESULTS / f"{name}.txt"
    lines: Iterable[str] = (f"{key}: {described(value, *folders, TESTS)}" for key, value in results)
    if os.environ.get("XLAMEM_STORE_RESULTS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = list(lines)
        path.write_text("".join(f"{line}\n" for line in lines))
    compared = zip_longest(path.read_text().splitlines(), lines)
    differing = list(islice((pair for pair in compared if pair[0] != pair[1]), MOST))
    assert not differing, "\n".join(f"stored {was}\n   now {now}" for was, now in differing)


def mixed(count: int, seed: int, /, **values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return rows with random values of each column."""
    chance = random.Random(seed)
    return [{name: chance.choice(choices) for name, choices in values.items()} for _ in range(count)]


def outcome(call: Any, *arguments: Any, **options: Any) -> Any:
    """Return what a call returns, or the text of its error."""
    try:
        return call(*arguments, **options)
    except XlaMemError as error:
        return f"{type(error).__name__} {str(error).splitlines()[0].rsplit('/', 1)[-1]}"


def described(value: Any, *folders: Path) -> str:
    if isinstance(value, pa.Table):
        columns = (f"{name}={digest(text_of(value[name], *folders))}" for name in value.column_names)
        return " ".join([f"{value.num_rows} rows", *columns])
    text = text_of(value, *folders)
    return text if len(text) <= LONGEST and text.isprintable() else f"{len(text)} characters {digest(text)}"


def text_of(value: Any, *folders: Path) -> str:
    """Return a value as text without these folders."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    for folder in folders:
        text = text.replace(str(folder), "")
    return text


def plain(value: Any) -> Any:
    """Return lists, dictionaries, texts and numbers only. Of objects without fields, only the type is told."""
    if isinstance(value, (pa.Table, pa.Array, pa.ChunkedArray)):
        return value.to_pylist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if fields := getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None):
        return {name: plain(getattr(value, name)) for name in fields} if not isinstance(value, Source) else value.name
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else type(value).__name__


def digest(text: str) -> str:
    """Return 16 bits, which hardly any change of a result keeps."""
    return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogateescape"))[:4]


def settings(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the constants, the default arguments, and what does not count in a comparison, of all modules of a package.

    They are those of functions and classes, also of private ones.
    """
    prefix = f"{package.__name__}."
    for info in sorted(pkgutil.walk_packages(package.__path__, prefix), key=lambda info: info.name):
        module = importlib.import_module(info.name)
        for name, value in sorted(vars(module).items()):
            key = f"{info.name.removeprefix(prefix)}.{name}"
            if name.lstrip("_").isupper() and name != "TYPE_CHECKING":
                yield from _constant(key, value)
            elif getattr(value, "__module__", None) == info.name:
                yield from _defaults(key, value)


def _constant(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, re.Pattern):
        flags = re.RegexFlag(value.flags) & ~re.UNICODE
        value = f"{value.pattern} with flags {int(flags)}" if flags else value.pattern
    value = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    if isinstance(value, PLAIN | list | dict):
        yield name, value


def _defaults(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the default arguments of a function, or of a class and its methods, and the constants of a class."""
    members = {"": value, **vars(value)} if isinstance(value, type) else {"": value}
    for member, function in members.items():
        if member.startswith("__") or not callable(function):
            continue
        with suppress(TypeError, ValueError):
            for p in inspect.signature(function).parameters.values():
                if isinstance(p.default, PLAIN):
                    yield f"{name}.{member}({p.name})", p.default
    if not isinstance(value, type):
        return
    fields = getattr(value, "__dataclass_fields__", {})
    if left_out := [field.name for field in fields.values() if not field.compare]:
        yield f"{name} compares without", left_out
    for member, constant in members.items():
        if member and not member.startswith("_") and member not in fields and not isinstance(value, EnumMeta):
            yield from _constant(f"{name}.{member}", constant)
