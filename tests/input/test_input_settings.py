"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import input as package

STATE = {"files._COUNTED", "files._GUARDS"}


def test_settings() -> None:
    check("input/settings", (pair for pair in settings(package) if pair[0] not in STATE))
