"""The packets that the kernel's pktgen can send, and its commands for them: net/core/pktgen.c.

It builds Ethernet, up to two 802.1Q tags or a stack of MPLS labels, IPv4 or IPv6, and UDP. It varies IPv4 addresses and
UDP ports in steps of 1, all at each frame.
"""

from collections.abc import Iterator, Mapping, Sequence

from netbench.model.packet import ANY, AnyValue, FieldRef, FieldValue, Layer, Packet, SteppedValues, VaryingField
from netbench.model.packet_values import address_text
from netbench.model.traffic import DISCARD_PORT, Traffic

# The fields that pktgen can set, by layer; all others must be left out.
_FIELDS = {
    "Ether": ("src", "dst"),
    "Dot1Q": ("vlan", "prio", "dei"),
    "MPLS": ("label", "cos", "s", "ttl"),  # the notation has s = 1 in the last label only
    "IP": ("src", "dst", "tos"),
    "IPv6": ("src", "dst", "tc"),
    "UDP": ("sport", "dport"),
}
# Its commands for the ends of the range of a varying field.
_RANGES = {
    ("IP", "src"): ("src_min", "src_max"),
    ("IP", "dst"): ("dst_min", "dst_max"),
    ("UDP", "sport"): ("udp_src_min", "udp_src_max"),
    ("UDP", "dport"): ("udp_dst_min", "udp_dst_max"),
}
_NO_TAGS = "9999"  # an id above 4095 removes both tags, also as that of the outer one
_NO_LABELS = "off"  # no number: older kernels read `0` as a label
_LAST_PORT = 65_535
_MOST_LABELS = 15  # MAX_MPLS_LABELS is 16, but Linux before 6.15 rejects the last one
_DEFAULT_LABEL = 3  # of scapy's MPLS
_DEFAULT_LABEL_TTL = 0  # of scapy's MPLS
# Commands that change each other's values in `pktgen_if_write`: tags remove labels, labels remove tags. They are
# written together, in the order of the settings.
DEPENDENT = frozenset(("mpls", "vlan_id", "vlan_p", "vlan_cfi", "svlan_id", "svlan_p", "svlan_cfi"))
# Its TTL is 32. It numbers IPv4 packets, and computes the checksum of UDP over IPv6, over the number of the frame, too.
OWN_FIELDS: Mapping[FieldRef, FieldValue | AnyValue] = {
    FieldRef("IP", "ttl"): 32,
    FieldRef("IP", "id"): ANY,
    FieldRef("IPv6", "hlim"): 32,
}


def unsupported_part(packet: Packet) -> str:
    """Return the layer or field that pktgen cannot send, as a phrase; empty if it can send the packet."""
    for phrase in (*_unsupported_layers(packet.layers), *map(_unsupported_variation, packet.vary)):
        if phrase:
            return phrase
    if packet.combined and len(packet.vary) > 1:
        return "combined fields: pktgen changes all of them at each frame"
    return ""


def _unsupported_layers(layers: Sequence[Layer]) -> Iterator[str]:
    names = [layer.name for layer in layers]
    inner = [name for name in names if name not in ("Dot1Q", "MPLS")]
    for layer in layers:
        if layer.name not in _FIELDS:
            yield f"layer {layer.name}: pktgen has {', '.join(_FIELDS)}"
            return
        for field, value in layer.fields:
            own = OWN_FIELDS.get(FieldRef(layer.name, field), ANY)
            if field not in _FIELDS[layer.name] and value != own:
                always = f"; its value is {own}" if isinstance(own, int) else ""
                only = ", ".join(_FIELDS[layer.name])
                yield f"{layer.name}.{field}: pktgen cannot set it (only {only}){always}"
    if inner not in (["Ether", "IP", "UDP"], ["Ether", "IPv6", "UDP"]):
        yield f"layers {'/'.join(names)}: pktgen has Ether, tags or labels, one of IP and IPv6, and UDP"
    if "Dot1Q" in names and "MPLS" in names:
        yield "layers Dot1Q and MPLS: pktgen puts labels before tags"
    if names.count("Dot1Q") > 2:
        yield f"{names.count('Dot1Q')} layers Dot1Q: pktgen has two"
    if names.count("MPLS") > _MOST_LABELS:
        yield f"{names.count('MPLS')} layers MPLS: pktgen has {_MOST_LABELS}"
    if not all(_label_entry(dict(layer.fields)) for layer in layers if layer.name == "MPLS"):
        yield "MPLS.label: to pktgen, label 0 with cos 0 and ttl 0 means no labels; set MPLS.ttl"


def _unsupported_variation(varying: VaryingField) -> str:
    if (varying.ref.layer, varying.ref.field) not in _RANGES:
        return f"{varying.ref}: pktgen cannot vary it (only {', '.join(map('.'.join, _RANGES))})"
    if not isinstance(varying.values, SteppedValues) or varying.values.step != 1:
        return f"{varying.ref}: pktgen varies it in steps of 1 only"
    if varying.ref.layer == "UDP" and varying.values.first + varying.values.count > _LAST_PORT:
        return f"{varying.ref}: pktgen varies it up to {_LAST_PORT - 1} only"
    return ""


def address_settings(packet: Packet, traffic: Traffic) -> Mapping[str, str]:
    """Return pktgen's commands for addresses and ports, with their arguments.

    A varying port ends before its `_max`, an address at it. The first frame has the second value, because pktgen counts
    on before each frame.
    """
    layers = {layer.name: dict(layer.fields) for layer in packet.layers}
    ethernet, udp = layers["Ether"], layers["UDP"]
    settings = {
        "src_mac": str(ethernet.get("src", traffic.src_mac)).lower(),
        "dst_mac": str(ethernet.get("dst", traffic.dst_mac)).lower(),
    }
    if "IP" in layers:
        ip = layers["IP"]
        source, destination = str(ip.get("src", traffic.src_ip)), str(ip.get("dst", traffic.dst_ip))
        settings |= {"src_min": source, "src_max": source, "dst_min": destination, "dst_max": destination}
    else:
        ip = layers["IPv6"]
        settings |= {"src6": str(ip.get("src", traffic.src_ip6)), "dst6": str(ip.get("dst", traffic.dst_ip6))}
    for field in ("sport", "dport"):
        settings |= dict.fromkeys(_RANGES["UDP", field], str(udp.get(field, DISCARD_PORT)))
    for varying in packet.vary:
        assert isinstance(varying.values, SteppedValues)
        least, most = _RANGES[varying.ref.layer, varying.ref.field]
        begin, end = varying.values.first, varying.values.first + varying.values.count
        if varying.ref.layer == "IP":
            settings |= {least: address_text("IPv4", begin), most: address_text("IPv4", end - 1)}
        else:
            settings |= {least: str(begin), most: str(end)}
    return settings


def header_settings(packet: Packet) -> Mapping[str, str]:
    """Return pktgen's commands for all other fields, and those that remove the headers of an earlier packet.

    pktgen's files do not show all of them; a sink compares the headers that arrive.
    """
    layers = {layer.name: dict(layer.fields) for layer in packet.layers}
    is_ip6 = "on" if "IPv6" in layers else "off"
    return {
        **_dependent_settings(packet.layers),
        "tos": f"{_number(layers.get('IP', {}), 'tos'):02x}",
        "traffic_class": f"{_number(layers.get('IPv6', {}), 'tc'):02x}",
        "IPV6": is_ip6,
        "UDPCSUM": is_ip6,
    }


def _dependent_settings(layers: Sequence[Layer]) -> dict[str, str]:
    """Return the commands for tags and labels, in an order that leaves those of this packet only."""
    tags = [dict(layer.fields) for layer in layers if layer.name == "Dot1Q"]
    labels = [dict(layer.fields) for layer in layers if layer.name == "MPLS"]
    if labels:
        return {"vlan_id": _NO_TAGS, "mpls": ",".join(f"{_label_entry(label):08x}" for label in labels)}
    if not tags:
        return {"mpls": _NO_LABELS, "vlan_id": _NO_TAGS}
    if len(tags) == 1:
        return {"svlan_id": _NO_TAGS, **_tag_settings("", tags[0])}
    return {**_tag_settings("", tags[1]), **_tag_settings("s", tags[0])}


def _tag_settings(prefix: str, tag: Mapping[str, object]) -> dict[str, str]:
    """Return the commands of one tag; `prefix` is `s` for the outer one of two."""
    return {
        f"{prefix}vlan_id": str(tag.get("vlan", 1)),
        f"{prefix}vlan_p": str(_number(tag, "prio")),
        f"{prefix}vlan_cfi": str(_number(tag, "dei")),
    }


def _label_entry(label: Mapping[str, object]) -> int:
    """Return an entry of the label stack, 32 bits (RFC 3032, section 2.1).

    The bit of the last label is 0: pktgen sets it, and takes it in a command as a request for random labels.
    """
    value = _number(label, "label", _DEFAULT_LABEL) << 12 | _number(label, "cos") << 9
    return value | _number(label, "ttl", _DEFAULT_LABEL_TTL)


def _number(fields: Mapping[str, object], name: str, default: int = 0) -> int:
    value = fields.get(name, default)
    assert isinstance(value, int)
    return value
