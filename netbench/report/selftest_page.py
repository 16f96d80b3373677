"""The results of a self-test: a sentence, the parts of a page about the tester, and a separate page."""

from collections.abc import Mapping
from datetime import UTC, datetime

from netbench.model.selftest_record import SelftestRecord
from netbench.report.blocks import Block, Heading, Note, section
from netbench.report.formats import count, sentence
from netbench.report.renderer import PageContent, rendered
from netbench.report.tables.tester import ceilings_table, checks_table


def selftest_sentence(record: SelftestRecord) -> str:
    """Whether the tester can be trusted, and the number of checks behind it."""
    failed = sum(check.passed is False for check in record.checks)
    skipped = sum(check.passed is None for check in record.checks)
    made = len(record.checks) - skipped
    if not made:
        text = sentence("status.selftest_none")
    elif failed or not record.passed:
        text = sentence("status.selftest_failed", failed=f"{failed:,}", checks=count(made, "check"))
    else:
        text = sentence("status.selftest_passed", checks=count(made, "check"))
    return f"{text} {sentence('status.selftest_skipped', checks=count(skipped, 'check'))}" if skipped else text


def selftest_blocks(record: SelftestRecord, limited: str = "") -> list[Block]:
    """The checks and the ceilings; `limited` is about the trials of a campaign above them."""
    if not record.ceilings:
        return [checks_table(record), Note(sentence("notes.ceiling_unknown"))]
    ceiling = Note(sentence("notes.ceiling", limited=limited))
    return [checks_table(record), Heading("The tester's own ceiling"), ceiling, ceilings_table(record)]


def selftest_page(record: SelftestRecord) -> str:
    """One self-contained HTML page about a self-test."""
    content = PageContent(
        title=f"Self-test of {record.topology}",
        byline=f"Measured {_moment(record.when_ns)}; source {record.generator}; testbed {record.fingerprint}",
        headline=[selftest_sentence(record)],
        state="" if record.passed else "invalid",
        sections=[section("checks", selftest_blocks(record), is_open=True)],
    )
    return "".join(rendered(content))


def selftest_before(when_ns: int, manifest: Mapping[str, object]) -> str:
    """How long before a campaign a self-test was made: `2 hours before this campaign (2025-03-04 07:15:00 UTC)`."""
    try:
        started = datetime.fromisoformat(str(manifest.get("started"))).timestamp()
    except ValueError:
        return f"at {_moment(when_ns)}"
    return f"{_duration(started - when_ns / 1e9)} before this campaign ({_moment(when_ns)})"


def _moment(when_ns: int) -> str:
    """A time as text, in UTC."""
    return f"{datetime.fromtimestamp(when_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _duration(seconds: float) -> str:
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            return count(int(seconds // unit), name)
    return "less than a minute"
