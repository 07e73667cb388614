"""Device memories and sizes on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from xlamem.compute.devices import DEVICES, GB, GIB, device, parse_bytes
from xlamem.errors import UsageError
from xlamem.formatting import size

NUMBERS = Path(__file__).parents[2] / "docs" / "numbers.md"


SIZES = {
    "16GiB": 16 * GIB,
    "16 GiB": 16 * GIB,
    "16G": 16 * GIB,
    "15.75G": 16 * GIB - GIB // 4,
    "80GB": 80 * GB,
    "80gb": 80 * GB,
    "123B": 123,
    "1,000 B": 1000,
    "12,345,678.0B": 12345678,
    "16_384MiB": 16 * GIB,
    ".5k": 512,
    "0.5TiB": 512 * GIB,
    "2 b": 2,
}

SPELLINGS = {
    "v5e": "v5e TPU_v5_lite v5litepod v5e:2x2 v5e:2x2:0",
    "v5p": "TPU_v5 TPU_v5p",
    "v6e": "TPU_v6_lite Trillium Google_Cloud_TPU_v6e",
    "v4": "TPU_v4",
    "v7x": "tpu7x:2x2x1 Ironwood",
    "a100-40gb": "A100-40GB",
    "a100-80gb": "NVIDIA_A100-SXM4-80GB NVIDIA_A100_80GB_PCIe",
    "h100": "NVIDIA_H100_80GB_HBM3",
    "h100-nvl": "H100_NVL",
    "b200": "NVIDIA_B200",
    "t4": "Tesla_T4",
    "l4": "L4",
    "mi300x": "AMD_Instinct_MI300X",
}


@pytest.mark.parametrize(("text", "n"), SIZES.items())
def test_sizes(text: str, n: int) -> None:
    assert parse_bytes(text) == n


@pytest.mark.parametrize("text", ["", "GiB", "-1", "16 gigs", "1..2G", "16GiBx", "1e9"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["15,75GiB", "1,5GiB", "0,500GiB", "1,0000B", "1234,567B", "1,,000B", "1,000,B"])
def test_a_comma_separates_thousands(text: str) -> None:
    """A decimal comma would make the size 10 to 1000 times as large."""
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["16", "1,000", "0.5"])
def test_a_bare_number_is_ambiguous(text: str) -> None:
    with pytest.raises(UsageError, match="has no unit, and a bare number is ambiguous: write 16GiB, or 16B for bytes"):
        parse_bytes(text)


@pytest.mark.parametrize("name", ["h20", "NVIDIA H20", "mi25", "mi300", "b20", "b", "h", "v1", "a", "h10", "gb", ""])
def test_the_beginning_of_a_name_is_no_device(name: str) -> None:
    """An H20 is no H200."""
    with pytest.raises(UsageError, match=f"no device '{name}'"):
        device(name)


@pytest.mark.parametrize(("name", "spellings"), SPELLINGS.items())
def test_spellings(name: str, spellings: str) -> None:
    for spelling in spellings.split():
        assert device(spelling.replace("_", " ")).name == name


def test_ambiguous_and_unknown_names() -> None:
    with pytest.raises(UsageError, match="several sizes: choose one of a100-40gb, a100-80gb"):
        device("A100")
    for name in ("abacus", "", "tpu"):
        with pytest.raises(UsageError, match=r"no device .* there are v2, v3"):
            device(name)
    with pytest.raises(UsageError, match=r"no device 'h1000'; did you mean 'h100'\? There are v2, v3"):
        device("h1000")
    message = "^'16 GiB' is a size, not a device: give it as a capacity, or in a budget as device_total$"
    with pytest.raises(UsageError, match=message):
        device("16 GiB")


@pytest.mark.parametrize(
    ("name", "fitting", "refused"),
    [("v4", 31480, 31484), ("v4-core", 15610, 15617), ("v5e", 16124, 16125), ("v5p", 98022, 98023),
     ("v6e", 31990, 31991), ("v7x", 97010, 97011)],
)  # fmt: skip
def test_what_the_compiler_refuses(name: str, fitting: int, refused: int) -> None:
    """The MiB of an argument with which libtpu 0.0.52 compiled a program or refused to. Code takes 1 to 2 MiB."""
    assert fitting << 20 < device(name).usable < (refused + 6) << 20


def test_the_device_table_is_consistent() -> None:
    keys = [key for d in DEVICES for key in {d.name.replace("-", ""), *d.aliases}]
    assert len(keys) == len(set(keys))
    for d in DEVICES:
        assert device(d.name) is d
        assert all(device(a) is d for a in d.aliases)
        assert (d.reported is None) == (d.reporter == "")
        assert 0.85 * d.bytes < d.usable < 1.1 * d.bytes
        assert d.source
        assert d.stated


def test_devices_are_documented() -> None:
    text = NUMBERS.read_text()
    for d in DEVICES:
        by = f" ({d.reporter})" if d.reporter else ""
        assert f"| `{d.name}` | {size(d.usable)}{by} | {d.stated} | {d.source} |" in text
