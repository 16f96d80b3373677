"""Names that users may choose: they become names of namespaces, interfaces, files and results."""

from typing import Annotated

from pydantic import StringConstraints

# An interface name has at most 15 characters (IFNAMSIZ); netbench's names have a prefix, bridges `nb-br-`.
NIC_NAME = r"^[a-z][a-z0-9-]{0,11}$"
NicName = Annotated[str, StringConstraints(pattern=NIC_NAME)]
StreamName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,8}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
# No characters that `ip -batch` takes for quotes, a comment or a continued line; no control characters.
PORT_NAME = r"""^[^\s\x00-\x1f\x7f-\x9f/#'"\\]{1,15}$"""
PortName = Annotated[str, StringConstraints(pattern=PORT_NAME)]
