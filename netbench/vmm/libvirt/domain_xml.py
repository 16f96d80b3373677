"""netbench's own domains as libvirt's XML (https://libvirt.org/formatdomain.html), by templates."""

import platform
import shutil
from pathlib import Path
from xml.sax.saxutils import escape

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from netbench.hosts.local import MARK
from netbench.hosts.trusted_code import search_path
from netbench.vmm.libvirt.api import own_uuid
from netbench.vmm.qemu.command import (
    AGENT_PORT,
    KernelBoot,
    RunFiles,
    VirtualMachine,
    board,
    kernel_words,
    qemu_program,
)
from netbench.vmm.qemu.options import Pinning

_CPU_MODES = {"kvm": "host-passthrough", "tcg": "maximum"}


def render_xml(template: str, **values: object) -> str:
    """Return the text of a template; values are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["text"] = lambda value: Markup(escape(str(value)))  # keeps quotes, as text may
    return environment.get_template(template).render(values)


def domain_xml(
    name: str, machine: VirtualMachine, files: RunFiles, pin: Pinning, run_id: str, emulator: str = ""
) -> str:
    """Return the XML of the transient domain `name` for this machine; its QEMU is marked as a process of the run.

    Threads that `pin` does not name run on the machine's host_cpus. `emulator` is the path of QEMU; empty: the path on
    this machine.
    """
    assert isinstance(machine.boot, KernelBoot), "its options refuse disks"
    named = [*pin.vcpus, *((),) * machine.cpus][: machine.cpus]
    return render_xml(
        "domain.xml.j2",
        name=name,
        uuid=own_uuid(name),
        machine=machine,
        pins=[(number, cpus or machine.host_cpus) for number, cpus in enumerate(named) if cpus or machine.host_cpus],
        io_cpus=pin.io or machine.host_cpus,
        architecture=platform.machine(),
        board=board(),
        kernel_words=kernel_words(),
        cpu_mode=_CPU_MODES.get(machine.accelerator, "CPU"),
        emulator=emulator or shutil.which(qemu_program(), path=search_path()) or qemu_program(),
        files=files,
        agent_port=AGENT_PORT,
        mark=MARK,
        run_id=run_id,
    )
