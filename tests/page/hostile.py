"""A dump whose names try to become markup, script or styles, as names of strangers may."""

from __future__ import annotations

import re
from itertools import chain, cycle
from pathlib import Path

from conftest import DUMPS

SCRIPT = "<script>document.title='injected'</script>"
NAMES = (
    SCRIPT,
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>--><!--",
    "<img src=x onerror=alert(1)>",
    "\"onmouseover=\"alert(1)\" x='",
    "&lt;b&gt;&amp;&#60;",
    "javascript:alert(1)",
    "NUL\0ESC\x1b[31mBEL\7DEL\x7f",
    "U+2028\u2028U+2029\u2029",
    "\u202egnp.exe\u202c\u200f\u2066",
    "__proto__",
    "constructor",
    "toString",
    "{{7*7}}${alert(1)}`",
    "url(//example.com/x)",
    "</style><style>*{display:none}",
    "é漢🎉\u0301",
    "%3Cscript%3E#buffer=1&t=2",
    "A" * 5000,
)
MEGABYTE = "M" * 1_000_000
SOURCE = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
STEM = "module_0000.jit_<img src=x onerror=alert(1)>'\"&\u202e.cl_1004524046.after_optimizations"
OP_NAME = re.compile(r'(?<=op_name=")((?:jit\(\w+\)/(?:transpose\()?jvp\(\)+/)?)([^"]*)(?=")')


def hostile_dump(folder: Path, *, long: bool = True) -> Path:
    """Write a dump with these names as scopes, arguments, source files and file names, and an unknown line.

    The name of a megabyte is among them if `long`.
    """
    folder.mkdir()
    for path in sorted(SOURCE.glob("module_*.txt")):
        text = renamed(path.read_text("utf-8"), long=long)
        role = path.name.partition("after_optimizations")[2]
        if role == "-buffer-assignment.txt":
            text += f"{SCRIPT}\n"
        (folder / (STEM + role)).write_text(text, "utf-8")
    return folder


def renamed(text: str, *, long: bool) -> str:
    """Return a file of the dump with hostile op_names and source files."""
    names = chain([MEGABYTE] * long, cycle(NAMES))
    text = OP_NAME.sub(lambda match: f"{match[1]}{escaped(next(names))}/{match[2]}", text)
    return text.replace("/home/user/model/scripts/", escaped(f"/{SCRIPT}\u202e'"))


def escaped(name: str) -> str:
    """Return a name as XLA prints it in quotes."""
    plain = {'"': '\\"', "\\": "\\\\", "'": "\\'"}
    return "".join(
        plain.get(c) or (c if " " <= c <= "~" else "".join(f"\\{byte:03o}" for byte in c.encode())) for c in name
    )
