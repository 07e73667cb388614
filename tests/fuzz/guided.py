"""Fuzz the tokenizer, guided by coverage: `make fuzz-coverage MINUTES=10`.

libFuzzer keeps inputs that reach new edges of the native modules, and changes them further: half of the time as
`mutate` does. The build has clang's sanitizers, and a crash ends the run with the file that causes it; to repeat it,
pass that file. An input is a byte for the role of the file, and its text.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("", "forge", "oracle"))

SIZE = 6000
"""Bytes of the largest input."""
STREAMED = 8
"""One of so many inputs is also streamed."""

_PROGRESS = re.compile(rb"#(\d+)\s+\S+\s+cov: (\d+)")


# -- the process that runs libFuzzer, with the sanitizers loaded first -------------------------------


def run_libfuzzer(options: list[str]) -> None:
    """Run libFuzzer in this process; it does not return."""
    import atheris
    from fuzz.check import all_tables, same, source_of, streamed, tables_or_error
    from fuzz.mutate import mutate_text
    from oracle import ROLES

    import xlamem
    from xlamem.parse import pieces
    from xlamem.parse.hlo_body import scan_body

    texts = [{"text": piece[1:]} for piece in first_inputs()]

    def one_input(data: bytes) -> None:
        if not data:
            return
        role, text = ROLES[data[0] % len(ROLES)], data[1:]
        source = source_of({role: text})
        found = tables_or_error(lambda: all_tables(xlamem.read(source, text=True, threads=1, hashes=True)))
        if role == "hlo":
            scan_body(text, 0, text.rfind(b"\n") + 1)
        choice = hashlib.blake2b(data, digest_size=2).digest()
        if choice[0] % STREAMED == 0:
            before, pieces.SPAN_BYTES = pieces.SPAN_BYTES, 1 + choice[1]
            try:
                same("streamed", found, tables_or_error(lambda: streamed(source)))
            finally:
                pieces.SPAN_BYTES = before

    def changed(data: bytes, size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if len(data) < 2 or rng.random() < 0.5:
            return atheris.Mutate(data, size)
        return (data[:1] + mutate_text(rng, data[1:], rng.choice(texts)))[:size]

    atheris.Setup([sys.argv[0], *options], one_input, custom_mutator=changed)
    atheris.Fuzz()


def first_inputs() -> list[bytes]:
    """Return the beginning of each file and section of the dumps in the tree."""
    from fuzz.run import seeds
    from oracle import HEADS, ROLES

    heads = tuple(head.encode() for kind in HEADS.values() for head in kind)
    found = set()
    for members in seeds([]):
        for role, text in members.items():
            lines = [m.start() for m in re.finditer(rb"^.", text, re.M)]
            for begin in {0, *(at for at in lines if text.startswith(heads, at))}:
                piece = text[begin : begin + SIZE - 1]
                found.add(bytes([ROLES.index(role)]) + (piece[: piece.rfind(b"\n") + 1] or piece))
    return sorted(found)


def write_inputs(folder: Path) -> None:
    """Write the first inputs and the dictionary."""
    from fuzz.edits import TOKENS
    from fuzz.mutate import EXTREMES, FIELDS, LINES

    for piece in first_inputs():
        (folder / "first" / hashlib.blake2b(piece, digest_size=16).hexdigest()).write_bytes(piece)
    words = sorted({word for word in (*EXTREMES, *FIELDS, *LINES, *TOKENS) if 0 < len(word) <= 64})
    entries = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words)
    (folder / "dictionary").write_text("".join(entries))


# -- the process that watches it ---------------------------------------------------------------------


def environment() -> dict[str, str]:
    """With the sanitizers loaded first, as they need it; Python's own allocator would hide its blocks from them."""
    spec = importlib.util.find_spec("atheris")
    if spec is None or spec.origin is None:
        raise SystemExit("tests/fuzz/guided.py needs atheris and a build with XLAMEM_FUZZ: make fuzz-coverage")
    runtime = Path(spec.origin).parents[1] / "asan_with_fuzzer.so"
    return os.environ | {
        "LD_PRELOAD": str(runtime), "PYTHONMALLOC": "malloc", "UBSAN_OPTIONS": "print_stacktrace=1",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }  # fmt: skip


def watch(folder: Path, minutes: float, options: list[str]) -> int:
    """Run libFuzzer for some minutes, and report how the number of edges grew."""
    for name in ("first", "corpus", "failures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    this = [sys.executable, __file__]
    subprocess.run([*this, "--write", str(folder)], env=environment(), check=True)
    arguments = [str(folder / "corpus"), str(folder / "first"), f"-dict={folder / 'dictionary'}",
                 f"-artifact_prefix={folder / 'failures'}/", f"-max_len={SIZE}", f"-max_total_time={60 * minutes:.0f}",
                 "-timeout=60", "-rss_limit_mb=6000", "-print_final_stats=1"]  # fmt: skip
    began, grown = time.monotonic(), []
    with (
        open(folder / "log.txt", "ab") as log,
        subprocess.Popen([*this, "--fuzz", *arguments, *options], env=environment(), stderr=subprocess.PIPE) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            log.write(line)
            if progress := _PROGRESS.match(line):
                grown.append((time.monotonic() - began, *map(int, progress.groups())))
    report(grown)
    if process.returncode:
        sys.stdout.write((folder / "log.txt").read_bytes()[-6000:].decode("utf-8", "replace"))
        print(f"\nThe input is in {folder / 'failures'}; to repeat it: python tests/fuzz/guided.py FILE")
    return process.returncode


def report(grown: list[tuple[float, int, int]]) -> None:
    """Print the edges at doubling times, and when the last new one was reached."""
    if not grown:
        return
    print(f"{'minutes':>8} {'executions':>12} {'edges':>7}")
    shown = 0.5
    for (at, executions, edges), (following, *_) in zip(grown, [*grown[1:], (float("inf"),)], strict=True):
        if following >= 60 * shown:
            print(f"{at / 60:8.1f} {executions:12,} {edges:7,}")
            while following >= 60 * shown and shown < 1e6:
                shown *= 2
    first = next(at for at, _, edges in grown if edges == grown[-1][2])
    print(f"the last new edge after {first / 60:.1f} minutes")


def main() -> int:
    if sys.argv[1:2] == ["--fuzz"]:
        run_libfuzzer(sys.argv[2:])
    if sys.argv[1:2] == ["--write"]:
        write_inputs(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="inputs to repeat; without any, fuzz")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz-coverage"), help="corpus, log and failures")
    a, options = parser.parse_known_args()
    if a.files:
        return subprocess.run([sys.executable, __file__, "--fuzz", *a.files, *options], env=environment()).returncode
    return watch(a.keep, a.minutes, options)


if __name__ == "__main__":
    sys.exit(main())
