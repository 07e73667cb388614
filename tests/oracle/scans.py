"""The native scans of small texts: blocks of real dumps, every edit of their lines, and what a scan says of each."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import xxhash
from conftest import DUMPS, texts

import xlamem
from xlamem import _allocations, _flags, _hlo, _hlo_body, _lines, _liveness, _usage, _values
from xlamem._column import Column, Names
from xlamem.input.files import Buffer

SECTIONS = {_lines.ASSIGNMENT: "assignment", _lines.USED: "used", _lines.LIVE: "live"}
BLOCKS = {
    "assignment": rb"allocation ", "used": rb"<", "live": rb"  [A-Z]", "report": rb"Memory Space: |Total bytes used",
    "header": rb"HloModule ", "body": rb"[%A-Za-z].*\{$", "flags": rb"xla_[a-m]",
}  # fmt: skip
"""How the first line of a block begins."""
TOKEN = re.compile(rb"[A-Za-z0-9_.]+|\xe2\x94[\x80-\xbf]|[^A-Za-z0-9_.]")
OTHERS = (
    b"99999999999999999999", b"-1", b"x", b"9x", b"0", b"(", b")", b"1 234", b"tuple.9", b"{0}", b"{", b"}", b"1.5",
    b"nan", b"2.0KiB", b"f32[2]{0}", b",", b" ", b'"', b"\\", b"-", b"\xff", b"\xc3\xa9", b":", b"=", b"<", b">", b";",
    b"\t", b"%", b"#0", b"[", b"]", b"3,4", b"\x1e", b"a" * 33, b"9223372036854775807", b"9223372036854775808",
)  # fmt: skip
"""What takes the place of a token, one after another."""
FIELDS = (b" zz=7", b", zz 7", b", 0x7f", b"zz", b", zz={1, 2}", b" zz ", b",zz=\xff", b" (zz)", b"; zz")
"""What does not exist yet, before a token."""


EXTRA = DUMPS.parent / "data" / "scans"
"""Lines that no shipped dump contains in this form; each is changed."""

INTERNERS = {
    "assignment": 3, "used": len(_values.POOLS), "live": 2, "report": 1, "header": 2, "body": len(_hlo_body.INTERNERS),
    "flags": 0,
}  # fmt: skip


class Block(NamedTuple):
    """A few lines that a scan reads as they are."""

    kind: str
    lines: list[bytes]
    new: list[int]
    """Lines of a form that no block before has."""


def form(line: bytes) -> bytes:
    """What is left of a line without its names, numbers and widths."""
    line = re.sub(rb'"[^"]*"', b"Q", line[:400])
    line = re.sub(rb"[a-z]\w*\[[\d,<=?]*\](\{[^}]*\})?", b"S", line)
    line = re.sub(rb"[\w.%-]+", b"w", re.sub(rb"\(S(, (/\*index=\d+\*/)?S)*\)", b"S", line))
    return re.sub(rb"(\S*w), \1(, \1)*", rb"\1, \1", re.sub(rb"  +", b"  ", line) if line[:2] != b"  " else line)


def sections(role: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if role == "hlo":
        begin = re.search(rb"^(?:%|ENTRY )?[A-Za-z%].*\{$", data, re.M)
        yield "header", data[: data.find(b"\n", begin.end()) + 1 if begin else len(data)]
        yield "body", data[begin.start() if begin else len(data) :]
    elif role == "memory-usage-report":
        yield "report", data
    heads = _lines.locate(data, False) if role not in ("hlo", "memory-usage-report") else []
    for (kind, begin), (_, end) in pairwise([*heads, (0, len(data))]):
        if kind in SECTIONS:
            yield SECTIONS[kind], data[data.find(b"\n", begin) + 1 : end]


def blocks() -> Iterator[Block]:
    """Blocks with lines of every form."""
    for path in sorted(EXTRA.glob("*.txt")):
        lines = path.read_bytes().split(b"\n")[:-1]
        yield Block(path.stem.rstrip("2"), lines, list(range(len(lines))))
    seen: set[tuple[str, bytes]] = set()
    for source in xlamem.find(DUMPS):
        members = texts(source) if source.bytes_on_disk() else {}
        for kind, data in (s for role in sorted(members) for s in sections(role, members[role])):
            lines = data.split(b"\n")[:-1]
            heads = [i for i, line in enumerate(lines) if re.match(BLOCKS[kind], line)]
            for begin, end in pairwise([*heads, len(lines)]):
                new = {}
                for i in range(begin, end):
                    key = (kind, form(lines[i]))
                    if key not in seen:
                        seen.add(key)
                        new[i] = True
                if new:
                    near = {begin, end - 1, *(j for i in new for j in (i - 1, i, i + 1) if begin <= j < end)}
                    near |= {i for i in range(begin, end) if kind == "report" and b";" not in lines[i]}
                    kept = sorted(near)
                    yield Block(kind, [lines[i] for i in kept], [kept.index(i) for i in new])


def edits(lines: list[bytes], i: int) -> Iterator[bytes]:
    """The text with one line changed, in every way and at every place; many tokens of long lines in one way only."""
    line, others = lines[i], lines[i + 1 :]
    yield _text(*lines[:i], *others)
    yield _text(*lines[: i + 1], line, *others)
    yield _text(*lines[:i], *others[:1], line, *others[1:])
    tokens = list(TOKEN.finditer(line[:400]))
    rng = random.Random(i)
    for n, token in enumerate(tokens):
        before, text, after = line[: token.start()], token[0], line[token.end() :]
        other = OTHERS[(n + 7 * i) % len(OTHERS)]
        ways = [
            before + after, before + OTHERS[(7 * n + i) % len(OTHERS)] + after, before, before + 2 * text + after,
            before + FIELDS[(n + i) % len(FIELDS)] + text + after, before + other + after,
            before + other + text + after,
        ]  # fmt: skip
        for way in ways if len(tokens) < 40 else (ways[(n + i) % 7], ways[(3 * n + 2 * i + 1) % 7]):
            yield _text(*lines[:i], way, *others)
    for _ in range(12 if tokens else 0):
        places = sorted(t.start() for t in rng.choices(tokens, k=rng.choice((2, 2, 3, 18))))
        parts = [line[a:b] for a, b in pairwise([0, *places, len(line)])]
        fields = [*rng.choices(FIELDS, k=len(places)), b""]
        yield _text(*lines[:i], b"".join(a + b for a, b in zip(parts, fields, strict=True)), *others)


def _text(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def pools(kind: str) -> list[Names]:
    """New interners for a scan."""
    return [Names() for _ in range(INTERNERS[kind])]


def scan(kind: str, data: Buffer, end: int, names: Sequence[Names], begin: int = 0, state: Any = ()) -> Any:
    """What the scan of data[begin:end] returns. The state is that after the text before, as `state_of` returns it."""
    if kind == "assignment":
        return _allocations.scan(data, begin, end, *names, state=state)
    if kind == "used":
        return _values.scan(data, begin, end, tuple(names), *(state or (True, True)))
    if kind == "live":
        inside, ordinal, node = state or (_liveness.NONE, 0, 0)
        return _liveness.scan(data, begin, end, inside, *names, ordinal=ordinal, node=node)
    if kind == "report":
        return _usage.scan(data, begin, end, *names, state=state or None, last=True)
    if kind == "header":
        return _hlo.scan(data, end, *names)
    return _hlo_body.scan(data, begin, end, tuple(names)) if kind == "body" else _flags.scan(data, begin, end)


def result(kind: str, data: Buffer, end: int) -> list[Any]:
    """What the scan of a text returns, with its names."""
    names = pools(kind)
    return [scan(kind, data, end, names), *(pool.export() for pool in names)]


def variants(kind: str, text: bytes) -> Iterator[Any]:
    """What else can be asked: the text in two spans, in other states, and without its end."""
    for line in re.finditer(rb"\n", text):
        cut, names = line.end(), pools(kind)
        if kind in ("assignment", "live", "report") and cut < len(text):
            first = _usage.scan(text, 0, cut, *names, last=False) if kind == "report" else scan(kind, text, cut, names)
            yield first, scan(kind, text, len(text), names, cut, first[-1]), *(pool.export() for pool in names)
        yield result(kind, text, cut)
    if kind == "assignment":
        yield _allocations.scan(text, 0, len(text), *pools(kind))
    if kind == "live":
        yield [scan(kind, text, len(text), pools(kind), 0, (inside, 7, 9)) for inside in range(7)]
    if kind == "used":
        yield [scan(kind, text, len(text), pools(kind), 0, way) for way in ((False, False), (True, False))]


def add_said(value: Any, said: list[bytes]) -> None:
    """Add all that a result says, as bytes, to a list: most of the time is spent here."""
    if isinstance(value, Column):
        said += b"%d:" % len(value), bytes(value)
    elif isinstance(value, (dict, tuple, list)):
        for item in value.values() if isinstance(value, dict) else value:
            add_said(item, said)
    else:
        said.append(repr(value).encode())


def digest(values: Any) -> str:
    """A digest of results."""
    whole = xxhash.xxh3_64()
    for value in values:
        add_said(value, said := [])
        whole.update(b"\n".join(said))
    return whole.hexdigest()[:8]


def limits() -> Iterator[tuple[str, str, bytes]]:
    """Texts with as many fields, attempts and levels as a scan follows, and with one more or less: name, kind, text."""
    for n in (*range(1, 11), *(m + i for m in (16, 32, 64, 100, 127, 256) for i in (-2, -1, 0, 1, 2))):
        many = [b"%d" % (i % 10) for i in range(n)]
        keys = b" ".join(b"k%d=%s" % (i, c) for i, c in enumerate(many))
        words = b" ".join(b"(%s)" % c for c in many)
        indices = b",".join(many)
        value = b" value: <1 a%s @0>%s (size=8,offset=0): %sf32[2]{0}\n"
        texts = {
            "header": [
                b"HloModule m\n\nFileLocations\n1 {%s line=3}\n2 {line=3 %s}\n\n%%f {\n" % (keys, keys),
                b"HloModule m, input_output_alias={ {%s}: (0, {%s}, may-alias, %s) }\n" % (indices, indices, keys),
            ],
            "assignment": [
                b"allocation 0: size 8, constant:\n" + value % (b"", b" " + words, b""),
                b"allocation 0: size 8, constant:\n" + value % (b"", b"", words + b" "),
                b"allocation 0: size 8, constant:\n" + value % (b"{%s}" % indices, b"", b""),
                b"allocation 0: size 8, %s:\n" % b", ".join(c + b" zz, constant" for c in many),
                b"allocation 0: size 8, %s:\n  f[%s](#5 @0) [0,4]: f32[]\n" % (keys, indices),
                b"allocation 0: size 8:\n  f[%s0](#5 @0) [0,4]: f32[]\n" % indices,
                b"allocation 0: size 8:\n" + value % (b"", b"", b"") * n,
            ],
            "used": [
                b"<1 a @0>\n positions:\n  a\n uses:\n  b, operand 0 {%s}\n from instruction: %%a = f32[] b(), "
                b"metadata={%s op_name=\"x\"}, zz={%s}%s2 c @0>\n positions:\n  c\n uses:\n"
                % (indices, keys, keys, b"<" * n),
                b"<1 a @0>\n positions:\n  a\n uses:\n from instruction: %a = f32[] b()<2 c zz @0 "
                + b"<x> " * n + b">\n positions:\n  c\n uses:\n",
                b"".join(
                    b"<%d a @0>\n positions:\n  a\n uses:\n from instruction: %%a = f32[] b(), backend_config=%s\n"
                    % (i, b"1" * (1 + i * 7 % n)) for i in range(n)
                ),
                b"<1 a @0>\n positions:\n%s uses:\n%s" % (b"  a\n" * n, b"  b, operand 0\n  b, operand 1\n" * n),
                b"<1 %s @0>\n positions:\n  %s\n  %s\n uses:\n  %sa, operand 0\n" % (4 * (b"a" * n,)),
            ],
            "live": [
                b"  InstructionSequence:\n" + b"    0:a\n" * n + b"  BufferLiveRange:\n" + b"    a{}:0-1\n" * n,
                b"  Live ranges at 1 (peak):\n    zz=1 %s a{}: 8 bytes\n    %s: 8 bytes %s\n" % (keys, b"a" * n, keys),
                (
                    "  Stack trace breakdown for peak usage: 7 bytes\n    r (1.0%, total: 7 bytes, current: 0 bytes, "
                    "remaining: 7 bytes)\n      " + "│   " * n + "├── a (1.0%, total: 7 bytes, current: 7 bytes, "
                    "remaining: 0 bytes)\n"
                ).encode(),
            ],
            "report": [
                b"Memory Space: a (color=1)\nTotal bytes: 8 (8B)\n  cumulative_size; %ssize; offset; used_by_n_values; "
                b"shapes_list\n  %s\n  1.0KiB(1%%); %s1.0KiB; 0; 1; f32[2]\n"
                % (b"zz; " * n, b"-" * 60, b"7; " * n),
                b"Total bytes used: 8 (8B)\n\nAllocations sorted by size:\n\ncumulative_size; total_size - "
                b"cumulative_size; allocation\n%s\n   1.0KiB(1%%);  1.0KiB; allocation 0: size 8B:\n"
                % (b"-" * (n + 61)),
            ],
            "body": [
                b"ENTRY %%e {\n  a = f32[] b(%s)\n  ROOT c = f32[] d(a, %s), x={%s}\n}\n"
                % (b", ".join(b"n%s" % c for c in many), b"#1" + b"#0" * n, indices),
                b"ENTRY %e {\n"
                + b"".join(b'  a%d = f32[] b(a), backend_config={"k":%d}\n' % (i, i * 5 % n) for i in range(n)),
            ],
            "flags": [b"m {\n" * n + b"a: 1\n" + b"}\n" * n, b"a" * n + b": %s\n" % (b"7" * n)],
        }  # fmt: skip
        for kind, found in texts.items():
            for i, text in enumerate(found):
                yield f"{kind} {i} with {n}", kind, text
