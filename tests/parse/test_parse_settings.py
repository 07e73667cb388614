"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import parse


def test_settings() -> None:
    check("parse/settings", settings(parse))
