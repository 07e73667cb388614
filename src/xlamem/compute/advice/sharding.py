"""Find arguments, or parts of them, that could be sharded, such as optimizer state.

They are sharded less than others with the same names, or than what a loop returns instead of them, are on each of the
devices that sum their gradients, or are whole on each device beside others that are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ... import kernels as pc
from ..aliasing import is_partitioned, matched
from ..columns import arrow_array, take_text
from ..layout import DONATED
from ..op_names import OPTIMIZER_STATE
from ..origins import has_opcode, origins
from ..replica_groups import ReplicaGroups, replica_groups
from .activations import MAX_DIMENSIONS
from .intervention import MIN_SHARE, Confidence, Intervention, argument_names, largest_first, rescheduled_at_worst
from .what_if import Change, WhatIf

SHARD_LOWER = 0.8
"""Multiple of the estimate that is its lower bound."""
SPLIT_LOWER, SPLIT_UPPER = 0.2, 1.05
"""Multiples of the estimate that are the bounds if parameters stay on each device: XLA keeps parts of them besides."""
WHOLE_COPIES = 4
"""Temporaries as large as an array that is whole on each device, which may be sharded with it in a training step."""
MIN_ALIKE = 0.5
"""Minimum share of the elements of one of two arguments that have the paths of the other one."""
MIN_SUMMED = 0.8
"""Minimum share of the bytes of such a state of which the gradients are summed."""
MAX_SUMS = 1 << 12
"""Maximum number of sums over devices that are read."""
MAX_RESULTS = 1 << 8
"""Maximum number of results of loops with which arguments are compared."""
MAX_PARTS = 16
"""Maximum number of parts of a path in an argument."""
MAX_ARRAYS = 1 << 14
"""Maximum number of arrays of arguments that are compared."""

_PART = re.compile(r"\.\w+|\[[^\]]*(?:\]|$)")
_SHAPE = re.compile(r"\b([a-z]\w{0,15})\[((?:\d{1,17},)*\d{1,17})\]")
_NAMED = re.compile(r"[A-Za-z_]")
_PARAMETERS = re.compile(r"\b(?:params?|parameters|weights|variables|model)\b")
_STATE = re.compile(rf"{OPTIMIZER_STATE}|\b(?:opt|trace)\b")
_EMBEDDING = re.compile(r"(?i)embed|wte|vocab")
"""Names of embeddings, whose vocabulary is also a dimension of the head."""
_TILES = re.compile(r"devices=\[([\d,]{1,99})\]")
_EXCHANGING = r"^(?:all-gather|all-reduce|all-to-all|reduce-scatter)(?:-start)?$"


class _Array(NamedTuple):
    """An array of an argument."""

    row: int
    """Row of the parameters."""
    argument: str
    root: str
    """The argument, or the part of it, such as `state.params`, that is compared with others."""
    path: tuple[str, ...]
    element_type: str
    dimensions: tuple[int, ...]


def unsharded_arguments(w: WhatIf) -> Iterator[Intervention]:
    """Shard each argument, or field of one that has parameters and their state, as the arrays of another one.

    They have the same paths and element types, but a part of the dimensions. If the dimensions are the same, shard the
    state over the devices that sum the gradients of the parameters.
    """
    if not is_partitioned(w.p):
        return
    arrays = _with_fields(_arrays(w))
    by_path, by_end = (_smallest(arrays, ends=ends) for ends in (False, True))
    n_devices = _number_of_devices(w)
    found: dict[str, list[tuple[_Array, _Array]]] = {}
    for a in arrays:
        like = [by_path.get((a.path[i:], a.element_type)) for i in range(len(a.path)) if _is_named(a.path[i:])]
        like.append(by_end.get((a.path, a.element_type)) if _is_named(a.path) else None)
        parts = (b for b in like if b and b.root != a.root and _is_part(b.dimensions, a.dimensions))
        sharded = next((b for b in parts if not n_devices or n_devices % (_size(a) // _size(b)) == 0), None)
        if sharded:
            found.setdefault(a.root, []).append((a, sharded))
    advised = set()
    for root, pairs in found.items():
        ratios = {_size(a) // max(1, _size(b)) for a, b in pairs}
        if (1 in ratios or len(ratios) == 1) and _are_alike(arrays, root, pairs):  # it may be of a larger model
            pairs = [(a, b) for a, b in pairs if a.dimensions != b.dimensions]
            if pairs and not _is_sharded(w, pairs):
                advised.add(root)
                yield _sharded_like(w, root, pairs)
    others = [a for a in arrays if a.root not in advised]
    found_before = [*_states_on_all_devices(w, others), *_larger_than_results(w, others)]
    yield from found_before
    taken = {*advised, *(i.argument for i in found_before)}
    yield from _whole_on_each_device(w, [a for a in arrays if a.root not in taken and a.argument not in taken])


def _are_alike(arrays: list[_Array], root: str, pairs: list[tuple[_Array, _Array]]) -> bool:
    """Return whether these are most of one of the two arguments: any two may have one array of the same name."""
    part, others = pairs[0][1].root, {b for _, b in pairs}
    sizes = ((sum(_size(a) for a, _ in pairs), root), (sum(_size(b) for b in others if b.root == part), part))
    return any(n >= MIN_ALIKE * sum(_size(a) for a in arrays if a.root == r) for n, r in sizes)


def _states_on_all_devices(w: WhatIf, arrays: list[_Array]) -> Iterator[Intervention]:
    """Shard optimizer state that is as large as its parameters over the devices that sum their gradients."""
    states, parameters = ([a for a in arrays if _is_state(a) == is_state] for is_state in (True, False))
    by_path = {a.path: a for a in reversed(parameters)}
    for a in parameters:
        if _PARAMETERS.search(a.root):  # rather than those of a frozen model
            by_path[a.path] = a
    sums = _sums(w) if states and by_path else {}
    bytes_of: dict[str, int] = {}
    summed: dict[tuple[str, int], list[tuple[_Array, _Array]]] = {}
    for a in states:
        like = (by_path.get(a.path[i:]) for i in range(len(a.path)) if _is_named(a.path[i:]))
        b = next((b for b in like if b and b.dimensions == a.dimensions), None)
        if b:
            bytes_of[a.root] = bytes_of.get(a.root, 0) + _size(a)
            if n := _devices(sums, b.dimensions):
                summed.setdefault((a.root, n), []).append((a, b))
    for root, n_bytes in bytes_of.items():
        groups = [(pairs, n) for (r, n), pairs in summed.items() if r == root]
        pairs, n = max(groups, key=lambda group: sum(_size(a) for a, _ in group[0]), default=([], 0))
        if sum(_size(a) for a, _ in pairs) >= MIN_SUMMED * n_bytes and not _has_printed_shards(w, pairs):
            yield from _split(w, root, pairs, n)


def _larger_than_results(w: WhatIf, arrays: list[_Array]) -> Iterator[Intervention]:
    """Shard arguments like what a loop returns instead of them: caches of which each device computes a part."""
    p, (_, outputs, match), shares = w.p, matched(w.p), _group_sizes(w)
    values = np.delete(outputs.value, match.output[match.output >= 0])
    is_of_loop = has_opcode(p, p.instruction_row[values], "^while$") & w.in_memory[p.owner[values]]
    values = largest_first(w, values[is_of_loop])[:MAX_RESULTS]
    results: dict[tuple[str, int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for value, shape in zip(values.tolist(), p.value_text("shape", values).to_pylist(), strict=True):
        if printed := _SHAPE.match(shape or ""):
            dimensions = tuple(map(int, printed[2].split(",")))
            for i, size in enumerate(dimensions if len(dimensions) <= MAX_DIMENSIONS else ()):
                key = printed[1], i, dimensions[:i] + dimensions[i + 1 :]
                results.setdefault(key, []).append((size, value))
    pairs: dict[str, list[tuple[_Array, int]]] = {}
    taken: set[int] = set()
    for a in arrays:
        others = ((a.element_type, i, a.dimensions[:i] + a.dimensions[i + 1 :]) for i in range(len(a.dimensions)))
        parts = (
            value
            for key, whole in zip(others, a.dimensions, strict=True)
            for size, value in results.get(key, ())
            if size and whole % size == 0 and whole // size in shares and value not in taken
        )
        part = next(parts, None) if match.output[a.row] < 0 and 2 < len(a.dimensions) <= MAX_DIMENSIONS else None
        if part is not None:
            taken.add(part)
            pairs.setdefault(a.root, []).append((a, part))
    for root, found in pairs.items():
        yield _like_results(w, root, found)


def _whole_on_each_device(w: WhatIf, arrays: list[_Array]) -> Iterator[Intervention]:
    """Shard arrays that are whole on each device, such as an embedding, while most of their argument is not.

    Printed shardings tell. TPU dumps print none: there, the head has a part of one dimension of an embedding.
    """
    groups: dict[tuple[tuple[str, ...], tuple[int, ...], int], list[tuple[_Array, str]]] = {}
    for a, n, like in [*_printed_as_whole(w, arrays), *_whole_embeddings(w, arrays)]:
        groups.setdefault((a.path[-1:], a.dimensions, n), []).append((a, like))
    for (_, _, n), found in groups.items():
        found.sort(key=lambda row: not _PARAMETERS.search(row[0].root))  # rather than their state
        yield from _over_devices(w, [a for a, _ in found], n, found[0][1])


def _printed_as_whole(w: WhatIf, arrays: list[_Array]) -> Iterator[tuple[_Array, int, str]]:
    """Yield matrices that are printed as replicated, in arguments of which most bytes are printed as sharded."""
    of_root: dict[str, list[tuple[_Array, int]]] = {}
    for a, text in zip(arrays, _printed_shardings(w, arrays), strict=True):
        of_root.setdefault(a.root, []).append((a, _shards(text)))
    for root, own in of_root.items():
        sizes: dict[int, int] = {}
        for a, n in own:
            sizes[n] = sizes.get(n, 0) + _size(a) * n
        n = max(sizes, key=lambda n: sizes[n])
        if n < 2 or 2 * sizes[n] < sum(sizes.values()):
            continue
        for a, is_whole in ((a, shard == 1) for a, shard in own):
            if is_whole and len(a.dimensions) > 1 and any(size % n == 0 for size in a.dimensions):
                yield a, n, f"most of `{root}` is"


def _shards(text: str) -> int:
    """Return into how many parts a printed sharding splits an array, 1 for replicated ones, 0 if nothing is printed."""
    if not (match := _TILES.search(text)):
        return int("replicated" in text)
    tiles = [int(n) for n in match[1].split(",") if n]
    return math.prod(tiles[:-1] if "last_tile_dim_replicate" in text else tiles)


def _whole_embeddings(w: WhatIf, arrays: list[_Array]) -> Iterator[tuple[_Array, int, str]]:
    """Yield embeddings beside a matrix of the same argument that has a part of one of their dimensions."""
    if any(_printed_shardings(w, arrays)):
        return
    shares = _group_sizes(w)
    matrices = [a for a in arrays if len(a.dimensions) == 2]
    heads: dict[tuple[str, str, tuple[int, ...]], _Array] = {}
    for b in matrices:
        if not _EMBEDDING.search("".join(b.path)):
            heads.setdefault((b.root, b.element_type, tuple(sorted(b.dimensions))), b)
    for a in matrices:
        if _EMBEDDING.search("".join(a.path)):
            splits = [(n, i) for n in sorted(shares) for i in (0, 1) if a.dimensions[i] % n == 0]
            parts = ((n, tuple(sorted((a.dimensions[i] // n, a.dimensions[1 - i])))) for n, i in splits)
            keys = ((n, (a.root, a.element_type, dimensions)) for n, dimensions in parts)
            found = next(((n, heads[key]) for n, key in keys if key in heads), None)
            if found and max(a.dimensions) % found[0] == 0:
                n, b = found
                shape = f"{b.element_type}[{','.join(map(str, b.dimensions))}]"
                yield a, n, f"`{_name(b)}` is, of which each has {shape}"


def _name(a: _Array) -> str:
    return a.root + "".join(a.path)


def _over_devices(w: WhatIf, arrays: list[_Array], n: int, like: str) -> Iterator[Intervention]:
    """Shard arrays of the same name and dimensions, such as an embedding and the state of its optimizer."""
    p, (parameters, _, match) = w.p, matched(w.p)
    rows = [a.row for a in arrays]
    values = parameters.value[rows]
    less = p.extent[values] - p.extent[values] // n
    estimate = w.saved(change := Change(-int(less.sum() + less[match.output[rows] >= 0].sum()), w.none))
    if estimate < MIN_SHARE * w.total:
        return
    lower = int(SHARD_LOWER * estimate)
    lower -= rescheduled_at_worst(w, lower)
    first = arrays[0]
    also = f" and {len(arrays) - 1} more of that name" if len(arrays) > 1 else ""
    shape = f"{first.element_type}[{','.join(map(str, first.dimensions))}]"
    size = max(d for d in first.dimensions if d % n == 0)
    text = (
        f"Shard `{_name(first)}`{also} along the dimension of {size:,} over {n} devices, as {like}: it is whole on "
        f"each device, {shape}. Create it with jax.jit(init, out_shardings=...), or move it with jax.device_put."
    )
    # Temporaries such as gradients may be sharded, too.
    is_training = any(map(_is_state, arrays))
    upper = estimate + (WHOLE_COPIES * int(less.max()) + w.peak // 10 if is_training else w.peak // 50)
    number = int(parameters.number[rows].min())
    confidence: Confidence = "likely" if lower > 0 else "try"
    values = largest_first(w, values)
    yield Intervention("shard", values, change, max(lower, 0), upper, confidence, text, first.argument, number)


def _is_named(path: tuple[str, ...]) -> bool:
    """Return whether a path has more than the numbers of elements, which any two lists have."""
    return any(_NAMED.search(part) for part in path)


def _is_state(a: _Array) -> bool:
    """Return whether an array is the state of an optimizer, as its name says."""
    return bool(_STATE.search(a.root + "".join(a.path)))


def _sums(w: WhatIf) -> dict[tuple[int, ...], int]:
    """Return the largest number of devices that sum arrays in the backward pass, by the dimensions of the arrays."""
    instructions = w.p.tables["instructions"].select(["op_name", "shape", "attributes"])
    rows = np.flatnonzero(has_opcode(w.p, np.arange(instructions.num_rows), "^all-reduce(?:-start)?$"))
    found: dict[tuple[int, ...], int] = {}
    for row in pc.take(instructions, arrow_array(rows[:MAX_SUMS])).to_pylist():
        groups = replica_groups(row["attributes"] or "")
        if groups and groups.size > 1 and "transpose(" in (row["op_name"] or ""):
            for match in _SHAPE.finditer(row["shape"] or ""):
                dimensions = tuple(map(int, match[2].split(",")))
                found[dimensions] = max(groups.size, found.get(dimensions, 0))
    return found


def _group_sizes(w: WhatIf) -> set[int]:
    """Return the numbers of devices that exchange data: parts of arrays may be shared by so many."""
    return {groups.size for groups in _groups(w)} - {1}


def _number_of_devices(w: WhatIf) -> int:
    """Return the number of devices of the program, of which those that exchange data are groups; 0 if it is unknown."""
    return max((groups.devices for groups in _groups(w)), default=0)


def _groups(w: WhatIf) -> list[ReplicaGroups]:
    """Return the groups of devices that exchange data."""
    attributes = w.p.tables["instructions"]["attributes"]
    rows = np.flatnonzero(has_opcode(w.p, np.arange(len(attributes)), _EXCHANGING))
    found = (replica_groups(text or "") for text in take_text(attributes, rows[:MAX_SUMS]).to_pylist())
    return [groups for groups in found if groups]


def _devices(sums: dict[tuple[int, ...], int], dimensions: tuple[int, ...]) -> int:
    """Return the number of devices that sum such arrays, or those of one layer if they are stacked; 0 for none."""
    of_layer = (dimensions[1:], (1, *dimensions[1:])) if len(dimensions) > 2 else ()
    return next((sums[d] for d in (dimensions, *of_layer) if d in sums), 0)


def _is_sharded(w: WhatIf, pairs: list[tuple[_Array, _Array]]) -> bool:
    """Return whether the printed shardings say the opposite: the first of these arrays are sharded, the others not."""
    both = zip(*(_printed_shardings(w, arrays) for arrays in zip(*pairs, strict=True)), strict=True)
    return any("devices=" in a and "replicated" in b for a, b in both)


def _has_printed_shards(w: WhatIf, pairs: list[tuple[_Array, _Array]]) -> bool:
    return any("devices=" in text for text in _printed_shardings(w, [a for a, _ in pairs]))


def _printed_shardings(w: WhatIf, arrays: Sequence[_Array]) -> list[str]:
    """Return the printed sharding of each array, empty if there is none."""
    values = matched(w.p)[0].value[[a.row for a in arrays]]
    texts = take_text(w.p.tables["instructions"]["sharding"], w.p.instruction_row[values]).to_pylist()
    return [text or "" for text in texts]


def _smallest(arrays: list[_Array], *, ends: bool) -> dict[tuple[tuple[str, ...], str], _Array]:
    """Return the smallest and first array with each path and element type, or with each path at the end of its own."""
    found: dict[tuple[tuple[str, ...], str], _Array] = {}
    for a in arrays:
        for i in range(len(a.path) if ends else 1):
            key = a.path[i:], a.element_type
            found[key] = min(found.get(key, a), a, key=_size)
    return found


def _arrays(w: WhatIf) -> list[_Array]:
    p, (parameters, _, _) = w.p, matched(w.p)
    rows = np.flatnonzero(w.in_memory[parameters.allocation] & (parameters.value >= 0))[:MAX_ARRAYS]
    value = parameters.value[rows]
    roots = argument_names(w, value, parameters.number[rows]).to_pylist()
    names = origins(p).names.columns(p.instruction_row[value])["op_name"].to_pylist()
    shapes = p.value_text("shape", value).to_pylist()
    arrays = []
    for row, root, name, shape in zip(rows.tolist(), roots, names, shapes, strict=True):
        # An argument without a name has the path of another one, or none.
        path = tuple(_PART.findall(name[len(root) :])) if name and name.startswith(root) else ()
        if (match := _SHAPE.match(shape or "")) and path and len(path) <= MAX_PARTS:
            arrays.append(_Array(row, root, root, path, match[1], tuple(map(int, match[2].split(",")))))
    return arrays


def _with_fields(arrays: list[_Array]) -> list[_Array]:
    """Return the arrays with fields as roots, of arguments such as `TrainState`, or `(params, opt_state)`.

    Other fields, such as layers, can have the same names and other dimensions.
    """
    has_state: dict[str, dict[str, bool]] = {}
    for a in arrays:
        field = has_state.setdefault(a.root, {}).setdefault(a.path[0], False)
        has_state[a.root][a.path[0]] = field or bool(_STATE.search("".join(a.path)))
    both = {
        root
        for root, fields in has_state.items()
        if any(map(_PARAMETERS.search, fields)) or {*fields.values()} == {True, False}
    }
    return [a._replace(root=a.root + a.path[0], path=a.path[1:]) if a.root in both else a for a in arrays]


def _size(array: _Array) -> int:
    return math.prod(array.dimensions)


def _is_part(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether each dimension divides that of an array."""
    return len(part) == len(whole) and all(0 < n <= m and m % n == 0 for n, m in zip(part, whole, strict=True))


def _sharded_like(w: WhatIf, root: str, pairs: list[tuple[_Array, _Array]]) -> Intervention:
    p, (parameters, _, match) = w.p, matched(w.p)
    rows, like = ([pair[i].row for pair in pairs] for i in (0, 1))
    values, sharded = parameters.value[rows], p.extent[parameters.value[like]]
    less = p.extent[values] - sharded
    # So are the outputs that replace them, if they have memory of their own.
    is_output = match.output[rows] >= 0
    is_kept = ~is_output & (p.category[parameters.allocation[rows]] != DONATED)
    change = Change(-int(less.sum() + less[is_output].sum()), w.none)
    estimate = w.saved(change)
    lower = int(SHARD_LOWER * estimate)
    lower -= rescheduled_at_worst(w, lower)
    # Outputs that are sharded can take the place of arguments that are. Temporaries may be sharded, too.
    upper = estimate + int(sharded[is_kept].sum()) + w.peak
    whole, part = max(pairs, key=lambda pair: _size(pair[0]))
    before, after = (f"{a.element_type}[{','.join(map(str, a.dimensions))}]" for a in (whole, part))
    text = (
        f"Shard `{root}` like `{part.root}`: on each device, it has arrays such as {before} where `{part.root}` has "
        f"{after}. Create it with jax.jit(init, out_shardings=...), or move it with jax.device_put."
    )
    confidence: Confidence = "likely" if lower > 0 else "try"
    number, order = int(parameters.number[rows].min()), largest_first(w, values)
    return Intervention("shard", order, change, max(lower, 0), upper, confidence, text, whole.argument, number)


def _like_results(w: WhatIf, root: str, pairs: list[tuple[_Array, int]]) -> Intervention:
    p, parameters = w.p, matched(w.p)[0]
    rows, parts = [a.row for a, _ in pairs], np.array([part for _, part in pairs])
    values = parameters.value[rows]
    change = Change(-int((p.extent[values] - p.extent[parts]).sum()), w.none)
    # If it is donated, the results can take its place.
    upper = w.saved(change) + int(p.extent[parts].sum()) + w.peak
    order = largest_first(w, values)
    largest = order[:1], parts[np.argsort(-p.extent[values], kind="stable")[:1]]
    before, after = (p.value_text("shape", value)[0].as_py().partition("{")[0] for value in largest)
    text = (
        f"Shard `{root}` like what the program returns instead of it: on each device, it has arrays such as {before}, "
        f"of which a loop returns {after}. Create it with jax.jit(init, out_shardings=...), or move it with "
        "jax.device_put, and donate it."
    )
    number = int(parameters.number[rows].min())
    return Intervention("shard", order, change, 0, upper, "try", text, pairs[0][0].argument, number)


def _split(w: WhatIf, root: str, pairs: list[tuple[_Array, _Array]], n: int) -> Iterator[Intervention]:
    """Shard a state over the devices that sum the gradients, along a dimension that their number divides."""
    pairs = [(a, b) for a, b in pairs if any(size and size % n == 0 for size in a.dimensions)]
    if not pairs:
        return
    p, (parameters, _, match) = w.p, matched(w.p)
    rows = [a.row for a, _ in pairs]
    values = parameters.value[rows]
    less = p.extent[values] - p.extent[values] // n
    change = Change(-int(less.sum() + less[match.output[rows] >= 0].sum()), w.none)
    estimate = w.saved(change)
    lower = int(SPLIT_LOWER * estimate)
    lower -= rescheduled_at_worst(w, lower)
    whole, parameter = max(pairs, key=lambda pair: _size(pair[0]))
    shape = f"{whole.element_type}[{','.join(map(str, whole.dimensions))}]"
    text = (
        f"Shard `{root}` over the {n} devices that sum the gradients of `{parameter.root}`: each of them has the same "
        f"arrays, such as {shape}. Create it with jax.jit(init, out_shardings=...), or move it with jax.device_put."
    )
    upper = int(SPLIT_UPPER * estimate + w.peak / 10)
    number, order = int(parameters.number[rows].min()), largest_first(w, values)
    confidence: Confidence = "likely" if lower > 0 else "try"
    yield Intervention("shard", order, change, max(lower, 0), upper, confidence, text, whole.argument, number)
