"""The instructions of used values: one row for each text, and each field in its column."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from xlamem import _hlo, _lines, _values
from xlamem._column import Names
from xlamem.parse.arrays import NULL, codes, ints
from xlamem.parse.interners import Interner

SHAPES = ("f32[2]{0}", "f32[2,3]{1,0:T(8,128)}", "f32[2,3]{1,0:T(8,128)S(1)}", "(f32[2]{0}, s32[])", "pred[]", "f32[]")
CONFIGS = (
    '{"a":1}', '{"a":1,"b":{}}', '{"a":{"}":2}}', "{}", '"x\\"y"', '"z"', "7", "77", '{"a":2}', '{"b":[1,2]}',
    '"\\303\\244"',
)  # fmt: skip
STRINGS = {'"x\\"y"': 'x"y', '"z"': "z", '"\\303\\244"': "\u00e4"}
"""What the quoted ones say."""
CALLED = ("calls=%a", "to_apply=%b.1", "body=%c", "condition=%d", "branch_computations={%e, %f}", "select=%g",
          "called_computations={%h}", "true_computation=%i", "false_computation=%j", "scatter=%k")  # fmt: skip
OTHERS = ("index=2", "dimensions={0,1}", "slice={[0:2], [1:3]}", "x=\"a, b=c\"")


class Instruction:
    """A text, and what its columns hold."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self.name = name
        shape, opcode = rng.choice(SHAPES), rng.choice(("add", "fusion", "fusion-done", "call", "custom-call"))
        operands = rng.choice(("", "%a", "f32[2]{0} %a, (s32[], s32[]) %b.2", "%a#1, %b"))
        config = rng.choice((*CONFIGS, None))
        sharding = rng.choice((None, "{replicated}", "{{devices=[2,1]0,1}, {maximal device=0}}"))
        kind, target = rng.choice((None, "kLoop", "kInput")), rng.choice((None, "t", "a b", "\\303\\244\\n", "\\377"))
        op_name, file = rng.choice((None, "jit(f)/add", 'x {"y"', "")), rng.choice((None, "a.py", "b c.py"))
        line, frame = rng.choice((None, 0, 12, 123456789)), rng.choice((None, 3))
        called = rng.sample(CALLED, rng.choice((0, 0, 1, 2)))
        others = rng.sample(OTHERS, rng.choice((0, 0, 1, 2)))
        fields = [
            *(['op_name="' + op_name.replace('"', '\\"') + '"'] if op_name is not None else []),
            *([f'source_file="{file}"'] if file is not None else []),
            *([f"source_line={line}"] if line is not None else []),
            *([f"stack_frame_id={frame}"] if frame is not None else []),
        ]
        more = rng.sample(("size=7", "deduplicated_name=\"d\"", "profile={1, 2}"), rng.choice((0, 0, 1, 2)))
        metadata = f"metadata={{{' '.join([*fields, *more])}}}" if fields or more else None
        parts = [
            *others, *called, *([f"kind={kind}"] if kind else []), *([f"sharding={sharding}"] if sharding else []),
            *([f'custom_call_target="{target}"'] if target else []), *([metadata] if metadata else []),
            *([f"backend_config={config}"] if config else []),
        ]  # fmt: skip
        self.text = f"%{name} = {shape} {opcode}({operands})" + "".join(f", {p}" for p in parts)
        unquoted = {"\\303\\244\\n": "\u00e4\n", "\\377": "\\xff"}
        self.columns = {
            "instruction": name, "shape": shape, "opcode": opcode, "operands": operands, "op_type": None,
            "op_name": op_name, "source_file": file, "source_line": line, "stack_frame_id": frame,
            "custom_call_target": unquoted.get(target, target) if target else None, "fusion_kind": kind,
            "called_computations": ", ".join(c.split("=", 1)[1].strip("{}") for c in called) or None,
            "sharding": sharding,
            "backend_config": STRINGS.get(config, config) if config else None,
            "attributes": ", ".join([*others, *([f"metadata={{{' '.join(more)}}}"] if more else [])]) or None,
        }  # fmt: skip


def plain(column: Any, names: Interner | None) -> list[Any]:
    if isinstance(column, tuple):
        data, ends, valid = bytes(column[0]), codes(column[1]).tolist(), bytes(column[2])
        return [data[ends[i] : ends[i + 1]].decode() if v else None for i, v in enumerate(valid)]
    if names is not None:
        return [*names.arrays(codes(column))[0].to_pylist()]
    return [None if n == NULL else n for n in ints(column).tolist()]


POOL_OF = {
    "instruction": 0, "shape": 2, "opcode": 3, "op_type": 4, "op_name": 5, "source_file": 6, "custom_call_target": 7,
    "fusion_kind": 8,
}  # fmt: skip
RECORD = "<{} {} @0>\n positions:\n  {}\n uses:\n from instruction: {}\n"


def scanned(texts: list[tuple[str, str]]) -> tuple[dict[str, Any], list[tuple[str, int]], list[Interner]]:
    """The columns of the instructions, and the faults: code and number of the record."""
    records = [RECORD.format(i, name, name, text) for i, (name, text) in enumerate(texts)]
    data = "".join(records).encode()
    pools = [Interner() for _ in _values.POOLS]
    found = _values.scan(data, 0, len(data), tuple(p.names for p in pools), True, True)
    faults = ints(found[1]).reshape(-1, 3).tolist()
    said = [(_lines.CODES[f[0]], data.count(b"<", 0, f[1])) for f in faults]
    return found[0]["instructions"], said, pools


@pytest.mark.parametrize("seed", range(30))
def test_fields_and_rows(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((1, 15, 16, 17, 33, 200))
    made = [Instruction(rng, f"n.{rng.randrange(1 + count // rng.choice((1, 2, 9)))}") for _ in range(count)]
    chosen = [i for i in rng.choices(made, k=count) for _ in range(rng.choice((1, 1, 1, 2, 5)))]
    rows, texts, last, before, repeated = [], set(), dict[str, int](), [], []
    for k, instruction in enumerate(chosen):
        if instruction.text in texts:
            continue
        texts.add(instruction.text)
        if instruction.name in last:
            repeated.append(("instruction_differs", k + 1))
        before.append(last.get(instruction.name, -1))
        last[instruction.name] = len(rows)
        rows.append(instruction)
    found, faults, pools = scanned([(i.name if rng.random() < 0.9 else "other", i.text) for i in chosen])
    for name in rows[0].columns:
        column = plain(found[name], pools[POOL_OF[name]] if name in POOL_OF else None)
        assert column == [r.columns[name] for r in rows], name
    assert codes(found["before"]).tolist() == before
    assert [f for f in faults if f[0] != "not_utf8"] == repeated
    assert len([f for f in faults if f[0] == "not_utf8"]) == sum("\\377" in r.text for r in rows)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 10, 500, 511, 512, 513, 520, 1100])
def test_many_texts_of_a_name(n: int) -> None:
    """Beyond 8 texts they are found by hash. Each counts once, however often and in whatever order it is repeated."""
    rng = random.Random(n)
    texts = [f"%a = f32[{i}] add(%b)" for i in range(n)] + [f"%b = f32[{i}] add(%b)" for i in range(min(n, 40))]
    rng.shuffle(texts)
    order = [t for i, t in enumerate(texts) for t in (t, *rng.choices(texts[: i + 1], k=rng.randrange(3)))]
    found, faults, pools = scanned([("a", t) for t in order])
    assert plain(found["shape"], pools[2]) == [t.split(" ")[2] for t in texts]
    last: dict[str, int] = {}
    expected = []
    for row, text in enumerate(texts):
        expected.append(last.get(text[:2], -1))
        last[text[:2]] = row
    assert codes(found["before"]).tolist() == expected
    assert [f[0] for f in faults] == ["instruction_differs"] * (len(texts) - 2)


def test_texts_of_another_form() -> None:
    """Each is reported, also if it is repeated, and is no row."""
    broken = ("%a = f32[2] add(%b", "%a", "%a =f32[] b()", "%a = f32[]", "%a = f32[] b", "%a = f32[] (", "a = f32[]")
    for n in (1, 15, 16, 17):
        for text in broken:
            good = [("a", "%a = f32[] b()")] * n
            found, faults, _ = scanned([*good, ("a", text), ("a", text), *good, ("a", text)])
            assert len(codes(found["instruction"])) == 1
            assert faults == [("unknown_line", k) for k in (n + 1, n + 2, 2 * n + 3)], text


def unescaped(text: str) -> bytes:
    """C's escapes, read one after another."""
    out, i = bytearray(), 0
    plain = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, '"': 34, "'": 39, "?": 63}
    while i < len(text):
        if text[i] != "\\" or i + 1 == len(text):
            out += text[i].encode()
            i += 1
            continue
        digits = 0
        base = 8 if text[i + 1] in "01234567" else 16 if text[i + 1] in "xX" else 0
        begin = i + 1 if base == 8 else i + 2
        allowed = "01234567" if base == 8 else "0123456789abcdefABCDEF"
        while base and digits < (3 if base == 8 else 2) and text[begin + digits : begin + digits + 1] in tuple(allowed):
            digits += 1
        if digits:
            out.append(int(text[begin : begin + digits], base) & 255)
            i = begin + digits
        else:
            out += bytes([plain[text[i + 1]]]) if text[i + 1] in plain else text[i : i + 2].encode()
            i += 2
    return bytes(out)


def test_every_escape() -> None:
    printed = [chr(c) for c in range(32, 127) if chr(c) not in '"\\']
    texts = [f"\\{c}{more}" for c in printed for more in ("", "0")] + [f"\\x{c}" for c in printed]
    texts += ['\\"', "\\\\", "\\\\n", "a\\\\", "\\101\\102", "\\1234", "\\18", "\\178", "\\777", "\\00", "\\000"]
    texts += [f"\\{a}{b}{c}" for a in "037" for b in "078a" for c in "078x"] + ["\\x", "\\x4", "\\xg", "\\x414"]
    texts += [f"\\{x}{a}{b}" for x in "xX" for a in "09aAfFgG@`/:" for b in "09aAfFgG@`/:"]
    lines = "".join(f'{i} "{text}"\n' for i, text in enumerate(texts))
    data = f"HloModule m\n\nFileNames\n{lines}\n%f {{\n".encode()
    ids, (out, ends, _) = _hlo.scan(data, len(data), Names(), Names())["files"]
    assert ints(ids).tolist() == list(range(len(texts)))
    cuts = codes(ends).tolist()
    found = [bytes(out)[a:b].decode() for a, b in pairwise(cuts)]
    wanted = [unescaped(t).decode("utf-8", "backslashreplace") for t in texts]
    assert found == wanted
    assert np.diff(cuts).min() >= 1


@pytest.mark.parametrize(
    ("operands", "older"),
    [
        ("f32[2] %a", True), ("%a, %b", False), ("a, b", False), ("a, %b", False), ("s32[] a", False), ("0", False),
        ("f32[2]{0} %a, %b", True), ("%a, f32[2] %b", False), ("(f32[2], s32[]) %t", True), ("{1, 2}", False),
        ("/*index=5*/%a, s32[] %b", True), ("a b", False), ("a b, %c", False), ("f32[2] %a#1", True), ("", False),
    ],
)  # fmt: skip
def test_operands_with_shapes(operands: str, older: bool) -> None:
    """Older texts print "SHAPE %NAME"."""
    data = RECORD.format(1, "a", "a", f"%a = f32[] b({operands})").encode()
    names = tuple(Names() for _ in _values.POOLS)
    (bit,) = (bit for bit, name in _values.FEATURES.items() if name == "operand_shapes")
    assert bool(_values.scan(data, 0, len(data), names, True, True)[2] & bit) == older
