"""What a machine may lack: commands, features of its kernel, what guests are given. Who needs one says what it is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netbench.errors import MissingError
from netbench.hosts.base import Host, run_checked
from netbench.linux.probes import Probes

# Says which of its arguments are neither commands nor, with a `/`, patterns of a file that is there.
_NOT_THERE = """for sign; do
    case $sign in
        */*) [ -n "$(ls -d $sign 2>/dev/null)" ] ;;
        *) command -v "$sign" >/dev/null ;;
    esac || echo "$sign"
done"""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that netbench starts; `package` is the one that holds it in Debian.

    `version` is the option that makes it tell its version; empty where that says nothing about numbers.
    """

    name: str
    package: str
    needed_for: str
    optional: bool = False  # only some topologies need it
    version: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """Something of the kernel: tried by `probe` once everything in `requires` is there.

    Whoever needs one that is `dispensable` goes on without it, and says what that means for the numbers.
    """

    name: str
    needed_for: str
    requires: tuple[str, ...]
    option: str  # of the kernel's configuration
    module: str  # that holds it, where it may be one
    probe: Callable[[Probes], str]
    optional: bool = False
    otherwise: str = ""  # what does without it
    dispensable: bool = False


@dataclass(frozen=True, slots=True)
class Facility:
    """Something that guests may be given.

    `look`, with the name of a guest image that is there, returns what was found; it raises MissingError for what is
    not there, and another NetbenchError for what it could not find out. `refusal` is what to say to a user whose
    topology needs it, around what was found. `recall` is like `look`, but quick and for everybody: it tries nothing,
    and returns an empty text where only a try would tell. `signs` are the commands and the files (with a `/`; patterns
    of the shell, of which one is enough) by which a host over SSH is seen to have it; empty: only a run tells.
    `packages` are what adds it, by their names in Debian, where packages do.
    """

    name: str
    needed_for: str
    remedy: str | Callable[[], str]
    look: Callable[[str], str]
    refusal: str = "{}"
    by_root: bool = False  # who alone can look
    recall: Callable[[str], str] | None = None
    signs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def what_to_do(self) -> str:
        """The remedy, for this machine."""
        return self.remedy if isinstance(self.remedy, str) else self.remedy()


Need = Tool | Feature | Facility


def require_there(host: Host, needs: Iterable[Need]) -> None:
    """MissingError for the commands and facilities with signs, among the needs, that a host has not.

    It may be another machine than this one.
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
        wanted = ", ".join(dict.fromkeys(one for sign in lacking for one in packages[sign]))
        install = [
            f"install {wanted} there (on a host over SSH `netbench hosts prepare TOPOLOGY` does); a VM has what its "
            "image has"
        ]
        told = [*(install if wanted else []), *dict.fromkeys(by_hand[sign] for sign in lacking if sign in by_hand)]
        raise MissingError(f"{host} has no {', '.join(lacking)}: {'; '.join(told)}")


# What features rest on: a network namespace, a pair of interfaces in it, and rules.
IN_NETNS = ("root", "netns")
ON_VETH = (*IN_NETNS, "veth")
IN_A_VM = "or measure inside a VM, whose kernel has it: topology lab-vm"
