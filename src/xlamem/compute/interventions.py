"""Interventions on arguments, outputs and layouts, with bounds of what each saves."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .aliasing import matched
from .buffer_names import phases_of_values
from .columns import Ints, Mask, arrow_array, encoded, flags_of, ints, take, take_text
from .layout import DONATED, LIVE_OUT, PARAMETER, TEMP
from .op_names import END, PHASES
from .origins import MAX_ROUNDS, has_opcode, index_codes, operands_of, origins, uses_of
from .program import Program, distinct_rows
from .replica_groups import MAX_DEVICES, replica_groups
from .tiles import tiled_dimensions
from .uses import has_independent_reader, use_steps
from .what_if import Change, WhatIf, largest_groups

Kind = Literal[
    "donate", "shard", "shape", "dtype", "recompute", "offload", "scan", "loss", "attention", "reduce", "carry",
    "batch", "slots", "collective", "tuple",
]  # fmt: skip
Confidence = Literal["exact", "likely", "try"]

DONATION_LOWER, DONATION_LOWER_IF_MOVED, DONATION_UPPER, DONATION_MARGIN = 0.7, 0.6, 1.05, 0.005
"""Multiples of the estimate of a donation that are its bounds (lower if temporaries have to leave the outputs), and the
share of the temporaries by which both may err."""
MAX_COPIED = 1 / 3
"""Maximum share of donated arrays of which XLA keeps a copy without need, where temporaries are in the outputs."""
MARGIN = 0.02
"""Share of the temp allocations by which packing may change."""
MIN_SHARE = 0.01
"""Minimum upper bound of an intervention, as a share of what must fit."""
NARROWER = {"f32": "bfloat16", "f64": "float32", "s64": "int32", "u64": "uint32", "c128": "complex64"}
"""Element types with one of half the size."""
_SECOND_MOMENTS = r"\b(?:nu|exp_avg_sq)\b"
NARROWER_MARGIN = 0.05
"""Share of what smaller element types of arguments save that may be saved in addition, up to all temporaries."""
MIN_ARGUMENT_SHARE = 0.05
"""Minimum share of what must fit that a smaller element type of an argument has to save."""
TPU_SLOT = 1 << 14
"""Bytes of the slot that a TPU program may need to copy a donated array."""
MIN_SLOTS = 32
"""Number of such slots by which the temporaries of a TPU program may grow in any case."""
RESCHEDULED, MAX_RESCHEDULED = 0.1, 64 << 20
"""Share of the temporaries, and bytes, that a TPU program may save in addition if an argument is donated."""
MAX_DONATED = 8
"""Maximum number of donated arguments that are named."""
UNNAMED = "argument "
"""What the name of an argument begins with that the dump does not name."""
SHAPES_UPPER = 1.05
"""Multiple of the estimate that is the upper bound for an array in several shapes."""
MAX_SHAPES = 5
"""Maximum number of shapes that are proposed to be changed."""
MAX_RESULTS = 16
"""Maximum number of results of collectives that are classified, the largest first."""
MAX_GRANULE = 1 << 16
"""Maximum size of the cells of an arena."""
MIN_SMALL_BUFFERS = 64
"""Minimum number of small buffers that are worth a row."""

_MIXING_OPCODES = "^(?:dot|convolution|custom-call|sort|reduce-window|fft|gather|reverse|transpose|cholesky)$"
_MIXING_FUSIONS = "^k(?:Output|Input|Custom)$"
_MIXING_PRIMITIVES = rf"/(?:dot_general|conv_general_dilated|sort|cumsum|fft|gather|transpose|rev){END}"
_WIDENED = "On a CPU, XLA computes in f32, and may read a copy in f32."
_COPY = r"^(?:copy|copy-start|copy-done|bitcast|get-tuple-element)$"
_GRADIENTS = "give the result the sharding of the parameters."
_ACTIVATIONS = "shard the result along samples, heads or features with jax.lax.with_sharding_constraint."
_COLLECTIVES = r"^(?:all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute|ragged-all-to-all)"


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
    names: tuple[str, ...] = field(default=())


def largest_first(w: WhatIf, values: Ints) -> Ints:
    return values[np.argsort(-w.p.extent[values], kind="stable")]


# -- donation ------------------------------------------------------------------------------------


def donations(w: WhatIf) -> Iterator[Intervention]:
    """Donate each argument of which leaves could share memory with outputs that have their own.

    The outputs need no memory of their own. Temporaries that the compiler has put into them need another place.
    """
    p = w.p
    parameters, outputs, match = matched(p)
    found = np.flatnonzero((match.output >= 0) & w.in_memory[parameters.allocation])
    output, value = outputs.value[match.output[found]], parameters.value[found]
    number, roots = parameters.number[found], argument_names(w, value, parameters.number[found])
    safe = _written_last(w, value, output)
    codes, names = encoded(pa.chunked_array([roots]))
    for code in largest_groups(codes, p.extent[value]):
        rows = np.flatnonzero(codes == code)
        name, first = names[int(code)].as_py(), int(number[rows].min())
        donation = _donation(w, name, first, value[rows], output[rows], safe[rows])
        if _are_gradients(w, value[rows], output[rows]):
            # An update usually follows, and reads the argument.
            action = f"{donation.action} They are gradients: donate it only if nothing reads it afterwards."
            donation = replace(donation, lower=0, confidence="try", action=action)
        elif 2 * p.extent[value[rows[match.exact[found[rows]]]]].sum() < p.extent[value[rows]].sum():
            # They do not replace the argument: it may be a weight that happens to have as many bytes as a result.
            note = "The outputs mostly have other shapes or types: donate it only if nothing reads it afterwards."
            donation = replace(donation, action=f"{donation.action} {note}")
        yield donation


def _are_gradients(w: WhatIf, parameter: Ints, output: Ints) -> bool:
    """Return whether all these outputs are of the backward pass, and none reads its parameter, as an update does.

    The name of an update that is fused with a matrix product may be that of the product. A custom call, such as a
    kernel for attention, reads what it computes the gradient of.
    """
    p, (value, user, _, index) = w.p, uses_of(w.p)
    if not len(value) or not len(output) or (phases_of_values(p, output) != PHASES.index("backward")).any():
        return False
    argument, written = take(origins(p).argument, value), _copied(p, output)
    read = np.stack([user, np.where(argument < 0, take(p.owner, value), argument), _of_loop(p, user, index)])
    element = _of_loop(p, p.instruction_row[written], index_codes(p, p.tables["values"]["shape_index"])[written])
    updated = np.stack([p.instruction_row[written], p.owner[parameter], element])
    row = distinct_rows(*np.concatenate([updated, read], axis=1))
    may_update = ~has_opcode(p, updated[0], "^custom-call$")
    return not np.isin(row[: len(output)][may_update], row[len(output) :]).any()


def _of_loop(p: Program, instruction: Ints, index: Ints) -> Ints:
    """Return the index into its tuple for loops, -1 for others: a loop updates what it passes to the same element."""
    return np.where(has_opcode(p, instruction, "^while$"), index, -1)


def _copied(p: Program, values: Ints) -> Ints:
    """Return the values of which these are copies, or these values."""
    for _ in range(MAX_ROUNDS):
        operands = operands_of(p, values, np.zeros(len(values), np.int64))
        copies = (operands >= 0) & has_opcode(p, p.instruction_row[values], _COPY)
        if not copies.any():
            break
        values = np.where(copies, operands, values)
    return values


def narrower_arguments(w: WhatIf) -> Iterator[Intervention]:
    """Keep each large argument in an element type of half the size, together with the outputs that replace it."""
    p = w.p
    parameters, outputs, match = matched(p)
    element_types = pc.cast(p.value_text("element_type", parameters.value), pa.string())
    wide = pc.is_in(element_types, pa.array([*NARROWER], pa.string()))
    found = np.flatnonzero(wide.to_numpy(zero_copy_only=False) & w.in_memory[parameters.allocation])
    names = argument_names(w, parameters.value[found], parameters.number[found])
    codes, roots = encoded(pa.chunked_array([names]))
    is_kept = _are_second_moments(w, parameters.value[found])
    for code in largest_groups(codes, p.extent[parameters.value[found]]):
        rows = found[(codes == code) & ~is_kept]
        if not len(rows):
            continue
        output = outputs.value[match.output[rows][match.output[rows] >= 0]]
        name, number = roots[int(code)].as_py(), int(parameters.number[rows].min())
        but = " except Adam's second moments," if (is_kept & (codes == code)).any() else ""
        yield _narrower_argument(w, name, number, parameters.value[rows], output, but)


def _narrower_argument(w: WhatIf, name: str, number: int, values: Ints, outputs: Ints, but: str) -> Intervention:
    allocations = np.unique(w.p.owner[np.concatenate([values, outputs])])
    change = Change(-int(w.p.allocation_size[allocations].sum()) // 2, w.none)
    values = largest_first(w, values)
    wide = w.p.value_text("element_type", values[:1])[0].as_py()
    widened = w.p.tables.platform == "cpu" and NARROWER[wide] == "bfloat16" and not _only_updates_read(w, values)
    note = _WIDENED if widened else "Where the program converts it back, temporaries grow."
    text = f"Keep `{name}` in {NARROWER[wide]} instead of {wide},{but} if that is precise enough. {note}"
    estimate = w.saved(change)
    lower = -estimate if widened else int(0.4 * estimate)
    best = w.saved(Change(change.fixed, -_narrowed_with(w, values, wide)))
    # What remains of the temporaries may fit into outputs.
    upper = best + max(int(MARGIN * w.peak), min(w.peak, int(NARROWER_MARGIN * estimate)))
    large = estimate >= MIN_ARGUMENT_SHARE * w.total
    confidence: Confidence = "try" if widened else "likely"
    return Intervention("dtype", values, change, lower, upper if large else 0, confidence, text, name, number)


def _are_second_moments(w: WhatIf, values: Ints) -> Mask:
    """Return which arguments have a name that optax or PyTorch gives to Adam's second moments, and are f32.

    bfloat16 is too coarse for a decay of 0.999.
    """
    names = pc.cast(origins(w.p).names.columns(w.p.instruction_row[values])["op_name"], pa.string())
    is_f32 = pc.equal(pc.cast(w.p.value_text("element_type", values), pa.string()), "f32")
    found: Mask = _is_match(names, _SECOND_MOMENTS) & is_f32.to_numpy(zero_copy_only=False)
    return found


def _narrowed_with(w: WhatIf, values: Ints, wide: str) -> Ints:
    """Return the bytes at each step that are not needed either if these arguments have a narrower element type.

    Copies of another type are not needed. Gradients have the dimensions of what the forward pass reads, and halve.
    """
    p, (dimension, _), (value, user, _, _) = w.p, _dimensions(w.p), uses_of(w.p)
    alike = w.in_arena & np.isin(dimension, dimension[values]) & (dimension >= 0)
    is_wide = alike.copy()
    types = pc.cast(p.value_text("element_type", np.flatnonzero(alike)), pa.string())
    is_wide[alike] = pc.fill_null(pc.equal(types, wide), False).to_numpy(zero_copy_only=False)
    argument = origins(p).argument
    is_own = np.isin(argument, p.owner[values])
    copies, gradients = alike & ~is_wide & is_own, is_wide & (is_own | (argument < 0))
    read = np.isin(p.instruction_row, user[np.isin(value, values) & (user >= 0)])
    if not (copies.any() or (phases_of_values(p, np.flatnonzero(read)) == PHASES.index("forward")).any()):
        return w.none
    narrowed: Ints = w.only(copies) + w.only(gradients) // 2
    return narrowed


def _only_updates_read(w: WhatIf, values: Ints) -> bool:
    """Return whether nothing reads these values but fusions of elementwise operations that write outputs.

    They convert what they read. Other fusions may leave the conversion to an instruction of its own.
    """
    p, (value, user, _, _) = w.p, uses_of(w.p)
    users = user[np.isin(value, values) & (user >= 0)]
    kinds = pc.cast(take_text(p.tables["instructions"]["fusion_kind"], users), pa.string())
    written = p.instruction_row[np.isin(p.category, (DONATED, LIVE_OUT))[p.owner]]
    updates = _is_match(kinds, "^kLoop$") & np.isin(users, written)
    return bool((updates | has_opcode(p, users, "^(?:tuple|bitcast)$")).all())


def _donation(w: WhatIf, name: str, number: int, value: Ints, output: Ints, safe: Mask) -> Intervention:
    change = without_outputs(w, output, _copies(w, output))
    estimate, best = w.saved(change), w.saved(without_outputs(w, output, _copies(w, output) | _loops(w, output)))
    certain = without_outputs(w, output[safe], _copies(w, output))
    copied = _copied_again(w, value[safe], output[safe])
    sure = max(0, w.saved(certain) - copied)
    margin = int(DONATION_MARGIN * w.peak)
    is_tpu = w.p.tables.platform == "tpu"
    slots = len(output) * (TPU_SLOT if is_tpu else 0)
    low = DONATION_LOWER_IF_MOVED if change.levels.any() else DONATION_LOWER
    lower, upper = int(low * sure) - margin - slots, int(DONATION_UPPER * best) + min(margin, best // 2)
    if w.p.tables.platform == "cpu" and (lower > 0 or upper >= MIN_SHARE * w.total):
        # The compiler may find free space elsewhere for the temporaries that are in these outputs now.
        upper = max(upper, -certain.fixed)
    if not is_tpu and change.levels.any():
        # Copies of arguments, which only some programs need, may take as much as is saved.
        lower = min(lower, sure + int(MAX_COPIED * certain.fixed))
    if is_tpu:
        # The compiler schedules the program anew, which may need fewer temporaries, or more.
        upper += _rescheduled(w, upper)
        lower -= rescheduled_at_worst(w, lower)
    confidence: Confidence = "likely" if lower > 0 else "try"
    error = w.arena_bytes + max(slots, MIN_SLOTS * TPU_SLOT if is_tpu else 0)
    if safe.all() and not copied and error < MARGIN * estimate and not change.levels.any():
        lower, upper, confidence = estimate - error, estimate + error, "exact"
    shares = "arrays then shares" if len(output) == 1 else "arrays then share"
    text = f"{_how_to_donate(w, name)} {len(output):,} of its {shares} memory with outputs."
    if confidence == "try":
        text += " The compiler may have to copy them."
    values = largest_first(w, value)
    return Intervention("donate", values, change, max(lower, 0), upper, confidence, text, name, number)


def _how_to_donate(w: WhatIf, name: str) -> str:
    """Return how to donate an argument besides others: with donate_argnums as well, JAX takes both as they are."""
    if name.startswith(UNNAMED):
        return f"Donate {name} of the program."
    donated = np.flatnonzero(w.p.category == DONATED)
    donated = donated[w.p.representative[donated] >= 0]
    number = ints(w.p.allocations, "parameter_number")[donated]
    others = argument_names(w, w.p.representative[donated], number).to_pylist()
    before = [n for n in dict.fromkeys(others) if n != name]
    if not before or len(before) > MAX_DONATED or any(n.startswith(UNNAMED) for n in before):
        more = " Name those that are donated already in the same option." if before else ""
        return f"Donate `{name}`: jax.jit(..., donate_argnames={name!r}).{more}"
    names = ", ".join(map(repr, [*before, name]))
    return f"Donate `{name}`, too: jax.jit(..., donate_argnames=({names})), without donate_argnums."


def _rescheduled(w: WhatIf, upper: int) -> int:
    """Return the bytes that a TPU program may save in addition to a bound, because it is scheduled anew."""
    return min(int(RESCHEDULED * w.peak), upper // 2, MAX_RESCHEDULED)


def rescheduled_at_worst(w: WhatIf, lower: int) -> int:
    """Return the bytes by which a TPU program that is scheduled anew may save less than a bound."""
    return min(int(RESCHEDULED / 2 * w.peak), max(lower, 0) // 3, MAX_RESCHEDULED)


def _copied_again(w: WhatIf, parameter: Ints, output: Ints) -> int:
    """Return the bytes of a copy that keeps the largest of these arrays for what may read it later, or 0.

    Except on TPUs, XLA copies arguments before it orders the instructions. Copies of others may lie in the place of
    what has been copied.
    """
    if w.p.tables.platform == "tpu" or not len(parameter):
        return 0
    largest = int(w.p.extent[parameter].argmax())
    writer = int(w.p.instruction_row[output[largest]])
    return int(w.p.extent[parameter[largest]]) if has_independent_reader(w.p, int(parameter[largest]), writer) else 0


def without_outputs(w: WhatIf, outputs: Ints, in_place: Mask) -> Change:
    """Return the change if these outputs need no memory, nor do the values over which they are written in place."""
    allocations = np.zeros(len(w.p.allocation_ids), bool)
    allocations[w.p.owner[outputs]] = True
    moved = w.moved_out_of(allocations, except_for=in_place)
    return Change(-int(w.p.allocation_size[allocations].sum()), moved)


def _copies(w: WhatIf, outputs: Ints) -> Mask:
    """Return which values are copies that fill the allocation of an output, and over which it is written.

    They keep the argument as it is, which donation makes unnecessary.
    """
    p = w.p
    written = np.full(len(p.allocation_ids), -1, np.int64)
    written[p.owner[outputs]] = p.ranges[0][outputs]
    rows = np.flatnonzero((written[p.owner] >= 0) & (p.extent == p.allocation_size[p.owner]))
    rows = rows[p.ranges[1][rows] == written[p.owner[rows]]]
    found = np.zeros(len(p.owner), bool)
    found[rows[_is_match(_opcodes(w, rows), "^copy")]] = True
    return found


def _loops(w: WhatIf, outputs: Ints) -> Mask:
    """Return which values fill the allocation of an output that is the result of a loop.

    The loop may write it over the argument.
    """
    p, of_loop = w.p, np.zeros(len(w.p.allocation_ids), bool)
    of_loop[p.owner[outputs[_is_match(_opcodes(w, outputs), "^while$")]]] = True
    fills: Mask = of_loop[p.owner] & (p.extent == p.allocation_size[p.owner])
    return fills


def _opcodes(w: WhatIf, values: Ints) -> pa.Array:
    return pc.cast(take_text(w.p.tables["instructions"]["opcode"], w.p.instruction_row[values]), pa.string())


def _written_last(w: WhatIf, parameter: Ints, output: Ints) -> Mask:
    """Return whether nothing reads each parameter after the output is written, and the output can be in its place.

    Without used values, it is not known of any.
    """
    p = w.p
    last = np.full(len(p.owner), -1, np.int64)
    value, step = use_steps(p)
    if not len(value):
        return np.zeros(len(parameter), bool)
    np.maximum.at(last, value, step)
    written = p.ranges[0][output]
    safe: Mask = (last[parameter] < written) | ((last[parameter] == written) & ~_mixes(w, output))
    return safe & (written >= 0)


def _mixes(w: WhatIf, values: Ints) -> Mask:
    """Return whether an element of each value may depend on other elements of an operand.

    Fusions with several results are updates of a state: the products that they may contain are gradients.
    """
    p, instructions = w.p, w.p.tables["instructions"]
    patterns = {"opcode": _MIXING_OPCODES, "fusion_kind": _MIXING_FUSIONS, "op_name": _MIXING_PRIMITIVES}
    texts = {c: pc.cast(take_text(instructions[c], p.instruction_row[values]), pa.string()) for c in patterns}
    mixes = np.any([_is_match(texts[c], pattern) for c, pattern in patterns.items()], axis=0)
    index = pc.is_null(p.value_text("shape_index", values)).to_numpy(zero_copy_only=False)
    return np.asarray(mixes & index, bool)


def argument_names(w: WhatIf, values: Ints, number: Ints) -> pa.Array:
    """Return the name of the argument that each parameter is part of: the first name in its op_name, or its number."""
    names = pc.cast(w.p.source_columns(values)["op_name"], pa.string())
    roots = pc.struct_field(pc.extract_regex(names, r"^(?P<root>[A-Za-z_]\w*)"), "root")
    numbered = pc.binary_join_element_wise(UNNAMED.strip(), pc.cast(arrow_array(number), pa.string()), " ")
    return pc.coalesce(roots, numbered)


def joined_by_and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _is_match(texts: pa.Array, pattern: str) -> Mask:
    if not len(texts):
        return np.zeros(0, bool)
    found: Mask = pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False)
    return found


# -- layouts -------------------------------------------------------------------------------------


def shapes(w: WhatIf) -> Iterator[Intervention]:
    """Change the shapes whose layouts add most bytes: tiles round small minor dimensions up."""
    p = w.p
    padding = np.where(p.unpadded > 0, np.maximum(p.extent - p.unpadded, 0), 0)
    counts = w.at_peak | (p.is_fixed & w.in_memory)[p.owner] & (np.arange(len(p.owner)) == p.representative[p.owner])
    codes, names = encoded(p.tables["values"]["shape"])
    padding[take(_is_match(pc.cast(names, pa.string()), r"^\("), codes) > 0] = 0  # tables of tuples
    if not (counts & (padding > 0)).any():
        return
    total = np.bincount(codes[counts] + 1, padding[counts], minlength=len(names) + 1)[1:]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for code in np.argsort(-total, kind="stable")[:MAX_SHAPES].tolist():
        alike.setdefault(_padded_array(names[code].as_py()), []).append(code)
    for group in alike.values():
        values = np.flatnonzero(np.isin(codes, group) & (padding > 0))
        if len(values) and "[]" not in names[group[0]].as_py():
            yield _shape(w, [names[code].as_py() for code in group], values, padding, counts)


def _padded_array(shape: str) -> tuple[Any, ...]:
    """Return a key that two shapes share if only dimensions without padding are merged or split."""
    array, _, layout = shape.partition("{")
    padded = sorted(t.padded / t.size for t in tiled_dimensions(shape) if t.is_padded)
    sizes = sorted(t.size for t in tiled_dimensions(shape) if t.is_padded)
    element_type, _, dimensions = array.rstrip("]").partition("[")
    elements = math.prod(map(int, re.findall(r"\d+", dimensions)))
    return (element_type, elements, *sizes, *padded) if sizes else (array, layout)


def _shape(w: WhatIf, texts: list[str], values: Ints, padding: Ints, counts: Mask) -> Intervention:
    p, shape, smaller = w.p, texts[0], w.p.extent.copy()
    smaller[values] -= padding[values]
    fixed = -int(padding[values[counts[values] & ~w.in_arena[values]]].sum())
    change = Change(fixed, -w.shrunk(smaller))
    estimate, times = w.saved(change), p.extent[values].sum() / max(1, (p.extent - padding)[values].sum())
    array, *others = dict.fromkeys(text.partition("{")[0] for text in texts)
    also = f"So does that of {joined_by_and(others)}. " if others else ""
    tiled = [t for t in tiled_dimensions(shape) if t.is_padded]
    padded = " and ".join(f"dimension {t.dimension} from {t.size:,} to {t.padded:,}" for t in tiled)
    text = (
        f"The layout makes {array} {times:.1f} times as large{': it pads ' if padded else ''}{padded}. "
        f"{also}Merge its dimensions (reshape it to one), put a long one last, or choose sizes that need no padding."
    )
    order = largest_first(w, values[counts[values]])
    # The compiler may need a copy in the other layout.
    lower = min(-int((p.extent - padding)[order].max(initial=0)), -int(MARGIN * w.peak))
    upper = int(SHAPES_UPPER * estimate) if others else estimate  # parts of the array have more shapes
    return Intervention("shape", order, change, lower, upper, "try", text)


# -- small slots ---------------------------------------------------------------------------------


def small_slots(w: WhatIf) -> Iterator[Intervention]:
    """Use fewer small buffers, of which each keeps a cell of the arena for itself."""
    p, owner = w.p, w.p.owner[w.rows]
    is_large = (p.category == TEMP) & w.in_memory & (p.allocation_size >= max(1, MIN_SHARE * w.total))
    for arena in np.flatnonzero(is_large).tolist():
        rows = w.rows[owner == arena]
        offsets = np.unique(p.offset[rows])
        if len(offsets) < 2:
            continue
        granule = int(np.bitwise_or.reduce(offsets))
        granule = min(granule & -granule, MAX_GRANULE)
        cells, small = _small_cells(w, rows, granule), rows[p.extent[rows] <= granule // 4]
        if len(cells) * granule >= MIN_SHARE * w.total and len(small) >= MIN_SMALL_BUFFERS:
            yield _slots(w, small, len(cells) * granule, granule)


def _small_cells(w: WhatIf, rows: Ints, granule: int) -> Ints:
    """Return the cells of an arena in which there are never any but small values."""
    p = w.p
    is_small = p.extent[rows] <= granule // 4
    small, large = rows[is_small], rows[~is_small]
    cells = np.unique(p.offset[small] // granule)
    first = np.sort(p.offset[large] // granule)
    last = np.sort((p.offset[large] + p.extent[large] - 1) // granule)
    n_large = np.searchsorted(first, cells, "right") - np.searchsorted(last, cells, "left")
    alone: Ints = cells[n_large == 0]
    return alone


def _slots(w: WhatIf, values: Ints, lost: int, granule: int) -> Intervention:
    shapes = pc.cast(w.p.value_text("shape", values), pa.string())
    n_tables = int(pc.sum(pc.starts_with(shapes, "(")).as_py() or 0)
    text = (
        f"{len(values):,} buffers of at most {granule // 4:,} bytes keep slots of {granule:,} bytes; {n_tables:,} of "
        "them are tables of tuples, as asynchronous copies have. Pass fewer, larger arrays (join small ones), or scan "
        f"over the layers."
    )
    change = Change(-lost, w.none)
    return Intervention("slots", largest_first(w, values), change, 0, lost + lost // 20, "try", text)


# -- collectives and tuples ----------------------------------------------------------------------


def collectives(w: WhatIf) -> Iterator[Intervention]:
    """Gather or exchange less at a time."""
    codes, names = encoded(w.p.tables["instructions"]["opcode"])
    is_collective = _is_match(names, _COLLECTIVES)
    opcode = take(codes, w.p.instruction_row)
    is_slice = flags_of(_is_match(names, "^all-gather"), opcode) & _are_slices(w)
    members = w.in_arena & flags_of(is_collective, opcode) & ~is_slice
    for code in largest_groups(np.where(members & w.at_peak, opcode, -1), w.p.extent).tolist():
        yield _collective(w, names[code].as_py(), members & (opcode == code))


def _collective(w: WhatIf, opcode: str, members: Mask) -> Intervention:
    change = Change(0, -w.only(members))
    what, values = opcode.removesuffix("-start"), largest_first(w, np.flatnonzero(members & w.at_peak))
    how = {
        "all-gather": "Gather the weights of one layer at a time (scan over layers), or keep the result sharded with "
        "jax.lax.with_sharding_constraint.",
        "all-reduce": f"Reduce-scatter instead: {_GRADIENTS if _may_be_gradient(w, int(values[0])) else _ACTIVATIONS}",
        "all-to-all": "Exchange less at a time: split the array, or lower the capacity of experts.",
    }.get(what, "Split the array, so that less of it is in flight.")
    text = f"The results of {what} take memory at the peak. {how}"
    lower, upper = min(0, -int(MARGIN * w.peak)), w.saved(Change(0, -w.only(members | _like_gathered(w, members))))
    if what == "all-gather":
        # What has as many elements as the largest result, in a type that is as wide or twice as wide, is sharded then.
        size = int(w.p.unpadded[values].max())
        alike = members | (w.in_arena & np.isin(w.p.unpadded, [size, 2 * size]))
        best = w.saved(Change(0, -w.only(alike)))
        upper = max(upper, best + (_rescheduled(w, best) if w.p.tables.platform == "tpu" else 0))
    if upper >= MIN_SHARE * w.total:
        upper = _others_sharded(w, values, members, upper)
    return Intervention("collective", values, change, lower, upper, "try", text)


def _others_sharded(w: WhatIf, values: Ints, members: Mask, upper: int) -> int:
    """Return an upper bound that allows for other arrays to be sharded along with these results.

    That is what has as many samples as activations among them, of which each device keeps its part, and outputs with
    the dimensions of one of them. Temporaries in these outputs need another place then.
    """
    p, own = w.p, values[:MAX_RESULTS][origins(w.p).argument[values[:MAX_RESULTS]] < 0]
    is_gradient = np.array([_may_be_gradient(w, value) for value in own.tolist()], bool)
    results, only = w.only(members), w.only(members | _of_as_many_samples(w, own[~is_gradient]))
    removed = only - (only - results) // _n_devices(w, values) if (only > results).any() else only
    codes, output = _dimensions(p)[0], w.in_memory & (p.category == LIVE_OUT) & (p.representative >= 0)
    output[output] = np.isin(codes[p.representative[output]], codes[own])
    saved = w.saved(Change(0, -removed))
    temporaries = min(max(upper, saved) + w.lost_by(only), w.arena_bytes)
    without = Change(-int(p.allocation_size[output].sum()), w.moved_out_of(output) - removed)
    return temporaries + max(0, w.saved(without) - saved)


def _n_devices(w: WhatIf, values: Ints) -> int:
    """Return the number of devices that take part in these collectives, as printed, or else more than there are."""
    attributes = take_text(w.p.tables["instructions"]["attributes"], w.p.instruction_row[values[:MAX_RESULTS]])
    found = (replica_groups(text or "") for text in attributes.to_pylist())
    return max((groups.devices for groups in found if groups), default=MAX_DEVICES)


def _of_as_many_samples(w: WhatIf, activations: Ints) -> Mask:
    """Return which temporaries have the first dimension of one of these activations as their first or second one.

    Except those with the dimensions of an argument: there may be as many layers as samples.
    """
    codes, names = _dimensions(w.p)
    leading = pc.extract_regex(names, r"^(?P<first>\d{1,17})(?:,(?P<second>\d{1,17}))?")
    first, second = (_numbers(pc.struct_field(leading, field)) for field in ("first", "second"))
    sizes = np.setdiff1d(take(first, codes[activations]), [-1])
    is_sample = np.isin(take(first, codes), sizes) | np.isin(take(second, codes), sizes)
    found: Mask = w.in_arena & is_sample & ~np.isin(codes, _of_arguments(w.p))
    return found


def _of_arguments(p: Program) -> Ints:
    """Return the codes of the dimensions of arguments."""
    codes = np.unique(take(_dimensions(p)[0], p.representative[(p.category == PARAMETER) | (p.category == DONATED)]))
    return codes[codes >= 0]


def _numbers(texts: pa.Array) -> Ints:
    """Return these numbers, -1 for what is empty or missing."""
    known = pc.if_else(pc.equal(pc.fill_null(texts, ""), ""), "-1", texts)
    return np.asarray(pc.cast(known, pa.int64()), np.int64)


def _like_gathered(w: WhatIf, members: Mask) -> Mask:
    """Return which temporaries have the dimensions of weights among these: their gradients are gathered as well."""
    dimension, _ = _dimensions(w.p)
    weights = members & w.at_peak & (origins(w.p).argument >= 0) & (dimension >= 0)
    alike: Mask = w.in_arena & np.isin(dimension, dimension[weights])
    return alike


def _may_be_gradient(w: WhatIf, value: int) -> bool:
    """Return whether the dimensions of a value are multiples of an argument's, or of those of a layer.

    What the forward pass computes is no gradient.
    """
    p, (codes, names) = w.p, _dimensions(w.p)
    forward = [PHASES.index(phase) for phase in ("forward", "recompute")]
    if phases_of_values(p, np.array([value]))[0] in forward or codes[value] < 0:
        return bool(codes[value] < 0)
    texts = pc.take(names, arrow_array(np.append(codes[value], _of_arguments(p)))).to_pylist()
    size, *arguments = ([int(n) for n in text.split(",") if 0 < len(n) < 18] for text in texts)
    layers = (argument[1:] for argument in arguments if len(argument) > 1)
    return any(
        len(like) == len(size) and all(n and m % n == 0 for m, n in zip(size, like, strict=True))
        for like in (*arguments, *layers)
    )


def _are_slices(w: WhatIf) -> Mask:
    """Return which values are slices of arguments, by their number of dimensions: a loop reads those of a layer."""
    p, (codes, names) = w.p, _dimensions(w.p)
    rank = take(np.asarray(pc.count_substring(names, ","), np.int64), codes)
    whole = take(p.representative, origins(p).argument)
    found: Mask = (whole >= 0) & (codes >= 0) & (rank < take(rank, whole))
    return found


def _dimensions(p: Program) -> tuple[Ints, pa.Array]:
    """Return codes (-1 for none) and texts of the dimensions of each array, without those of 1."""
    return p.once("dimensions", lambda: _read_dimensions(p))


def _read_dimensions(p: Program) -> tuple[Ints, pa.Array]:
    codes, names = encoded(p.tables["values"]["shape"])
    found = pc.struct_field(pc.extract_regex(pc.cast(names, pa.string()), r"^\w+\[(?P<n>[\d,]+)\]"), "n")
    number, texts = encoded(pa.chunked_array([pc.replace_substring_regex(found, r"\b1,|,1$", "")]))
    return take(number, codes), pc.cast(texts, pa.string())


def unread_elements(w: WhatIf) -> Iterator[Intervention]:
    """Return fewer results: elements of a tuple that nothing reads live as long as the others are needed."""
    p = w.p
    value, _ = use_steps(p)
    is_read = np.zeros(len(p.owner), bool)
    is_read[value] = True
    known = p.tables["uses"].num_rows > 0
    index = p.tables["values"]["shape_index"]
    is_element = pc.fill_null(pc.match_substring(pc.cast(index, pa.string()), "{"), False).to_numpy() & known
    codes, names = encoded(index)
    empty = pc.index(names, "{}").as_py()
    members = w.at_peak & ~is_read & is_element & (codes != empty)
    values = np.flatnonzero(members)
    if not len(values):
        return
    change = Change(0, -w.only(members))
    text = (
        "Nothing reads these results, which are elements of a tuple that is needed, or the scratch memory of a library "
        "call. Compute only what is used, or try another algorithm."
    )
    yield Intervention("tuple", largest_first(w, values), change, 0, w.saved(change), "try", text)
