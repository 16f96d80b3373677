"""Where in a file something stands that a message speaks of by its name.

What a topology says must fit together: a stream names NICs, a neighbour streams. Checks of that know names, and not
where they are written. Their messages begin with what they are about, `neighbour second: …`, and name what is wrong.
"""

import re
from collections.abc import Iterator

from netbench.config.document import KeyPath, value_at

_LISTS = {"stream": "streams", "UUT": "uuts", "neighbour": "neighbours", "scenario": "scenarios"}
_SUBJECT = re.compile(r"(?P<what>stream|UUT|neighbour|scenario|host|link) (?P<name>.+)")
_TWICE = re.compile(r"(?P<what>stream|UUT|neighbour) '(?P<name>[^']+)' is there twice")
_TWO_LINKS = "is an end of more than one link"
_QUOTED = re.compile(r"'([^']+)'")
_MADE = "nb-"  # what names of interfaces begin with that netbench makes


def place_of(message: str, data: object, path: KeyPath = ()) -> tuple[KeyPath, bool]:
    """The path, at or below `path`, of what a message is about, and whether that is a key there and not its value.

    `path` itself where it names nothing there.
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
    for word in (*_QUOTED.findall(before_advice), *(one.strip(".,:'()") for one in before_advice.split())):
        found = [(leaf, is_key) for leaf, text, is_key in below if word in (text, _interface(text))]
        if found:
            leaf, is_key = found[-1]  # what is there twice is wrong the second time
            return path + leaf, is_key
    return path, False


def _step(head: str, here: object) -> KeyPath | None:
    """What a part of a message before a colon leads to."""
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
    """All values below, and the keys of what has some in its turn, as text, in the order of the file; which it is."""
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
    """The interface of an end `host/nic`, where netbench makes it."""
    return _MADE + text.partition("/")[2]
