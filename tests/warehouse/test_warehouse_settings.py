"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import warehouse


def test_settings() -> None:
    check("warehouse/settings", settings(warehouse))
