"""Groups of devices in the attributes of collectives."""

from __future__ import annotations

import pytest

from xlamem.compute.replica_groups import replica_groups


@pytest.mark.parametrize(
    ("text", "devices", "size"),
    [
        ("{{0,1},{2,3}}", 4, 2),
        ("{{0,1,2}}, x={9}", 3, 3),
        ("[2,4]<=[8]", 8, 4),
        ("[1,1]<=[1]", 1, 1),
        ("[2,2]<=[2,2]T(1,0), dimensions={1}", 4, 2),
        ("mesh['x'=2,'y'=3]", 6, 1),
        ("mesh['x'=2,'y'=3] {'y'}, x=true", 6, 3),
        ("mesh['x'=2,'y'=3] {'x','y'}", 6, 6),
    ],
)
def test_printed_groups(text: str, devices: int, size: int) -> None:
    assert replica_groups(f"channel_id=1, replica_groups={text}") == (devices, size)


@pytest.mark.parametrize(
    "attributes",
    [
        "", "channel_id=1, dimensions={0}", "replica_groups={}", "replica_groups=[1]", "replica_groups=[1,1048577]",
        f"replica_groups=[1,{'9' * 5000}]", f"replica_groups={{{{{'9' * 5000}}}}}",
        "replica_groups=mesh['a'=999999999,'b'=999999999] {'a'}", "replica_groups=mesh[" * 20_000,
        "replica_groups=[0,4]<=[4]", "replica_groups=mesh['x'=0] {'x'}",
    ],
)  # fmt: skip
def test_what_is_no_group(attributes: str) -> None:
    """Also numbers of too many digits, more devices than there are, and text that takes long if read from each word."""
    assert replica_groups(attributes) is None
