"""Packets as users describe them: by name, in scapy's notation, as a mapping or as packet code of TRex.

`packet: vxlan`, `packet: Ether()/IPv6()/UDP()`, `packet: {headers: …, vary: …, expect: …}` or `packet: {trex: …}`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from netbench.model.packet import Packet
from netbench.model.packet_expectation import parse_expect, written_expect
from netbench.model.packet_layers import ALIASES, FOREIGN_NAMES, LAYERS
from netbench.model.packet_notation import layers_text, parse_layers
from netbench.model.packet_values import DescriptionError
from netbench.model.packet_variation import COMBINED, parse_vary, written_vary
from netbench.model.shipped_packets import SHIPPED_PACKETS
from netbench.model.suggestions import choices
from netbench.model.trex_notation import is_trex_code, parse_trex

PLAIN = "plain"  # the packet without a description
UNNAMED = "packet"  # the name of a described packet that has none
_COMBINED_KEYS = (COMBINED, "combine")
_KEYS = ("name", "headers", "trex", "vary", "expect")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", re.ASCII)
_FORMS = f"a name (`netbench list`), a text such as Ether()/IPv6()/UDP(), or a mapping of {', '.join(_KEYS)}"


def parse_packet(value: object) -> Packet | None:
    """Return the packet that a user describes, None for the plain one; DescriptionError if it is wrong."""
    if value is None or value == PLAIN or isinstance(value, Packet):
        return value if isinstance(value, Packet) else None
    if isinstance(value, str):
        return _named(value.strip()) if _NAME.fullmatch(value.strip()) else _described(value, UNNAMED)
    if not isinstance(value, Mapping) or not value:
        raise DescriptionError("packet", f"{str(value)[:40]!r} is no packet; write {_FORMS}")
    return _of_mapping({str(key): item for key, item in value.items()})


def parse_packets(value: object) -> tuple[Packet | None, ...]:
    """Return one or several packets that a user describes, with different names; DescriptionError for a wrong one.

    Of several packets without a name, the first one is called `packet-1`.
    """
    if not isinstance(value, list | tuple):
        return (parse_packet(value),)
    if not value:
        raise DescriptionError("packet", "the list is empty; write at least one packet, or leave `packet` out")
    found: list[Packet | None] = []
    for index, item in enumerate(value):
        try:
            found.append(parse_packet(item))
        except DescriptionError as error:
            raise error.below(index) from error
    if sum(packet is not None and packet.name == UNNAMED for packet in found) > 1:
        numbers = iter(range(1, len(found) + 1))
        found = [
            replace(packet, name=f"{UNNAMED}-{next(numbers)}") if packet and packet.name == UNNAMED else packet
            for packet in found
        ]
    names = [packet.name if packet else PLAIN for packet in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise DescriptionError(name, "is the name of two packets; give one another name", (index,))
    return tuple(found)


def with_siblings(packets: tuple[Packet | None, ...], vary: object, expect: object) -> tuple[Packet | None, ...]:
    """Return the packets of a profile with its `vary` and `expect`, None for none, which go with its only packet."""
    for key, value in (("vary", vary), ("expect", expect)):
        if value is not None and (len(packets) != 1 or packets[0] is None):
            if len(packets) == 1:
                text = f"needs a described packet; add packet: Ether()/IP()/UDP() beside {key}"
            else:
                text = f"with {len(packets)} packets, write it in the mapping of a packet: {{headers: …, {key}: …}}"
            raise DescriptionError(key, text, (key,))
    only = packets[0]
    return packets if only is None else (_with_parts(only, vary, expect), *packets[1:])


def written_packet(packet: Packet | None) -> object:
    """Return a packet as a user would write it: a mapping, or `plain`."""
    if packet is None:
        return PLAIN
    written: dict[str, object] = {"name": packet.name, "headers": layers_text(packet.layers)}
    if packet.vary:
        written["vary"] = written_vary(packet)
    if packet.expect is not None:
        written["expect"] = written_expect(packet.expect)
    return written


def shipped_packets() -> Iterable[Packet]:
    """Yield the packets that come with netbench."""
    return map(_named, SHIPPED_PACKETS)


def _named(name: str) -> Packet:
    if (name in LAYERS or name in ALIASES) and name.lower() not in SHIPPED_PACKETS:
        raise DescriptionError(name, "has no parentheses; write a whole packet, for example Ether()/IP()/UDP()")
    if name not in SHIPPED_PACKETS and name.lower() not in SHIPPED_PACKETS and name.lower() in FOREIGN_NAMES:
        raise DescriptionError(name, f"no such layer; write {FOREIGN_NAMES[name.lower()]}(), behind Ether()/")
    if name not in SHIPPED_PACKETS:
        raise DescriptionError("packet", f"there is no {name!r}; {choices(name, [PLAIN, *SHIPPED_PACKETS], 'packets')}")
    shipped = SHIPPED_PACKETS[name]
    return _with_parts(Packet(name, parse_layers(shipped.headers)), shipped.vary or None, None)


def _of_mapping(value: Mapping[str, object]) -> Packet:
    for key in value:
        if key in _COMBINED_KEYS:
            text = f"is no key of a packet; write it inside vary: {{UDP.sport: …, UDP.dport: …, {COMBINED}: true}}"
            raise DescriptionError(key, text, (key,), is_key=True)
        if key not in _KEYS:
            raise DescriptionError(key, f"no such key of a packet; {choices(key, _KEYS, 'keys')}", (key,), is_key=True)
    name = value.get("name", UNNAMED)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == PLAIN:
        text = f"{str(name)[:50]!r} is not allowed: at most 40 letters, digits, dots, dashes and underscores"
        raise DescriptionError("name", f"{text}, and not {PLAIN}", ("name",))
    given = [key for key in ("headers", "trex") if value.get(key) is not None]
    if len(given) != 1:
        missing = "is missing" if not given else "and trex exclude each other"
        raise DescriptionError("headers", f"{missing}; write for example {{headers: Ether()/IPv6()/UDP()}}")
    (key,) = given
    code = value[key]
    if not isinstance(code, str):
        raise DescriptionError(key, f"{str(code)[:40]!r} is not allowed: it must be text", (key,))
    try:
        if key == "trex":
            packet = parse_trex(code, name)
        elif _NAME.fullmatch(code.strip()):
            packet = _named(code.strip())
            packet = replace(packet, name=name if "name" in value else packet.name)
        else:
            packet = _described(code, name)
    except DescriptionError as error:
        raise error.below(key) from error
    return _with_parts(packet, value.get("vary"), value.get("expect"))


def _described(text: str, name: str) -> Packet:
    return parse_trex(text, name) if is_trex_code(text) else Packet(name, parse_layers(text))


def _with_parts(packet: Packet, vary: object, expect: object) -> Packet:
    """Return the packet with its varying fields and the headers at the sink, as written. None: as before."""
    if vary is not None:
        try:
            fields, combined = parse_vary(vary, packet.layers)
        except DescriptionError as error:
            raise _titled("vary", error) from error
        packet = replace(packet, vary=fields, combined=combined)
    if expect is None and vary is not None and packet.expect is not None:
        expect = written_expect(packet.expect)  # its values are those of the fields that vary now
    if expect is not None:
        try:
            packet = replace(packet, expect=parse_expect(expect, packet))
        except DescriptionError as error:
            raise _titled("expect", error) from error
    return packet


def _titled(key: str, error: DescriptionError) -> DescriptionError:
    title = key if error.key in (key, "packet") else f"{key}: {error.key}"
    return error.below(key, title=title)
