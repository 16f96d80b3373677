"""The figures of reports: a registry, a file for each figure, and the ways to draw them on a page and into files."""

from netbench.report.figures.block import ChartBlock, block, blocks, drawn, extra, plotly_script, scale_switch
from netbench.report.figures.registry import Figure, NamedChart, by_setting, charts_of, figures

__all__ = [
    "ChartBlock",
    "Figure",
    "NamedChart",
    "block",
    "blocks",
    "by_setting",
    "charts_of",
    "drawn",
    "extra",
    "figures",
    "plotly_script",
    "scale_switch",
]
