"""Student's t and limits of Poisson means, as scipy has them."""

import pytest
from scipy import special, stats

from netbench.statistics.quantiles import beyond_t, poisson_limit, t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 29, 333, 5000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_quantiles_of_t(degrees, confidence):
    assert t_quantile(confidence, degrees) == pytest.approx(special.stdtrit(degrees, (1 + confidence) / 2), rel=1e-9)


@pytest.mark.parametrize("degrees", [1, 1.3, 2.7, 8, 17.3, 100.2, 1500.5])
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, 1.0, 2.0, 10.0, 1e3, 1e200])
def test_how_likely_t_is_exceeded(t, degrees):
    assert beyond_t(t, degrees) == pytest.approx(2 * stats.t.sf(t, degrees), rel=1e-8, abs=1e-250)


@pytest.mark.parametrize("events", [1, 2, 3, 10, 99, 5432, 10**6, 10**8])
@pytest.mark.parametrize("confidence", [0.9, 0.975, 0.999])
def test_limits_of_poisson_means(events, confidence):
    limit = special.gammaincinv(events + 1, confidence)
    assert poisson_limit(events, confidence) - events == pytest.approx(limit - events, rel=1e-7)
