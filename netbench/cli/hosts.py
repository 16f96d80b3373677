"""The command `netbench hosts prepare`."""

from pathlib import Path

import typer

from netbench.cli.arguments import TopologyArgument
from netbench.cli.output import say
from netbench.errors import ExitCode

hosts_app = typer.Typer(
    name="hosts",
    help="Hosts that are reached by SSH.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@hosts_app.callback()
def _hosts() -> None:
    """The group of commands; typer needs it while there is only one command."""


@hosts_app.command()
def prepare(topology: TopologyArgument) -> None:
    """Install what the hosts over SSH of a topology lack.

    `netbench doctor TOPOLOGY` lists what they lack.
    """
    from netbench.config.loading import load_topology
    from netbench.config.plugins import UUTS, option_models
    from netbench.config.shipped import TOPOLOGIES, find
    from netbench.hosts.local import LocalHost
    from netbench.signals import stopping_on_signals
    from netbench.testbed.doctor.ssh_checks import checks_of_hosts, prepare_host
    from netbench.testbed.passwords import passwords_for_now

    wanted = load_topology(Path(find(TOPOLOGIES, topology)), option_models(UUTS))
    here, failed = LocalHost("local", "hosts"), False
    prepared: set[str] = set()
    with stopping_on_signals(), passwords_for_now() as passwords:
        found = checks_of_hosts(wanted, here, passwords)
        if not found:
            say("no host of this topology needs preparation: it has no SSH host except those emulated by netbench")
        for host in found:
            if not host.is_reached:
                say(f"{host.name}: {host.checks[0].found}")
                failed = True
            elif not host.install and not host.by_hand:
                say(f"{host.name}: has all that it needs")
            for check in host.by_hand:
                say(f"{check.name}: {check.found}; {check.remedy}")
                failed = True
            if host.install:
                say(f"{host.name}: {host.install}")
                why = prepare_host(wanted.ssh_hosts[host.name], host, here, passwords)
                say(f"{host.name}: {why or 'done'}")
                failed |= bool(why)
                prepared |= {host.name} if not why else set()
        for host in checks_of_hosts(wanted, here, passwords) if prepared else ():
            # An installed command is not always the first one found there.
            for check in host.missing if host.name in prepared else ():
                say(f"{check.name}: {check.found}, still; {check.remedy}")
                failed = True
    raise typer.Exit(ExitCode.MISSING if failed else ExitCode.DONE)
