"""Keep XDP programs attached: `python -m netbench.uut.xdp_process MODE INTERFACE OTHER INTERFACE OTHER …`.

Frames received by one interface of a pair leave by the other. Streams leave by OTHER; a pair is listed once for each
direction that has a stream. The first answer has the mode, `native` (in the drivers) or `generic` (behind them), and
the reason against a better mode. The programs are detached when the process ends, which it does when its stdin ends.
"""

import json
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from netbench.bpf.libbpf import BpfError, Loaded, XdpMode, attach_xdp, load
from netbench.errors import MissingError
from netbench.linux.xdp_devices import xdp_device


def main(arguments: Sequence[str]) -> None:
    """Redirect until stdin ends."""
    wanted, *names = arguments
    modes: tuple[XdpMode, ...] = tuple(mode for mode in ("native", "generic") if wanted in (mode, "auto"))
    with ExitStack() as stack:
        try:
            answer = _redirect(stack, modes, names)
        except (BpfError, MissingError, OSError) as error:
            answer = {"failed": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def _redirect(stack: ExitStack, modes: Sequence[XdpMode], names: Sequence[str]) -> dict[str, str]:
    indices = [socket.if_nametoindex(name) for name in names]
    program = stack.enter_context(load("forward"))
    for interface, peer in zip(indices[::2], indices[1::2], strict=True):
        for direction in ((interface, peer), (peer, interface)):
            program.map("leaves_by").put(direction[0], struct.pack("=I", direction[1]))
    whys: list[str] = []
    for mode in modes:
        try:
            _attach(stack, program, mode, indices, names)
        except BpfError as error:
            whys.append(str(error))
        else:
            return {"mode": mode, "why": "; ".join(whys)}
    raise BpfError("; ".join(whys))


def _attach(stack: ExitStack, program: Loaded, mode: XdpMode, indices: Sequence[int], names: Sequence[str]) -> None:
    """Attach the programs to all interfaces, or to none."""
    if mode == "native":
        for name in names[1::2]:
            if xdp_device(name).takes_frames is False:
                raise BpfError(f"{name} sends no frames that XDP redirects to it (no ndo_xdp_xmit in its driver)")
    with ExitStack() as undo:
        for index, name in dict(zip(indices, names, strict=True)).items():
            try:
                link = attach_xdp(program.program("nb_forward"), index, mode)
            except BpfError as error:
                raise BpfError(f"{name}: {error}") from error
            undo.callback(link.close)
        stack.push(undo.pop_all())


if __name__ == "__main__":
    main(sys.argv[1:])
