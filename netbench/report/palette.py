"""The colours of the report, each with one meaning, for light and for dark pages.

All but those of fills and lines between cells have a contrast of 4.5 : 1 or more to the paper, as WCAG 2.2 (1.4.3) asks
of text. UUTs differ in symbol, dash and pattern too, for whoever does not tell their colours from each other.
"""

import re
from collections.abc import Mapping

_LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1d2124",
    "soft": "#565c61",
    "line": "#d5d8db",
    "grid": "#e6e8ea",
    "shade": "#f3f5f6",
    "link": "#00568a",
    "doubt": "#7d5200",  # suspicious, and values to be read with care
    "bad": "#a4161a",  # invalid and failed
    "u0": "#0063a6",
    "u1": "#b54708",
    "u2": "#00704a",
    "u3": "#9c3587",
    "u4": "#5b3fb5",
    "u5": "#00707f",
    "u6": "#4a4f54",
    # Where frames ended, along the path.
    "p0": "#2f3437",
    "p1": "#565c61",
    "p2": "#7f868c",
    "p3": "#a6acb1",
    "p4": "#cdd1d4",
}
_DARK: Mapping[str, str] = {
    "paper": "#16191c",
    "ink": "#e8eaec",
    "soft": "#a9b0b6",
    "line": "#3c4247",
    "grid": "#2b3034",
    "shade": "#1f2326",
    "link": "#7cc4ff",
    "doubt": "#f0b95a",
    "bad": "#ff8f88",
    "u0": "#6cb6ff",
    "u1": "#ff9f5a",
    "u2": "#4fd1a0",
    "u3": "#ee8fdc",
    "u4": "#b9a3ff",
    "u5": "#5fd0e0",
    "u6": "#c3c8cc",
    "p0": "#e8eaec",
    "p1": "#bcc2c7",
    "p2": "#8f969c",
    "p3": "#666d73",
    "p4": "#454b50",
}
UUTS = tuple(f"var(--{name})" for name in _LIGHT if name.startswith("u") and name[1:].isdigit())
PLACES = tuple(f"var(--{name})" for name in _LIGHT if name.startswith("p") and name[1:].isdigit())
_VARIABLE = re.compile(r"var\(--([a-z0-9]+)\)")


def css() -> str:
    """The colours as variables of a style sheet: light, and dark for readers who prefer that."""
    light, dark = ("; ".join(f"--{name}: {value}" for name, value in of.items()) for of in (_LIGHT, _DARK))
    return (
        f":root {{ color-scheme: light dark; {light}; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}"
    )


def light() -> Mapping[str, str]:
    """The colours of a light page by name."""
    return _LIGHT


def dark() -> Mapping[str, str]:
    """The colours of a dark page by name."""
    return _DARK


def resolved(text: str) -> str:
    """A drawing with the colours of a light page in place of variables, for use without a style sheet."""
    return _VARIABLE.sub(lambda variable: _LIGHT[variable[1]], text)
