"""The paper's claim that most frames die before they enter the guest, beside what was counted here."""

from collections.abc import Iterable, Mapping

from netbench.report.formats import UNKNOWN, count, frames, rough_percent
from netbench.report.markup import Column, Html, element, row, table
from netbench.report.panels import Style
from netbench.report.published import schlosser2011
from netbench.report.sections import note
from netbench.report.tables import uut_label
from netbench.statistics.guest_sides import Side
from netbench.statistics.paper_finding import Claim, Claims, Finding

_SIDES = (Side.BEFORE, Side.INSIDE, Side.AFTER, Side.UNKNOWN)
_COLUMNS = (
    Column("UUT"),
    Column("Valid trials", css="number"),
    Column("Lost frames", css="number"),
    *(Column(side.value.capitalize(), css="number") for side in _SIDES),
    Column("Most died at"),
    Column("The claim is"),
)
_FINDINGS = {Finding.CONFIRMED: "confirmed", Finding.REFUTED: "refuted", Finding.OPEN: "open", None: "not tested"}


def claim_content(claims: Claims, looks: Mapping[str, Style]) -> Iterable[Html]:
    """The claim, what the counts say of it in one sentence, and a table with a row per UUT."""
    paper = schlosser2011()
    yield note(
        "The paper found that most lost packets never get as far as the guest (end of its section 4). ",
        paper.citation,
        " DOI ",
        element("a", paper.doi, href=f"https://doi.org/{paper.doi}"),
    )
    yield element("p", element("strong", claim_sentence(claims)), css="finding")
    yield table(_COLUMNS, [[_of_uut(uut, claim, looks) for uut, claim in claims.by_uut.items()]], css="lost")
    yield note(
        "From valid trials at any load and frame size. A frame that the virtual NIC dropped because the guest had no"
        " free buffer for it died before the guest, whose kernel never had it.",
        *((f" {without_guest(claims)}",) if claims.without_guest else ()),
    )


def claim_sentence(claims: Claims) -> str:
    """What was counted and what it means for the claim, with the UUTs for which it means something else."""
    claim = claims.together
    where = f"{count(claim.fate.trials, 'valid trial')} of {count(len(claims.by_uut), 'UUT')} with a guest"
    if claim.finding is None:
        return f"No frame was lost in {where}: the claim is not tested."
    others = [side for side in _SIDES[1:] if claim.fate.on(side)]
    rest = "".join(f", {rough_percent(_share(claim, side))} {_died(side)}" for side in others)
    exceptions = [uut for uut, one in claims.by_uut.items() if one.finding not in (claim.finding, None)]
    but = f" (not so: {', '.join(exceptions)})" if exceptions else ""
    return (
        f"Of {frames(claim.fate.lost)} frames lost in {where}, {rough_percent(claim.before_ratio)} died before they"
        f" entered the guest{rest}. This {claim.finding.value} the claim{but}."
    )


def without_guest(claims: Claims) -> str:
    """Which UUTs the claim is not about."""
    return f"The claim is not about UUTs on whose path no guest counts frames: {', '.join(claims.without_guest)}."


def _died(side: Side) -> str:
    return {Side.INSIDE: "inside", Side.AFTER: "after they had left it"}.get(side, "where no counter tells")


def _of_uut(uut: str, claim: Claim, looks: Mapping[str, Style]) -> Html:
    worst = max(claim.fate.deaths, key=lambda death: death.frames, default=None)
    return row(
        _COLUMNS,
        (
            uut_label(uut, looks),
            f"{claim.fate.trials:,}",
            frames(claim.fate.lost),
            *(rough_percent(_share(claim, side)) for side in _SIDES),
            UNKNOWN if worst is None else worst.place,
            _FINDINGS[claim.finding],
        ),
    )


def _share(claim: Claim, side: Side) -> float | None:
    return claim.fate.on(side) / claim.fate.lost if claim.fate.lost > 0 else None
