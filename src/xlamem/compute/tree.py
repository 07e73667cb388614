"""Arrange scopes as a tree, adding the bytes of all nested scopes to each scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ScopeNode:
    """A scope with its total bytes and its number of buffers."""

    bytes: int = 0
    n: int = 0
    children: dict[str, ScopeNode] = field(default_factory=dict)

    def add(self, path: Iterable[str], row: dict[str, Any]) -> None:
        """Add the bytes of a row to each scope on its path."""
        node = self
        for name in path:
            node = node.children.setdefault(name, ScopeNode())
            node.bytes += row["bytes"]
            node.n += row["n"]

    def largest_children(self) -> list[tuple[str, ScopeNode]]:
        """Return the children with more than 0 bytes, largest first."""
        return sorted(((n, c) for n, c in self.children.items() if c.bytes), key=lambda child: -child[1].bytes)

    def only_child(self) -> tuple[str, ScopeNode] | None:
        """Return the only child if it contains all bytes of this scope, else None."""
        if len(self.children) != 1:
            return None
        ((name, child),) = self.children.items()
        return (name, child) if child.bytes == self.bytes else None


def scope_tree(rows: Iterable[dict[str, Any]]) -> ScopeNode:
    """Build a tree from the rows of `attribution` by scope."""
    root = ScopeNode()
    for row in rows:
        root.add(("(no scope)",) if row["scope"] is None else row["scope"].split("/"), row)
    return root
