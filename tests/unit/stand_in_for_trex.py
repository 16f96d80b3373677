"""A stand-in for a TRex server: as much of its JSON-RPC over ZMQ as a client uses that sends streams.

It sends nothing; it keeps the time that its streams would take, and counts what they would have sent.
"""

import json
import struct
import threading
import time
import zlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import zmq

_ZIPPED = 0xABE85CEA  # magic of compressed messages, before their length
_NAME = "stand-in"


class Refusal(Exception):
    """What the server answers instead of a result."""


@dataclass
class Port:
    """One port: who owns it, what is to be sent, since when it is."""

    owner: str = ""
    handler: str = ""
    streams: dict[int, dict[str, Any]] = field(default_factory=dict)
    started: float | None = None
    sent: int = 0
    limit_s: float = 0.0
    starts: int = 0

    def due_s(self) -> float:
        """How long all of the streams take at their rates."""
        return sum(_duration_s(one["mode"]) for one in self.streams.values())

    def frames(self) -> int:
        """How many frames the streams have."""
        return sum(int(one["mode"].get("total_pkts", 0)) for one in self.streams.values())


def _duration_s(mode: dict[str, Any]) -> float:
    if mode["type"] == "continuous":
        return float("inf")
    return float(mode["total_pkts"] / mode["rate"]["value"])


class StandInForTrex:
    """It listens on ports of 127.0.0.1 that the kernel chooses, in a thread, while it is entered as a context.

    With `slow`, it is overloaded: its own time goes slower by that factor, and it sends as many frames all the same.
    """

    def __init__(self, ports: int = 2, *, slow: float = 1.0, version: str = "v3.08") -> None:
        self.ports = [Port() for _ in range(ports)]
        self.methods: list[str] = []
        self.slow = slow
        self.line_fps = 100_000.0  # of continuous streams
        self.most_frames: int | None = None  # after which a port ends by itself, as where its link went down
        self._version = version
        self._events: list[dict[str, Any]] = []
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
        """Where it is, as the options of the generator have it."""
        return {"server": "127.0.0.1", "sync_port": self.sync_port, "async_port": self.async_port}

    def _serve(self) -> None:
        while not self._ends.is_set():
            self._publisher.send(b"{}")  # something is new: the client asks what
            if self._requests.poll(20):
                self._requests.send(self._answer(self._requests.recv()))

    def _answer(self, message: bytes) -> bytes:
        is_zipped = len(message) > 8 and struct.unpack(">I", message[:4])[0] == _ZIPPED
        request = json.loads(zlib.decompress(message[8:]) if is_zipped else message)
        several = isinstance(request, list)
        answers = [self._result(one) for one in (request if several else [request])]
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
            "owner": port.owner,
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
        rates = ("m_total_tx_bps", "m_total_tx_pps", "m_total_rx_bps", "m_total_rx_pps")
        return {**dict.fromkeys(rates, 0.0), "opackets": self._port(params).sent, "ipackets": 0}

    def _do_get_global_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"m_tx_bps": 0.0, "m_tx_pps": 0.0}

    def _do_get_utilization(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"cpu": [], "mbuf_stats": {}}

    def _do_get_active_pgids(self, params: dict[str, Any]) -> dict[str, Any]:
        groups = {one["flow_stats"]["stream_id"] for port in self.ports for one in port.streams.values()}
        return {"ids": {"flow_stats": sorted(groups), "latency": []}}

    def _do_get_pgid_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        counts = {}
        for group in params["pgids"]:
            tx = {}
            for index, port in enumerate(self.ports):
                self._pass(port)
                if any(one["flow_stats"]["stream_id"] == group for one in port.streams.values()):
                    tx[str(index)] = port.sent
            zeros = dict.fromkeys(tx, 0)
            counts[str(group)] = {"tp": tx, **dict.fromkeys(("tb", "rp", "rb", "tps", "tbs", "rps", "rbs"), zeros)}
        return {
            "flow_stats": counts,
            "latency": {},
            "ver_id": {str(group): self._starts(group) for group in params["pgids"]},
        }

    def _do_get_tpg_status(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"enabled": False}

    def _do_acquire(self, params: dict[str, Any]) -> str:
        port = self._port(params)
        if port.owner and not params["force"]:
            if port.owner == params["user"]:
                raise Refusal(f"port is already owned by another session of '{port.owner}'")
            raise Refusal(f"port is already taken by '{port.owner}'")
        port.owner, port.handler = params["user"], f"{params['user']}-{params['session_id']}"
        return port.handler

    def _do_release(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        port.owner = port.handler = ""
        return {}

    def _do_get_all_streams(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"profiles": {"_": {}} if not self._port(params).streams else {"_": self._port(params).streams}}

    def _do_add_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        self._owned(params).streams[params["stream_id"]] = params["stream"]
        return {}

    def _do_remove_all_streams(self, params: dict[str, Any]) -> dict[str, Any]:
        self._owned(params).streams.clear()
        return {}

    def _do_start_traffic(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        port.started, port.limit_s = time.monotonic(), params["duration"]
        port.sent = 0
        port.starts += 1
        return {"multiplier": 1.0, "ts": time.time()}

    def _do_stop_traffic(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        self._pass(port)
        port.started = None
        return {}

    def _do_remove_rx_filters(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _port(self, params: dict[str, Any]) -> Port:
        return self.ports[int(params["port_id"])]

    def _owned(self, params: dict[str, Any]) -> Port:
        port = self._port(params)
        if params["handler"] != port.handler or not port.handler:
            raise Refusal("port is not owned by you")
        return port

    def _starts(self, group: int) -> int:
        """The version of a group's counts, which begin at 0 with each start."""
        return sum(
            port.starts
            for port in self.ports
            if any(one["flow_stats"]["stream_id"] == group for one in port.streams.values())
        )

    def _pass(self, port: Port) -> None:
        """What has happened on a port until now."""
        if port.started is None:
            return
        own_s = min((time.monotonic() - port.started) / self.slow, port.limit_s)
        due_s = port.due_s()
        if due_s == float("inf"):
            port.sent = round(own_s * self.line_fps) + 1
        else:
            port.sent = min(port.frames(), int(port.frames() * own_s / due_s) + 1)
        if own_s >= min(due_s, port.limit_s):
            port.started = None
        if self.most_frames is not None and port.sent >= self.most_frames:
            port.started, port.sent = None, self.most_frames
