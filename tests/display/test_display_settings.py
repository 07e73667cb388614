"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import display


def test_settings() -> None:
    check("display/settings", settings(display))
