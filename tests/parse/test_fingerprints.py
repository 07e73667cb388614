"""Fingerprints: equal for another compile of one program, different for another program, the same by every path."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from renumber import memory_files, renumbered, write
from test_cuts import held

import xlamem
from xlamem.parse import pieces, whole
from xlamem.parse.fingerprints import _hexadecimal, hash_texts
from xlamem.parse.join import ReadDump, tables_of

DUMPS = Path(__file__).parents[1] / "dumps"
EDITED = DUMPS / "cpu-jaxlib-0.10.2-cond_switch"
MODULE = "module_0003.jit_m.cpu_after_optimizations"
FINGERPRINTS = ("program_fp", "interface_fp")
Pair = tuple[str | None, str | None]


def fingerprints(dump: xlamem.Dump) -> Pair:
    return tuple(dump.modules[c][0].as_py() for c in FINGERPRINTS)  # type: ignore[return-value]


def of_texts(texts: dict[str, str], directory: Path, stem: str = MODULE) -> Pair:
    return fingerprints(xlamem.read(write(texts, directory, stem), hashes=True))


def readable_dumps() -> list[xlamem.Dump]:
    dumps = []
    for source in xlamem.find(DUMPS):
        dump = xlamem.read(source, hashes=True)
        with contextlib.suppress(xlamem.DumpError):
            dumps += [dump] * dump.modules.num_rows
    return dumps


@pytest.fixture(scope="module")
def dumps() -> list[xlamem.Dump]:
    return readable_dumps()


@pytest.fixture(scope="module")
def original() -> dict[str, str]:
    return memory_files(xlamem.read(EDITED))


# -- equal


def test_another_compile_has_the_same(dumps: list[xlamem.Dump], tmp_path: Path) -> None:
    """Other names, ids, allocation numbers, lines and module number."""
    compared = 0
    for i, dump in enumerate(dumps):
        source, module = dump.source, dump.modules.to_pylist()[0]
        if module["program_fp"] and source.module_name and "glued" not in module["features"]:
            stem = re.sub(r"module_[0-9]+", "module_0777", source.name)
            copy = xlamem.read(write(renumbered(dump, seed=i), tmp_path / str(i), stem), hashes=True)
            assert fingerprints(copy) == fingerprints(dump), source.name
            assert set(copy.schedule["instruction"].to_pylist()).isdisjoint(dump.schedule["instruction"].to_pylist())
            compared += 1
    assert compared > 15


def test_scopes_do_not_enter(original: dict[str, str], tmp_path: Path) -> None:
    role = "buffer-assignment-values"
    edited = original | {role: original[role].replace('op_name="jit(m_cond_switch)', 'op_name="jit(other)/layer')}
    assert edited != original
    assert of_texts(edited, tmp_path / "b") == of_texts(original, tmp_path / "a")


def test_dumps_of_different_programs_differ(dumps: list[xlamem.Dump]) -> None:
    contents = {(d.modules["content_hash"][0].as_py(), fingerprints(d)) for d in dumps}
    programs = [program for _, (program, _) in contents if program]
    assert len(set(programs)) == len(programs) > 20


def test_every_path_gives_the_same(
    dumps: list[xlamem.Dump], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads, spans, dumps joined, and read back from Parquet."""
    expected = [fingerprints(d) for d in dumps]
    joined = tables_of([ReadDump(d.source) for d in dumps])[0]["modules"]
    assert list(zip(*(joined[c].to_pylist() for c in FINGERPRINTS), strict=True)) == expected
    monkeypatch.setattr(pieces, "SPAN_BYTES", 4000)
    monkeypatch.setattr(whole, "SPAN_BYTES", 2000)
    assert [fingerprints(xlamem.read(d.source, hashes=True, threads=3)) for d in dumps] == expected
    assert [_streamed(d) for d in dumps] == expected
    xlamem.convert(DUMPS, to=tmp_path, engine="here")
    stored = xlamem.Dataset(tmp_path).dataset("modules").to_table()
    rows = zip(*(stored[c].to_pylist() for c in ("content_hash", *FINGERPRINTS)), strict=True)
    contents = [d.modules["content_hash"][0].as_py() for d in dumps]
    assert {c: tuple(f) for c, *f in rows} == dict(zip(contents, expected, strict=True))


def _streamed(dump: xlamem.Dump) -> Pair:
    tables = dict(pieces.pieces(dump.source, hashes=True))
    return tuple(tables["modules"][c][0].as_py() for c in FINGERPRINTS)  # type: ignore[return-value]


def test_all_fingerprints_have_16_digits() -> None:
    found = _hexadecimal(np.array([0, 10, -1, 1 << 60, 7], np.int64), [True, True, True, True, False])
    assert found == ["0" * 16, "0" * 15 + "a", "f" * 16, "1" + "0" * 15, None]


def test_stored_fingerprints_stay_valid() -> None:
    """Datasets keep fingerprints: another value needs another column."""
    assert fingerprints(xlamem.read(EDITED, hashes=True)) == ("55c059e4294f1a90", "83e1b10e26cfa382")
    texts = ["", "a", "f32[128]", "f32[128,256]{1,0:T(8,128)}", "x" * 1000]
    assert hash_texts(pa.array(texts)).tolist() == [murmur(t.encode()) for t in texts]
    assert hash_texts(pa.array(["skipped", *texts])[1:]).tolist() == [murmur(t.encode()) for t in texts]


def test_a_page_that_is_not_printed_differs_from_page_0(tmp_path: Path) -> None:
    """As docs/numbers.md says. A change needs another column."""
    texts = memory_files(xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"))
    allocations = texts["buffer-assignment"]
    assert ", page 0" in allocations
    with_pages = of_texts(texts, tmp_path / "a")
    without = of_texts(texts | {"buffer-assignment": allocations.replace(", page 0", "")}, tmp_path / "b")
    assert with_pages[0] != without[0]
    assert with_pages[1] == without[1]


def murmur(text: bytes) -> int:
    """MurmurHash64A with seed 0."""
    m, mask = 0xC6A4A7935BD1E995, (1 << 64) - 1
    h = len(text) * m & mask
    for i in range(0, len(text) // 8 * 8, 8):
        k = int.from_bytes(text[i : i + 8], "little") * m & mask
        h = (h ^ (k ^ k >> 47) * m & mask) * m & mask
    if len(text) % 8:
        h = (h ^ int.from_bytes(text[len(text) // 8 * 8 :], "little")) * m & mask
    h = (h ^ h >> 47) * m & mask
    h ^= h >> 47
    return h - (h >> 63 << 64)


# -- different


@pytest.mark.parametrize(
    ("role", "old", "new"),
    [
        ("buffer-assignment", "<44 broadcast_add_fusion @0> (size=65536", "<44 broadcast_add_fusion @0> (size=65532"),
        ("buffer-assignment", "(size=4,offset=0): s32[]\nallocation 2", "(size=4,offset=4): s32[]\nallocation 2"),
        ("buffer-assignment", "f32[128,128]{1,0}\n value: <38", "f32[128,128]{0,1}\n value: <38"),
        ("buffer-assignment", "allocation 9: size 4, constant", "allocation 9: size 8, constant"),
        ("buffer-assignment", "allocation 9: size 4, constant", "allocation 9: size 4, preallocated-temp"),
        ("buffer-assignment", "allocation 9: size 4,", "allocation 9: color 1, size 4,"),
        ("buffer-assignment", "parameter 1, shape", "parameter 3, shape"),
        ("buffer-assignment", "cond.13.clone{0} (phi)", "cond.13.clone (phi)"),
        ("buffer-assignment-values", "%copy_add_fusion = f32[128,128]{1,0} fusion(",
         "%copy_add_fusion = f32[128,128]{1,0} call("),
        ("buffer-assignment-values", "%tuple.10 = (f32[128,128]{1,0})", "%tuple.10 = (f32[128,128]{0,1})"),
        ("live-range", "31:ynn_fusion.1\n    32:tuple.14", "31:tuple.14\n    32:ynn_fusion.1"),
        ("live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:8-36"),
        ("live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:7-37"),
        ("live-range", "    i.1{}:0-40\n", ""),
    ],
)  # fmt: skip
def test_another_program_has_another(
    original: dict[str, str], tmp_path: Path, role: str, old: str, new: str
) -> None:
    assert old in original[role]
    edited = original | {role: original[role].replace(old, new, 1)}
    before, after = of_texts(original, tmp_path / "before"), of_texts(edited, tmp_path / "after")
    assert before[0] != after[0]
    assert (before[1] == after[1]) == ("parameter" not in old)


def test_values_that_swap_equal_allocations(original: dict[str, str], tmp_path: Path) -> None:
    """Which values share an allocation matters, even if the allocations are alike."""
    text = original["buffer-assignment"]
    a, b = (next(line for line in text.splitlines() if name in line) for name in ("<26 ynn", "<30 ynn"))
    swapped = text.replace(a, "?").replace(b, a).replace("?", b)
    before = of_texts(original, tmp_path / "before")
    assert of_texts(original | {"buffer-assignment": swapped}, tmp_path / "after")[0] != before[0]


@pytest.mark.parametrize(
    "stem", ["module_0003.jit_n.cpu_after_optimizations", "module_0003.jit_m.sm_9.0_gpu_after_optimizations"]
)
def test_name_and_platform_are_in_the_interface(original: dict[str, str], tmp_path: Path, stem: str) -> None:
    before, after = of_texts(original, tmp_path / "before"), of_texts(original, tmp_path / "after", stem)
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("name", ["jit_m", "jit_m.7", "jit_m.123"])
def test_numbers_are_not_in_the_interface(original: dict[str, str], tmp_path: Path, name: str) -> None:
    stem = f"module_0123.{name}.cpu_after_optimizations"
    assert of_texts(original, tmp_path / "a") == of_texts(original, tmp_path / "b", stem)


@pytest.mark.parametrize(
    ("old", "new"),
    [("f32[128,128]| at", "f32[128,64]| at"), ("|(f32[128,128], f32[128,128])|", "|(f32[128,128], f32[64,128])|")],
)
def test_shapes_are_in_the_interface(original: dict[str, str], tmp_path: Path, old: str, new: str) -> None:
    edited = original | {"buffer-assignment": original["buffer-assignment"].replace(old, new, 1)}
    assert of_texts(original, tmp_path / "a")[1] != of_texts(edited, tmp_path / "b")[1]


# -- not known


def test_not_requested() -> None:
    assert fingerprints(xlamem.read(EDITED)) == (None, None)


def test_tables_left_out() -> None:
    both = fingerprints(xlamem.read(EDITED, hashes=True))
    tables = {"modules", "allocations", "values", "instructions", "live_ranges", "schedule"}
    assert fingerprints(xlamem.read(EDITED, hashes=True, tables=tables)) == both
    for left_out in sorted(tables - {"modules"}):
        known = fingerprints(xlamem.read(EDITED, hashes=True, tables=tables - {left_out}))
        assert known == (None, None if left_out == "allocations" else both[1])


@pytest.mark.parametrize("role", ["buffer-assignment", "buffer-assignment-values", "live-range"])
@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_or_truncated_file(original: dict[str, str], tmp_path: Path, role: str, missing: bool) -> None:
    both = of_texts(original, tmp_path / "a")
    texts = {r: text for r, text in original.items() if r != role}
    if not missing:
        texts[role] = original[role][: len(original[role]) // 2]
    program, interface = of_texts(texts, tmp_path / "b")
    assert program is None
    assert interface == (None if role == "buffer-assignment" else both[1])
    joined = tables_of([ReadDump(s) for s in xlamem.find(tmp_path)])[0]["modules"]
    assert [joined[c].to_pylist()[1] for c in FINGERPRINTS] == [program, interface]


@pytest.mark.parametrize("name", ["cpu-tf-2.9.3-mlp", "cpu-jaxlib-0.4.26-scan_while"])
def test_a_file_that_is_cut_off_below_its_allocations(name: str, tmp_path: Path) -> None:
    """All arguments are there, unless it is cut off within the allocations."""
    (path,) = (DUMPS / name).glob("*-buffer-assignment.txt*")
    text = xlamem.find(DUMPS / name)[0].members[0].load()
    whole_text = bytes(text.data)
    text.close()
    used = whole_text.index(b"Used values:")
    found = []
    for i, end in enumerate((len(whole_text), (used + len(whole_text)) // 2, used // 2)):
        (folder := tmp_path / str(i)).mkdir()
        (folder / path.name.removesuffix(".gz")).write_bytes(whole_text[:end])
        found.append(fingerprints(xlamem.read(folder, hashes=True)))
    assert [pair[0] is not None for pair in found] == [True, False, False]
    assert found[0][1] == found[1][1] is not None
    assert found[2][1] is None


def test_live_ranges_that_xla_released(original: dict[str, str], tmp_path: Path) -> None:
    texts = original | {"live-range": "HloLiveRange not available"}
    assert of_texts(texts, tmp_path / "b")[0] is None


def test_sizes_of_parameters_without_a_shape_are_in_the_interface() -> None:
    """Else the shape says more than the size, which depends on the layout."""

    def interface(size: int, shape: str) -> str | None:
        text = f"BufferAssignment:\nallocation 0: size {size}, parameter 0{shape}:\n"
        values = f" value: <0 p @0> (size={size},offset=0): f32[4]{{0}}\n"
        return fingerprints(xlamem.read(held("m", {"buffer-assignment": (text + values).encode()}), hashes=True))[1]

    for shape, differ in (("", True), (", shape |f32[4]| at ShapeIndex {}", False)):
        found = [interface(size, shape) for size in (16, 32)]
        assert None not in found
        assert (found[0] != found[1]) is differ
