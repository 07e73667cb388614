"""Count the instructions of reading with valgrind's callgrind, which does not depend on the load of the machine.

`python counts.py FOLDERS…` runs under valgrind. It reads each list of folders (joined by `:`) twice, the second time
between two calls of getppid, before which callgrind writes its counts so far.
"""

from __future__ import annotations

import gc
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def available() -> bool:
    return shutil.which("valgrind") is not None


def count(folders: Mapping[str, list[Path]]) -> dict[str, int]:
    """Return the instructions of reading all tables of these dumps with one thread, by name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-before=getppid"]
        lists = [":".join(map(os.fspath, some)) for some in folders.values()]
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run([*command, sys.executable, __file__, *lists], env=environment, capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
        # Part 2 k + 2 has the counts between the two calls around list k.
        return {name: _total(Path(f"{out}.{2 * k + 2}")) for k, name in enumerate(folders)}


def _total(path: Path) -> int:
    found = re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"callgrind wrote no total into {path.name}")
    return int(found[1])


def environment() -> dict[str, str]:
    """What the counts depend on besides the code."""
    import numpy
    import pyarrow

    compiler = shutil.which("cc")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout if compiler else "none"
    return {
        "machine": platform.machine(),
        "compiler": version.splitlines()[0] if version else "unknown",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
    }


def main(lists: list[str]) -> None:
    import xlamem
    from xlamem import schema

    def read(folders: list[str]) -> None:
        for folder in folders:
            dump = xlamem.read(folder, threads=1)
            for name in schema.TABLES:
                dump[name]

    gc.disable()
    for folders in (text.split(":") for text in lists):
        read(folders)
        os.getppid()
        read(folders)
        os.getppid()


if __name__ == "__main__":
    main(sys.argv[1:])
