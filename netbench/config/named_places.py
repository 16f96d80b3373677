"""The position in a file of the name that a message is about.

The parts of a topology must fit together: a stream names NICs, a neighbour names streams. The checks of that work on
names without positions. Their messages begin with their subject, `neighbour second: …`, and name the fault.
"""

import re
from collections.abc import Iterator

from netbench.config.document import KeyPath, value_at

_LISTS = {"stream": "streams", "UUT": "uuts", "neighbour": "neighbours", "scenario": "scenarios"}
_SUBJECT = re.compile(r"(?P<what>stream|UUT|neighbour|scenario|host|link) (?P<name>.+)")
_TWICE = re.compile(r"(?P<what>stream|UUT|neighbour) '(?P<name>[^']+)' is there twice")
_TWO_LINKS = "is an end of more than one link"
_QUOTED = re.compile(r"'([^']+)'")
_MADE = "nb-"  # the prefix of the interfaces that netbench creates


def place_of(message: str, data: object, path: KeyPath = ()) -> tuple[KeyPath, bool]:
    """Return the path, at or below `path`, of the subject of a message, and whether it is a key instead of its value.

    If the message names nothing there, the path is `path` itself.
    """
    rest = message
    if twice := _TWICE.fullmatch(message):
        listed, name = value_at(data, (_LISTS[twice["what"]],)), twice["name"]
        named = [
            index
            for index, item in enumerate(listed if isinstance(listed, list) else ())
            if isinstance(item, dict) and item.get("name") == name
        ]
        if named:
            return (_LISTS[twice["what"]], named[-1], "name"), False
    if _TWO_LINKS in message:
        path = ("links",)
    while ": " in rest:
        head, _, tail = rest.partition(": ")
        step = _step(head, value_at(data, path))
        if step is None:
            break
        path, rest = path + step, tail
    before_advice = rest.partition(";")[0]
    below = list(_leaves(value_at(data, path)))
    for word in (*_QUOTED.findall(before_advice), *(part.strip(".,:'()") for part in before_advice.split())):
        found = [(leaf, is_key) for leaf, text, is_key in below if word in (text, _interface(text))]
        if found:
            leaf, is_key = found[-1]  # of a name that occurs twice, the second occurrence is wrong
            return path + leaf, is_key
    return path, False


def _step(head: str, here: object) -> KeyPath | None:
    """Return the path of the part of a message before a colon."""
    if isinstance(here, dict) and head in here:
        return (head,)
    subject = _SUBJECT.fullmatch(head)
    if subject is None or not isinstance(here, dict):
        return None
    what, name = subject["what"], subject["name"]
    if what == "host":
        return ("hosts", name) if name in _keys(here.get("hosts")) else None
    listed = here.get(_LISTS.get(what, "links"))
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(item, dict):
            continue
        ends = item.get("ends")
        if what == "link" and isinstance(ends, list):
            if name == " – ".join(map(str, ends)):
                return ("links", index)
            if name.removeprefix("end ") in ends:
                return ("links", index, "ends", ends.index(name.removeprefix("end ")))
        elif what != "link" and item.get("name") == name:
            return (_LISTS[what], index)
    return None


def _keys(value: object) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str, bool]]:
    """Yield the values below, and the keys of mappings, in file order: the path, the text, and whether it is a key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict):
                yield (*path, key), key, True
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, str(value), False


def _interface(text: str) -> str:
    """Return the interface name of an end `host/nic` that netbench creates."""
    return _MADE + text.partition("/")[2]
