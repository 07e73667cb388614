"""The committed script and styles of the page are those of their sources, and refer to nothing outside of the page."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import xlamem

PAGE = Path(xlamem.__file__).parent / "page"
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "src" / "xlamem" / "page" / "script"
VENDOR = SCRIPT / "vendor"
BUNDLE = ("page.js", "page.css")
LINKS = re.compile(r"(?:\b(?:https?|wss?):)?//[\w.-]+\.\w+[^\s\"'`)]*")
"""Addresses with or without a scheme."""
NETWORK = ("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "importScripts", "import(", "@import")
LINE_LIMIT = 300
"""No module of the script is longer, except for the model's types."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the development tools of package-lock.json."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("script") / "script"
    shutil.copytree(SCRIPT, folder, ignore=shutil.ignore_patterns("node_modules"))
    try:
        npm(folder, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
        pytest.skip(f"npm cannot install the development tools: {(e.stderr or b'').decode()[-200:]}")
    return folder


def npm(folder: Path, *args: str) -> None:
    """Run npm. Raises CalledProcessError with its output."""
    subprocess.run(["npm", *args], cwd=folder, check=True, capture_output=True, timeout=300)


def output(e: subprocess.CalledProcessError) -> str:
    return (e.stdout + e.stderr).decode()


def test_the_bundle_is_that_of_the_sources(sources: Path, tmp_path: Path) -> None:
    try:
        npm(sources, "run", "build", "--", str(tmp_path))
    except subprocess.CalledProcessError as e:
        pytest.fail(output(e))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(BUNDLE)
    for name in BUNDLE:
        assert (tmp_path / name).read_bytes() == (PAGE / name).read_bytes(), f"{name} is outdated: make page"


def test_types_are_right(sources: Path) -> None:
    try:
        npm(sources, "run", "check")
    except subprocess.CalledProcessError as e:
        pytest.fail(output(e))


@pytest.mark.parametrize("name", BUNDLE)
def test_the_bundle_refers_to_nothing_outside(name: str) -> None:
    text = (PAGE / name).read_text("utf-8")
    assert set(LINKS.findall(text)) <= {"https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"}
    assert [word for word in (*NETWORK, "url(") if word in text] == []
    assert not re.search(r"\beval\(|new Function|\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write", text)


def test_the_licence_of_uplot_is_in_the_bundle() -> None:
    text = (PAGE / "page.js").read_text("utf-8")
    assert "Copyright (c) 2025, Leon Sorokin" in text
    assert "MIT License" in (VENDOR / "LICENSE").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "MIT" in project["license"]
    assert (VENDOR / "LICENSE").relative_to(ROOT).as_posix() in project["license-files"]


def test_uplot_is_unchanged() -> None:
    listed = re.findall(r"^\| `(\S+)`.* \| `(\w{64})` \|$", (VENDOR / "README.md").read_text("utf-8"), re.M)
    assert len(listed) == 4
    for name, wanted in listed:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == wanted, name


def test_the_script_has_small_modules_that_trust_no_text() -> None:
    modules = [p for p in sorted(SCRIPT.rglob("*.ts")) if not {"node_modules", "vendor"} & set(p.parts)]
    assert len(modules) > 10
    for path in modules:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= LINE_LIMIT or path.name == "model.ts", path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\bany\b[;,)\]>]|@ts-", text), path.name
