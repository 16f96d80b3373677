"""The part of the page about where frames died: by measurement, along the loss curve, summed, and what it proves."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from netbench.model.campaign import CampaignResults
from netbench.report.loss_by_place import loss_by_place
from netbench.report.markup import Html, element, join
from netbench.report.panels import Style, members_by_uut
from netbench.report.paper_finding import claim_content, without_guest
from netbench.report.sections import Option, Section, View, chosen, drawn, note, picked, section
from netbench.report.tables import lost_frames_table
from netbench.report.waterfalls import waterfalls
from netbench.statistics.guest_sides import uuts_with_guest
from netbench.statistics.outcomes import GroupFate, group_fate
from netbench.statistics.paper_finding import judge_claim


def places_sections(choice: Sequence[View], looks: Mapping[str, Style], results: CampaignResults) -> Iterable[Section]:
    """Where frames died; then, where UUTs have guests, whether most did before they entered one."""
    guests = uuts_with_guest(results.trials)
    claims = judge_claim(results.trials, looks)
    yield section(
        "places",
        "Where frames died",
        note(
            "By the counters of the path from source to sink. Each bar begins where the one above it ends: from the"
            " frames sent down to those received. Frames that no counter explains are a bar of their own."
        ),
        chosen(choice, lambda view: waterfalls(f"fates-{view.name}", view.groups, guests, looks)),
        element("h3", "The loss curve by place"),
        chosen(choice, lambda view: _split(view, guests, looks)),
        element("h3", "All loads and frame sizes together"),
        note("Sums over the valid trials. Suspicious trials have a column of their own; invalid ones are left out."),
        lost_frames_table(results.trials, looks),
        *(() if claims.by_uut else (note(without_guest(claims)),)),
    )
    if claims.by_uut:
        yield section(
            "claim",
            "Do most frames die before they enter the guest?",
            *claim_content(claims, looks),
            link="Before the guest?",
        )


def _split(view: View, guests: Collection[str], looks: Mapping[str, Style]) -> Html:
    """The loss curve of each UUT that lost anything, the one that lost most first."""
    fates = {
        uut: [fate for group in groups if (fate := group_fate(group, guest=uut in guests))]
        for uut, groups in members_by_uut(view.groups).items()
    }
    lossy = {uut: own for uut, own in fates.items() if any(fate.deaths for fate in own)}
    if not lossy:
        return note("No frame was lost.")
    options = [Option(uut, looks[uut].label) for uut in lossy]
    parts = [
        _curves(looks[uut].label, own, looks, f"split-{place}-{view.name}")
        for place, (uut, own) in enumerate(lossy.items())
    ]
    most = max(lossy, key=lambda uut: sum(fate.lost for fate in lossy[uut]))
    return picked(f"split-{view.name}", "Unit under test", options, parts, most)


def _curves(label: str, fates: Sequence[GroupFate], looks: Mapping[str, Style], name: str) -> Html:
    sizes = {fate.group.frame_size for fate in fates}
    whole = sorted(sizes - {fate.group.frame_size for fate in fates if fate.deaths}, reverse=True)
    remark = note(f"No frame of {' or '.join(f'{size:,}' for size in whole)} bytes was lost.") if whole else Html()
    return join((element("h4", label), drawn(loss_by_place(fates, looks), name), remark))
