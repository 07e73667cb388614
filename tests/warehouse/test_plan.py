"""Which dumps a run converts, retries or leaves alone, and how they are divided into batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema
from xlamem.warehouse import plan as planning
from xlamem.warehouse.batch import Batch
from xlamem.warehouse.plan import Plan, identify_chunks, make_task, plan
from xlamem.warehouse.state import State
from xlamem.warehouse.task import STREAMED_BYTES, DumpInput, Failure, Options

VERSION = "1.2"
OPTIONS = Options("out", ("modules", "values"), tool_version=VERSION, host="a")
(SOURCE,) = xlamem.find(DUMPS / "cpu-jaxlib-0.5.3-tuple3")
MIB = 1 << 20


def dump(content_id: str, size: int = 1, place: str = "") -> DumpInput:
    members = tuple(replace(m, uri=f"{place}/{Path(m.uri).name}") for m in SOURCE.members) if place else SOURCE.members
    return DumpInput(content_id, replace(SOURCE, members=members), size)


def failure(content_id: str, name: str = "/in/x.tar") -> Failure:
    return Failure(content_id, name, f"file://{name}", "cannot be read", identified=False)


def batch(name: str, dumps: str = "", failed: str = "", version: str = VERSION, **more: Any) -> Batch:
    return Batch(name, tuple(dumps), tuple(failed), (), version, schema.VERSION, "run", **more)


def state(*batches: Batch) -> State:
    found = State()
    for ordinal, added in enumerate(batches):
        found.add(added, ordinal)
    return found


def planned(*identified: DumpInput | Failure, of: State | None = None, **options: Any) -> Plan:
    return plan(identified, of or State(), OPTIONS, **options)


def ids(found: Plan) -> list[str]:
    return [d.content_id for task in found.tasks for d in task.inputs]


def test_only_what_is_not_stored_is_converted() -> None:
    found = planned(dump("b"), dump("a"), of=state(batch("one", "bc")))
    assert (ids(found), found.stored, found.duplicates, found.quarantined) == (["a"], 1, 0, 0)
    assert found.tasks[0].replaces is None


@pytest.mark.parametrize("stale", [{"version": "1.1"}, {}])
def test_what_is_converted_again_replaces_its_batch(stale: dict[str, str]) -> None:
    before = state(batch("one", "ab", **stale), batch("two", "c"))
    found = planned(dump("a"), dump("b"), dump("c"), dump("d"), of=before, reprocess=not stale)
    replaced = {t.replaces.name if t.replaces else None: [d.content_id for d in t.inputs] for t in found.tasks}
    assert replaced == {"one": ["a", "b"], None: ["d"]} | ({} if stale else {"two": ["c"]})
    assert found.stored == (1 if stale else 0)


def test_another_version_of_the_schema_counts() -> None:
    old = replace(batch("one", "a"), schema_version=schema.VERSION + 1)
    assert ids(planned(dump("a"), of=state(old))) == ["a"]


def test_content_in_quarantine_is_retried_only_on_request() -> None:
    before = state(batch("one", "x", "ab", system=("b",), attempts={"a": 3}))
    found = planned(dump("a"), dump("b"), of=before)
    assert (ids(found), found.quarantined) == (["b"], 1)
    for option in ("retry_quarantine", "reprocess"):
        again = planned(dump("a"), dump("b"), of=before, **{option: True})
        assert [(d.content_id, d.attempts) for t in again.tasks for d in t.inputs] == [("a", 3), ("b", 1)]
        assert again.quarantined == 0
    assert ids(planned(dump("a"), of=state(batch("one", "x", "a", version="1.1")))) == ["a"]


def test_a_batch_with_dumps_is_rewritten_without_those_that_failed() -> None:
    with_dumps, alone = batch("one", "x", "a", system=("a",)), batch("two", "", "b", system=("b",))
    found = planned(dump("a"), dump("b"), of=state(with_dumps, alone))
    replaced = {d.content_id: t.replaces.name if t.replaces else None for t in found.tasks for d in t.inputs}
    assert replaced == {"a": "one", "b": None}


def test_a_stored_dump_that_failed_for_once_has_recovered() -> None:
    before = state(batch("one", "ab"), batch("two", "", "ab", system=("a",)))
    found = planned(dump("a"), dump("b"), of=before)
    assert (found.recovered, found.stored, found.tasks) == (frozenset("a"), 2, [])
    assert planned(dump("c"), of=before).recovered == frozenset()


def test_ids_of_version_1_are_hidden_once_the_content_is_stored() -> None:
    found = planned(dump("a"), dump("b"), of=state(batch("one", "a")), old_ids={"a": {"p", "q"}, "b": {"r"}})
    assert found.recovered == {"p", "q"}


def test_of_duplicates_the_first_path_is_read() -> None:
    for order in ("xy", "yx"):
        found = planned(*(dump("a", place=f"/{p}") for p in order), dump("b"))
        assert found.duplicates == 1
        assert [d.source.members[0].uri.split("/")[1] for d in found.tasks[0].inputs if d.content_id == "a"] == ["x"]
        assert ids(found) == ["a", "b"]


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_of_duplicates_at_one_place_that_with_fewer_files_is_read(numbers: tuple[int, int]) -> None:
    """Files of flags are no part of the content."""
    plain = dump("a")
    found = planned(*(replace(plain, source=replace(plain.source, members=plain.source.members[:n])) for n in numbers))
    assert [len(d.source.members) for d in found.tasks[0].inputs] == [1]


def test_what_cannot_be_identified_is_quarantined_once() -> None:
    settled = state(batch("one", "", "fg", attempts={"f": 2, "g": 4}, system=("g",)))
    found = planned(failure("f"), failure("g"), failure("h"), failure("h"), of=settled)
    ((task),) = found.tasks
    assert [(f.content_id, f.attempts) for f in task.failures] == [("g", 5), ("h", 1)]
    assert (task.inputs, found.quarantined) == ((), 1)
    assert planned(failure("f"), of=settled).tasks == []


@pytest.mark.parametrize(
    ("place", "searched", "recovered"),
    [
        ("/in/x.tar", ["/in"], True),
        ("/in/x.tar", ["/in/"], True),
        ("/in/x.tar", ["/in/x.tar"], True),
        ("/in/x.tar::a", ["/in/x.tar"], True),
        ("/in/x.tar", ["/other"], False),
        ("/in/x.tar", ["/i"], False),
        ("/in/x.tar", [], False),
        ("/found/here", [], True),
        ("/found", [], True),
        ("/foun", [], False),
        ("/in/x.tar", ["/in/*"], True),
        ("/in/a/b/x.tar", ["/in/?"], True),
        ("/in/a/b/x.tar", ["/i*/**/x.tar"], True),
        ("/in/a/x.tar", ["/in/*.tar"], False),
        ("/in/x.tar", ["/in/b*"], False),
        ("s3://b/in/x.tar", ["s3://b/in?region=x"], True),
        ("s3://b/in/x.tar", ["s3://b/i*?region=x"], True),
        ("s3://b/in/x.tar", ["s3://b/j*?region=x"], False),
        ("s3://b/in x/y.tar", ["s3://b/in%20x/*"], True),
        ("/in%20x/y.tar", ["/in%20x/*"], True),
        ("/in x/y.tar", ["/in%20x/*"], False),
        ("/in?", ["/in?"], True),
        ("/ins/x.tar", ["/in?"], True),
        ("/in/x.tar", ["/other", "/in"], True),
        ("/in/x.tar", ["/o*", "/i*"], True),
    ],
)
def test_failures_of_paths_that_were_searched_again(place: str, searched: list[str], recovered: bool) -> None:
    before = state(batch("one", "", "f", places={"f": place}))
    found = planned(dump("a", place="/found/here"), of=before, searched=searched)
    assert found.recovered == (frozenset("f") if recovered else frozenset())
    again = planned(failure("f", place), of=before, searched=searched)
    assert again.recovered == frozenset()
    assert planned(of=before, searched=searched, skipped=[place]).recovered == frozenset()
    before = state(batch("one", "", "fg", places={"f": place, "g": place}, hosts={"f": "b", "g": OPTIONS.host}))
    found = planned(dump("a", place="/found/here"), of=before, searched=searched)
    assert found.recovered == (frozenset("g") if recovered else frozenset())


def test_a_place_in_an_archive_that_was_read(tmp_path: Path) -> None:
    """Whatever was found in it: the archive can be read again."""
    before = state(batch("one", "", "fg", places={"f": "/in/x.tar", "g": "/in/x"}))
    assert planned(failure("a", "/in/x.tar::b::c"), of=before).recovered == frozenset("f")


# -- batches


def sizes(*dumps: int) -> list[list[int]]:
    found = planned(*(dump(f"{i:04}", size) for i, size in enumerate(dumps)))
    return [[d.bytes for d in task.inputs] for task in found.tasks]


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes between a minimum and a maximum, about the same for all, and by dumps."""
    assert sizes() == []
    assert sizes(8 * MIB, 8 * MIB, 1) == [[8 * MIB, 8 * MIB], [1]]
    assert sizes(8 * MIB, 8 * MIB + 1) == [[8 * MIB + 1], [8 * MIB]]
    assert {sum(b) for b in sizes(*[MIB] * 640)} == {40 * MIB}
    monkeypatch.setattr(planning, "MAX_BATCH_BYTES", 10 * MIB)
    assert {sum(b) for b in sizes(*[MIB] * 640)} == {10 * MIB}
    monkeypatch.setattr(planning, "MAX_BATCH_DUMPS", 3)
    assert sorted(map(len, sizes(*[1] * 7))) == [1, 3, 3]


def test_large_dumps_have_batches_of_their_own() -> None:
    assert sizes(1, STREAMED_BYTES + 1, 2) == [[STREAMED_BYTES + 1], [1, 2]]
    assert len(sizes(STREAMED_BYTES + 1, STREAMED_BYTES + 1)) == 2


def test_the_name_of_a_batch_tells_what_it_is_made_of() -> None:
    one, two = dump("a"), dump("b")
    tasks = [
        make_task((one,), OPTIONS),
        make_task((one, two), OPTIONS),
        make_task((replace(one, attempts=1),), OPTIONS),
        make_task((), OPTIONS, (replace(failure("a"), attempts=3),)),
        make_task((one,), replace(OPTIONS, tool_version="1.3")),
        make_task((one,), replace(OPTIONS, tables=("modules",))),
        make_task((one,), replace(OPTIONS, top=3)),
        make_task((one,), replace(OPTIONS, labels=(("k", "v"),), partition=("k",))),
    ]
    assert len({task.batch for task in tasks}) == len(tasks)
    assert make_task((two, one), OPTIONS).batch == tasks[1].batch
    assert make_task((), OPTIONS, (replace(failure("a"), attempts=2),)).batch == tasks[2].batch


def test_dumps_are_identified_in_chunks() -> None:
    chunks = identify_chunks(range(600))
    assert [len(chunk) for chunk in chunks] == [256, 256, 88]
    assert [i for chunk in chunks for i in chunk] == list(range(600))
