"""What an intervention is, and what the rules that find them have in common: texts, names, margins of bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..buffer_names import source_columns
from ..columns import Ints, Mask, arrow_array, encoded, take
from ..op_names import scopes
from ..origins import origins
from ..program import Program
from .what_if import Change, WhatIf

Kind = Literal[
    "donate", "shard", "shape", "dtype", "recompute", "offload", "scan", "loss", "attention", "reduce", "carry",
    "slice", "batch", "slots", "collective", "tuple", "sparse", "select",
]  # fmt: skip
Confidence = Literal["exact", "likely", "try"]
MARGIN = 0.02
"""Share of the temp allocations by which packing may change."""
MIN_SHARE = 0.01
"""Minimum upper bound of an intervention, as a share of what must fit."""
RESCHEDULED, MAX_RESCHEDULED = 0.1, 64 << 20
"""Share of the temporaries, and bytes, that a TPU program may save in addition, because it is scheduled anew."""
UNNAMED = "argument "
"""What the name of an argument begins with that the dump does not name."""
NARROWER = {"f32": "bfloat16", "f64": "float32", "s64": "int32", "u64": "uint32", "c128": "complex64"}
"""Element types with one of half the size."""


@dataclass(frozen=True)
class Intervention:
    """What could be done, to which buffers, and how many bytes of `device_total` it saves."""

    kind: Kind
    values: Ints
    """Rows of `values`, the largest first, but those of the scope before others."""
    change: Change
    lower: int
    upper: int
    confidence: Confidence
    action: str
    argument: str | None = None
    parameter: int | None = None
    scope: str | None = None
    function: str | None = None
    line: tuple[str, int] | None = None
    """File and line that compute the first of these values in the function, instead of in what it calls."""
    names: tuple[str, ...] = field(default=())


def largest_first(w: WhatIf, values: Ints) -> Ints:
    return values[np.argsort(-w.p.extent[values], kind="stable")]


def common_scope(p: Program, values: Ints) -> tuple[str | None, Mask]:
    """Return the folded scope that most bytes of these values have, and which of them have it.

    Names are completed by their origins.
    """
    codes, names = encoded(source_columns(p, values)["op_name"])
    scope, texts = encoded(scopes(pc.cast(names, pa.string()), fold=True))
    code = take(scope, codes)
    if not (code >= 0).any():
        return None, np.zeros(len(values), bool)
    common = int(np.bincount(code[code >= 0], p.extent[values][code >= 0]).argmax())
    members: Mask = code == common
    return texts[common].as_py() or None, members


def argument_names(w: WhatIf, values: Ints, number: Ints) -> pa.Array:
    """Return the name of the argument that each parameter is part of: the first name in its op_name, or its number."""
    names = pc.cast(w.p.source_columns(values)["op_name"], pa.string())
    roots = pc.struct_field(pc.extract_regex(names, r"^(?P<root>[A-Za-z_]\w*)"), "root")
    numbered = pc.binary_join_element_wise(UNNAMED.strip(), pc.cast(arrow_array(number), pa.string()), " ")
    return pc.coalesce(roots, numbered)


def rescheduled(w: WhatIf, upper: int) -> int:
    """Return the bytes that a TPU program may save in addition to a bound, because it is scheduled anew."""
    return min(int(RESCHEDULED * w.peak), upper // 2, MAX_RESCHEDULED)


def rescheduled_at_worst(w: WhatIf, lower: int) -> int:
    """Return the bytes by which a TPU program that is scheduled anew may save less than a bound."""
    return min(int(RESCHEDULED / 2 * w.peak), max(lower, 0) // 3, MAX_RESCHEDULED)


def dimensions(p: Program) -> tuple[Ints, pa.Array]:
    """Return codes (-1 for none) and texts of the dimensions of each array, without those of 1."""
    return p.once("dimensions", lambda: _read_dimensions(p))


def _read_dimensions(p: Program) -> tuple[Ints, pa.Array]:
    codes, names = encoded(p.tables["values"]["shape"])
    found = pc.struct_field(pc.extract_regex(pc.cast(names, pa.string()), r"^\w+\[(?P<n>[\d,]+)\]"), "n")
    number, texts = encoded(pa.chunked_array([pc.replace_substring_regex(found, r"\b1,|,1$", "")]))
    return take(number, codes), pc.cast(texts, pa.string())


def only_line(p: Program, rows: Ints) -> tuple[str, int] | None:
    """Return the file and line of these rows of `instructions`, if all have the same."""
    lines = origins(p).names.columns(rows)
    found = set(zip(lines["source_file"].to_pylist(), lines["source_line"].to_pylist(), strict=True))
    return found.pop() if len(found) == 1 and None not in next(iter(found)) else None


def joined_by_and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
