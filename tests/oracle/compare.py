"""Compares what the package reads with what the slow reader reads."""

from __future__ import annotations

from typing import Any

import oracle
import pyarrow as pa

import xlamem
from xlamem import schema

SECTION_TABLES = [t.name for t in schema.SECTION_TABLES]
GAPPED = ("allocations", "values", "live_ranges")
"""Tables with the unknown fields of a row in `attributes`: the slow reader reads the text without them."""

SEARCHED = {"ids_descend", "value_outside", "schedule_gap", "live_range_unmatched", "live_range_missing"}
"""Diagnostics of a row, whose line is searched in the text."""

Gap = tuple[int, int]
"""Offset and length of an unknown field in its file."""


def rows(dump: xlamem.Dump, name: str) -> list[dict[str, Any]]:
    table = dump[name]
    if name in GAPPED:
        table = table.set_column(
            table.schema.get_field_index("attributes"), "attributes", pa.nulls(len(table), pa.string())
        )
    return table.to_pylist()


def gaps(dump: xlamem.Dump, members: dict[str, bytes]) -> dict[str, list[Gap]]:
    """The unknown fields of each file, by role. An unknown line is stored with its newline and is none."""
    role_of = {f["uri"]: f["role"] for f in dump["files"].to_pylist()}
    found: dict[str, list[Gap]] = {}
    for row in dump["unknown_text"].to_pylist():
        role = role_of[row["file"]]
        data, offset, text = members[role], row["offset"], row["text"]
        if not text.endswith("\n"):
            # A byte that is not UTF-8 is stored as \\xNN.
            end = next(e for e in range(offset, len(data) + 1) if clean_bytes(data[offset:e]) == text)
            found.setdefault(role, []).append((offset, end - offset))
    return found


def clean_bytes(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def has_unknown_header(members: dict[str, bytes], unknown: dict[str, list[Gap]]) -> bool:
    """Whether an allocation has an unknown field, which the report compares with its own."""
    role = "buffer-assignment"
    lines = (members[role][members[role].rfind(b"\n", 0, offset) + 1 :] for offset, _ in unknown.get(role, ()))
    return any(line.startswith(b"allocation ") for line in lines)


def without(data: bytes, gaps: list[Gap]) -> bytes:
    for offset, length in reversed(gaps):
        data = data[:offset] + data[offset + length :]
    return data


def moved(offset: int | None, gaps: list[Gap]) -> int | None:
    """The offset in the file of one in the text without the gaps."""
    for begin, length in gaps if offset is not None else ():
        if offset > begin:  # type: ignore[operator]
            offset += length  # type: ignore[operator]
    return offset


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
    """Everything in which the two readers differ; empty if nothing.

    The slow reader gets the text without its unknown fields: what is left of a line is of the known grammar, and says
    what the row of the line says.
    """
    unknown = gaps(dump, members)
    plain = {role: without(data, unknown.get(role, [])) for role, data in members.items()}
    theirs = oracle.read(plain, platform=dump.source.platform, text=text)
    for d in theirs["diagnostics"]:
        d["offset"] = moved(d["offset"], unknown.get(d["file"], []))
    found = []
    for name in SECTION_TABLES:
        ours = rows(dump, name)
        if ours != theirs[name]:
            found.append(f"{name}: {first_difference(ours, theirs[name])}")
    role_of = {f["uri"]: f["role"] for f in rows(dump, "files")}
    diagnostics = rows(dump, "diagnostics")
    fields = [d for d in diagnostics if d["code"] == "unknown_field"]
    if bool(fields) != bool(unknown):
        found.append(f"unknown fields: {unknown}, but the diagnostics {fields}")
    ours_module, theirs_module = rows(dump, "modules")[0], theirs["modules"][0]
    theirs_module["understood"] &= not unknown
    theirs_module["n_diagnostics"] += len(fields)
    # A line is searched by how XLA would begin it, so one that begins otherwise may have no place, or another.
    nowhere = SEARCHED if unknown else {d["code"] for d in diagnostics if d["line"] is None} & SEARCHED
    for d in (*diagnostics, *theirs["diagnostics"]):
        d |= {"line": None, "offset": None} if d["code"] in nowhere else {}
    if "memory-usage-report" in unknown or has_unknown_header(members, unknown):  # only one of both has the field
        for listed in (diagnostics, theirs["diagnostics"]):
            listed[:] = [d for d in listed if d["code"] != "report_differs"]
        theirs_module |= {key: ours_module[key] for key in ("consistent", "n_diagnostics")}
    more = {d["wanted"].split()[-1] for d in diagnostics if d["code"] == "more_diagnostics"} | {"more_diagnostics"}
    if len(more) > 1:  # too many to be listed
        theirs_module["n_diagnostics"] = ours_module["n_diagnostics"]
    ours_found = findings([d for d in diagnostics if d not in fields and d["code"] not in more], role_of)
    theirs_found = findings([d for d in theirs["diagnostics"] if d["code"] not in more])
    if ours_found != theirs_found:
        found.append(f"diagnostics: {first_difference(ours_found, theirs_found)}")
    for column in ("features", "complete"):
        ours_files = [(f["role"], f[column]) for f in rows(dump, "files")]
        theirs_files = [(f["role"], f[column]) for f in theirs["files"]]
        if ours_files != theirs_files:
            found.append(f"files.{column}: ours {ours_files}, theirs {theirs_files}")
    keys = ["features", "complete", "understood", "consistent", "total_bytes", "schedule_length"]
    keys += ["printed_peak_time", "printed_peak_bytes"]
    for key in [*keys, "n_diagnostics", *(f"n_{t}" for t in SECTION_TABLES)]:
        if ours_module[key] != theirs_module[key]:
            found.append(f"modules.{key}: ours {ours_module[key]}, theirs {theirs_module[key]}")
    return found
