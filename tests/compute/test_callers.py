"""Lines of libraries, and the lines of the model that call them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from attacks import record, value

import xlamem
from xlamem.compute.callers import (
    MAX_FUNCTIONS,
    MAX_STACK,
    Functions,
    _sums,
    callers_outside,
    calls_from,
    calls_outside,
    function_paths,
    lines_of_model,
    shared_lines,
)
from xlamem.compute.grouping import folded_scopes, have_functions_only

MODEL, LIBRARY = "/m/a.py", "/v/site-packages/b.py"


def test_lines_of_libraries_are_those_of_their_callers() -> None:
    """Of the innermost one outside, if there is any; also if the frames are damaged."""
    files = ["/m/train.py", "/v/site-packages/flax/a.py", "C:\\dist-packages\\b.py", "/m/model.py", None]
    files.append("/lib/python3.9/c.py")
    parents = pa.array([None, 1, 2, 3, 2, 7, 6], pa.int64())
    frames = pa.table({"id": range(1, 8), "parent": parents, "file": [*files, files[1]], "line": range(11, 18)})
    assert callers_outside(frames).tolist() == [0, 0, 0, 3, 0, -1, -1]
    printed = [*files, files[1], files[0], files[1]]
    lines = {"source_file": pa.array(printed), "source_line": pa.array(range(11, 20))}
    found = lines_of_model(lines, np.array([1, 2, 3, 4, 5, 6, 7, 2, 99]), frames)
    assert found["source_file"].to_pylist() == [files[i] for i in (0, 0, 0, 3, 4, 5, 1, 0, 1)]
    assert found["source_line"].to_pylist() == [11, 11, 11, 14, 15, 16, 17, 18, 19]
    assert lines_of_model(lines, np.full(9, 2), frames.slice(0, 0)) is lines


def stack_frames(rows: list[tuple[int, int | None, str | None, int]]) -> pa.Table:
    """Return frames of these ids, parents, files and lines."""
    ids, parents, files, lines = zip(*rows, strict=True)
    functions = [file and f"f{line}" for file, line in zip(files, lines, strict=True)]
    table = {"id": ids, "parent": pa.array(parents, pa.int64()), "file": pa.array(files, pa.string()), "line": lines}
    return pa.table({**table, "function": pa.array(functions, pa.string())})


@pytest.mark.parametrize("in_frames", [True, False])
def test_the_line_at_which_tensorflow_makes_all_operations(in_frames: bool) -> None:
    """It says nothing about the model, other than lines of Keras."""
    files = ["/v/site-packages/tensorflow/python/framework/ops.py", "/v/site-packages/keras/ops.py", "/m/ops.py"]
    frames = pa.table({"id": [1], "parent": pa.array([None], pa.int64()), "file": files[:1], "line": [1221]})
    lines = {"source_file": pa.array(files), "source_line": pa.array([1221, 5, 6])}
    found = lines_of_model(lines, np.array([1, -1, -1]), frames if in_frames else frames.slice(0, 0))
    assert found["source_file"].to_pylist() == [None, *files[1:]]
    assert found["source_line"].to_pylist() == [None, 5, 6]


def test_calls_that_lead_to_a_line() -> None:
    """The innermost first, without libraries, and each once in a row."""
    frames = stack_frames([
        (1, None, MODEL, 9), (2, 1, LIBRARY, 1), (3, 2, LIBRARY, 2), (4, 3, MODEL, 5), (5, 4, MODEL, 5),
        (6, 5, "/m/b.py", 7), (7, 6, LIBRARY, 3), (8, None, LIBRARY, 4), (9, None, None, 4),
    ])  # fmt: skip
    known = {9: (MODEL, 9, "f9"), 5: (MODEL, 5, "f5"), 7: ("/m/b.py", 7, "f7")}
    for frame, lines in ((1, [9]), (3, [9]), (5, [5, 9]), (6, [7, 5, 9]), (7, [7, 5, 9]), (8, []), (9, []), (99, [])):
        calls = [(c["file"], c["line"], c["function"]) for c in calls_outside(frames, frame)]
        assert calls == [known[line] for line in lines], frame
    assert calls_outside(frames.slice(0, 0), 1) == calls_outside(frames, -1) == []
    cycle = stack_frames([(1, 2, MODEL, 1), (2, 1, MODEL, 2)])
    assert calls_outside(cycle, 1)[:3] == [calls_outside(cycle, i)[0] for i in (1, 2, 1)]


def called(rows: list[tuple[int, int | None, str, str | None]], *frames: int) -> list[str | None]:
    """Return the paths of functions at these frames of a table of ids, parents, files and functions."""
    ids, parents, files, names = zip(*rows, strict=True)
    table = {"id": ids, "parent": pa.array(parents, pa.int64()), "file": files, "line": [1] * len(rows)}
    codes, texts = function_paths(pa.table({**table, "function": pa.array(names, pa.string())}), np.array(frames))
    return [None if code < 0 else texts[code].as_py() for code in codes.tolist()]


def test_functions_that_call_each_other() -> None:
    """Without modules, lambdas and libraries; those in functions without these."""
    rows = [
        (1, None, MODEL, "<module>"), (2, 1, MODEL, "train_step"), (3, 2, LIBRARY, "grad"), (4, 3, MODEL, "<lambda>"),
        (5, 4, MODEL, "build.<locals>.loss_fn"), (6, 5, MODEL, "Model.__call__.<locals>.<lambda>"),
        (7, 6, MODEL, "Block.__call__"), (8, 7, LIBRARY, "dot"), (9, None, LIBRARY, "dot"), (10, 2, MODEL, None),
    ]  # fmt: skip
    path = "train_step/loss_fn/Block.__call__"
    shown = [None, "train_step", "train_step", "train_step", "train_step/loss_fn", "train_step/loss_fn", path, path]
    assert called(rows, *range(1, 11), 99, -1) == [*shown, None, "train_step", None, None]
    assert called(rows, 7, 1, 7) == [path, None, path]


def test_functions_that_are_called_again() -> None:
    """The body of a loop has the stack of the loop, below which it is traced."""
    names = ["step", "loss", "layer", "step", "loss", "layer", "mlp"]
    rows = [(i + 1, i or None, MODEL, name) for i, name in enumerate(names)]
    assert called(rows, 3, 4, 7) == ["step/loss/layer", "step", "step/loss/layer/mlp"]
    cycle = [(1, 2, MODEL, "a"), (2, 1, MODEL, "b")]
    assert set(called(cycle, 1, 2)) <= {"a", "b", "a/b", "b/a"}


def test_functions_of_deep_stacks() -> None:
    """The outermost ones are kept."""
    rows = [(i + 1, i or None, MODEL, f"f{i}") for i in range(2000)]
    (path,) = called(rows, 2000)
    assert path is None or path.split("/") == [f"f{i}" for i in range(2000 - MAX_STACK, 2000)][: len(path.split("/"))]
    first, last = called(rows, 100, 2000)
    assert first == "/".join(f"f{i}" for i in range(MAX_FUNCTIONS))
    assert last is None or len(last.split("/")) <= MAX_FUNCTIONS


def test_lines_that_several_lines_call() -> None:
    """A line that itself or only one line calls is not; callers in libraries count as those outside."""
    frames = stack_frames([
        (1, None, MODEL, 1), (2, None, MODEL, 2), (3, 1, MODEL, 10), (4, 2, LIBRARY, 7), (5, 4, MODEL, 10),
        (6, 3, MODEL, 20), (7, 5, MODEL, 20), (8, 3, LIBRARY, 8), (9, 3, MODEL, 10), (10, None, LIBRARY, 9),
        (11, 10, MODEL, 20), (12, 2, None, 20), (13, 1, None, 20),
        (14, 1, LIBRARY, 30), (15, 2, LIBRARY, 30), (16, 6, MODEL, 20),
    ])  # fmt: skip
    assert shared_lines(frames) == {f"{MODEL}:10"}
    assert shared_lines(frames.slice(0, 0)) == set()


@pytest.mark.parametrize("seed", range(30))
def test_what_a_function_calls(seed: int) -> None:
    """The innermost call of each frame, by a function of this name in a file of this name, whatever calls it."""
    rng = random.Random(seed)
    files, names = ["/m/a.py", "C:\\m\\a.py", "a.py", "/m/ba.py", "/m/a-py", LIBRARY, None], ["f", "ff", "g", None]
    n = rng.choice((1, 4, 12, 30))
    parents = [rng.choice([*range(i), i - 1, i - 1]) if i and rng.random() < 0.9 else None for i in range(n)]
    file, function = rng.choices(files, [8, 2, 2, 1, 1, 3, 1], k=n), rng.choices(names, [6, 1, 3, 1], k=n)
    ids = pa.array([None if p is None else 7 * p for p in parents], pa.int64())
    texts = {"file": pa.array(file, pa.string()), "function": pa.array(function, pa.string())}
    frames = pa.table({"id": [7 * i for i in range(n)], "parent": ids, **texts})

    def outside(i: int | None) -> int | None:
        while i is not None and file[i] in (LIBRARY, None):
            i = parents[i]
        return i

    def is_call(i: int | None) -> bool:
        return i is not None and function[i] == "f" and file[i] in files[:3]

    rows, expected = rng.choices(range(n), k=3), set()
    for row in rows:
        inner = outside(row)
        while inner is not None:
            caller = outside(parents[inner])
            if is_call(caller) and not is_call(inner):
                expected.add((inner, caller))
                break
            inner = caller
    called, calls = calls_from(frames, np.array(rows), "a.py", "f")
    assert list(zip(called.tolist(), calls.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("n", [1, 2, 3, 100])
def test_callers_of_a_long_chain(n: int) -> None:
    files = ["/m/a.py", *["/v/site-packages/b.py"] * n]
    frames = pa.table({"id": range(n + 1), "parent": pa.array([None, *range(n)], pa.int64()), "file": files})
    assert callers_outside(frames).tolist() == [0] * (n + 1)




def functions(parents: list[int | None], names: list[str | None], frames: list[int], library: int = 0) -> Functions:
    """Return the functions on the stacks of values; of the frames 1, 2, …, number `library` belongs to a library."""
    ids = range(1, len(parents) + 1)
    files = [LIBRARY if i == library else MODEL for i in ids]
    lines = pa.array([10 * i for i in ids], pa.int64())
    table = {"id": ids, "parent": pa.array(parents, pa.int64()), "file": files, "line": lines, "function": names}
    return Functions(pa.table(table), np.array(frames))


CHAIN: tuple[list[int | None], list[str | None]] = [None, 1, 2, 3, 2], ["main", "f.<locals>.loss", "block", "g", "h"]


@pytest.mark.parametrize(
    ("weights", "library", "found"),
    [
        ([8, 0, 2], 0, ("loss", [True, True, True])),  # block has too little
        ([9, 1, 0], 0, ("g", [True, False, False])),
        ([9, 1, 0], 4, ("block", [True, True, False])),
        ([5, 4, 1], 0, ("block", [True, True, False])),
        ([0, 0, 1], 0, ("h", [False, False, True])),
        ([0, 0, 1], 5, ("loss", [True, True, True])),
    ],
)
def test_the_innermost_function_of_a_loop(weights: list[int], library: int, found: tuple[str, list[bool]]) -> None:
    """Values are computed by g, block and h. Their callers are block, loss, and loss."""
    function = functions(*CHAIN, [4, 3, 5], library).innermost(np.array(weights), 0.9, in_loop=True)
    assert function is not None
    assert (function.name, function.calls.tolist()) == found


def test_functions_without_a_name_or_a_frame() -> None:
    unknown = functions([None, 1], [None, None], [2, -1, 9])
    assert unknown.innermost(np.array([1, 1, 1]), 0.9, in_loop=True) is None
    known = functions([None, 1], ["f", "g"], [2, -1, 9])
    assert known.innermost(np.array([1, 1, 1]), 0.9, in_loop=True) is None
    function = known.innermost(np.array([9, 1, 0]), 0.9, in_loop=True)
    assert function is not None
    assert (function.name, function.calls.tolist(), function.frames.tolist()) == ("g", [True, False, False], [2])


def test_functions_of_a_damaged_table() -> None:
    """Callers in a cycle, and a stack that is deeper than any."""
    assert functions([2, 1], ["f", "g"], [1, 2]).innermost(np.array([1, 1]), 0.9, in_loop=True) is not None
    n = 3000
    deep = functions([None, *range(1, n)], ["f", *["g"] * (n - 1)], [n, 2])
    function = deep.innermost(np.array([1, 1]), 0.9, in_loop=False)
    assert function is not None
    assert (function.name, function.calls.tolist(), len(function.frames)) == ("g", [True, True], n - 1)


def test_a_buffer_of_a_library_has_the_line_of_the_model(make: Callable[..., Path]) -> None:
    """Its phase is still that of the library."""
    tables = 'FileNames\n1 "/m/train.py"\n2 "/v/site-packages/optax/a.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
    tables += "".join(f"{i} {{file_name_id={i} function_name_id=1 line={i}7}}\n" for i in (1, 2))
    tables += "\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n"
    text = attacks.hlo("ENTRY %main () -> f32[2] {\n}\n", header=f"\n{tables}\n")
    add = 'f32[16] add(%p, %p), metadata={op_name="jit(f)/mul" stack_frame_id=2}'
    members = attacks.dump([value(1, "a", 64)], records=[record(1, "a", add)], ranges=["a{}:0-1"], hlo=text)
    (row,) = xlamem.live_set(xlamem.read(make(members))).to_pylist()
    assert (row["source_file"], row["source_line"], row["phase"]) == ("/m/train.py", 17, "optimizer")


@pytest.mark.parametrize(
    ("own", "place", "line"),
    [
        ("transpose(jvp())/broadcast_in_dim", ' source_file="/m/train.py" source_line=29', 29),
        ("transpose(jvp())/broadcast_in_dim", "", 14),
        # This says nothing: the line may be that of the whole loop.
        ("while/body/closed_call", ' source_file="/m/train.py" source_line=29', 14),
    ],
)
def test_a_value_named_after_its_reader_has_its_own_line(
    own: str, place: str, line: int, make: Callable[..., Path]
) -> None:
    """The gradient of a mean is broadcast; what reads it first is a division."""
    broadcast = f'f32[16] broadcast(%c), dimensions={{}}, metadata={{op_name="jit(f)/{own}"{place}}}'
    at = 'op_name="jit(f)/jvp()/div" source_file="/m/train.py" source_line=14'
    divide = f"f32[16] divide(%b, %b), metadata={{{at}}}"
    members = attacks.dump(
        [value(1, "b", 64), value(2, "d", 64, offset=64)],
        records=[record(1, "b", broadcast, uses="  d, operand 0"), record(2, "d", divide)],
        ranges=["b{}:0-1", "d{}:1-2"],
    )
    rows = {row["instruction"]: row for row in xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()}
    found = rows["b"]
    assert (found["origin"], found["op_name"], found["source_line"]) == ("user", "jit(f)/jvp()/div", line)


# -- groups of functions -------------------------------------------------------------------------


def test_bytes_by_function() -> None:
    """They add up as other keys do. The depth counts from the outermost function."""
    dump = xlamem.read(Path(__file__).parent.parent / "dumps" / "tpu-libtpu-0.0.50.1-v5e-host_offload")
    rows = xlamem.attribution(dump, ("memory_space", "function"), space="hbm").to_pylist()
    assert [row["function"] for row in rows] == ["main/child/m_host_offload", None]
    assert sum(row["bytes"] for row in rows) == xlamem.peak(dump).spaces.to_pylist()[0]["peak"]
    for depth, function in ((1, "main"), (2, "main/child"), (3, "main/child/m_host_offload"), (9, rows[0]["function"])):
        (first, *_) = xlamem.attribution(dump, "function", space="hbm", depth=depth).to_pylist()
        assert first == {"function": function, "bytes": rows[0]["bytes"], "n": rows[0]["n"]}
    for key in ("function", "scope"):
        deep = xlamem.attribution(dump, key, space="hbm", depth=1 << 40)
        assert deep.equals(xlamem.attribution(dump, key, space="hbm"))
    assert "function" not in xlamem.live_set(dump).column_names


def in_use(*rows: tuple[str, str | None, str | None, int]) -> pa.Table:
    """Return rows of live sets: category, op_name, functions and bytes."""
    columns = list(zip(*rows, strict=True))
    table = pa.table(dict(zip(("category", "op_name", "function", "bytes"), columns, strict=True)))
    codes = {name: table[name].dictionary_encode() for name in ("category", "op_name", "function")}
    return pa.table({**codes, "bytes": table["bytes"], "opcode": table["category"]})


ADD, LAYER = "jit(f)/jvp()/add", "jit(f)/jvp(model)/layer_3/add"
SCOPE, HELPER, EINSUM = "jit(f)/jvp(encoder)/add", "jit(f)/jvp(jit(relu))/max", "jit(f)/jvp(ij,jk->ik)/dot_general"


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("temp", ADD, "step/loss", 6), ("temp", ADD, "step/mlp", 4)], True),
        ([("temp", ADD, "step/loss", 9), ("temp", ADD, "step/mlp", 1)], False),  # one function has nearly all
        # Not quite: it has nearly all of what functions have, but not of the temporaries.
        ([("temp", ADD, "step/loss", 56), ("temp", ADD, "step/mlp", 4), ("temp", ADD, None, 40)], True),
        ([("temp", ADD, "step", 6), ("temp", ADD, "loss", 4)], False),
        ([("temp", ADD, "step/loss", 3), ("temp", ADD, "step/mlp", 2), ("temp", ADD, None, 5)], False),
        ([("temp", ADD, "step/loss", 4), ("temp", ADD, "step/mlp", 2), ("temp", None, None, 5)], True),
        ([("temp", ADD, "step/loss", 4), ("temp", LAYER, "step/mlp", 2), ("temp", ADD, "step/mlp", 2)], False),
        ([("temp", ADD, "step/loss", 4), ("temp_in_output", LAYER, "step/mlp", 1), ("temp", ADD, "step/mlp", 2)], True),
        ([("temp", ADD, "step/a", 6), ("temp", ADD, "step/b", 4), ("donated", "p['w']", None, 99)], True),
        ([("donated", "p['w']", None, 99)], False),
        ([("temp", SCOPE, "step/a", 3), ("temp", ADD, "step/b", 7)], False),
        ([("temp", HELPER, "step/a", 3), ("temp", EINSUM, "step/b", 7)], True),
    ],
)
def test_functions_that_tell_more_than_scopes(rows: list[Any], found: bool) -> None:
    """Most temporaries are in several functions, and few in a module or a named scope."""
    assert have_functions_only(in_use(*rows)) == found


def test_functions_instead_of_scopes() -> None:
    """Arguments keep their names, and so does what has no function."""
    table = in_use(
        ("temp", ADD, "step/loss", 4), ("temp", ADD, None, 2), ("live_out", ADD, "step/sgd", 1),
        ("parameter", "p['w']", "step", 8), ("temp_in_output", ADD, "step/adam", 16), ("constant", ADD, "step", 32),
    )  # fmt: skip
    scopes = {row["bytes"]: row["scope"] for row in folded_scopes(table, functions=True)}
    assert scopes == {4: "step/loss", 2: "add", 1: "step/sgd", 8: "p['w']", 16: "step/adam", 32: "add"}
    assert {row["scope"] for row in folded_scopes(table)} == {"add", "p['w']"}


def test_a_frame_counts_once_in_each_group() -> None:
    """Its height counts each time: that of a function that calls itself is in between."""
    group, item, height = np.array([5, 9, 5, 5]), np.array([0, 0, 0, 1]), np.array([1.0, 7.0, 3.0, 0.0])
    sums, heights = _sums(group, item, np.array([4.0, 2.0]), height)
    assert (sums.tolist(), heights.tolist()) == ([6.0, 4.0], [1.6, 7.0])
