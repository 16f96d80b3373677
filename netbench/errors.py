"""The errors a user can meet, each with the exit code that documents it."""

import errno
from enum import Flag, IntEnum, auto


class ExitCode(IntEnum):
    """Exit codes of every netbench command."""

    DONE = 0
    INVALID_RESULTS = 1  # a self-test failed, a regression was found, or --strict and trials stayed invalid
    USAGE = 2  # the command line, topology or profile is wrong
    MISSING = 3  # this host lacks something: root, a tool, a kernel feature, a free testbed
    BROKEN = 4  # the testbed broke during the run; results so far are kept
    INCONCLUSIVE = 5  # a gate could neither show nor exclude a regression
    SIGINT = 130
    SIGTERM = 143


class Fault(Flag):
    """What the kernel or a tool objects to, as far as that decides what netbench does next."""

    NONE = 0
    GONE = auto()  # what a request names does not exist
    EXISTS = auto()
    DENIED = auto()


_FAULTS = {
    Fault.GONE: (errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EADDRNOTAVAIL),
    Fault.EXISTS: (errno.EEXIST,),
    Fault.DENIED: (errno.EPERM, errno.EACCES, errno.EROFS),
}


def fault_of(number: int) -> Fault:
    """Return what an errno means."""
    return next((fault for fault, numbers in _FAULTS.items() if number in numbers), Fault.NONE)


class NetbenchError(Exception):
    """An error with a message for the user: what happened, where, and what to do next.

    If the kernel or a tool refused something, `words` are its own message, and `fault` is what they mean. `package` is
    the package of Debian that is missing.
    """

    exit_code = ExitCode.BROKEN

    def __init__(self, message: str = "", *, words: str = "", fault: Fault = Fault.NONE, package: str = "") -> None:
        super().__init__(message)
        self.words, self.fault, self.package = words, fault, package


class KeyedError(ValueError):
    """A value is wrong because of one `key` of it, with which the message begins."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


class UsageError(NetbenchError):
    """The command line, a topology, a profile or another input file is wrong."""

    exit_code = ExitCode.USAGE


class MissingError(NetbenchError):
    """This host lacks something the command needs."""

    exit_code = ExitCode.MISSING


class TestbedError(NetbenchError):
    """The testbed broke during the run; what was measured so far is kept and can be resumed."""

    exit_code = ExitCode.BROKEN
    __test__ = False  # not a test class, whatever pytest reads into its name


class ChangeError(TestbedError):
    """A machine did not make a `change`; `reason` is the message of its tool."""

    def __init__(self, message: str, change: object = None, reason: str = "") -> None:
        super().__init__(message)
        self.change = change
        self.reason = reason


class NotUndoneError(TestbedError):
    """Changes to this machine could not be undone. It is reported whatever else goes wrong."""


class MachineGoneError(TestbedError):
    """A machine that the testbed stands on has died or hangs: no unit under test is to blame."""


class UutError(TestbedError):
    """A unit under test did not come up, or is beyond help; others of the same campaign may do better.

    `log` is what it wrote to its console, empty for none.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class NeighbourError(UutError):
    """A neighbour of a unit under test did not come up, or is beyond help; what needs none of it may do better."""


def unreported(error: BaseException) -> NotUndoneError | None:
    """The NotUndoneError that another error has replaced on its way, if any."""
    if isinstance(error, NotUndoneError):
        return None
    seen = error.__cause__ or error.__context__
    while seen is not None and not isinstance(seen, NotUndoneError):
        seen = seen.__cause__ or seen.__context__
    return seen
