"""The commands that measure a campaign: `netbench run`, `netbench search` and `netbench resume`."""

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netbench.cli.arguments import (
    DirectoryArgument,
    DryRunOption,
    OutputOption,
    ProfileArgument,
    ScenarioOption,
    SettingsOption,
    StrictOption,
    TopologyArgument,
    UutOption,
    WaitOption,
    time_budget_s,
)
from netbench.cli.output import say
from netbench.errors import UsageError

if TYPE_CHECKING:
    from netbench.campaign.request import CampaignRequest


class SearchMethod(StrEnum):
    """The methods of `netbench search`."""

    MLRSEARCH = "mlrsearch"
    RFC2544 = "rfc2544"
    TST009 = "tst009"
    LOSS_RATE = "loss-rate"
    SWEEP = "sweep"


def run(
    topology: TopologyArgument,
    profile: ProfileArgument,
    output: OutputOption = None,
    uut: UutOption = None,
    scenario: ScenarioOption = None,
    settings: SettingsOption = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OTHER",
            help="Measure each UUT in turn with a second version: from another topology, or from this one with a "
            "changed key (uuts.NAME.KEY=VALUE; may be repeated). `netbench compare DIR` then compares the two.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed of the random order and flows; the same as --set seed=N.")
    ] = None,
    loads_from: Annotated[
        Path | None,
        typer.Option(
            metavar="BASE", help="Replay the rates of this result directory where loads are shares of a maximum."
        ),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The longest duration of the campaign, such as 5m: one repetition of everything first, then more; "
            "trials are shorter if even one repetition takes too long.",
        ),
    ] = None,
    wait: WaitOption = False,
    strict: StrictOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Run a campaign: every trial of PROFILE on every UUT of TOPOLOGY."""
    request = _request(
        topology,
        profile,
        uuts=uut or (),
        scenarios=scenario or (),
        settings=[*(settings or ()), *([f"seed={seed}"] if seed is not None else [])],
        against=against or (),
        loads_from=loads_from,
        time_budget_s=time_budget_s(time_budget),
    )
    _measure(request, output, wait=wait, strict=strict, dry_run=dry_run)


def search(
    topology: TopologyArgument,
    profile: ProfileArgument = "ndr",
    output: OutputOption = None,
    uut: UutOption = None,
    scenario: ScenarioOption = None,
    settings: SettingsOption = None,
    method: Annotated[SearchMethod | None, typer.Option(help="Search method; default: that of the profile.")] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(metavar="PERCENT", help="The permitted loss ratio, such as 0% or 0.5%; may be repeated."),
    ] = None,
    wait: WaitOption = False,
    strict: StrictOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Find the highest load that each UUT forwards loss-free.

    Or with the permitted loss (PDR). PROFILE sets the frames, and may be any profile: its loads are not used.
    """
    from netbench.model.fields import parse_percent

    _refuse_search_of_tool(topology, profile)
    for percent in loss or ():
        try:
            parse_percent(percent)
        except ValueError as error:
            raise UsageError(f"--loss {percent}: {error}") from error
    overrides = ["schedule.kind=search", *([f"schedule.method={method.value}"] if method else [])]
    if loss or method not in (None, SearchMethod.MLRSEARCH):  # other methods need one loss, which profiles may lack
        overrides.append(f"schedule.loss=[{', '.join(loss or ['0%'])}]")
    request = _request(
        topology, profile, uuts=uut or (), scenarios=scenario or (), settings=[*overrides, *(settings or ())]
    )
    _measure(request, output, wait=wait, strict=strict, dry_run=dry_run)


def _refuse_search_of_tool(topology: str, profile: str) -> None:
    """UsageError for a profile whose rates are those of a tool."""
    from netbench.config.document import read_document
    from netbench.config.shipped import PROFILES, find

    data = read_document(find(PROFILES, profile)).data
    if data.get("tool"):
        has_search = data.get("schedule") is not None
        raise UsageError(
            f"profile {profile} {'searches rates of' if has_search else 'runs'} a tool, and `netbench search` searches "
            f"frame rates: use `netbench run {topology} {profile if has_search else 'slo'}`"
        )


def _request(topology: str, profile: str, **options: Any) -> "CampaignRequest":  # noqa: ANN401 - as of read_request
    from netbench.campaign.request import read_request
    from netbench.config.shipped import PROFILES, TOPOLOGIES, find

    return read_request(find(TOPOLOGIES, topology), find(PROFILES, profile), **options)


def _measure(request: "CampaignRequest", output: Path | None, *, wait: bool, strict: bool, dry_run: bool) -> None:
    if dry_run:
        from netbench.cli.dry_run import describe
        from netbench.testbed.preconditions import port_warnings, refuse_unreturnable_ports, refuse_unsafe_ports

        for line in describe(request):
            say(line)
        refuse_unsafe_ports(request.topology)
        refuse_unreturnable_ports(request.topology)
        for text in port_warnings(request.topology):
            say(f"# warning: {text}")
        return
    from netbench.campaign import runner as campaign
    from netbench.cli.progress import carry_out
    from netbench.plan.warnings import left_out
    from netbench.results.directory import ResultDirectory

    stamp = time.strftime("%Y%m%d-%H%M%S")
    default = Path("results") / f"{request.topology.name}-{request.profile.name}-{stamp}"
    directory = ResultDirectory(output or default)
    directory.refuse_existing()
    for text in left_out(request.resolved.unsupported, len(request.profile.tool)):
        say(f"left out: {text}")
    carry_out(
        directory, lambda observers: campaign.start(request, directory, sys.argv, observers, wait=wait), strict=strict
    )


def resume(directory: DirectoryArgument, wait: WaitOption = False, strict: StrictOption = False) -> None:
    """Go on with a campaign at the first missing trial."""
    from netbench.campaign import runner as campaign
    from netbench.cli.progress import carry_out
    from netbench.results.directory import ResultDirectory

    results = ResultDirectory(directory)
    carry_out(results, lambda observers: campaign.resume(results, sys.argv, observers, wait=wait), strict=strict)
