"""What a VM counts beyond its NICs, all by one command: a VM answers slowly, and starts programs slowly."""

from collections.abc import Sequence

from netbench.linux.drops import NamespaceCounters, counter_readings
from netbench.linux.queues import parse_queues
from netbench.linux.rules import LIST_CHAINS, LIST_RULES, Dropper, droppers
from netbench.model.names import PREFIX
from netbench.model.points import CounterReading, Points

_MARK, _NEXT = "--netbench--\n", "--next--\n"
_OUTSIDE = "."  # no namespace is called so

# In each namespace; a tool that is missing prints nothing. Either file asks br_netfilter for all bridges or for one.
_LOOK = f"""
cat /proc/net/snmp /proc/net/netstat; echo {_MARK.strip()}
for asks in /proc/sys/net/bridge/bridge-nf-call-iptables /sys/class/net/*/bridge/nf_call_iptables; do
    [ ! -r "$asks" ] || {{ read -r answer < "$asks"; echo "$answer"; }}
done; echo {_MARK.strip()}
tc -s -j qdisc show 2>/dev/null; echo {_MARK.strip()}
foreign=
while read -r word family table; do
    case $table in {PREFIX}*|'') ;; *) foreign=yes;; esac
done <<END
$(nft list tables 2>/dev/null)
END
[ -z "$foreign" ] || {" ".join(LIST_RULES)}; echo {_MARK.strip()}
[ -z "$foreign" ] || {" ".join(LIST_CHAINS)}
"""
_SCRIPT = f"""
look=$1; shift
for netns; do
    if [ "$netns" = {_OUTSIDE} ]; then sh -c "$look"; else ip netns exec "$netns" sh -c "$look"; fi || exit
    echo {_NEXT.strip()}
done
cat /proc/net/softnet_stat
"""


def counters_command(namespaces: Sequence[str | None]) -> tuple[str, ...]:
    """One command, and so nearly one moment, for all counters in these namespaces (None: outside all)."""
    return "sh", "-c", _SCRIPT, "sh", _LOOK, *(netns or _OUTSIDE for netns in namespaces)


def parse_counters(text: str, namespaces: Sequence[str | None], points: Points) -> tuple[CounterReading, ...]:
    """What `counters_command` printed; ValueError, LookupError, TypeError or AttributeError when that makes no sense.

    Programs of XDP and pause frames are not looked for: nobody but netbench has the NICs of its VM, and none is real.
    """
    *looks, softnet = text.split(_NEXT)
    counted = {netns: _counters(look) for netns, look in zip(namespaces, looks, strict=True)}
    return counter_readings(points, counted, softnet)


def _counters(look: str) -> NamespaceCounters:
    ip, asked, queues, rules, chains = look.split(_MARK)
    return NamespaceCounters(
        queues=tuple(parse_queues(queues)),
        rules=_rules(rules, chains),
        ip=ip,
        bridged_ip=any(answer not in ("", "0") for answer in asked.split()),
    )


def _rules(rules: str, chains: str) -> tuple[Dropper, ...] | None:
    try:
        return tuple(droppers(rules, chains)) if rules else ()
    except (ValueError, LookupError, TypeError):
        return None
