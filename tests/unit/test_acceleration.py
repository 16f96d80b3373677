"""KVM counts as usable once a guest has booted under it: probes, and how long their results are remembered."""

import json
from pathlib import Path

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.images.library import Image
from netbench.vmm.qemu import acceleration
from netbench.vmm.qemu.acceleration import Acceleration, choose, probe, remember, remembered
from netbench.vmm.qemu.command import qemu_program
from tests.unit.fakes import FakeHost, NetbenchCopied

DONE = Completed((), 0, "", "")
DIES = Acceleration("tcg", "/dev/kvm exists, but no guest boots under it: it died")
HERE = LocalHost("here", "no-run")


def image(digest="d1") -> Image:
    """Return an image that is never read."""
    place = Path("/images/micro")
    return Image("micro", place, place / "vmlinux", place / "vmlinuz", place / "initrd", "6.1", "x86_64", digest, {})


@pytest.fixture
def boot_id(monkeypatch, tmp_path):
    """This boot of the machine, as a file; results are stored beside it."""
    file = tmp_path / "boot_id"
    file.write_text("boot-1\n")
    monkeypatch.setattr(acceleration, "_BOOT_ID", str(file))
    monkeypatch.setattr(acceleration, "CACHE", tmp_path / "state" / "acceleration.json")
    return file


@pytest.fixture
def machine(monkeypatch, tmp_path, boot_id):
    """A machine with /dev/kvm and an image; `found` is the result of its probes, and `probed` lists them."""

    class Machine:
        def __init__(self) -> None:
            self.found = Acceleration("kvm")
            self.images = {"micro": image(), "new": image("d2")}
            self.probed: list[str] = []
            self.device = tmp_path / "kvm"

        def choose(self, wanted="auto", name="micro", host=HERE) -> Acceleration:
            return choose(wanted, host, tmp_path, name)

    here = Machine()
    here.device.touch()

    def find(name):
        if name not in here.images:
            raise MissingError(f"the guest image {name!r} is not built")
        return here.images[name]

    def probe(host, image, directory, limit_s=0.0):
        here.probed.append(image.digest)
        return here.found

    monkeypatch.setattr(acceleration, "KVM_DEVICE", here.device)
    monkeypatch.setattr(acceleration, "find_image", find)
    monkeypatch.setattr(acceleration, "probe", probe)
    monkeypatch.setattr(acceleration, "brought", lambda image, host: image)
    return here


def test_results_are_remembered_of_each_image_until_the_next_boot(boot_id):
    assert remembered(HERE, image()) is None
    remember(HERE, image(), DIES)
    remember(HERE, image("d2"), Acceleration("kvm"))
    assert [remembered(HERE, image(digest)) for digest in ("d1", "d2", "d3")] == [DIES, Acceleration("kvm"), None]
    boot_id.write_text("boot-2\n")
    assert remembered(HERE, image()) is None


NOTE = {"boot": "boot-1\n", "found": {"accelerator": "kvm", "why": ""}}
DAMAGED = [
    *(json.dumps(NOTE)[:length] for length in (0, 1, 20)),
    *("[]", "5", "null", "\udcff", *(json.dumps({key: NOTE[key]}) for key in NOTE)),
    *(json.dumps({**NOTE, key: None}) for key in NOTE),
    *(json.dumps({**NOTE, "found": found}) for found in (5, {"why": "x"}, {"accelerator": "kvm", "colour": "red"})),
]


def test_a_damaged_note_is_no_note(boot_id):
    remember(HERE, image(), Acceleration("kvm"))
    (cache,) = acceleration.CACHE.parent.iterdir()
    assert json.loads(cache.read_text()) == NOTE
    for text in DAMAGED:
        cache.write_bytes(text.encode(errors="surrogateescape"))
        assert remembered(HERE, image()) is None, text
        remember(HERE, image(), DIES)
        assert remembered(HERE, image()) == DIES, text


def test_a_note_that_cannot_be_written_is_missing(tmp_path, boot_id, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(acceleration, "CACHE", tmp_path / "file" / "acceleration.json")
    remember(HERE, image(), DIES)
    assert remembered(HERE, image()) is None


@pytest.mark.parametrize(
    ("wanted", "why"), [("tcg", "the topology asks for emulation"), ("auto", "this host has no /dev/kvm")]
)
def test_without_a_device_nothing_is_tried(machine, wanted, why):
    machine.device.unlink()
    machine.images.clear()
    assert machine.choose(wanted) == Acceleration("tcg", why)
    assert machine.probed == []


@pytest.mark.parametrize("found", [Acceleration("kvm"), DIES])
def test_a_probe_is_made_once_for_each_boot(machine, boot_id, found):
    machine.found = found
    assert [machine.choose() for _ in range(3)] == [found] * 3
    assert machine.probed == ["d1"]
    boot_id.write_text("boot-2\n")
    assert machine.choose() == found
    assert machine.probed == ["d1", "d1"]


def test_it_is_the_image_in_use_that_is_tried(machine):
    machine.choose(name="new")
    assert machine.probed == ["d2"]


def test_without_an_image_it_cannot_be_tried_and_that_is_not_remembered(machine):
    found = machine.choose(name="gone")
    assert found.emulated
    assert found.why == "/dev/kvm exists, but cannot be tried: the guest image 'gone' is not built"
    machine.images["gone"] = image("d3")
    assert machine.choose(name="gone") == Acceleration("kvm")


def test_kvm_that_is_wanted_works_or_is_an_error(machine):
    assert machine.choose("kvm") == Acceleration("kvm")
    machine.found = DIES
    with pytest.raises(
        MissingError, match="accelerator: kvm is not possible: .* no guest boots under it: it died; use"
    ):
        machine.choose("kvm", "new")
    machine.device.unlink()
    with pytest.raises(MissingError, match="accelerator: kvm is not possible: this host has no /dev/kvm; use auto or"):
        machine.choose("kvm")


class SshMachine(NetbenchCopied, FakeHost):
    """A host over SSH that has /dev/kvm, and no result of a probe."""

    def run(self, argv, *, stdin="", timeout_s=30.0):
        return Completed(tuple(argv), 0, "", "")

    def write(self, path, text):
        self.files[path] = text


def test_kvm_of_a_host_over_ssh_is_probed_and_remembered_there(machine):
    machine.found = DIES
    host = SshMachine(files={acceleration._BOOT_ID: "boot-7"})
    with pytest.raises(MissingError, match="accelerator: kvm is not possible"):
        machine.choose("kvm", host=host)
    assert machine.probed == ["d1"]
    (note,) = (json.loads(text) for path, text in host.files.items() if ".json." in path)
    assert (note["boot"], note["found"]["accelerator"]) == ("boot-7", "tcg")


def test_kvm_of_a_vm_of_netbench_is_not_probed(machine):
    assert machine.choose("kvm", host=FakeHost({"test": DONE})) == Acceleration("kvm")
    assert machine.probed == []


def test_a_probe_that_cannot_even_start_reports_so(tmp_path):
    """A FakeHost starts nothing."""
    found = probe(FakeHost({"mkdir": DONE}), image(), tmp_path)
    assert found.emulated
    assert found.why == "/dev/kvm exists, but no guest boots under it: a fake host starts no processes"


def test_a_probe_is_of_the_image_under_kvm(tmp_path):
    asked = []

    class Asking(FakeHost):
        def spawn(self, argv):
            asked.append(list(argv))
            raise TestbedError("no")

    probe(Asking({"mkdir": DONE}), image(), tmp_path)
    (command,) = asked
    assert command[0] == qemu_program()
    assert command[command.index("-accel") + 1] == "kvm"
    assert command[command.index("-initrd") + 1] == "/images/micro/initrd"
    assert str(tmp_path / "kvm-probe" / "qmp") in " ".join(command)
