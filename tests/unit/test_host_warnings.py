"""When a warning about the host is raised, and when not."""

import pytest

from netbench.model.verdict import WarningKind
from netbench.testbed.environment import host_warnings, read_environment


def environment(governor=None, machine="none", load=0.0, cpus=4, total=1000, steal=0, use=None):
    return {
        "cpu": {"governor": governor, "online_count": cpus},
        "virtualisation": {"machine": machine},
        "activity": {
            "load_average": [load, 9.0, 9.0],
            "cpu_ticks": {"total": total, "idle": 0, "steal": steal},
            "cpu_use": use,
        },
    }


def kinds(before, after=None):
    return [warning.kind for warning in host_warnings(before, after)]


def test_a_quiet_machine_of_constant_speed_is_not_warned_about():
    """The load after a campaign comes from the campaign."""
    for governor in ("performance", None):
        after = environment(governor=governor, total=2000, load=100.0)
        assert host_warnings(environment(governor=governor), after) == []


@pytest.mark.parametrize("governor", ["powersave", "schedutil", "performance,powersave"])
def test_a_governor_that_changes_the_frequency(governor):
    (warning,) = host_warnings(environment(governor=governor), None)

    assert warning.kind is WarningKind.CPU_FREQUENCY_VARIES
    assert governor in warning.text
    assert "scaling_governor" in warning.text


@pytest.mark.parametrize(("machine", "expected"), [("kvm", 1), ("unknown", 1), ("none", 0), (None, 0)])
def test_a_virtual_machine(machine, expected):
    assert kinds(environment(machine=machine)) == [WarningKind.HOST_IS_VIRTUAL] * expected


@pytest.mark.parametrize(("cpus", "expected"), [(0.5, 1), (3.9, 1), (4.0, 0), (None, 0)])
def test_a_limit_below_what_the_cpus_have(cpus, expected):
    before = environment(cpus=4)
    before["cpu"]["limit"] = cpus and {"cpus": cpus, "text": "so much (file)", "remedy": "remove it"}
    assert kinds(before) == [WarningKind.CPU_LIMIT] * expected
    for warning in host_warnings(before, None):
        assert "limits the CPU time of netbench to so much (file)" in warning.text
        assert warning.text.endswith("Before measuring, remove it.")


@pytest.mark.parametrize(
    ("load", "use", "expected"), [(2.0, None, 0), (2.01, None, 1), (2.01, 0.3, 1), (2.01, 0.05, 0), (1.0, 0.3, 0)]
)
def test_a_load_of_more_than_half_the_cpus_before_the_start(load, use, expected):
    """There is no warning if the programs that caused the load have ended."""
    assert kinds(environment(load=load, cpus=4, use=use)) == [WarningKind.HOST_WAS_BUSY] * expected


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ((5000, 70), (6000, 80), ""),
        ((5000, 70), (6000, 81), "1.1%"),
        ((5000, 70), (6000, 320), "25.0% of this host's CPU time to others during the campaign (250 of 1000 ticks"),
        # Counters that went backwards are ignored.
        ((5000, 70), (1000, 900), ""),
        ((1000, 900), (5000, 70), ""),
    ],
)
def test_more_than_one_percent_of_cpu_time_stolen(before, after, message):
    ticks = [environment(total=total, steal=steal) for total, steal in (before, after)]
    found = host_warnings(*ticks)
    assert [warning.kind for warning in found] == ([WarningKind.HOST_WAS_BUSY] if message else [])
    assert all(message in warning.text for warning in found)


@pytest.mark.parametrize("unknown", [{}, {"cpu": None}, {"activity": {"cpu_ticks": None, "load_average": None}}])
def test_what_is_unknown_warns_of_nothing(unknown):
    assert host_warnings(unknown, unknown) == []


def test_it_reads_what_read_environment_writes(tmp_path):
    for name, text in {
        "proc/loadavg": "1.00 0 0 1/1 1",
        "proc/cpuinfo": "flags : hypervisor",
        "proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0",
        "sys/devices/system/cpu/online": "0",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "ondemand",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = read_environment(root=tmp_path, which=lambda name: None)
    (tmp_path / "proc/stat").write_text("cpu 50 0 0 0 0 0 0 50 0 0")
    after = read_environment(root=tmp_path, which=lambda name: None)

    assert kinds(before, after) == [
        WarningKind.CPU_FREQUENCY_VARIES,
        WarningKind.HOST_IS_VIRTUAL,
        WarningKind.HOST_WAS_BUSY,
        WarningKind.HOST_WAS_BUSY,
    ]
