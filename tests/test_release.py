"""The version, the changelog, the list of bundled software, and the workflows that test and release."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import xlamem

ROOT = Path(__file__).parent.parent
VENDOR = ROOT / "src" / "xlamem" / "page" / "script" / "vendor"
WORKFLOWS = ROOT / ".github" / "workflows"
VERSION = re.compile(rf"(?<![\d.]){re.escape(xlamem.__version__)}(?![\d.])")


def test_the_version_is_in_one_file() -> None:
    files = [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt", ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    files += [path for folder in ("src", "_native") for path in (ROOT / folder).rglob("*.p*") if path.is_file()]
    named = [p.relative_to(ROOT).as_posix() for p in files if VERSION.search(p.read_text("utf-8", "replace"))]
    assert [name for name in named if "__pycache__" not in name] == ["src/xlamem/__init__.py"]


def test_the_changelog_describes_the_version() -> None:
    releases = re.findall(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert releases[0] == xlamem.__version__


def test_the_sbom_lists_what_is_bundled() -> None:
    bom = json.loads((ROOT / "sbom.cdx.json.in").read_text("utf-8"))
    (component,) = bom["components"]
    name, version = re.findall(r"^# (\S+) (\S+)$", (VENDOR / "README.md").read_text("utf-8"), re.M)[0]
    assert (component["name"], component["version"]) == (name.lower(), version)
    assert component["purl"] == f"pkg:npm/{name.lower()}@{version}"
    assert [d["ref"] for d in bom["dependencies"]] == [bom["metadata"]["component"]["bom-ref"], component["bom-ref"]]


def jobs(workflow: str) -> dict[str, dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    found: dict[str, dict[str, Any]] = yaml.safe_load((WORKFLOWS / workflow).read_text("utf-8"))["jobs"]
    return found


def test_workflows_run_what_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for path in WORKFLOWS.glob("*.yml"):
        commands = "\n".join(s["run"] for job in jobs(path.name).values() for s in job["steps"] if "run" in s)
        assert set(re.findall(r"\bmake ([a-z-]+)", commands)) <= targets
        assert all((ROOT / name).exists() for name in re.findall(r"(?:\.ci|tests|src)/[\w./-]+", commands))


def test_only_a_checked_tag_is_published_to_pypi() -> None:
    release = jobs("release.yml")
    writing = {name for name, job in release.items() if job.get("permissions")}
    assert writing == {"provenance", "testpypi", "pypi"}
    assert all("check" in [release[name]["needs"], *release[name]["needs"]] for name in writing)
    assert release["pypi"]["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    assert release["check"]["needs"] == ["sdist", "wheels"]
