"""A chart as plotly.js takes it, in plain dicts: plotly's own Python objects take seconds to check those of a page.

The tests do have them check it. Names are those of https://plotly.com/javascript/reference.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

Trace = dict[str, Any]

_BETWEEN_COLUMNS = 0.075  # of the width
_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}
# So that a browser does not take what is said in a chart for the end of the script that it is in.
_ESCAPED = {sign: f"\\u{ord(sign):04x}" for sign in "<>/"}


@dataclass(slots=True)
class Chart:
    """Traces, and the layout, whose panels are numbered from 0, row by row."""

    layout: dict[str, Any]
    data: list[Trace] = field(default_factory=list)

    @classmethod
    def of_panels(cls, titles: Sequence[str], columns: int, between_rows: float, of_title: dict[str, Any]) -> "Chart":
        """Empty panels in so many columns, `between_rows` a part of the height; `of_title` is how titles look."""
        rows = -(-len(titles) // columns)
        width = (1 - _BETWEEN_COLUMNS * (columns - 1)) / columns
        height = (1 - between_rows * (rows - 1)) / rows
        layout: dict[str, Any] = {"annotations": [], "shapes": []}
        for panel in range(rows * columns):
            left = panel % columns * (width + _BETWEEN_COLUMNS)
            bottom = (rows - 1 - panel // columns) * (height + between_rows)
            number = _number(panel)
            layout[f"xaxis{number}"] = {"anchor": f"y{number}", "domain": [left, left + width]}
            layout[f"yaxis{number}"] = {"anchor": f"x{number}", "domain": [bottom, bottom + height]}
            if panel < len(titles):
                title = {"text": titles[panel], "showarrow": False, "xref": "paper", "yref": "paper", **of_title}
                above = {"x": left + width / 2, "y": bottom + height, "xanchor": "center", "yanchor": "bottom"}
                layout["annotations"].append(title | above)
        return cls(layout)

    @property
    def panels(self) -> int:
        """How many panels there is room for."""
        return sum(name.startswith("xaxis") for name in self.layout)

    def add(self, trace: Trace, panel: int | None = None) -> None:
        """Draw a trace in a panel; one that is for the legend alone is in none."""
        at = {} if panel is None else {"xaxis": f"x{_number(panel)}", "yaxis": f"y{_number(panel)}"}
        self.data.append(trace | at)

    def add_shape(self, panel: int, y0: float, y1: float, look: dict[str, Any]) -> None:
        """A shape as wide as a panel, from one height to the other."""
        number = _number(panel)
        place = {"xref": f"x{number} domain", "x0": 0, "x1": 1, "yref": f"y{number}", "y0": y0, "y1": y1}
        self.layout["shapes"].append(place | look)

    def axis(self, direction: str, panel: int) -> dict[str, Any]:
        """The axis of a panel in a direction, x or y."""
        axis: dict[str, Any] = self.layout[f"{direction}axis{_number(panel)}"]
        return axis

    def axes(self, direction: str) -> Iterator[dict[str, Any]]:
        """Those of all panels."""
        return (self.axis(direction, panel) for panel in range(self.panels))

    def markup(self, name: str) -> str:
        """HTML that draws it, where the page has plotly.js; `name` is the id of its element."""
        drawn = ",".join(map(_script, (name, self.data, self.layout, _CONFIG)))
        return (
            f'<div style="height:{self.layout["height"]}px; width:100%;">'
            f'<div id="{name}" class="plotly-graph-div" style="height:100%; width:100%;"></div>'
            f"<script>Plotly.newPlot({drawn});</script></div>"
        )


def plotly_js() -> str:
    """The whole of plotly.js, for a page that needs no network."""
    return files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")


def _number(panel: int) -> str:
    """What tells the axes of a panel from those of others: the first ones have no number."""
    return f"{panel + 1}" if panel else ""


def _script(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign, escaped in _ESCAPED.items():
        text = text.replace(sign, escaped)
    return text
