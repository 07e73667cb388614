"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import parse


def test_settings() -> None:
    of_every_build = (pair for pair in settings(parse) if not pair[0].startswith("build."))
    check("parse/settings", of_every_build)
