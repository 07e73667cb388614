"""The page's small functions: texts as in Python, columns, addresses, ranges of steps."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS
from node import bundled, run

from xlamem import formatting
from xlamem.page.columns import encoded_ints, encoded_texts
from xlamem.page.writing import report

SIZES = [
    0, 1, -1, 1023, 1024, -1025, 1029, 1030, 1152, 1157, 1408, 1664, 1920, 102_394, 1_023_994, 1_023_995, 1_047_552,
    2_027_524_096, 123_456_789_012, 2**53 - 1, -(2**53) + 1, *(2**k + 2 ** (k - 3) for k in range(10, 50)),
]  # fmt: skip
"""Among them ties, which Python rounds to the even digit."""
SHARES = [(0, 0), (0, 7), (1, 7), (1, 400), (3, 400), (1, 2001), (1, 1999), (7, 7), (5, 4), (1, 8), (3, 8), (2**52, 3)]
TEXTS = [
    "", "plain", "é漢🎉", "a\tb\nc\rd", "\0\x1b\x7f\x80\x9f", "\u00a0\u2028\u202e\u2066\ufeff", "\U000e0001\ud800x",
    "layers_0/attention/" * 10,
]  # fmt: skip

FORMATS = """
import { number, oneLine, percent, shorten, shortenPath, size } from "./parts/format.js";

const { sizes, shares, texts, limit } = given;
console.log(JSON.stringify({
  size: sizes.map(size),
  number: sizes.map(number),
  percent: shares.map(([part, whole]) => percent(part, whole)),
  oneLine: texts.map(oneLine),
  shorten: texts.map((text) => shorten(text, limit)),
  shortenPath: texts.map((text) => shortenPath(text, limit)),
}));
"""
COLUMNS = """
import { doubles, ints, texts } from "./data/decode.js";

const decoded = { int: given.small ? ints : doubles, text: texts };
const columns = given.columns.map((column) => decoded[column.type](column));
console.log(JSON.stringify((await Promise.all(columns)).map((values) => [...values])));
"""
DAMAGED = """
import { decode } from "./data/decode.js";

const program = given.programs[0];
const found = [];
for (const damage of given.damages) {
  try {
    await decode({ ...program, schedule: { ...program.schedule, ...damage } });
    found.push("");
  } catch (error) {
    found.push(error.message);
  }
}
console.log(JSON.stringify(found));
"""
ADDRESSES = """
import { addressOf, stateIn } from "./data/address.js";
import { decode } from "./data/decode.js";

const data = await decode(given.programs[0]);
const states = given.addresses.map((address) => stateIn(address, 0, data));
const addresses = states.map((state) => addressOf(state, data, 0));
const again = addresses.map((address) => stateIn(address, 0, data));
console.log(JSON.stringify({ states, addresses, again }));
"""
RANGES = """
import { panned, stepAt, xOfStep, zoomed } from "./parts/layout.js";

const { n } = given;
const ranges = [];
let range = [0, n - 1];
for (const factor of given.factors) {
  ranges.push((range = zoomed(range, Math.floor((range[0] + range[1]) / 3), factor, n)));
}
for (const by of given.moves) ranges.push((range = panned(range, by, n)));
const steps = [];
for (let step = range[0]; step <= range[1]; step++) {
  steps.push([step, stepAt(xOfStep(step + 0.5, range, 800), range, 800)]);
}
console.log(JSON.stringify({ ranges, steps }));
"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a program with what is given, and returns what it prints."""

    @cache
    def bundle(program: str) -> Path:
        return bundled(program, tmp_path_factory.mktemp("program"))

    return lambda program, **given: run(bundle(program), **given)


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return report(DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload").as_json()


def test_texts_are_those_of_python(evaluate: Any) -> None:
    shown = evaluate(FORMATS, sizes=SIZES, shares=SHARES, texts=TEXTS, limit=12)
    assert shown == {
        "size": [formatting.size(n) for n in SIZES],
        "number": [formatting.number(n) for n in SIZES],
        "percent": [formatting.percent(*share) for share in SHARES],
        "oneLine": [formatting.one_line(text) for text in TEXTS],
        "shorten": [formatting.shorten(text, 12) for text in TEXTS],
        "shortenPath": [formatting.shorten_path(text, 12) for text in TEXTS],
    }


def test_columns_are_decoded(evaluate: Any) -> None:
    small = [np.array(values, np.int64) for values in (
        [], [0], [0] * 9, [-1, 0, 1, 127, -128, 128], range(-70_000, 70_000, 77), [2**31 - 1, -(2**31) + 1, 0],
    )]  # fmt: skip
    large = [*small, np.array([2**53 - 1, -(2**53) + 1, 0, 2**40, -(2**40)]), np.arange(50) * 2**45]
    texts = [["a", "\0<é漢🎉", ""], []]
    for columns, is_small in ((small, True), (large, False)):
        encoded = [*map(encoded_ints, columns), *(encoded_texts(pa.array(t, pa.string())) for t in texts)]
        assert evaluate(COLUMNS, columns=encoded, small=is_small) == [*(c.tolist() for c in columns), *texts]


def test_damaged_columns_are_said_to_be(evaluate: Any, model: dict[str, Any]) -> None:
    column = model["programs"][0]["schedule"]
    damages = [
        {"data": "!"}, {"data": column["data"][:12]}, {"data": "AAAA" + column["data"][4:]},
        {"length": column["length"] + 1}, {"length": column["length"] - 1},
    ]  # fmt: skip
    messages = evaluate(DAMAGED, **model, damages=damages)
    assert len(messages) == len(damages)
    assert all("damaged" in message for message in messages)


def test_addresses_lead_back_to_the_same_state(evaluate: Any, model: dict[str, Any]) -> None:
    names = ["fusion", "copy-start.1{0}", "no such buffer", "99999999"]
    addresses = [
        "", "#", "#t=5", "#t=5&space=host&zoom=2-9&color=kind&q=a%26b%3D%23&scope=dot_general",
        *(f"#buffer={name}" for name in names),
    ]  # fmt: skip
    found = evaluate(ADDRESSES, **model, addresses=addresses)
    assert found["again"] == found["states"]
    assert found["addresses"][0] == found["addresses"][1] == ""
    assert found["addresses"][2] == "#t=5"
    state = found["states"][3]
    assert (state["step"], state["range"], state["colorBy"], state["query"]) == (5, [2, 9], "kind", "a&b=#")
    assert model["programs"][0]["spaces"][state["space"]]["memory_space"] == "host"
    assert [s["buffer"] >= 0 for s in found["states"][4:]] == [True, True, False, False]


def test_addresses_of_other_spaces_and_ranges(evaluate: Any, model: dict[str, Any]) -> None:
    """A space of the same name has its page; the first step of the peak is left out in its own space only."""
    program = model["programs"][0]
    hbm, host = (next(s for s in program["spaces"] if s["memory_space"] == name) for name in ("hbm", "host"))
    spaces = [hbm, host, {**host, "page": 2, "first_step": hbm["first_step"]}]
    wanted = [
        f"#space=host&t={hbm['first_step']}", "#space=host", "#space=host:2", f"#space=host:2&t={host['first_step']}",
        "#zoom=5-5", f"#t={program['steps'] - 1}", f"#zoom=1-{program['steps'] - 1}",
    ]  # fmt: skip
    wrong = [f"#t={program['steps']}", f"#zoom=1-{program['steps']}"]
    found = evaluate(ADDRESSES, programs=[{**program, "spaces": spaces}], addresses=[*wanted, *wrong])
    assert found["addresses"] == [*wanted, "", ""]
    assert [state["space"] for state in found["states"]] == [1, 1, 2, 2, 0, 0, 0, 0, 0]


def test_wrong_addresses_show_the_first_state(evaluate: Any, model: dict[str, Any]) -> None:
    wrong = [
        "#%%%&t=%", "#t=-1", "#t=1e9", "#t=99999999999999999999", "#zoom=9-3", "#zoom=3", "#zoom=3-99999", "#color=red",
        "#space=__proto__&scope=constructor&buffer=toString", "#bill", "#buffer={0}", "#\0=\ud800",
    ]  # fmt: skip
    first, *states = evaluate(ADDRESSES, **model, addresses=["", *wrong])["states"]
    assert dict(zip(wrong, states, strict=True)) == dict.fromkeys(wrong, first)


@pytest.mark.parametrize("n", [1, 2, 3, 16, 1_000_000])
def test_ranges_stay_within_the_steps(evaluate: Any, n: int) -> None:
    factors, moves = [0.5] * 25 + [1.1, 1.0, 2, 0.9, 1e9, 0.3], [5, -1e9, 1e9, 0.4, -3]
    found = evaluate(RANGES, n=n, factors=factors, moves=moves)
    assert all(0 <= first <= last < n for first, last in found["ranges"])
    assert found["ranges"][24][0] == found["ranges"][24][1]
    assert all(step == shown for step, shown in found["steps"][:1000])
