"""The testbeds of a campaign, one up at a time: UUTs that are `on` a VM have theirs in it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from netbench.errors import MachineGoneError, MissingError, TestbedError, UutError
from netbench.hosts.clock import wait_until
from netbench.linux.running import Other
from netbench.testbed.resolved import Resolved
from netbench.testbed.testbed import Testbed

# For hosts that were lost: how long they may take to come back, and how often that is tried.
_BACK_S, _AGAIN_S = 60.0, 3.0


class Testbeds:
    """As a context manager, it takes down the one that is up when the block is left; MachineGoneError as of lose().

    `opening` brings one up; `opened` is told of each that is up after the first.
    """

    __test__ = False

    def __init__(self, resolved: Resolved, opening: Callable[[Resolved], AbstractContextManager[Testbed]]) -> None:
        self.opened: Callable[[Testbed], None] = lambda _: None
        self._resolved = resolved
        self._opening = opening
        self._stack = ExitStack()
        self._up: tuple[str | None, Testbed] | None = None
        self._is_first = True
        self._lost: MachineGoneError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up = None
        self._stack.__exit__(kind, error, trace)
        if self._lost is not None and error is None:
            raise self._lost

    def of(self, uut: str) -> Testbed:
        """That of a UUT, by its name; another one that is up is taken down first.

        Raises what bringing up and taking down raise, but UutError where, later than at first, a VM does not come up.
        """
        on = self.place_of(uut)
        if self._up is not None and self._up[0] == on:
            return self._up[1]
        self.close()
        try:
            testbed = self._opened_on(on)
        except (TestbedError, MissingError) as error:
            if on is None or self._is_first:
                raise
            raise UutError(str(error)) from error
        self._up, self._is_first, self._lost = (on, testbed), False, None
        self.opened(testbed)
        return testbed

    def _opened_on(self, on: str | None) -> Testbed:
        """The testbed, brought up; one that has lost a host is tried again and again for a time, as that may come back.

        TestbedError where they do not.
        """
        resolved = self._resolved.on(on)
        if self._is_first or not self.can_lose_hosts:
            return self._stack.enter_context(self._opening(resolved))
        found: list[Testbed] = []
        words = ""

        def is_open() -> bool:
            nonlocal words
            try:
                found.append(self._stack.enter_context(self._opening(resolved)))
            except (TestbedError, MissingError) as error:
                words = str(error)
            return bool(found)

        if not wait_until(is_open, _BACK_S, _AGAIN_S):
            raise TestbedError(f"a host that was lost did not come back within {_BACK_S:g} s: {words}")
        return found[0]

    @property
    def can_lose_hosts(self) -> bool:
        """Whether hosts of it are reached by SSH: one that is lost may come back."""
        return bool(self._resolved.topology.ssh_hosts)

    def place_of(self, uut: str) -> str | None:
        """The VM that a UUT is on, by its name."""
        return self._resolved.topology.uut(uut).on

    def others(self) -> Sequence[Other]:
        """The other netbenches that have measured on this machine since the campaign began."""
        return self._up[1].others() if self._up else []

    def interfaces(self) -> dict[str | None, list[str]]:
        """The interfaces on this machine of the one that is up, by network namespace."""
        return self._up[1].interfaces() if self._up else {}

    def lose(self) -> None:
        """Take down the one that is up, of which a machine is lost.

        What is left on that is undone as another one is brought up; where none is, the end of the block says so.
        """
        try:
            self.close()
        except MachineGoneError as error:
            self._lost = error

    def close(self) -> None:
        """Take down the one that is up, if any."""
        self._up = None
        self._stack.close()
