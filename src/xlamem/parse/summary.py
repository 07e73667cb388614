"""The tables about a dump itself: modules, files, diagnostics, unknown_text."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pyarrow as pa

from .. import schema
from . import checks
from .arrow import Row, rows
from .reader import IN_TURN, PART_OF, SECTIONS, Reading


def summaries(
    r: Reading, parts: Set[str], names: frozenset[str], content: list[str | None]
) -> dict[str, pa.Table]:
    """The tables about the dump itself."""
    found = {name: rows(name, items) for name, items in summary_rows(r, parts, names, content).items()}
    return {**found, "unknown_text": r.findings.unknown_table(r.files)}


def summary_rows(
    r: Reading, parts: Set[str], names: frozenset[str], content: list[str | None]
) -> dict[str, list[Row]]:
    """Their rows, made when its parts have been read and checked; `content`: a hash per file, or None."""
    files = r.files
    r.scan_ahead(parts)
    for part in IN_TURN:
        if part in parts:
            r.part(part)
    if "checked" not in r.facts:  # else somebody was interrupted behind it
        checks.check(r, {p for p in SECTIONS if p in r.facts.get("parts", {})})
        r.facts["checked"] = True
        r.forget_checked()
    diagnostics = r.findings.diagnostics()
    return {
        "files": [
            (f.ordinal, f.role, f.text.uri, f.text.size, h, ",".join(sorted(f.features)), not f.cut)
            for f, h in zip(files, content, strict=True)
        ],
        "modules": [_module(r, parts, names, content, diagnostics)],
        "diagnostics": diagnostics,
    }


def schedule_length(r: Reading) -> int | None:
    return next((s.steps for s in r.sections("live ranges") if not s.unavailable), None)


def content_hash(data: Any) -> str:
    """XXH3-128, as hexadecimal digits."""
    import xxhash  # not needed by most readers

    return xxhash.xxh3_128_hexdigest(data)


def _module(
    r: Reading, parts: Set[str], names: frozenset[str], content: list[str | None], diagnostics: list[Row]
) -> Row:
    source = r.source
    name = r.facts.get("module_name")
    live = [s for s in r.sections("live ranges") if not s.unavailable]
    peak_time = peak_bytes = None
    if "live ranges" in parts and live:
        peak_time = r.facts["live"]["peak_time"]
        if peak_time is not None:
            peak_bytes = checks.total_of(r.raw["live ranges"].ints("printed_peak", "bytes"))
            peak_bytes = peak_bytes if abs(peak_bytes) < 1 << 63 else None
    features = sorted(set().union(*(f.features for f in r.files)))
    codes = r.findings.codes
    known = {
        "module_name": source.module_name or (name.decode("utf-8", "backslashreplace") if name else None),
        "module_id": source.module_id,
        "platform": r.platform,
        "target": source.target,
        "changelist": source.changelist,
        "timestamp_us": source.timestamp_us,
        "features": ",".join(features),
        "complete": not any(f.cut for f in r.files),
        "total_bytes": checks.printed_total(r),
        "schedule_length": schedule_length(r),
        "printed_peak_time": peak_time,
        "printed_peak_bytes": peak_bytes,
        "n_diagnostics": len(diagnostics),
        "understood": codes.isdisjoint(schema.NOT_UNDERSTOOD),
        "consistent": codes.isdisjoint(schema.NOT_CONSISTENT),
        "content_hash": content_hash("\n".join(h for h in content if h).encode()) if any(content) else None,
    }
    for t in PART_OF:
        known[f"n_{t}"] = r.count(t) if t in names else None
    return [known[c.name] for c in schema.MODULES.columns]
