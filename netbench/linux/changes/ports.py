"""Ports of the machine: recorded, lent to a namespace, and restored."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from netbench.errors import Fault, MissingError, TestbedError, UsageError
from netbench.hosts.base import Host, fault_in, run_checked
from netbench.hosts.clock import wait_until
from netbench.linux.changes.base import Change, MachineState, ip_json, run_batch, tool_in, was_killed
from netbench.model.paths import PREFIX

# `$$` is the shell's id: the shell is still in its namespace and must not be replaced by `ip` itself. If the former
# index is taken, or this kernel does not support choosing one (before 5.16), the port gets another.
_SEND_HOME = (
    'ip -n "$0" link set dev "$1" netns $$ index "$2" 2>/dev/null || ip -n "$0" link set dev "$1" netns $$; exit $?'
)
_SETTINGS = ("ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh", "mpls/conf")
_FOREVER = 2**32 - 1  # INFINITY_LIFE_TIME of linux/if_addr.h, in seconds
# Flags of ip-address(8), without those that describe the state of an address.
_FLAGS = ("home", "mngtmpaddr", "nodad", "optimistic", "noprefixroute", "autojoin")
# Keys of `ip -j address`, and the arguments for them; not every iproute2 supports all.
_ATTRIBUTES = {"broadcast": "brd", "label": "label", "metric": "metric", "protocol": "proto"}
_SECRET = "/stable_secret"
_DAD_S = 3.0  # time limit for IPv6 addresses to stop being tentative: 1 s plus a random delay (RFC 4862)


@dataclass(frozen=True, slots=True)
class MovePort(Change):
    """A port of the machine, lent to a namespace; `index` is its index on the machine."""

    interface: str
    netns: str
    index: int = 0

    @property
    def command(self) -> str:
        return f"ip link set dev {self.interface} netns {self.netns}"

    def with_former_state(self, state: MachineState) -> Self:
        return replace(self, index=_existing(state, self.interface)["ifindex"])

    def make(self, host: Host) -> None:
        done = host.run(["ip", "link", "set", "dev", self.interface, "netns", self.netns])
        if done.exit_code != 0:
            words = done.stderr.strip()
            raise TestbedError(words, words=words, fault=fault_in(words))

    def name_back(self, host: Host) -> None:
        """Restore the name of a port that was renamed inside the namespace; do nothing if the port is missing."""
        try:
            links = ip_json(host, self.netns, "link", "show")
        except (TestbedError, MissingError):
            return  # the namespace is gone; undo() reports a port that cannot be returned
        names = {link["ifindex"]: link["ifname"] for link in links}
        name = names.get(self.index, "")
        if name and self.interface not in names.values() and not name.startswith(PREFIX):
            for words in (("down",), ("name", self.interface)):
                host.run([*tool_in("ip", self.netns), "link", "set", "dev", name, *words])

    def undo(self, host: Host) -> None:
        # A port that never got there is still on the machine, and nothing needs to be undone.
        sent = host.run(["sh", "-c", _SEND_HOME, self.netns, self.interface, str(self.index)])
        if sent.exit_code != 0 and (was_killed(sent) or Fault.GONE not in fault_in(sent.stderr)):
            raise TestbedError(sent.stderr.strip() or f"`ip` ended with exit code {sent.exit_code}")


@dataclass(frozen=True, slots=True)
class KeepPort(Change):
    """The state of a port of the machine before any change, which undo restores.

    When a port is `lent` to a namespace, the kernel takes it down and removes its addresses and settings. It also
    removes those of IPv6 where IPv6 is switched off. `addresses` are arguments of `ip address`, with their lifetimes in
    seconds at the time `found_s` (CLOCK_BOOTTIME; None: forever). `settings` are files below /proc/sys/net with their
    values. A port with state that cannot be restored is rejected.
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

    def with_former_state(self, state: MachineState) -> Self:
        link = _existing(state, self.interface)
        settings = self._read_settings(state.host)
        is_up = "UP" in link["flags"]
        addresses = link.get("addr_info", ())
        lost = [*self._lost_state(state.host, is_up), *_lost_addresses(addresses, self.interface)]
        if any(path.endswith("/mc_forwarding") and value != "0" for path, value in settings.items()):
            lost.append("multicast routing")
        if lost:
            raise UsageError(
                f"port {self.interface} cannot be restored after the run, because it has {', '.join(lost)}: remove "
                "that first, or use another port"
            )
        return replace(
            self,
            up=is_up,
            addresses=tuple(_arguments(address) for address in addresses),
            valid_s=tuple(_lifetime(address["valid_life_time"]) for address in addresses),
            preferred_s=tuple(_lifetime(address["preferred_life_time"]) for address in addresses),
            found_s=_boottime_s(state.host),
            settings=tuple(f"{path}={value}" for path, value in settings.items()),
        )

    def make(self, host: Host) -> None:
        """Do nothing: the port is only read."""

    def undo(self, host: Host) -> None:
        link = self._link(host)
        if link is None:
            return  # it is gone
        errors = self._restore_settings(host)
        if self.up != ("UP" in link["flags"]):
            state = ("link", "set", "dev", self.interface, "up" if self.up else "down")
            errors += run_batch(host, ("ip",), [state]).values()
        lines = list(self._address_lines(self._link(host) or {}, _boottime_s(host)))
        if lines:
            errors += run_batch(host, ("ip",), lines, force=True).values()
        if errors := [error for error in errors if Fault.GONE not in error.fault]:
            raise TestbedError(f"port {self.interface}: {'; '.join(map(str, errors))}")
        wait_until(lambda: not _is_tentative(self._link(host) or {}), _DAD_S)

    def _link(self, host: Host) -> Mapping[str, Any] | None:
        """Return its present state; None when it is gone."""
        try:
            (link,) = ip_json(host, None, "address", "show", "dev", self.interface)
        except TestbedError as error:
            if Fault.GONE in error.fault:
                return None
            raise
        return link

    def _lost_state(self, host: Host, is_up: bool) -> Iterator[str]:
        """Yield descriptions of the state that a restore would lose."""
        # If it is not lent, only IPv6 state is lost, and IPv4 state only if the port is down.
        families = ("-4", "-6") if self.lent or not is_up else ("-6",)
        selector = ("dev", self.interface)
        routes, neighbours = 0, 0
        for family in families:
            listed = ip_json(host, None, family, "route", "show", "table", "all", *selector)
            routes += sum(route.get("protocol") != "kernel" for route in listed)
            for state in (("nud", "permanent"), ("proxy",)):
                neighbours += len(ip_json(host, None, family, "neigh", "show", *state, *selector))
        if routes:
            yield f"{routes} static routes (`ip route show table all dev {self.interface}`)"
        if neighbours:
            yield f"{neighbours} static neighbours or proxies (`ip neigh show dev {self.interface}`)"
        if not self.lent:
            return
        if any(token.get("token", "::") != "::" for token in ip_json(host, None, "token", "list", *selector)):
            yield "a token for its addresses (`ip token`)"
        if " static" in run_checked(host, ["ip", "maddr", "show", *selector]):
            yield "static multicast addresses (`ip maddr`)"
        for line in run_checked(host, ["bridge", "fdb", "show", *selector]).splitlines():
            words = line.split()
            if "self" in words and not int(words[0][:2], 16) & 1:
                yield f"the further MAC address {words[0]} (`bridge fdb`)"
        for line in run_checked(host, ["tc", "qdisc", "show", *selector]).splitlines():
            _, kind, handle, *_ = line.split()
            if handle != "0:":  # 0: marks disciplines chosen by the kernel
                yield f"the queueing discipline {kind} {handle}"
        with suppress(MissingError):  # without nft there are hardly any rules
            chains = host.run(["nft", "list", "chains"]).stdout
            if any(" hook " in line and self.interface in re.split(r'[ ,"]+', line) for line in chains.splitlines()):
                yield "chains of nftables (`nft list chains`)"

    def _read_settings(self, host: Host) -> dict[str, str]:
        """Return the values of its settings by path below /proc/sys/net; those without a value are left out."""
        directories = [f"/proc/sys/net/{kind}/{self.interface}" for kind in _SETTINGS]
        # The exit code is ignored: some directories or values may be missing.
        done = host.run(["grep", "-rsH", "", *directories])
        if was_killed(done):
            raise TestbedError(f"{host}: the settings of {self.interface} were not read whole: `grep` was killed")
        lines = (line.partition(":") for line in done.stdout.split("\n") if line)
        return {path.removeprefix("/proc/sys/net/"): value for path, _, value in lines}

    def _restore_settings(self, host: Host) -> list[TestbedError]:
        """Restore the settings that differ; return the errors."""
        now, errors = self._read_settings(host), list[TestbedError]()
        former = dict(setting.split("=", 1) for setting in self.settings)
        # A secret first, because setting it also sets the address mode. Settings in s precede those in ms.
        for path in sorted(former, key=lambda path: (not path.endswith(_SECRET), path)):
            # An unset secret has no value; if other settings are missing too, IPv6 itself has gone.
            if now.get(path) != former[path] and (path in now or path.endswith(_SECRET)):
                try:
                    host.write(f"/proc/sys/net/{path}", former[path])
                except TestbedError as error:
                    errors.append(error)
        return errors

    def _address_lines(self, link: Mapping[str, Any], now_s: float) -> Iterator[tuple[str, ...]]:
        """Yield requests that delete new link-scope addresses, and add those that are missing at `now_s`."""
        present = set()
        for address in link.get("addr_info", ()):
            present.add(_arguments(address))
            # The kernel assigns a link-local address to every interface.
            is_link_local = address["family"] == "inet6" and address["scope"] == "link"
            if is_link_local and _arguments(address) not in self.addresses:
                yield "address", "del", f"{address['local']}/{address['prefixlen']}", "dev", self.interface
        passed_s = int(now_s - self.found_s)
        former = list(zip(self.addresses, self.valid_s, self.preferred_s, strict=True))
        ipv4 = [address for address in former if ":" not in address[0].split()[0]]
        ipv6 = [address for address in former if address not in ipv4]
        # The kernel puts a new IPv6 address before the others, and a new IPv4 address behind them.
        for arguments, valid_s, preferred_s in [*ipv4, *reversed(ipv6)]:
            if arguments in present or (valid_s is not None and valid_s <= passed_s):
                continue
            lifetimes = ("valid_lft", _remaining(valid_s, passed_s), "preferred_lft", _remaining(preferred_s, passed_s))
            yield "address", "replace", *arguments.split(), "dev", self.interface, *lifetimes


def _existing(state: MachineState, interface: str) -> dict[str, Any]:
    link = state.link(None, interface)
    if not link:
        raise TestbedError(f"this machine has no interface {interface}")
    return link


def _boottime_s(host: Host) -> float:
    """Return CLOCK_BOOTTIME of a machine in s, to 0.01 s (proc(5), /proc/uptime)."""
    return float(host.read("/proc/uptime").split()[0])


def _arguments(address: Mapping[str, Any]) -> str:
    """Return the arguments of `ip` that add an address of `ip -j address`."""
    local, length = address["local"], address["prefixlen"]
    words = [local, "peer", f"{address['address']}/{length}"] if "address" in address else [f"{local}/{length}"]
    words += [word for key, name in _ATTRIBUTES.items() if key in address for word in (name, str(address[key]))]
    if address["family"] == "inet":  # an IPv6 address determines its scope
        words += ["scope", address["scope"]]
    return " ".join([*words, *(flag for flag in _FLAGS if address.get(flag))])


def _lost_addresses(addresses: Iterable[Mapping[str, Any]], interface: str) -> Iterator[str]:
    """Yield descriptions of addresses that cannot be made with `ip`."""
    for address in addresses:
        label = address.get("label", interface)
        if address.get("temporary"):
            yield f"the temporary address {address['local']}, which only the kernel makes"
        elif not label.startswith(interface) or len(label.split()) != 1:
            yield f"the address {address['local']} with the label {label!r}, which does not begin with the port's name"


def _is_tentative(link: Mapping[str, Any]) -> bool:
    """Return whether duplicate address detection (RFC 4862) is running; it needs a carrier."""
    addresses = link.get("addr_info", ())
    return "LOWER_UP" in link.get("flags", ()) and any(
        address.get("tentative") and not address.get("dadfailed") for address in addresses
    )


def _lifetime(seconds: int) -> int | None:
    return None if seconds == _FOREVER else seconds


def _remaining(seconds: int | None, passed_s: int) -> str:
    return "forever" if seconds is None else str(max(0, seconds - passed_s))
