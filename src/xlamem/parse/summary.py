"""Tables about the dump itself: modules, files, diagnostics, unknown_text."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import pyarrow as pa

from .. import schema
from ..input.files import check_unchanged
from ..input.names import FLAG_EXTENSIONS
from .checks import printed_total
from .fingerprints import Fingerprints, are_known
from .hashes import content_hash
from .reader import Reader
from .report_checks import total_of
from .sections import LIVE, SECTION_OF
from .tables import Row, table_of_rows


def summaries(
    reader: Reader, names: Set[str], hashes: Sequence[str | None], fingerprints: Fingerprints | None = None
) -> dict[str, pa.Table]:
    """Return the tables about a dump that has been read and checked. `names` are the requested tables."""
    unknown = reader.diagnostics.unknown_table(reader.files)  # before `platform`, which may read more
    rows = summary_rows(reader, names, hashes, fingerprints)
    return {**{name: table_of_rows(name, items) for name, items in rows.items()}, "unknown_text": unknown}


def summary_rows(
    reader: Reader, names: Set[str], hashes: Sequence[str | None], fingerprints: Fingerprints | None = None
) -> dict[str, list[Row]]:
    """Return the rows of `files`, `modules` and `diagnostics`.

    `hashes` has a content hash or None for each file. `fingerprints` has the rows of the requested tables.
    """
    for file in reader.files:
        check_unchanged(file.text.raw, file.text.uri)
    diagnostics = reader.diagnostics.rows()
    return {
        "files": [
            (f.ordinal, f.role, f.text.uri, f.text.size, h, ",".join(sorted(f.features)), not f.truncated)
            for f, h in zip(reader.files, hashes, strict=True)
        ],
        "modules": [_module(reader, names, hashes, len(diagnostics), fingerprints)],
        "diagnostics": diagnostics,
    }


def _module(
    reader: Reader,
    names: Set[str],
    hashes: Sequence[str | None],
    n_diagnostics: int,
    fingerprints: Fingerprints | None,
) -> Row:
    source, codes, name = reader.source, reader.diagnostics.codes, reader.module_name
    # Computed before `platform`, which may read more and thereby add features.
    features: set[str] = set().union(*(f.features for f in reader.files))
    peak_time, peak_bytes = _printed_peak(reader)
    values: dict[str, Any] = {
        "module_name": source.module_name or (name.decode("utf-8", "backslashreplace") if name else None),
        "module_id": source.module_id,
        "platform": reader.platform,
        "target": source.target,
        "changelist": source.changelist,
        "timestamp_us": source.timestamp_us,
        "features": ",".join(sorted(features)),
        "complete": not any(f.truncated for f in reader.files),
        "total_bytes": printed_total(reader),
        "schedule_length": reader.schedule_length,
        "printed_peak_time": peak_time,
        "printed_peak_bytes": peak_bytes,
        "n_diagnostics": n_diagnostics,
        "understood": codes.isdisjoint(schema.NOT_UNDERSTOOD),
        "consistent": codes.isdisjoint(schema.NOT_CONSISTENT),
        "content_hash": _content_hash(reader, hashes),
    }
    values |= {f"n_{table}": reader.count(table) if table in names else None for table in SECTION_OF}
    if fingerprints:
        module = values["module_name"], values["platform"]
        columns = fingerprints.columns([module], [are_known(reader, names)])
        values |= {name: items[0] for name, items in columns.items()}
    return [values.get(c.name) for c in schema.MODULES.columns]


def _content_hash(reader: Reader, hashes: Sequence[str | None]) -> str | None:
    """Return the hash over the hashes of the members; flags are left out, since paths in them differ between runs."""
    wanted = [h for f, h in zip(reader.files, hashes, strict=True) if h and f.role not in FLAG_EXTENSIONS]
    return content_hash("\n".join(wanted).encode()) if wanted else None


def _printed_peak(reader: Reader) -> tuple[int | None, int | None]:
    """Return the step and bytes of XLA's own peak list; None if missing or larger than 64 bits."""
    available = any(not s.unavailable for s in reader.sections(LIVE))
    time = reader.live.peak_time if reader.was_read(LIVE) and available else None
    if time is None:
        return None, None
    size = total_of(reader.stores[LIVE].ints("printed_peak", "bytes"))
    return time, size if abs(size) < 1 << 63 else None
