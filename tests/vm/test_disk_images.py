"""Guests from a user's own disk image, reached by SSH or through QEMU's guest agent."""

import os
from pathlib import Path

import pytest

from tests.commands import netbench, rows, verdict_of
from tests.vm.disk_image import LACKING
from tests.vm.test_guests import ONE, RAW, TOPOLOGY, reasons

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}: make test installs them"),
]


def run(tmp_path, results, *uuts: str, **more):
    path = tmp_path / "guests.yaml"
    path.write_text(TOPOLOGY + "".join(f"  - {{{uut}}}\n" for uut in uuts))
    return netbench("run", path, "quick", "-o", results, *ONE, timeout_s=200, **more)


def described(disk: Path, channel: str) -> str:
    image = f"image: {disk / 'disk.img'}, disk_format: raw, memory: 512M"
    return f"name: guest, kind: qemu, forward: route, {image}, channel: {channel}"


def test_a_disk_image_is_reached_in_either_way_and_stays_what_it_was(disk, tmp_path):
    before = (disk / "disk.img").read_bytes()
    host_key = (disk / "host_key.pub").read_text().strip()
    channels = {
        "agent": "guest-agent",
        "ssh": f"{{kind: ssh, key: {disk / 'key'}, host_key: '{host_key}'}}",
    }
    uuts = [described(disk, channel).replace("name: guest", f"name: {name}") for name, channel in channels.items()]
    done = run(tmp_path, tmp_path / "results", *uuts)
    assert done.returncode == 0, done.stdout + done.stderr + reasons(tmp_path / "results")
    for row in rows(tmp_path / "results"):
        assert (row["sent_frames"], row["received_frames"], verdict_of(row)) == ("500", "500", "valid"), row
        assert row["unexplained_frames"] == "0"
        assert float(row["cpu_guest_s"]) > 0
    assert [row["uut"] for row in rows(tmp_path / "results")] == ["agent", "ssh"]
    assert (disk / "disk.img").read_bytes() == before


def test_a_guest_whose_host_key_is_another_is_not_trusted(disk, tmp_path):
    foreign = " ".join((disk / "other.pub").read_text().split()[:2])
    channel = f"{{kind: ssh, key: {disk / 'key'}, host_key: '{foreign}'}}"
    done = run(tmp_path, tmp_path / "results", described(disk, channel), RAW)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [(row["uut"], verdict_of(row)) for row in rows(tmp_path / "results")] == [
        ("guest", "invalid"),
        ("raw", "valid"),
    ]
    assert "no SSH connection" in reasons(tmp_path / "results")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("image: /no/such.qcow2, channel: guest-agent", "there is no disk image /no/such.qcow2"),
        ("image: ./x.img", "a disk image needs one"),
        ("channel: guest-agent", "it is for a disk image"),
        ("image: /etc/hostname, channel: {kind: ssh, key: /no/key, host_key: 'ssh-ed25519 AAAA'}", "no key /no/key"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_touched(tmp_path, line, words):
    done = run(tmp_path, tmp_path / "results", f"name: guest, kind: qemu, {line}", env=dict(os.environ))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "results").exists()
