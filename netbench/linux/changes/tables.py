"""Tables of nftables."""

import shlex
from dataclasses import dataclass
from typing import Self

from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import ByCommand
from netbench.linux.changes.requests import inside_of, not_ours


@dataclass(frozen=True, slots=True)
class AddTable(ByCommand):
    """An nftables table of netbench's own; `rules` are a script for `nft -f` that makes it, or makes it anew."""

    family: str
    table: str
    rules: str

    @property
    def argv(self) -> tuple[str, ...]:
        return *inside_of(self.netns), "nft", "-f", "-"

    @property
    def command(self) -> str:
        return f"{shlex.join(self.argv)} <<'END'\n{self.rules}END"

    def found_by(self, host: Host) -> Self:
        if host.run(["nft", "list", "table", self.family, self.table]).exit_code == 0:
            raise not_ours(f"the nftables table {self.family} {self.table}")
        return self

    def make_by(self, host: Host) -> None:
        run_checked(host, ["nft", "-f", "-"], stdin=self.rules)

    def undo_by(self, host: Host) -> None:
        # Adding first makes deleting succeed whether or not it was there.
        script = f"add table {self.family} {self.table}\ndelete table {self.family} {self.table}\n"
        run_checked(host, ["nft", "-f", "-"], stdin=script)
