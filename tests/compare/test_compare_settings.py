"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import compare


def test_settings() -> None:
    check("compare/settings", settings(compare))
