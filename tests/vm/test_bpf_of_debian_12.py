"""The BPF programs in the kernel of Debian 12: the verifier of Linux 6.1 rejects code that newer ones accept."""

import base64
import struct
import tempfile
from importlib.resources import files
from pathlib import Path

import pytest

from netbench.hosts.base import run_checked
from netbench.model.host_spec import VmSpec
from netbench.testbed.virtual_machines import running_vm
from tests.vm.lab import UnmarkedHost

pytestmark = pytest.mark.vm

XDP = "ip link set dev vb xdpgeneric obj /tmp/{object} program {program} && ip link show vb"
TC = "tc qdisc replace dev vb clsact && tc filter add dev vb ingress bpf da obj /tmp/{object} program {program} && "
TC += "tc filter show dev vb ingress"


@pytest.fixture(scope="module")
def guest():
    with tempfile.TemporaryDirectory(prefix="nbt-") as directory:
        spec = VmSpec(cpus=1, memory=256)
        with running_vm("small", spec, UnmarkedHost("here", "nbt-bpf"), Path(directory)) as vm:
            run_checked(vm.host(), ["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"])
            yield vm.host()


def wanted_by_all(code: bytes) -> bytes:
    """An object with section names without the `?` for "do not load by default", which iproute2 does not support."""
    found = bytearray(code)
    (sections,), (size, count, of_names) = struct.unpack_from("<Q", found, 40), struct.unpack_from("<HHH", found, 58)
    (names,) = struct.unpack_from("<Q", found, sections + of_names * size + 24)
    for at in range(sections, sections + count * size, size):
        (name,) = struct.unpack_from("<I", found, at)
        if found[names + name] == ord("?"):
            struct.pack_into("<I", found, at, name + 1)
    return bytes(found)


@pytest.mark.parametrize(
    ("source", "program", "load"),
    [
        ("sink", "nb_sink_xdp", XDP),
        ("sink", "nb_sink_tcx", TC),
        ("sink", "nb_headers_xdp", XDP),
        ("sink", "nb_headers_tcx", TC),
        ("source", "paced", XDP),
        ("source", "unpaced", XDP),
        ("forward", "nb_forward", XDP),
    ],
    ids=[
        *("sink-xdp", "sink-tcx", "sink-headers-xdp", "sink-headers-tcx"),
        *("source-paced", "source-unpaced", "forward"),
    ],
)
def test_its_verifier_takes_them(guest, source, program, load):
    assert run_checked(guest, ["uname", "-r"]).startswith("6.1.")
    code = wanted_by_all((files("netbench.bpf") / "programs" / f"{source}.bpf.o").read_bytes())
    run_checked(guest, ["sh", "-c", f"base64 -d > /tmp/{source}"], stdin=base64.b64encode(code).decode())
    shown = run_checked(guest, ["sh", "-c", load.format(object=source, program=program)], timeout_s=60)
    assert f" name {program} " in shown
    run_checked(guest, ["sh", "-c", "ip link set dev vb xdpgeneric off; tc qdisc del dev vb clsact; true"])
