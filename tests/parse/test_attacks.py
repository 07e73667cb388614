"""Every attack in small (tests/forge/attacks.py): the same tables however it is read, and only errors of ours.

What they cost in large is measured by bench/hostile.py.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import sys
from pathlib import Path

import attacks_hlo  # noqa: F401  # adds its attacks
import attacks_many
import numpy as np
import numpy.typing as npt
import pytest
from attacks import ATTACKS, dump, record, value
from conftest import DUMPS, every, texts
from fuzz.check import all_tables, check, plain, source_of, streamed

import xlamem
from xlamem._column import Names
from xlamem.cli import main
from xlamem.input.names import variants
from xlamem.parse import pieces, repeats, whole

Words = npt.NDArray[np.uint64]

CLEAN = texts(xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")[0])


@pytest.mark.parametrize("name", every(3, ATTACKS))
def test_attack(name: str) -> None:
    check(random.Random(name), ATTACKS[name](20), CLEAN, None)


@pytest.mark.parametrize("name", ["one_address_in_turn", "nested_loops", "deep_scope", "stack_frames_in_a_ring"])
def test_attack_on_the_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder := tmp_path / "dump").mkdir()
    for role, data in ATTACKS[name](3000).items():
        (folder / variants("module_0001.m.cpu_after_optimizations", role)[0]).write_bytes(data)
    for verb in (["info"], ["top", "--tree"], ["report", "-o", str(tmp_path / "report.html")]):
        assert main([verb[0], str(folder), *verb[1:]]) in (0, 3), capsys.readouterr().err


@pytest.mark.parametrize("n", [7, 8, 9, 10, 40])
@pytest.mark.parametrize("links", [1, 8])
def test_many_texts_of_one_name(n: int, links: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each distinct text is a row, wherever texts repeat and however the file is divided."""
    distinct = [f"f32[2]{{0}} add(%x.{i}, %y)" for i in range(n)]
    order = [*range(n), *range(n), *random.Random(n).choices(range(n), k=n), n - 1, 0]
    records = [record(i, "a", distinct[k]) for i, k in enumerate(order)]
    records.insert(n + 3, record(1000, "b"))
    members = dump((value(i, "a") for i in range(len(order))), records=records)
    expected = [f"%a = {text}" for text in distinct] + ["%b = f32[2]{0} add(%x, %y)"]
    for span in (whole.SPAN_BYTES, 300, 2000):
        monkeypatch.setattr(whole, "SPAN_BYTES", span)
        monkeypatch.setattr(pieces, "SPAN_BYTES", span)
        monkeypatch.setattr(repeats, "MAX_LINKS", links)
        read = all_tables(xlamem.read(source_of(members), text=True, threads=2))
        assert sorted(read["instructions"]["text"].to_pylist()) == sorted(expected)
        codes = read["diagnostics"]["code"].to_pylist()
        assert codes.count("instruction_differs") == n - 1
        assert plain(read["instructions"]).equals(streamed(source_of(members))["instructions"])


def test_values_of_one_name() -> None:
    """A live range belongs to the first value of its name, also where a hash table finds it."""
    names = ["b", "a", "c", "a", "a", *(f"x.{i}" for i in range(20)), "a"]
    members = dump((value(i, a) for i, a in enumerate(names)), ranges=["x.0{}:1-2", "a{}:2-3", "b{}:0-1", "c{}:0-1"])
    for found in (xlamem.read(source_of(members))["live_ranges"], streamed(source_of(members))["live_ranges"]):
        assert found["value_id"].to_pylist() == [5, 1, 0, 2]


def test_lines_of_many_modules(tmp_path: Path) -> None:
    """Newlines are counted from where they were counted last, whichever module is read first."""
    attacks_many.modules(tmp_path, 6)
    sources = xlamem.find(tmp_path)
    for chosen in (sources, sources[::-1], [sources[3], sources[1], sources[5]]):
        lines = [xlamem.read(s).diagnostics["line"].to_pylist() for s in chosen]
        assert lines == [[4 * sources.index(s) + 4] for s in chosen]


# -- hashes ----------------------------------------------------------------------------------------

_NATIVE = Path(__file__).parents[2] / "_native"
_LIBRARY = """
#include "hash.h"
uint64_t seed(void) { return xla_seed(); }
uint32_t key(const char *p) { return xla_hash_text(p, 32); }
"""


def library(folder: Path, *options: str) -> Path:
    """The hash of texts as a library of its own."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler")
    (source := folder / "hash.c").write_text(_LIBRARY)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", f"-I{_NATIVE}", *options, source, "-o", folder / "hash.so"],
                   check=True)  # fmt: skip
    return folder / "hash.so"


def _mixed(a: Words, b: Words) -> Words:
    """The upper and the lower half of a * b, combined (xla_mix)."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    carry = ((a0 * b0 >> half) + (a1 * b0 & low) + (a0 * b1 & low)) >> half
    return a * b ^ (a1 * b1 + (a1 * b0 >> half) + (a0 * b1 >> half) + carry)


def colliding(seed: int, n: int = 1 << 14, bits: int = 16) -> bytes:
    """Names of 32 characters whose keys have the same lowest bits: about n * n >> bits.

    Both halves of a name are hashed alone: of n first and n second halves, all pairs are candidates.
    """
    random = np.random.default_rng(0)
    halves = random.integers(ord("a"), ord("z") + 1, (2, n, 16), np.uint8)
    words = halves.view(np.uint64)
    s, length = np.uint64(seed), np.uint64(32 * 0xA0761D6478BD642F & (1 << 64) - 1)
    first = _mixed(words[0, :, 0] ^ s, words[0, :, 1] ^ s ^ np.uint64(0x9E3779B97F4A7C15))
    second = _mixed(words[1, :, 0] ^ s ^ length, words[1, :, 1] ^ s ^ np.uint64(0xE7037ED1A0B428DB))
    mask = np.uint64((1 << bits) - 1)
    a, b = ((h ^ h >> np.uint64(29)) & mask for h in (first, second))
    order = np.argsort(b)
    left, right = (np.searchsorted(b[order], a, side) for side in ("left", "right"))
    pairs = np.repeat(np.arange(n), right - left)
    partner = order[np.arange(len(pairs)) - np.repeat(np.cumsum(right - left) - right, right - left)]
    return np.hstack([halves[0, pairs], halves[1, partner]]).tobytes()


def test_names_that_collide(tmp_path: Path) -> None:
    """They do with a known seed, and not with that of this process."""
    seed = 0x1234_5678_9ABC_DEF0
    texts = colliding(seed)
    known = ctypes.CDLL(str(library(tmp_path, f"-DXLAMEM_SEED={seed:#x}u")))
    known.key.restype, known.key.argtypes = ctypes.c_uint32, [ctypes.c_char_p]
    n = len(texts) // 32
    assert n > 3000
    assert len({known.key(texts[i : i + 32]) & 0xFFFF for i in range(0, len(texts), 32)}) == 1
    names = Names()
    names.codes(texts, np.arange(0, len(texts) + 1, 32, dtype=np.int32), np.empty(n, np.int32), True)
    assert len(names) == n
    assert names.longest_probe() < 100


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, it is the address of a variable")
@pytest.mark.filterwarnings("ignore:.*fork")  # JAX, which other tests import, has threads
def test_the_seed_differs_without_random_addresses(tmp_path: Path) -> None:
    code = f"import ctypes as c; s = c.CDLL({str(library(tmp_path))!r}).seed; s.restype = c.c_uint64; print(s())"
    no_random_addresses = 0x0040000

    def seed() -> str:
        def fix() -> None:
            ctypes.CDLL(None).personality(no_random_addresses)

        shown = subprocess.run([sys.executable, "-c", code], preexec_fn=fix, capture_output=True, text=True, check=True)
        return shown.stdout

    assert seed() != seed()
