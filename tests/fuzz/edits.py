"""Edits of one line of a dump: deleted, doubled, swapped with the next, one character or one token changed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from fuzz.mutate import Members
from oracle import HEADS

KINDS = ("delete", "double", "swap", "character", "token")
CHARACTERS = (b"", b"x", b"7", b" ", b",", b"{", b")", b"-", b'"', b"\x1e", b"<", b"\xff", b":", b"=", b"\t")
TOKENS = (
    b"", b"99999999999999999999", b"-1", b"x", b"9x", b"0", b"(", b"1 234", b"tuple.9", b"{0}", b"1.5", b"nan",
    b"2.0KiB", b"f32[2]{0}",
)  # fmt: skip
_TOKEN = re.compile(rb"[A-Za-z0-9_.]+|[^A-Za-z0-9_.]")
_HEADS = (*(head.encode() for kind in HEADS.values() for head in kind), b"HloModule ")
_COMPUTATION = re.compile(rb"^[%A-Za-z_].*\{$", re.M)


def has_section(members: Members) -> bool:
    """Whether there is something to read."""
    return any(line.startswith(_HEADS) for text in members.values() for line in text.split(b"\n"))


def edited(rng: random.Random, kind: str, lines: list[bytes], i: int) -> list[bytes]:
    """The lines with line `i` changed."""
    before, line, after = lines[:i], lines[i], lines[i + 1 :]
    if kind == "delete":
        return before + after
    if kind == "double":
        return [*before, line, line, *after]
    if kind == "swap":
        return before + after[:1] + [line] + after[1:]
    if not line:
        return [*before, rng.choice(CHARACTERS[1:]), *after]
    if kind == "character":
        begin = rng.randrange(len(line))
        return [*before, line[:begin] + rng.choice(CHARACTERS) + line[begin + 1 :], *after]
    token = rng.choice(list(_TOKEN.finditer(line)))
    new = rng.choice((*TOKENS, 2 * token[0]))
    return [*before, line[: token.start()] + new + line[token.end() :], *after]


def edits(rng: random.Random, members: Members, count: int) -> Iterator[tuple[str, Members]]:
    """As many single-line edits of the dump, each with a name."""
    roles = sorted(members)
    for n in range(count):
        kind, role = KINDS[n % len(KINDS)], rng.choice(roles)
        head = _COMPUTATION.search(members[role]) if role == "hlo" else None  # the body is not read
        lines = members[role].split(b"\n")
        i = rng.randrange(members[role][: head.end()].count(b"\n") + 1 if head else max(1, len(lines) - 1))
        changed = b"\n".join(edited(rng, kind, lines, i))
        if changed.count(b"BufferAssignment:") < 2:  # else these are several modules
            line = changed.split(b"\n")[i][:80]
            yield f"{kind} {role}:{i + 1} {lines[i][:80]!r} -> {line!r}", members | {role: changed}
