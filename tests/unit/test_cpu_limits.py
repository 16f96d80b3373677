"""CPU limits of control groups of both versions and of their parents, also as seen in a container."""

from pathlib import Path

import pytest

from netbench.linux.cgroups import cpu_limit, exhausts_limit, throttled_s

V1 = "30 20 0:26 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 20 0:26 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
OTHER = "29 20 0:25 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V1_TOP, V2_TOP = "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    return tmp_path


def process(proc: Path, member: str, mounts: str, files: dict[str, str]) -> None:
    """A process in this group, on a machine with these files."""
    (proc / "self/cgroup").write_text(member)
    (proc / "self/mountinfo").write_text(OTHER + mounts)
    for name, text in files.items():
        file = proc / f"self/root{name}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def v1(group: str, quota_us: int, period_us: int = 100_000) -> dict[str, str]:
    directory = f"{V1_TOP}{group}"
    return {f"{directory}/cpu.cfs_quota_us": f"{quota_us}\n", f"{directory}/cpu.cfs_period_us": f"{period_us}\n"}


def v2(group: str, text: str) -> dict[str, str]:
    return {f"{V2_TOP}{group}/cpu.max": f"{text}\n"}


IN_V1, IN_V2 = "9:memory:/elsewhere\n4:cpu,cpuacct:/a/b\n0::/\n", "0::/a/b\n"


@pytest.mark.parametrize(
    ("member", "mounts", "files", "expected"),
    [
        (IN_V1, V1.format(root="/"), v1("/a/b", 50_000), (0.5, 0.1, f"{V1_TOP}/a/b/cpu.cfs_quota_us")),
        (IN_V1, V1.format(root="/"), v1("/a/b", -1), None),
        (IN_V1, V1.format(root="/"), v1("/a", 2_000, 10_000), (0.2, 0.01, f"{V1_TOP}/a/cpu.cfs_quota_us")),
        # docker with groups of version 1: the container's group is mounted
        (IN_V1, V1.format(root="/a/b"), v1("", 150_000), (1.5, 0.1, f"{V1_TOP}/cpu.cfs_quota_us")),
        # with a namespace of groups that was entered after the mount
        ("4:cpu,cpuacct:/\n", V1.format(root="/a/b"), v1("", 50_000), (0.5, 0.1, f"{V1_TOP}/cpu.cfs_quota_us")),
        (IN_V2, V2.format(root="/"), v2("/a/b", "50000 100000"), (0.5, 0.1, f"{V2_TOP}/a/b/cpu.max")),
        (IN_V2, V2.format(root="/"), v2("/a/b", "max 100000"), None),
        (
            IN_V2,
            V2.format(root="/"),
            v2("/a/b", "100000 100000") | v2("/a", "2000 10000"),
            (0.2, 0.01, f"{V2_TOP}/a/cpu.max"),
        ),
        ("0::/\n", V2.format(root="/"), v2("", "150000 100000"), (1.5, 0.1, f"{V2_TOP}/cpu.max")),
        ("0::/../x\n", V2.format(root="/"), v2("", "max 100000"), None),
        (IN_V2, "", {}, None),  # nothing is mounted
        (IN_V2, V2.format(root="/"), v2("/a/b", "what"), None),
        ("", V2.format(root="/"), {}, None),
    ],
)
def test_the_tightest_limit_of_all_groups_counts(proc, member, mounts, files, expected):
    process(proc, member, mounts, files)
    assert cpu_limit(proc=proc) == expected


def test_a_message_reports_where_the_limit_is_and_how_to_remove_it(proc):
    process(proc, IN_V1, V1.format(root="/"), v1("/a/b", 50_000))
    limit = cpu_limit(proc=proc)
    assert limit is not None
    assert str(limit) == f"50% of a CPU in each 100 ms ({V1_TOP}/a/b/cpu.cfs_quota_us)"
    assert limit.remedy.endswith(f"echo -1 >{V1_TOP}/a/b/cpu.cfs_quota_us")


def test_how_long_limits_stopped_a_process_is_that_of_all_groups(proc):
    stats = {f"{V2_TOP}/a/b/cpu.stat": "usage_usec 7\nthrottled_usec 1500000\n"}
    process(proc, IN_V2, V2.format(root="/"), stats | {f"{V2_TOP}/a/cpu.stat": "throttled_usec 250000\n"})
    assert throttled_s(proc=proc) == 1.75
    process(proc, IN_V1, V1.format(root="/"), {f"{V1_TOP}/a/b/cpu.stat": "nr_throttled 2\nthrottled_time 2000000\n"})
    assert throttled_s(proc=proc) == 0.002
    process(proc, IN_V2, "", {})
    assert throttled_s(proc=proc) is None


def test_a_process_that_is_gone_has_no_limit():
    assert not exhausts_limit(2**22 + 1)
