"""Links of a known delay."""

from dataclasses import dataclass

from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import ByCommand
from netbench.linux.changes.requests import inside_of

# Frames that may be on their way at once; netem's own default, 1000, would be another loss (tc-netem(8)).
_MOST_FRAMES = 100_000


@dataclass(frozen=True, slots=True)
class AddDelay(ByCommand):
    """Delay all that leaves by an interface, by netem in place of its root queueing discipline."""

    interface: str
    delay_us: int

    @property
    def argv(self) -> tuple[str, ...]:
        netem = ("netem", "delay", f"{self.delay_us}us", "limit", str(_MOST_FRAMES))
        return *inside_of(self.netns), "tc", "qdisc", "add", "dev", self.interface, "root", *netem

    def make_by(self, host: Host) -> None:
        run_checked(host, self.argv[len(inside_of(self.netns)) :])

    def undo_by(self, host: Host) -> None:
        host.run(["tc", "qdisc", "del", "dev", self.interface, "root", "netem"])
