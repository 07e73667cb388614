"""`check`: which program of a baseline is which, blessing and the ratchet, and the baseline file."""

from __future__ import annotations

import difflib
import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from checks import BIG, GROWTH, MIB, SMALL, Texts, blessed, findings, number, pair
from conftest import DUMPS, every
from variants import CUT, TEXTS, compiled_again, converted, inner, larger, outer, replaced, written

import xlamem
from xlamem import UsageError, check
from xlamem.compare.compiler import ALTERNATIVES
from xlamem.compare.programs import programs_of
from xlamem.formatting import size
from xlamem.gate import baseline as baselines
from xlamem.gate.formats import FORMATS
from xlamem.gate.formats.as_text import as_text
from xlamem.input.find import split_modules

# -- which program is which


def test_new_and_gone_programs(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    result = check(write(jit_f=TEXTS, jit_g=inner(3), jit_h=BIG), config={}, baseline=base)
    assert findings(result) == [("new", "note")]
    assert "new: 1 program (jit_h): not in the baseline; --bless adds new programs" in as_text(result)
    result = check(write(jit_f=TEXTS), config={}, baseline=base)
    assert findings(result) == [("gone", "note")]
    assert result.exit_code == 0


def test_a_new_program_may_be_one_that_is_gone(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    renamed = write(jit_f=TEXTS, jit_h=BIG)
    result = check(renamed, config={}, baseline=base)
    assert findings(result) == [("new", "not known"), ("gone", "note")]
    assert result.exit_code == 3
    message = "it is not in the baseline; --bless adds it. jit_g is gone: if it was renamed, what must fit grew by "
    assert message in " ".join(as_text(result).split())
    smaller = check(write(jit_f=TEXTS, jit_h=inner(2)), config={}, baseline=base)
    assert findings(smaller, "new") == [("new", "note")]
    assert findings(check(renamed, config={}, baseline=base, bless=True)) == [("new", "note"), ("gone", "note")]
    assert findings(check(renamed, config={}, baseline=base), "new") == []


def test_the_numbers_of_a_program_that_is_gone_are_not_known(write: Callable[..., Path]) -> None:
    """A new program may be that one, and may have grown."""
    unproven = replaced(inner(3), "buffer-assignment-values", "used: 262447", "used: 262448")
    now = [write(jit_f=TEXTS), DUMPS / "cpu-jaxlib-0.12.0-odd_tree"]
    result = check(now, config={}, baseline=write(jit_f=TEXTS, jit_g=unproven))
    assert findings(result) == [("new", "not known"), ("gone", "note")]
    assert "jit_g is gone: if it was renamed, it is not known whether it grew" in " ".join(as_text(result).split())


def test_no_advice_to_bless_what_cannot_be_written(write: Callable[..., Path]) -> None:
    """Of a directory."""
    new = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    result = check([write(jit_f=TEXTS), new], config={}, baseline=write(jit_f=BIG))
    messages = [row["message"] for row in result.rows("note")]
    assert messages[-1] == "not in the baseline"
    assert "fell by 128.00 KiB" in messages[0]
    assert "--bless" not in as_text(result)
    with pytest.raises(UsageError) as caught:
        check(new, config={"budget": [{"growth": "0 %"}]}, baseline=write(jit_f=TEXTS))
    assert "none of the programs that match is in the baseline" in str(caught.value)
    assert "--bless" not in str(caught.value)


def test_several_programs_may_be_renamed(tmp_path: Path, write: Callable[..., Path]) -> None:
    """The largest new one is compared with the largest one that is gone, and so on."""
    before = {"jit_a": BIG, "jit_b": inner(1), "jit_c": inner(2)}
    base = blessed(write(**before), tmp_path / "base.json")

    def statuses(*sizes: int) -> list[str]:
        programs = {f"jit_new{i}": larger(inner(i + 5), size) for i, size in enumerate(sizes)}
        return [status for _, status in findings(check(write(**programs), config={}, baseline=base), "new")]

    assert statuses(0, GROWTH, 0) == ["note"] * 3
    assert statuses(GROWTH, 0, GROWTH) == ["note", "note", "not known"]
    assert statuses(0, 0, 2 * GROWTH) == ["note", "note", "not known"]
    assert statuses(2 * GROWTH) == ["not known"]
    assert statuses(0, 0, 0, 0, GROWTH) == ["note"] * 5


def test_a_second_program_of_a_name_must_not_be_larger(tmp_path: Path, write: Callable[..., Path]) -> None:
    """It has no partner, but the name is one that the baseline has."""
    a = write(jit_f=TEXTS)
    base = blessed(a, tmp_path / "base.json")
    both = [a, write(jit_f=larger(outer(3), MIB))]
    for baseline in (base, a):
        result = check(both, config={}, baseline=baseline)
        assert findings(result) == [("growth", "failed")] * 2 + [("new", "note")]
        message = f"what must fit: {size(number(SMALL) + MIB)}, 1.00 MiB more than the largest jit_f of the baseline"
        assert result.rows("failed")[0]["message"] == message
        assert result.rows("failed")[0]["why"]
        assert result.programs["how"].to_pylist() == ["same", None]
    within = check(both, config={"budget": [{"growth": "1MiB"}]}, baseline=base)
    assert findings(within) == [("new", "note")]
    assert [row["budget"] for row in within.rows("passed")] == [1] * 4
    assert findings(check([a, write(jit_f=outer(3))], config={}, baseline=base)) == [("new", "note")]
    accepted = check(both, config={}, baseline=base, bless=True)
    assert findings(accepted) == [("growth", "note")] * 2 + [("new", "note")]
    assert findings(check(both, config={}, baseline=base)) == []


@pytest.mark.parametrize(("policy", "status"), [("fail", "failed"), ("warn", "warning"), ("bless", "note")])
def test_another_program_of_a_name_with_other_flags(policy: str, status: str, tmp_path: Path) -> None:
    """The policy of other flags counts as for other growth."""
    dumps = pair("cpu-donation-removed-decode").unpack(tmp_path)
    base = blessed(dumps[0], tmp_path / "base.json")
    entries = [replace(e, flags={"xla_other": "true"}) for e in baselines.load(base).entries]
    baselines.write(base, baselines.Baseline.of(entries))
    result = check(dumps, config={"flags_change": policy}, baseline=base)
    assert findings(result, "growth") == [("growth", status)] * 2
    assert "of the baseline, with other flags" in next(r["message"] for r in result.rows(status) if r["value"])


@pytest.mark.parametrize(
    ("compiler", "flags", "status"),
    [("bless", "fail", "failed"), ("fail", "warn", "failed"), ("warn", "bless", "warning"), ("bless", "bless", "note")],
)
def test_the_strictest_of_two_policies_counts(compiler: str, flags: str, status: str, tmp_path: Path) -> None:
    """Both the compiler and its flags have changed."""
    dumps = pair("cpu-donation-removed-decode").unpack(tmp_path)
    base = blessed(dumps[0], tmp_path / "base.json")
    entries = baselines.load(base).entries
    other = {*chain(*(group for group in ALTERNATIVES if group & {*entries[0].format}))}
    entries = [replace(e, flags={"xla_other": "true"}, format=tuple(other - {*e.format})) for e in entries]
    baselines.write(base, baselines.Baseline.of(entries))
    result = check(dumps[1], config={"compiler_change": compiler, "flags_change": flags}, baseline=base)
    assert findings(result, "growth") == [("growth", status)] * 2


def test_the_largest_of_a_name_is_not_known(write: Callable[..., Path]) -> None:
    before, after = write(jit_f=CUT), [write(jit_f=TEXTS), write(jit_f=outer(3))]
    result = check(after, config={}, baseline=before)
    assert findings(result, "growth") == [("growth", "not known")] * 2


def test_names_lines_and_numbers_do_not_matter(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    again = write(jit_g=compiled_again(inner(3), tmp_path, 1), jit_f=compiled_again(TEXTS, tmp_path, 2))
    result = check(again, config={}, baseline=base)
    assert findings(result) == []
    assert result.programs["how"].to_pylist() == ["same", "same"]
    text = base.read_text()
    blessed(again, base)
    before, after = (json.loads(t)["programs"] for t in (text, base.read_text()))
    assert [(p["name"], p["program_fp"]) for p in before] == [(p["name"], p["program_fp"]) for p in after]


def test_one_of_many_alike_grew(tmp_path: Path, write: Callable[..., Path]) -> None:
    """The others have the same name and interface."""
    programs = [("jit_f", inner(i)) for i in range(12)]
    base = blessed(written(fresh(tmp_path / "a"), programs), tmp_path / "base.json")
    programs[7] = ("jit_f", larger(inner(7), GROWTH))
    result = check(written(fresh(tmp_path / "b"), programs, first=70), config={}, baseline=base)
    assert [(r["rule"], r["program"]) for r in result.rows("failed")] == [("growth", 7)] * 2
    assert findings(result, "new") == findings(result, "gone") == []


def fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_spare_copy_is_not_gone(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Of two programs that cannot be told apart, one is still compiled: as in `pair`, nothing is gone."""
    f, g = ("jit_f", TEXTS), ("jit_g", inner(3))
    before = written(fresh(tmp_path / "a"), [f, g, g])
    now = [write(jit_f=TEXTS, jit_g=inner(3)), DUMPS / "cpu-jaxlib-0.12.0-odd_tree"]
    base = blessed(before, tmp_path / "base.json")
    for baseline in (base, before):
        result = check(now, config={}, baseline=baseline)
        assert findings(result) == [("new", "note")]
        assert "is gone" not in as_text(result)
    pruned = check(now, config={}, baseline=base, prune=True)
    assert findings(pruned, "gone") == []
    assert len(baselines.load(base).entries) == 2


def test_a_dump_that_several_runs_found_counts_once(tmp_path: Path) -> None:
    folder = written(fresh(tmp_path / "a"), [("jit_f", TEXTS), ("jit_g", inner(3))])
    for labels in ({"c": "1"}, {"c": "2"}, {"c": "1", "b": "x"}):
        xlamem.convert(folder, to=tmp_path / "to", labels=labels, engine="here")
    dataset = xlamem.Dataset(tmp_path / "to")
    result = check(dataset, config={"budget": [{"device_total": "1GiB"}]})
    assert result.programs["occurrences"].to_pylist() == [1, 1]
    assert findings(check(folder, config={}, baseline=dataset)) == []
    assert xlamem.series(dataset, "c").series["occurrences"].to_pylist() == [1] * 4


def test_several_processes_count_once(tmp_path: Path) -> None:
    for process in range(3):
        written(fresh(tmp_path / f"host{process}"), [("jit_f", TEXTS)], first=process)
    result = check([tmp_path / f"host{i}" for i in range(3)], config={"budget": [{"device_total": "1GiB"}]})
    assert result.programs["occurrences"].to_pylist() == [3]
    assert len(result.rows()) == 1


def test_a_dataset_as_the_baseline(tmp_path: Path, write: Callable[..., Path]) -> None:
    dataset = converted(tmp_path, {"main": [("jit_f", TEXTS)], "other": [("jit_f", BIG)]})
    path = tmp_path / "dataset"
    grown = write(jit_f=BIG)
    result = check(grown, config={}, baseline=path, labels={"commit": "main"})
    assert findings(result) == [("growth", "failed")] * 2
    assert findings(check(grown, config={}, baseline=(dataset, {"commit": "other"}))) == []
    assert findings(check(grown, config={"baseline": str(path)}, labels={"commit": "other"})) == []
    (tmp_path / "xlamem.toml").write_text(f'baseline = "{path.as_uri()}"\n')  # a URI does not start from the folder
    assert findings(check(grown, config=tmp_path / "xlamem.toml", labels={"commit": "other"})) == []
    assert findings(check(grown, config=tmp_path / "xlamem.toml"), "growth") == []
    with pytest.raises(UsageError, match="no dump has commit=x"):
        check(grown, config={}, baseline=path, labels={"commit": "x"})
    with pytest.raises(UsageError, match="labels select dumps of a dataset"):
        check(grown, config={}, labels={"commit": "main"})
    result = check(path, config={}, baseline=blessed(write(jit_f=TEXTS), tmp_path / "base.json"))
    assert sorted(result.programs["how"].to_pylist(), key=str) == [None, "same"]


def test_a_dump_object() -> None:
    dump = xlamem.read(SMALL)
    assert check(dump, config={"budget": [{"device_total": "1GiB"}]}).passed
    assert check([dump], config={"budget": [{"device_total": "1B"}]}).status == "failed"


def test_dumps_whose_files_are_others_now(tmp_path: Path, write: Callable[..., Path]) -> None:
    """What was read counts, also if it was read from a dataset."""
    folder = write(jit_f=TEXTS, jit_g=inner(3))
    base = blessed(folder, tmp_path / "base.json")
    xlamem.convert(folder, to=tmp_path / "to", engine="here")
    dataset = xlamem.Dataset(tmp_path / "to")
    dumps = [dataset.read(i) for i in sorted(dataset.ids)]
    written(folder, [("jit_f", BIG), ("jit_g", BIG)])
    for now in (dumps, tuple(dumps)):
        result = check(now, config={}, baseline=base)
        assert findings(result) == []
        assert result.programs["how"].to_pylist() == ["same"] * 2
    shutil.rmtree(folder)
    assert check(dumps[0], config={"budget": [{"device_total": "1GiB"}]}).passed
    assert check([dumps[0], SMALL], config={"budget": [{"device_total": "1GiB"}]}).passed


@pytest.mark.parametrize("source", every(3, xlamem.find(DUMPS)), ids=lambda source: source.name)
def test_dumps_are_described_like_their_files(source: xlamem.Source) -> None:
    files = programs_of(source)
    dumps = programs_of([xlamem.read(module) for module in split_modules(source)])
    assert [replace(p, id=None, content_hash=None) for p in dumps.programs] == [
        replace(p, id=None, content_hash=None) for p in files.programs
    ]
    numbers = range(len(files))
    assert (files.sketches(numbers) == dumps.sketches(numbers)).all()


# -- blessing and the ratchet


def test_bless_edit_bless(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    assert findings(check(write(jit_f=TEXTS), config={}, baseline=base)) == []
    grown = write(jit_f=BIG)
    assert check(grown, config={}, baseline=base).exit_code == 1
    result = check(grown, config={}, baseline=base, bless=True)
    assert result.exit_code == 0
    assert findings(result) == [("growth", "note")] * 2
    assert findings(check(grown, config={}, baseline=base)) == []


def test_bless_does_not_lift_a_limit(tmp_path: Path, write: Callable[..., Path]) -> None:
    config = {"budget": [{"device_total": "1KiB"}]}
    assert check(write(jit_f=TEXTS), config=config, baseline=tmp_path / "base.json", bless=True).exit_code == 1


def test_bless_keeps_what_was_not_compiled(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    blessed(write(jit_h=BIG), base)
    assert [e.name for e in baselines.load(base).entries] == ["jit_f", "jit_g", "jit_h"]
    result = check(write(jit_f=TEXTS), config={}, baseline=base, prune=True)
    assert [e.name for e in baselines.load(base).entries] == ["jit_f"]
    assert result.written == str(base)
    for missing in (None, tmp_path / "missing.json"):
        with pytest.raises(UsageError, match="there is no baseline"):
            check(SMALL, config={"budget": [{"peak": "1GiB"}]}, baseline=missing, prune=True)


@pytest.mark.parametrize("bless", [False, True])
def test_prune_keeps_what_may_be_in_an_archive_that_cannot_be_read(
    bless: bool, tmp_path: Path, write: Callable[..., Path]
) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    before, folder = base.read_bytes(), fresh(tmp_path / "run")
    written(folder, [("jit_f", TEXTS)])
    (folder / "others.tar.gz").write_bytes(gzip.compress(bytes(2000))[:-9])
    result = check(folder, config={}, baseline=base, prune=True, bless=bless)
    assert findings(result) == [("unreadable", "not known"), ("gone", "note")]
    assert [r["message"] for r in result.rows("note")] == ["in the baseline, but not among the dumps that can be read"]
    assert base.read_bytes() == before
    (folder / "others.tar.gz").unlink()
    check(folder, config={}, baseline=base, prune=True, bless=bless)
    assert [e.name for e in baselines.load(base).entries] == ["jit_f"]


def test_bless_writes_through_a_link(tmp_path: Path, write: Callable[..., Path]) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "base.json")
    blessed(write(jit_f=TEXTS), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert len(baselines.load(tmp_path / "base.json").entries) == 1


def test_bless_keeps_others_of_a_name(tmp_path: Path, write: Callable[..., Path]) -> None:
    """A program that has its own entry takes no other's place; a new one takes one."""
    programs = [("jit_f", TEXTS), ("jit_f", outer(3)), ("jit_f", outer(9))]
    base = blessed(written(fresh(tmp_path / "a"), programs), tmp_path / "base.json")
    result = check(write(jit_f=TEXTS), config={}, baseline=base, bless=True)
    assert findings(result) == [("gone", "note")] * 2
    assert len(baselines.load(base).entries) == 3
    now = written(fresh(tmp_path / "b"), [("jit_f", TEXTS), ("jit_f", outer(20))])
    result = check(now, config={}, baseline=base, bless=True)
    messages = [r["message"] for r in result.rows("note") if r["rule"] == "gone"]
    assert sorted("removed from the baseline" in m for m in messages) == [False, True]
    assert len(baselines.load(base).entries) == 3


def test_the_ratchet(tmp_path: Path, write: Callable[..., Path]) -> None:
    """An improvement tightens the baseline in the same run; without the ratchet it only says so."""
    base = blessed(write(jit_f=BIG), tmp_path / "base.json")
    better = write(jit_f=TEXTS)
    result = check(better, config={}, baseline=base)
    assert findings(result) == [("improved", "note")]
    assert result.rows("note")[0]["message"].endswith("; --bless tightens the baseline")
    assert (result.exit_code, result.written) == (0, None)
    result = check(better, config={"ratchet": True}, baseline=base)
    assert result.rows("note")[0]["message"].endswith("; the baseline is tightened")
    assert result.written == str(base)
    assert findings(check(better, config={}, baseline=base)) == []
    result = check(write(jit_f=BIG), config={"ratchet": True}, baseline=base)
    assert findings(result) == [("growth", "failed")] * 2


def without_live_ranges(texts: Texts) -> Texts:
    return {role: text for role, text in texts.items() if role != "live-range"}


@pytest.mark.parametrize("options", [{"bless": True}, {"ratchet": True}])
def test_a_known_peak_stays(options: dict[str, bool], tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=BIG), tmp_path / "base.json")
    before = base.read_text()
    result = check(write(jit_f=without_live_ranges(TEXTS)), config={}, baseline=base, **options)
    assert findings(result, "growth") == [("growth", "not known")]
    assert result.exit_code == 3
    assert base.read_text() == before
    assert result.rows("note")[0]["message"].endswith("; --bless tightens the baseline")


def test_growth_without_live_ranges_is_not_accepted(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS), tmp_path / "base.json")
    before = base.read_text()
    second = [write(jit_f=TEXTS), write(jit_f=without_live_ranges(larger(outer(3), MIB)))]
    for dumps in ([write(jit_f=without_live_ranges(BIG))], second):
        result = check(dumps, config={}, baseline=base, bless=True)
        assert findings(result, "growth") == [("growth", "failed"), ("growth", "not known")]
        assert base.read_text() == before


def test_no_ratchet_with_another_compiler(tmp_path: Path) -> None:
    """A warning that growth is not caught lasts until the baseline is blessed."""
    a, b = pair("cpu-donation-removed-decode").unpack(tmp_path)
    base = blessed(b, tmp_path / "base.json")
    entries = [replace(e, flags={"xla_other": "true"}) for e in baselines.load(base).entries]
    baselines.write(base, baselines.Baseline.of(entries))
    before = base.read_text()
    result = check(a, config={"ratchet": True, "flags_change": "warn"}, baseline=base)
    assert findings(result) == [("flags", "warning"), ("improved", "note")]
    assert result.rows("note")[0]["message"].endswith("; --bless tightens the baseline")
    assert (result.written, base.read_text()) == (None, before)


def test_only_a_file_can_be_blessed(write: Callable[..., Path]) -> None:
    folder = write(jit_f=TEXTS)
    with pytest.raises(UsageError, match="to a JSON file only"):
        check(folder, config={}, baseline=folder, bless=True)


# -- the baseline file


def test_the_file_is_deterministic(tmp_path: Path) -> None:
    """The order of the inputs, and where they are, do not matter; reading and writing gives the same text."""
    folders = [pair("cpu-donation-removed-decode").unpack(tmp_path / "x")[0], SMALL]
    moved = [Path(shutil.copytree(f, tmp_path / f"moved{i}")) for i, f in enumerate(folders)]
    a = blessed(folders, tmp_path / "a.json").read_text()
    b = blessed(moved[::-1], tmp_path / "b.json").read_text()
    assert a == b
    assert baselines.load(tmp_path / "a.json").dumps() == a
    assert blessed(folders, tmp_path / "a.json").read_text() == a
    assert str(tmp_path) not in a
    assert list(tmp_path.glob(".*")) == []


def test_an_edit_changes_only_its_lines(tmp_path: Path, write: Callable[..., Path]) -> None:
    base = blessed(write(jit_f=TEXTS, jit_g=inner(3)), tmp_path / "base.json")
    before = base.read_text().splitlines()
    blessed(write(jit_f=TEXTS, jit_g=larger(inner(3), GROWTH)), base)
    after = base.read_text().splitlines()
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert any('"device_total": ' in line for line in changed)
    assert len(changed) <= 14


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a baseline of xlamem"),
        ('{"format": "xlamem-baseline", "version": 99}', "has version 99 of the format, and this"),
        ('{"format": "xlamem-baseline", "version": 1, "flags": {}}', "is damaged"),
        ('{"format": "xlamem-baseline", "version": 1, "flags": {}, "programs": [{}]}', "is damaged"),
        ('{"format": "xlamem-baseline", "version": 1, "flags": {}, "programs": [5]}', "is damaged"),
    ],
)
def test_a_damaged_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        check(SMALL, config={}, baseline=path)


ALIKE = [{"name": "a", "category": "temp", "bytes": 1 << 60, "n": 1}] * 20
PATHS: list[tuple[tuple[str | int, ...], list[Any]]] = [
    (("flags",), [None, [], "x"]),
    (("programs",), [None, {}, 5, [[]]]),
    *(((*("programs", 0), name), values) for name, values in {
        "name": [5, True, [], chr(0xD800)],
        "platform": [5],
        "program_fp": [5],
        "device_total": [True, None, "1", 1.5, -1, 1 << 70],
        "peak": [True, "1", -1],
        "changelist": ["5", 1.5],
        "format": [None, "x", [1], {}],
        "flags": [5, [], "unknown"],
        "bill": [None, [], {"packing": "1"}, {"packing": -1}, {"packing": None}],
        "n_donated": [None, "1"],
        "donated": [None, {}, [5], [{}], [{"name": "a", "bytes": "1"}], [{"name": 1, "bytes": 1}]],
        "peak_buffers": [None, {}, [[]], [{"name": "a", "category": "temp", "bytes": -1}], [{"other": 1}], ALIKE],
        "other_buffers": [None, "1", -1],
        "test": [5],
    }.items()),
    (("programs", 0, "peak_buffers", 0, "bytes"), [None, True, "1"]),
    (("programs", 0, "peak_buffers", 0, "source_line"), ["1"]),
    (("programs", 0, "peak_buffers", 0, "source_file"), [1]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "values"), PATHS)
def test_damaged_values(path: tuple[str | int, ...], values: list[Any], tmp_path: Path) -> None:
    base = blessed(SMALL, tmp_path / "base.json")
    *parents, last = path
    for value in values:
        data = place = json.loads(base.read_text())
        for key in parents:
            place = place[key]
        place[last] = value
        damaged = tmp_path / "damaged.json"
        damaged.write_text(json.dumps(data))
        with pytest.raises(UsageError, match=r"damaged\.json is damaged \("):
            check(SMALL, config={}, baseline=damaged)


def test_a_nested_file(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="is not JSON"):
        check(SMALL, config={}, baseline=path)


def test_the_baseline_of_the_configuration(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Its path starts from the folder of the configuration."""
    (tmp_path / "xlamem.toml").write_text('baseline = "ci/memory.json"\n')
    folder = write(jit_f=TEXTS)
    result = check(folder, config=tmp_path / "xlamem.toml", bless=True)
    assert result.written == str(tmp_path / "ci" / "memory.json")
    assert check(folder, config=tmp_path / "xlamem.toml").baseline == result.written


def test_a_baseline_that_cannot_be_read(tmp_path: Path) -> None:
    xlamem.convert(SMALL, to=tmp_path / "out", engine="here")
    shutil.rmtree(tmp_path / "out" / "modules")
    with pytest.raises(UsageError, match=r"the baseline cannot be read: .*it is gone"):
        check(SMALL, config={}, baseline=tmp_path / "out")
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match=r"the baseline cannot be read: .*Connection refused"):
        check(SMALL, config={}, baseline="ftp://127.0.0.1:1/x")


def test_the_place_of_a_baseline_has_no_password(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    place = f"memory://user:SECRET@{tmp_path.name}/out"
    xlamem.convert(SMALL, to=place, labels={"commit": "main"}, engine="here")
    for baseline in (place, (place, {"commit": "main"})):
        result = check(SMALL, config={}, baseline=baseline)
        assert result.baseline == f"memory://user@{tmp_path.name}/out"
        assert not [name for name, text in FORMATS.items() if "SECRET" in text(result)]


@pytest.mark.parametrize("others", [False, True])
def test_a_baseline_with_an_archive_that_cannot_be_read(tmp_path: Path, others: bool) -> None:
    dump, base = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", tmp_path / "base"
    base.mkdir()
    with tarfile.open(tmp_path / "whole.tgz", "w:gz") as archive:
        archive.add(dump, "dump")
    (base / "cut.tgz").write_bytes((tmp_path / "whole.tgz").read_bytes()[:5000])
    if others:
        shutil.copytree(DUMPS / "cpu-jaxlib-0.12.0-scan_while", base / "other")
    with pytest.raises(UsageError, match=r"the baseline cannot be read: .*cut\.tgz"):
        check(dump, baseline=base)


def test_a_baseline_whose_name_is_too_long() -> None:
    with pytest.raises(UsageError, match=r"the baseline cannot be read: .*File name too long"):
        check(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", baseline=f"{'x' * 300}.json")
    with pytest.raises(UsageError, match=r"cannot access 'x*': File name too long"):
        check(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", baseline="x" * 300)
