"""Dumps inside logs, and several dumps in one file: they read like the plain files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from conftest import DUMPS, texts
from small_dumps import ALLOCATIONS, frame

import xlamem
from xlamem import schema
from xlamem.errors import DumpError, UsageError
from xlamem.input.find import Source, find, resolve, split_modules
from xlamem.input.logs import LogText, split_line
from xlamem.input.spans import member_spans
from xlamem.input.text import Text

Prefix = Callable[[int, str, str], Iterator[str]]
ROLES = ("buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report")
SINGLE = ("cpu-jaxlib-0.4.26-scan_while", "cpu-jaxlib-0.7.2-sharded_mm", "cpu-tf-2.3.4-loop", "cpu-tf-2.9.3-mlp")
SPLIT = ("cpu-jaxlib-0.12.0-scan_while", "cpu-jaxlib-0.10.2-cond_switch")
GLOG = "I1120 12:03:29.928370   18058 client.cc:2664] "
STATS = """BufferAssignment stats:
             parameter allocation:    3.05MiB
              constant allocation:         0B
        maybe_live_out allocation:    2.04MiB
     preallocated temp allocation:    1.02MiB
  preallocated temp fragmentation:         0B (0.00%)
                 total allocation:    4.07MiB
"""


def memory_texts(folder: str) -> dict[str, str]:
    """The memory texts of a dump whose live range, if it is in the same file, is apart."""
    found = {role: data.decode() for role, data in texts(find(DUMPS / folder)[0]).items() if role in ROLES}
    assignment, mark, live = found["buffer-assignment"].partition("\n\nHloLiveRange ")
    if mark:
        found |= {"buffer-assignment": assignment + "\n", "live-range": mark[2:] + live}
    return found


def tables(dump: xlamem.Dump) -> dict[str, list[dict[str, object]]]:
    return {t.name: dump[t.name].to_pylist() for t in schema.SECTION_TABLES if t.name not in ("frames", "aliases")}


def plain(folder: str, roles: Iterable[str] = ROLES) -> dict[str, list[dict[str, object]]]:
    source = find(DUMPS / folder)[0]
    members = tuple(m for m in source.members if m.role in roles)
    return tables(xlamem.read(Source("x", members), text=True))


def glog(thread: int, place: str, text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield f"I1120 12:03:29.{random.randrange(10**6):06} {thread:7} {place}] {line}\n"


def tensorflow(thread: int, place: str, text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield f"2023-11-20 12:03:29.{random.randrange(10**6):06}: I tensorflow/compiler/xla/service/{place}] {line}\n"


def logged(texts: dict[str, str], thread: int, prefix: Prefix = glog, live_first: bool = True) -> Iterator[str]:
    """What one thread prints; each item is written at once."""

    def live(place: str) -> Iterator[str]:
        head, _, rest = texts["live-range"].partition("\n")
        yield next(prefix(thread, place, head)) + rest

    yield from prefix(thread, "buffer_assignment.cc:1999", "Assigning buffers to module jit_f\nallocation 7: nothing")
    if live_first and "live-range" in texts:
        yield from prefix(thread, "heap_simulator.cc:140", "HloLiveRange (max 3):")
        yield next(prefix(thread, "heap_simulator.cc:151", "Memory used: 7"))
        yield from live("heap_simulator.cc:140")
        yield next(prefix(thread, "heap_simulator.cc:151", "Memory used: 9"))
    for role in ("buffer-assignment", "buffer-assignment-values"):
        yield from prefix(thread, "buffer_assignment.cc:2664", texts.get(role, "") or "\n")
    if not live_first and "live-range" in texts:
        yield from live("buffer_assignment.cc:2670")
    if "memory-usage-report" in texts:
        yield from prefix(thread, "buffer_assignment.cc:2664", texts["memory-usage-report"])
    yield from prefix(thread, "buffer_assignment.cc:2668", STATS)
    yield from prefix(thread, "cpu_compiler.cc:88", "compiled\nallocation 0: size 4, thread-local:")


def shuffled(*threads: Iterable[str]) -> str:
    """The threads' messages, each in its order, mixed at random; so is what others print."""
    waiting = [list(t)[::-1] for t in threads]
    choose = random.Random(7)
    out = ["starting\n"]
    while any(waiting):
        out.append(choose.choice([w for w in waiting if w]).pop())
    return "".join(out)


@pytest.mark.parametrize("live_first", [True, False])
@pytest.mark.parametrize("folders", [SINGLE[:2], SINGLE[2:], SPLIT, (SINGLE[0], SPLIT[0])])
def test_two_threads_in_one_log(folders: tuple[str, str], live_first: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    threads = [logged(memory_texts(f), 900 + i, live_first=live_first) for i, f in enumerate(folders)]
    path.write_text(shuffled(*threads))
    with pytest.raises(UsageError, match=r"holds 2 modules; select one with --module \(module= in Python\):"):
        xlamem.read(path)
    read = [xlamem.read(path, module=i, text=True) for i in (0, 1)]
    if tables(read[0])["allocations"] != plain(folders[0])["allocations"]:
        read.reverse()
    for dump, folder in zip(read, folders, strict=True):
        wanted = plain(folder)
        for name, rows in tables(dump).items():
            assert rows == wanted[name], name
    for dump in read:
        assert dump.verify().num_rows == 0


@pytest.mark.parametrize("prefix", [glog, tensorflow])
@pytest.mark.parametrize("order", [1, -1])
def test_statistics_of_the_same_statement(prefix: Prefix, order: int) -> None:
    parts = [memory_texts(SPLIT[0])["buffer-assignment"], STATS][::order]
    dump = xlamem.read("".join(line for text in parts for line in prefix(5, "buffer_assignment.cc:7", text)).encode())
    assert dump.diagnostics.num_rows == 0
    assert tables(dump)["allocations"] == plain(SPLIT[0])["allocations"]


@pytest.mark.parametrize("live_first", [True, False])
def test_a_head_with_text_of_a_later_release(live_first: bool) -> None:
    found = memory_texts(SPLIT[0])
    found["buffer-assignment"] = found["buffer-assignment"].replace("BufferAssignment:", "BufferAssignment (v2):", 1)
    dump = xlamem.read("".join(logged(found, 5, live_first=live_first)).encode())
    assert tables(dump)["allocations"] == plain(SPLIT[0])["allocations"]
    assert dump.diagnostics["code"].to_pylist() == ["unknown_field"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("prefix", [glog, tensorflow])
def test_positions_in_a_log(prefix: Prefix, newline: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    text = "".join(logged(memory_texts(SPLIT[0]), 18058, prefix)) + "".join(prefix(7, "x.cc:1", "the end"))
    path.write_bytes(text.replace("\n", newline).encode())
    raw = path.read_bytes()
    with resolve(path).members[0].load() as log_text:
        assert log_text.features == {"log"}
        assert log_text.crlf == (newline == "\r\n")
        data = bytes(log_text.data)
        assert log_text.raw == data
        assert data.startswith(b"HloLiveRange (max ")
        assert data.endswith(b"\n")
        for at in range(0, len(data), 97):
            line, offset = log_text.position(at)
            assert data[at : at + 40].split(b"\n")[0] == raw[offset : offset + 40].split(b"\n")[0].rstrip(b"\r")
            assert line == raw.count(b"\n", 0, offset) + 1
        assert log_text.position(0) == (log_text.first_line, raw.rindex(b"HloLiveRange"))


@pytest.mark.parametrize("live_first", [True, False])
@pytest.mark.parametrize("n_crlf", [3, 50, 100, 1000])
def test_mixed_newlines_in_a_log(live_first: bool, n_crlf: int) -> None:
    text = "".join(logged(memory_texts(SPLIT[0]), 5, live_first=live_first)) + "".join(glog(7, "x.cc:1", "the end"))
    lines = text.encode().splitlines(keepends=True)
    log = b"".join(line.replace(b"\n", b"\r\n") for line in lines[:n_crlf]) + b"".join(lines[n_crlf:])
    dump = xlamem.read(log)
    with resolve(log).members[0].load() as loaded:
        first, is_crlf = loaded.first_line, loaded.crlf
    expected = [n_crlf + 1] if is_crlf and n_crlf < len(lines) else []
    assert is_crlf == (first <= n_crlf)
    assert [d["line"] for d in dump.diagnostics.to_pylist() if d["code"] == "mixed_newlines"] == expected
    assert tables(dump)["allocations"] == plain(SPLIT[0])["allocations"]


def test_another_newline_after_the_module_of_a_log() -> None:
    module = "".join(logged(memory_texts(SPLIT[0]), 5)).replace("\n", "\r\n")
    log = module + "".join(glog(7, "x.cc:1", "the end"))
    with resolve(log.encode()).members[0].load() as loaded:
        assert (loaded.crlf, loaded.first_bare_lf) == (True, None)


@pytest.mark.parametrize("others", [(), (0,), (1,), (3,), (0, 1, 2, 3)])
def test_the_first_line_with_another_newline_in_a_log(others: tuple[int, ...]) -> None:
    """It counts if it is one of the module, or the next one of the module if it stands between two."""
    lines = [f"{GLOG}{line}" for line in ALLOCATIONS.splitlines()]
    for i in reversed(others):
        lines.insert(i, "something else")
    data = [len("".join(f"{text}\n" for text in ALLOCATIONS.splitlines()[:i])) for i in range(4)]
    first = lines.index(f"{GLOG}BufferAssignment:")
    for n_crlf in range(first + 1, len(lines) + 2):
        log = "".join(f"{line}\r\n" if i < n_crlf else f"{line}\n" for i, line in enumerate([*lines, "the end"]))
        with resolve(log.encode()).members[0].load() as text:
            n_before = sum(line.startswith(GLOG) for line in lines[:n_crlf])
            assert text.crlf
            assert text.first_bare_lf == (data[n_before] if n_before < 3 else None), n_crlf


def test_a_truncated_log(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = list(glog(5, "buffer_assignment.cc:1", memory_texts(SPLIT[0])["buffer-assignment"]))
    path.write_text("".join(lines)[:-9])
    dump = xlamem.read(path)
    assert not dump.complete
    (last,) = (d for d in dump.diagnostics.to_pylist() if d["code"] == "truncated")
    assert last["line"] == len(lines)
    path.write_text(lines[0].removesuffix("\n"))
    with resolve(path).members[0].load() as log_text:
        assert log_text.data == b"BufferAssignment:"


@pytest.mark.parametrize("live_first", [True, False])
def test_one_thread_compiles_again_and_again(live_first: bool, tmp_path: Path) -> None:
    """A live range that is printed below the allocations is not that of the next module."""
    path = tmp_path / "x-buffer-assignment.txt"
    path.write_text("".join("".join(logged(memory_texts(f), 5, live_first=live_first)) for f in SPLIT))
    for i, folder in enumerate(SPLIT):
        assert tables(xlamem.read(path, module=i, text=True)) == plain(folder)


def test_a_live_range_belongs_to_one_module(tmp_path: Path) -> None:
    """The second module of the thread has none."""
    path = tmp_path / "x-buffer-assignment.txt"
    first, second = (memory_texts(f) for f in SPLIT)
    del second["live-range"]
    path.write_text("".join("".join(logged(texts, 5)) for texts in (first, second)))
    assert tables(xlamem.read(path, module=0, text=True)) == plain(SPLIT[0])
    dump = xlamem.read(path, module=1, text=True)
    assert dump.live_ranges.num_rows == 0
    assert dump.allocations.to_pylist() == plain(SPLIT[1])["allocations"]


# ---- concatenated files


@pytest.mark.parametrize("order", [ROLES, (ROLES[1], ROLES[0], *ROLES[2:])])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_cat(order: tuple[str, ...], newline: bytes, tmp_path: Path) -> None:
    path = tmp_path / "all-buffer-assignment.txt"
    found = [texts(find(DUMPS / f)[0]) for f in (*SPLIT, SINGLE[1])]
    path.write_bytes(b"".join(t[r] for t in found for r in order if r in t).replace(b"\n", newline))
    with pytest.raises(UsageError, match=r"holds 3 modules(.|\n)*2  all  [0-9,]+ bytes"):
        xlamem.read(path)
    with pytest.raises(UsageError, match="no module 3"):
        xlamem.read(path, module=3)
    (source,) = find(path)
    for i, folder in enumerate((*SPLIT, SINGLE[1])):
        for where in (path, source, path.read_bytes(), tmp_path):
            assert tables(xlamem.read(where, module=i, text=True)) == plain(folder), (i, where)
    apart = split_modules(source)
    assert [s.name for s in apart] == ["all"] * 3
    assert [split_modules(s) for s in apart] == [[s] for s in apart]


def test_a_file_of_one_module_is_not_split(tmp_path: Path) -> None:
    for folder in (SINGLE[0], SPLIT[0]):
        (source,) = find(DUMPS / folder)
        assert split_modules(source) == [source]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("hello", (None, None, "hello")),
        ("", (None, None, "")),
        (f"{GLOG}hello", (None, "18058", "hello")),
        ("I1120 12:03:29.928370 client.cc:2664] hello", (None, "", "hello")),
        ("2023-11-20 12:03:29.92: E client.cc:99] hello", (None, "", "hello")),
        ("12:   hello", ("12", None, "  hello")),
        (f"[rank3]: (pid=48) 2026-01-02T03:04:05Z {GLOG}hello", ("rank3 pid=48", "18058", "hello")),
        (f"[rank3]: 0: (pid=48) {GLOG}hello", ("rank3 0 pid=48", "18058", "hello")),
        ("[rank3]: 0: (pid=48) 1: hello", ("rank3 0 pid=48", None, "1: hello")),
        ("1: 2: 3: 2026-01-02T03:04:05+01:00 hello", ("1 2 3", None, "hello")),
        ("\x1b[36m(pid=7)\x1b[0m hello", ("pid=7", None, "hello")),
        ("[36m(pid=7)[0m hello", ("pid=7", None, "hello")),
        ("\x1b[32mhello\x1b[0m", (None, None, "hello")),
        ("[32mhello", (None, None, "[32mhello")),
        ("[node-1]hello", ("node-1", None, "hello")),
        ("[INFO 12] hello", (None, None, "[INFO 12] hello")),
        ("[rank] hello", (None, None, "[rank] hello")),
    ],
)
def test_prefixes_of_a_line(line: str, parts: tuple[str | None, str | None, str]) -> None:
    """At most three labels; the time of a container is none."""
    assert split_line(line) == parts


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("content", ["", "\n", "x", "x\n", "x\r", "\r", "x\r\ny"])
def test_what_a_frame_contains(content: str, newline: str) -> None:
    """All between its lines, without the newline before the end, which is as long as that of the first line."""
    begin, end = f"*** Begin a ***{newline}", f"{newline}*** End a ***{newline}"
    (span,) = member_spans(f"{begin}{content}{end}".encode())
    assert span == (len(begin), len(begin + content), "plain", "a")
    without_newline = f"{begin}*** End a ***{newline}"
    (span,) = member_spans(f"{without_newline}noise\n".encode())
    assert span == (len(begin), len(begin), "plain", "a")
    bare = f"{begin}x\n*** End a ***{newline}"  # a newline of another kind
    (span,) = member_spans(bare.encode())
    assert span == (len(begin), len(begin) + 1, "plain", "a")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_modules_and_frames_in_any_order(n: int) -> None:
    """Whatever stands between them, each module extends to the next one, and a frame has what is in it."""
    pieces = {
        "module": f"{ALLOCATIONS}more\n", "frame": frame("a", ALLOCATIONS), "other frame": frame("b", "text"),
        "open frame": f"*** Begin c ***\n{ALLOCATIONS}", "text": "noise\n", "empty": "\n",
    }  # fmt: skip
    for chosen in itertools.product(pieces, repeat=n):
        text, expected, begins = "", [], []  # type: tuple[str, list[tuple[int, int, str]], list[int]]
        for i, kind in enumerate(chosen):
            begin, after = len(text), "".join(pieces[k] for k in chosen[i + 1 :])
            text += pieces[kind]
            if kind == "open frame":  # up to the next frame, or to the end
                end = after.find("*** Begin ")
                expected.append((begin + 16, len(text) + (end if end >= 0 else len(after)), "c"))
                begins.append(begin)
                if end < 0:
                    break
            elif "frame" in kind:
                expected.append((begin + 16, len(text) - len("\n*** End a ***\n"), "ab"[kind[0] == "o"]))
                begins.append(begin)
            elif kind == "module" and not (expected and is_open(chosen[:i])):
                expected.append((begin, -1, ""))
                begins.append(begin)
        text = "".join(pieces[kind] for kind in chosen)
        if expected and not any(name for *_, name in expected):
            expected[0] = (0, *expected[0][1:])  # what stands before the first module is reported with it
        following = [*begins[1:], None]
        wanted = [
            (begin, following[i] if not name else end, "plain", name) for i, (begin, end, name) in enumerate(expected)
        ]
        found = [tuple(span) for span in member_spans(text.encode())]
        assert found == wanted, (chosen, text)


LIVE_IN_LOG = {thread: f"I1120 12:03:29.928370 {thread:7} x.cc:1] HloLiveRange (max 1):\n  0:p\n" for thread in (7, 8)}
MODULE_IN_LOG = {
    thread: "".join(f"I1120 12:03:29.928370 {thread:7} y.cc:2] {line}\n" for line in ALLOCATIONS.splitlines())
    for thread in (7, 8)
}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_logged_modules_and_others_in_any_order(n: int) -> None:
    """A logged one extends from its live range, the last one of its thread, to the next one of the thread."""
    pieces = {
        "text": "noise\n", "plain": ALLOCATIONS, "frame": frame("a", ALLOCATIONS + MODULE_IN_LOG[7]),
        "live 7": LIVE_IN_LOG[7], "module 7": MODULE_IN_LOG[7], "live 8": LIVE_IN_LOG[8], "module 8": MODULE_IN_LOG[8],
    }  # fmt: skip
    for chosen in itertools.product(pieces, repeat=n):
        at = [*itertools.accumulate((len(pieces[kind]) for kind in chosen), initial=0)]
        modules = [i for i, kind in enumerate(chosen) if kind.startswith("module")]
        first, following = {}, {}
        for i in modules:
            of_thread = [j for j, kind in enumerate(chosen) if kind.endswith(chosen[i][-1])]
            before = [j for j in of_thread if j < i][-1:]
            first[i] = before[0] if before and chosen[before[0]].startswith("live") else i
            following[i] = next((at[j] for j in of_thread if j > i and j in modules), None)
        bounds = sorted({at[i] for i, kind in enumerate(chosen) if kind in ("plain", "frame") or i in modules}
                        | {at[i] for i in first.values()})  # fmt: skip
        expected: list[tuple[int, int | None, str, str]] = [(at[first[i]], following[i], "log", "") for i in modules]
        for i, kind in enumerate(chosen):
            if kind == "frame":
                expected.append((at[i] + 16, at[i + 1] - len("\n*** End a ***\n"), "plain", "a"))
            elif kind == "plain":
                is_first = at[i] == bounds[0] and "frame" not in chosen
                end = next((bound for bound in bounds if bound > at[i]), None)
                expected.append((0 if is_first else at[i], end, "plain", ""))
        found = member_spans("".join(pieces[kind] for kind in chosen).encode())
        assert [tuple(span) for span in found] == sorted(expected), chosen


def test_the_text_of_a_log_is_released() -> None:
    """With that of the log itself."""
    log = Text(MODULE_IN_LOG[7].encode())
    with LogText(log) as text:
        assert text.data == ALLOCATIONS.encode()
        assert log.data
    assert (text.data, text.raw, log.data, log.raw) == (b"",) * 4


def test_a_module_of_a_log_is_not_split_again(tmp_path: Path) -> None:
    """The span may also cover the whole log, like that of a file with one module."""
    path = tmp_path / "train.log"
    path.write_text(MODULE_IN_LOG[7] + MODULE_IN_LOG[8])
    sources = find(path)
    assert [(s.members[0].begin, s.members[0].end) for s in sources] == [(0, None), (len(MODULE_IN_LOG[7]), None)]
    assert [split_modules(s) for s in sources] == [[s] for s in sources]


def is_open(kinds: tuple[str, ...]) -> bool:
    """Whether the last frame of these has no end."""
    frames = [kind for kind in kinds if "frame" in kind]
    return frames[-1:] == ["open frame"]


@pytest.mark.parametrize("text", ["", "x\n", "LIVE", "OTHER", "LIVE OTHER"])
def test_a_log_that_has_changed(text: str) -> None:
    """It was found to have a module, but neither begins with its allocations nor has them after its live range."""
    prefix = "2023-11-20 12:03:29.928370: I tensorflow/compiler/xla/buffer_assignment.cc:99] "
    lines = {"LIVE": f"{prefix}HloLiveRange (max 1):\n", "OTHER": f"{prefix}something else\n"}
    for name, line in lines.items():
        text = text.replace(name, line)
    with pytest.raises(DumpError, match=r"logged allocations \(the file has changed\)") as caught:
        LogText(Text(text.encode(), "x", base=7))
    assert (caught.value.path, caught.value.offset) == ("x", 7)
