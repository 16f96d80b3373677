"""KVM counts where a guest has booted under it: what is tried, what is remembered, and for how long."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.errors import MissingError, TestbedError
from netbench.images.library import Image
from netbench.vmm import acceleration
from netbench.vmm.acceleration import Acceleration, choose, probe, remember, remembered
from netbench.vmm.qemu_command import qemu_program
from tests.unit.fakes import FakeHost

DIES = Acceleration("tcg", "/dev/kvm is there, but no guest boots under it: it died")


def image(digest="d1") -> Image:
    """An image that nobody reads."""
    place = Path("/images/micro")
    return Image("micro", place, place / "vmlinux", place / "vmlinuz", place / "initrd", "6.1", "x86_64", digest, {})


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "state" / "acceleration.json"


@pytest.fixture
def boot_id(monkeypatch, tmp_path):
    """This boot of the machine, as a file."""
    file = tmp_path / "boot_id"
    file.write_text("boot-1\n")
    monkeypatch.setattr(acceleration, "_BOOT_ID", file)
    return file


@pytest.fixture
def machine(monkeypatch, tmp_path, cache, boot_id):
    """A machine with /dev/kvm and an image: what a probe finds there, and how often one was made."""

    class Machine:
        def __init__(self) -> None:
            self.found = Acceleration("kvm")
            self.images = {"micro": image(), "new": image("d2")}
            self.probed: list[str] = []
            self.device = tmp_path / "kvm"

        def choose(self, wanted="auto", name="micro") -> Acceleration:
            return choose(wanted, FakeHost(), tmp_path, name)

    here = Machine()
    here.device.touch()

    def find(name):
        if name not in here.images:
            raise MissingError(f"the guest image {name!r} is not built")
        return here.images[name]

    def probe(host, image, directory):
        here.probed.append(image.digest)
        return here.found

    monkeypatch.setattr(acceleration, "KVM_DEVICE", here.device)
    monkeypatch.setattr(acceleration, "CACHE", cache)
    monkeypatch.setattr(acceleration, "find_image", find)
    monkeypatch.setattr(acceleration, "probe", probe)
    return here


@pytest.mark.parametrize("found", [Acceleration("kvm"), DIES])
def test_what_was_found_is_remembered(cache, boot_id, found):
    assert remembered(cache, image()) is None
    remember(cache, image(), found)
    assert remembered(cache, image()) == found
    assert [path.name for path in cache.parent.iterdir()] == [cache.name], "nothing half-written is left"


def test_after_another_boot_it_is_tried_anew(cache, boot_id):
    remember(cache, image(), DIES)
    boot_id.write_text("boot-2\n")
    assert remembered(cache, image()) is None


def test_another_image_is_tried_for_itself(cache, boot_id):
    remember(cache, image("d1"), DIES)
    assert remembered(cache, image("d2")) is None


WHOLE = {"key": ["boot-1", "d1"], "found": {"accelerator": "kvm", "why": ""}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        json.dumps({**WHOLE, "key": None}),
        json.dumps({"found": WHOLE["found"]}),
        json.dumps({"key": WHOLE["key"]}),
        json.dumps({**WHOLE, "found": None}),
        json.dumps({**WHOLE, "found": {"accelerator": "kvm", "colour": "red"}}),
        json.dumps({**WHOLE, "found": {"why": "x"}}),
        "\udcff",
    ],
)
def test_a_damaged_note_is_no_note(cache, boot_id, text):
    cache.parent.mkdir()
    cache.write_bytes(text.encode(errors="surrogateescape"))
    assert remembered(cache, image()) is None
    remember(cache, image(), Acceleration("kvm"))
    assert remembered(cache, image()) == Acceleration("kvm")


@given(st.integers(0, len(json.dumps(WHOLE)) - 1))
def test_a_note_that_was_cut_is_no_note(tmp_path_factory, length):
    cache = tmp_path_factory.mktemp("state") / "acceleration.json"
    cache.write_text(json.dumps(WHOLE)[:length])
    assert remembered(cache, image()) is None


def test_a_note_that_cannot_be_written_is_only_not_there(tmp_path, boot_id):
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "acceleration.json"
    remember(cache, image(), DIES)
    assert remembered(cache, image()) is None


def test_emulation_that_is_asked_for_needs_nothing(machine):
    machine.device.unlink()
    machine.images.clear()
    assert machine.choose("tcg") == Acceleration("tcg", "the topology asks for emulation")
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


def test_without_a_device_nothing_is_tried(machine):
    machine.device.unlink()
    assert machine.choose() == Acceleration("tcg", "this host has no /dev/kvm")
    assert machine.probed == []


def test_without_an_image_it_cannot_be_tried_and_that_is_not_remembered(machine):
    images = dict(machine.images)
    machine.images.clear()
    found = machine.choose()
    assert (found.emulated, found.why) == (
        True,
        "/dev/kvm is there, but cannot be tried: the guest image 'micro' is not built",
    )
    machine.images.update(images)
    assert machine.choose() == Acceleration("kvm")


def test_kvm_that_is_wanted_and_does_not_work_is_an_error(machine):
    machine.found = DIES
    with pytest.raises(MissingError, match="accelerator: kvm is wanted, but .* no guest boots under it: it died; use"):
        machine.choose("kvm")
    machine.device.unlink()
    with pytest.raises(MissingError, match="accelerator: kvm is wanted, but this host has no /dev/kvm; use auto or"):
        machine.choose("kvm")


def test_kvm_that_is_wanted_and_works(machine):
    assert machine.choose("kvm") == Acceleration("kvm")
    assert not machine.choose("kvm").emulated


def test_a_probe_that_cannot_even_start_says_so(tmp_path):
    """A FakeHost starts nothing."""
    found = probe(FakeHost(), image(), tmp_path)
    assert found.emulated
    assert found.why == "/dev/kvm is there, but no guest boots under it: a fake host starts no processes"


def test_a_probe_is_of_the_image_under_kvm(tmp_path):
    asked = []

    class Asking(FakeHost):
        def spawn(self, argv):
            asked.append(list(argv))
            raise TestbedError("no")

    probe(Asking(), image(), tmp_path)
    (command,) = asked
    assert command[0] == qemu_program()
    assert command[command.index("-accel") + 1] == "kvm"
    assert command[command.index("-initrd") + 1] == "/images/micro/initrd"
    assert str(tmp_path / "kvm-probe" / "qmp") in " ".join(command)
