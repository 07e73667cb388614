"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import cli

OF_THE_BUILD = {"installation.BUILD", "installation.SIMD"}


def test_settings() -> None:
    check("cli/settings", (pair for pair in settings(cli) if pair[0] not in OF_THE_BUILD))
