"""The version and the changelog."""

from __future__ import annotations

import re
from pathlib import Path

import xlamem

ROOT = Path(__file__).parent.parent
VERSION = re.compile(rf"(?<![\d.]){re.escape(xlamem.__version__)}(?![\d.])")


def test_the_version_is_in_one_file() -> None:
    files = [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt", ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    files += [path for folder in ("src", "_native") for path in (ROOT / folder).rglob("*.p*") if path.is_file()]
    named = [p.relative_to(ROOT).as_posix() for p in files if VERSION.search(p.read_text("utf-8", "replace"))]
    assert [name for name in named if "__pycache__" not in name] == ["src/xlamem/__init__.py"]


def test_the_changelog_describes_the_version() -> None:
    releases = re.findall(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert releases[0] == xlamem.__version__
