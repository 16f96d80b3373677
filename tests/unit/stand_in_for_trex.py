"""A stand-in for a TRex server: the JSON-RPC over ZMQ that a client needs to send streams and count them.

It sends nothing. It keeps the time that its streams would take, and counts the frames that they would have sent and
those that would have arrived at the port at the other end. It answers and refuses as trex-core v3.08 does:
src/stx/common/trex_port.cpp and trex_owner.cpp (who owns a port), src/stx/stl/trex_stl_rpc_cmds.cpp and
trex_stl_port.cpp (streams, start, stop), trex_stl_fs.cpp (CFlowStatRuleMgr: groups, from 0 once they are added anew,
and no more counted once their filters are removed), src/time_histogram.cpp (delay) and src/main_dpdk.cpp (counters of
ports).

Run as `python -m tests.unit.stand_in_for_trex`, it prints its address in JSON and, when its stdin ends, the frames sent
and the owner of each port.
"""

import json
import struct
import sys
import threading
import time
import zlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import zmq

_ZIPPED = 0xABE85CEA  # magic of compressed messages, before their length
_NAME = "stand-in"
_FREE = "<FREE>"  # TrexOwner::g_unowned_name


class Refusal(Exception):
    """An error that the server answers instead of a result."""


@dataclass
class Port:
    """One port: its owner, its streams, their start time, and the frames sent by stream."""

    owner: str = ""
    handler: str = ""
    session: int = 0
    streams: dict[int, dict[str, Any]] = field(default_factory=dict)
    started: float | None = None
    stopped: float | None = None
    sent_by: dict[int, int] = field(default_factory=dict)
    limit_s: float = 0.0
    starts: int = 0
    missed: int = 0  # ierrors
    counts: bool = False  # whether its groups are counted where they arrive
    arrived: dict[int, int] = field(default_factory=dict)  # by group, once they are no longer counted

    @property
    def sent(self) -> int:
        return sum(self.sent_by.values())


class StandInForTrex:
    """It listens on ports of 127.0.0.1 that the kernel chooses, in a thread, while it is entered as a context.

    With `slow`, it is overloaded: its own time passes slower by that factor, and it still sends as many frames.
    `wires` maps each port to the port at its other end. A wire loses `dropped` (k of each n frames) and delays the rest
    by `transit_s`. `twice` makes all of them arrive two times.
    """

    def __init__(self, ports: int = 2, *, slow: float = 1.0, version: str = "v3.08") -> None:
        self.ports = [Port() for _ in range(ports)]
        self.methods: list[str] = []
        self.slow = slow
        self.line_fps = 100_000.0  # of continuous streams
        self.most_frames: int | None = None  # after which a port stops by itself, as when its link went down
        self.wires = {0: 1, 1: 0}
        self.dropped = (0, 1)
        self.transit_s = 0.0
        self.twice = False
        self._version = version
        self._versions: dict[int, int] = {}  # of the existing groups
        self._ends = threading.Event()

    def __enter__(self) -> "StandInForTrex":
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._requests = self._context.socket(zmq.REP)
        self.sync_port = self._requests.bind_to_random_port("tcp://127.0.0.1")
        self._publisher = self._context.socket(zmq.PUB)
        self.async_port = self._publisher.bind_to_random_port("tcp://127.0.0.1")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._context.destroy(linger=0)

    @property
    def options(self) -> dict[str, object]:
        """Its address as options of the generator."""
        return {"server": "127.0.0.1", "sync_port": self.sync_port, "async_port": self.async_port}

    def _serve(self) -> None:
        while not self._ends.is_set():
            self._publisher.send(b"{}")  # there is news, which the client then requests
            if self._requests.poll(20):
                self._requests.send(self._answer(self._requests.recv()))

    def _answer(self, message: bytes) -> bytes:
        is_zipped = len(message) > 8 and struct.unpack(">I", message[:4])[0] == _ZIPPED
        request = json.loads(zlib.decompress(message[8:]) if is_zipped else message)
        several = isinstance(request, list)
        answers = [self._result(call) for call in (request if several else [request])]
        return json.dumps(answers if several else answers[0]).encode()

    def _result(self, request: dict[str, Any]) -> dict[str, Any]:
        self.methods.append(request["method"])
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            method = getattr(self, f"_do_{request['method']}", None)
            if method is None:
                raise Refusal(f"unknown method {request['method']}")
            return {**answer, "result": method(request["params"])}
        except Refusal as refusal:
            return {**answer, "error": {"code": -32000, "message": "", "specific_err": str(refusal)}}

    def _do_api_sync_v2(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"api_h": _NAME}

    def _do_publish_now(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _do_get_async_events(self, params: dict[str, Any]) -> dict[str, Any]:
        barrier = {"name": "trex-barrier", "type": 0, "data": {}, "seq": 0}
        return {"data": [barrier]}

    def _do_get_version(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"version": self._version, "mode": "STL"}

    def _do_get_system_info(self, params: dict[str, Any]) -> dict[str, Any]:
        ports = [{"index": index, "is_virtual": True, "supp_speeds": [], "rx": {}} for index in range(len(self.ports))]
        return {"ports": ports, "port_count": len(ports)}

    def _do_get_supported_cmds(self, params: dict[str, Any]) -> list[str]:
        return ["get_profile_list"]

    def _do_get_port_xstats_names(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"xstats_names": []}

    def _do_get_port_status(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._port(params)
        self._pass(port)
        state = "TX" if port.started is not None else "STREAMS" if port.streams else "IDLE"
        return {
            "owner": port.owner or _FREE,
            "state": state,
            "state_profile": {"_": state},
            "max_stream_id": max(port.streams, default=0),
            "service": False,
            "service_filtered": False,
            "attr": {
                "link": {"up": True},
                "speed": 10,
                "layer_cfg": {"ether": {"state": "configured"}, "ipv4": {"state": "none"}},
            },
        }

    def _do_get_port_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._port(params)
        rates = ("m_total_tx_bps", "m_total_tx_pps", "m_total_rx_bps", "m_total_rx_pps")
        return {**dict.fromkeys(rates, 0.0), "opackets": port.sent, "ipackets": 0, "ierrors": port.missed, "oerrors": 0}

    def _do_get_global_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"m_tx_bps": 0.0, "m_tx_pps": 0.0}

    def _do_get_utilization(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"cpu": [], "mbuf_stats": {}}

    def _do_get_active_pgids(self, params: dict[str, Any]) -> dict[str, Any]:
        kinds: dict[str, set[int]] = {"stats": set(), "latency": set()}
        for port in self.ports:
            for stream in port.streams.values():
                kinds[stream["flow_stats"]["rule_type"]].add(stream["flow_stats"]["stream_id"])
        return {"ids": {"flow_stats": sorted(kinds["stats"]), "latency": sorted(kinds["latency"])}}

    def _do_get_pgid_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        for port in self.ports:
            self._pass(port)
        known = [group for group in params["pgids"] if group in self._versions]
        counts, delays = {}, {}
        for group in known:
            zeros = {str(number): 0 for number in range(len(self.ports))}
            sent, arrived = dict(zeros), dict(zeros)
            for number, port in enumerate(self.ports):
                frames = sum(port.sent_by.get(name, 0) for name in _of_group(port, group))
                sent[str(number)] = frames
                arrived[str(self.wires[number])] += self._arrived(port, group)
            counts[str(group)] = {"tp": sent, "rp": arrived, **dict.fromkeys(("tb", "rb", "tps", "tbs"), zeros)}
            counts[str(group)] |= dict.fromkeys(("rps", "rbs"), zeros)
            if any(_measures(port, group) for port in self.ports):
                delays[str(group)] = {"lat": _delay(sum(arrived.values()))}
        return {
            "flow_stats": counts,
            "latency": {**delays, "g": {}},
            "ver_id": {str(group): self._versions[group] for group in known},
        }

    def _do_get_tpg_status(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"enabled": False}

    def _do_acquire(self, params: dict[str, Any]) -> str:
        port = self._port(params)
        if port.owner and not params["force"]:
            if port.owner != params["user"]:
                raise Refusal(f"port is already taken by '{port.owner}'")
            if port.session != params["session_id"]:
                raise Refusal(f"port is already owned by another session of '{port.owner}'")
        port.owner, port.session = params["user"], params["session_id"]
        port.handler = f"{params['user']}-{params['session_id']}"
        return port.handler

    def _do_release(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        port.owner = port.handler = ""
        return {}

    def _do_get_all_streams(self, params: dict[str, Any]) -> dict[str, Any]:
        streams = {str(name): stream for name, stream in self._port(params).streams.items()}
        return {"profiles": {"_": streams}}

    def _do_add_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        self._pass(port)
        if port.started is not None:
            raise Refusal("Port 0 is active")
        port.streams[params["stream_id"]] = stream = params["stream"]
        group = stream["flow_stats"]["stream_id"]
        self._versions.setdefault(group, len(self.methods))
        return {}

    def _do_remove_all_streams(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        self._pass(port)
        if port.started is not None:
            raise Refusal("Port 0 is active")
        for stream in port.streams.values():
            self._versions.pop(stream["flow_stats"]["stream_id"], None)
        port.streams.clear()
        port.sent_by.clear()
        port.arrived.clear()
        return {}

    def _do_start_traffic(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        if not port.streams:
            raise Refusal("start_traffic: no streams")
        port.started, port.stopped, port.limit_s = time.monotonic(), None, params["duration"]
        port.counts = True
        port.arrived.clear()
        port.sent_by.clear()
        port.starts += 1
        return {"multiplier": 1.0, "ts": time.time()}

    def _do_stop_traffic(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        if not port.streams:
            raise Refusal("Profile id _ does not exist")
        self._pass(port)
        if port.started is not None:
            port.started, port.stopped = None, time.monotonic()
        return {}

    def _do_remove_rx_filters(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        port.arrived = {group: self._arrived(port, group) for group in self._versions}
        port.counts = False
        return {}

    def _port(self, params: dict[str, Any]) -> Port:
        return self.ports[int(params["port_id"])]

    def _owned(self, params: dict[str, Any]) -> Port:
        port = self._port(params)
        if params["handler"] != port.handler or not port.handler:
            raise Refusal("port is not owned by you")
        return port

    def _arrived(self, port: Port, group: int) -> int:
        """The counted frames of a group that arrived at the other end of a port's wire."""
        if not port.counts:
            return port.arrived.get(group, 0)
        if port.stopped is not None and time.monotonic() < port.stopped + self.transit_s:
            return 0
        sent = sum(port.sent_by.get(name, 0) for name in _of_group(port, group))
        k, n = self.dropped
        lost = sent // n * k + min(sent % n, k)
        return (sent - lost) * (2 if self.twice else 1)

    def _pass(self, port: Port) -> None:
        """Bring a port up to the present time."""
        if port.started is None:
            return
        own_s = min((time.monotonic() - port.started) / self.slow, port.limit_s)
        port.sent_by = {name: self._sent_by(stream, own_s) for name, stream in port.streams.items()}
        if own_s >= min(max(self._due_s(stream) for stream in port.streams.values()), port.limit_s):
            port.started, port.stopped = None, time.monotonic()
        if self.most_frames is not None and port.sent >= self.most_frames:
            port.started, port.stopped = None, time.monotonic()
            port.sent_by = {min(port.streams): self.most_frames}

    def _sent_by(self, stream: dict[str, Any], own_s: float) -> int:
        begins_s = stream["isg"] / 1e6
        if own_s < begins_s:
            return 0
        frames = int((own_s - begins_s) * self._fps(stream["mode"]) + 1e-6) + 1
        return int(min(frames, stream["mode"].get("total_pkts", frames)))

    def _due_s(self, stream: dict[str, Any]) -> float:
        """When its last frame is sent, in the server's own time, without the rest of that frame's slot."""
        mode = stream["mode"]
        if mode["type"] == "continuous":
            return float("inf")
        return float(stream["isg"] / 1e6 + (mode["total_pkts"] - 1) / self._fps(mode))

    def _fps(self, mode: dict[str, Any]) -> float:
        rate = mode["rate"]
        return float(rate["value"] if rate["type"] == "pps" else rate["value"] / 100 * self.line_fps)


def _of_group(port: Port, group: int) -> list[int]:
    return [name for name, stream in port.streams.items() if stream["flow_stats"]["stream_id"] == group]


def _measures(port: Port, group: int) -> bool:
    return any(port.streams[name]["flow_stats"]["rule_type"] == "latency" for name in _of_group(port, group))


def _delay(frames: int) -> dict[str, Any]:
    """The delays of so many frames: half of them at once, one after 1.2 ms, the others after 25 µs."""
    at_once = frames // 2
    classes = {"0": at_once, "20": frames - at_once - 1, "1000": 1} if frames else {}
    times = {"average": 14, "total_min": 3, "total_max": 1200, "last_max": 30, "jit": 2}
    return {**times, "histogram": {name: count for name, count in classes.items() if count > 0}}


if __name__ == "__main__":
    with StandInForTrex() as server:
        print(json.dumps(server.options), flush=True)
        sys.stdin.read()
        print(json.dumps([[port.sent, port.owner] for port in server.ports]))
