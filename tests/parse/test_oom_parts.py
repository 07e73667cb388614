"""Out-of-memory reports: parts of messages that are rare, and messages that end early or are mixed with others."""

from __future__ import annotations

import json

import pytest
from test_oom import FITS, GPU, OLD, TEMPS, content, one, rows

from xlamem.parse.oom import read_oom, scan, size_of

HBM = TEMPS.read_text()
LOGGED = "E1120 12:03:29.928370   18058 client.cc:2664] "
LAST_LINE = "     =========================="
VMEM_LIST = """\
Compilation failure: Ran out of memory in memory space vmem. It should not be possible to run out.

Largest program allocations in vmem:

  XLA label: register allocator spill slots
  Allocation type: scoped

  XLA label: %fusion.177 = (bf16[]) fusion(...), kind=kOutput
  Allocation type: scoped

"""


# -- cells ---------------------------------------------------------------------------------------


def test_sizes_at_the_limit() -> None:
    assert size_of("7.99E") == round(7.99 * 2**60)
    assert size_of("8.00E") is None, "2^63 bytes"


def test_escapes_in_metadata() -> None:
    """A compiler may write any byte; octal numbers above 255 keep their lower bits."""
    found = read_oom(GPU.replace("jit(dot)/", r"\101\x42\v\f\777/", 1))
    assert rows(found, "buffers")[0]["op_name"].startswith("AB\v\f\\xff/")


def test_metadata_in_the_label_only() -> None:
    found = read_oom(OLD.replace('     Operator: op_type="FloorMod" op_name="slicewise_79/FloorMod"\n', ""))
    first = rows(found, "buffers")[0]
    assert (first["operator"], first["op_type"], first["op_name"]) == (None, "FloorMod", None)


def test_the_operator_counts_more_than_metadata_in_the_label() -> None:
    text = 'metadata={op_type="FloorMod" op_na...'
    assert text in OLD
    first = rows(read_oom(OLD.replace(text, 'metadata={op_type="Mod" op_name="other"}', 1)), "buffers")[0]
    assert first["xla_label"].endswith('op_name="other"}')
    assert (first["operator"], first["op_type"]) == ('op_type="FloorMod" op_name="slicewise_79/FloorMod"', "FloorMod")
    assert first["op_name"] == "slicewise_79/FloorMod"


def test_the_shape_of_an_allocation_is_not_that_of_its_instruction() -> None:
    text = "Allocation (size=8) would exceed memory (size=4) :: #a1 [space=vmem] :: %x.1 = f32[4]{0} custom-call()"
    with_shape = text.replace("space=", "shape = 'u8[8]{0}', space=")
    assert [rows(read_oom(t), "buffers")[0]["shape"] for t in (text, with_shape)] == ["f32[4]{0}", "u8[8]{0}"]


def test_all_that_is_said_of_an_allocation() -> None:
    text = "Allocation (size=8) would exceed memory (size=4) :: #a [shape = 'u8[8]{0}', space=VMEM, scoped, tag = 't']"
    found = read_oom(f"{text} :: %x.1 = f32[4]{{0}} custom-call()")
    row = {key: value for key, value in one(found).items() if value is not None and "line" not in key}
    assert row == {
        "report": 0, "form": "tpu_allocation", "memory_space": "vmem", "complete": True,
        "requested_bytes": 8, "requested_text": "8", "capacity_bytes": 4, "capacity_text": "4",
        "instruction": "%x.1 = f32[4]{0} custom-call()", "text": f"{text} :: %x.1 = f32[4]{{0}} custom-call()",
    }  # fmt: skip
    (buffer,) = rows(found, "buffers")
    assert {key: value for key, value in buffer.items() if value is not None} == {
        "report": 0, "list": "failed allocation", "ordinal": 1, "memory_space": "vmem", "complete": True,
        "size_text": "8", "size_bytes": 8, "xla_label": "%x.1 = f32[4]{0} custom-call()", "shape": "u8[8]{0}",
        "tag": "t", "allocation_type": "scoped",
    }  # fmt: skip


def test_numbers_of_entries_without_numbers() -> None:
    """They are counted from 1 in each list."""
    arguments = VMEM_LIST[VMEM_LIST.index("Largest") :].replace("allocations", "arguments and outputs")
    found = read_oom(VMEM_LIST + arguments)
    assert [b["ordinal"] for b in rows(found, "buffers")] == [1, 2, 1, 2]
    assert one(found)["complete"]


# -- sentences and lines -------------------------------------------------------------------------


def test_a_scoped_allocation_of_another_space() -> None:
    """Its sentence may be split into two lines, and a later one does not replace it."""
    scoped = "Scoped allocation with size 1.00M and limit 512.0K exceeded scoped cmem limit by 512.0K.\n"
    head = "Ran out of memory in memory space cmem while allocating on stack for %x.1 = f32[4]{0} custom-call()."
    for text in (f"{head} {scoped}", f"{head}\n{scoped}"):
        found = read_oom(text)
        row = one(found)
        assert (row["form"], row["memory_space"], row["used_text"]) == ("tpu_space", "cmem", "1.00M")
        assert row["instruction"] == "%x.1 = f32[4]{0} custom-call()"
        assert rows(found, "buffers")[0]["shape"] == "f32[4]{0}"
    again = scoped.replace("1.00M", "2.00M")
    twice = read_oom(f"{head}\n{scoped}{again}See https://a.b/c for more details.\n")
    assert (one(twice)["used_text"], twice.buffers.num_rows) == ("1.00M", 1)
    assert twice.unknown["text"].to_pylist() == [again.strip()]


def test_words_before_a_sentence_are_not_part_of_it() -> None:
    asked = "Attempting to allocate 50.00M. That was not possible. There are 27.86M free."
    assert one(read_oom(f"(task_A1): {asked}\n"))["memory_space"] is None
    assert one(read_oom(f"(task_A1): {asked}; (0x0x0_HBM0)\n"))["memory_space"] == "hbm"
    allocation = "space=other, Allocation (size=8) would exceed memory (size=4) :: #a1"
    assert one(read_oom(f"{allocation}\n"))["memory_space"] is None
    found = read_oom(f"{allocation} [space=smem, scoped]\n")
    assert (one(found)["memory_space"], rows(found, "buffers")[0]["allocation_type"]) == ("smem", "scoped")


def test_little_that_is_free() -> None:
    asked = "Attempting to allocate 50.00M. That was not possible. There is 1B free.\n"
    assert (one(read_oom(asked))["free_text"], one(read_oom(asked))["free_bytes"]) == ("1B", 1)


def test_an_output_of_unknown_size() -> None:
    (output,) = rows(read_oom(OLD), "usage", part="output")
    assert (output["label"], output["size_text"], output["bytes"]) == ("output", "unknown", None)


@pytest.mark.parametrize(("space", "form"), [("hbm", "tpu_hbm"), ("vmem", "tpu_vmem"), ("cmem", "tpu_space")])
def test_the_first_lines_are_missing(space: str, form: str) -> None:
    found = read_oom(VMEM_LIST[VMEM_LIST.index("Largest") :].replace("vmem", space))
    assert (one(found)["form"], one(found)["memory_space"]) == (form, space)
    assert {b["memory_space"] for b in rows(found, "buffers")} == {space}


def test_lines_that_ray_counted() -> None:
    """Ray prints equal lines of several workers once."""
    shape = "     Shape: f32[40000,313,128]{1,0,2:T(8,128)}\n"
    for more in ("", " (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication)"):
        text = HBM.replace(shape, f"{shape.rstrip()} [repeated 3x across cluster]{more}\n")
        assert content(read_oom(text))[1:] == content(read_oom(HBM))[1:]


@pytest.mark.parametrize(
    ("text", "after", "line"),
    [
        (HBM, "capacity by 4.87G.\n", "Output size 1.0K"),
        (HBM, "  1. Size: 7.32G\n", "     Scratch            1.0K"),
        (HBM, "  1. Size: 7.32G\n", "     Output size 1.0K"),
        (HBM, "  1. Size: 7.32G\n", "     Buffer 7:"),
        (HBM, "    reserved        258.00M \n", "    scratch           1.0K (12.0% busy)"),
        (HBM, "    reserved        258.00M \n", "    Size: 1.0K"),
        (GPU, "\tBuffer 1:\n", "\t\tScratch: 1.0KiB"),
        (GPU, "\tBuffer 1:\n", "\t\tSize: many"),
        (GPU, "\tBuffer 1:\n", "\t\tSize: 1.0KiB of 2"),
        (GPU, "\tBuffer 1:\n", "\t\t7. Size: 1.0KiB"),
    ],
)
def test_known_lines_in_other_places_are_unknown(text: str, after: str, line: str) -> None:
    found = read_oom(text.replace(after, f"{after}{line}\n", 1))
    assert [u["text"] for u in rows(found, "unknown")] == [line]
    whole = read_oom(text)
    assert (found.usage, found.buffers) == (whole.usage, whole.buffers)


def test_padding_without_a_factor() -> None:
    first = rows(read_oom(HBM.replace(" (1.2x expansion)", "", 1)), "buffers")[0]
    assert (first["padding_bytes"], first["expansion"]) == (size_of("1.35G"), None)


def test_statistics_of_a_program_that_fits() -> None:
    stats = GPU[GPU.index("BufferAssignment stats") : GPU.index("Peak")]
    found = read_oom(FITS + stats)
    assert (one(found)["form"], found.unknown.num_rows) == ("usage", 0)
    assert {u["memory_space"] for u in rows(found, "usage", part="stats")} == {None}
    assert rows(found, "usage", label="total fragmentation")[0]["fragmentation_bytes"] == 112
    assert found.usage["ordinal"].to_pylist() == [*range(found.usage.num_rows)]


@pytest.mark.parametrize("statistics", ["", "BufferAssignment stats:\n  total allocation: 2.00M\n"])
def test_peak_buffers_below_the_totals_of_a_space(statistics: str) -> None:
    """Neither the statistics nor the list belong to that space."""
    totals = "Total hbm usage >= 1.00G:\n    program 1.00G\n"
    buffers = "Peak buffers:\n\tBuffer 1:\n\t\tSize: 1.00M\n\t\tXLA Label: fusion\n\t\t==========================\n"
    found = read_oom(f"{totals}{statistics}{buffers}")
    assert one(found)["form"] == "peak_buffers"
    spaces = [(u["part"], u["memory_space"]) for u in rows(found, "usage")]
    assert spaces == [("total", "hbm")] * 2 + [("stats", None)] * bool(statistics)
    assert [(b["list"], b["memory_space"]) for b in rows(found, "buffers")] == [("peak buffers", None)]


def test_peak_buffers_after_another_message() -> None:
    """They are not those of a message of the TPU compiler."""
    found = read_oom(HBM + GPU[GPU.index("Peak buffers") :])
    assert found.reports["form"].to_pylist() == ["tpu_hbm", "peak_buffers"]
    assert found.reports["thread"].to_pylist() == [None, None]
    assert found.buffers["report"].to_pylist() == [0] * 13 + [1] * 2


def test_rows_of_a_second_report() -> None:
    other = HBM.replace("     Unpadded size: 5.97G\n", "     Lifetime: 5 to 17\n", 1)
    found = read_oom(f"{OLD}\n{other}")
    assert found.unknown["report"].to_pylist() == [1]
    for report in (0, 1):
        ordinals = [u["ordinal"] for u in rows(found, "usage", report=report)]
        assert ordinals == [*range(len(ordinals))]


# -- messages that end early ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Ran out of memory in memory space hbm. Us\n",
        HBM[: HBM.index("    reserved")],
        HBM[: HBM.index("  1. Size")],
        GPU[: GPU.index("Peak buffers:")],
        GPU[: GPU.index("\tBuffer 1:")],
        HBM.replace(LAST_LINE + "\n", "", 1),
        OLD.replace(LAST_LINE + "\n", "", 1),
    ],
    ids=["sentence", "totals", "list", "statistics", "peak", "buffer", "last-buffer-of-a-list"],
)
def test_a_part_is_missing(text: str) -> None:
    """Though the last line is whole."""
    assert not one(read_oom(text))["complete"]


def test_a_buffer_without_an_end_is_not_complete() -> None:
    for text in (HBM, OLD):
        found = read_oom(text.replace(LAST_LINE + "\n", "", 1))
        complete = [b["complete"] for b in rows(found, "buffers")]
        assert complete == [False, *[True] * (len(complete) - 1)]


def test_totals_of_a_program_that_fits_may_be_short() -> None:
    assert one(read_oom(FITS.splitlines()[1]))["complete"]


def test_a_log_that_ends_in_an_entry_without_a_size() -> None:
    whole, cut = VMEM_LIST.rstrip(), VMEM_LIST[: VMEM_LIST.rindex("Allocation type") + 5]
    assert [b["complete"] for b in rows(read_oom(whole), "buffers")] == [True, True]
    assert [b["complete"] for b in rows(read_oom(cut), "buffers")] == [True, False]
    assert [u["text"] for u in rows(read_oom(cut), "unknown")] == ["  Alloc"]


def test_a_log_that_ends_in_a_line_indented_by_a_tab() -> None:
    found = read_oom(GPU[: GPU.index("\tBuffer 2:")] + "\tBuff")
    assert not one(found)["complete"]
    assert [u["text"] for u in rows(found, "unknown")] == ["\tBuff"]


def test_indented_lines_that_follow() -> None:
    """One at the very end may be the message's, cut off; the last lines of a traceback are not."""
    whole = HBM.rstrip()
    assert one(read_oom(f"{whole}\n  File a.py"))["complete"] is False
    assert one(read_oom(f"{whole}\n  File a.py\n    x = 1"))["complete"] is True
    assert one(read_oom(f"{whole}\n  File a.py\n"))["complete"] is True


@pytest.mark.parametrize(("between", "kept"), [("", ["bye"]), ("\n", [])])
def test_what_follows_an_open_buffer(between: str, kept: list[str]) -> None:
    """The line just below it may be a field of it that this version does not know."""
    cut = HBM[: HBM.index("     Unpadded size")]
    found = read_oom(f"{cut}{between}bye\n")
    assert [u["text"] for u in rows(found, "unknown")] == kept
    assert read_oom(f"{HBM.rstrip()}\nbye\n").unknown.num_rows == 0


# -- messages among other lines ------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", LOGGED])
@pytest.mark.parametrize(("n", "ends"), [(15, False), (16, True)])
def test_a_message_ends_after_many_unknown_lines(prefix: str, n: int, ends: bool) -> None:
    """Whether each line was logged separately or not."""
    lines = HBM.splitlines()
    log = [prefix + line for line in (*lines[:22], *["other"] * n, *lines[22:])]
    found = read_oom("\n".join(log))
    assert found.unknown.num_rows == (0 if ends else n)
    assert rows(found, "buffers")[-1]["ordinal"] == (1 if ends else 13)


def test_later_lines_of_the_thread_of_a_message_in_one_statement() -> None:
    """Only its first line has a prefix: after a few lines with the same prefix, it is over."""
    lines = HBM.splitlines()
    log = [LOGGED + lines[0], *lines[1:22], *[f"{LOGGED}step {i}" for i in range(4)], *lines[22:]]
    assert [b["ordinal"] for b in rows(read_oom("\n".join(log)), "buffers")] == [1]


@pytest.mark.parametrize(
    ("prefix", "other"), [(f"[rank1]: {LOGGED}", "[rank1]: "), (LOGGED, ""), ("[rank1]: ", "")]
)
def test_lines_without_the_prefix_of_every_line_belong_to_others(prefix: str, other: str) -> None:
    lines = HBM.splitlines()
    log = [prefix + line for line in lines[:22]] + [f"{other}step 1"] * 20 + [prefix + line for line in lines[22:]]
    found = read_oom("\n".join(log))
    assert (found.buffers.num_rows, found.unknown.num_rows, one(found)["complete"]) == (13, 0, True)


def test_a_message_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other lines end a message only if none of its own is among them."""
    monkeypatch.setattr(scan, "MAX_SILENT_LINES", 300)
    log = [text for line in HBM.splitlines() for text in (f"[rank1]: {line}", *["[rank2]: step"] * 20)]
    assert len(log) > 1000
    assert one(read_oom("\n".join(log)))["complete"]


def test_a_message_inside_of_another() -> None:
    """Both are kept, in the order in which they begin."""
    lines = [f"[rank1]: {line}" for line in HBM.splitlines()]
    found = read_oom("\n".join([lines[0], "Out of memory while trying to allocate 5 bytes.", *lines[1:]]))
    assert found.reports["form"].to_pylist() == ["tpu_hbm", "runtime"]
    assert found.reports["rank"].to_pylist() == ["rank1", None]
    assert len(rows(found, "buffers", report=0)) == 13


def test_lines_without_a_prefix_belong_to_the_latest_message() -> None:
    """Two threads fail, and each logs its message in one statement: only the first lines have a prefix."""
    first, *others = HBM.splitlines()
    log = [LOGGED + first, LOGGED.replace("18058", "18059") + first, *others]
    found = read_oom("\n".join(log))
    assert found.reports["thread"].to_pylist() == ["18058", "18059"]
    assert found.buffers["report"].to_pylist() == [1] * 13


def test_a_message_after_a_folded_one() -> None:
    """What is folded ends with its line."""
    found = read_oom(f"{json.dumps(HBM)}\n{FITS}")
    assert found.reports["form"].to_pylist() == ["tpu_hbm", "usage"]
    assert found.reports["line"].to_pylist() == [1, 2]


SMALL = "Allocation (size=8) would exceed memory (size=4) :: #a1 [shape = 'u8[8]{0}', space=vmem] :: kernel.1"


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"n": 'a "b" \\', "message": f"RESOURCE_EXHAUSTED: {SMALL}"}), f'  "message": "{SMALL}",',
        f"failed: {RuntimeError(SMALL)!r}", f"{[RuntimeError('x'), RuntimeError(SMALL)]}",
        f"RuntimeError('x'): {SMALL}", f'{{"rank": 0}} {SMALL}', SMALL,
    ],
)  # fmt: skip
def test_the_end_of_a_quoted_message(line: str) -> None:
    """The quotes and brackets of JSON or of the repr of an exception are not part of the last word."""
    (report,) = rows(read_oom(f"{line}\n"), "reports")
    assert report["instruction"] == "kernel.1"


def test_the_module_of_a_short_message() -> None:
    text = (
        "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (48.00G) "
        "exceeds available HBM (15.75G). HLO module: jit_f.\nSee https://openxla.org/xla/errors/error_1000 for more."
    )
    for line in (text, json.dumps({"message": text}), repr(RuntimeError(text))):
        assert rows(read_oom(f"{line}\n"), "reports")[0]["module_name"] == "jit_f"


def test_folded_with_carriage_returns() -> None:
    text = json.dumps({"message": HBM.replace("\n", "\r\n")})
    assert content(read_oom(f"{text}\n"))[1:] == content(read_oom(HBM))[1:]


@pytest.mark.parametrize(
    "line",
    [
        "Extra memory due to padding: 31.00G (32.0x expansion)", "Unpadded size: 1.00G", "Operator: op_name=\"x\"",
        "Shape: f32[4]", "Size: 4B", "Tag: t", "==========================", "Buffer 1:", "1. Size: 32.00G",
        "Allocation type: HLO temp", "stats allocation: 4B", "parameter allocation: 1.02GiB (2.00%)",
    ],
)  # fmt: skip
def test_lines_that_belong_to_nothing(line: str) -> None:
    """They are kept as unknown, and change nothing else."""
    first, *more = HBM.split("\n")
    assert "Total hbm usage" in HBM
    at = next(i for i, text in enumerate(more) if "Total hbm usage" in text)
    expected = read_oom(HBM)
    found = read_oom("\n".join([first, *more[:at], line, *more[at:]]))
    assert rows(expected, "unknown") == []
    assert [row["text"] for row in rows(found, "unknown")] == [line]
    assert content(found) == content(expected)
