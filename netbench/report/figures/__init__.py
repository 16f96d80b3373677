"""The figures of reports: a registry, a file for each figure, and the ways to draw them on a page and into files."""

from netbench.report.figures.plotly_json import blocks, drawn, extra
from netbench.report.figures.registry import Figure, NamedChart, by_part, by_setting, charts_of, figures

__all__ = ["Figure", "NamedChart", "blocks", "by_part", "by_setting", "charts_of", "drawn", "extra", "figures"]
