"""Sharing of pktgen in one namespace: its sources, their threads, and other programs."""

import signal
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from tests.unit.fakes import FakeHost
from tests.unit.pktgen_kernel import (
    MAX,
    TRAFFIC,
    FakeKernel,
    PktgenHost,
    generator,
    host,
    impatient,
    kernel,
    opened,
    trial,
)

__all__ = ["host", "impatient", "kernel"]  # fixtures


@contextmanager
def two_sources(host, **options):
    """Open two sources of one namespace."""
    made_by = generator(**options)
    with (
        closing(opened(host, made_by=made_by)) as one,
        closing(opened(host, made_by=made_by, interface="nb-tx2")) as other,
    ):
        yield one, other


@pytest.fixture
def pair(host):
    with two_sources(host) as pair:
        yield pair


def test_sources_of_one_namespace_start_with_one_write(kernel, pair):
    for source, duration_s in zip(pair, (0.1, 0.2), strict=True):
        source.prepare(replace(TRAFFIC, duration_s=duration_s))
    pair[0].start(0)
    assert kernel.runs == []
    pair[1].start(0)
    assert kernel.runs == [["nb-tx1@0", "nb-tx2@1"]]
    assert [source.wait(1.0).frames for source in pair] == [1000, 2000]


def test_devices_of_earlier_trials_do_not_send(kernel, host):
    with two_sources(host, cpus=[1]) as (one, other):
        other.prepare(TRAFFIC)
        one.prepare(TRAFFIC)
        other.start(0)
        one.start(0)
        assert [one.wait(1.0).frames, other.wait(1.0).frames] == [1000, 1000]
        assert [trial(one).frames, trial(other).frames] == [1000, 1000]
        assert kernel.runs == [["nb-tx1@1", "nb-tx2@1"], ["nb-tx1@1"], ["nb-tx2@1"]]


def test_sources_of_one_thread_that_send_as_fast_as_they_can_take_turns(kernel, host):
    with two_sources(host, cpus=[1]) as (one, other):
        for source in (one, other):
            source.prepare(MAX)
        for source in (one, other):
            source.start(0)
        assert min(source.wait(2.0).frames for source in (one, other)) > 1000
        assert trial(one, MAX, timeout_s=2.0).frames > 1000
        assert [kernel.devices()[name].delay for name in ("nb-tx1@1",)] == [0], "alone it needs no delay"


def test_sources_take_the_least_used_thread(kernel, host):
    made_by = generator()
    sources = [opened(host, made_by=made_by, interface=f"nb-tx{n}") for n in (1, 2, 3)]
    assert list(kernel.devices()) == ["nb-tx1@0", "nb-tx3@0", "nb-tx2@1"]
    sources[1].close()
    sources[1].open(host, "nb-tx2", ())
    assert "nb-tx2@1" in kernel.devices()
    for source in sources:
        source.close()
    assert kernel.devices() == {}


def test_namespaces_of_one_machine_share_its_cpus(kernel, monkeypatch):
    monkeypatch.setattr(PktgenHost, "shares_files", True)
    made_by = generator()
    hosts = [PktgenHost(FakeKernel(), name) for name in ("a", "b")]
    for pktgen_host in hosts:
        pktgen_host.netns = pktgen_host.name
    with closing(opened(hosts[0], made_by=made_by)), closing(opened(hosts[1], made_by=made_by)):
        assert [list(host.kernel.devices()) for host in hosts] == [["nb-tx1@0"], ["nb-tx1@1"]]
    with closing(opened(hosts[1], made_by=made_by)):
        assert list(hosts[1].kernel.devices()) == ["nb-tx1@0"]


def test_cpus_of_the_profile_come_before_those_of_the_plan(kernel, host):
    with closing(opened(host, cpus=(0,), made_by=generator(cpus=[1]))):
        assert list(kernel.devices()) == ["nb-tx1@1"]


def test_a_cpu_without_a_thread_is_refused(kernel, host):
    with pytest.raises(TestbedError, match="host far has no pktgen thread on CPU 7, only on 0, 1"):
        opened(host, cpus=(7,))
    assert kernel.devices() == {}


def test_namespaces_do_not_know_of_each_other(kernel):
    made_by = generator()
    here, there = PktgenHost(FakeKernel(), "a"), PktgenHost(FakeKernel(), "b")
    with closing(opened(here, made_by=made_by)) as one, closing(opened(there, made_by=made_by)) as other:
        one.prepare(TRAFFIC)
        other.prepare(TRAFFIC)
        one.start(0)
        assert here.kernel.runs == [["nb-tx1@0"]]
        assert there.kernel.runs == []
        other.start(0)
        assert (one.wait(1.0).frames, other.wait(1.0).frames) == (1000, 1000)


def test_a_source_that_was_prepared_and_not_started_holds_up_the_others_aloud(kernel, pair):
    one, other = pair
    one.prepare(TRAFFIC)
    other.prepare(TRAFFIC)
    one.start(0)
    assert "nb-tx2@1 on the same host was prepared, but not started" in one.wait(1.0).error
    assert kernel.runs == []
    assert trial(one).frames == 1000  # the next trial is not burdened with it
    assert kernel.runs == [["nb-tx1@0"]]


@pytest.mark.parametrize(
    ("loaded", "here", "remarks"),
    [
        (False, True, ["the kernel module pktgen of host far was loaded for this campaign, and stays loaded"]),
        (False, False, []),  # it ends with its VM
        (True, True, []),
    ],
)
def test_a_module_that_is_missing_is_loaded_and_stays(kernel, host, loaded, here, remarks):
    kernel.loaded, host.shares_files = loaded, here
    with closing(opened(host)) as source:
        assert source.remarks() == remarks
    assert kernel.loaded


def test_a_kernel_without_pktgen(kernel, host):
    kernel.loaded = kernel.loadable = False
    assert generator().unsupported_reason(host) == "the kernel of host far has no pktgen: neither loaded nor loadable"
    with pytest.raises(MissingError, match="pktgen cannot be loaded: .*not found in modules.dep"):
        opened(host)


@pytest.mark.parametrize("loaded", [True, False])
def test_a_kernel_with_pktgen_is_fit_and_not_touched(kernel, host, loaded):
    kernel.loaded = loaded
    assert generator().unsupported_reason(host) == ""
    assert (kernel.loaded, kernel.log) == (loaded, [])


def test_a_host_without_modprobe_has_no_pktgen():
    assert (
        generator().unsupported_reason(FakeHost())
        == "the kernel of host fake has no pktgen: neither loaded nor loadable"
    )
    unloaded = FakeHost({"modprobe": Completed((), 0, "insmod pktgen.ko", "")})
    assert generator().unsupported_reason(unloaded) == ""


def test_devices_of_other_software_are_left_alone(kernel, host):
    made_by = generator()
    kernel.interfaces.add("eth0")
    kernel.write("kpktgend_1", "add_device eth0@1\n")
    reason = "in use: other software added eth0@1"
    assert reason in made_by.unsupported_reason(host)
    with pytest.raises(TestbedError, match=reason):
        opened(host, made_by=made_by)
    assert list(kernel.devices()) == ["eth0@1"]


def test_other_software_who_comes_later_is_noticed(kernel, host):
    kernel.interfaces.add("eth0")
    source = opened(host)
    trial(source)
    kernel.write("kpktgend_0", "add_device eth0@0\n")
    with pytest.raises(TestbedError, match="other software added eth0@0"):
        source.prepare(TRAFFIC)
    source.close()
    assert len(kernel.runs) == 1
    assert "eth0@0" in kernel.devices()


def test_what_is_ours_is_removed_though_other_software_came_to_another_thread(kernel, host):
    kernel.interfaces.add("eth0")
    source = opened(host)
    kernel.write("kpktgend_1", "add_device eth0@1\n")
    source.close()
    assert list(kernel.devices()) == ["eth0@1"]


def test_threads_send_max_together_and_paced_frames_come_from_one(kernel, host):
    with closing(opened(host, threads=2, cpus=(1, 0))) as source:
        assert list(kernel.devices()) == ["nb-tx1@0", "nb-tx1@1"]
        unpaced = trial(source, replace(MAX, duration_s=0.01))
        assert kernel.runs == [["nb-tx1@0", "nb-tx1@1"]]
        assert [writer.returncode for writer in host.writers] == [-signal.SIGTERM]
        assert unpaced.frames == sum(device.frames for device in kernel.devices().values()) == 210_000
        assert (unpaced.numbered, unpaced.error) == (False, "")
        assert unpaced.duration_s == pytest.approx(1.05, rel=1e-3)
        assert all("QUEUE_MAP_CPU" in device.flags for device in kernel.devices().values())
        paced = trial(source)
        assert kernel.runs[1:] == [["nb-tx1@1"]]
        assert (paced.numbered, paced.frames) == (True, 1000)
    assert kernel.devices() == {}


def test_one_thread_of_several_whose_device_is_gone(kernel, host):
    with closing(opened(host, threads=2)) as source:
        source.prepare(MAX)
        source.start(0)
        kernel.threads[1].clear()
        sent = source.wait(2.0)
        assert (sent.frames, sent.first_ns) == (0, None)
        assert "device nb-tx1@1 is gone" in sent.error


def test_threads_take_cpus_beyond_those_of_the_plan_where_these_are_too_few(kernel, host):
    with closing(opened(host, cpus=(1,), threads=2)):
        assert list(kernel.devices()) == ["nb-tx1@0", "nb-tx1@1"]


def test_more_threads_than_cpus(kernel, host):
    with pytest.raises(TestbedError, match="nb-tx1 of host far can have only one thread on each of the CPUs 0, 1"):
        opened(host, threads=3)
    assert kernel.devices() == {}
