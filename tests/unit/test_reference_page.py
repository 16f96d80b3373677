"""The page docs/reference.md has every key of topologies and profiles."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
reference_text = runpy.run_path(str(ROOT / "tools/reference.py"))["reference_text"]
TEMPLATE = (ROOT / "tools/reference.in.md").read_text()


def test_the_options_of_the_search_for_maxima_are_on_the_page():
    page = reference_text(TEMPLATE)
    assert "Duration of a trial that counts. Default: that of the profile, of frames at most 1 s." in page
    assert page == (ROOT / "docs/reference.md").read_text()


@pytest.mark.parametrize(("table", "key"), [("MaximaSpec", "duration"), ("Settle", "before"), ("sink", "sample")])
def test_a_template_without_a_table_is_rejected(table, key):
    with pytest.raises(ValueError, match=f"so these keys are too: .*{key}"):
        reference_text(TEMPLATE.replace(f"<!-- tables: {table} -->", ""))
