"""Donate arguments, with bounds of what that saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..aliasing import matched
from ..buffer_names import phases_of_values
from ..columns import Ints, Mask, encoded, ints, take, take_text
from ..layout import DONATED
from ..op_names import END, PHASES, matching
from ..origins import MAX_ROUNDS, has_opcode, index_codes, operands_of, origins, uses_of
from ..program import Program, distinct_rows
from ..uses import has_independent_reader, use_steps
from .intervention import (
    MARGIN,
    MIN_SHARE,
    UNNAMED,
    Confidence,
    Intervention,
    argument_names,
    largest_first,
    rescheduled,
    rescheduled_at_worst,
)
from .what_if import Change, WhatIf, largest_groups

DONATION_LOWER, DONATION_LOWER_IF_MOVED, DONATION_UPPER, DONATION_MARGIN = 0.7, 0.6, 1.05, 0.005
"""Multiples of the estimate of a donation that are its bounds (lower if temporaries have to leave the outputs), and the
share of the temporaries by which both may err."""
MAX_COPIED = 1 / 3
"""Maximum share of the donated arrays that XLA copies needlessly, where temporaries are in the outputs."""
TPU_SLOT = 1 << 14
"""Bytes of the slot that a TPU program may need to copy a donated array."""
MIN_SLOTS = 32
"""Number of such slots by which the temporaries of a TPU program may grow in any case."""
MAX_DONATED = 8
"""Maximum number of donated arguments that are named."""
_MIXING_OPCODES = "^(?:dot|convolution|custom-call|sort|reduce-window|fft|gather|reverse|transpose|cholesky)$"
_MIXING_FUSIONS = "^k(?:Output|Input|Custom)$"
_MIXING_PRIMITIVES = rf"/(?:dot_general|conv_general_dilated|sort|cumsum|fft|gather|transpose|rev){END}"
_COPY = r"^(?:copy|copy-start|copy-done|bitcast|get-tuple-element)$"


def undonated_arguments(w: WhatIf) -> Iterator[Intervention]:
    """Donate each argument with leaves that could share the memory of outputs.

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
    """Return what these values are copies of, or the values themselves."""
    for _ in range(MAX_ROUNDS):
        operands = operands_of(p, values, np.zeros(len(values), np.int64))
        copies = (operands >= 0) & has_opcode(p, p.instruction_row[values], _COPY)
        if not copies.any():
            break
        values = np.where(copies, operands, values)
    return values


def _donation(w: WhatIf, name: str, number: int, value: Ints, output: Ints, safe: Mask) -> Intervention:
    change = without_outputs(w, output, _copies(w, output))
    estimate, best = w.saved(change), w.saved(without_outputs(w, output, _copies(w, output) | _loops(w, output)))
    certain = without_outputs(w, output[safe], _copies(w, output))
    copied = _copied_again(w, value[safe], output[safe])
    sure = w.saved(certain) - copied
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
        upper += rescheduled(w, upper)
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
    found[rows[has_opcode(p, p.instruction_row[rows], "^copy")]] = True
    return found


def _loops(w: WhatIf, outputs: Ints) -> Mask:
    """Return which values fill the allocation of an output that is the result of a loop, or a copy of one.

    The loop may write it over the argument. A copy has another layout.
    """
    p, of_loop = w.p, np.zeros(len(w.p.allocation_ids), bool)
    is_result = has_opcode(p, p.instruction_row[_copied(p, outputs)], "^while$")
    of_loop[p.owner[outputs[is_result]]] = True
    fills: Mask = of_loop[p.owner] & (p.extent == p.allocation_size[p.owner])
    return fills


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
    mixes = np.any([matching(texts[c], pattern) for c, pattern in patterns.items()], axis=0)
    index = pc.is_null(p.value_text("shape_index", values)).to_numpy(zero_copy_only=False)
    return np.asarray(mixes & index, bool)
