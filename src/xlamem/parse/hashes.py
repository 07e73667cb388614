"""Content hashes: XXH3-128 as hexadecimal digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STEP_BYTES = 16 << 20


def content_hash(data: Any, release: Callable[[int, int], None] | None = None) -> str:
    """Hash bytes; `release` is called with each range that has been hashed."""
    import xxhash  # most readers do not need it

    if release is None:
        return str(xxhash.xxh3_128_hexdigest(data))
    digest = xxhash.xxh3_128()
    for begin in range(0, len(data), STEP_BYTES):
        digest.update(memoryview(data)[begin : begin + STEP_BYTES])
        release(begin, begin + STEP_BYTES)
    return str(digest.hexdigest())
