"""Arrange scopes as a tree, and fold it into a few lines that add up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

NO_SCOPE = "(no scope)"
HIDDEN_SHARE = 0.01
"""Maximum share of all bytes of the scopes that a folded tree leaves out beneath one scope."""
SMALL_SHARE = 0.03
"""Maximum share of all bytes of a line that sums up the other scopes beneath one scope."""
ITSELF = "(itself)"
"""Name of the line for the buffers of a scope that are in no scope inside it."""
MERGED_SHARE = 0.95
"""Minimum share of the bytes of a scope for the one inside it to take its line."""
PRACTICALLY_ALL = 0.995
EXPANDED_SHARE = 0.05
"""Minimum share of all bytes of a scope whose inner scopes are shown."""
N_LINES = 7
"""Number of lines beneath a scope above which its smaller scopes are summed up by opcode, if that takes fewer lines."""
N_LARGE = 4
"""Maximum number of scopes that are then shown by name."""

ARGUMENT_PARTS = re.compile(r"\[[^\]]*\]?|\.?[^\[.]+")
"""The parts of the name of an argument: `params['layers'][3].w` consists of four."""
CLASS_SCOPE = re.compile(r"^[^\[\]/]*\.[A-Z][\w*]*$")
"""A scope with the name of a class, such as `eqx.nn.LayerNorm`. Arguments have names that begin with a small letter."""


@dataclass(eq=False, repr=False)
class ScopeNode:
    """A scope with its total bytes and its number of buffers."""

    bytes: int = 0
    n: int = 0
    children: dict[str, ScopeNode] = field(default_factory=dict)
    opcodes: Counter[str] = field(default_factory=Counter)
    """Its bytes by opcode; empty if the rows have no opcodes."""
    counts: Counter[str] = field(default_factory=Counter)
    """Its number of buffers by opcode."""
    by_category: bool = False
    """Whether its children are categories."""

    def add(self, path: Iterable[str], row: dict[str, Any]) -> None:
        """Add the bytes of a row to this scope and to each scope on its path."""
        node = self
        node._count(row)
        for name in path:
            node = node.children.setdefault(name, ScopeNode())
            node._count(row)

    def _count(self, row: dict[str, Any]) -> None:
        self.bytes += row["bytes"]
        self.n += row["n"]
        if "opcode" in row:
            self.opcodes[row["opcode"] or "?"] += row["bytes"]
            self.counts[row["opcode"] or "?"] += row["n"]

    def largest_children(self) -> list[tuple[str, ScopeNode]]:
        """Return the children with more than 0 bytes, largest first."""
        return sorted(((n, c) for n, c in self.children.items() if c.bytes), key=lambda child: -child[1].bytes)

    def without_children(self) -> ScopeNode:
        """Return the bytes and number of the buffers in this scope that are in no inner scope."""
        inner = self.children.values()
        opcodes, counts = self.opcodes.copy(), self.counts.copy()
        for child in inner:
            opcodes.subtract(child.opcodes)
            counts.subtract(child.counts)
        size, n = self.bytes - sum(c.bytes for c in inner), self.n - sum(c.n for c in inner)
        return ScopeNode(size, n, opcodes=+opcodes, counts=+counts)


def scope_tree(rows: Iterable[dict[str, Any]]) -> ScopeNode:
    """Build a tree from the rows of `attribution` by scope; by category and scope, the categories come first.

    Buffers without a scope are arranged by opcode if the rows have one.
    """
    root = ScopeNode()
    for row in rows:
        root.by_category = "category" in row
        root.add(((row["category"],) if root.by_category else ()) + _path(row), row)
    return root


def _path(row: dict[str, Any]) -> tuple[str, ...]:
    scope = row["scope"]
    if scope is None:
        return (NO_SCOPE, row["opcode"] or "?") if "opcode" in row else (NO_SCOPE,)
    return path_of(scope)


def path_of(scope: str) -> tuple[str, ...]:
    """Return the components of a scope, or the parts of the name of an argument."""
    is_path = ("/" in scope and "['" not in scope) or CLASS_SCOPE.search(scope)
    return tuple(scope.split("/") if is_path else ARGUMENT_PARTS.findall(scope)) or (scope,)


def joined(name: str, inner: str) -> str:
    """Return the name of a scope within another: `layer_0/mlp`, but `params['w']`."""
    if name.endswith(NO_SCOPE):
        return f"{name} {inner}"
    return f"{name}{inner}" if inner.startswith(("[", ".")) else f"{name}/{inner}"


# -- folding -------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class FoldedScope:
    """A line of a folded tree, and the lines beneath it."""

    name: str
    node: ScopeNode
    children: list[FoldedScope] = field(default_factory=list)
    depth: int = 0
    inside: str = ""
    """For a line of the first level: the scope in it that has practically all of its bytes, if there is one."""

    @property
    def bytes(self) -> int:
        return self.node.bytes

    @property
    def weight(self) -> float:
        """Its bytes, halved for each level: of scopes of the same size, the outer one is expanded first."""
        return float(self.bytes / 2**self.depth)


def fold_scopes(root: ScopeNode, n: int) -> list[FoldedScope]:
    """Return at most n lines of a tree: its first level, and the lines beneath these.

    The lines beneath a scope add up to it, apart from at most HIDDEN_SHARE of all bytes. A line that sums up other
    scopes is smaller than the lines above it. The largest scopes are expanded first, as far as n lines allow.
    """
    lines = _first_level(root, n)
    candidates = [*lines]
    n -= len(lines)
    while candidates:
        scope = max(candidates, key=lambda scope: scope.weight)
        candidates.remove(scope)
        inner = _inner(scope.node, root.bytes, n)
        if len(inner) <= n and scope.bytes >= EXPANDED_SHARE * root.bytes:
            for line in inner:
                line.depth = scope.depth + 1
            scope.children = inner
            n -= len(inner)
            candidates += inner
    return lines


def _first_level(root: ScopeNode, n: int) -> list[FoldedScope]:
    """Return the lines of the first level. Categories are not merged with what is inside."""
    if root.by_category:
        lines = [_category(name, child, root.bytes) for name, child in root.largest_children()]
        return _with_remainder(lines, root, root.bytes)
    lines = _inner(root, root.bytes, n)
    if len(lines) <= n:
        return lines
    rest = [line.node for line in lines[max(n - 1, 0) :]]
    others = ScopeNode(sum(node.bytes for node in rest), sum(node.n for node in rest))
    return [*lines[: max(n - 1, 0)], FoldedScope("others", others)]


def _category(name: str, node: ScopeNode, total: int) -> FoldedScope:
    inner = _merged("", node, total)
    if inner.bytes < PRACTICALLY_ALL * node.bytes or not inner.name:
        return FoldedScope(name, node)
    same = ScopeNode(node.bytes, node.n, inner.node.children, inner.node.opcodes, inner.node.counts)
    return FoldedScope(name, same, inside=inner.name.removeprefix("/"))


def _inner(node: ScopeNode, total: int, n: int) -> list[FoldedScope]:
    """Return the lines beneath a scope: its inner scopes, or the largest of them and the others by opcode.

    They are summed up by opcode if there would be more than n lines, or more than N_LINES.
    """
    scopes = [_merged(name, child, total) for name, child in node.largest_children()]
    own = node.without_children()
    if own.bytes >= MERGED_SHARE * node.bytes:
        return []
    if own.bytes:
        scopes = sorted([*scopes, FoldedScope(ITSELF, own)], key=lambda s: -s.bytes)
    lines = _with_remainder(scopes, node, total)
    large = [s for s in scopes[:N_LARGE] if s.bytes >= node.bytes / 10]
    if len(lines) <= min(n, N_LINES) or not node.opcodes or not (rest := scopes[len(large) :]):
        return lines
    by_opcode = sorted([*large, *_by_opcode(rest)], key=lambda s: -s.bytes)
    return min(lines, _with_remainder(by_opcode, node, total), key=len)


def _merged(name: str, node: ScopeNode, total: int) -> FoldedScope:
    """Merge a scope with the one inside it that has nearly all of its bytes."""
    least = max(MERGED_SHARE * node.bytes, node.bytes - HIDDEN_SHARE * total / 2)
    while node.children:
        inner, child = max(node.children.items(), key=lambda c: c[1].bytes)
        if child.bytes < least:
            break
        name, node = joined(name, inner), child
    return FoldedScope(name, node)


def _with_remainder(scopes: list[FoldedScope], node: ScopeNode, total: int) -> list[FoldedScope]:
    """Return the first of these scopes, and a line for the rest of `node` unless that is very small."""
    rest, shown = sum(s.bytes for s in scopes), ScopeNode()
    lost = node.bytes - rest  # by merging
    for i, scope in enumerate(scopes):
        rest -= scope.bytes
        shown.bytes, shown.n = shown.bytes + scope.bytes, shown.n + scope.node.n
        if rest <= HIDDEN_SHARE * total or (rest + lost < scope.bytes and rest + lost <= SMALL_SHARE * total):
            left = ScopeNode(node.bytes - shown.bytes, node.n - shown.n)
            return scopes[: i + 1] + ([FoldedScope("others", left)] if left.bytes > HIDDEN_SHARE * total else [])
    return []


def _by_opcode(scopes: list[FoldedScope]) -> list[FoldedScope]:
    """Return a line for each opcode in these scopes."""
    sizes, counts = Counter[str](), Counter[str]()
    for scope in scopes:
        sizes.update(scope.node.opcodes)
        counts.update(scope.node.counts)
    return [FoldedScope(f"other: {opcode}", ScopeNode(n, counts[opcode])) for opcode, n in sizes.most_common()]
