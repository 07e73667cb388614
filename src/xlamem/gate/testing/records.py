"""What was measured in a test, as builtin types: pytest-xdist sends it from a worker to the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import pytest

BASELINES = "xlamem-baselines"
"""Name of the folder of baselines beside a test file, and of the setting of another place."""
SETTING = "xlamem_baselines"


class Row(TypedDict):
    """A program in the table at the end of the run. Sizes are in bytes."""

    program: str
    device_total: int | None
    device_total_baseline: int | None
    peak: int | None
    peak_baseline: int | None
    status: str
    """That of the check; empty for a program that was measured only."""
    is_new: bool


class Record(TypedDict):
    """What was measured in a test."""

    file: str
    """The baseline of the test's file, relative to the root directory."""
    test: str
    """Name of the test in its file."""
    nodeid: str
    rows: list[Row]
    warnings: list[str]
    baseline: str | None
    """The next entries of the test, as the text of a baseline; None if they stay."""


def record_of(item: pytest.Item) -> Record:
    """Return an empty record of a test."""
    file, test = _relative(baseline_file(item), item.config.rootpath), name_in_file(item)
    nodeid = f"{item.nodeid.partition('::')[0]}::{test}"
    return Record(file=file.as_posix(), test=test, nodeid=nodeid, rows=[], warnings=[], baseline=None)


def baseline_file(item: pytest.Item) -> Path:
    """Return the baseline of the file of a test."""
    root, place = item.config.rootpath, item.config.getini(SETTING)
    if place:
        return Path(root, place, _relative(item.path, root).with_suffix(".json"))
    return item.path.parent / BASELINES / f"{item.path.stem}.json"


def _relative(path: Path, root: Path) -> Path:
    """Return a path relative to the root directory, if it is in there."""
    return path.relative_to(root) if path.is_relative_to(root) else path


def name_in_file(item: pytest.Item) -> str:
    """Return ``TestClass::test_name[parameters]``, without what pytest-xdist appends."""
    return "::".join(_names(item))


def _names(item: pytest.Item) -> Iterator[str]:
    in_file = False
    for node in item.listchain():
        if in_file:
            yield node.name
        in_file |= isinstance(node, pytest.File)
