"""What is known of the testbeds of this machine: the record of the last self-test of each, beyond any campaign.

One file each in /var/lib/netbench/selftest ($NETBENCH_STATE/selftest where that is set), named by the testbed's
fingerprint. `netbench clean` leaves them; removing one makes its ceilings unknown again.
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
    """Names a testbed by its hosts, links and streams, what really `sends`, and the sink. Not by its UUTs.

    `receives` is how frames really come in from the sources, which links may have to do otherwise than they say.
    """
    parts = plain(topology, include={"hosts", "links", "streams"}, exclude_none=True)
    parts["generator"], parts["sink"] = {**generator.options, "kind": sends}, {**sink.options, "kind": sink.kind}
    parts["receives"] = receives
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep_record(record: SelftestRecord) -> Path:
    """Make this the latest record of its testbed; its file. TestbedError when it cannot be written."""
    path = _file(record.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TestbedError(f"{path.parent} cannot be made: {error.strerror}; set NETBENCH_STATE to another") from error
    write_atomically(path, (json_of(plain(record), indent=2) + "\n").encode())
    return path


def latest_record(testbed: str) -> SelftestRecord | None:
    """The latest record of the testbed with this fingerprint; None when there is none that can be read."""
    try:
        return SelftestRecord.model_validate_json(_file(testbed).read_bytes())
    except (OSError, ValidationError):
        return None


def _file(testbed: str) -> Path:
    return Path(os.environ.get("NETBENCH_STATE", "/var/lib/netbench")) / "selftest" / f"{testbed}.json"
