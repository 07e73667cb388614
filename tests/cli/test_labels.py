"""Names of buffers that are shortened to the width of a column."""

from __future__ import annotations

import random

import pytest

from xlamem.cli.reporters.labels import shorten_labels

CONVOLUTION = "Detector/Backbone_*/Bottleneck_*/Conv_*/conv_general_dilated"
UP = "['params']['encoder']['up_*']['kernel']"


@pytest.mark.parametrize(
    ("label", "limit", "shown"),
    [
        (CONVOLUTION, 60, CONVOLUTION),
        (CONVOLUTION, 59, "…/Backbone_*/Bottleneck_*/Conv_*/conv_general_dilated"),
        (CONVOLUTION, 29, "…/Conv_*/conv_general_dilated"),
        (CONVOLUTION, 28, "…/Conv_*/conv_general_dilat…"),
        (CONVOLUTION, 15, "…/Conv_*/conv_…"),
        (CONVOLUTION, 14, "…/Conv_*/conv…"),
        (CONVOLUTION, 13, "Detect…ilated"),
        (f"copy of {CONVOLUTION}", 22, "copy of …/Conv_*/conv…"),
        ("model/CrossAttentionBlock_*/exp", 20, "…ttentionBlock_*/exp"),
        ("BTNH,BSNH->BNTS/dot_general", 22, "BTNH,BSNH->BNTS/dot_g…"),
        ("model/layer_0/norm_3", 12, "…/norm_3"),  # a component with a number is no primitive
        ("model/...hqk->...qhd/dot_general", 27, "…/...hqk->...qhd/dot_gener…"),
        (f"opt[0].mu{UP}", 99, f"opt[0].mu{UP}"),
        (f"opt[0].mu{UP}", 38, "opt[0].mu.params.encoder.up_*.kernel"),
        (f"opt[0].mu{UP}", 35, "opt[0].mu….encoder.up_*.kernel"),
        (f"opt[0].mu{UP}", 22, "opt[0].mu….up_*.kernel"),
        (f"opt[0].mu{UP}", 17, "opt[0].mu….kernel"),
        (f"opt[0].mu{UP}", 16, "opt[0].m….kernel"),
        ("params['embed']['embedding'].value", 33, "params.embed.embedding"),
        ("params.embed.embedding.value", 20, "params.emb…ing.value"),
        ("slice of params['layers'][0]['w']", 20, "slice of params….w"),
        ("fusion.123.remat2.clone.5", 16, "fusion.1…clone.5"),
    ],
)
def test_a_name_that_is_too_long(label: str, limit: int, shown: str) -> None:
    assert shorten_labels([label], limit) == [shown]


def test_names_without_a_limit() -> None:
    assert shorten_labels(iter([CONVOLUTION, UP]), None) == [CONVOLUTION, UP]
    assert shorten_labels([], 20) == []


def test_keys_look_alike_in_all_names() -> None:
    """Also in those that would fit. Where a scope is too long, they keep their brackets."""
    embedding = "params['embed']"
    assert shorten_labels([f"params{UP}", embedding], 34) == ["params.params.encoder.up_*.kernel", "params.embed"]
    assert shorten_labels([CONVOLUTION, embedding], 29)[1] == embedding
    names = ["a.b", "a['b']", "x" * 30, f"params{UP}"]
    assert len(set(shorten_labels(names, 20))) == len(names)


def test_each_name_has_the_first_form_that_no_other_has() -> None:
    names = [f"{root}['value']['kernel']" for root in ("params", "opt[0].nu", "opt[0].mu")]
    assert shorten_labels(names, 17) == ["params….kernel", "opt[0].nu….kernel", "opt[0].mu….kernel"]
    shown = shorten_labels([*names, "opt[0].mu['policy']['kernel']"], 17)
    assert shown == ["params….kernel", "opt[0].nu….kernel", "….value.kernel", "….policy.kernel"]


def test_fields_of_one_argument() -> None:
    """The key that differs is kept: the first one, or the state of the optimizer, or a later one."""
    fields = ("['params']", "['ema']", "['opt'][*][*].nu", "['opt'][*][*].mu")
    shown = shorten_labels([f"state{field}['up'][*]['conv1']['kernel'].value" for field in fields], 22)
    assert shown == ["…params….conv1.kernel", "…ema….conv1.kernel", "…nu….conv1.kernel", "…mu….conv1.kernel"]
    names = [f"state['params']['{part}'][*]['time']['kernel']" for part in ("up", "down")]
    assert shorten_labels(names, 22) == ["….up[*].time.kernel", "….down[*].time.kernel"]
    assert shorten_labels(names[:1], 22) == ["state….time.kernel"]
    before = "state" + "['k']" * 8
    shown = shorten_labels([f"{before}['{part}']['w']['kernel']" for part in ("one", "two")], 16)
    assert shown == ["….k.one.w.kernel", "….k.two.w.kernel"]


def test_a_name_that_looks_like_the_short_form_of_another() -> None:
    shown = shorten_labels(["model/layer_0/norm_3", "…/norm_3"], 12)
    assert len({*shown}) == 2
    assert max(map(len, shown)) <= 12


def test_shortened_names_stay_different() -> None:
    chance = random.Random(3)
    parts = ["a", "conv_general", "layer_0", "['w']", "['a.b']", "[0]", ".mu", ".nu", "copy of ", "/", "/add", "…"]
    for _ in range(500):
        names = ["".join(chance.choices(parts, k=chance.randrange(9))) for _ in range(chance.randrange(9))]
        limit = chance.choice([9, 12, 16, 22, 30])
        shown = shorten_labels(names, limit)
        assert len(set(shown)) == len(set(names))
        assert max(map(len, shown), default=0) <= limit
        assert len(set(zip(names, shown, strict=True))) == len(set(names))
