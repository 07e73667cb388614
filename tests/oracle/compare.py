"""Compares what the package reads with what the slow reader reads."""

from __future__ import annotations

from typing import Any

import oracle

import xlamem
from xlamem import schema

SECTION_TABLES = [t.name for t in schema.SECTION_TABLES]


def rows(dump: xlamem.Dump, name: str) -> list[dict[str, Any]]:
    return dump[name].to_pylist()


def first_difference(ours: list[Any], theirs: list[Any]) -> str:
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            if isinstance(a, dict):
                keys = [k for k in a if a[k] != b.get(k)]
                return f"row {i}: ours {[(k, a[k]) for k in keys]}, theirs {[(k, b.get(k)) for k in keys]}; of {a}"
            return f"item {i}: ours {a}, theirs {b}"
    return f"{len(ours)} items, theirs {len(theirs)}: {(ours[len(theirs):] or theirs[len(ours):])[:1]}"


def findings(table: list[dict[str, Any]], role_of: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    """What a diagnostic says that both readers must agree on."""
    found = [
        ((role_of or {}).get(d["file"], d["file"]), d["line"], d["offset"], d["code"], d["severity"]) for d in table
    ]
    return sorted(found, key=str)


def differences(dump: xlamem.Dump, members: dict[str, bytes], *, text: bool = True) -> list[str]:
    """Everything in which the two readers differ; empty if nothing."""
    theirs = oracle.read(members, platform=dump.source.platform, text=text)
    found = []
    for name in SECTION_TABLES:
        ours = rows(dump, name)
        if ours != theirs[name]:
            found.append(f"{name}: {first_difference(ours, theirs[name])}")
    role_of = {f["uri"]: f["role"] for f in rows(dump, "files")}
    ours_found, theirs_found = findings(rows(dump, "diagnostics"), role_of), findings(theirs["diagnostics"])
    if ours_found != theirs_found:
        found.append(f"diagnostics: {first_difference(ours_found, theirs_found)}")
    for column in ("features", "complete"):
        ours_files = [(f["role"], f[column]) for f in rows(dump, "files")]
        theirs_files = [(f["role"], f[column]) for f in theirs["files"]]
        if ours_files != theirs_files:
            found.append(f"files.{column}: ours {ours_files}, theirs {theirs_files}")
    ours_module, theirs_module = rows(dump, "modules")[0], theirs["modules"][0]
    keys = ["features", "complete", "understood", "consistent", "total_bytes", "schedule_length"]
    keys += ["printed_peak_time", "printed_peak_bytes"]
    for key in [*keys, "n_diagnostics", *(f"n_{t}" for t in SECTION_TABLES)]:
        if ours_module[key] != theirs_module[key]:
            found.append(f"modules.{key}: ours {ours_module[key]}, theirs {theirs_module[key]}")
    return found
