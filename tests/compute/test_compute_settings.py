"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import compute


def test_settings() -> None:
    check("compute/settings", settings(compute))
