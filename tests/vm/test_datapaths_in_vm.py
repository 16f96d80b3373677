"""Datapaths that need Debian's kernel, in a VM and in a guest."""

from contextlib import closing

import pytest

from netbench.results.store import Store
from tests.commands import netbench, rows, settings, verdict_of

pytestmark = [pytest.mark.vm, pytest.mark.root]

SETTINGS = settings(repetitions=1, retries=0, tolerance="100%", max_lateness="1min", loads="500fps", duration="1s")


def routed(results, uut: str) -> list[int]:
    """The number of frames that the IP layer has forwarded in each trial of a UUT."""
    with closing(Store.read(results / "campaign.sqlite")) as store:
        guests = [guest for trial in store.trials() if trial.spec.uut == uut for guest in trial.guests]
    counters = [counter for guest in guests for counter in guest.counters]
    counters += [counter for guest in guests for stream in guest.streams for counter in stream.counters]
    return [counter.grew for counter in counters if counter.counter == "ForwDatagrams" and counter.grew is not None]


@pytest.mark.parametrize(
    ("topology", "generator", "forwards"),
    [  # tc in namespaces is in tests/netns/test_datapaths.py
        ("lab-vm", "pktgen", {"bridge": "flowtable"}),
        ("netns-qemu-virtio", "afpacket", {"route": "flowtable", "bridge": "tc"}),
    ],
)
def test_frames_that_take_a_short_cut_are_all_counted_and_hardly_any_is_routed(results, topology, generator, forwards):
    """The first UUTs of a topology, which forward in these ways instead of those in their names."""
    ways = {f"topology__uuts__{number}__forward": way for number, way in enumerate(forwards.values())}
    more = settings(generator=generator, frame_sizes="64,1518", flows=3, **ways)
    uuts = [word for uut in forwards for word in ("--uut", uut)]
    done = netbench("run", topology, "quick", "-o", results, *SETTINGS, *more, *uuts, timeout_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(results)
    assert len(found) == 2 * len(forwards)
    for row in found:
        assert (verdict_of(row), row["sent_frames"], row["lost_frames"]) == ("valid", "500", "0"), row
        assert row["received_frames"] == "500"
    for uut, way in forwards.items():
        # Frames that tc redirects never reach the IP layer.
        assert any(routed(results, uut)) == (way == "flowtable")
        assert all(grew < 50 for grew in routed(results, uut)), "of each flow what came before its entry was there"
