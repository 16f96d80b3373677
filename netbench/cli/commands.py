"""The commands, without logic. Each command imports its heavy modules itself."""

import os
import sys
import time
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netbench.cli import completion
from netbench.cli.arguments import (
    DirectoryArgument,
    DryRunOption,
    JsonOption,
    OutputOption,
    ProfileArgument,
    ScenarioOption,
    SettingsOption,
    SizeOption,
    StrictOption,
    TopologyArgument,
    UutOption,
    WaitOption,
    time_budget_s,
    words_of,
)
from netbench.cli.authoring import authoring_app
from netbench.cli.export import export
from netbench.cli.hosts import hosts_app
from netbench.cli.image import image_app
from netbench.cli.output import LastingOutput, complain, say, width_of
from netbench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from netbench.campaign.request import CampaignRequest

app = typer.Typer(
    name="netbench",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(image_app, name="image")
app.add_typer(hosts_app, name="hosts")
app.add_typer(authoring_app)


class SearchMethod(StrEnum):
    """The methods of `netbench search`."""

    MLRSEARCH = "mlrsearch"
    RFC2544 = "rfc2544"
    TST009 = "tst009"
    LOSS_RATE = "loss-rate"
    SWEEP = "sweep"


class ComparisonFormat(StrEnum):
    """The output formats of a comparison."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"


def _print_version(is_given: bool) -> None:
    if is_given:
        from importlib.metadata import version

        say(f"netbench {version('netbench')}")
        raise typer.Exit()


@app.callback()
def netbench(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Measure how well hosts forward packets when they are virtualised, and how much guests disturb each other."""


@app.command()
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


@app.command()
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
    for text in left_out(request.resolved.unsupported):
        say(f"left out: {text}")
    carry_out(
        directory, lambda observers: campaign.start(request, directory, sys.argv, observers, wait=wait), strict=strict
    )


@app.command()
def resume(directory: DirectoryArgument, wait: WaitOption = False, strict: StrictOption = False) -> None:
    """Go on with a campaign at the first missing trial."""
    from netbench.campaign import runner as campaign
    from netbench.cli.progress import carry_out
    from netbench.results.directory import ResultDirectory

    results = ResultDirectory(directory)
    carry_out(results, lambda observers: campaign.resume(results, sys.argv, observers, wait=wait), strict=strict)


@app.command()
def report(
    directory: DirectoryArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: DIR/report.html.")
    ] = None,
) -> None:
    """Write one self-contained HTML page about a campaign."""
    from netbench.report.page import write_report
    from netbench.results.directory import ResultDirectory

    results = ResultDirectory(directory)
    target = output or results.report
    write_report(results.results(counters=False), target)
    say(f"report: {target}")


@app.command()
def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="The result directory that others are compared to.")],
    others: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="NEW",
            help="Result directories. None: compare the two versions of UUTs in BASE, measured by `run --against`.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write one self-contained HTML page.")
    ] = None,
    fail_on_regression: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            max=100,
            help="Exit code: 0 no regression above this, 1 regression, 5 inconclusive.",
        ),
    ] = None,
    form: Annotated[ComparisonFormat, typer.Option("--format", help="The output format.")] = ComparisonFormat.TEXT,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the --format output here, and print the text."),
    ] = None,
    uut: UutOption = None,
    size: SizeOption = None,
    scenario: ScenarioOption = None,
    accept_disturbed: Annotated[
        bool,
        typer.Option("--accept-disturbed", help="Judge campaigns on a disturbed host as usual, not as inconclusive."),
    ] = False,
) -> None:
    """Compare campaigns to the first one: what changed?

    By how much, and whether that can be chance.
    """
    from netbench.cli.compare import CompareOptions, run_compare
    from netbench.cli.console import PrintingConsole
    from netbench.report.comparison_exports import DOCUMENTS
    from netbench.statistics.compared_cells import CellSelection

    if output is not None and form is ComparisonFormat.TEXT:
        raise UsageError("--output: needs --format json, junit or markdown; the text is printed")
    # With files or a gate's exit code, the command must finish even if the reader of its output is gone.
    must_finish = html is not None or output is not None or fail_on_regression is not None
    console = PrintingConsole(LastingOutput(sys.stdout) if must_finish else sys.stdout)
    options = CompareOptions(
        CellSelection(tuple(uut or ()), tuple(scenario or ()), tuple(words_of(size or ()))),
        fail_on_regression,
        accept_disturbed=accept_disturbed,
        html=html,
        document=DOCUMENTS.get(form.value),
        output=output,
    )
    raise typer.Exit(run_compare([base, *(others or ())], console, options))


app.command()(export)


@app.command()
def analyze(
    capture: Annotated[Path, typer.Argument(metavar="CAPTURE", help="A pcap or pcapng file.")],
    as_json: JsonOption = False,
) -> None:
    """Count frames, loss, rates and delays in a capture file.

    Duplicates and reordering, too.
    """
    from netbench.cli.analyze import analyze_command

    say(analyze_command(capture, as_json))


@app.command()
def selftest(
    topology: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPOLOGY",
            help="The testbed to test: a topology file, or the name of a shipped topology. Default: netns-3, or netns "
            "with too few CPUs for that.",
            autocompletion=completion.topologies,
        ),
    ] = None,
    frames: Annotated[int, typer.Option(min=100, help="The approximate frames per trial and stream.")] = 20_000,
    generator: Annotated[
        str, typer.Option(metavar="KIND", help="The generator, as in profiles: a kind, or {kind: …, options}.")
    ] = "auto",
    sink: Annotated[
        str | None, typer.Option(metavar="KIND", help="The sink, as in profiles. Default: as in profiles.")
    ] = None,
    cabled: Annotated[
        bool, typer.Option("--cabled", help="Cables join the source and sink ports of each stream, without a UUT.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Write selftest.json, selftest.html and summary.json there."
        ),
    ] = None,
) -> None:
    """Measure UUTs of known behaviour: is the tester right, here?

    The measured ceilings of the tester are stored for later campaigns.
    """
    from netbench.cli.selftest import ConsolePresenter, usual_topology
    from netbench.config.loading import load_profile, load_topology
    from netbench.config.plugins import UUTS, option_models, profile_kinds
    from netbench.config.shipped import PROFILES, TOPOLOGIES, find
    from netbench.selftest.suite import SelftestPlan, run_selftest
    from netbench.signals import stopping_on_signals

    testbed = load_topology(find(TOPOLOGIES, topology or usual_topology()), option_models(UUTS))
    testbed = testbed.on(testbed.places[0])  # if UUTs are on several machines, test the first only
    # Any profile will do: only its generator and sink are used.
    settings = [f"generator={generator}", *([f"sink={sink}"] if sink is not None else [])]
    tester = load_profile(find(PROFILES, "quick"), profile_kinds(), settings)
    with stopping_on_signals():
        plan = SelftestPlan(testbed, tester.generator, tester.sink, frames, cabled)
        passed = run_selftest(ConsolePresenter(), plan, output)
    raise typer.Exit(ExitCode.DONE if passed else ExitCode.INVALID_RESULTS)


@app.command()
def doctor(
    topology: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPOLOGY", help="Only the needs of this topology.", autocompletion=completion.topologies
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what this host can run, and which command adds the rest."""
    from netbench.cli.doctor import run_doctor

    needs, addresses, elsewhere = None, {}, []
    if topology is not None:
        from netbench.config.loading import load_topology
        from netbench.config.plugins import UUTS, option_models
        from netbench.config.shipped import TOPOLOGIES, find
        from netbench.testbed.doctor.ssh_checks import check_hosts
        from netbench.testbed.resolved import needs_of

        testbed = load_topology(find(TOPOLOGIES, topology), option_models(UUTS))
        needs, addresses = needs_of(testbed), {port.nic: port.addresses for port in testbed.ports()}
        elsewhere = check_hosts(testbed) if testbed.ssh_hosts else []
    raise typer.Exit(run_doctor(needs, addresses=addresses, elsewhere=elsewhere, as_json=as_json))


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help="Only these, such as `packets` with their headers and varying fields; or the name of a packet.",
        ),
    ] = "",
    uuts: Annotated[
        bool, typer.Option("--uuts", help="Only UUTs: the features of each kind, and whether it is emulated here.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List topologies, profiles, packets, UUTs and other kinds.

    Other kinds are generators, sinks and schedules.
    """
    from netbench.cli import listing

    if uuts and kind:
        raise UsageError(f"list {kind} --uuts: name a kind, or --uuts")
    width = width_of(sys.stdout)
    if uuts:
        say(listing.uut_json() if as_json else listing.uut_listing(width))
    else:
        say(listing.listing_json(kind) if as_json else listing.listing(width, kind))


@app.command()
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be undone; change nothing.")] = False,
) -> None:
    """Undo what a killed run left behind."""
    from netbench.linux.recovery_journal import clean as undo
    from netbench.testbed.preconditions import require_root

    require_root()
    would = "would be " if dry_run else ""
    runs = undo(dry_run)
    for cleaned in runs:
        say(f"run {cleaned.run_id}")
        for process in cleaned.processes:
            say(f"  {would}ended: {process}")
        for command in reversed(cleaned.changes):
            say(f"  {would}undone: {command}")
        for failure in cleaned.failures:
            complain(f"  {failure}")
    if not runs:
        say("nothing to clean up")
    if any(cleaned.failures for cleaned in runs):
        raise typer.Exit(ExitCode.BROKEN)


def _message(error: typer.TyperException) -> str:
    """Return the error in a command line; errors that pydantic found for typer get netbench's wording."""
    from pydantic import ValidationError

    from netbench.config.wording import words_for

    if isinstance(error.__cause__, ValidationError):
        error.message = "; ".join(words_for(problem) for problem in error.__cause__.errors(include_url=False))
    text = StringIO()
    error.show(text)  # type: ignore[attr-defined]  # all exceptions that typer raises have it
    return text.getvalue().rstrip().expandtabs(4)


def run_command_line(arguments: list[str]) -> int:
    """Run a command line and return its exit code; errors of the command itself are raised."""
    try:
        # Not app(): it would turn a closed pipe and every signal into its own exit codes.
        command = typer.main.get_command(app)
        if "_NETBENCH_COMPLETE" in os.environ:  # a shell completes, by the script of --show-completion
            try:
                command.main(arguments, prog_name="netbench")
            except SystemExit as ended:
                return int(ended.code or 0)
        with command.make_context("netbench", arguments) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.TyperException as error:
        complain(_message(error))
        return error.exit_code
    return ExitCode.DONE
