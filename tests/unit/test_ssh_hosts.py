"""Hosts over SSH without a machine: the call of ssh, the code brought there, and the keys in topologies."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.config.plugins import UUTS, plugins
from netbench.errors import MissingError, UsageError
from netbench.hosts.base import GoneError
from netbench.hosts.clock import ClockComparison, wait_until
from netbench.hosts.local import LocalHost
from netbench.hosts.remote_code import PYTHON, archive, unpacking_command
from netbench.hosts.ssh import Connecting, _description, explained, ssh_command
from netbench.linux.changes import Change
from netbench.linux.watchdog.program import clock_state
from netbench.model.distributions import ClockDifference
from netbench.model.host_spec import HostSpec, Password, SshSpec
from netbench.model.topology import Topology
from netbench.testbed.bring_up import base_changes, resources
from netbench.testbed.doctor import ssh_checks
from netbench.testbed.doctor.host_checks import Status
from netbench.testbed.doctor.ssh_checks import _SCRIPT, _checks_of, checks_of_hosts, facilities_there, needed_there
from netbench.testbed.emulated_ssh_hosts import namespaces_of, played, quoted, server_changes
from netbench.testbed.needs import needs_of
from netbench.testbed.passwords import Passwords
from netbench.vmm.libvirt.domain import driver_sign
from tests.breakages import load_shipped

SEVEN = load_shipped("netns-ssh")


def option(command, name):
    return next(word.partition("=")[2] for word in command if word.startswith(f"{name}="))


@pytest.mark.parametrize(
    ("path", "written"),
    [("/a/bin", '"PATH=/a/bin"'), ("/a b/bin", '"PATH=/a b/bin"'), ('/a "b/bin', '"PATH=/a \\"b/bin"')],
)
def test_an_emulated_server_reads_its_path_whole_whatever_the_folder_of_the_checkout(path, written):
    assert quoted(f"PATH={path}") == written


def test_ssh_is_called_as_its_user_has_it_and_checks_host_keys():
    command = ssh_command(SshSpec("192.0.2.1"), ["uname", "-s"])
    assert command[:2] == ["ssh", "-T"]
    assert command[-3:-1] == ["--", "192.0.2.1"]
    assert (option(command, "StrictHostKeyChecking"), option(command, "BatchMode")) == ("yes", "yes")
    assert not {"-l", "-p", "-i"} & set(command)
    assert not [word for word in command if "KnownHostsFile" in word or "IdentitiesOnly" in word]


def test_what_the_topology_reports_goes_before_that():
    spec = SshSpec("h", user="lab", ssh_port=2222, key="~/lab", known_hosts="/k")
    command = ssh_command(spec, ["true"])
    assert [command[command.index(flag) + 1] for flag in ("-l", "-p", "-i")] == ["lab", "2222", "~/lab"]
    assert (option(command, "UserKnownHostsFile"), option(command, "IdentitiesOnly")) == ("/k", "yes")


def test_one_that_is_given_longer_to_answer_is_given_longer_by_all_who_wait():
    usual, slow = SshSpec("h"), SshSpec("h", answer_limit=30.0)
    assert slow.silence_limit > slow.answer_limit > usual.silence_limit > usual.answer_limit
    for spec in (usual, slow):
        command = ssh_command(spec, ["true"])
        ssh_s = int(option(command, "ServerAliveInterval")) * int(option(command, "ServerAliveCountMax"))
        assert spec.answer_limit < ssh_s < spec.answer_limit + 2 * spec.silence_limit
    far = {"kind": "ssh", "address": "h", "answer_limit": "30s"}
    assert HostSpec.model_validate(far).ssh == slow
    for impossible in ({**far, "answer_limit": "1s"}, {"kind": "local", "answer_limit": "30s"}):
        with pytest.raises(ValidationError, match="answer_limit"):
            HostSpec.model_validate(impossible)


def test_a_password_is_reported_by_a_program_and_stands_in_no_command(tmp_path):
    command = ssh_command(SshSpec("h"), ["true"], tmp_path / "askpass")
    assert command[:3] == ["env", f"SSH_ASKPASS={tmp_path / 'askpass'}", "SSH_ASKPASS_REQUIRE=force"]
    assert option(command, "BatchMode") == "no"


def test_words_reach_the_command_there_as_they_are():
    command = ssh_command(SshSpec("h"), ["printf", "%s|", "a b", "$HOME", "'"])
    output = subprocess.run(
        ["sh", "-c", command[-1].replace("id -u", "echo 0")], capture_output=True, text=True, check=True
    )
    assert output.stdout == "a b|$HOME|'|"


@pytest.mark.parametrize(
    ("reported", "what"),
    [
        ("@@@\nHost key verification failed.\n", "the host key is unknown"),
        ("root@h: Permission denied (publickey).", "the host accepts neither a key of the agent or the topology"),
        ("sh: 1: exec: sudo: not found\nsudo: a password is required\n", "let that user be root"),
        ("netbench: line 1: exec: sudo: not found", "let that user be root"),
        ("ssh: connect to host h port 22: Connection refused\n", "Connection refused"),
    ],
)
def test_what_ssh_reports_is_reported_with_what_to_do(reported, what):
    assert what in explained(reported)
    assert reported.strip().splitlines()[-1] in explained(reported)


def test_a_shell_that_speaks_first_is_reported_from_netbench():
    with pytest.raises(ValueError, match="the login shell of that user printed .Welcome!. first: let it print nothing"):
        _description(b"Welcome!")


def test_nothing_reported_is_nothing_reported():
    assert explained(" \n") == ""


def unpacked(directory, *arguments):
    command = unpacking_command(str(directory), *arguments)
    return subprocess.run([sys.executable, *command[1:]], input=archive(), capture_output=True, timeout=60, check=False)


def modules_of_changes() -> list[str]:
    """Return the modules of all changes to machines, but not ESXi's, which are made from here by its API."""
    plugins(UUTS)
    kinds = list(Change.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
    modules = {kind.__module__ for kind in kinds if kind.__module__.startswith("netbench.")}
    assert modules >= {"netbench.vmm.xen.domain", "netbench.vmm.container.cgroups", "netbench.linux.changes.links"}
    return sorted(modules - {"netbench.vmm.esxi.machine"})


def test_what_is_brought_to_a_host_needs_nothing_but_numpy_there(tmp_path):
    blocked = ("pydantic", "yaml", "rich", "typer", "scipy", "jinja2", "MLRsearch", "qemu")
    modules = (
        "netbench.linux.watchdog.program",
        "netbench.linux.safety.ports",
        "netbench.sinks.bpf_worker",
        "netbench.sinks.remote_capture_count",
        "netbench.sinks.flush",
        "netbench.generators.afpacket.afpacket_worker",
        "netbench.generators.xdp.xdp_worker",
        "netbench.uut.xdp_process",
        *modules_of_changes(),  # which the guard there records and undoes
    )
    program = f"import sys; [sys.modules.__setitem__(name, None) for name in {blocked}]; "
    program += "; ".join(f"import {name}" for name in modules)
    assert unpacked(tmp_path / "code", "platform").returncode == 0  # a module that prints something and ends
    loads = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path / 'code')!r}); {program}; print(netbench.__file__)",
    ]
    done = subprocess.run(loads, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "code" / "netbench" / "__init__.py"), "")


def test_a_host_with_an_older_python_reports_so(tmp_path):
    command = unpacking_command(str(tmp_path / "code"), "platform")
    program = command[4].replace(f"< {PYTHON}", "< (99,)")
    done = subprocess.run([sys.executable, "-c", program, *command[5:]], input=b"", capture_output=True, check=False)
    assert b"and netbench needs 3.11" in done.stderr
    assert not (tmp_path / "code").exists()


def test_a_host_without_room_keeps_no_part_of_it(tmp_path):
    directory = tmp_path / "code"
    command = unpacking_command(str(directory), "platform")
    program = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    program += f"resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n{command[4]}"
    command = [sys.executable, "-c", program, *command[5:]]
    done = subprocess.run(command, input=archive(), capture_output=True, check=False)
    assert f"netbench cannot be put into {directory}" in done.stderr.decode()
    assert not directory.exists()


def test_clocks_differ_by_what_their_quickest_answer_leaves_open():
    differences = ClockComparison()
    # CLOCK_MONOTONIC there is 500 ahead; the answers take 100 and 20 ns.
    differences.add((1000, 0), (1550, 50), (1100, 100))
    differences.add((2000, 1000), (2512, 1012), (2020, 1020))
    assert differences.monotonic == ClockDifference(492, 512)
    assert (differences.monotonic.middle_ns, differences.monotonic.uncertainty_ns) == (502, 10)
    assert differences.realtime == ClockDifference(-8, 12)


@given(
    st.integers(-(10**18), 10**18),
    st.floats(-30e-6, 30e-6),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0, 0, 0, -(10**8), 10**10]))),
)
def test_the_true_difference_is_within_the_bounds_however_clocks_run_and_are_set(offset, apart, answers):
    differences, now_ns = ClockComparison(), 10**9

    def there(here_ns):
        return here_ns + offset + round((here_ns - 10**9) * apart)

    for there_after_ns, back_after_ns, set_by_ns in answers:
        now_ns += 10**9
        offset += set_by_ns
        answered_ns = now_ns + there_after_ns + back_after_ns
        output = there(now_ns + there_after_ns)
        differences.add((now_ns, now_ns), (output, output), (answered_ns, answered_ns))
        now_ns, true_ns = answered_ns, there(answered_ns) - answered_ns
        assert differences.realtime.least_ns - 2 <= true_ns <= differences.realtime.most_ns + 2, "but for rounding"


def test_what_keeps_the_clock_is_reported(tmp_path):
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "comm").write_text("chronyd\n")
    assert clock_state(tmp_path).startswith("kept by chronyd; ")
    assert clock_state(tmp_path / "none").startswith("kept by no program known here; ")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ({"kind": "ssh"}, "address: a host of kind ssh needs one"),
        ({"kind": "ssh", "address": "-oProxyCommand=x"}, "address"),
        ({"kind": "local", "address": "h"}, "address: only a host of kind ssh has this"),
        ({"kind": "ssh", "address": "h", "cpus": 2}, "cpus: only a host of kind vm has this"),
        ({"kind": "ssh", "address": "h", "on": "x"}, "on: only a host of kind netns is on another"),
        ({"kind": "ssh", "address": "h", "password": {}}, "give either env, the name of a variable of the environment"),
        ({"kind": "ssh", "address": "h", "server": "netns", "password": {"env": "A"}}, "emulates uses a key"),
    ],
)
def test_what_makes_no_sense_of_a_host_is_refused(host, why):
    with pytest.raises(ValidationError, match=why):
        HostSpec.model_validate(host)


def test_ports_of_two_machines_are_cabled_and_may_be_called_alike():
    assert list(SEVEN.ssh_hosts) == [*SEVEN.hosts]
    assert (SEVEN.uut_machine, SEVEN.machine("source1"), SEVEN.netns("source1")) == ("uut", "source1", None)
    assert [port.nic for port in SEVEN.ports("sink2")] == ["eth1"]
    assert SEVEN.ports() == []


def test_what_is_changed_on_each_of_two_cabled_machines():
    for machine, nics in (("source1", ["eth1"]), ("uut", [f"eth{n}" for n in range(1, 7)])):
        commands = [change.command for change in base_changes(SEVEN, machine)]
        assert [command.split()[-2] for command in commands if command.startswith("ip link set")] == nics
        held = resources(SEVEN, machine)
        assert {f"{what}:{nic}" for nic in nics for what in ("port", "nic")} <= held
        # Two UUTs there would share networks, settings and the names of bridges.
        assert ("uut:outside-namespaces" in held) == (machine == "uut")


def test_uuts_in_namespaces_may_be_side_by_side_on_one_machine():
    assert "uut:outside-namespaces" not in resources(load_shipped("netns"))


def test_played_servers_have_a_network_of_control_and_cables():
    namespaces = namespaces_of(SEVEN)
    assert namespaces[""] == "nb-netns-ssh-control"
    assert len(namespaces) == 8
    commands = [change.command for change in server_changes(SEVEN)]
    assert "ip -n nb-netns-ssh-sink3 address add 10.25.44.23/24 dev nb-control" in commands
    cables = [command for command in commands if command.startswith("ip link add eth")]
    assert len(cables) == 6
    assert "netns nb-netns-ssh-source1" in cables[0]
    assert "peer eth1 netns nb-netns-ssh-uut" in cables[0]
    assert server_changes(load_shipped("netns")) == []
    assert namespaces_of(load_shipped("netns")) == {}


def test_a_host_needs_what_its_part_takes():
    needs = {host: {tool.name for tool in needed_there(SEVEN, host)} for host in ("source1", "sink1", "uut")}
    everywhere = {"python3", "ip", "ethtool", "taskset", "setpriv"}
    assert needs["source1"] == everywhere | {"python3-numpy"}
    assert needs["sink1"] == everywhere | {"python3-numpy", "tcpdump"}
    assert needs["uut"] >= everywhere
    assert "tcpdump" not in needs["uut"]
    assert all(not tool.optional for tool in needed_there(SEVEN, "uut"))


def with_uuts(*uuts, **more):
    """The seven servers with other UUTs."""
    output = SEVEN.model_dump(mode="json", exclude_none=True)
    return Topology.model_validate({**output, "uuts": list(uuts), **more})


def test_a_host_needs_what_its_uuts_and_their_neighbours_do():
    box = {"name": "box", "kind": "container", "root": "image"}
    beside = [{"name": "other", "kind": "ovs", "streams": ["s3"]}]
    topology = with_uuts(box, neighbours=beside)
    needs = {tool.name for tool in needed_there(topology, "uut")}
    assert needs >= {"lxc-start", "nsenter", "cpio", "ovs-vswitchd", "ovs-vsctl"}
    assert not needs & {"podman", "vzctl"}
    assert "lxc-start" not in {tool.name for tool in needed_there(topology, "sink1")}
    assert needs_of(topology) >= needs - {"python3", "ethtool", "taskset", "ip"}, "this machine plays the server"
    real = topology.model_dump(mode="json", exclude_none=True)
    del real["hosts"]["uut"]["server"]
    here = needs_of(Topology.model_validate(real))
    assert ("lxc-start" in here, "image:micro" in here) == (False, True)


def looked(topology, host="uut", **output):
    """Return the checks of a host from the answers of this machine, with some replaced."""
    wanted, beyond = needed_there(topology, host), facilities_there(topology, host)
    signs = [*(tool.name for tool in wanted), *(sign for facility in beyond for sign in facility.signs)]
    lines = "".join(f"echo '{name}={value}'\n" for name, value in output.items())
    process = LocalHost("here", "no-run").spawn(["sh", "-c", _SCRIPT + lines, "netbench", *signs])
    process.wait(20)
    return _checks_of(host, SshSpec("192.0.2.1"), wanted, beyond, process)


def test_what_a_host_lacks_is_installed_without_questions_where_somebody_knows_how():
    topology = with_uuts({"name": "x", "kind": "raw", "forward": "bridge"})
    lacking = {"numpy": "1.24", "sign:ip": "", "sign:taskset": "", "sign:setpriv": ""}
    found = looked(topology, system="ubuntu debian", **lacking)
    assert found.install == "DEBIAN_FRONTEND=noninteractive apt-get install -y iproute2 util-linux"
    assert found.by_hand == ()
    missing = {check.name: check.remedy for check in found.checks if check.status is Status.MISSING}
    assert missing["uut: ip"] == "on uut: apt-get install iproute2"
    other = looked(topology, system="fedora", **lacking)
    assert (other.install, [check.name for check in other.by_hand]) == ("", list(missing))


def test_the_setpriv_of_busybox_is_none(tmp_path):
    for options, program in (("-d --nnp", ""), ("--pdeathsig keep|clear|<signame>", f"{tmp_path}/setpriv")):
        (tmp_path / "setpriv").write_text(f"#!/bin/sh\necho '{options}' >&2\n")
        (tmp_path / "setpriv").chmod(0o755)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        reported = subprocess.run(
            ["sh", "-c", _SCRIPT, "netbench", "setpriv"], capture_output=True, text=True, env=path, check=True
        )
        assert f"sign:setpriv={program}\n" in reported.stdout


def test_numpy_is_for_the_python_that_is_found_there():
    own = "/root/.pyenv/shims/python3"
    lacking = {"python": "3 11 7", "numpy": "", "sign:setpriv": ""}
    apt = "DEBIAN_FRONTEND=noninteractive apt-get install -y"
    for interpreter, install, remedy in (
        ("/usr/bin/python3", f"{apt} util-linux python3-numpy", "apt-get install python3-numpy"),
        (own, f"{apt} util-linux && {own} -m pip install numpy", f"{own} -m pip install numpy"),
    ):
        found = looked(SEVEN, "source1", system="debian", interpreter=interpreter, **lacking)
        assert (found.install, found.by_hand) == (install, ())
        assert [check.remedy for check in found.missing][-1] == f"on source1: {remedy}"
    unknown = looked(SEVEN, "source1", system="own", interpreter=own, **lacking)
    assert (unknown.install, len(unknown.by_hand)) == ("", 2)


def test_what_no_package_adds_is_reported_by_what_shows_it():
    topology = with_uuts({"name": "vz", "kind": "openvz"})
    found = looked(topology, **{"sign:vzctl": "", "sign:/proc/vz": ""})
    (check,) = found.by_hand
    assert (check.name, check.found) == ("uut: vzctl", "no vzctl, no /proc/vz")
    assert check.remedy.startswith("on uut: install OpenVZ or Virtuozzo")
    assert "vzctl" not in found.install
    there = looked(topology, **{"sign:vzctl": "/usr/sbin/vzctl", "sign:/proc/vz": "/proc/vz"})
    assert there.by_hand == ()


def test_what_packages_add_though_it_is_no_command_is_installed_with_the_rest():
    topology = with_uuts({"name": "domain", "kind": "libvirt", "vhost": "on"})
    driver = driver_sign("qemu")
    lacking = {"numpy": "1.24", f"sign:{driver}": "", "sign:/dev/vhost-net": ""}
    there = {f"sign:{tool.name}": "/bin/it" for tool in needed_there(topology, "uut")} | {
        "sign:libvirtd": "/sbin/libvirtd"
    }
    found = looked(topology, system="debian", **there | lacking)
    assert (
        found.install == "DEBIAN_FRONTEND=noninteractive apt-get install -y libvirt-daemon libvirt-daemon-driver-qemu"
    )
    missing = {check.name: (check.found, check.remedy) for check in found.checks if check.status is Status.MISSING}
    assert missing["uut: libvirtd"] == (
        "no /usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so",
        "on uut: apt-get install libvirt-daemon libvirt-daemon-driver-qemu",
    )
    assert [(check.name, check.remedy) for check in found.by_hand] == [("uut: vhost", "on uut: modprobe vhost_net")]
    has_it = looked(topology, system="debian", **there | lacking | {f"sign:{driver}": "/usr/lib64/libvirt/it.so"})
    assert has_it.install == ""


def test_a_sign_may_be_several_patterns_of_which_one_is_enough(tmp_path):
    """The script prints the file that matches, or nothing where none does."""
    (tmp_path / "x86" / "deep").mkdir(parents=True)
    (tmp_path / "x86" / "deep" / "it.so").touch()
    signs = [f"{tmp_path}/*/it.so {tmp_path}/*/*/it.so", f"{tmp_path}/*/none.so"]
    reported = LocalHost("here", "no-run").run(["sh", "-c", _SCRIPT, "netbench", *signs]).stdout.splitlines()
    assert reported[-2:] == [f"sign:{signs[0]}={tmp_path}/x86/deep/it.so", f"sign:{signs[1]}="]


class Answering(LocalHost):
    """This machine, where ssh is a shell that runs the script of the host it is to reach."""

    def __init__(self, scripts):
        super().__init__("local", "RUN")
        self.scripts = scripts
        self.processes = []

    def spawn(self, argv):
        self.processes.append(super().spawn(["sh", "-c", self.scripts[argv[argv.index("--") + 1]]]))
        return self.processes[-1]


def end_told(script):
    """Return how a connection ended whose other end was this script instead of an agent."""
    connecting = Connecting(
        "uut", SshSpec("h"), Answering({"h": script}), "/no/such", "netbench.linux.watchdog.program", []
    )
    with pytest.raises(GoneError):
        connecting.host()
    wait_until(lambda: bool(connecting.death()), 10)
    try:
        return connecting.death()
    finally:
        connecting.end()


def test_why_a_connection_ended_is_reported_anyone_who_sees_its_end_first():
    script = """printf '{"run": "far-1"}\\n'; head -c 20 >/dev/null; echo 'Connection reset by peer' >&2; exit 255"""
    output = {end_told(script) for _ in range(10)}
    assert output == {"host uut: its SSH connection ended: Connection reset by peer"}


def test_hosts_that_hang_are_waited_for_together_and_reported_from_those_that_answer(tmp_path, monkeypatch):
    waited, here = [], Answering({})

    def wait_less(condition, limit_s):
        """Wait for the two hosts that answer only."""
        waited.append(limit_s)
        assert wait_until(lambda: sum(process.poll() is not None for process in here.processes) == 2, 20)
        return condition()

    monkeypatch.setattr(ssh_checks, "wait_until", wait_less)
    hosts = SEVEN.model_dump(mode="json", exclude_none=True)
    for host in hosts["hosts"].values():
        del host["server"]
    hosts["hosts"]["sink3"]["password"] = {"env": "NO_SUCH"}
    topology = Topology.model_validate(hosts)
    addresses = [spec.address for spec in topology.ssh_hosts.values()]
    here.scripts = scripts = dict.fromkeys(addresses, "sleep 60")
    scripts[addresses[1]] = "echo 'system=plan9'; echo 'python=3 13 1'; echo 'sign:ip=/sbin/ip'"
    scripts[addresses[2]] = "echo 'Host key verification failed.' >&2; exit 255"
    hung, answered, refused, *others, without_password, _ = checks_of_hosts(topology, here, Passwords(tmp_path))
    assert waited == [30.0], "once for all"
    assert {looked_at.checks[0].found for looked_at in (hung, *others)} == {"no answer within 30 s"}
    assert without_password.checks[0].found.endswith("there is no variable NO_SUCH in the environment")
    assert "the host key is unknown" in refused.checks[0].found
    assert (hung.is_reached, answered.is_reached, refused.is_reached) == (False, True, False)
    by_hand = {check.name.removeprefix(f"{answered.name}: ") for check in answered.by_hand}
    assert {"ethtool", "taskset"} <= by_hand
    assert not {"ip", "python3"} & by_hand
    assert answered.install == "", "that system's package manager is unknown"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("10.25.45.1", "in one network of /24"),
        ("fd00::1", "needs an IPv4 address"),
        ("sink1.example", "needs an IPv4 address"),
    ],
)
def test_servers_that_cannot_be_played_together_are_refused(address, why):
    hosts = SEVEN.model_dump(mode="json", exclude_none=True)
    hosts["hosts"]["sink1"]["address"] = address
    with pytest.raises(UsageError, match=why):
        played(Topology.model_validate(hosts))


def test_a_machine_is_one_host():
    two = SEVEN.model_dump(mode="json", exclude_none=True)
    two["hosts"]["sink1"] |= {"server": "ssh", "address": "lab"}
    two["hosts"]["source1"] |= {"server": "ssh", "address": "lab", "ssh_port": 2222}
    Topology.model_validate(two)  # as behind one router
    two["hosts"]["source1"]["ssh_port"] = None
    with pytest.raises(ValidationError, match="hosts source1, sink1: lab is one machine; define one host"):
        Topology.model_validate(two)


def test_a_password_of_any_bytes_is_reported_by_a_program_of_its_own(tmp_path):
    (tmp_path / "secret").write_bytes(b"p\xe4ss $HOME\n")
    spec = SshSpec("h", password=Password(file=str(tmp_path / "secret")))
    (tmp_path / "passwords").mkdir()
    program = Passwords(tmp_path / "passwords").askpass("uut", spec)
    assert program is not None
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"p\xe4ss $HOME\n"
    with pytest.raises(MissingError, match="cannot be written"):
        Passwords(tmp_path / "gone").askpass("uut", spec)
