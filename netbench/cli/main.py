"""What `netbench` runs: the command line, and how every command ends."""

import gc
import os
import sys
from pathlib import Path

from netbench.cli.output import LastingOutput, open_standard_streams, printable, say
from netbench.errors import ExitCode, NetbenchError
from netbench.hosts.search_path import absolute_path
from netbench.hosts.signals import Stopped

# New objects before garbage is looked for among them. With Python's 700 that is a seventh of what it takes to load a
# campaign, of which nothing is garbage.
_NEW_OBJECTS = 50_000


def main() -> None:
    """Run the command line; every expected error is one message on stderr and a documented exit code."""
    gc.set_threshold(_NEW_OBJECTS)
    open_standard_streams()
    os.environ["PATH"] = absolute_path()  # for all that is run
    code = _outcome()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # whoever read our output has gone
    except NetbenchError as error:
        code = code or _complain(str(error), error.exit_code)
    LastingOutput(sys.stderr).flush()
    gc.freeze()  # all that is left goes with the process: to look for garbage in it takes a tenth of a second
    sys.exit(code)


def _outcome() -> int:
    """The exit code of the command that was asked for."""
    try:
        if capture := _capture_to_analyze(sys.argv[1:]):
            from netbench.cli.analyze import analyze_command

            say(analyze_command(capture, as_json="--json" in sys.argv))
            return ExitCode.DONE
        from netbench.cli.commands import run_command_line

        return run_command_line(sys.argv[1:])
    except Stopped as stopped:
        return 128 + stopped.signum
    except NetbenchError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return ExitCode.SIGINT
    except BrokenPipeError:  # whoever read our output has gone
        return ExitCode.DONE
    except Exception as error:  # a defect of ours: still one line for the user, who is told how to see more
        if os.environ.get("NETBENCH_DEBUG"):
            raise
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
