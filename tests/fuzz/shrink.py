"""Make an input smaller as long as it fails."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.mutate import Members

MOST = 3000
"""Pieces of a text: larger ones take too long."""


def shrunk(members: Members, fails: Callable[[Members], bool]) -> Members:
    """Return the dump without the files, lines and characters that the failure does not need."""
    for role in sorted(members):
        fewer = {r: text for r, text in members.items() if r != role}
        if fewer and fails(fewer):
            members = fewer
    for role in sorted(members):
        for pieces in (bytes.splitlines, _characters):

            def still_fails(some: list[bytes], members: Members = members, role: str = role) -> bool:
                return fails({**members, role: b"".join(some)})

            members = {**members, role: b"".join(_fewer(pieces(members[role], True), still_fails))}
    return members


def _characters(text: bytes, _: bool) -> list[bytes]:
    return [text[i : i + 1] for i in range(len(text))]


def _fewer(pieces: list[bytes], fails: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Leave out halves, quarters, and so on to single pieces."""
    n = len(pieces) // 2 if len(pieces) < MOST else 0
    while n:
        begin = 0
        while begin < len(pieces):
            fewer = pieces[:begin] + pieces[begin + n :]
            if fails(fewer):
                pieces = fewer
            else:
                begin += n
        n //= 2
    return pieces
