"""`check`: real programs that differ in one edit, budgets, and what is not known."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from checks import BIG, GROWTH, MIB, SMALL, TRUNCATED, assert_valid, blessed, findings, number, pair
from conftest import DUMPS, every
from pairs import stored
from variants import CUT, TEXTS, inner, larger, outer

import xlamem
from xlamem import UsageError, check
from xlamem.formatting import size
from xlamem.gate import baseline as baselines
from xlamem.gate.amounts import Amount
from xlamem.gate.causes import changes_since, describe, why_since
from xlamem.gate.config import Budget, Config
from xlamem.gate.entry import Argument, Entry, Group
from xlamem.gate.formats.as_text import as_text
from xlamem.gate.growth import FLOOR, floor, growth_findings

GROWN = ("layer_added", "donation_removed", "remat_removed", "type_changed", "batch_doubled", "cache_longer",
         "heads_doubled", "vocabulary_doubled", "sharding_lost", "einsum_rewritten", "loss_chunking_removed",
         "offload_removed")  # fmt: skip
"""Causes of the stored pairs with which the program grows."""
HARMLESS = ("none", "names", "scan_unrolled")
"""Causes with which it does not."""


# -- real edits


@pytest.mark.parametrize("name", every(3, (p.name for p in stored() if p.cause in GROWN)))
def test_growth_is_red(name: str, tmp_path: Path) -> None:
    """Against the file and against the dumps, with a cause and a line of the model."""
    a, b = pair(name).unpack(tmp_path)
    base = blessed(a, tmp_path / "base.json")
    for baseline in (base, a) if name.startswith("cpu") else (base,):
        result = check(b, config=Config(), baseline=baseline)
        assert result.exit_code == 1
        failed = result.rows("failed")
        assert {(r["rule"], r["number"]) for r in failed} == {("growth", "device_total"), ("growth", "peak")}
        for row in failed:
            assert row["value"] > row["limit"] >= row["baseline"] + FLOOR
            assert row["why"]
            assert row["source_file"].endswith("program.py")
            assert row["source_line"] > 0
        assert result.contributors.num_rows
        assert_valid(result)


@pytest.mark.parametrize("name", every(2, (p.name for p in stored() if p.cause in HARMLESS)))
def test_harmless_edits_are_green(name: str, tmp_path: Path) -> None:
    a, b = pair(name).unpack(tmp_path)
    base = blessed(a, tmp_path / "base.json")
    for baseline in (base, a):
        result = check(b, config=Config(), baseline=baseline)
        assert_valid(result)
        assert result.exit_code == 0
        assert not result.rows("warning", "not known", "failed")


@pytest.mark.parametrize("name", ["cpu-donation-removed-decode", "h100-donation-removed-decode"])
def test_a_lost_donation_is_named(name: str, tmp_path: Path) -> None:
    a, b = pair(name).unpack(tmp_path)
    result = check(b, config=Config(), baseline=blessed(a, tmp_path / "base.json"))
    assert result.rows("failed")[0]["why"].startswith("8 arguments are no longer donated: cache[0][0], cache[0][1], ")
    required = {"budget": [{"program": "jit_decode_*", "donation": "required"}]}
    assert findings(check(a, config=required)) == []
    assert findings(check(b, config=required)) == [("donation", "failed")]
    (row,) = check(b, config=required).rows("failed")
    assert (row["value"], row["limit"], row["number"]) == (64 * MIB, 0, "donation")
    assert row["source_file"].endswith("program.py")
    assert row["source_line"] > 0
    assert "8 arguments of 64.00 MiB could be donated and are not: cache[0][0]" in row["message"]


def test_lost_donations_that_the_baseline_does_not_list() -> None:
    """A file lists the largest 100, and their number."""
    every = tuple(Argument(f"w[{i}]", MIB, "f32[8]") for i in range(150))
    names = frozenset((a.name, a.shape) for a in every)
    size = 1 << 30
    base = Entry("jit_f", "cpu", None, None, size, size, donated=every[:100], n_donated=150)

    def why(donated: tuple[Argument, ...]) -> str:
        now = Entry("jit_f", "cpu", None, None, size, size, donated=donated, n_donated=len(donated), arguments=names)
        return why_since(base, now, [])

    assert why(()).startswith("at least 100 arguments are no longer donated: w[0], w[1], ")
    assert why(every[:100]) == "100 arguments are donated instead of 150"
    assert why(every) == ""
    base = replace(base, donated=every)
    assert why(()).startswith("150 arguments are no longer donated: ")


def test_buffers_are_larger_only_if_their_number_is_the_same(tmp_path: Path) -> None:
    a, b = pair("cpu-donation-removed-decode").unpack(tmp_path)
    result = check(b, config=Config(), baseline=blessed(a, tmp_path / "base.json"))
    (row,) = (r for r in result.contributors.to_pylist() if r["cause"] == "larger" and r["category"] == "parameter")
    assert (row["n_baseline"], row["n"], row["bytes"] - row["bytes_baseline"]) == (6, 8, 16 * MIB)
    assert "+16.00 MiB: cache[*][*] (f32[8,1024,4,64]): 8 instead of 6 at the peak" in result.rows("failed")[0]["why"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((4, 4 * MIB), (4, 6 * MIB), "+2.00 MiB: 4× w are larger"),
        ((1, MIB), (1, 3 * MIB), "+2.00 MiB: w is larger"),
        ((4, 4 * MIB), (6, 6 * MIB), "+2.00 MiB: w: 6 instead of 4 at the peak"),
        ((4, 4 * MIB), (1, MIB), "-3.00 MiB: w: 1 instead of 4 at the peak"),
        ((4, 4 * MIB), (2, 6 * MIB), "+2.00 MiB: w: 2 instead of 4 at the peak, on average larger"),
        ((2, 6 * MIB), (4, 4 * MIB), "-2.00 MiB: w: 4 instead of 2 at the peak, on average smaller"),
    ],
)
def test_changes_of_a_group_in_words(before: tuple[int, int], after: tuple[int, int], text: str) -> None:
    base, now = (_with_group(n, size) for n, size in (before, after))
    assert [describe(c) for c in changes_since(base, now)] == [text]


def _with_group(n: int, size: int) -> Entry:
    return Entry("jit_f", "cpu", None, None, size, size, groups=(Group("w", "parameter", size, n),))


@pytest.mark.parametrize("name", every(2, ["cpu-flag-fusion", "v5e-flag-vmem", "h100-flag-cublas"]))
@pytest.mark.parametrize(
    ("policy", "status", "code"), [("fail", "failed", 1), ("warn", "warning", 0), ("bless", "note", 0)]
)
def test_other_flags(name: str, policy: str, status: str, code: int, tmp_path: Path) -> None:
    a, b = pair(name).unpack(tmp_path)
    base = blessed(a, tmp_path / "base.json")
    result = check(b, config={"flags_change": policy}, baseline=base)
    assert result.exit_code == code
    assert findings(result, "growth") == [("growth", status)] * 2
    ((_, flags_status),) = findings(result, "flags")
    assert flags_status == ("warning" if policy == "warn" else "note")
    assert "with other flags" in next(r["message"] for r in result.rows() if r["rule"] == "growth")
    assert (result.written is not None) == (policy == "bless")
    again = check(b, config={}, baseline=base)
    assert (again.exit_code, findings(again) == []) == ((0, True) if policy == "bless" else (1, False))


def test_other_flags_without_a_change(tmp_path: Path) -> None:
    """They are reported whatever the baseline is."""
    a, _ = pair("cpu-flag-fusion").unpack(tmp_path)
    same = tmp_path / "same"
    shutil.copytree(a, same)
    (path,) = same.glob("*debug_options*")
    path.write_text(path.read_text() + "xla_cpu_enable_fast_math: true\n")
    base = blessed(a, tmp_path / "base.json")
    for policy, status in (("warn", "warning"), ("fail", "note")):
        for baseline in (base, a):
            result = check(same, config={"flags_change": policy}, baseline=baseline)
            assert findings(result) == [("flags", status)]
            assert result.programs["how"].to_pylist() == ["same"]


@pytest.mark.parametrize("name", ["v5e-upgraded", "cpu-upgraded"])
def test_another_compiler(name: str, tmp_path: Path) -> None:
    a, b = pair(name).unpack(tmp_path)
    base = blessed(a, tmp_path / "base.json")
    for policy, status in (("warn", "warning"), ("fail", "note")):
        result = check(b, config={"compiler_change": policy}, baseline=base)
        assert findings(result) == [("compiler", status)]
        assert result.exit_code == 0
    before = base.read_text()
    result = check(b, config={"compiler_change": "bless"}, baseline=base)
    assert findings(result) == [("compiler", "note")]
    assert base.read_text() != before
    assert findings(check(b, config={}, baseline=base)) == []


def test_growth_with_another_compiler(tmp_path: Path) -> None:
    """What grew with another version of the compiler belongs to that class."""
    a, b = pair("v5e-upgraded").unpack(tmp_path)
    base = blessed(a, tmp_path / "base.json")
    smaller = [replace(e, device_total=e.device_total - MIB) for e in baselines.load(base).entries]
    baselines.write(base, baselines.Baseline.of(smaller))
    for policy, status, code in (("fail", "failed", 1), ("warn", "warning", 0), ("bless", "note", 0)):
        result = check(b, config={"compiler_change": policy}, baseline=base)
        assert findings(result, "growth") == [("growth", status)]
        assert result.exit_code == code
        assert "with another version of the compiler" in result.rows(status)[0]["message"]


def test_the_same_flags_compiled_elsewhere(tmp_path: Path) -> None:
    """Where dumps and caches are is no other flag."""
    a, b = pair("cpu-donation-removed-decode").unpack(tmp_path)
    for path in b.rglob("*debug_options*"):
        path.write_text(path.read_text() + 'xla_dump_to: "/elsewhere"\nxla_gpu_kernel_cache_file: "/x"\n')
    result = check(b, config=Config(), baseline=blessed(a, tmp_path / "base.json"))
    assert findings(result) == [("growth", "failed")] * 2


# -- the floor, and numbers that hide growth


def entry(total: int, peak: int | None, **more: Any) -> Entry:
    return Entry("jit_f", "tpu", "1", "2", total, peak, **more)


def growth(base: Entry, now: Entry, **options: Any) -> dict[str, str]:
    config = Config(**options)
    return {f.number: f.status for f in growth_findings(base, now, config.budgets, config) if f.rule == "growth"}


def test_a_longer_sequence_on_tpu() -> None:
    """What must fit shrinks by 172 KB, because fewer bytes are lost to packing, and the peak grows by 2.1 MB."""
    base, now = entry(100 * MIB, 90 * MIB), entry(100 * MIB - 172_000, 90 * MIB + 2_100_000)
    assert growth(base, now) == {"device_total": "passed", "peak": "failed"}


@pytest.mark.parametrize("before", [0, 1000, 10 * MIB, 64_000 * 1024, 1 << 34])
def test_the_floor(before: int) -> None:
    """64 KiB or 0.1 %, whichever is larger."""
    allowed = max(65536, before // 1000)
    assert floor(before) == allowed
    same = entry(before, before)
    assert growth(same, entry(before + allowed, before + allowed)) == {"device_total": "passed", "peak": "passed"}
    assert growth(same, entry(before + allowed + 1, before)) == {"device_total": "failed", "peak": "passed"}
    assert growth(same, entry(before, before + allowed + 1)) == {"device_total": "passed", "peak": "failed"}


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        (Amount("10 %", share=Fraction(1, 10)), 10 * MIB),
        (Amount("3MiB", bytes=3 * MIB), 3 * MIB),
        (Amount("0.01 %", share=Fraction(1, 10_000)), 100 * MIB // 1000),
    ],
)
def test_the_allowed_growth(limit: Amount, allowed: int) -> None:
    """A share is that of the baseline, and no limit is less than the floor."""
    base = entry(100 * MIB, 100 * MIB)
    for more, status in ((allowed, "passed"), (allowed + 1, "failed")):
        now = entry(100 * MIB + more, 100 * MIB + more)
        assert growth(base, now, budgets=(Budget(growth=limit),)) == {"device_total": status, "peak": status}


def test_small_growth_does_not_add_up(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Growth within the floor leaves the baseline as it is, also with ratchet."""
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    for k in range(1, 4):
        result = check(write(jit_f=larger(TEXTS, 30_000 * k)), config={"ratchet": True}, baseline=base)
        assert result.written is None
        assert result.exit_code == (0 if k < 3 else 1), k


@pytest.mark.parametrize(("limit", "code"), [("0 %", 1), ("1 %", 1), ("200 %", 0), ("127KiB", 1), ("128KiB", 0)])
def test_growth_of_a_budget(tmp_path: Path, write: Callable[..., Path], limit: str, code: int) -> None:
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    config = {"budget": [{"program": "jit_f", "growth": limit}]}
    result = check(write(jit_f=BIG), config=config, baseline=base)
    assert result.exit_code == code
    (row,) = [r for r in result.rows() if r["number"] == "device_total"]
    assert (row["budget"], row["limit_text"], row["value"] - row["baseline"]) == (1, limit, GROWTH)


def test_platforms_are_kept_apart(tmp_path: Path) -> None:
    """Programs of one name for two platforms are not compared with each other."""
    folders = [pair(f"{p}-donation-removed-decode").unpack(tmp_path / p) for p in ("cpu", "v5e", "h100")]
    base = blessed([a for a, _ in folders], tmp_path / "base.json")
    result = check(folders[0][1], config={}, baseline=base)
    assert findings(result, "growth") == [("growth", "failed")] * 2
    for a, _ in folders:
        result = check(a, config={}, baseline=base)
        assert findings(result) == [("gone", "note")] * 2
        assert result.programs["how"].to_pylist() == ["same"]


# -- budgets


@pytest.mark.parametrize("name", ["device_total", "peak"])
def test_a_limit_is_exact(name: str) -> None:
    size, peaks = number(SMALL, name), xlamem.peak(SMALL)
    assert size == {"device_total": peaks.device_total, "peak": peaks.spaces["peak"][0].as_py()}[name]
    for limit, status in ((size, "passed"), (size - 1, "failed")):
        result = check(SMALL, config={"budget": [{name: limit}]})
        (row,) = result.rows()
        assert (row["rule"], row["status"], row["value"], row["limit"], row["budget"]) == (name, status, size, limit, 1)
        assert result.status == status
        assert bool(row["why"]) == (status == "failed")


TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


def test_a_device() -> None:
    assert check(TPU, config={"budget": [{"device": "v5e"}]}).exit_code == 0
    total = number(TPU)
    left = xlamem.fits(TPU, device="v5e").available - total
    for resident, code in ((left, 0), (left + 1, 1)):
        assert check(TPU, config={"budget": [{"device": "v5e", "resident": resident}]}).exit_code == code
    assert findings(check(TPU, config={"budget": [{"device": "v5e", "fraction": 1e-9}]})) == [("fits", "failed")]


def test_a_device_of_another_platform() -> None:
    """Not known of a program alone. Beside one for the device, it is not compared."""
    config = {"budget": [{"device": "v5e"}]}
    alone = check(SMALL, config=config)
    assert (alone.exit_code, findings(alone)) == (3, [("fits", "not known")])
    assert "it is compiled for a CPU; compiled for v5e, it needs another amount" in " ".join(as_text(alone).split())
    both = check([SMALL, TPU], config=config)
    assert (both.exit_code, findings(both)) == (0, [])
    config["budget"][0]["program"] = str(xlamem.read(SMALL).modules["module_name"][0])  # which matches one of them only
    assert check([SMALL, TPU], config=config).exit_code == 3


@pytest.mark.parametrize("line", ["padding", "packing"])
def test_lines_of_the_bill(line: str) -> None:
    path = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
    rows = [r for r in xlamem.bill(path).to_pylist() if r["account"] == "device_total"]
    size = sum(r["bytes"] for r in rows if line in (r["part"], r["line"]))
    total = sum(r["bytes"] for r in rows)
    assert size > 0
    for limit, code in ((size, 0), (size - 1, 1), (f"{100 * size / total + 0.1:.3f} %", 0), ("0 %", 1)):
        result = check(path, config={"budget": [{line: limit}]})
        assert result.exit_code == code
        assert result.findings["value"].to_pylist() == [size]


def test_named() -> None:
    path = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    result = check(path, config={"budget": [{"named": "100 %"}]})
    (row,) = result.rows()
    members = [r for r in xlamem.live_set(path, space="hbm").to_pylist() if r["category"] in ("temp", "temp_in_output")]
    unnamed = sum(r["bytes"] for r in members if r["op_name"] is None and r["argument"] is None)
    assert row["limit"] - row["value"] == unnamed
    assert check(path, config={"budget": [{"named": "0 %"}]}).exit_code == 0


def test_every_budget_that_matches_applies(write: Callable[..., Path]) -> None:
    folder = write(jit_train=TEXTS, jit_eval=inner(7))
    config = {"budget": [{"device_total": "1GiB"}, {"program": "jit_t*", "device_total": "1B"}]}
    result = check(folder, config=config)
    found = [(r["module_name"], r["budget"], r["status"]) for r in result.rows()]
    assert sorted(found) == [("jit_eval", 1, "passed"), ("jit_train", 1, "passed"), ("jit_train", 2, "failed")]


def test_a_budget_that_matches_nothing() -> None:
    config = {"budget": [{"program": "jit_trian_*", "device_total": "1GiB"}]}
    with pytest.raises(UsageError, match=r"^budget 1 \(program = 'jit_trian_\*'\) matches no program; there"):
        check(SMALL, config=config)


def test_nothing_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="there is nothing to check"):
        check(SMALL)
    with pytest.raises(UsageError, match=r"budget 1: growth needs a baseline, and there is no xlamem-baseline.json"):
        check(SMALL, config={"budget": [{"growth": "0 %"}]})
    with pytest.raises(UsageError, match=r"there is no baseline .*missing.json"):
        check(SMALL, baseline="missing.json")


def test_a_limit_of_growth_that_compares_nothing(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    empty, other = tmp_path / "empty.json", tmp_path / "other.json"
    baselines.write(empty, baselines.Baseline())
    baselines.write(other, baselines.Baseline.of(replace(e, platform="tpu") for e in baselines.load(base).entries))
    limit = {"budget": [{"growth": "0 %"}]}
    for baseline in (empty, other):
        message = f"budget 1: growth: none of the programs that match is in the baseline {baseline}; --bless adds them"
        with pytest.raises(UsageError, match=re.escape(message)):
            check(SMALL, config=limit, baseline=baseline)
    assert check(SMALL, config=limit, baseline=empty, bless=True).passed
    both = write(jit_f=TEXTS, jit_h=outer(3))
    assert check(both, config=limit, baseline=base).passed
    new = {"budget": [{"growth": "0 %"}, {"program": "jit_h", "growth": "0 %"}]}
    with pytest.raises(UsageError, match=r"budget 2 \(program = 'jit_h'\): growth: none of the programs"):
        check(both, config=new, baseline=blessed(write(jit_f=TEXTS), tmp_path / "one.json"))
    assert check(both, config=new, baseline=base).passed, "jit_g is gone, and not smaller"
    grown = check(write(jit_f=TEXTS, jit_h=BIG), config=new, baseline=base)
    assert findings(grown, "new") == [("new", "not known")]
    assert check(write(jit_f=CUT), config=limit, baseline=empty).exit_code == 3


# -- what is not known


def test_a_truncated_dump_never_passes(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    cut = write(jit_f=CUT)
    budget = {"budget": [{"device_total": "1TiB"}]}
    for options in ({"baseline": base}, {"config": budget}, {"baseline": write(jit_f=TEXTS)}):
        result = check(cut, **{"config": {}, **options})
        assert ("unreadable", "not known") in findings(result)
        assert result.exit_code == 3
        assert result.programs["device_total"].to_pylist() == [number(SMALL)]
        assert result.programs["peak"].to_pylist() == [None]
    again = check(cut, config={}, baseline=base, bless=True)
    assert again.exit_code == 3
    assert baselines.load(base).entries[0].device_total == number(SMALL), "a truncated dump was blessed"


def test_a_truncated_dump_can_fail(write: Callable[..., Path]) -> None:
    """The allocations are complete and add up, so that what must fit is known to be too much."""
    cut = write(jit_f=CUT)
    limit = {"device_total": "1B"}
    result = check(cut, config={"budget": [limit]})
    assert result.exit_code == 1
    assert sorted(findings(result)) == [("device_total", "failed"), ("unreadable", "not known")]
    assert f"FAILED jit_f {size(number(SMALL))} ?" in " ".join(as_text(result).split())
    assert check(cut, config={"budget": [{"device": "v5e"}]}).exit_code == 3
    unknown = {**CUT, "buffer-assignment-values": TEXTS["buffer-assignment-values"][:20]}
    result = check(write(jit_f=unknown), config={"budget": [limit]})
    assert (result.exit_code, result.programs["device_total"].to_pylist()) == (3, [None])


def test_a_truncated_baseline(write: Callable[..., Path]) -> None:
    result = check(write(jit_f=BIG), config={}, baseline=write(jit_f=CUT))
    assert findings(result) == [("growth", "not known")]
    assert result.exit_code == 3


def test_a_dump_without_content() -> None:
    result = check(TRUNCATED, config={"budget": [{"device_total": "1TiB"}]})
    assert findings(result) == [("unreadable", "not known")]


def test_without_live_ranges(tmp_path: Path, write: Callable[..., Path]) -> None:
    """What must fit is known; the peak, and what the temporaries consist of, are not."""
    texts = {role: text for role, text in TEXTS.items() if role != "live-range"}
    folder = write(jit_f=texts)
    assert check(folder, config={"budget": [{"device_total": "1TiB"}]}).exit_code == 0
    for limit in ({"peak": "1TiB"}, {"padding": "100 %"}, {"packing": "100 %"}, {"named": "1 %"}):
        assert findings(check(folder, config={"budget": [limit]})) == [(*limit, "not known")]
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    result = check(folder, config={}, baseline=base)
    assert findings(result, "growth") == [("growth", "not known")]


def test_a_failure_counts_more_than_what_is_not_known(write: Callable[..., Path]) -> None:
    folder = write(jit_f=BIG, jit_g=CUT)
    assert check(folder, config={"budget": [{"program": "jit_f", "peak": 1}]}).exit_code == 1


def test_shares_of_any_size(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    limits = {"growth": "999999999999999999 %", "packing": "999999999999999999 %"}
    assert check(write(jit_f=BIG), config={"budget": [limits]}, baseline=base).passed


def test_donation_without_live_ranges(write: Callable[..., Path]) -> None:
    """Outputs that share an allocation are not known, so arguments that could be donated may not be found."""
    required = {"budget": [{"donation": "required"}]}
    texts = {role: text for role, text in TEXTS.items() if role != "live-range"}
    assert findings(check(write(jit_f=TEXTS), config=required)) == [("donation", "failed")]
    result = check(write(jit_f=texts), config=required)
    assert findings(result) == [("donation", "not known")]
    assert result.rows("not known")[0]["message"] == "the dump has no live ranges"
    assert result.exit_code == 3
