"""The commands, without logic. Each command imports its heavy modules itself."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from netbench.cli import completion
from netbench.cli.arguments import DirectoryArgument, JsonOption, ScenarioOption, SizeOption, UutOption, words_of
from netbench.cli.authoring import authoring_app
from netbench.cli.campaign import resume, run, search
from netbench.cli.export import export
from netbench.cli.hosts import hosts_app
from netbench.cli.image import image_app
from netbench.cli.output import LastingOutput, complain, say, width_of
from netbench.errors import ExitCode, UsageError

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


for command in (run, search, resume):
    app.command()(command)


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
    tools: Annotated[bool, typer.Option("--tools", help="Check the tools of flows, too: 30 s more.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Write selftest.json, selftest.html and summary.json there."
        ),
    ] = None,
) -> None:
    """Check the accuracy of the tester on this host.

    UUTs of known behaviour are measured. The measured ceilings of the tester are stored for later campaigns.
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
        plan = SelftestPlan(testbed, tester.generator, tester.sink, frames, cabled, tools)
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
        from netbench.testbed.needs import needs_of

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

    Other kinds are generators, sinks, schedules and tools.
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
