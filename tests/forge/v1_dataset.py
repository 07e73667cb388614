"""Makes tests/data/v1-dataset: what version 0.1 left behind after two nights, with `schema=v1` and `dump_id`.

    python tests/forge/v1_dataset.py        # needs xlamem 0.1

It is made once and kept: later versions must read it as it is. `nights` writes the dumps again, so that tests can
compare the dataset with a new conversion.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
V1 = HERE / "data" / "v1-dataset"
NIGHTS = {
    "2025-01-30": {
        "a/one": "cpu-jaxlib-0.4.35-cond_switch",
        "a/two": "cpu-jaxlib-0.5.3-tuple3",
        "b/one": "tpu-libtpu-0.0.50.1-v5e-host_offload",
    },
    "2025-01-31": {
        "a/one": "cpu-jaxlib-0.10.2-cond_switch",
        "a/two": "cpu-jaxlib-0.5.3-tuple3",
        "b/one": "tpu-libtpu-0.0.50.1-v5e-host_offload",
        "b/two": "cpu-killed-at-buffer-assignment",
        "b/three": "tpu-libtpu-0.0.50.1-v5e-stdout",
        "b/four": "cpu-tf-2.3.4-loop",
    },
}
"""The dumps of each night, by folder."""
COMMITS = {"2025-01-30": "a1", "2025-01-31": "b2"}
RENUMBERED = "cpu-jaxlib-0.5.3-tuple3"
VERSION = "0.1.0"


def nights(to: Path) -> dict[str, Path]:
    """Write the dumps of each night to a folder, and return the folders."""
    for night, dumps in NIGHTS.items():
        for folder, name in dumps.items():
            shutil.copytree(HERE / "dumps" / name, to / night / folder)
        # The same program with another number and a timestamp, in an archive too.
        (to / night / "b" / "again").mkdir()
        for path in (HERE / "dumps" / RENUMBERED).glob("module_0001.*"):
            name = path.name.replace("module_0001", "1738000000000000.module_0017")
            shutil.copy(path, to / night / "b" / "again" / name)
        with tarfile.open(to / night / "b" / "again.tar", "w") as tar:
            tar.add(to / night / "a" / "two", "dumps")
    bad = to / "2025-01-31" / "c" / "module_0001.jit_g.cpu_after_optimizations-buffer-assignment.txt.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b\x08 this is not gzip")
    return {night: to / night for night in NIGHTS}


def convert(nights: dict[str, Path], to: Path, **options: Any) -> None:
    """Convert each night with its labels; the dump in the folder `four` cannot be read."""
    import xlamem
    from xlamem.warehouse import worker

    read: Callable[..., Any] = worker.ReadDump

    def trip(source: Any, **options: Any) -> Any:
        if Path(source.members[0].uri).parent.name == "four":
            raise xlamem.DumpError(source.members[0].uri, "a line", "values", 7, None, 99, "found this")
        return read(source, **options)

    worker.ReadDump = trip  # type: ignore[assignment,misc]
    try:
        for night, folder in nights.items():
            labels = {"commit": COMMITS[night], "night": night}
            xlamem.convert(folder, to=to, labels=labels, partition_by=["night"], engine="here", **options)
    finally:
        worker.ReadDump = read  # type: ignore[assignment,misc]


def main() -> None:
    """Write the dataset."""
    shutil.rmtree(V1, ignore_errors=True)
    import xlamem

    xlamem.__version__ = VERSION
    folder = Path(tempfile.gettempdir()) / "nights"
    try:
        convert(nights(folder), V1)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
