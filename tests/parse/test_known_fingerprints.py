"""Which fingerprints a dump has that was cut off."""

from __future__ import annotations

from conftest import DUMPS, texts

import xlamem


def test_the_interface_of_a_dump_in_one_file() -> None:
    """It is known if the allocations are complete, whatever was cut off after them."""
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")
    members = texts(source)
    first, *rest = (members[role] for role in ("buffer-assignment", "buffer-assignment-values", "live-range"))
    whole = first + b"\n" + b"\n".join(rest)
    wanted = xlamem.read(whole, hashes=True).modules.to_pylist()[0]
    assert wanted["interface_fp"]
    assert wanted["program_fp"]
    for end, is_known in ((len(first) + len(rest[0]) // 2, True), (len(whole) - 30, True), (len(first) // 2, False)):
        row = xlamem.read(whole[:end], hashes=True).modules.to_pylist()[0]
        assert not row["complete"]
        assert row["program_fp"] is None
        assert row["interface_fp"] == (wanted["interface_fp"] if is_known else None)
