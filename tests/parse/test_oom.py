"""Out-of-memory reports: real messages of the TPU compiler, and texts of the other forms."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xlamem import schema
from xlamem.cli import console
from xlamem.cli.verbs import oom as verb
from xlamem.errors import DumpError, UsageError
from xlamem.parse import oom
from xlamem.parse.oom import OomReport, read_oom, scan, size_of

DATA = Path(__file__).parents[1] / "data" / "oom"
REAL = sorted(DATA.glob("*.txt"))
TEMPS = DATA / "tpu-v5e-jax0.7.2-oom_temps.txt"

GPU = """\
RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2110783616 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    1.02GiB
              constant allocation:         0B
        maybe_live_out allocation:    4.89GiB
     preallocated temp allocation:    1.97GiB
  preallocated temp fragmentation:         0B (0.00%)
                 total allocation:    7.88GiB
              total fragmentation:       112B (nan%)
Peak buffers:
\tBuffer 1:
\t\tSize: 4.89GiB
\t\tOperator: op_type="dot" op_name="jit(dot)/a\\"b\\"/x[y=\\'z\\']\\n" source_file="/home/me/m.py" source_line=175
\t\tXLA Label: custom-call
\t\tShape: f32[5104,257152]
\t\t==========================

\tBuffer 2:
\t\tSize: 1004.50MiB
\t\tEntry Parameter Subshape: f16[2048,257152]
\t\t==========================
"""

VMEM = (
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom: Ran out of memory in memory "
    "space vmem while allocating on stack for %gmm.1 = f32[16384,512]{1,0:T(8,128)} custom-call(%p.1, %p.2), "
    'custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/gmm" source_file="k.py" source_line=7}. '
    "Scoped allocation with size 18.00M and limit 16.00M exceeded scoped vmem limit by 2.00M. It should not be possible"
)

OLD = """\
E1111 07:35:00.272763 140408571025152 handling.py:81] Closing session due to error From /job:worker/replica:0/task:0:
Compilation failure: Ran out of memory in memory space hbm. Used 41.74G of 16.00G hbm. Exceeded hbm capacity by 25.74G.

Total hbm usage >= 41.74G:
    reserved        528.00M
    program          41.22G
    arguments       unknown size

Output size unknown.

Program hbm requirement 41.22G:
    reserved           4.0K
    global           29.82M
    HLO temp         41.19G (24.2% utilization, 0.7% fragmentation (293.84M))

  Largest program allocations in hbm:

  1. Size: 32.00G
     Operator: op_type="FloorMod" op_name="slicewise_79/FloorMod"
     Shape: s32[8388608,8,4]{2,1,0:T(8,128)}
     Unpadded size: 1.00G
     Extra memory due to padding: 31.00G (32.0x expansion)
     XLA label: %copy.40488 = s32[8388608,8,4]{2,1,0:T(8,128)} copy(...), metadata={op_type="FloorMod" op_na...
     Allocation type: HLO temp
     ==========================

  Largest program arguments and outputs in hbm:

  1. Size: 16.00M
     Shape: f32[2048,2048]{1,0:T(8,128)}
     Unpadded size: 16.00M
     XLA label: %p.1 = f32[2048,2048]{1,0:T(8,128)} parameter(0)
     Allocation type: argument
     ==========================
"""

FITS = """\
XLA::TPU program HBM usage: 52.5K / 31.25G
Total hbm usage >= 260.14M:
    reserved            204B
    program            70.0K
    arguments             0B
Output size 0B; shares 0B with arguments.
Total host usage >= 0B:
    program         unknown size
Program vmem requirement 141.0K:
    scoped               40B
    HLO temp           76.0K (0.0% utilization: Unpadded (0B) Padded (0B), 100.0% fragmentation (76.0K))
Program hbm requirement 70.0K:
    overlays           70.0K
XLA::TPU program SMEM usage: 1.9K / 1.00M (3 parameters)
"""


def rows(found: OomReport, table: str, **where: Any) -> list[dict[str, Any]]:
    listed = getattr(found, table).to_pylist()
    return [r for r in listed if all(r[k] == v for k, v in where.items())]


def one(found: OomReport) -> dict[str, Any]:
    assert len(found) == 1
    return found.reports.to_pylist()[0]


def content(found: OomReport) -> Any:
    """All that a report says, but not where it stands."""
    places = ("rank", "thread", "line", "last_line", "same_as", "report")
    return [
        [{k: v for k, v in r.items() if k not in places} for r in getattr(found, t).to_pylist()]
        for t in ("reports", "usage", "buffers")
    ]


# -- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("139.5K", 142848),
        ("7.32G", 7859790152),
        ("528.00M", 528 << 20),
        ("1.25T", 5 << 38),
        ("384.0KiB", 384 << 10),
        ("5.56MiB", 5830083),
        ("-1.0KiB", -1024),
        ("unknown size", None),
        (None, None),
    ],
)
def test_sizes(text: str | None, size: int | None) -> None:
    assert size_of(text) == size


# -- real messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_real_messages_are_understood(path: Path) -> None:
    found = read_oom(path)
    row = one(found)
    assert row["complete"]
    assert found.unknown.num_rows == 0
    assert row["line"] == 1
    assert row["text"] == path.read_text().splitlines()[0]
    assert row["last_line"] == len(path.read_text().rstrip().splitlines())
    assert row["capacity_bytes"]
    for name, spec in oom.TABLES.items():
        assert getattr(found, name).schema == spec


def test_hbm_message() -> None:
    found = read_oom(TEMPS)
    row = one(found)
    assert (row["form"], row["memory_space"], row["code"]) == ("tpu_hbm", "hbm", None)
    assert (row["used_text"], row["capacity_text"], row["exceeded_text"]) == ("20.62G", "15.75G", "4.87G")
    assert row["used_bytes"] == round(20.62 * 2**30)
    temp = rows(found, "usage", part="program", label="HLO temp")[0]
    assert (temp["utilization"], temp["fragmentation"], temp["fragmentation_bytes"]) == ("86.8", "0.0", 142848)
    assert temp["unpadded_bytes"] == size_of("17.90G")
    assert [u["label"] for u in rows(found, "usage", part="total")] == ["total", "reserved", "program", "arguments"]
    assert [b["ordinal"] for b in rows(found, "buffers")] == list(range(1, 14))
    first, _, third = rows(found, "buffers")[:3]
    assert (first["size_text"], first["expansion"], first["padding_bytes"]) == ("7.32G", 1.2, size_of("1.35G"))
    assert first["op_name"] is None
    assert (third["op_name"], third["source_line"]) == ("jit(m_oom_temps)/outer/jit(sort)/sort", 24)
    assert third["shape"] == "bf16[40000,40000]{1,0:T(8,128)(2,1)}"
    assert third["xla_label"] == "convert.4 = convert(get-tuple-element.16)"


def test_newer_hbm_messages() -> None:
    long = read_oom(DATA / "tpu-v5e-jax0.9.1-oom_temps.txt")
    assert (one(long)["form"], one(long)["code"]) == ("tpu_hbm", "E1000")
    assert rows(long, "buffers")[-1]["stack_frame_id"] == 5
    short = read_oom(DATA / "tpu-v5e-oom_args.txt")
    row = one(short)
    assert (row["form"], row["code"], row["module_name"]) == ("tpu_e1000", "E1000", "jit_m_oom_args")
    assert (row["memory_space"], row["used_text"], row["capacity_text"]) == ("hbm", "48.00G", "15.75G")
    assert row["exceeded_bytes"] is None


def test_pallas_allocation() -> None:
    found = read_oom(DATA / "tpu-v5e-oom_vmem.txt")
    row = one(found)
    assert (row["form"], row["memory_space"], row["instruction"]) == ("tpu_allocation", "vmem", "m_oom_vmem.1")
    assert (row["requested_bytes"], row["capacity_bytes"]) == (536870912, 134217728)
    buffer = rows(found, "buffers")[0]
    assert (buffer["list"], buffer["shape"]) == ("failed allocation", "u8[536870912]{0}")
    assert buffer["allocation_type"] == "scoped"
    assert buffer["tag"].startswith("input window allocation for operator input 0. The window shape is f32[16384,8192]")
    smem = read_oom(DATA / "tpu-v5e-jax0.7.2-oom_smem.txt")
    assert rows(smem, "buffers")[0]["tag"] == "operand span for operand 0"
    assert rows(smem, "buffers")[0]["allocation_type"] is None


# -- other forms ---------------------------------------------------------------------------------


def test_peak_buffers() -> None:
    found = read_oom(GPU)
    row = one(found)
    assert (row["form"], row["requested_bytes"], row["complete"]) == ("peak_buffers", 2110783616, True)
    assert found.unknown.num_rows == 0
    stats = rows(found, "usage", part="stats")
    assert [s["label"] for s in stats] == [
        "parameter allocation",
        "constant allocation",
        "maybe_live_out allocation",
        "preallocated temp allocation",
        "preallocated temp fragmentation",
        "total allocation",
        "total fragmentation",
    ]
    assert [s["fragmentation"] for s in stats] == [None, None, None, None, "0.00", None, "nan"]
    first, second = rows(found, "buffers", list="peak buffers")
    assert first["op_name"] == "jit(dot)/a\"b\"/x[y='z']\n"
    assert (first["op_type"], first["source_file"], first["source_line"]) == ("dot", "/home/me/m.py", 175)
    assert (first["xla_label"], first["shape"], first["size_bytes"]) == (
        "custom-call",
        "f32[5104,257152]",
        size_of("4.89GiB"),
    )
    assert (second["parameter"], second["size_bytes"]) == ("f16[2048,257152]", 2009 << 19)
    assert second["shape"] == second["parameter"]


def test_peak_buffers_without_the_allocator() -> None:
    found = read_oom(GPU.split("\n", 1)[1])
    row = one(found)
    assert (row["form"], row["requested_bytes"], row["text"]) == (
        "peak_buffers",
        None,
        "BufferAssignment OOM Debugging.",
    )
    assert found.buffers.num_rows == 2


def test_scoped_vmem() -> None:
    for text in (VMEM, VMEM.replace(" Scoped", "\nScoped")):
        found = read_oom(text.encode())
        row = one(found)
        assert (row["form"], row["code"], row["memory_space"]) == ("tpu_vmem", "E1001", "vmem")
        assert (row["used_text"], row["capacity_text"], row["exceeded_text"]) == ("18.00M", "16.00M", "2.00M")
        assert row["instruction"].startswith("%gmm.1 = f32[16384,512]{1,0:T(8,128)} custom-call(")
        buffer = rows(found, "buffers")[0]
        assert (buffer["shape"], buffer["op_name"]) == ("f32[16384,512]{1,0:T(8,128)}", "jit(f)/gmm")
        assert row["complete"]


def test_vmem_list_without_sizes() -> None:
    entry = "  XLA label: %fusion.177 = (bf16[]) fusion(...), kind=kOutput\n  Allocation type: scoped\n\n"
    text = (
        "Compilation failure: Ran out of memory in memory space vmem. It should not be possible to run out.\n\n"
        "Largest program allocations in vmem:\n\n"
        "  XLA label: register allocator spill slots\n  Allocation type: scoped\n\n" + 2 * entry
    )
    found = read_oom(text.encode())
    assert one(found)["complete"]
    assert [b["ordinal"] for b in rows(found, "buffers")] == [1, 2, 3]
    assert {b["allocation_type"] for b in rows(found, "buffers")} == {"scoped"}
    assert found.unknown.num_rows == 0


def test_windows_of_a_pallas_kernel() -> None:
    """Each has a tag that says what it is for. The payload of the status repeats the message."""
    window = "window allocation for operator {0} 0. This allocation has 2 buffering levels."
    entry = "  {1}. Size: 128.00M\n     Shape: u8[134217728]{{0}}\n     Tag: {0}\n     ==========================\n\n"
    first = "Ran out of memory in memory space vmem. Used 256.00M of 128.00M vmem. Exceeded vmem capacity by 128.00M."
    text = (
        f"RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. {first}\n\n"
        "Program vmem requirement 256.00M:\n    scoped          256.00M\n\n  Largest program allocations in vmem:\n\n"
        + entry.format(f"input {window.format('input')}", 1)
        + entry.format(f"output {window.format('output')}", 2)
        + " [type.googleapis.com/tensorflow.tpu.CompilationResultProto='\\x08\\x12\\xb9\\x0b"
        + f"{first}\\n\\nProgram vmem requ...[truncated]']\n"
    )
    found = read_oom(text.encode())
    assert one(found)["used_text"] == "256.00M"
    tags = [b["tag"] for b in rows(found, "buffers")]
    assert tags == [f"{kind} {window.format(kind)}" for kind in ("input", "output")]
    assert found.unknown.num_rows == 0
    # Without the message, the payload is one.
    assert one(read_oom(text[text.index(" [type") :].encode()))["used_text"] == "256.00M"


def test_old_hbm_message() -> None:
    found = read_oom(OLD)
    row = one(found)
    assert (row["line"], row["used_text"], row["complete"]) == (2, "41.74G", True)
    assert found.unknown.num_rows == 0
    temp = rows(found, "usage", label="HLO temp")[0]
    assert (temp["utilization"], temp["unpadded_bytes"], temp["fragmentation"]) == ("24.2", None, "0.7")
    arguments = rows(found, "usage", label="arguments")[0]
    assert (arguments["bytes"], arguments["size_text"]) == (None, "unknown size")
    assert rows(found, "usage", part="output")[0]["bytes"] is None
    assert [b["list"] for b in rows(found, "buffers")] == ["program allocations", "program arguments and outputs"]
    assert rows(found, "buffers")[0]["expansion"] == 32


def test_programs_that_fit() -> None:
    log = "".join(f"I0320 03:59:34.722540     855 backend.cc:2163] {x}\n" for x in FITS.splitlines())
    for text in (FITS, log):
        found = read_oom(text)
        row = one(found)
        assert (row["form"], row["complete"]) == ("usage", True)
        assert found.unknown.num_rows == 0
        assert {u["memory_space"] for u in rows(found, "usage")} == {"hbm", "host", "vmem", "smem"}
        assert rows(found, "usage", part="compiled", memory_space="smem")[0]["capacity_bytes"] == 1 << 20
    twice = read_oom(log + log)
    assert twice.reports["line"].to_pylist() == [1, 15]
    assert twice.reports["same_as"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("text", "requested", "free", "space", "module"),
    [
        ("Out of memory while trying to allocate 34912723376 bytes.", 34912723376, None, None, None),
        ("Failed to allocate request for 154.06GiB (165425291480B) on device", 165425291480, None, None, None),
        (
            "Error allocating device buffer: Attempting to allocate 50.00M. That was not possible. "
            "There are 27.86M free.; (0x0x0_HBM0)",
            50 << 20,
            size_of("27.86M"),
            "hbm",
            None,
        ),
        (
            "Error loading program 'jit_step': Attempting to reserve 29.49G at the bottom of memory. "
            "That was not possible. There are 147.64M free, 0B reserved, and 147.64M reservable.",
            size_of("29.49G"),
            size_of("147.64M"),
            None,
            "jit_step",
        ),
    ],
)
def test_run_time(text: str, requested: int, free: int | None, space: str | None, module: str | None) -> None:
    row = one(read_oom(f"some log\nRESOURCE_EXHAUSTED: {text}\nmore\n".encode()))
    assert (row["form"], row["line"], row["complete"]) == ("runtime", 2, True)
    assert (row["requested_bytes"], row["free_bytes"]) == (requested, free)
    assert (row["memory_space"], row["module_name"]) == (space, module)


# -- logs ----------------------------------------------------------------------------------------

PREFIXES = {
    "torch": ("[rank{}]: ", "rank3"),
    "torchrun": ("[default{}]:", "default3"),
    "srun": ("{}: ", "3"),
    "srun-padded": ("  {}: ", "3"),
    "mpi": ("[1,{}]<stderr>:", "1,3"),
    "ray": ("\x1b[36m(MeshHostWorker pid={})\x1b[0m ", "MeshHostWorker pid=3"),
    "ray-ip": ("(pid=48{}, ip=10.68.6.4) ", "pid=483, ip=10.68.6.4"),
    "compose": ("worker-{}   | ", "worker-3"),
    "kubernetes": ("[pod/train-{}-xyz/main] ", "pod/train-3-xyz/main"),
    "docker": ("[rank{}]: 2026-01-02T03:04:05.678901Z ", "rank3"),
    "glog": ("[rank{}]: I1120 12:03:29.928370   18058 client.cc:2664] ", "rank3"),
    "threads": ("E1120 12:03:29.928370   1805{} client.cc:2664] ", None),
    "tf": ("2020-05-04 09:05:40.721128: E    157{} tensorflow/xla_util.cc:76] ", None),
}


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("message", [TEMPS.read_text(), GPU, OLD], ids=["hbm", "gpu", "old"])
def test_ranks_are_separated(name: str, message: str) -> None:
    prefix, label = PREFIXES[name]
    alone = content(read_oom(message))
    log = []
    for i, text in enumerate(message.splitlines()):
        for rank in range(4):
            log.append(prefix.format(rank) + text)
            if i % 7 == rank:
                log.append(prefix.format(7) + "step 17, loss 2.5, 12 tokens")
    found = read_oom("\n".join(log))
    assert len(found) == 4
    assert found.reports["same_as"].to_pylist() == [None, 0, 0, 0]
    assert found.reports["rank"].to_pylist()[3] == label
    assert found.unknown.num_rows == 0
    for report in range(4):
        for table, wanted in zip(("usage", "buffers"), alone[1:], strict=True):
            got = rows(found, table, report=report)
            assert [{k: v for k, v in r.items() if k != "report"} for r in got] == wanted


def test_ranks_start_at_different_times() -> None:
    lines = TEMPS.read_text().splitlines()
    log = []
    for i in range(len(lines) + 60):
        for rank in range(3):
            if 0 <= i - 30 * rank < len(lines):
                log.append(f"[rank{rank}]: {lines[i - 30 * rank]}")
    found = read_oom("\n".join(log))
    assert found.reports["rank"].to_pylist() == ["rank0", "rank1", "rank2"]
    assert found.buffers.num_rows == 39
    assert found.reports["complete"].to_pylist() == [True] * 3


def test_prefix_on_the_first_line_only() -> None:
    first = "[rank1]: E0528 07:02:44.350251   27487 client.cc:2826] Execution of replica 0 failed: "
    other = "I0528 07:02:44.350251   11111 other.cc:1] something else\n"
    lines = [first + GPU.splitlines()[0], *GPU.splitlines()[1:]]
    found = read_oom("\n".join(lines[:14]) + "\n" + other + "\n".join(lines[14:]) + "\n" + other)
    row = one(found)
    assert (row["rank"], row["thread"], row["form"]) == ("rank1", "27487", "peak_buffers")
    assert found.buffers.num_rows == 2
    assert found.unknown.num_rows == 0
    assert row["complete"]


def test_copies_in_a_traceback() -> None:
    message = TEMPS.read_text()
    log = f"Traceback (most recent call last):\n{message}\n\nThe above exception was the cause\n\n  x\n{message}\n"
    found = read_oom(log)
    assert found.reports["same_as"].to_pylist() == [None, 0]
    assert found.unknown.num_rows == 0
    assert found.reports["line"].to_pylist() == [2, 121]


def test_reports_with_other_buffers_are_no_copies() -> None:
    """Those of another program, or the rest of one that was cut off in another stream."""
    message = TEMPS.read_text()
    other = message.replace("     Unpadded size: 5.97G\n", "     Unpadded size: 5.96G\n", 1)
    assert other != message
    found = read_oom(f"{message}\n\n\nx\n{other}\n\n\nx\n{message}\n")
    assert found.reports["same_as"].to_pylist() == [None, None, 0]


@pytest.mark.parametrize("prefix", ["éàü", "→", "→→→→→→→→→→→→→→→→ 🙂", "\udcff"])
def test_copies_after_other_letters(prefix: str) -> None:
    message = TEMPS.read_text()
    found = read_oom(f"{prefix} {message}\n\n\nThe above exception\n{message}\n")
    assert found.reports["same_as"].to_pylist() == [None, 0]
    folded = "E: " + prefix * 40 + " " + json.dumps(message)[1:-1]
    assert content(read_oom(folded))[1:] == content(read_oom(message))[1:]


@pytest.mark.parametrize("message", [TEMPS.read_text(), GPU], ids=["hbm", "gpu"])
def test_folded_into_one_line(message: str) -> None:
    alone = content(read_oom(message))
    found = read_oom("noise\n" + json.dumps({"severity": "ERROR", "message": message, "n": 1}) + "\nnoise\n")
    assert content(found)[1:] == alone[1:]
    assert one(found)["line"] == 2
    assert one(found)["complete"]


def test_unknown_lines_are_kept() -> None:
    text = TEMPS.read_text().replace("     Unpadded size: 5.97G\n", "     Lifetime: 5 to 17\n", 1)
    found = read_oom(text)
    assert found.unknown.to_pylist() == [{"report": 0, "line": 17, "text": "     Lifetime: 5 to 17"}]
    assert rows(found, "buffers")[0]["unpadded_bytes"] is None
    assert found.buffers.num_rows == 13


def test_truncated_messages() -> None:
    data = TEMPS.read_bytes()
    whole = read_oom(data).buffers.to_pylist()
    for end in range(data.index(b"Ran out") + 40, len(data) - 60, 37):
        found = read_oom(data[:end])
        row = one(found)
        kept = [b for b in rows(found, "buffers") if b["complete"]]
        assert kept == whole[: len(kept)]
        inside = re.findall(rb"\. Size: \S+[BKMG]\n|={10,}", data[:end])[-1:] not in ([], [b"=" * 26])
        assert not (inside and row["complete"] and not re.search(rb"={10,}$", data[:end]))


@pytest.mark.parametrize(
    ("end", "understood"),
    [
        ("     Unpadded si", False),
        ("     XLA label: copy", True),
        ("     Shape: f32[40000", True),
        ("     =====", False),
        ("  2. Size: 7.3", False),
        ("  2. Si", False),
        ("    HLO temp         20.62G (86.8% util", False),
    ],
)
def test_truncated_lines(end: str, understood: bool) -> None:
    text = TEMPS.read_text()
    found = read_oom(text[: text.index(end)] + end)
    assert not one(found)["complete"]
    assert [u["text"] for u in rows(found, "unknown")] == ([] if understood else [end])


def test_what_follows_is_not_part_of_it() -> None:
    found = read_oom(TEMPS.read_text() + "\nbye")
    assert one(found)["complete"]
    assert found.unknown.num_rows == 0


def test_head_is_missing() -> None:
    text = TEMPS.read_text()
    found = read_oom(text[text.index("  Largest program") :])
    assert (one(found)["form"], found.buffers.num_rows, one(found)["complete"]) == ("tpu_hbm", 13, True)
    found = read_oom(GPU[GPU.index("Peak buffers") :])
    assert (one(found)["form"], found.buffers.num_rows) == ("peak_buffers", 2)


def test_other_text_is_no_report() -> None:
    text = "nothing here\nOut of memory\nTotal usage: 5\nBufferAssignment:\nallocation 0: size 4, constant:\n"
    found = read_oom(text.encode())
    assert len(found) == 0
    assert found.buffers.schema == oom.TABLES["buffers"]
    assert len(read_oom(b"")) == 0


def test_bytes_that_are_not_utf8() -> None:
    found = read_oom(TEMPS.read_bytes().replace(b"/home/user", b"/home/\xff\xfe"))
    assert rows(found, "buffers")[2]["source_file"].startswith("/home/\\xff\\xfe/")


def test_crlf() -> None:
    assert content(read_oom(TEMPS.read_bytes().replace(b"\n", b"\r\n"))) == content(read_oom(TEMPS))


def test_deep_in_a_log() -> None:
    noise = "".join(f"I1120 12:03:29.928370   18058 x.cc:1] step {i} Total Program Out\n" for i in range(60_000))
    text = noise + TEMPS.read_text() + "\n" + noise
    found = read_oom(text)
    assert one(found)["line"] == 60_001
    assert found.buffers.num_rows == 13


def test_anchor_at_the_edge_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_FIRST_BLOCK", 1024)
    monkeypatch.setattr(scan, "_BLOCK", 2048)
    message = (DATA / "tpu-v5e-oom_args.txt").read_bytes()
    for shift in range(0, 2100, 13):
        log = b"x" * shift + b"\n" + b"y" * 3000 + b"\n" + message
        assert one(read_oom(log))["line"] == 3
    for shift in range(900, 1030, 7):
        assert one(read_oom(b"x" * shift + b"\n" + message))["line"] == 2


def test_silent_streams_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_SILENT_LINES", 300)
    lines = TEMPS.read_text().splitlines()
    log = [f"[rank1]: {x}" for x in lines[:27]] + ["[rank2]: step"] * 1000 + [f"[rank1]: {x}" for x in lines[27:]]
    assert read_oom("\n".join(log)).reports["complete"].to_pylist() == [False]


# -- sources -------------------------------------------------------------------------------------


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, wanted = TEMPS.read_bytes(), content(read_oom(TEMPS))
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(data))
    assert content(read_oom(packed)) == wanted
    assert content(read_oom(str(TEMPS))) == wanted
    assert content(read_oom(gzip.compress(data))) == wanted
    assert content(read_oom(memoryview(data))) == wanted  # type: ignore[arg-type]
    with TEMPS.open("rb") as file:
        assert content(read_oom(file)) == wanted
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert content(read_oom("-")) == wanted
    with pytest.raises(DumpError):
        read_oom(tmp_path / "missing.log")
    with pytest.raises(DumpError, match="`xlamem peak` reads dumps"):
        read_oom(tmp_path)
    with pytest.raises(UsageError):
        read_oom(object())  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes and devices")
def test_pipes_and_devices(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"/dev/null: expected a log \(this is a device\)"):
        read_oom("/dev/null")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(TEMPS.read_bytes(),))
    writer.start()
    assert content(read_oom(pipe)) == content(read_oom(TEMPS))
    writer.join()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("packed", [False, True])
def test_a_log_is_decompressed_wherever_it_comes_from(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = content(read_oom(TEMPS))
    data = gzip.compress(TEMPS.read_bytes()) if packed else TEMPS.read_bytes()
    file, pipe = tmp_path / "log", tmp_path / "pipe"
    file.write_bytes(data)
    os.mkfifo(pipe)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    writer = threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True)
    writer.start()
    with file.open("rb") as opened:
        for source in (data, file, str(file), file.as_uri(), opened, io.BytesIO(data), "-", pipe):
            assert content(read_oom(source)) == expected
    writer.join()


@pytest.mark.parametrize("source", ["file", "-"])
def test_a_file_object_that_fails(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=Broken()))
    with pytest.raises(DumpError, match="Input/output error") as caught:
        read_oom("-" if source == "-" else Broken())  # type: ignore[arg-type]
    assert caught.value.system


def test_every_column_is_described() -> None:
    for table in schema.OOM.values():
        assert table.row
        assert all(column.doc for column in table.columns)


# -- the verb ------------------------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    code = verb.command.main(list(args), standalone_mode=False)
    assert code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_screen(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", lambda: 80)
    lines = shown(capsys, str(path)).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) <= 40


def test_screen_says_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(TEMPS))
    assert "20.62 GiB of 15.75 GiB: 4.87 GiB over" in text
    assert "1.35 GiB padding (1.2x)" in text
    assert "/home/user/model/scripts/oom.py:24" in text
    assert "padding takes 2.70 GiB" in text
    assert text.count("f32[40000,313,128]") == 3
    assert shown(capsys, str(TEMPS), "--limit", "1").count("f32[40000,313,128]") == 2


def test_screen_of_other_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", lambda: 80)
    log = tmp_path / "log"
    for text, wanted in (
        (GPU, "entry parameter f16[2048,257152]"),
        (OLD, "32 times its unpadded size"),
        (VMEM, "18.00 MiB of 16.00 MiB: 2.00 MiB over"),
        (FITS, "a program that fits"),
        (FITS + FITS, "no failure, but 2 reports"),
        (TEMPS.read_text() + FITS, "also 1 report"),
        (TEMPS.read_text() + "\n" + TEMPS.read_text(), "1 time with the same text"),
        (OLD[:700], "TRUNCATED"),
    ):
        log.write_text(text)
        said = shown(capsys, str(log))
        assert wanted in " ".join(said.split())
        assert all(len(line) <= 80 for line in said.splitlines())


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(shown(capsys, str(TEMPS), "--json"))
    assert len(data["buffers"]) == 13
    assert data["reports"][0]["form"] == "tpu_hbm"


def test_nothing_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "Total hbm usage >= 1G"
    log.write_text("all is well\n")
    assert verb.command.main([str(log)], standalone_mode=False) == 3
    assert "expected an out-of-memory report" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 30, "9" * 5000], ids=["2^63", "30", "5000"])
@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_numbers_of_more_than_63_bits_are_null(path: Path, number: str, tmp_path: Path) -> None:
    text = re.sub(r"(?<=size=)\d+|\d+(?=\. Size: |[.\d]*[KMG]\b| bytes)", number, path.read_text())
    other = GPU.replace("2110783616", number).replace("Buffer 1:", f"Buffer {number}:")
    assert number in text
    found = read_oom(f"noise\n{text}\nnoise\n{other}")
    assert len(found) >= 1
    tables = [getattr(found, name) for name in oom.TABLES]
    sizes = [t[c].to_pylist() for t in tables for c in t.column_names if c.endswith("bytes")]
    assert any(size is None for column in sizes for size in column)
    (tmp_path / "log").write_text(text)
    assert verb.command.main([str(tmp_path / "log")], standalone_mode=False) == 0


def test_half_an_escape_of_two_is_no_character() -> None:
    whole = json.dumps(GPU.replace("custom-call", "\N{GRINNING FACE}"))
    assert r"\ud83d\ude00" in whole
    for text, label in ((whole, "\N{GRINNING FACE}"), (whole.replace(r"\ude00", ""), "\N{REPLACEMENT CHARACTER}")):
        assert read_oom(f'{{"message": {text}}}\n').buffers["xla_label"].to_pylist()[0] == label


BFC = (
    "2025-05-03 10:12:11.123456: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out "
    "of memory trying to allocate {} requested by op \nCurrent allocation summary follows.\n"
)


def test_a_warning_of_the_allocator_alone() -> None:
    row = one(read_oom("step 1\n" + BFC.format("16.00GiB (rounded to 17179869184)")))
    assert (row["form"], row["line"], row["requested_bytes"]) == ("runtime", 2, 17179869184)


@pytest.mark.parametrize("request_text", ["17179869000 bytes", "16.00GiB"])
def test_a_warning_of_the_allocator_before_the_error(request_text: str) -> None:
    """The error says the same and more. The allocator rounds the request up to 256 bytes."""
    error = f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {request_text}.\n"
    warning = BFC.format("16.00GiB (rounded to 17179869184)")
    assert one(read_oom(warning + error))["line"] == 3
    other = BFC.format("2.00GiB (rounded to 2147483648)")
    assert read_oom(other + error).reports["line"].to_pylist() == [1, 3]


def test_a_warning_of_the_allocator_about_no_failure() -> None:
    text = "16.00GiB with freed_by_count=0. The caller indicates that this is not a failure, but"
    assert len(read_oom(BFC.format(text))) == 0


def test_a_warning_of_another_rank() -> None:
    log = "[rank1]: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\n"
    found = read_oom(log + "[rank0]: " + BFC.format("1.00GiB (rounded to 1073741824)"))
    assert found.reports["rank"].to_pylist() == ["rank1", "rank0"]
    same = read_oom(log + "[rank1]: " + BFC.format("1.00GiB (rounded to 1073741824)"))
    assert same.reports["rank"].to_pylist() == ["rank1"]


def test_a_warning_with_buffers_below_it() -> None:
    """The message that repeats the request has none."""
    warning = BFC.format("1.00GiB (rounded to 1073741824)")
    buffers = GPU.partition("\n")[2]
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\n"
    alone = read_oom(warning + buffers)
    found = read_oom(warning + buffers + error)
    assert alone.buffers.num_rows > 0
    assert found.buffers.num_rows == alone.buffers.num_rows
    assert found.reports["form"].to_pylist() == ["peak_buffers", "runtime"]


def test_a_warning_with_a_list_of_a_program_below_it() -> None:
    """The message that repeats the request lacks the list."""
    listed = OLD[OLD.index("  Largest program allocations") :]
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\n"
    found = read_oom(BFC.format("1.00GiB (rounded to 1073741824)") + listed + error)
    assert found.reports["form"].to_pylist() == ["runtime", "runtime"]
    assert {row["report"] for row in rows(found, "buffers")} == {0}


HBM_OOM = "Ran out of memory in memory space hbm. Used 2G of 1G hbm."
PEAK_BUFFERS = "Out of memory while trying to allocate 2 bytes.\nPeak buffers:\n\tBuffer 1:"


@pytest.mark.parametrize(
    ("first", "others", "last", "lines"),
    [
        (PEAK_BUFFERS, 14, "Peak buffers:", [1, 2, 18]),
        (PEAK_BUFFERS, 15, "Peak buffers:", [1, 2, 19]),
        (PEAK_BUFFERS, 16, "Peak buffers:", [1, 2, 20]),
        (HBM_OOM, 15, "Total hbm usage >= 20.87G:", [1]),
        (HBM_OOM, 16, "Total hbm usage >= 20.87G:", [1, 18]),
    ],
)
def test_a_message_that_ends_before_a_line_that_could_continue_it(
    first: str, others: int, last: str, lines: list[int]
) -> None:
    """After 16 lines that do not match, a message is finished, also by a line that begins another list."""
    found = read_oom("\n".join([first, *(f"step {i}" for i in range(others)), last]))
    assert found.reports["line"].to_pylist() == lines
