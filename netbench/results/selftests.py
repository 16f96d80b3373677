"""The records of the last self-test of each testbed of this machine, stored independently of campaigns.

There is one file for each testbed in /var/lib/netbench/selftest ($NETBENCH_STATE/selftest if that is set), named by the
testbed's fingerprint. `netbench clean` keeps these files. After one is removed, its ceilings are unknown again.
"""

import hashlib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from netbench.errors import TestbedError
from netbench.model.documents import plain
from netbench.model.foreign_text import json_of
from netbench.model.profile import GeneratorSpec, SinkSpec
from netbench.model.selftest_record import SelftestRecord
from netbench.model.topology import Topology
from netbench.results.atomic import write_atomically


def fingerprint(topology: Topology, generator: GeneratorSpec, sends: str, receives: str, sink: SinkSpec) -> str:
    """Return a name of a testbed by its hosts, links, streams, actual sender (`sends`) and sink, but not its UUTs.

    `receives` is how frames actually come in from the sources, which may differ from the configuration of the links.
    """
    parts = plain(topology, include={"hosts", "links", "streams"}, exclude_none=True)
    parts["generator"], parts["sink"] = {**generator.options, "kind": sends}, {**sink.options, "kind": sink.kind}
    parts["receives"] = receives
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep_record(record: SelftestRecord) -> Path:
    """Store the latest record of its testbed and return its file; TestbedError if it cannot be written."""
    path = _file(record.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TestbedError(f"{path.parent} cannot be made: {error.strerror}; set NETBENCH_STATE to another") from error
    write_atomically(path, (json_of(plain(record), indent=2) + "\n").encode())
    return path


def latest_record(testbed: str) -> SelftestRecord | None:
    """Return the latest record of the testbed with this fingerprint; None if no readable record exists."""
    try:
        return SelftestRecord.model_validate_json(_file(testbed).read_bytes())
    except (OSError, ValidationError):
        return None


def _file(testbed: str) -> Path:
    return Path(os.environ.get("NETBENCH_STATE", "/var/lib/netbench")) / "selftest" / f"{testbed}.json"
