"""Find out what was edited between two programs, and which buffers contribute to a difference because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..compute.columns import Ints, Mask
from .argument_edits import renamed_arguments, single_arguments
from .context import Context, Edit
from .gather_edits import gathered, gathered_arguments
from .loop_edits import stacks
from .matching import Matching
from .program_edits import (
    compiler,
    constants,
    donation,
    flags,
    host_memory,
    instructions,
    layers_changed,
    memory_spaces,
    operations,
    recomputed_gradients,
    rematerialization,
    reordered_arguments,
    resized_outputs,
    single_outputs,
)
from .repeat_edits import repeats
from .reshape_edits import reshaped_arguments
from .rest_edits import arrays_of_rest, dimensions_of_rest, element_types_of_rest
from .rows import Differences
from .shape_edits import conversions, devices, dimensions, element_types, loops, sharding, types_of_operations
from .stack_edits import stacked_arguments, stacked_outputs
from .update_edits import updates_in_place

RULES: tuple[Callable[[Context], Iterator[Edit]], ...] = (
    layers_changed,
    stacked_arguments,
    single_arguments,
    renamed_arguments,
    reordered_arguments,
    donation,
    stacked_outputs,
    single_outputs,
    devices,
    sharding,
    loops,
    rematerialization,
    recomputed_gradients,
    element_types,
    conversions,
    reshaped_arguments,
    dimensions,
    resized_outputs,
    constants,
    operations,
    repeats,
    types_of_operations,
    stacks,
    gathered,
    gathered_arguments,
    updates_in_place,
    instructions,
    memory_spaces,
    host_memory,
    flags,
    compiler,
)
"""An edit that an earlier rule finds explains a buffer first."""
RULES_OF_REST: tuple[Callable[[Context, Mask], Iterator[Edit]], ...] = (
    element_types_of_rest, dimensions_of_rest, arrays_of_rest
)  # fmt: skip
"""Rules about the contributions that no edit explains."""
CHOSEN = ("dimensions", "element type", "operations", "loops", "sharding")
"""Kinds of edits in buffers that are the compiler's choices if it compiles for another chip."""


def _is_choice(c: Context, edit: Edit) -> bool:
    """Return whether an edit that is only found in buffers may be what the compiler chooses for another chip."""
    return edit.evidence == "buffers" and edit.kind in CHOSEN and c.other_chip is not None


def find_edits(m: Matching, rows: Differences) -> tuple[list[Edit], Ints]:
    """Return what differs between two programs, and the edit that explains each contribution, -1 for none.

    An edit that an earlier one states as well, such as the dimension of a scan, counts only if it explains more. Those
    found in names do not count if a side has none: they are not gone.
    """
    context, edits = Context(m, rows), list[Edit]()
    explained = np.full(rows.n, -1, np.int64)
    for rule in RULES:
        for edit in rule(context):
            if _is_choice(context, edit) or (edit.evidence == "names" and not context.has_names):
                continue
            claims = (explained < 0) & edit.claims
            if not claims.any() and any(edit.text in earlier.text for earlier in edits):
                continue
            explained[claims] = len(edits)
            edits.append(edit)
    for rule_of_rest in RULES_OF_REST:
        for edit in rule_of_rest(context, explained < 0):
            if _is_choice(context, edit):
                continue
            explained[edit.claims] = len(edits)
            edits.append(edit)
    return edits, explained
