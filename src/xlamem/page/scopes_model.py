"""The tree of scopes of the page, with layers folded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, encoded, take
from ..compute.op_names import scopes
from ..compute.tree import ARGUMENT_PARTS, CLASS_SCOPE, NO_SCOPE
from .model import Scopes
from .texts import numbered

MAX_DEPTH = 32
"""Maximum number of components of a scope; the last one has the rest."""
SEPARATOR = "\0"


class ScopeTree(NamedTuple):
    """The tree, and the row in it of each buffer."""

    scopes: Scopes
    row: Ints


def scope_tree(
    op_name: tuple[Ints, pa.Array], opcode: tuple[Ints, list[str]], function: tuple[Ints, pa.Array] | None = None
) -> ScopeTree:
    """Return the tree of the scopes of buffers, as that of `compute.scope_tree` for `folded_scopes`.

    Arguments are codes and texts. Buffers with a function have this instead of a scope, and buffers without an op_name
    are arranged by opcode.
    """
    scope_of_name, scope_names = encoded(scopes(op_name[1].cast(pa.string()), fold=True))
    of_function, functions = function or (np.full(len(op_name[0]), -1), pa.array([], pa.string()))
    path_of_opcode = [SEPARATOR.join((NO_SCOPE, name)) for name in [*opcode[1], "?"]]
    named = pa.concat_arrays([scope_names.cast(pa.string()), functions.cast(pa.string())])
    paths = pa.concat_arrays([_paths(named), pa.array(path_of_opcode, pa.string())])
    scope = np.where(of_function >= 0, len(scope_names) + of_function, take(scope_of_name, op_name[0]))
    path = np.where(scope >= 0, scope, len(named) + np.where(opcode[0] < 0, len(opcode[1]), opcode[0]))
    used, number = numbered(path)
    tree, row = _tree(paths.take(pa.array(used)), functions=function is not None)
    return ScopeTree(tree, take(row, number))


def _paths(texts: pa.Array) -> pa.Array:
    """Return scopes, and names of arguments, with separators between their components (see `tree.path_of`)."""
    texts = pc.replace_substring(texts, SEPARATOR, " ")
    is_path = pc.and_(pc.match_substring(texts, "/"), pc.invert(pc.match_substring(texts, "['")))
    is_path = pc.or_(is_path, pc.match_substring_regex(texts, CLASS_SCOPE.pattern))
    split = pc.replace_substring_regex(texts, rf"({ARGUMENT_PARTS.pattern})", rf"\1{SEPARATOR}")
    split = pc.if_else(pc.equal(split, texts), texts, pc.utf8_rtrim(split, SEPARATOR))
    return pc.if_else(is_path, pc.replace_substring(texts, "/", SEPARATOR), split)


def _tree(paths: pa.Array, *, functions: bool) -> tuple[Scopes, Ints]:
    """Return the tree of these paths, and the row of the last component of each."""
    parts = pc.split_pattern(paths, SEPARATOR, max_splits=MAX_DEPTH - 1)
    begin = np.asarray(parts.offsets, np.int64)
    codes, names = encoded(parts.flatten())
    depth, row = np.diff(begin), np.zeros(len(paths), np.int64)
    parents, name_codes, n = [np.array([-1])], [np.array([-1])], 1
    for level in range(int(depth.max(initial=0))):
        deeper = np.flatnonzero(depth > level)
        key = row[deeper] * (len(names) + 1) + codes[begin[deeper] + level]
        nodes, first, node = np.unique(key, return_index=True, return_inverse=True)
        parents.append(row[deeper][first])
        name_codes.append(codes[begin[deeper] + level][first])
        row[deeper] = n + node.ravel()
        n += len(nodes)
    names = pc.replace_substring(names.cast(pa.string()), SEPARATOR, "/")
    texts = pa.concat_arrays([names, pa.array([""])])
    name = texts.take(pa.array(np.concatenate(name_codes) % len(texts)))
    return Scopes(name, np.concatenate(parents), functions), row
