"""Requirements of a machine: commands, kernel features, facilities for guests. Each user of one defines it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netbench.errors import MissingError
from netbench.hosts.base import Host, run_checked
from netbench.linux.probes import Probes

# Prints the arguments that are neither commands nor, with a `/`, patterns of an existing file.
_NOT_THERE = """for sign; do
    case $sign in
        */*) [ -n "$(ls -d $sign 2>/dev/null)" ] ;;
        *) command -v "$sign" >/dev/null ;;
    esac || echo "$sign"
done"""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that netbench starts; `package` is its package in Debian.

    `version` is the option that prints its version; empty where the version does not matter for results.
    """

    name: str
    package: str
    needed_for: str
    optional: bool = False  # only some topologies need it
    version: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the kernel: `probe` tries it once everything in `requires` is available.

    A user of a `dispensable` feature continues without it, and reports the effect on the results.
    """

    name: str
    needed_for: str
    requires: tuple[str, ...]
    option: str  # of the kernel's configuration
    module: str  # the module that contains it, if it can be one
    probe: Callable[[Probes], str]
    optional: bool = False
    otherwise: str = ""  # an alternative without it
    dispensable: bool = False


@dataclass(frozen=True, slots=True)
class Facility:
    """A resource for guests.

    `look`, with the name of an existing guest image, returns a description of the resource. It raises MissingError if
    the resource is missing, and another NetbenchError if that is unknown. `refusal` is the message to a user whose
    topology needs it, with a place for the description.

    `recall` is like `look`, but quick and for every user: it tries nothing, and returns an empty text where only a try
    would show it. `signs` are the commands and the files (with a `/`; shell patterns, of which one match is enough)
    that show it on a host over SSH; empty: only a run does. `packages` are its packages in Debian, if any.
    """

    name: str
    needed_for: str
    remedy: str | Callable[[], str]
    look: Callable[[str], str]
    refusal: str = "{}"
    by_root: bool = False  # whether only root can look
    recall: Callable[[str], str] | None = None
    signs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def what_to_do(self) -> str:
        """The remedy, for this machine."""
        return self.remedy if isinstance(self.remedy, str) else self.remedy()


Need = Tool | Feature | Facility


def require_there(host: Host, needs: Iterable[Need]) -> None:
    """Raise MissingError for the required commands, and facilities with signs, that a host lacks.

    The host may be on another machine.
    """
    packages: dict[str, tuple[str, ...]] = {}
    by_hand: dict[str, str] = {}
    for need in needs:
        if isinstance(need, Tool):
            packages[need.name] = (need.package,)
        elif isinstance(need, Facility):
            packages |= dict.fromkeys(need.signs, need.packages)
            by_hand |= {} if need.packages else dict.fromkeys(need.signs, need.what_to_do)
    lacking = run_checked(host, ["sh", "-c", _NOT_THERE, "sh", *packages]).splitlines() if packages else []
    if lacking:
        wanted = ", ".join(dict.fromkeys(package for sign in lacking for package in packages[sign]))
        install = [
            f"install {wanted} there (on a host over SSH `netbench hosts prepare TOPOLOGY` does); a VM has what its "
            "image has"
        ]
        remedies = [*(install if wanted else []), *dict.fromkeys(by_hand[sign] for sign in lacking if sign in by_hand)]
        raise MissingError(f"{host} has no {', '.join(lacking)}: {'; '.join(remedies)}")


# Common requirements of features: a network namespace, a pair of interfaces in it, and rules.
IN_NETNS = ("root", "netns")
ON_VETH = (*IN_NETNS, "veth")
IN_A_VM = "or measure inside a VM, whose kernel has it: topology lab-vm"
