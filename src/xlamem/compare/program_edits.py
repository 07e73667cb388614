"""Rules that find edits by the interface and by names: arguments, donation, layers, recomputation, scopes, outputs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.bills import DEVICE_TOTAL
from ..compute.callers import callers_outside, calls_from
from ..compute.columns import Ints, Mask, arrow_array, encoded, flags_of, groups_of, ints, sums_of, take
from ..compute.layout import CONSTANT
from ..compute.op_names import (
    CALL,
    MOVE,
    PARAMETERS,
    are_recomputed,
    ends_in_move,
    folded_paths,
    is_tensorflow,
    layers_by_scope,
    plain_names,
)
from ..compute.program import Program
from ..formatting import count, plain_shape, size
from ..parse.arrays import row_of
from .compiler import (
    OTHER_FORMAT,
    TARGET,
    changed_flags,
    features_of,
    flags_by_role,
    formats_exclude_each_other,
    module_of,
    other_changelist,
)
from .context import (
    MAX_NAMES,
    PRODUCT_NAME,
    TENSORFLOW_MOVE,
    Context,
    Edit,
    Evidence,
    Names,
    are,
    largest,
    listed,
    with_scopes,
)
from .graph import both_sides
from .interface import caller_shapes
from .rows import ShapePairs, shape_text
from .shape_edits import conversions, resharded, retyped
from .stack_edits import are_layers_restacked, restacked_outputs
from .tables import HOST

CONTENT_FEATURES = {"tree_spaced", "frames", "crlf", "not_utf8", "address", "from_instruction_blank"}
"""Features that depend on the program, or on what became of the files."""
CONVENTIONS = (r"^jit\([^()]*\)/jit\(main\)", PARAMETERS)
"""What only some versions of JAX put in op_names."""
MIN_RENAMED = 0.3
"""Minimum share of the operations that have other scopes if scopes were renamed."""
MIN_CONSTANTS = 1 << 16
"""Minimum change of all constants in bytes."""
BACKWARD = r"\btranspose\("
JVP = r"\bjvp\("
"""The op_names of the forward pass, and with `transpose(` those of the backward pass."""
SAVED = r"(?:^|/)reduce_precision$"
RECOMPUTED = r"\brematted_computation\b"
IN_CHECKPOINT = rf"(?:(?<![^/])(?P<around>[^/]+)/)?(?:(?:checkpoint|remat\d*)/)?{RECOMPUTED}\)*/"
"""What precedes the path of a recomputed operation inside of its checkpoint."""
CHECKPOINT = r"(?:^|[/(])(?:checkpoint|remat\d*)(?:[/)(]|$)"
NESTED = r"\btranspose\([^;]*\bcheckpoint/[^;]*\bcheckpoint/"
"""The op_names of the backward pass of what two calls of `jax.checkpoint` contain, one inside of the other.

XLA joins the op_names of instructions that it merges by a semicolon.
"""
UNFUSED = r"^(?:custom-call|sort|topk|fft|cholesky|triangular-solve|rng-bit-generator)$"
"""Opcodes that XLA does not put into fusions."""
MIN_OPERATIONS = 4
"""Minimum number of operations of a scope that fusions do not all contain on the other side."""
GATHERED = r"(?:^|/)(?:gather|scatter[a-z_\-]*)$"
UNKNOWN = "operations may differ, but are unknown without the HLO texts"
CHECKPOINTED_CALL = r"(?:^|/)(?:checkpoint|remat\d*)$"
"""Operations whose innermost stack frame is the call of a function with `jax.checkpoint`."""
LIBRARY = r"[/\\](?:(?:jax|haiku|optax)[/\\]_src|flax[/\\](?:core|linen|nnx))[/\\]|[/\\]equinox[/\\](?:_|internal)"
"""Files of libraries that wrap `jax.checkpoint`, wherever they are installed."""
NOW_ALSO, NO_LONGER = "now also", "no longer"
"""Whether it is B or A that recomputes an operation which the other one does not."""
MIN_CHANGE = 0.2
"""The backward pass recomputes more or less if the share of recomputed instructions differs by this part of it."""
MIN_ENTERED = 3
"""Minimum number of lines of the backward pass that are inside of a checkpoint on one side, outside on the other."""

Caller = tuple[str, str | None]
"""Name of a file, and the function that calls another one."""


def reordered_arguments(c: Context) -> Iterator[Edit]:
    """Find out whether the same arguments are in another order: XLA donates, and schedules, in their order."""
    n = len(c.interface.reordered)
    if n:
        yield Edit("arguments", f"{are(n, 'argument')} in another order", c.none, "interface")


def donation(c: Context) -> Iterator[Edit]:
    """Find arguments that are donated on one side only; outputs and copies that shared their memory are explained."""
    i = c.interface
    (lost_a, lost_b), (won_a, won_b) = i.undonated, i.newly_donated
    possible = i.can_be_donated(lost_b)
    yield from _donation(c, 0, lost_a[possible], lost_b[possible], "no longer donated", "interface")
    impossible = "no longer donated, because no output has the shape"
    yield from _donation(c, 0, lost_a[~possible], lost_b[~possible], impossible, "buffers")
    yield from _donation(c, 1, won_a, won_b, "donated now", "interface")


def _donation(c: Context, side: int, left: Ints, right: Ints, text: str, evidence: Evidence) -> Iterator[Edit]:
    """Describe matched arguments that are donated on this side only."""
    if not len(right):
        return
    i = c.interface
    names = largest(i.b.names, right, c.m.b.allocation_size[i.b.allocation[right]])
    p, own, rows, other = (c.m.a, i.a, left, c.rows.only_in_b) if side == 0 else (c.m.b, i.b, right, c.rows.only_in_a)
    in_donated = np.isin(take(p.owner, c.rows.value[side]), own.allocation[rows])
    yield Edit("donation", f"{are(len(right), 'argument')} {text}: {names}", other & in_donated, evidence)


def layers_changed(c: Context) -> Iterator[Edit]:
    """Find layers, numbered like others, that only one side has, unless they are only stacked differently."""
    if are_layers_restacked(c):
        return
    a, b = both_sides(lambda names: _layers_of(names.texts), *c.op_names)
    for word, mine, theirs in (("new", b, a), ("gone", a, b)):
        stems = {layer for layer, _ in theirs}
        single = sorted(pair for pair in mine - theirs if pair[0] in stems)
        if single:
            stem = min(layer for layer, _ in single)
            names = listed([layer.replace("*", str(index)) for layer, index in single if layer == stem])
            keys = pa.array([f"{layer} {index}" for layer, index in single], pa.string())
            columns = (pc.cast(c.rows.table[name], pa.string()) for name in ("layer", "layer_index"))
            claims = pc.is_in(pc.binary_join_element_wise(*columns, " "), keys).to_numpy()
            number = are(len({index for _, index in single}), "layer")
            yield Edit("layers", f"{number} {word}: {names}", np.asarray(claims, bool), "names")


def _layers_of(op_names: pa.Array) -> set[tuple[str, int]]:
    _, layer, index = layers_by_scope(op_names)
    first, _ = groups_of(encoded(layer)[0], np.asarray(pc.fill_null(index, -1).to_numpy(), np.int64))
    layers, indices = (pc.take(column, arrow_array(first)).to_pylist() for column in (layer, index))
    return set(zip(layers, indices, strict=True)) - {(None, None)}


def rematerialization(c: Context) -> Iterator[Edit]:
    """Find out whether the backward pass recomputes more or fewer instructions (`jax.checkpoint`)."""
    if not all(names.count(BACKWARD) for names in c.op_names):
        return
    before, after = (names.count(RECOMPUTED) for names in c.op_names)
    # For another chip, the compiler chooses how many of them are left.
    is_chosen = before > 0 < after and c.other_chip is not None
    operations, (saved_a, saved_b) = {} if is_chosen else _recomputed_on_one_side(c), _saved_operations(c)
    # Fusions have the name of one of their operations.
    entered = _entered_checkpoints(c) if c.has_hlo and not is_chosen else 0
    recomputes_other = not is_chosen and bool(any(operations.values()) or entered or _is_other_share(c))
    nested_a, nested_b = (names.count(NESTED) > 0 for names in c.op_names)
    if not recomputes_other and saved_a == saved_b and nested_a == nested_b:
        return
    recomputes = f"the backward pass recomputes {_recomputed(c, before, after, operations)}"
    recomputes += "".join(f", {word} {listed(paths)}" for word, paths in operations.items() if paths)
    saves = f"saves {saved_b:,} instead of {count(saved_a, 'operation')} of the forward pass"
    gone, new = _calls_of_one_side(c)
    is_left, was_there = (names.count(CHECKPOINT) > 0 for names in reversed(c.op_names))
    saved = f"it saved {count(saved_a, 'operation')} of the forward pass"
    if not recomputes_other and saved_a == saved_b:
        # What is computed again may be inside of fusions.
        text = f"jax.checkpoint is {'new inside' if nested_b else 'gone from the inside'} of another one"
    elif not is_left or ((before > after or entered < 0) and gone):
        text = f"jax.checkpoint is gone{f' from {listed(gone)}' if gone else ''}: "
        text += recomputes if recomputes_other else saved
    elif not was_there or ((before < after or entered > 0) and new):
        text = f"jax.checkpoint is new{f' in {listed(new)}' if new else ''}: "
        text += recomputes if recomputes_other else f"it {saves}"
    elif saved_a != saved_b:
        text = f"jax.checkpoint {saves}{f'; {recomputes}' if recomputes_other else ''}"
    elif entered:
        text = f"jax.checkpoint is around {'more' if entered > 0 else 'less'} of the model"
        text += f": {recomputes}" if before != after else ""
    else:
        text = recomputes
    claims = c.rows.single & c.rows.temporary & ~c.rows.is_in("phase", ("optimizer",))
    yield Edit("rematerialization", text, claims, "names")


def recomputed_gradients(c: Context) -> Iterator[Edit]:
    """Find out whether `tf.recompute_grad` is new or gone."""
    if not all(is_tensorflow(names.texts) for names in c.op_names):
        return
    before, after = (int(flags_of(are_recomputed(names.texts), names.codes).sum()) for names in c.op_names)
    if (before > 0) != (after > 0):
        recomputes = f"the backward pass recomputes {after:,} instead of {count(before, 'instruction')}"
        claims = c.rows.single & c.rows.temporary & ~c.rows.is_in("phase", ("optimizer",))
        text = f"tf.recompute_grad is {'new' if after else 'gone'}: {recomputes}"
        yield Edit("rematerialization", text, claims, "names")


def _recomputed(c: Context, before: int, after: int, operations: dict[str, list[str]]) -> str:
    """Return how many instructions are recomputed; a part of them is not known without the HLO text.

    If both sides recompute any, only operations of one side, and their direction, tell whether these are more.
    """
    if c.has_hlo:
        return f"{after:,} instead of {count(before, 'instruction')}"
    if not after:
        return "nothing"
    now_also, no_longer = (bool(operations.get(word)) for word in (NOW_ALSO, NO_LONGER))
    if not before or (after > before and now_also and not no_longer):
        return "more instructions"
    return f"{'fewer' if after < before and no_longer and not now_also else 'other'} instructions"


def _is_other_share(c: Context) -> bool:
    """Return whether another number of instructions and another share of the forward pass are recomputed.

    More layers, or an unrolled loop, repeat both. Moves and conversions depend on the optimizations of XLA. Without the
    HLO texts, so do the numbers: it is only known that one side recomputes nothing. So they do where arguments are
    sharded differently, for which XLA splits other instructions.
    """
    (before, forward_a), (after, forward_b) = map(_by_pass_of_instructions, c.op_names)
    if not c.has_hlo or (before and after and len(resharded(c)[0])):
        return (before > 0) != (after > 0)
    pairs = (before, after), (before * forward_b, after * forward_a)
    return all(abs(a - b) > MIN_CHANGE * max(a, b) for a, b in pairs)


def _entered_checkpoints(c: Context) -> int:
    """Return the number of lines of the backward pass that are in a checkpoint in B only; negative if in A only.

    0 stands for very few lines, and for lines of both kinds.
    """
    (inside_a, outside_a), (inside_b, outside_b) = map(_by_checkpoint, c.lines)
    entered = ((inside_b - inside_a) & (outside_a - outside_b)).total()
    left = ((inside_a - inside_b) & (outside_b - outside_a)).total()
    return entered - left if max(entered, left) >= MIN_ENTERED and not min(entered, left) else 0


def _by_checkpoint(lines: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """Return the operations of the backward pass inside and outside of checkpoints, without what is recomputed."""
    inside: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    for path, n in lines.items():
        if re.search(BACKWARD, path) and not re.search(RECOMPUTED, path):
            (inside if re.search(CHECKPOINT, path) else outside)[path.rpartition("/")[2]] += n
    return inside, outside


def _by_pass_of_instructions(names: Names) -> tuple[int, int]:
    """Return the numbers of recomputed instructions and of those of the forward pass, without moves."""
    moves, recomputed = names.instructions(MOVE), names.instructions(RECOMPUTED)
    forward = names.instructions(JVP) & ~names.instructions(BACKWARD)
    return int(np.sum(recomputed & ~moves)), max(1, int(np.sum(forward & ~moves)))


def _saved_operations(c: Context) -> tuple[int, int]:
    """Return the number of operations whose results the policies of `jax.checkpoint` save.

    JAX rounds what it saves with a `reduce_precision`.
    """
    a, b = (sum(n for path, n in lines.items() if re.search(SAVED, path) and not re.search(BACKWARD, path))
            if names.count(CHECKPOINT) else 0 for lines, names in zip(c.lines, c.op_names, strict=True))  # fmt: skip
    return a, b


def _recomputed_on_one_side(c: Context) -> dict[str, list[str]]:
    """Return the operations of both forward passes that only one of two recomputing backward passes repeats.

    The policy of `jax.checkpoint` decides that. Moves depend on the optimizations of XLA. Without the HLO texts, only
    products count: fusions have their names.
    """
    (a, forward_a), (b, forward_b) = map(_by_pass, c.lines)
    if not a or not b:
        return {}
    around = {path: {*a.get(path, ()), *b.get(path, ())} for path in sorted(a.keys() ^ b.keys())}
    lines_a, lines_b = _lines_of(around, forward_a), _lines_of(around, forward_b)
    single = [path for path in around if lines_a[path] == lines_b[path] > 0]
    moves = ends_in_move(pa.array(single, pa.string())).tolist()
    kept = [path for path, is_move in zip(single, moves, strict=True)
            if not is_move and (c.has_hlo or re.search(PRODUCT_NAME, path))]  # fmt: skip
    return {NOW_ALSO: [path for path in kept if path in b], NO_LONGER: [path for path in kept if path in a]}


def _by_pass(lines: Counter[str]) -> tuple[dict[str, set[str]], Counter[str]]:
    """Return recomputed operations by their path inside of the checkpoint, and the lines of those of forward passes.

    Of a recomputed operation, the components of paths around the checkpoint are known.
    """
    recomputed: dict[str, set[str]] = {}
    forward: Counter[str] = Counter()
    for path, n in lines.items():
        if found := [*re.finditer(IN_CHECKPOINT, path)]:
            scopes = recomputed.setdefault(path[found[-1].end() :], set())
            scopes.add(re.sub(r"^transpose\((.*)\)$", r"\1", found[-1]["around"] or ""))
        elif "transpose(" not in path:
            forward[path] += n
    return recomputed, forward


def _lines_of(around: dict[str, set[str]], lines: Counter[str]) -> Counter[str]:
    """Return the number of lines of each operation somewhere in one of the components around its checkpoint."""
    lengths = {len(inner) for inner in around}
    found: Counter[str] = Counter()
    for path, n in lines.items():
        begins = [0, *(m.end() for m in re.finditer("/", path))]
        ends = [path[begin:] for begin in begins if len(path) - begin in lengths]
        if inner := [end for end in ends if end in around]:
            components = {"", *path.split("/")[:-1]}
            found.update({end: n for end in inner if not around[end].isdisjoint(components)})
    return found


def _calls_of_one_side(c: Context) -> tuple[list[str], list[str]]:
    """Return the calls of functions with `jax.checkpoint` that only A and only B has: file and line, or the function.

    If each side has calls that the other one lacks, these may be the same in a function with another name: none then.
    """
    a, b = (_checkpointed_calls(*side) for side in zip((c.m.a, c.m.b), c.op_names, strict=True))
    gone, new = ([key for key in mine if key not in theirs] for mine, theirs in ((a, b), (b, a)))
    if gone and new:
        return [], []
    return _calls(c.m.a, c.op_names[0], gone, a), _calls(c.m.b, c.op_names[1], new, b)


def _calls(p: Program, names: Names, callers: list[Caller], lines: dict[Caller, str]) -> list[str]:
    """Return the calls of these callers. Only for those that are listed, the called function is looked up."""
    shown = [_call(p, names, caller, lines[caller]) for caller in callers[:MAX_NAMES]]
    return shown + [lines[caller] for caller in callers[MAX_NAMES:]]


def _call(p: Program, names: Names, caller: Caller, line: str) -> str:
    """Return the line of a call of a function with `jax.checkpoint`, or the function if several lines call it.

    It may be a decorator of the function then, and HLO keeps the line of one of the calls.
    """
    table, (file, function) = p.tables["frames"], caller
    if function is None:
        return line
    recomputed = np.unique(names.frames[names.instructions(RECOMPUTED)])
    rows, calls = calls_from(table, row_of(ints(table, "id"), recomputed), file, function)
    functions = pc.unique(pc.take(table["function"], arrow_array(rows))).to_pylist()
    several = len(np.unique(ints(table, "line")[calls])) > 1
    is_named = len(functions) == 1 and functions[0] and not functions[0].endswith(">")  # of no lambda
    return f"{functions[0]} of {file}" if several and is_named else line


def _checkpointed_calls(p: Program, names: Names) -> dict[Caller, str]:
    """Return the lines that call functions with `jax.checkpoint`, by name of the file and calling function.

    Lines move, and so do folders: each side may be a checkout of its own. A library may wrap the calls: its caller
    outside of libraries counts, if there is one.
    """
    table = p.tables["frames"]
    row = row_of(ints(table, "id"), np.unique(names.frames[names.instructions(CHECKPOINTED_CALL)]))
    caller = take(callers_outside(table), row)
    rows = pc.take(table.select(("file", "function", "line")), arrow_array(np.unique(caller[caller >= 0]))).to_pylist()
    in_model = [r for r in rows if r["file"] and not re.search(LIBRARY, r["file"])]
    calls = [(re.split(r"[/\\]", r["file"])[-1], r["function"], r["line"]) for r in in_model]
    return {(file, function): f"{file}:{line}" for file, function, line in calls}


def memory_spaces(c: Context) -> Iterator[Edit]:
    """Find arguments, then other buffers, that moved from one memory space to another."""
    if c.platforms_differ:
        return  # their memory spaces have different names
    moved = c.rows.is_in("cause", ("moved to another space",))
    i = c.interface
    left, right = i.matched
    names_a, names_b = (np.array([s.name for s in p.spaces], object) for p in (c.m.a, c.m.b))
    a = names_a[c.m.a.space_of_allocation[i.a.allocation[left]]]
    b = names_b[c.m.b.space_of_allocation[i.b.allocation[right]]]
    for x, y in sorted(set(zip(a[a != b].tolist(), b[a != b].tolist(), strict=True))):
        rows = right[(a == x) & (b == y)]
        allocations = i.b.allocation[rows]
        names = largest(i.b.names, rows, c.m.b.allocation_size[allocations])
        numbers = ints(c.m.b.allocations, "parameter_number")[allocations]
        claims = moved & np.isin(ints(c.rows.table, "argument"), numbers)
        yield Edit("memory space", f"{are(len(rows), 'argument')} in {y} instead of {x}: {names}", claims, "interface")
    for edit in _moved_to_host(c, moved):
        yield edit
        moved &= ~edit.claims
    if moved.any():
        yield Edit("memory space", f"{are(int(moved.sum()), 'buffer')} in another memory space", moved, "buffers")


def _moved_to_host(c: Context, moved: Mask) -> Iterator[Edit]:
    """Find buffers that moved to the memory of the host, or back, in most bytes that moved."""
    device = c.rows.is_in("account", (DEVICE_TOTAL,)) & moved
    for side, where in (("b", "in host memory now"), ("a", "no longer in host memory")):
        claims = device & c.rows.is_in(f"memory_space_{side}", (HOST,))
        if claims.any() and 2 * np.abs(c.rows.change[claims]).sum() >= np.abs(c.rows.change[device]).sum():
            names = _largest_paths(c, claims)
            text = f"{are(int(claims.sum()), 'buffer')} {where}{f': {names}' if names else ''}"
            yield Edit("memory space", text, claims, "names")


def _largest_paths(c: Context, claims: Mask) -> str:
    """Return the operations of the largest of these contributions."""
    codes, names = c.rows.text("op_name")
    path_codes, paths = folded_paths(names)
    code = take(path_codes, codes[claims])
    sizes = sums_of(np.abs(c.rows.change[claims])[code >= 0], code[code >= 0], len(paths))
    return largest(paths, np.flatnonzero(sizes), sizes[sizes > 0])


def host_memory(c: Context) -> Iterator[Edit]:
    """Find buffers of the host that the other side does not have anywhere, as with a policy that offloads."""
    in_host = c.rows.is_in("account", (HOST,))
    change = int(c.rows.change[in_host].sum())
    claims = in_host & c.rows.is_in("cause", ("new" if change > 0 else "gone",))
    if change and 2 * abs(int(c.rows.change[claims].sum())) >= abs(change):
        texts = _largest_paths(c, claims)
        where = "in host memory now" if change > 0 else "no longer in host memory"
        text = f"{are(int(claims.sum()), 'buffer')} {where}{f': {texts}' if texts else ''}"
        yield Edit("memory space", text, claims, "names")


def flags(c: Context) -> Iterator[Edit]:
    """Find flags of the compiler with another value, if both dumps have them."""
    a, b = (flags_by_role(p) for p in (c.m.a, c.m.b))
    roles = sorted((a.keys() & b.keys()) - {TARGET})
    texts = [text for role in roles for text in changed_flags(a[role], b[role], c.platforms)]
    if texts:
        yield Edit("flags", f"flag{'s' if len(texts) > 1 else ''} {listed(texts)}", c.none, "files")


def compiler(c: Context) -> Iterator[Edit]:
    """Find out whether another compiler was used, or for another chip.

    The platform, file names (TPU), the format of the dumps and the target tell.
    """
    a, b = (module_of(p) for p in (c.m.a, c.m.b))
    if c.other_chip:
        yield Edit("compiler", c.other_chip, c.none, "files" if c.has_chips else "buffers")
    if c.platforms_differ:
        text = f"compiled for {b['platform'] or 'an unknown platform'} instead of {a['platform'] or 'an unknown one'}"
        yield Edit("compiler", text, c.none, "files")
    elif changelist := other_changelist(a["changelist"], b["changelist"]):
        yield Edit("compiler", changelist, c.none, "files")
    elif _formats_differ(c, features_of(a) - CONTENT_FEATURES, features_of(b) - CONTENT_FEATURES):
        yield Edit("compiler", OTHER_FORMAT, c.none, "files")
    elif len({tuple(names.count(pattern) > 0 for pattern in CONVENTIONS) for names in c.op_names}) > 1:
        text = "op_names follow different conventions, so the versions of JAX differ"
        yield Edit("compiler", text, c.none, "files")


def _formats_differ(c: Context, a: set[str], b: set[str]) -> bool:
    """Return whether two dumps were written by different versions. A file that is missing does not count."""
    if formats_exclude_each_other(a, b):
        return True
    complete = all(p.tables["modules"]["complete"][0].as_py() for p in (c.m.a, c.m.b))
    return complete and _roles(c.m.a) == _roles(c.m.b) and a != b


def _roles(p: Program) -> set[str]:
    return set(p.tables["files"]["role"].to_pylist())


def single_outputs(c: Context) -> Iterator[Edit]:
    """Find outputs that only one side has."""
    i = c.interface
    restacked = restacked_outputs(c)
    new = np.setdiff1d(i.new_outputs, np.concatenate([found.b for found in restacked]))
    gone = np.setdiff1d(i.gone_outputs, np.concatenate([found.a for found in restacked]))
    for p, side, values, word in ((c.m.b, 1, new, "new"), (c.m.a, 0, gone, "gone")):
        if len(values):
            by_size = values[np.argsort(-p.size[values], kind="stable")]
            texts = pc.unique(caller_shapes(p, by_size)).to_pylist()
            shapes = listed(list(dict.fromkeys(map(plain_shape, texts))))
            claims = np.isin(c.rows.value[side], values)
            yield Edit("outputs", f"{are(len(values), 'output')} {word}: {shapes}", claims, "interface")


def resized_outputs(c: Context) -> Iterator[Edit]:
    """Find outputs with the same index and another shape."""
    a, b = c.interface.resized_outputs
    if len(b):
        pairs = ShapePairs(caller_shapes(c.m.a, a), caller_shapes(c.m.b, b), c.m.b.size[b])
        changed = pairs.changed()
        what = "shape" if any(x.dimensions != y.dimensions for x, y in changed) else "element type"
        texts = [f"{shape_text(x)} -> {shape_text(y)}" for x, y in changed]
        claims = np.isin(c.rows.value[1], b)
        yield Edit("outputs", f"{are(len(b), 'output')} of another {what}: {listed(texts)}", claims, "interface")


def constants(c: Context) -> Iterator[Edit]:
    """Find out whether the constants of the program take more or less."""
    a, b = (int(p.allocation_size[p.category == CONSTANT].sum()) for p in (c.m.a, c.m.b))
    if abs(b - a) >= MIN_CONSTANTS:
        text = f"constants take {size(b)} instead of {size(a)}"
        claims = c.rows.is_in("category_a", ("constant",)) | c.rows.is_in("category_b", ("constant",))
        yield Edit("constants", text, claims, "interface")


def operations(c: Context) -> Iterator[Edit]:
    """Find scopes and operations that only one side has: they explain what else differs in the scope around them."""
    sides = zip(c.op_names, (c.interface.a.names, c.interface.b.names), strict=True)
    leaves_a, leaves_b = both_sides(lambda side: _paths(side[0]) - _folded(side[1]), *sides)
    if c.other_chip:  # some chips have cores of their own for these
        leaves_a, leaves_b = ({s for s in leaves if not re.search(GATHERED, s)} for leaves in (leaves_a, leaves_b))
    only_a, only_b = leaves_a - leaves_b, leaves_b - leaves_a
    if len(only_a) > MIN_RENAMED * len(leaves_a) and _last_names(only_a) == _last_names(only_b):
        return  # scopes were renamed
    a, b = with_scopes(leaves_a), with_scopes(leaves_b)
    new, gone = (_outermost(mine - theirs) for mine, theirs in ((b, a), (a, b)))
    if not c.has_hlo:
        unfused_a, unfused_b = both_sides(lambda side: _unfused(*side), *zip(c.op_names, c.opcodes, strict=True))
        new, gone = new & _visible(only_b, unfused_b), gone & _visible(only_a, unfused_a)
    if not new and not gone:
        return
    weights = c.rows.bytes_of_paths()
    parts = [f"{word} {listed(_heaviest(names, weights))}" for names, word in ((new, "new:"), (gone, "gone:")) if names]
    around = {s.rpartition("/")[0] for s in (*new, *gone)} & (a & b)
    yield Edit("operations", "; ".join(parts), c.rows.in_scopes({*new, *gone, *around} - {""}), "names")


def _unfused(names: Names, opcodes: Names) -> set[str | None]:
    """Return the operations of a program that are never in a fusion."""
    codes = np.unique(names.codes[opcodes.instructions(UNFUSED)])
    return _folded(pc.take(names.texts, arrow_array(codes[codes >= 0])))


def _visible(paths: set[str], unfused: set[str | None]) -> set[str]:
    """Return the operations and scopes that would have names on the other side, too, if they were there.

    Fusions contain other operations than that of their name. They have the names of products, and few have all of
    several operations of a scope.
    """
    certain = with_scopes(path for path in paths if path in unfused or re.search(PRODUCT_NAME, path))
    numbers = Counter(scope for path in paths for scope in with_scopes([path]))
    return certain | {scope for scope, n in numbers.items() if n >= MIN_OPERATIONS}


def _paths(names: Names) -> set[str]:
    """Return the operations without wrappers and with folded layers."""
    # Moves depend on the optimizations of XLA, not on the model; several op_names in parentheses were merged.
    left_out = names.match(MOVE) | names.match(CALL) | names.match(TENSORFLOW_MOVE)
    paths = _folded(pc.filter(names.texts, arrow_array(names.in_model & ~left_out)))
    return {path for path in paths if path and not path.startswith("(")}


def _last_names(paths: set[str]) -> Counter[str]:
    return Counter(path.rpartition("/")[2] for path in paths)


def _folded(op_names: pa.Array) -> set[str | None]:
    """Return the distinct op_names without wrappers and with folded layers."""
    codes, paths = folded_paths(pc.replace_substring_regex(op_names, PARAMETERS, ""))
    return set(pc.take(paths, arrow_array(np.unique(codes[codes >= 0]))).to_pylist())


def _outermost(names: set[str]) -> set[str]:
    return {s for s in names if s.rpartition("/")[0] not in names}


def _heaviest(names: set[str], weights: dict[str, int]) -> list[str]:
    """Sort paths by the bytes that differ in them."""

    paths = sorted(weights)
    totals = [0, *accumulate(weights[path] for path in paths)]

    def weight(name: str) -> int:
        inside = (bisect_left(paths, name + after) for after in ("/", chr(ord("/") + 1)))
        begin, end = (totals[i] for i in inside)
        return weights.get(name, 0) + end - begin

    return sorted(names, key=lambda name: (-weight(name), name))


def instructions(c: Context) -> Iterator[Edit]:
    """Find operations that more or fewer lines of the model contain, forward and backward passes apart."""
    if c.other_chip or any(rematerialization(c)) or any(recomputed_gradients(c)) or any(conversions(c)):
        return  # other numbers follow from it
    a, b = c.lines
    if not c.has_hlo:
        if a != b:
            yield Edit("instructions", UNKNOWN, c.none, "files")
        return
    changed = sorted((s for s in a | b if a[s] != b[s]), key=lambda s: (-abs(b[s] - a[s]), s))
    moves = ends_in_move(pa.array(changed, pa.string())).tolist()
    n = sum(abs(b[s] - a[s]) for s, moves in zip(changed, moves, strict=True) if not moves and not s.endswith(")"))
    if n < sum(map(len, retyped(c).values())):
        return  # likewise
    if changed and (a & b).total() > (a | b).total() / 2:  # otherwise scopes were renamed
        numbers = by_pass_and_path(changed, a, b)
        backward = " in the backward pass" if all(word for word, _ in numbers) else ""
        texts = [f"{path if backward else word + path} {x:,} -> {y:,}" for (word, path), (x, y) in numbers.items()]
        yield Edit("instructions", f"other numbers of operations{backward}: {listed(texts)}", c.none, "names")


def by_pass_and_path(changed: list[str], a: Counter[str], b: Counter[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the numbers of these operations by their paths without wrappers and loops, those of most change first.

    Those of equal paths are summed, but the backward pass is apart: `backward mul`, `mul`. If nothing but their
    wrappers differs, such as the loop around them, they keep these.
    """
    paths = plain_names(pa.array(changed, pa.string())).to_pylist()
    numbers: dict[tuple[str, str], tuple[int, int]] = {}
    for name, path in zip(changed, paths, strict=True):
        key = "backward " if re.search(BACKWARD, name) else "", path
        x, y = numbers.get(key, (0, 0))
        numbers[key] = x + a[name], y + b[name]
    differ = {key: n for key, n in numbers.items() if n[0] != n[1]}
    if not differ:
        return {("", name): (a[name], b[name]) for name in changed}
    return dict(sorted(differ.items(), key=lambda item: -abs(item[1][1] - item[1][0])))
