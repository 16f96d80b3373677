"""The generator trex, with the packaged client in its own process and a stand-in for the server."""

import json
import os
import signal
import struct
import sys
import time
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, UsageError
from netbench.generators.frames import FrameBlock
from netbench.generators.trex.trex import Trex, TrexSource
from netbench.generators.trex.trex_package import BEGINS_LATER_S, no_client, own_name
from netbench.generators.trex.trex_servers import TrexOptions
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost
from netbench.model.frame_size import FrameSize
from netbench.model.packet import Packet
from netbench.model.packet_description import parse_packet
from netbench.model.traffic import Sent, Stamps, Traffic
from netbench.packets.build import build_template
from tests.unit.inputs import flow_ports, stream_traffic
from tests.unit.stand_in_for_trex import StandInForTrex

pytestmark = pytest.mark.skipif(bool(no_client()), reason=no_client())

TRAFFIC = stream_traffic(duration_s=0.5, seed=0)


@pytest.fixture
def server():
    with StandInForTrex() as running:
        yield running


@pytest.fixture
def open_source():
    """Open sources, and close them afterwards."""
    sources = []

    def open_one(server: StandInForTrex, port: int = 0) -> TrexSource:
        source = source_of({**server.options, "ports": {"tx1": port}})
        sources.append(source)
        source.open(LocalHost("local", "test"), "tx1", ())
        return source

    yield open_one
    for source in sources:
        source.close()


def source_of(options: dict[str, object]) -> TrexSource:
    """A source alone, with a sink of another kind."""
    return Trex(TrexOptions.model_validate(options)).source()


def send(source: TrexSource, traffic: Traffic) -> Sent:
    source.prepare(traffic)
    source.start(time.monotonic_ns())
    return source.wait(10.0)


def test_it_takes_its_port_sends_and_gives_it_back(server, open_source):
    source = open_source(server, port=1)
    assert server.ports[0].owner == ""
    assert server.ports[1].owner.startswith("netbench@")
    for _ in range(2):
        sent = send(source, TRAFFIC)
        assert (sent.frames, sent.error, sent.stamped, sent.numbered) == (500, "", False, True)
        assert sent.first_ns is not None
        assert sent.last_ns is not None
    assert str(source.identity()).startswith("trex (TRex v3.08, lbr-trex-client 3.4.0; server=127.0.0.1 ")
    assert source.stamps(TRAFFIC) == Stamps(stamped=False, first_sequence=0)
    source.close()
    assert [(port.owner, port.streams, port.started) for port in server.ports] == [("", {}, None)] * 2
    assert server.ports[0].starts == 0
    # Nothing takes a port from its owner or switches its promiscuous mode off, as the client's reset() would.
    assert "set_port_attr" not in server.methods


def test_a_stream_is_the_frame_of_all_sources_numbered_by_the_field_engine(server, open_source):
    source = open_source(server)
    traffic = replace(TRAFFIC, flows=3, seed=7, frame_size=FrameSize.of(100))
    source.prepare(traffic)
    (stream,) = server.ports[0].streams.values()
    assert b64decode(stream["packet"]["binary"]) == build_template(traffic).frames[100]
    assert stream["mode"] == {
        "type": "single_burst",
        "total_pkts": 500,
        "rate": {"type": "pps", "value": 1000.0},
    }
    variables, writes = instructions(stream)
    assert (variables["number"]["init_value"], variables["number"]["max_value"]) == (0, 2**32 - 1)
    assert writes == [("number", 46, 0), ("at 34", 34, 0)]
    pairs = [struct.unpack("!HH", struct.pack("!I", word)) for word in variables["at 34"]["value_list"]]
    assert pairs == [tuple(pair) for pair in flow_ports(3, 7)]


def described(text: str, **vary: object) -> Packet:
    packet = parse_packet({"headers": text, **({"vary": vary} if vary else {})})
    assert packet is not None
    return packet


def test_the_field_engine_writes_the_bytes_and_checksums_of_each_flow(server, open_source):
    """Its lists in turn make the frames that every other source makes: as of FrameBlock."""
    ports = {"IP.src": {"from": "198.18.1.1", "count": 6}, "Dot1Q.vlan": {"list": [5, 6, 7]}}
    packet = described("Ether()/Dot1Q()/IP()/UDP()", **ports)
    traffic = replace(TRAFFIC, packet=packet, frame_size=FrameSize.of(100))
    open_source(server).prepare(traffic)
    (stream,) = server.ports[0].streams.values()
    variables, writes = instructions(stream)
    block = FrameBlock(traffic, 12, build_template(traffic))
    block.stamp(0, 12, 0)
    for number in range(12):
        frame = bytearray(b64decode(stream["packet"]["binary"]))
        for name, at, _ in writes:
            variable = variables[name]
            value = number if name == "number" else variable["value_list"][number % len(variable["value_list"])]
            frame[at : at + variable["size"]] = value.to_bytes(variable["size"], "big")
        assert frame.hex() == bytes(block.buffer[number]).hex()


@pytest.mark.parametrize(
    ("text", "vary", "reason"),
    [
        ("Ether()/IP()/UDP()", {}, ""),
        ("Ether()/IPv6()/UDP()", {}, "UDP.chksum: it covers the frame's number"),
        ("Ether()/IP()/UDP()/VXLAN()/Ether()/IPv6()/UDP()", {}, "UDP:2.chksum: it covers"),
        ("Ether()/IP()/TCP()", {}, "TCP.chksum: it covers"),
        ("Ether()/IP()/UDP(chksum=None)", {}, "UDP.chksum: it covers"),
        ("Ether()/IP()/UDP()", {"IP.src": {"from": "10.0.0.1", "count": 65_536}}, "IP.src: 65,536 flows; the field"),
    ],
)
def test_packets_that_it_cannot_send_are_named_by_their_field(text, vary, reason):
    found = Trex(TrexOptions(path="/opt/trex")).unsupported_part(described(text, **vary))
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_each_place_in_the_genome_of_a_mix_is_a_stream_that_begins_when_its_first_frame_is_due(server, open_source):
    source = open_source(server)
    source.prepare(replace(TRAFFIC, frame_size=FrameSize("mine", (64, 64, 594)), flows=3, seed=7))
    streams = list(server.ports[0].streams.values())
    assert [len(b64decode(stream["packet"]["binary"])) for stream in streams] == [60, 60, 590]
    later_us = BEGINS_LATER_S * 1e6
    assert [stream["isg"] for stream in streams] == pytest.approx([later_us, later_us + 1000, later_us + 2000])
    assert [stream["mode"]["total_pkts"] for stream in streams] == [167, 167, 166]
    assert {stream["mode"]["rate"]["value"] for stream in streams} == {1000.0 / 3}
    assert [stream["flow_stats"]["stream_id"] for stream in streams] == [2049, 2049, 2050]
    numbers = [instructions(stream)[0]["number"] for stream in streams]
    assert [(number["init_value"], number["step"]) for number in numbers] == [(0, 3), (1, 3), (2, 3)]
    assert {number["max_value"] for number in numbers} == {2**32 - 2}  # the last number before 0 comes round again
    # Three flows and three places: each place has always the same flow.
    words = [instructions(stream)[0]["at 34"]["value_list"] for stream in streams]
    assert words == [[int(source) << 16 | int(target)] for source, target in flow_ports(3, 7)]


def test_two_rates_are_two_streams_of_which_the_second_counts_on(server, open_source):
    source = open_source(server)
    source.prepare(
        replace(
            TRAFFIC, fps=1000.0, duration_s=1.0, first_fps=500.0, first_s=0.5, frame_size=FrameSize("m", (64, 128, 256))
        )
    )
    streams = list(server.ports[0].streams.values())
    assert [stream["mode"]["total_pkts"] for stream in streams] == [84, 83, 83, 250, 250, 250]
    assert [stream["mode"]["rate"]["value"] for stream in streams] == pytest.approx([500 / 3] * 3 + [500] * 3)
    second_us = BEGINS_LATER_S * 1e6 + 500_000
    assert [stream["isg"] for stream in streams[3:]] == pytest.approx(
        [second_us, second_us + 2000 / 3, second_us + 4000 / 3]
    )
    assert [instructions(stream)[0]["number"]["init_value"] for stream in streams] == [0, 1, 2, 250, 251, 252]
    # 250 is 1 modulo 3.
    assert [len(b64decode(stream["packet"]["binary"])) for stream in streams] == [60, 124, 252, 124, 252, 60]


def sending(server: StandInForTrex, source: TrexSource, duration_s: float = 30.0):
    """Start a trial of so many seconds, and return the worker once it sends."""
    source.prepare(replace(TRAFFIC, duration_s=duration_s))
    source.start(time.monotonic_ns())
    wait_until(lambda: server.ports[0].started is not None, 5.0)
    return worker_of(source)


def worker_of(source: TrexSource):
    """The process that all sources and sinks of its server share."""
    server = source._server
    assert server is not None
    assert server._worker is not None
    return server._worker._process


def instructions(stream):
    """Return the variables of a field-engine program by name, and each write: variable, offset and added value."""
    program = stream["vm"]["instructions"]
    variables = {instruction["name"]: instruction for instruction in program if instruction["type"] == "flow_var"}
    writes = [
        (instruction["name"], instruction["pkt_offset"], instruction["add_value"])
        for instruction in program
        if instruction["type"] == "write_flow_var"
    ]
    return variables, writes


def test_an_overloaded_server_is_stopped_and_its_offered_load_is_reported(server, open_source):
    server.slow = 10.0
    sent = send(open_source(server), TRAFFIC)
    assert TRAFFIC.longest_s <= sent.duration_s < 3 * TRAFFIC.longest_s
    assert 0 < sent.frames < 250
    assert sent.frames / sent.duration_s < 200
    assert sent.max_lateness_s == pytest.approx(sent.duration_s - 0.5)
    assert server.ports[0].started is None


def test_as_fast_as_it_can_ends_after_the_duration(server, open_source):
    sent = send(open_source(server), replace(TRAFFIC, fps=None))
    (stream,) = server.ports[0].streams.values()
    assert stream["mode"] == {"type": "continuous", "rate": {"type": "percentage", "value": pytest.approx(100)}}
    assert stream["mode"]["rate"]["value"] < 100
    assert 0.5 <= sent.duration_s < 1.5
    assert 49_999 <= sent.frames < 150_000
    assert server.ports[0].started is None


@pytest.mark.parametrize("fps", [5.0, 20.0])
def test_the_slot_of_the_last_frame_is_part_of_a_trial_though_the_server_ends_before_that(server, open_source, fps):
    sent = send(open_source(server), replace(TRAFFIC, fps=fps, duration_s=0.8))
    assert (sent.frames, sent.duration_s, sent.error) == (0.8 * fps, 0.8, "")
    assert sent.first_ns is not None
    assert sent.last_ns is not None
    assert sent.last_ns - sent.first_ns == pytest.approx((0.8 - 1 / fps) * 1e9)


def test_a_server_that_ends_too_early_is_an_error(server, open_source, monkeypatch):
    monkeypatch.setattr(server, "most_frames", 100)
    sent = send(open_source(server), TRAFFIC)
    assert sent.frames == 100
    assert "after 100 of 500 frames" in sent.error


def test_a_port_of_other_software_is_left_alone(server, open_source):
    server.ports[0].owner = "bob"
    with pytest.raises(MissingError, match=r"port 0 of the TRex server .* already taken by 'bob'.*release -p 0"):
        open_source(server)
    assert server.ports[0].owner == "bob"
    assert "remove_all_streams" not in server.methods


def test_no_server_no_such_port(server, open_source):
    with pytest.raises(MissingError, match=r"port 7 of the TRex server .* does not exist: the server has 0, 1"):
        open_source(server, port=7)
    gone = source_of({"sync_port": 1, "async_port": 2, "ports": {"tx1": 0}})
    with pytest.raises(MissingError, match=r"no TRex server of this API responds at 127.0.0.1:1 .*t-rex-64 -i"):
        gone.open(LocalHost("local", "test"), "tx1", ())


@pytest.mark.parametrize("stop", [signal.SIGTERM, None], ids=["SIGTERM", "the end of stdin"])
def test_a_worker_that_ends_leaves_nothing_sending(server, open_source, stop):
    process = sending(server, open_source(server))
    if stop is None:
        process.stdin.close()
    else:
        os.kill(process.pid, stop)
    process.wait(10.0)
    assert (server.ports[0].owner, server.ports[0].started, server.ports[0].streams) == ("", None, {})


def test_what_a_killed_worker_left_sending_is_stopped_at_the_next_start(server, open_source):
    source = open_source(server)
    sending(server, source).kill()
    assert "signal 9" in source.wait(10.0).error
    left_by = server.ports[0].owner
    assert server.ports[0].started is not None
    open_source(server)
    assert server.ports[0].owner not in ("", left_by)
    assert (server.ports[0].started, server.ports[0].streams) == (None, {})


def test_a_port_of_a_netbench_that_may_be_at_work_is_left_alone(server, open_source):
    open_source(server)
    with pytest.raises(MissingError, match=r"has another owner: .*already taken by 'netbench@"):
        open_source(server)
    server.ports[1].owner = own_name().replace("netbench@", "netbench@far-away-").replace("/", "/0")
    with pytest.raises(MissingError, match=r"already taken by 'netbench@far-away-"):
        open_source(server, port=1)


def test_ctrl_c_is_not_for_its_worker(server, open_source):
    source = open_source(server)
    os.kill(sending(server, source, TRAFFIC.duration_s).pid, signal.SIGINT)
    sent = source.wait(10.0)
    assert (sent.frames, sent.error) == (500, "")


def test_a_server_that_dies_in_a_trial_is_an_error(open_source):
    with StandInForTrex() as server:
        source = open_source(server)
        source.prepare(TRAFFIC)
    source.start(time.monotonic_ns())
    assert "does not start" in source.wait(30.0).error


def test_an_interface_without_a_port():
    source = source_of({"ports": {"tx1": 0}})
    with pytest.raises(UsageError, match=r"`ports` has no interface tx2, only tx1"):
        source.commands("tx2", ())


def test_options():
    assert TrexOptions(path="/opt/trex").ports == {}
    with pytest.raises(ValidationError, match=r"neither `ports` nor `path`"):
        TrexOptions()
    with pytest.raises(ValidationError, match="netbench starts the servers: leave out"):
        TrexOptions(path="/opt/trex", ports={"tx1": 0})
    with pytest.raises(ValidationError, match="two interfaces have the same port"):
        TrexOptions(ports={"tx1": 0, "tx2": 0})
    for wrong in ('{"path": "trex"}', '{"ports": {}}', '{"ports": {"tx1": -1}}', '{"ports": {"tx1": 0}, "speed": 1}'):
        with pytest.raises(ValidationError):
            TrexOptions.model_validate_json(wrong)


def test_a_python_that_is_too_new_is_reported():
    assert "needs a Python older than 3.12, and this is 3.13" in no_client((3, 13))
    assert no_client((3, 11)) == ""
    assert Trex(TrexOptions(ports={"tx1": 0})).unsupported_reason(LocalHost("local", "test")) == ""


def test_its_worker_outlives_netbench_and_is_reported_all(server):
    (command,) = source_of({**server.options, "ports": {"tx1": 3}}).commands("tx1", (1,))
    assert command.startswith("setpriv --pdeathsig clear env ")
    assert command.endswith(" 1")
    settings = json.loads(command[command.index("{") : command.rindex("}") + 1])
    assert settings == {**server.options, "ports": {"tx1": 3}}
    assert "lbr_trex_client" not in sys.modules


def package(tmp_path, script):
    """A TRex package whose server is this shell script."""
    program = tmp_path / "_t-rex-64"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return source_of({"path": str(tmp_path)})


def test_a_path_without_a_package(tmp_path):
    source = source_of({"path": str(tmp_path)})
    with pytest.raises(
        MissingError, match=r"_t-rex-64 does not exist: set `path` to the directory of an unpacked TRex package"
    ):
        source.open(LocalHost("local", "test"), "tx1", ())


def test_a_server_that_does_not_start_reports_why_and_leaves_nothing(tmp_path):
    before = set(Path(gettempdir()).glob("netbench-trex-*"))
    source = package(tmp_path, 'cat "$3"; echo no such device; exit 3')
    with pytest.raises(MissingError, match=r"server ended with code 3: .*no such device"):
        source.open(LocalHost("local", "test"), "tx1", ())
    assert not set(Path(gettempdir()).glob("netbench-trex-*")) - before
