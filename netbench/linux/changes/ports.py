"""Ports of the machine: found, lent to a namespace, and given back as they were found."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import Any, Self

from netbench.errors import MissingError, TestbedError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.linux.changes.base import Change, Look, ask_ip, is_gone, tell, was_killed, within
from netbench.model.interfaces import PREFIX

# `$$` is the shell's, which has not left its namespace; it must be there still, and not have become `ip` itself.
# Its number may be taken by now, or this kernel may not give any (before 5.16): then it gets another.
_SEND_HOME = (
    'ip -n "$0" link set dev "$1" netns $$ index "$2" 2>/dev/null || ip -n "$0" link set dev "$1" netns $$; exit $?'
)
_SETTINGS = ("ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh", "mpls/conf")
_FOREVER = 2**32 - 1  # INFINITY_LIFE_TIME of linux/if_addr.h, in seconds
# Of ip-address(8), beside those that say what became of an address.
_FLAGS = ("home", "mngtmpaddr", "nodad", "optimistic", "noprefixroute", "autojoin")
# Keys of `ip -j address`, and the words for them; not every iproute2 knows all.
_ATTRIBUTES = {"broadcast": "brd", "label": "label", "metric": "metric", "protocol": "proto"}
_SECRET = "/stable_secret"
_DAD_S = 3.0  # until addresses of IPv6 are no longer tentative: a second, and the random delay before (RFC 4862)


@dataclass(frozen=True, slots=True)
class MovePort(Change):
    """A port of the machine, lent to a namespace; `index` is its number at home."""

    interface: str
    netns: str
    index: int = 0

    @property
    def command(self) -> str:
        return f"ip link set dev {self.interface} netns {self.netns}"

    def found(self, look: Look) -> Self:
        link = look.links(None).get(self.interface)
        if link is None:
            raise TestbedError(f"there is no interface {self.interface} in this machine")
        return replace(self, index=link["ifindex"])

    def make(self, host: Host) -> None:
        done = host.run(["ip", "link", "set", "dev", self.interface, "netns", self.netns])
        if done.exit_code != 0:
            raise TestbedError(done.stderr.strip())

    def name_back(self, host: Host) -> None:
        """Restore the name of a port that was renamed inside the namespace; do nothing if the port is missing."""
        try:
            links = ask_ip(host, self.netns, "link", "show")
        except (TestbedError, MissingError):
            return  # the namespace is gone; undo() reports a port that cannot be returned
        names = {link["ifindex"]: link["ifname"] for link in links}
        name = names.get(self.index, "")
        if name and self.interface not in names.values() and not name.startswith(PREFIX):
            for words in (("down",), ("name", self.interface)):
                host.run([*within("ip", self.netns), "link", "set", "dev", name, *words])

    def undo(self, host: Host) -> None:
        # A port that never got there is still at home, and there is nothing to bring back.
        sent = host.run(["sh", "-c", _SEND_HOME, self.netns, self.interface, str(self.index)])
        if sent.exit_code != 0 and (was_killed(sent) or not is_gone(sent.stderr)):
            raise TestbedError(sent.stderr.strip() or f"`ip` ended with exit code {sent.exit_code}")


@dataclass(frozen=True, slots=True)
class KeepPort(Change):
    """A port of the machine as it is found, before anything is done to it, and as it is given back.

    The kernel takes a port down when it is `lent` to a namespace, and its addresses and settings away; those of IPv6
    also where IPv6 is switched off. `addresses` are words of `ip address`, each with its lifetimes in seconds when it
    was found, at `found_s` (CLOCK_BOOTTIME; None: forever); `settings` are files below /proc/sys/net with their values.
    What cannot be given back is refused.
    """

    interface: str
    lent: bool
    up: bool = False
    addresses: tuple[str, ...] = ()
    valid_s: tuple[int | None, ...] = ()
    preferred_s: tuple[int | None, ...] = ()
    found_s: float = 0.0
    settings: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return f"ip address show dev {self.interface}"

    def found(self, look: Look) -> Self:
        link = look.links(None).get(self.interface)
        if link is None:
            raise TestbedError(f"there is no interface {self.interface} in this machine")
        settings = self._read_settings(look.host)
        lost = [*self._lost(look.host, "UP" in link["flags"]), *_odd(link, self.interface), *_routed(settings)]
        if lost:
            raise UsageError(
                f"port {self.interface} could not be given back as it is, for it has {', '.join(lost)}: remove that "
                "first, or name another port"
            )
        addresses = link.get("addr_info", ())
        return replace(
            self,
            up="UP" in link["flags"],
            addresses=tuple(_words(one) for one in addresses),
            valid_s=tuple(_lifetime(one["valid_life_time"]) for one in addresses),
            preferred_s=tuple(_lifetime(one["preferred_life_time"]) for one in addresses),
            found_s=_boottime_s(look.host),
            settings=tuple(f"{path}={value}" for path, value in settings.items()),
        )

    def make(self, host: Host) -> None:
        """Nothing: it is only looked at."""

    def undo(self, host: Host) -> None:
        found = self._look(host)
        if found is None:
            return  # it is gone
        wrong = self._restore_settings(host)
        if self.up != ("UP" in found["flags"]):
            state = ("link", "set", "dev", self.interface, "up" if self.up else "down")
            wrong += tell(host, ("ip",), [state]).values()
        lines = list(self._address_lines(self._look(host) or {}, _boottime_s(host)))
        if lines:
            wrong += tell(host, ("ip",), lines, all_of_them=True).values()
        if wrong := [words for words in wrong if not is_gone(words)]:
            raise TestbedError(f"port {self.interface}: {'; '.join(wrong)}")
        wait_until(lambda: not _is_tentative(self._look(host) or {}), _DAD_S)

    def _look(self, host: Host) -> Mapping[str, Any] | None:
        """How it is now; None when it is gone."""
        try:
            (link,) = ask_ip(host, None, "address", "show", "dev", self.interface)
        except TestbedError as error:
            if is_gone(str(error)):
                return None
            raise
        return link

    def _lost(self, host: Host, is_up: bool) -> Iterator[str]:
        """What it has that would be gone when it comes back, in words."""
        # Without being lent it loses only what is of IPv6; what it has of IPv4 while it is down goes with that.
        families = ("-4", "-6") if self.lent or not is_up else ("-6",)
        asked = ("dev", self.interface)
        routes, neighbours = 0, 0
        for family in families:
            listed = ask_ip(host, None, family, "route", "show", "table", "all", *asked)
            routes += sum(route.get("protocol") != "kernel" for route in listed)
            neighbours += len(ask_ip(host, None, family, "neigh", "show", "nud", "permanent", *asked))
            neighbours += len(ask_ip(host, None, family, "neigh", "show", "proxy", *asked))
        if routes:
            yield f"{routes} static routes (`ip route show table all dev {self.interface}`)"
        if neighbours:
            yield f"{neighbours} static neighbours or proxies (`ip neigh show dev {self.interface}`)"
        if not self.lent:
            return
        if any(one.get("token", "::") != "::" for one in ask_ip(host, None, "token", "list", *asked)):
            yield "a token for its addresses (`ip token`)"
        if " static" in run_checked(host, ["ip", "maddr", "show", *asked]):
            yield "static multicast addresses (`ip maddr`)"
        for line in run_checked(host, ["bridge", "fdb", "show", *asked]).splitlines():
            words = line.split()
            if "self" in words and not int(words[0][:2], 16) & 1:
                yield f"the address {words[0]} beside its own (`bridge fdb`)"
        for line in run_checked(host, ["tc", "qdisc", "show", *asked]).splitlines():
            _, kind, handle, *_ = line.split()
            if handle != "0:":  # which those have that the kernel chose
                yield f"the queueing discipline {kind} {handle}"
        with suppress(MissingError):  # without nft there are hardly rules of it
            chains = host.run(["nft", "list", "chains"]).stdout
            if any(" hook " in line and self.interface in re.split(r'[ ,"]+', line) for line in chains.splitlines()):
                yield "chains of nftables (`nft list chains`)"

    def _read_settings(self, host: Host) -> dict[str, str]:
        """The values of its settings by their paths below /proc/sys/net; those without a value are left out."""
        directories = [f"/proc/sys/net/{kind}/{self.interface}" for kind in _SETTINGS]
        # The exit code says that some directory or value is not there.
        done = host.run(["grep", "-rsH", "", *directories])
        if was_killed(done):
            raise TestbedError(f"{host}: the settings of {self.interface} were not read whole: `grep` was killed")
        lines = (line.partition(":") for line in done.stdout.split("\n") if line)
        return {path.removeprefix("/proc/sys/net/"): value for path, _, value in lines}

    def _restore_settings(self, host: Host) -> list[str]:
        """Write back what is different now; what could not be, in words."""
        now, wrong = self._read_settings(host), []
        wanted = dict(one.split("=", 1) for one in self.settings)
        # To set a secret also sets how addresses are made of it. What is told in s and in ms comes in this order.
        for path in sorted(wanted, key=lambda path: (not path.endswith(_SECRET), path)):
            # A secret that is not set has no value; without its other settings IPv6 itself has gone.
            if now.get(path) != wanted[path] and (path in now or path.endswith(_SECRET)):
                try:
                    host.write(f"/proc/sys/net/{path}", wanted[path])
                except TestbedError as error:
                    wrong.append(str(error))
        return wrong

    def _address_lines(self, link: Mapping[str, Any], now_s: float) -> Iterator[tuple[str, ...]]:
        """What takes away addresses of link scope that were not there, and adds those that are not there at a time."""
        there = set()
        for one in link.get("addr_info", ()):
            there.add(_words(one))
            if _is_own_of_link(one) and _words(one) not in self.addresses:
                yield "address", "del", f"{one['local']}/{one['prefixlen']}", "dev", self.interface
        passed_s = int(now_s - self.found_s)
        each = list(zip(self.addresses, self.valid_s, self.preferred_s, strict=True))
        # The kernel puts a new address of IPv6 before the others, one of IPv4 behind them.
        for words, valid_s, preferred_s in [*filter(_is_v4, each), *filterfalse(_is_v4, reversed(each))]:
            if words in there or (valid_s is not None and valid_s <= passed_s):
                continue
            lifetimes = ("valid_lft", _left(valid_s, passed_s), "preferred_lft", _left(preferred_s, passed_s))
            yield "address", "replace", *words.split(), "dev", self.interface, *lifetimes


def _boottime_s(host: Host) -> float:
    """CLOCK_BOOTTIME of a machine, to the hundredth (proc(5), /proc/uptime)."""
    return float(host.read("/proc/uptime").split()[0])


def _is_v4(one: tuple[str, int | None, int | None]) -> bool:
    return ":" not in one[0].split()[0]


def _words(address: Mapping[str, Any]) -> str:
    """An address of `ip -j address`, in the words that make it."""
    local, length = address["local"], address["prefixlen"]
    words = [local, "peer", f"{address['address']}/{length}"] if "address" in address else [f"{local}/{length}"]
    words += [word for key, name in _ATTRIBUTES.items() if key in address for word in (name, str(address[key]))]
    if address["family"] == "inet":  # in IPv6 the address says its scope
        words += ["scope", address["scope"]]
    return " ".join([*words, *(flag for flag in _FLAGS if address.get(flag))])


def _odd(link: Mapping[str, Any], interface: str) -> Iterator[str]:
    """Addresses that nobody can make with `ip`, in words."""
    for one in link.get("addr_info", ()):
        label = one.get("label", interface)
        if one.get("temporary"):
            yield f"the temporary address {one['local']}, which only the kernel makes"
        elif not label.startswith(interface) or len(label.split()) != 1:
            yield f"the address {one['local']} with the label {label!r}, which does not begin with the port's name"


def _routed(settings: Mapping[str, str]) -> Iterator[str]:
    if any(path.endswith("/mc_forwarding") and value != "0" for path, value in settings.items()):
        yield "multicast routing"


def _is_own_of_link(address: Mapping[str, Any]) -> bool:
    """Whether it is one of those that the kernel gives to every interface."""
    return bool(address["family"] == "inet6" and address["scope"] == "link")


def _is_tentative(link: Mapping[str, Any]) -> bool:
    """Whether addresses are still being tried out (RFC 4862), as they are while there is a carrier."""
    tried = [one for one in link.get("addr_info", ()) if one.get("tentative") and not one.get("dadfailed")]
    return "LOWER_UP" in link.get("flags", ()) and bool(tried)


def _lifetime(seconds: int) -> int | None:
    return None if seconds == _FOREVER else seconds


def _left(seconds: int | None, passed_s: int) -> str:
    return "forever" if seconds is None else str(max(0, seconds - passed_s))
