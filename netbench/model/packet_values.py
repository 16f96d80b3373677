"""Values of fields of packets: checked, and addresses as numbers and as text."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from netbench.errors import KeyedError
from netbench.model.fields import KeyPath
from netbench.model.layer_spec import FieldSpec, Kind
from netbench.model.packet import FieldValue
from netbench.model.packet_layers import TCP_OPTIONS
from netbench.model.suggestions import choices

# The ends of a range of addresses, by the kind of the field.
_EXAMPLES = {
    "MAC": ("02:00:00:00:00:01", "02:00:00:00:00:fe"),
    "IPv4": ("198.18.0.1", "198.18.0.254"),
    "IPv6": ("2001:2::1", "2001:2::fe"),
}


class DescriptionError(KeyedError):
    """A description of a packet is wrong: at a layer, field or key, with which the message begins.

    `path` are the keys from the description to the wrong value, where it is a mapping; to the wrong key if `is_key`.
    """

    def __init__(self, key: str, message: str, path: KeyPath = (), *, is_key: bool = False) -> None:
        super().__init__(key, message)
        self.message, self.path, self.is_key = message, path, is_key

    def below(self, *keys: str | int, title: str = "") -> "DescriptionError":
        """Return the error of the description that has this one at these keys; `title` replaces its beginning."""
        return DescriptionError(title or self.key, self.message, (*keys, *self.path), is_key=self.is_key)


def checked_value(title: str, field: FieldSpec, value: FieldValue) -> FieldValue:
    """Return a value of a field, addresses in their usual form; DescriptionError if the field cannot have it."""
    if title == "UDP.chksum" and value in (0, None):
        return value
    if field.use == "computed":
        raise DescriptionError(title, "is computed; leave it out")
    match field.kind:
        case "MAC" | "IPv4" | "IPv6":
            return address_text(field.kind, address_value(title, field, value))
        case "bytes" if isinstance(value, bytes) and len(value) % 4 == 0:
            return value
        case "bytes":
            raise DescriptionError(
                title, f'{value!r} is not allowed: a multiple of 4 bytes, such as b"\\x01\\x01\\x01\\x00"'
            )
        case "IPv6 list":
            return _addresses(title, value)
        case "TCP options":
            return _tcp_options(title, value)
        case "flags" if isinstance(value, str):
            return _flag_names(title, field, value)
    return number_value(title, field, value)


def number_value(title: str, field: FieldSpec, value: object) -> int:
    """Return a number that a field can have; DescriptionError otherwise."""
    if type(value) is not int:
        raise DescriptionError(title, f"{value!r} is not allowed: a number, 0 to {field.largest}")
    reason = f"; {field.reason}" if field.reason else ""
    if field.allowed and value not in field.allowed:
        only = " or ".join(map(str, field.allowed))
        raise DescriptionError(title, f"{value} is not allowed: {only}{reason}")
    if not 0 <= value <= field.largest:
        raise DescriptionError(title, f"{value} is not allowed: 0 to {field.largest}{reason}")
    return value


def address_value(title: str, field: FieldSpec, value: object) -> int:
    """Return an address as a number; DescriptionError if it is none of the field's kind."""
    try:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no text")
        return address_number(field.kind, value)
    except ValueError as error:
        example = _EXAMPLES[field.kind][0]
        raise DescriptionError(title, f'{value!r} is no {field.kind} address; write for example "{example}"') from error


def network_hosts(kind: Kind, text: str) -> tuple[int, int] | None:
    """Return the first and the last host address of a network such as 10.0.0.0/24; None if the text is none.

    Network and broadcast address of IPv4 (RFC 1122, section 3.2.1.3) and the anycast address of IPv6 routers (RFC 4291,
    section 2.6.1) are no hosts, but for networks of one or two addresses (RFC 3021, RFC 6164).
    """
    try:
        network = ip_network(text.strip())
    except ValueError:
        return None
    if "/" not in text or kind != f"IPv{network.version}":
        return None
    first, last = int(network[0]), int(network[-1])
    return (first, last) if last - first < 2 else (first + 1, last - (network.version == 4))


def written_range(field: FieldSpec, text: str) -> str:
    """Return a text that is a network or a range of a field's values as `vary` has it; empty for any other text."""
    if network_hosts(field.kind, text):
        return text.strip()
    return "-".join(end.strip() for end in text.split("-")) if range_ends(field, text) else ""


def range_ends(field: FieldSpec, text: str) -> tuple[int, int] | None:
    """Return the ends of a range of a field's values, such as 1024-65535; None if the text is none."""
    ends = [end.strip() for end in text.split("-")]
    if len(ends) != 2:
        return None
    try:
        first, last = (address_number(field.kind, end) if field.is_address else int(end) for end in ends)
    except ValueError:
        return None
    return (first, last) if max(first, last) <= field.largest else None


def example_range(field: FieldSpec, address: object = "") -> str:
    """Return an example of a range of a field's values as `vary` has it: the network of an address with its length."""
    if field.kind in ("IPv4", "IPv6") and "/" in str(address):
        try:
            network = str(ip_network(str(address).strip(), strict=False))
            return network if network_hosts(field.kind, network) else "-".join(_EXAMPLES[field.kind])
        except ValueError:
            pass
    if field.is_address:
        return "-".join(_EXAMPLES[field.kind])
    return f"{1024 if field.bits == 16 else 0}-{field.largest}"


def _flag_names(title: str, field: FieldSpec, text: str) -> str:
    names = text.split("+") if any(len(name) > 1 for name in field.flags) else list(text)
    for name in names:
        if name not in field.flags:
            raise DescriptionError(title, f"{text!r} is not allowed: {choices(name, field.flags, 'flags')}")
    return text


def _addresses(title: str, value: FieldValue) -> FieldValue:
    if not isinstance(value, tuple) or not value:
        raise DescriptionError(title, f'{value!r} is not allowed: a list of addresses, for example ["2001:2::1"]')
    item = FieldSpec("address", 128, "IPv6")
    return tuple(address_text("IPv6", address_value(title, item, address)) for address in value)


def _tcp_options(title: str, value: FieldValue) -> FieldValue:
    allowed = f'a list such as [("MSS", 1460), ("NOP", None)]; options are {", ".join(TCP_OPTIONS)}'
    if not isinstance(value, tuple):
        raise DescriptionError(title, f"{value!r} is not allowed: {allowed}")
    for option in value:
        match option:
            case ("EOL" | "NOP" | "SAckOK", () | b"" | ""):
                continue
            case ("MSS", int() as number) if 0 <= number < 1 << 16:
                continue
            case ("WScale", int() as number) if 0 <= number < 1 << 8:
                continue
            case ("Timestamp", (int() as number, int() as echoed)) if (
                min(number, echoed) >= 0 == max(number, echoed) >> 32
            ):
                continue
        raise DescriptionError(title, f"{option!r} is not allowed: {allowed}")
    pairs = (option for option in value if isinstance(option, tuple))
    return tuple((name, b"" if number in ((), "") else number) for name, number in pairs)


def address_number(kind: Kind, text: str) -> int:
    """Return an address as a number; ValueError if it is none of this kind."""
    if kind == "MAC":
        parts = text.split(":")
        if len(parts) != 6 or any(len(part) not in (1, 2) or not _is_hex(part) for part in parts):
            raise ValueError(f"{text!r} is no MAC address")
        return int("".join(part.zfill(2) for part in parts), 16)
    if kind == "IPv6" and "%" in text:
        raise ValueError(f"{text!r} has a scope")
    return int(IPv4Address(text) if kind == "IPv4" else IPv6Address(text))


def _is_hex(text: str) -> bool:
    return all(character in "0123456789abcdefABCDEF" for character in text)


def address_text(kind: Kind, number: int) -> str:
    """Return an address as text, given its number."""
    if kind == "MAC":
        return ":".join(f"{byte:02x}" for byte in number.to_bytes(6))
    return str(IPv4Address(number) if kind == "IPv4" else IPv6Address(number))
