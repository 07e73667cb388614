"""`memory_analysis` from the text against JAX's own, stored beside each real dump."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from conftest import CORPUS, DUMPS, label, sources

import xlamem
from xlamem import compute
from xlamem.compute.memory_stats import _is_later_than_0_8_1, _tpu
from xlamem.input.find import Source

PARTS = tuple(
    f"{host}{part}_size_in_bytes" for host in ("", "host_") for part in ("argument", "output", "alias", "temp")
)
TOTALS = ("total_allocation_bytes", "indefinite_allocations")
FIELDS = (*PARTS, *TOTALS, "peak_memory_in_bytes")

DERIVABLE = {
    "cpu": PARTS,
    "gpu": PARTS,
    # A TPU compiler reports temporaries and a peak that the text does not give: `explain` infers them.
    "tpu": tuple(f for f in (*PARTS, *TOTALS) if f != "temp_size_in_bytes"),
}
"""What the text always tells; on CPU the rest depends on the release."""

ZEROS = ("0.4.13", "0.4.20", "0.4.26")
"""These releases of jaxlib answer nothing but zeros on CPU."""


def oracle(source: Source) -> dict[str, Any] | None:
    place = Path(source.location.split("::")[0])
    path = (place if place.is_dir() else place.parent) / "oracle.json"
    return json.loads(path.read_text()) if path.is_file() else None


def stated(found: dict[str, Any] | None) -> dict[str, Any]:
    """The stored memory_analysis, empty where there is none."""
    analysis = (found or {}).get("memory_analysis")
    return analysis if isinstance(analysis, dict) else {}


CASES = [s for s in sources() if stated(oracle(s))]


@pytest.mark.parametrize("source", CASES, ids=label)
def test_oracle(source: Source) -> None:
    found = oracle(source)
    wanted = stated(found)
    dump = xlamem.read(source)
    platform = dump.modules["platform"][0].as_py()
    ours = compute.memory_analysis(dump)
    for field in FIELDS:
        if field in wanted and getattr(ours, field) is not None:
            assert getattr(ours, field) == wanted[field], field
        known = {size for name, _, size in ours.by_release if name == field}
        if known:
            assert getattr(ours, field) is None
            assert wanted.get(field, min(known)) in known, field
    if found.get("jaxlib") in ZEROS:  # type: ignore[union-attr]
        assert not any(wanted.get(field) for field in FIELDS)
        return
    for field in DERIVABLE[platform]:
        assert getattr(ours, field) is not None, f"{field} can be told from the text"


def test_cases() -> None:
    """There is an oracle of every platform, and most of them say something."""
    platforms = Counter(xlamem.read(s, tables=["modules"]).modules["platform"][0].as_py() for s in CASES)
    assert platforms["cpu"] >= 5
    assert platforms["tpu"] >= 5
    if CORPUS.is_dir() and any(CORPUS.iterdir()):
        assert platforms["gpu"] >= 10
    silent = [s for s in CASES if oracle(s).get("jaxlib") in ZEROS]  # type: ignore[union-attr]
    assert len(silent) < len(CASES) / 4


def test_by_hand(make: Callable[..., Path]) -> None:
    """Thread-local and host allocations, a donated one, and a constant that is an output."""
    device = (
        "BufferAssignment:\n"
        "allocation 0: size 100, parameter 0, shape |u8[100]| at ShapeIndex {}:\n"
        "allocation 1: size 200, parameter 1, shape |u8[200]| at ShapeIndex {}, maybe-live-out:\n"
        "allocation 2: size 7, constant:\n"
        "allocation 3: size 9, constant, maybe-live-out:\n"
        "allocation 4: size 40, thread-local:\n"
        "allocation 5: size 1000, preallocated-temp:\n"
    )
    host = (
        "allocation 6: size 30, color 5, parameter 2, shape |u8[30]| at ShapeIndex {}:\n"
        "allocation 7: size 60, color 5, preallocated-temp:\n"
    )
    parts = {"argument_size_in_bytes": 300, "output_size_in_bytes": 209, "alias_size_in_bytes": 200}
    nothing = dict.fromkeys(PARTS[4:], 0)
    on_host = nothing | {"host_argument_size_in_bytes": 30, "host_temp_size_in_bytes": 60}
    for suffix, text, wanted in (
        ("cpu_after_optimizations", device + host, {**on_host, "temp_size_in_bytes": 1000, **totals(None, None, 316)}),
        ("sm_9.0a_gpu_after_optimizations", device + host, {**on_host, "temp_size_in_bytes": 1000}),
        ("cl_1.after_optimizations", device + host, {**on_host, "temp_size_in_bytes": None, **totals(1356, 356, None)}),
        ("cl_1014260217.after_optimizations", device + host, {**on_host, **totals(1316, 316, None)}),  # libtpu 0.0.52
    ):
        ours = compute.memory_analysis(xlamem.read(make({"buffer-assignment": text.encode()}, suffix)))
        wanted = parts | wanted
        assert {field: getattr(ours, field) for field in wanted} == wanted, suffix


@pytest.mark.parametrize("suffix", ["cpu_after_optimizations", "gpu_after_optimizations", "cl_1.after_optimizations"])
def test_nothing_is_known_without_allocations(suffix: str, make: Callable[..., Path]) -> None:
    """A compiler that is killed leaves an empty buffer assignment, and perhaps the live ranges."""
    live_range = attacks.dump([], ranges=["a{}:0-3"])["live-range"]
    for text in (b"", b"BufferAssignment:\n"):
        dump = xlamem.read(make({"buffer-assignment": text, "live-range": live_range}, suffix))
        assert compute.memory_analysis(dump) == compute.MemoryAnalysis(**dict.fromkeys(FIELDS))
        assert {r["name"]: r["bytes"] for r in xlamem.explain(dump).to_pylist() if r["bytes"] is not None} == {}


def test_totals_of_an_unknown_libtpu(make: Callable[..., Path]) -> None:
    """Tiles tell the platform. libtpu 0.0.51 and later leave thread-local allocations out of the totals."""
    text = attacks.dump(
        [attacks.value(0, "a", shape="f32[1024]{0:T(1024)}")],
        allocations="allocation 1: size 40, thread-local:\nallocation 0: size 8, maybe-live-out:\n",
    )
    ours = compute.memory_analysis(xlamem.read(make(text, "tpu_comp_env")))
    assert ours.total_allocation_bytes is ours.indefinite_allocations is None
    releases = ("libtpu 0.0.50.1 and before", 48), ("libtpu 0.0.51 and later", 8)
    assert ours.by_release == tuple((field, *release) for field in TOTALS for release in releases)


def test_releases_that_the_text_does_not_tell_apart() -> None:
    """jaxlib 0.11.2 counts thread-local allocations, 0.12.0 does not; 0.7.1 prints another peak than 0.7.2."""
    new = xlamem.read(DUMPS / "cpu-jaxlib-0.12.0-scan_while")
    ours = compute.memory_analysis(new)
    assert ours.total_allocation_bytes is ours.indefinite_allocations is None
    assert ours.by_release == (
        ("total_allocation_bytes", "jaxlib 0.11.2", 483680),
        ("total_allocation_bytes", "jaxlib 0.12.0", 483632),
        ("indefinite_allocations", "jaxlib 0.11.2", 409728),
        ("indefinite_allocations", "jaxlib 0.12.0", 409680),
    )
    assert ours.peak_memory_in_bytes == 409680
    assert compute.memory_analysis(xlamem.read(DUMPS / "cpu-jaxlib-0.7.2-sharded_mm")).peak_memory_in_bytes is None
    assert compute.memory_analysis(xlamem.read(DUMPS / "cpu-jaxlib-0.9.1-mlp_grad")).peak_memory_in_bytes is not None
    old = compute.memory_analysis(xlamem.read(DUMPS / "cpu-jaxlib-0.4.26-scan_while"))
    assert old.argument_size_in_bytes is None
    assert [r[1:] for r in old.by_release if r[0] == "argument_size_in_bytes"] == [
        ("jaxlib 0.4.28 and before", 0),
        ("jaxlib 0.4.29 and later", 401408),
    ]
    names = {r["name"]: r for r in xlamem.explain(new).to_pylist()}
    assert names["jax.total_allocation_bytes"]["bytes"] is None
    assert names["jax.total_allocation_bytes, jaxlib 0.11.2"]["bytes"] == 483680
    assert names["jax.total_allocation_bytes, jaxlib 0.11.2"]["releases"] == "jaxlib 0.11.2"


def test_inferred() -> None:
    """What the formulas give for TPU programs: the peak is right on all, the temporaries on nearly all."""
    equal: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for source in CASES:
        dump, wanted = xlamem.read(source), stated(oracle(source))
        if dump.modules["platform"][0].as_py() != "tpu":
            continue
        rows = {r["name"]: r for r in xlamem.explain(dump).to_pylist()}
        for field in ("temp_size_in_bytes", "peak_memory_in_bytes"):
            if wanted.get(field) is not None:
                assert rows[f"jax.{field}"]["basis"] == "inferred"
                compared[field] += 1
                equal[field] += rows[f"jax.{field}"]["bytes"] == wanted[field]
    assert min(compared.values()) >= 5
    assert all(equal[field] >= 0.8 * compared[field] for field in compared), (equal, compared)
    assert equal["peak_memory_in_bytes"] == compared["peak_memory_in_bytes"]


VMEM = "allocation 0: size 4096, color 1, page 0, preallocated-temp:\n"


@pytest.mark.parametrize(
    ("used", "by", "wanted"),
    [
        ("  s.2, operand 0", "add(%a, %b)", 2560),  # a is not live when b is defined
        ("  s.4, operand 0", "add(%a, %b)", 3584),
        ("  (none)", "add(%b, %b)", 2560),
        ("  s.4, operand 0", 'custom-call(%a, %b), custom_call_target="ConcatBitcast"', 3072),  # both are slices of it
        ("  s.4, operand 0", "conditional(%p, %a, %b)", None),  # perhaps a branch needs neither
    ],
)
def test_peak_in_vmem(used: str, by: str, wanted: int | None, make: Callable[..., Path]) -> None:
    """Values in VMEM are live until their last use, wherever their live ranges end."""
    names, sizes, ranges = ("s.0", "s.3", "s.4"), (1024, 2048, 512), ("0-5", "3-4", "4-5")
    values = [
        attacks.value(i, name, size, 1024 * i, f"f32[{size // 4}]{{0}}", color=1)
        for i, (name, size) in enumerate(zip(names, sizes, strict=True))
    ]
    records = [
        attacks.record(0, "s.0", uses=used),
        attacks.record(1, "s.3", uses="  s.4, operand 1"),
        attacks.record(2, "s.4", f"f32[128]{{0}} {by}", uses="  s.5, operand 0"),
    ]
    live = [f"{name}{{}}:{steps}" for name, steps in zip(names, ranges, strict=True)]
    text = attacks.dump(values, allocations=VMEM, records=records, steps=6, ranges=live)
    dump = xlamem.read(make(text, "cl_1014260217.after_optimizations"))
    assert peak_of(dump) == wanted


@pytest.mark.parametrize("of_files", [True, False])
def test_peak_in_vmem_with_some_of_the_uses(of_files: bool, make: Callable[..., Path]) -> None:
    """One of two values that may be live together has no uses, or no record since the file ends before it."""
    values = [attacks.value(i, f"s.{i}", 1024, 1024 * i, color=1) for i in range(2)]
    records = [attacks.record(i, f"s.{i}", uses=f"  s.{3 + i}, operand 0") for i in range(2)]
    live = ["s.0{}:0-5", "s.1{}:2-5"]
    text = attacks.dump(values, allocations=VMEM, records=records, steps=6, ranges=live)
    stem = "cl_1014260217.after_optimizations"
    assert peak_of(xlamem.read(make(text, stem))) == 2048
    used = text["buffer-assignment-values"]
    unknown = b" uses are not initialized yet.\n"
    changed = used.partition(b"<1 ")[0] if of_files else used.replace(b" uses:\n  s.4, operand 0\n", unknown)
    assert changed != used
    assert peak_of(xlamem.read(make(text | {"buffer-assignment-values": changed}, stem))) is None


@pytest.mark.parametrize(("live", "wanted"), [("s.1{}:2-5", 2048), ("s.1{}:4-5", 1024)])
def test_peak_in_vmem_of_what_a_loop_uses(live: str, wanted: int, make: Callable[..., Path]) -> None:
    """It is live until the loop begins, although the loop has the step after its body."""
    values = [attacks.value(i, f"s.{i}", 1024, 1024 * i, color=1) for i in range(2)]
    records = [attacks.record(i, f"s.{i}", uses="  s.5, operand 0") for i in range(2)]
    text = attacks.dump(values, allocations=VMEM, records=records, steps=6, ranges=["s.0{}:0-3", live])
    assert peak_of(xlamem.read(make(text, "cl_1014260217.after_optimizations"))) == wanted


@pytest.mark.parametrize(("size", "wanted"), [(1023, None), (1024, 1024)])
def test_peak_in_vmem_without_uses(size: int, wanted: int | None, make: Callable[..., Path]) -> None:
    """It does not matter if as much is in use in HBM."""
    values = [attacks.value(0, "s.0", 1024, color=1), f"allocation 1: size {size}, preallocated-temp:\n"]
    values.append(attacks.value(1, "s.1", size))
    text = attacks.dump(values, allocations=VMEM, steps=6, ranges=["s.0{}:0-5", "s.1{}:0-5"])
    assert peak_of(xlamem.read(make(text, "cl_1014260217.after_optimizations"))) == wanted


def test_peak_in_vmem_of_what_a_conditional_may_use(make: Callable[..., Path]) -> None:
    """It is live when it is defined in any case."""
    hbm = "allocation 1: size 512, preallocated-temp:\n" + attacks.value(1, "s.4", 512)
    records = [attacks.record(0, "s.0", uses="  s.4, operand 1")]
    records.append(attacks.record(1, "s.4", "f32[128] conditional(%p, %a)"))
    values = [attacks.value(0, "s.0", 1024, color=1), hbm]
    text = attacks.dump(values, allocations=VMEM, records=records, steps=6, ranges=["s.0{}:0-5", "s.4{}:4-5"])
    assert peak_of(xlamem.read(make(text, "cl_1014260217.after_optimizations"))) == 1024


@pytest.mark.parametrize(
    ("opcode", "index", "wanted"),
    [("custom-call-start", "{2,0}", 1024), ("async-start", "{2,0}", 1024), ("async-start", "{1}", 5120),
     ("fusion", "{2,0}", 5120)],
)  # fmt: skip
def test_peak_without_scratch_of_asynchronous_calls(
    opcode: str, index: str, wanted: int, make: Callable[..., Path]
) -> None:
    """A gather on a SparseCore has some, which is in the arena."""
    values = [attacks.value(0, f"s.0{index}", 4096, 0, "s32[1024]"), attacks.value(1, "s.1", 1024, 4096, "f32[256]")]
    records = [attacks.record(0, f"s.0{index}", f"((), s32[], (s32[1024])) {opcode}()"), attacks.record(1, "s.1")]
    text = attacks.dump(values, records=records, steps=6, ranges=[f"s.0{index}:0-5", "s.1{}:2-5"])
    assert peak_of(xlamem.read(make(text, "cl_1014260217.after_optimizations"))) == wanted


def peak_of(dump: xlamem.Dump) -> int | None:
    return {r["name"]: r["bytes"] for r in xlamem.explain(dump).to_pylist()}["jax.peak_memory_in_bytes"]


def test_releases_do_not_matter_to_an_arena_that_values_fill(make: Callable[..., Path]) -> None:
    value = attacks.value(0, "a", 16384, 0, "f32[4096]{0:T(1024)}")
    dump = xlamem.read(make(attacks.dump([value], size=16384), "tpu_comp_env"))
    rows = [r for r in xlamem.explain(dump).to_pylist() if r["name"].startswith("jax.temp_size")]
    assert [(r["name"], r["bytes"], r["releases"]) for r in rows] == [("jax.temp_size_in_bytes", 16384, None)]


@pytest.mark.parametrize(
    ("suffix", "wanted"),
    [
        ("cl_1003875605.after_optimizations", {"": 28672}),
        ("cl_1003875606.after_optimizations", {"": 16384}),  # libtpu 0.0.51
        ("cl_1004524046.after_optimizations", {"": 28672}),  # 0.0.50.1
        ("cl_1014260217.after_optimizations", {"": 16384}),  # 0.0.52
        (
            "tpu_comp_env",
            {"": None, ", libtpu 0.0.50.1 and before": 28672, ", libtpu 0.0.51 and later": 16384},
        ),
    ],
)
def test_releases_that_count_unassigned_bytes_twice(
    suffix: str, wanted: dict[str, int | None], make: Callable[..., Path]
) -> None:
    """The arena is rounded up to 16 KiB; 4 KiB of it have a value. Tiles tell the platform, but not the release."""
    value = attacks.value(0, "a", 4096, 0, "f32[1024]{0:T(1024)}")
    dump = xlamem.read(make(attacks.dump([value], size=8192), suffix))
    rows = {r["name"]: r for r in xlamem.explain(dump).to_pylist() if "temp_size" in r["name"]}
    found = {name: r["bytes"] for name, r in rows.items() if "host" not in name}
    assert found == {f"jax.temp_size_in_bytes{releases}": size for releases, size in wanted.items()}


@pytest.mark.parametrize(
    ("shape", "wanted"), [("s32[]", 0), ("pred[]", 0), ("(s32[8])", 0), ("s32[1]", 16384), ("u32[]", 16384)]
)
def test_the_size_of_temporaries_that_only_control_the_flow(
    shape: str, wanted: int, make: Callable[..., Path]
) -> None:
    members = attacks.dump([attacks.value(0, "a", 4, 0, shape)], size=4)
    dump = xlamem.read(make(members, "cl_1014260217.after_optimizations"))
    found = {r["name"]: r["bytes"] for r in xlamem.explain(dump).to_pylist()}
    assert found["jax.temp_size_in_bytes"] == wanted


def totals(*values: int | None) -> dict[str, int | None]:
    return dict(zip((*TOTALS, "peak_memory_in_bytes"), values, strict=True))


@pytest.mark.parametrize(
    ("frames", "features", "is_later"),
    [([None, None], set(), False), ([None, 3], set(), True), ([3, 4], set(), True), ([], set(), False),
     ([None], {"page"}, True), ([None], {"uses_none"}, True), ([None], {"peak_c"}, False)],
)  # fmt: skip
def test_what_only_later_releases_print(frames: list[int | None], features: set[str], is_later: bool) -> None:
    """A frame of any instruction will do: those that XLA makes have none."""
    tables: Any = {"instructions": pa.table({"stack_frame_id": pa.array(frames, pa.int64())})}
    assert _is_later_than_0_8_1(tables, features) is is_later


@pytest.mark.parametrize(
    ("n_local", "is_later", "total", "by_release"),
    [(0, None, 3, []), (1, None, None, [3, 2]), (1, True, 2, []), (1, False, 3, []), (0, True, 3, [])],
)
def test_totals_of_a_tpu_program(n_local: int, is_later: bool | None, total: int | None, by_release: list[int]) -> None:
    """They are known without the release, too, if there are no thread-local allocations."""
    every, local = np.ones(3, bool), np.arange(3) < n_local
    sizes: Any = SimpleNamespace(totals={"a": every}, thread_local=local, of=lambda mask: int(mask.sum()))
    found: dict[str, int | None] = {}
    assert [value.bytes for value in _tpu(sizes, is_later, found)] == by_release
    assert found == {"a": total}
