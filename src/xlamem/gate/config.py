"""Budgets and policies: `xlamem.toml`, or `[tool.xlamem]` in `pyproject.toml`."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from ..compute.capacity import available
from ..compute.devices import device as device_named
from ..errors import UsageError, reason
from ..formatting import similar, size
from ..parse.fingerprints import without_counters, without_number
from .amounts import Amount, amount, share, size_limit

FILE, PROJECT_FILE, PROJECT_TABLE = "xlamem.toml", "pyproject.toml", "tool.xlamem"
BASELINE = "xlamem-baseline.json"
"""Name of the baseline if the configuration names none."""
MAX_SIZE = 1 << 24
"""Maximum number of characters of a configuration: /dev/zero has no end."""

Policy = Literal["fail", "warn", "bless"]
POLICIES: tuple[Policy, ...] = ("fail", "warn", "bless")


@dataclass(frozen=True)
class Budget:
    """Limits for the programs whose name matches a pattern. Sizes are in bytes; None is no limit."""

    number: int = 1
    """Position in the configuration, from 1."""
    program: str = "*"
    """Pattern of module names without their number, as in a shell: ``jit_train_*``."""
    device_total: int | None = None
    device: str | None = None
    resident: int = 0
    fraction: float = 1.0
    peak: int | None = None
    growth: Amount | None = None
    padding: Amount | None = None
    packing: Amount | None = None
    donation: Literal["required"] | None = None
    named: Fraction | None = None
    where: str = field(default="", compare=False)
    """The budget in messages."""

    def matches(self, module_name: str | None) -> bool:
        """Return whether the budget applies to a module, whose name may be without the counter of TensorFlow."""
        names = {without_number(module_name or ""), without_counters(module_name or "")}
        return any(fnmatchcase(name, self.program) for name in names)


@dataclass(frozen=True)
class Config:
    """The configuration of `check`."""

    budgets: tuple[Budget, ...] = ()
    baseline: str | None = None
    """Path of the baseline: a JSON file, a directory of dumps, or a dataset. None is `BASELINE`, if it exists."""
    ratchet: bool = False
    """Whether the baseline file is tightened when a program improves."""
    compiler_change: Policy = "warn"
    """What growth means if the versions of the compiler differ."""
    flags_change: Policy = "fail"
    """The same for flags of the compiler."""
    source_root: str | None = None
    """Folder with the sources of the models; None is the current directory."""
    path: str | None = None
    """The file it comes from."""

    @property
    def folder(self) -> Path:
        """The directory that relative paths start from."""
        return Path(self.path).parent if self.path else Path()

    @property
    def baseline_place(self) -> str | Path:
        """Where the baseline is: a path, or the URI of a dataset."""
        place = self.baseline or BASELINE
        return place if "://" in place else self.folder / place

    @property
    def sources(self) -> Path:
        """The folder with the sources of the models."""
        return Path() if self.source_root is None else self.folder / self.source_root


# -- files ---------------------------------------------------------------------------------------


def load_config(path: str | os.PathLike[str] | None = None) -> Config:
    """Read a configuration file; by default the nearest one, or an empty configuration if there is none.

    Raises
    ------
    UsageError
        The file cannot be read, or is wrong: with the file, the line if it can be found, the budget and the key.
    """
    if path is None:
        found = find_config(Path.cwd())
        return Config() if found is None else load_config(found)
    file = Path(path)
    text, data = _toml(file)
    table, prefix = data, ""
    if file.name == PROJECT_FILE:
        own, prefix = _project_table(file, data), f"{PROJECT_TABLE}."
        if own is None:
            raise UsageError(f"{file}: there is no table [{PROJECT_TABLE}]")
        table = own
    return config_of(table, path=str(file), lines=Lines(text, prefix))


def find_config(folder: Path) -> Path | None:
    """Return the configuration file in a folder or the nearest of its parents, up to the root of the repository."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
        project = place / PROJECT_FILE
        if project.is_file() and _project_table(project, _toml(project)[1]) is not None:
            return project
        if (place / ".git").exists():
            return None
    return None


def _project_table(file: Path, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the table `[tool.xlamem]`; None if there is none. Raises UsageError if it is another value."""
    table: Any = data
    for depth, key in enumerate(PROJECT_TABLE.split("."), 1):
        table = table.get(key)
        if table is None:
            return None
        if not isinstance(table, dict):
            name = ".".join(PROJECT_TABLE.split(".")[:depth])
            raise UsageError(f"{file}: {name} must be a table, not {table!r}")
    return table  # type: ignore[no-any-return]


def _toml(file: Path) -> tuple[str, dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MAX_SIZE + 1)
        if len(text) > MAX_SIZE:
            raise UsageError(f"{file}: a configuration has at most {MAX_SIZE:,} characters")
        return text, tomllib.loads(text)
    except OSError as e:
        raise UsageError(f"{file}: {reason(e)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as e:
        raise UsageError(f"{file} is not TOML: {e}") from None


class Lines:
    """Finds the line of a key, which tomllib does not tell, where tables are written in the usual way."""

    def __init__(self, text: str, prefix: str) -> None:
        self.lines = text.splitlines()
        self.header = re.compile(rf"\s*\[\[\s*{re.escape(prefix)}budget\s*\]\]")

    def of(self, key: str, budget: int | None) -> int | None:
        """Return the number of the line of a key: of the n-th budget, or outside budgets."""
        headers = [i for i, line in enumerate(self.lines) if self.header.match(line)]
        if budget is None:
            begin, end = 0, len(self.lines)
        elif budget <= len(headers):
            begin, end = headers[budget - 1], [*headers, len(self.lines)][budget]
        else:
            return None
        rows = (i + 1 for i in range(begin, end) if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", self.lines[i]))
        return next(rows, None if budget is None else begin + 1)


# -- tables --------------------------------------------------------------------------------------


def config_of(table: Mapping[str, Any], *, path: str | None = None, lines: Lines | None = None) -> Config:
    """Return the configuration in a table: the keys of `xlamem.toml`.

    `path` and `lines` are for messages. Raises UsageError.
    """
    source = _Source(path, lines)
    values: dict[str, Any] = {"path": path}
    for key, value in table.items():
        if key == "budget":
            values["budgets"] = _budgets(value, source)
        elif key in _KEYS:
            values[key] = source.checked(key, None, _KEYS[key], value)
        else:
            raise source.error(key, None, unknown_key(key, (*_KEYS, "budget")))
    return Config(**values)


def budget_of(table: Mapping[str, Any], number: int = 1, where: str = "") -> Budget:
    """Return the budget in a table: the keys of `[[budget]]`. Raises UsageError."""
    return _budget(table, number, _Source(where or None, None))


@dataclass(frozen=True)
class _Source:
    """Where a configuration comes from."""

    path: str | None
    lines: Lines | None

    def error(self, key: str, budget: int | None, message: str, program: str | None = None) -> UsageError:
        line = self.lines.of(key, budget) if self.lines else None
        place = f"{self.path}{f':{line}' if line else ''}: " if self.path else ""
        return UsageError(f"{place}{_budget_name(budget, program)}{message}")

    def checked(
        self, key: str, budget: int | None, parse: Callable[[str, Any], Any], value: Any, program: str | None = None
    ) -> Any:
        """Return a parsed value; an error names the place."""
        try:
            return parse(key, value)
        except UsageError as e:
            raise self.error(key, budget, str(e), program) from None


def _budget_name(number: int | None, program: str | None) -> str:
    if number is None:
        return ""
    return f"budget {number}{f' (program = {program!r})' if program else ''}: "


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return a message about an unknown key, with the most similar one."""
    return f"unknown key {key!r}; {similar(key, sorted(known))}"


def _budgets(value: Any, source: _Source) -> tuple[Budget, ...]:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise source.error("budget", None, "budget must be an array of tables: write [[budget]]")
    return tuple(_budget(table, i + 1, source) for i, table in enumerate(value))


def _budget(table: Mapping[str, Any], number: int, source: _Source) -> Budget:
    name = table.get("program")
    program = name if isinstance(name, str) else None
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _LIMITS:
            raise source.error(key, number, unknown_key(key, _LIMITS), program)
        values[_SHORT.get(key, key)] = source.checked(key, number, _LIMITS[key], value, program)
    if problem := _contradiction(table) or _too_much_resident(values):
        raise source.error(problem[0], number, problem[1], program)
    where = source.error("program", number, "", program)
    return Budget(number=number, where=str(where).removesuffix(": "), **values)


def _contradiction(table: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key and the message if the keys of a budget contradict each other, or say nothing."""
    if "limit" in table and "device_total" in table:
        return "limit", "limit and device_total are the same limit; state one of them"
    for key in ("resident", "fraction"):
        if key in table and "device" not in table:
            return key, f"{key} needs device: it is about what is left of the memory of a device"
    if not table.keys() - {"program"}:
        limits = ", ".join(sorted(_LIMITS.keys() - {"program", "resident", "fraction", "limit"}))
        return "program", f"there is no limit; the limits are {limits}"
    return None


def _too_much_resident(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key and the message if nothing is left of the memory of the device."""
    if "device" not in values:
        return None
    room = available(None, values["device"], values.get("resident", 0), values.get("fraction", 1.0))
    if room.bytes >= 0:
        return None
    usable = room.bytes + room.resident
    return "resident", f"resident is {size(room.resident)}, more than the {size(usable)} of {values['device']}"


# -- values --------------------------------------------------------------------------------------


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} must be a text that is not empty, not {value!r}")
    if "\0" in value:  # nor does any path
        raise UsageError(f"{name} must not contain null characters: {value!r}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, not {value!r}")
    return value


def _choice(*choices: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        if value not in choices:
            raise UsageError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
        return str(value)

    return parse


def _device(name: str, value: Any) -> str:
    return device_named(_text(name, value)).name


def _fraction(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise UsageError(f"{name} must be a number above 0 and at most 1, not {value!r}")
    return float(value)


def _named(name: str, value: Any) -> Fraction:
    return share(name, value, most=100)


_KEYS: dict[str, Callable[[str, Any], Any]] = {
    "baseline": _text,
    "ratchet": _flag,
    "compiler_change": _choice(*POLICIES),
    "flags_change": _choice(*POLICIES),
    "source_root": _text,
}
_LIMITS: dict[str, Callable[[str, Any], Any]] = {
    "program": _text,
    "device_total": size_limit,
    "limit": size_limit,
    "device": _device,
    "resident": size_limit,
    "fraction": _fraction,
    "peak": size_limit,
    "growth": amount,
    "padding": amount,
    "packing": amount,
    "donation": _choice("required"),
    "named": _named,
}
_SHORT = {"limit": "device_total"}
"""Other names of keys."""
