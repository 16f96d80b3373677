"""What `netbench` runs: the command line, and how every command ends."""

import errno
import gc
import os
import resource
import sys
from pathlib import Path

from netbench.cli.output import LastingOutput, open_standard_streams, printable, say
from netbench.errors import ExitCode, MissingError, NetbenchError, unreported
from netbench.hosts.search_path import absolute_path
from netbench.signals import Shield, Stopped, ignore_signals, stop_on_signals

# New objects before garbage is looked for among them. With Python's 700 that is a seventh of what it takes to load a
# campaign, of which nothing is garbage.
_NEW_OBJECTS = 50_000
# These load scipy, whose linear algebra (OpenBLAS) tries for ever to get memory that a limit denies it.
_WITH_SCIPY = frozenset({"run", "resume", "search", "report", "export", "compare", "selftest"})
_LEAST_ADDRESS_SPACE = 512 << 20  # bytes; a campaign takes 360 MB


def main() -> None:
    """Run the command line; every expected error is one message on stderr and a documented exit code."""
    gc.set_threshold(_NEW_OBJECTS)
    open_standard_streams()
    os.environ["PATH"] = absolute_path()  # for all that is run
    # Linear algebra, which is hardly used, else starts threads that cost more than the analysis of a capture.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    shield = stop_on_signals()
    with shield.held():  # they stop the command, and not the report of its outcome
        _end(_outcome(shield))


def _end(code: int) -> None:
    """End the process once all it has written is out."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # whoever read our output has gone
    except NetbenchError as error:
        code = code or _complain(str(error), error.exit_code)
    LastingOutput(sys.stderr).flush()
    gc.freeze()  # all that is left goes with the process: to look for garbage in it takes a tenth of a second
    ignore_signals()  # Python would let them end it with a code of theirs
    sys.exit(code)


def _outcome(shield: Shield) -> int:
    """The exit code of the command that was asked for; signals stop it."""
    try:
        with shield.lifted():
            return _do_command()
    except (Exception, KeyboardInterrupt) as error:
        code = _explain(error)
        if (left := unreported(error)) is not None:
            return _complain(str(left), left.exit_code)
        return code


def _do_command() -> int:
    """Do what the command line asks for; its exit code."""
    if capture := _capture_to_analyze(sys.argv[1:]):
        from netbench.cli.analyze import analyze_command

        say(analyze_command(capture, as_json="--json" in sys.argv))
        return ExitCode.DONE
    if _WITH_SCIPY.intersection(sys.argv[1:2]):
        _require_address_space()
    from netbench.cli.commands import run_command_line

    return run_command_line(sys.argv[1:])


def _require_address_space() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise MissingError(
            f"netbench {sys.argv[1]} needs {_LEAST_ADDRESS_SPACE >> 10:,} KiB of address space, and the limit "
            f"(ulimit -v) is {limit >> 10:,} KiB: raise it"
        )


def _explain(error: BaseException) -> int:
    """Print what ended the command, if it is an error; the exit code."""
    match error:
        case Stopped():
            return 128 + error.signum
        case NetbenchError():
            return _complain(str(error), error.exit_code)
        case KeyboardInterrupt():
            return ExitCode.SIGINT
        case BrokenPipeError():  # whoever read our output has gone
            return ExitCode.DONE
    if os.environ.get("NETBENCH_DEBUG"):
        raise error
    is_refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if isinstance(error, MemoryError | ImportError) or is_refused or "can't start new thread" in str(error):
        what = f"netbench cannot be loaded or has too little memory ({type(error).__name__}: {error})"
        return _complain(f"{what}: raise its limit (ulimit -v or -u, cgroup), or install it anew", ExitCode.MISSING)
    # A defect of netbench: still one line, which says how to see more.
    message = f"unexpected {type(error).__name__}: {error}\nplease report it; NETBENCH_DEBUG=1 shows where it arose"
    return _complain(message, ExitCode.BROKEN)


def _capture_to_analyze(arguments: list[str]) -> Path | None:
    """The capture, where nothing but the analysis of one is asked for; None for whatever else the command line says.

    What reads a command line takes longer to load than a million frames to count.
    """
    match arguments:
        case ["analyze", name] | ["analyze", "--json", name] | ["analyze", name, "--json"] if not name.startswith("-"):
            return Path(name)
    return None


def _complain(message: str, code: ExitCode) -> int:
    print(f"netbench: {printable(message)}", file=LastingOutput(sys.stderr))
    return code
