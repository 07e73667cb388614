"""Content hashes: XXH3-128 as hexadecimal digits."""

from __future__ import annotations

from ..input.files import Buffer, evict_pages

STEP_BYTES = 16 << 20


def content_hash(data: Buffer) -> str:
    """Hash bytes."""
    import xxhash  # most readers do not need it

    return str(xxhash.xxh3_128_hexdigest(data))


def evicting_hash(data: Buffer) -> str:
    """Return the same hash. Pages of a large mapped file are evicted as soon as they are hashed."""
    import xxhash

    if len(data) <= STEP_BYTES:
        return content_hash(data)
    digest = xxhash.xxh3_128()
    for begin in range(0, len(data), STEP_BYTES):
        end = min(begin + STEP_BYTES, len(data))
        digest.update(memoryview(data)[begin:end])
        evict_pages(data, begin, end)
    return str(digest.hexdigest())
