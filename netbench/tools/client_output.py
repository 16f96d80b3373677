"""The output of netbench's own clients (tcp_client.py), read as the figures of a tool."""

import re
from itertools import pairwise
from typing import Any

from netbench.hosts.base import Completed
from netbench.model.flow_result import FlowResult, Latencies
from netbench.tools.base import Demand, FlowEnds, ToolError, number_of, text_of, whole_number
from netbench.tools.sealed_output import unsealed

_LAST_WORDS = 300
_LACKING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.M)
_COUNTS = ("intended", "started", "completed", "completed_in_time")
_BYTES = ("to_server_bytes", "to_client_bytes", "run_to_server_bytes", "run_to_client_bytes")


def read_output(done: Completed, program: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON that a client of netbench printed; ToolError when it failed, or printed anything else."""
    words = (done.stderr.strip() or done.stdout.strip())[-_LAST_WORDS:] or "nothing"
    if lacking := _LACKING.search(done.stderr):
        raise ToolError(
            f"{program} needs the module {lacking[1]}, which the Python of its host lacks; install python3 there, or "
            "rebuild the image of the VM: `netbench image build`"
        )
    if done.exit_code:
        raise ToolError(f"{program} ended with exit code {done.exit_code} and printed: {words}")
    try:
        return unsealed(done.stdout)
    except ValueError as fault:
        raise ToolError(f"{program} printed {fault}: {words}") from fault


def figures_of(
    done: Completed, demand: Demand, ends: FlowEnds, workload: str, kinds: dict[str, str], program: str
) -> FlowResult:
    """Return the figures in the output of tcp_client.py; ToolError for anything that is not a whole output of it.

    `kinds` has the kind of latencies for each key of the output; `program` begins the tool's name and version.
    """
    output = read_output(done, program)
    try:
        counts = {key: whole_number(output[key], key) for key in (*_COUNTS, *_BYTES)}
        errors = {text_of(kind, "the kind of an error"): whole_number(n, kind) for kind, n in output["errors"].items()}
        # A timeout counts as a response at its deadline.
        numbers = {"response": counts["completed"] + errors.get("timeout", 0)}
        latencies = tuple(
            latencies_of(output[key], kind, numbers.get(kind, counts["completed"])) for key, kind in kinds.items()
        )
        late = latencies_of(output["late"], "late")
        python, server = text_of(output["python"], "python"), text_of(output["server"], "server")
        cpu_share = float(number_of(output["cpu_share"], "cpu_share"))
    except (KeyError, TypeError, AttributeError) as fault:
        raise ToolError(f"the output of {program} lacks {fault}") from fault
    intended, started, completed, in_time = (counts[key] for key in _COUNTS)
    if not started <= intended or completed + sum(errors.values()) != intended:
        raise ToolError(
            f"{program} reports {intended} operations, of which {started} started, {completed} succeeded and "
            f"{sum(errors.values())} failed, which does not add up"
        )
    return FlowResult(
        stream=ends.stream,
        workload=workload,
        tool=f"{program} (Python {python}){f', {server}' if server else ''}",
        duration_s=demand.measured_s,
        errors=errors,
        latencies=latencies,
        client_late=late if late.count else None,
        client_cpu_share=cpu_share,
        intended=intended,
        started=started,
        completed=completed,
        completed_in_time=in_time,
        to_server_bytes=counts["to_server_bytes"],
        to_client_bytes=counts["to_client_bytes"],
        run_to_server_bytes=counts["run_to_server_bytes"],
        run_to_client_bytes=counts["run_to_client_bytes"],
    )


def latencies_of(value: Any, kind: str, count: int | None = None) -> Latencies:  # noqa: ANN401 - any JSON
    """Return the times in an output; ToolError if they contradict themselves, or are not `count`."""
    steps = tuple((whole_number(middle, kind), whole_number(number, kind)) for middle, number in value["steps"])
    total, smallest, largest = (value[key] for key in ("total_ns", "smallest_ns", "largest_ns"))
    if not steps:
        smallest = largest = 0
    found = Latencies(kind, steps, *(whole_number(number, kind) for number in (total, smallest, largest)))
    middles = [middle for middle, _ in steps]
    is_ascending = all(lower < upper for lower, upper in pairwise(middles))
    has_mean = found.smallest_ns * found.count <= found.total_ns <= found.largest_ns * found.count
    if not is_ascending or not has_mean or not all(number for _, number in steps) or count not in (None, found.count):
        raise ToolError(f"the {kind} times in its output contradict its counts")
    return found
