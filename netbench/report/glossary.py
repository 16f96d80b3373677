"""What the words and numbers of the report mean: read from the file beside this module."""

from importlib.resources import files

import yaml

from netbench.report.markup import Html, element, join


def definitions(*, neighbours: bool = False) -> Html:
    """Each word with its meaning; those about neighbours where there are any."""
    glossary = yaml.safe_load(files("netbench.report").joinpath("glossary.yaml").read_text(encoding="utf-8"))
    words = {**glossary["words"], **(glossary["of_neighbours"] if neighbours else {})}
    return element("dl", *(join((element("dt", word), element("dd", words[word]))) for word in words))
