"""The compiler of a program: its version and its flags, as far as the dump tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from itertools import accumulate
from typing import Any

from ..compute.program import Program, program
from ..dump import DumpLike

IRRELEVANT = r".*(?:_dump_|_dir$|_file$|_path$)"
"""Flags that do not change the program: what to dump, and paths, which differ from run to run."""
NO_PLATFORM: Set[str | None] = frozenset({None})
PLATFORMS = ("cpu", "gpu", "tpu")
"""Platforms with flags of their own: `xla_cpu_…`."""
ALTERNATIVES = (
    frozenset({"peak_a", "peak_b", "peak_c"}), frozenset({"report_a", "report_b"}),
    frozenset({"live_inline", "live_split"}), frozenset({"values_inline", "values_split"}),
    frozenset({"e0_values", "e1_values"}),
)  # fmt: skip
"""Features of which each version has one."""
TARGET = "target-arguments"
"""The role of the file that names the chip of a TPU program. Its lines are no flags that users set."""
CHIPS = {
    "TPU_VERSION_PUFFERFISH": "TPU v4",
    "TPU_VERSION_VIPERFISH": "TPU v5p",
    "TPU_VERSION_VIPERFISH lite": "TPU v5e",
    "TPU_VERSION_GHOSTLITE": "TPU v6e",
    "TPU_VERSION_6acc60406": "TPU7x",
}
"""Chips by the version and the variant that libtpu writes for them."""
TWO_DEVICES = "TPU v4"
"""The chip whose two cores may be a device each, which dumps do not say."""
FOR_CHIP = "compiled for "
"""What a clause about another chip begins with."""
OTHER_FORMAT = "the dumps have different formats, so the versions of the compiler differ"


def module_of(p: Program) -> dict[str, Any]:
    """Return the row of `modules`."""
    row: dict[str, Any] = p.tables["modules"].slice(0, 1).to_pylist()[0]
    return row


def features_of(module: Mapping[str, Any]) -> set[str]:
    """Return the features of a dump."""
    return set((module["features"] or "").split(",")) - {""}


def chip_of(p: Program) -> str | None:
    """Return the chip that a program was compiled for, as the dump names it; None if it names none.

    Examples are `TPU_VERSION_VIPERFISH lite` and `sm_9.0`.
    """
    target: str | None = module_of(p)["target"]
    arguments = flags_by_role(p).get(TARGET, {})
    parts = (arguments.get(f"tpu_topology_args.{name}", "").strip('"') for name in ("version", "variant"))
    version = " ".join(filter(None, parts))
    return target or version or None


def chip_name(dump: DumpLike) -> str | None:
    """Return the name of the chip that a TPU program was compiled for; None if it is not known, or has two devices."""
    chip = CHIPS.get(chip_of(program(dump)) or "")
    return None if chip == TWO_DEVICES else chip


def other_chip(a: str | None, b: str | None) -> str | None:
    """Say that two chips, as dumps name them, differ; None if they do not, or one is not known."""
    return f"{FOR_CHIP}{CHIPS.get(b, b)} instead of {CHIPS.get(a, a)}" if a and b and a != b else None


def other_changelist(a: int | None, b: int | None) -> str | None:
    """Say that two changelists (from the names of TPU dumps) differ; None if they do not, or one is not known."""
    if a is None or b is None or a == b:
        return None
    return f"the compiler is of changelist {b} instead of {a}"


def formats_exclude_each_other(a: set[str], b: set[str]) -> bool:
    """Return whether no version of the compiler writes dumps with both sets of features."""
    return any(a & group and b & group and a & group != b & group for group in ALTERNATIVES)


def flags_by_role(p: Program) -> dict[str, dict[str, str]]:
    """Return the value of each flag by the role of its file; those of a repeated flag are joined."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in p.optional("flags").to_pylist():
        rows.setdefault(row["role"], []).append(row)
    return {role: _joined(of_role) for role, of_role in rows.items()}


def flags_not_default(p: Program) -> dict[str, str] | None:
    """Return the flags that differ from their defaults and can change the program; None if the dump has no flags."""
    all_rows = [row for row in p.optional("flags").to_pylist() if row["role"] != TARGET]
    if not all_rows:
        return None
    # Debug options are printed only if they differ; the TPU compiler comments on those of its flags that do.
    commented = {name for row in all_rows if row["comment"] is not None for name in _commented(row)}
    rows = [r for r in all_rows if r["role"] == "debug-options" or not commented.isdisjoint(_with_parents(r["name"]))]
    return {name: value for name, value in _joined(rows).items() if not re.match(IRRELEVANT, name)}


def _commented(row: dict[str, Any]) -> list[str]:
    """Return the flags that a comment is about: it precedes the first line that begins with the name of its flag."""
    return re.findall(r"^ *# (\S+) in the current ", row["comment"], re.M) or [row["name"]]


def _with_parents(name: str) -> list[str]:
    """Return the name of a flag and those of the messages that contain it."""
    return list(accumulate(name.split("."), "{}.{}".format))


def _joined(rows: list[dict[str, Any]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for row in rows:
        name, value = row["name"], row["value"]
        values[name] = f"{values[name]},{value}" if name in values else value
    return values


def changed_flags(a: Mapping[str, str], b: Mapping[str, str], platforms: Set[str | None] = NO_PLATFORM) -> list[str]:
    """Return a clause for each flag with another value, but not for those of platforms other than these, if known."""
    others = [p for p in PLATFORMS if None not in platforms and p not in platforms]
    irrelevant = "|".join([IRRELEVANT, *(f"xla_{p}_" for p in others)])
    changed = [name for name in sorted({*a, *b}) if a.get(name) != b.get(name) and not re.match(irrelevant, name)]
    return [f"{name} is {b.get(name, 'not set')} instead of {a.get(name, 'not set')}" for name in changed]
