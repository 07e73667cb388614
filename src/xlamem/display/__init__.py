"""Show results in a terminal and in a notebook: titles, tables with right-aligned numbers, and curves.

A `View` knows nothing about dumps. Results build theirs when they are printed.
"""

from __future__ import annotations

from .curve import Curve
from .grid import Grid, fields
from .tables import show
from .view import View

__all__ = ["Curve", "Grid", "View", "fields", "show"]
