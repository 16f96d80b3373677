"""The entry point of `netbench`: runs the command line and ends the process."""

import errno
import gc
import os
import resource
import sys
from collections.abc import Collection
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from netbench.cli.output import LastingOutput, complain, open_standard_streams, say
from netbench.errors import ExitCode, MissingError, NetbenchError, unreported
from netbench.hosts.trusted_code import absolute_path
from netbench.signals import Shield, Stopped, ignore_signals, stop_on_signals

if TYPE_CHECKING:
    from typer import TyperException

# New objects before garbage collection starts. With Python's default of 700, the report of benchmarks/results.py takes
# a fifth more CPU time: few of the loaded objects are garbage.
_NEW_OBJECTS = 50_000
# These commands load scipy, whose linear algebra (OpenBLAS) retries forever if a limit denies it memory.
_WITH_SCIPY = frozenset({"run", "resume", "search", "report", "export", "compare", "selftest"})
_LEAST_ADDRESS_SPACE = 512 << 20  # bytes; a campaign takes 360 MB


def main() -> None:
    """Run the command line; every expected error is one message on stderr and a documented exit code."""
    gc.set_threshold(_NEW_OBJECTS)
    open_standard_streams()
    os.environ["PATH"] = absolute_path()  # for all child processes
    # The linear algebra is hardly used; otherwise it starts threads that cost more than the analysis of a capture.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    shield = stop_on_signals()
    with shield.held():  # signals stop the command, but not the report of its outcome
        _end(_outcome(shield))


def _end(code: int) -> None:
    """End the process after all its output is written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader of the output is gone
    except NetbenchError as error:
        code = code or _complain(error)
    LastingOutput(sys.stderr).flush()
    gc.freeze()  # the process ends anyway: without it, `netbench run --dry-run` takes a quarter more CPU time
    ignore_signals()  # otherwise Python would end with its own exit code on a signal
    sys.exit(code)


def _outcome(shield: Shield) -> int:
    """Run the command and return its exit code; signals stop it."""
    try:
        with shield.lifted():
            return _run_command()
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # a plug-in may raise SystemExit
        code = _explain(error)
        return code if (left := unreported(error)) is None else _complain(left)


def _run_command() -> int:
    if capture := _capture_to_analyze(sys.argv[1:]):
        from netbench.cli.analyze import analyze_command

        say(analyze_command(capture, as_json="--json" in sys.argv))
        return ExitCode.DONE
    if _WITH_SCIPY.intersection(sys.argv[1:2]):
        _require_address_space()
    return run_command_line(sys.argv[1:])


def run_command_line(arguments: list[str]) -> int:
    """Run a command line and return its exit code; errors of the command itself are raised."""
    import typer

    from netbench.cli.commands import app

    try:
        # Not app(): it would turn a closed pipe and every signal into its own exit codes.
        command = typer.main.get_command(app)
        if "_NETBENCH_COMPLETE" in os.environ:  # a shell completes, by the script of --show-completion
            try:
                command.main(arguments, prog_name="netbench")
            except SystemExit as ended:
                return int(ended.code or 0)
        with command.make_context("netbench", arguments) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.TyperException as error:
        complain(_message(error))
        return error.exit_code
    return ExitCode.DONE


def _message(error: "TyperException") -> str:
    """Return the error in a command line; errors that pydantic found for typer get netbench's wording."""
    from pydantic import ValidationError

    from netbench.config.wording import words_for

    if isinstance(error.__cause__, ValidationError):
        error.message = "; ".join(words_for(problem) for problem in error.__cause__.errors(include_url=False))
    text = StringIO()
    error.show(text)  # type: ignore[attr-defined]  # all exceptions that typer raises have it
    return text.getvalue().rstrip().expandtabs(4)


def _capture_to_analyze(arguments: list[str]) -> Path | None:
    """Return the capture if the command line only analyzes one; None for any other command line.

    Loading the command line parser doubles the CPU time for 300,000 frames (benchmarks/capture.py).
    """
    match arguments:
        case ["analyze", name] | ["analyze", "--json", name] | ["analyze", name, "--json"] if not name.startswith("-"):
            return Path(name)
    return None


def _require_address_space() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise MissingError(
            f"netbench {sys.argv[1]} needs {_LEAST_ADDRESS_SPACE >> 10:,} KiB of address space, and the limit "
            f"(ulimit -v) is {limit >> 10:,} KiB: raise it"
        )


def _explain(error: BaseException) -> int:
    """Print why the command ended, if it is an error, and return the exit code."""
    match error:
        case Stopped():
            return 128 + error.signum
        case NetbenchError():
            return _complain(error)
        case KeyboardInterrupt():
            return ExitCode.SIGINT
        case BrokenPipeError():  # the reader of the output is gone
            return ExitCode.DONE
    if os.environ.get("NETBENCH_DEBUG"):
        raise error
    if _lacks_memory(error):
        complain(
            f"netbench: netbench cannot be loaded or has too little memory ({type(error).__name__}: {error}): raise "
            "its limit (ulimit -v or -u, cgroup), or install it anew"
        )
        return ExitCode.MISSING
    from netbench.config.plugins import other_packages

    # A defect of netbench or of a plug-in: still one short message, with a hint at how to see more.
    packages = other_packages()
    at_fault = _plugin_code(error, packages)
    others = "" if at_fault else ", ".join(sorted(packages))
    hint = f"; a plug-in may have returned a wrong value (installed: {others})" if others else ""
    where = f" in the plug-in {at_fault}" if at_fault else ""
    complain(
        f"netbench: unexpected {type(error).__name__}{where}: {error}{hint}\n"
        f"please report it{' to the authors of the plug-in' if at_fault else ''}; NETBENCH_DEBUG=1 shows where it arose"
    )
    return ExitCode.BROKEN


def _lacks_memory(error: BaseException) -> bool:
    is_refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    # Python has only a text for a thread that the system does not start.
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return isinstance(error, MemoryError | ImportError) or is_refused or no_thread


def _plugin_code(error: BaseException, packages: Collection[str]) -> str:
    """Return the innermost line of a plug-in's code that the error passed; empty for none."""
    found, step = "", error.__traceback__
    while step is not None:
        module = str(step.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in packages:
            found = f"{module}, line {step.tb_lineno}"
        step = step.tb_next
    return found


def _complain(error: NetbenchError) -> int:
    complain(f"netbench: {error}")
    return error.exit_code
