"""Make the pictures of the documentation from the real output for the dumps in tests/data/start.

    python docs/pictures.py

Screens of the terminal become SVG files, which contain their text as a description; the report page is photographed in
Chromium, which needs Playwright.
"""

from __future__ import annotations

import html
import io
import os
import pty
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
DUMPS = ROOT / "tests" / "data" / "start"
OUT = ROOT / "docs" / "pictures"
COLUMNS = 80

SCREENS = {
    "peak.svg": "xlamem dumps --device v5e",
    "advise.svg": "xlamem advise dumps --device v5e",
}
"""Files with the commands whose output they show, for the dump that does not fit."""

THEME = TerminalTheme(
    (16, 24, 32), (222, 228, 232),
    [(60, 70, 80), (240, 113, 120), (149, 214, 138), (240, 200, 110), (110, 180, 250), (200, 150, 240),
     (100, 210, 205), (222, 228, 232)],
)  # fmt: skip
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>@TITLE@</title>
<desc>@DESCRIPTION@</desc>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Like that of rich, but with the fonts of the system: a picture loads nothing."""


def unpack(name: str, folder: Path) -> None:
    """Write the dump of this name to `folder/dumps`."""
    with tarfile.open(DUMPS / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")


# -- the terminal ----------------------------------------------------------------------------------


def output(command: str, folder: Path) -> str:
    """Run a command in a terminal of 80 columns and return its output with colors."""
    code = "import sys; from xlamem.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", code, *command.split()[1:]]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    reader, writer = pty.openpty()
    process = subprocess.Popen(words, stdin=writer, stdout=writer, stderr=writer, cwd=folder, env=environment)
    os.close(writer)
    chunks = []
    while chunk := _read(reader):
        chunks.append(chunk)
    os.close(reader)
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    if process.wait() not in (0, 1):  # 1: it does not fit
        raise SystemExit(f"{command} failed:\n{text}")
    return text


def _read(reader: int) -> bytes:
    """Return the next output; a terminal whose program has ended raises an error instead of ending."""
    try:
        return os.read(reader, 1 << 16)
    except OSError:
        return b""


def screen(command: str, colored: str) -> str:
    """Return the picture of a command and its output as SVG."""
    text = Text.from_ansi(colored)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(text, soft_wrap=True, end="")
    svg = console.export_svg(title=command, theme=THEME, code_format=FORMAT, unique_id=f"x{len(command)}")
    return svg.replace("@TITLE@", html.escape(command)).replace("@DESCRIPTION@", html.escape(text.plain))


# -- the report page -------------------------------------------------------------------------------


def photographs(folder: Path) -> None:
    """Write pictures of the report of the dump in `folder/dumps`, light and dark."""
    import xlamem

    sys.path[:0] = [str(ROOT / "tests" / "page")]
    from browsing import ARGUMENTS, Window, executable
    from playwright.sync_api import sync_playwright

    os.chdir(folder)  # the page shows the path
    page_file = xlamem.report("dumps", device="v5e").save(folder / "report.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        for theme in ("light", "dark"):
            scheme: Any = theme
            context = browser.new_context(
                viewport={"width": 1200, "height": 1330}, color_scheme=scheme, reduced_motion="reduce"
            )
            page = Window(context).open(page_file)
            page.screenshot(path=OUT / f"report-{theme}.jpg", type="jpeg", quality=75)
            context.close()
        browser.close()


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack("does-not-fit", folder)
        for file, command in SCREENS.items():
            (OUT / file).write_text(screen(command, output(command, folder)), "utf-8")
        photographs(folder)
    for path in sorted(OUT.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
