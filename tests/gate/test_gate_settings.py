"""Limits, thresholds, patterns and default arguments: none changes unnoticed."""

from stored import check, settings

from xlamem import gate


def test_settings() -> None:
    check("gate/settings", settings(gate))
