"""The charts of the report, each as plotly's own objects, which refuse what plotly.js does not know."""

from collections.abc import Callable
from typing import ParamSpec

import plotly.graph_objects as go

from netbench.report import delay_and_order, figures
from netbench.report import loss_by_place as by_place
from netbench.report.chart import Chart

Asked = ParamSpec("Asked")


def checked(draw: Callable[Asked, Chart]) -> Callable[Asked, go.Figure]:
    def of(*args: Asked.args, **kwargs: Asked.kwargs) -> go.Figure:
        chart = draw(*args, **kwargs)
        return go.Figure(chart.data, chart.layout)

    return of


offered_against_throughput = checked(figures.offered_against_throughput)
loss_against_offered = checked(figures.loss_against_offered)
most_throughput = checked(figures.most_throughput)
relative_maximum = checked(figures.relative_maximum)
curves_of_throughput = checked(figures.curves_of_throughput)
curves_of_loss = checked(figures.curves_of_loss)
delay_against_offered = checked(delay_and_order.delay_against_offered)
loss_by_place = checked(by_place.loss_by_place)
