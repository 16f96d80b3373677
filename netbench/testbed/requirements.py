"""The needs of a host, listed once: for `netbench doctor`, for the refusal before a campaign, and for the Makefile.

Needs are names: of commands, features of the kernel, and facilities for guests that are listed here or declared by a
plug-in (its `may_need`); `root`, `image:NAME`, `port:NAME`, `variable:NAME`; any other is a command that a plug-in
needs.
"""

import os
import sys
from collections.abc import Iterable
from typing import TypeVar

from netbench.config.plugins import GENERATORS, SINKS, UUTS, plugins
from netbench.config.plugins import TOOLS as FLOW_TOOLS
from netbench.errors import MissingError
from netbench.hosts.local import LocalHost, require_tool
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.linux.cgroups import find_controller
from netbench.linux.requirements import IN_NETNS, ON_VETH, Command, Facility, Feature, Probes, Requirement

N = TypeVar("N", bound=Requirement)

_IMAGE, _PORT, _VARIABLE = "image:", "port:", "variable:"

# Tools that are not optional are needed wherever frames are sent or forwarded on this machine.
TOOLS = (
    Command("ip", "iproute2", "running commands inside network namespaces", version="-V"),
    Command("ethtool", "ethtool", "switching the offloads of NICs off", version="--version"),
    Command("taskset", "util-linux", "pinning processes to CPUs"),
    Command("setpriv", "util-linux", "child processes that end with netbench"),
    Command("ssh", "openssh-client", "hosts of kind ssh", optional=True, version="-V"),
    Command("sshd", "openssh-server", "SSH servers emulated by netbench", optional=True),
    Command("ssh-keygen", "openssh-client", "SSH servers emulated by netbench", optional=True),
    Command("unshare", "util-linux", "SSH servers emulated by netbench", optional=True),
    Command("mmdebstrap", "mmdebstrap", "building guest images", optional=True),
    Command("depmod", "kmod", "building guest images", optional=True),
    Command("xz", "xz-utils", "building guest images", optional=True),
    Command("cpio", "cpio", "building guest images, containers whose root is one", optional=True),
    Command("stress-ng", "stress-ng", "loads of neighbours that are no guests", optional=True),
)
FEATURES = (
    Feature("netns", "testbeds of network namespaces", ("root",), "CONFIG_NET_NS", "", Probes.netns),
    Feature("veth", "links between namespaces", IN_NETNS, "CONFIG_VETH", "veth", Probes.veth),
    Feature("bridge", "UUTs that bridge", ON_VETH, "CONFIG_BRIDGE", "bridge", Probes.bridge),
    Feature("bridge-nf", "bridges that no host firewall filters", (*ON_VETH, "bridge"), "", "", Probes.bridge_nf),
    Feature("forwarding", "UUTs that route", IN_NETNS, "CONFIG_SYSCTL", "", Probes.forwarding),
    Feature("xdp", "generators on XDP sockets", IN_NETNS, "CONFIG_XDP_SOCKETS", "", Probes.xdp, optional=True),
    Feature(
        "napi",
        "links with `receive: napi`, on which overload is loss as at a NIC",
        (*ON_VETH, "ethtool", "taskset"),
        "threaded NAPI on veth pairs (Linux 5.13)",
        "",
        Probes.napi,
        optional=True,
        otherwise="or go on without: such links receive inline, where overload slows the source",
        dispensable=True,
    ),
)


def _image(name: str) -> str:
    image = find_image(name)
    return f"kernel {image.kernel_release}, digest {image.digest[:12]}, in {image.directory}"


def _cpu_groups(_: str) -> str:
    found = find_controller(LocalHost("local", "requirements"))
    return f"version {found.version}, in {found.directory}"


FACILITIES = (
    Facility(
        "cgroup-cpu",
        "guests with a weight or a limit of CPU time",
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        _cpu_groups,
    ),
)


def all_of(kind: type[N]) -> list[N]:
    """Return all tools, features or facilities that are listed here, then those that plug-ins declare, each once."""
    plug_ins = [plug_in for group in (GENERATORS, SINKS, FLOW_TOOLS, UUTS) for plug_in in plugins(group).values()]
    declared: list[Requirement] = [need for plug_in in plug_ins for need in getattr(plug_in, "may_need", ())]
    found = {need.name: need for need in (*TOOLS, *FEATURES, *FACILITIES, *declared) if isinstance(need, kind)}
    return list(found.values())


def facilities(needs: Iterable[str]) -> list[Facility]:
    """Return the facilities among the needs: guest images first, then variables of the environment, then others."""
    wanted = set(needs)
    listed = [facility for facility in all_of(Facility) if facility.name in wanted]
    return [*map(image_facility, _named(_IMAGE, wanted)), *map(_variable_facility, _named(_VARIABLE, wanted)), *listed]


def _named(prefix: str, needs: Iterable[str]) -> list[str]:
    return sorted(need.removeprefix(prefix) for need in needs if need.startswith(prefix))


def image_facility(name: str) -> Facility:
    """Return a guest image as a facility."""
    own = "" if name == DEFAULT_IMAGE else f" --name {name}"
    return Facility(
        f"{_IMAGE}{name}", "guests and hosts that are VMs", f"netbench image build{own}", lambda _: _image(name)
    )


def _variable_facility(name: str) -> Facility:
    """Return a variable of the environment as a facility; its value, such as a password, must be in no file."""

    def look(_: str) -> str:
        if name not in os.environ:
            raise MissingError(f"{name} is not in the environment")
        return "is in the environment"  # the value is never printed

    what = "what the topology has from the environment, such as a password"
    refusal = "{}, from which the topology has a secret: export it"
    return Facility(f"{_VARIABLE}{name}", what, f"export {name}=…", look, refusal)


def tools(needs: Iterable[str]) -> list[Command]:
    """Return the commands among the needs; the package of an undeclared command is guessed to have its name."""
    wanted = set(needs)
    others = {need for need in wanted - known_needs() if not need.startswith((_IMAGE, _PORT, _VARIABLE))}
    return [
        *(tool for tool in all_of(Command) if tool.name in wanted),
        *(Command(name, name, "the topology, which asks for it", optional=True) for name in sorted(others)),
    ]


def known_needs() -> frozenset[str]:
    """Return root, and the commands, features and facilities that are listed here or declared."""
    kinds: tuple[type[Requirement], ...] = (Command, Feature, Facility)
    return frozenset({"root", *(need.name for kind in kinds for need in all_of(kind))})


def image_among(needs: Iterable[str]) -> str:
    """Return the guest image for checks: the first one among the needs, or the default."""
    images = _named(_IMAGE, needs)
    return images[0] if images else DEFAULT_IMAGE


def with_prerequisites(needs: Iterable[str]) -> frozenset[str]:
    """Return the needs, and all prerequisites of the features among them."""
    requires = {feature.name: feature.requires for feature in all_of(Feature)}
    wanted: set[str] = set()
    pending = list(needs)
    while pending:
        need = pending.pop()
        if need not in wanted:
            wanted.add(need)
            pending += requires.get(need, ())
    return frozenset(wanted)


def require(needs: Iterable[str]) -> None:
    """MissingError for the first need that this host lacks; kernel features are not checked before their use."""
    wanted = frozenset(needs)
    for tool in tools(wanted):
        require_tool(tool.name)
    for facility in facilities(wanted):
        try:
            facility.look(image_among(wanted))
        except MissingError as error:
            raise MissingError(facility.refusal.format(error)) from error


if __name__ == "__main__":
    # For the Makefile: COMMAND:PACKAGE of the tools that every campaign needs (run), or only some need (guest).
    wanted = [tool for tool in all_of(Command) if tool.optional == (sys.argv[1] == "guest")]
    sys.stdout.write(" ".join(f"{tool.name}:{tool.package}" for tool in wanted))
