"""Colors of the static pictures, light and dark: those of the page (script/styles/base.css and views.css)."""

from __future__ import annotations

from collections.abc import Iterable

COLORS = {
    "bg": ("#fbfbfa", "#121417"),
    "ink": ("#1b1f24", "#e6e8eb"),
    "muted": ("#5d6672", "#9aa4b0"),
    "line": ("#e3e5e8", "#2c3138"),
    "bad": ("#a8321f", "#f08a6c"),
    "p-forward": ("#7fb2de", "#2f6fa8"),
    "p-backward": ("#ea9f7b", "#b0552c"),
    "p-recompute": ("#bd9ed6", "#7d579c"),
    "p-optimizer": ("#7cc4a1", "#2c8060"),
    "p-unknown": ("#c4cad2", "#4d5661"),
    "c-parameter": ("#8fa9c4", "#4a6585"),
    "c-donated": ("#86bfc9", "#2f7480"),
    "c-constant": ("#c8bd9c", "#776b45"),
    "c-live-out": ("#b9a3cf", "#70568c"),
    "c-temp": ("#7fb2de", "#2f6fa8"),
    "k-1": ("#8fa9c4", "#4a6585"),
    "k-2": ("#7cc4a1", "#2c8060"),
    "k-3": ("#ea9f7b", "#b0552c"),
    "k-4": ("#7fb2de", "#2f6fa8"),
    "k-5": ("#a8d5ea", "#4a93b5"),
    "k-6": ("#e2c863", "#94802a"),
    "k-7": ("#bd9ed6", "#7d579c"),
    "k-8": ("#b29a86", "#75604e"),
    "k-9": ("#e3a9c0", "#9c5273"),
    "map-hole": ("#f1f2f3", "#1b1f24"),
    "map-texture": ("#e2e5e8", "#2a3038"),
    "map-fixed": ("#e6eaee", "#262c34"),
}
"""Light and dark color of each name."""

CLASS = "xlamem-picture"
"""Class of each picture, so that its rules apply to no other picture in the same document."""

_IN_LIGHT = "[data-jp-theme-light=true] *,.vscode-light *"
_IN_DARK = ("[data-jp-theme-light=false] ", ".vscode-dark ")
"""Selectors of notebooks with a theme of their own: JupyterLab and Visual Studio Code."""


def style(used: Iterable[tuple[str, str]]) -> str:
    """Return the rules for narrow places, and those that replace the light colors, which are attributes, in dark ones.

    Programs that draw SVG without a browser ignore most of them, but not `height:auto` outside of a media query.

    Parameters
    ----------
    used
        Properties (fill, stroke) and names of colors; elements have the class `class_name` returns.
    """
    rules = [(class_name(prop, name), f"{{{prop}:{COLORS[name][1]}}}") for prop, name in sorted(used)]
    by_system = "".join(f".{CLASS}:not({_IN_LIGHT}) .{c}{rule}" for c, rule in rules)
    by_notebook = "".join(",".join(f"{place}.{CLASS} .{c}" for place in _IN_DARK) + rule for c, rule in rules)
    fit = f"@media screen{{.{CLASS}{{max-width:100%;height:auto}}}}"
    return f"<style>{fit}@media (prefers-color-scheme:dark){{{by_system}}}{by_notebook}</style>"


def class_name(prop: str, name: str) -> str:
    """Return the class of elements with this color as fill or stroke."""
    return f"{prop[0]}-{name}"
