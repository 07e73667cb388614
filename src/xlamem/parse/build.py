"""How the native modules were built, and the instructions that they use on this machine."""

from __future__ import annotations

from .._lines import BUILD, SIMD

__all__ = ["BUILD", "SIMD"]
