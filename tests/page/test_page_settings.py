"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import page


def test_settings() -> None:
    check("page/settings", settings(page))
