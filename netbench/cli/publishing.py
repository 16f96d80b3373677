"""What `netbench export --figures` and `--tables` ask for, and what they print."""

from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from netbench.errors import UsageError
from netbench.model.campaign import CampaignResults
from netbench.report.publication import FigureFormat, write_publication
from netbench.report.text_tables import TableFormat

Form = TypeVar("Form", bound=StrEnum)


def publish(results: CampaignResults, figures: str | None, tables: str | None, out: Path | None) -> str:
    """Write figures and tables in the formats that are listed, and say which files these are.

    UsageError for a format that there is not, and without a directory that can be written to.
    """
    if out is None:
        raise UsageError("figures and tables are several files; name a directory for them with -o DIR")
    asked = _listed("--figures", figures, FigureFormat), _listed("--tables", tables, TableFormat)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a directory for figures and tables with -o DIR")
    written = write_publication(results, *asked, out)
    return "\n".join(map(str, written)) if written else "nothing to draw: no trial has been measured"


def _listed(option: str, text: str | None, forms: type[Form]) -> list[Form]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    known = [form.value for form in forms]
    if text is not None and not words:
        raise UsageError(f"{option}: name at least one of {', '.join(known)}")
    for word in words:
        if word not in known:
            raise UsageError(f"{option}: there is no {word!r}; choose from {', '.join(known)}")
    return [form for form in forms if form.value in words]
