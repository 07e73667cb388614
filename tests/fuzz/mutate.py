"""Dumps changed as crashes, other releases and enemies would change them: by lines, tokens, sections and bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Members = dict[str, bytes]
"""Role -> text."""

EXTREMES = (
    b"0", b"1", b"-1", b"2", b"7", b"99", b"4096", b"65536", b"2147483647", b"2147483648", b"4294967296",
    b"1152921504606846976", b"4611686018427387904", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775807", b"-9223372036854775808", b"18446744073709551615", b"18446744073709551616",
    b"99999999999999999999999999", b"007", b"1e9", b"0x10", b"", b"46 137 348",
)  # fmt: skip

MAX_BYTES = 1 << 20
"""Of a changed text."""
FILE_GONE = 1 / 60
"""Probability that a change removes a file."""

_NUMBER = re.compile(rb"-?\d+")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*")
_HEAD = re.compile(rb"^(?:[A-Z][A-Za-z ]+|allocation \d+|<\d+)", re.MULTILINE)

FIELDS = (
    b", alignment 64", b",align=8", b" [numa 3]", b" (async)", b", hint={a=1,b={2}}", b" @@7", b", page 3",
    b", color 9", b" note: \"x, y\"", b", memory_space=5",
)  # fmt: skip
LINES = (
    b"", b"Memory pools: 3", b"  PoolSequence:", b"    0:pool.1", b"BufferAssignment:", b"Used values:",
    b"Total bytes used: 1 (1B)", b"HloLiveRange (max 3):", b"HloLiveRange not available", b"  BufferLiveRange:",
    b"    x{}:0-1", b"  Live ranges at 2 (peak):", b"allocation 0: size 8, preallocated-temp:",
    b" value: <0 a @0> (size=8,offset=0): f32[2]{0}", b"<0 a @0>", b" positions:", b"  a", b" uses:",
    b" from instruction: %a = f32[2]{0} add(%b, %c)", b"Memory Space: HBM (color=0)", b"Allocations sorted by size:",
    b"  Stack trace breakdown for peak usage: 8 bytes", b"*** End x ***", b"\xff\xfe", b"\0" * 20, b"x" * 5000,
    b"(" * 300, b"b(" * 4000,
)  # fmt: skip


def mutate(rng: random.Random, members: Members, others: Sequence[Members]) -> Members:
    """The dump changed in one to six ways; `others` lend it text."""
    found = dict(members)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        if not found:
            break
        role = rng.choice(sorted(found))
        if role == "hlo" and rng.random() < 0.7:  # most of it is not read
            role = rng.choice(sorted(found))
        if rng.random() < FILE_GONE:
            del found[role]
        else:
            found[role] = mutate_text(rng, found[role], rng.choice(others))
    return found or {"buffer-assignment": b""}


def mutate_text(rng: random.Random, text: bytes, other: Members) -> bytes:
    """The text changed in one way; `other` lends it sections."""
    change = rng.choices([c for c, _ in CHANGES], [w for _, w in CHANGES])[0]
    return change(rng, text, other)[:MAX_BYTES]


def _span(rng: random.Random, n: int) -> tuple[int, int]:
    """Some lines: mostly one, at times many."""
    begin = rng.randrange(n)
    return begin, min(n, begin + rng.choice((1, 1, 1, 2, 3, 10, n)))


def _lines(change: Callable[[random.Random, list[bytes]], None]) -> Callable[[random.Random, bytes, Members], bytes]:
    def changed(rng: random.Random, text: bytes, _: Members) -> bytes:
        lines = text.split(b"\n")
        change(rng, lines)
        return b"\n".join(lines)

    return changed


def _delete(rng: random.Random, lines: list[bytes]) -> None:
    begin, end = _span(rng, len(lines))
    del lines[begin:end]


def _double(rng: random.Random, lines: list[bytes]) -> None:
    begin, end = _span(rng, len(lines))
    lines[end:end] = lines[begin:end] * rng.choice((1, 1, 2, 50))


def _swap(rng: random.Random, lines: list[bytes]) -> None:
    i, k = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[k] = lines[k], lines[i]


def _move(rng: random.Random, lines: list[bytes]) -> None:
    begin, end = _span(rng, len(lines))
    some = lines[begin:end]
    del lines[begin:end]
    at = rng.randint(0, len(lines))
    lines[at:at] = some


def _new_line(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randint(0, len(lines)), rng.choice(LINES))


def _new_field(rng: random.Random, lines: list[bytes]) -> None:
    """In one line or in all that begin like it, before, between or behind what is known."""
    line, field = rng.choice(lines), rng.choice(FIELDS)
    stops = [m.start() for m in re.finditer(rb"[,:)\]} ]", line)] + [len(line)]
    nth, start = rng.randrange(len(stops)), line[:3]
    for i, other in enumerate(lines):
        if other is line or (rng.random() < 0.5 and other.startswith(start)):
            at = ([m.start() for m in re.finditer(rb"[,:)\]} ]", other)] + [len(other)])[nth:][:1] or [len(other)]
            lines[i] = other[: at[0]] + field + other[at[0] :]


def _number(rng: random.Random, lines: list[bytes]) -> None:
    """One number of one line."""
    there = [i for i, line in enumerate(lines) if _NUMBER.search(line)]
    if there:
        i = rng.choice(there)
        found = rng.choice(list(_NUMBER.finditer(lines[i])))
        lines[i] = lines[i][: found.start()] + rng.choice(EXTREMES) + lines[i][found.end() :]


def _column(rng: random.Random, lines: list[bytes]) -> None:
    """The n-th number of all lines that begin alike: another one in each, or the same."""
    there = [line for line in lines if _NUMBER.search(line)]
    if not there:
        return
    line = rng.choice(there)
    start, nth = line[: rng.choice((1, 3, 8))], rng.randrange(len(_NUMBER.findall(line)))
    same, step = rng.choice(EXTREMES), rng.choice((0, 1, 1000, 1 << 31, 1 << 40))
    for i, other in enumerate(lines):
        numbers = list(_NUMBER.finditer(other))
        if other.startswith(start) and nth < len(numbers):
            m = numbers[nth]
            lines[i] = other[: m.start()] + (b"%d" % (i * step) if step else same) + other[m.end() :]


def _word(rng: random.Random, lines: list[bytes]) -> None:
    """A word of one line becomes one of another."""
    there = [i for i, line in enumerate(lines) if _WORD.search(line)]
    if there:
        i, k = rng.choice(there), rng.choice(there)
        found, other = rng.choice(list(_WORD.finditer(lines[i]))), rng.choice(_WORD.findall(lines[k]))
        lines[i] = lines[i][: found.start()] + other + lines[i][found.end() :]


def _splice(rng: random.Random, text: bytes, other: Members) -> bytes:
    """A section of another dump in the place of one of these, or beside it."""
    theirs = other[rng.choice(sorted(other))]
    heads = [m.start() for m in _HEAD.finditer(theirs)] + [len(theirs)]
    mine = [m.start() for m in _HEAD.finditer(text)] + [len(text)]
    begin = rng.choice(heads)
    end = rng.choice([h for h in heads if h >= begin])
    at = rng.choice(mine)
    behind = rng.choice([h for h in mine if h >= at]) if rng.random() < 0.5 else at
    return text[:at] + theirs[begin:end] + text[behind:]


def _cut(rng: random.Random, text: bytes, _: Members) -> bytes:
    return text[: rng.randint(0, len(text))]


def _behead(rng: random.Random, text: bytes, _: Members) -> bytes:
    return text[rng.randint(0, len(text)) :]


BYTES = (b"\n", b"\r\n", b"\0", b"\xc3", b"\xff", b" ", b"(", b"{", b'"', b"\\", b":", b",", b"@", b"<")


def _bytes(rng: random.Random, text: bytes, _: Members) -> bytes:
    data = bytearray(text)
    for _i in range(rng.choice((1, 1, 3, 20))):
        at = rng.randint(0, len(data))
        data[at : at + rng.choice((0, 1, 1, 4))] = rng.choice(BYTES)
    return bytes(data)


def _crlf(rng: random.Random, text: bytes, _: Members) -> bytes:
    return text.replace(b"\n", b"\r\n") if rng.random() < 0.7 else text.replace(b"\n", b"\r\n", 3)


CHANGES: tuple[tuple[Callable[[random.Random, bytes, Members], bytes], int], ...] = (
    (_lines(_delete), 4), (_lines(_double), 4), (_lines(_swap), 3), (_lines(_move), 3), (_lines(_new_line), 3),
    (_lines(_new_field), 4), (_lines(_number), 12), (_lines(_column), 6), (_lines(_word), 4), (_splice, 5), (_cut, 3),
    (_behead, 1), (_bytes, 5), (_crlf, 1),
)  # fmt: skip
"""Changes of one text, and how often each is made in proportion to the others."""
