"""What a machine may lack: commands, features of its kernel, what guests are given. Who needs one says what it is."""

from collections.abc import Callable
from dataclasses import dataclass

from netbench.linux.probes import Probes


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
    and returns an empty text where only a try would tell.
    """

    name: str
    needed_for: str
    remedy: str | Callable[[], str]
    look: Callable[[str], str]
    refusal: str = "{}"
    by_root: bool = False  # who alone can look
    recall: Callable[[str], str] | None = None

    @property
    def what_to_do(self) -> str:
        """The remedy, for this machine."""
        return self.remedy if isinstance(self.remedy, str) else self.remedy()


Need = Tool | Feature | Facility

# What features rest on: a network namespace, a pair of interfaces in it, and rules.
IN_NETNS = ("root", "netns")
ON_VETH = (*IN_NETNS, "veth")
IN_A_VM = "or measure inside a VM, whose kernel has it: topology lab-vm"
