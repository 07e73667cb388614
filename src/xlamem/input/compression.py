"""Detection of compressed files."""

from __future__ import annotations

import re
from typing import Literal, cast

Codec = Literal["gzip", "zstd", "xz", "bzip2"]

EXTENSIONS: dict[str, Codec] = {
    "gz": "gzip", "tgz": "gzip", "zst": "zstd", "tzst": "zstd", "xz": "xz", "txz": "xz",
    "bz2": "bzip2", "tbz2": "bzip2", "tbz": "bzip2",
}  # fmt: skip

_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<xz>\xfd7zXZ\0)"
    rb"|(?P<bzip2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
)
_NOT_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f]")


def detect_codec(head: bytes, name: str) -> Codec | None:
    """Detect the codec of a file by its first bytes, or by its name if they are not text.

    Some servers decompress gzip on their own, so a file named `.gz` may contain plain text.
    """
    if magic := _MAGIC.match(head):
        return cast(Codec, magic.lastgroup)
    return EXTENSIONS.get(name.rpartition(".")[2].lower()) if _NOT_TEXT.search(head) else None
