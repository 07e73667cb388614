"""The screen of an out-of-memory error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from xlamem.cli import main

TOTAL = """XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory \
space hbm. Used 16.00G of 15.75G hbm. Exceeded hbm capacity by 258.00M.

Total hbm usage >= 16.25G:
    reserved        258.00M
    program         unknown size
    arguments        16.00G

Output size 16.00G; shares SHARED with arguments.

Program hbm requirement 0B:
"""
ONE = (
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Allocation (size=25769803776) would exceed memory (size=17179869184) :: "
    "#allocation7 [shape = 'f32[48,65536,2048]{2,1,0:T(8,128)}', space=SPACE, size = 0xffffffffffffffff, "
    "tag = 'output of custom-call.1@{}'] :: <no-hlo-instruction>\n"
)


@pytest.fixture
def screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    def shown(text: str) -> str:
        (tmp_path / "error.txt").write_text(text)
        main(["oom", str(tmp_path / "error.txt")])
        return capsys.readouterr().out

    return shown


def test_outputs_that_the_total_leaves_out(screen: Callable[[str], str]) -> None:
    line = "→ HBM total leaves out 16.00 GiB of outputs\n"
    assert line in screen(TOTAL.replace("SHARED", "0B"))
    assert "leaves out" not in screen(TOTAL.replace("SHARED", "16.00G"))
    assert "leaves out" not in screen(TOTAL.replace("SHARED", "0B").replace("unknown size", "0B"))


def test_an_empty_output_alone_has_no_breakdown(screen: Callable[[str], str]) -> None:
    out = screen("BufferAssignment stats:\nOutput size SIZE; shares 0B with arguments.\nPeak buffers:\n")
    assert out.startswith("out of memory; the program's largest buffers\n")
    assert "breakdown" not in out
    wanted = "breakdown\n    output  1.00 GiB\n"
    assert "".join(wanted.split()) in "".join(screen("BufferAssignment stats:\nOutput size 1.00G.\n").split())


def test_one_allocation_leads_to_a_dump(screen: Callable[[str], str]) -> None:
    out = screen(ONE.replace("SPACE", "hbm"))
    assert "→ this message names one buffer, and a dump all of them" in out
    assert out.endswith("  xlamem dumps --capacity 16.00GiB\n")
    assert "no-hlo-instruction" not in out
    assert "xlamem dumps" not in screen(ONE.replace("SPACE", "smem"))


def test_a_failure_at_run_time_leads_to_a_dump(screen: Callable[[str], str]) -> None:
    out = screen("RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0\n")
    assert "→ this message does not say what takes the memory" in out
    assert out.endswith("  xlamem dumps\n")


def test_the_code_of_a_failure_at_run_time(screen: Callable[[str], str]) -> None:
    text = "Attempting to allocate 4.00G. That was not possible. There are 3.12G free.; (0x0x0_HBM0)\n"
    title = "out of memory in HBM: an allocation failed at run time"
    assert screen(text).startswith(f"{title}\n")
    assert screen(f"E0100: RuntimeBufferAllocationFailure: {text}").startswith(f"{title} (E0100)\n")


def test_temporaries_of_the_short_message_include_arguments(screen: Callable[[str], str]) -> None:
    text = "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (48.00G) "
    out = " ".join(screen(text + "exceeds available HBM (15.75G). HLO module: jit_f.\n").split())
    assert "Its HLO temporaries include arguments and outputs. Set XLA_FLAGS=" in out
    assert "include arguments" not in screen(ONE.replace("SPACE", "hbm"))


def test_what_an_allocation_is_for(screen: Callable[[str], str]) -> None:
    text = "Ran out of memory in memory space vmem. Used 256.00M of 128.00M vmem.\n\n"
    text += "  Largest program allocations in vmem:\n\n  1. Size: 256.00M\n     Shape: u8[268435456]{0}\n"
    text += "     Tag: input window allocation for operator input 0.\n     ==========================\n"
    assert "u8[268435456]{0}\n                 input window allocation for operator input 0.\n" in screen(text)
