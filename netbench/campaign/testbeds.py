"""The testbeds of a campaign, one up at a time: UUTs that are `on` a VM have theirs in it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from netbench.errors import MissingError, TestbedError, UutError
from netbench.linux.running import Other
from netbench.testbed.resolved import Resolved
from netbench.testbed.testbed import Testbed


class Testbeds:
    """As a context manager, it takes down the one that is up when the block is left.

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up = None
        self._stack.__exit__(kind, error, trace)

    def of(self, uut: str) -> Testbed:
        """That of a UUT, by its name; another one that is up is taken down first.

        Raises what bringing up and taking down raise, but UutError where, later than at first, a VM does not come up.
        """
        on = self.place_of(uut)
        if self._up is not None and self._up[0] == on:
            return self._up[1]
        self.close()
        try:
            testbed = self._stack.enter_context(self._opening(self._resolved.on(on)))
        except (TestbedError, MissingError) as error:
            if on is None or self._is_first:
                raise
            raise UutError(str(error)) from error
        self._up, self._is_first = (on, testbed), False
        self.opened(testbed)
        return testbed

    def place_of(self, uut: str) -> str | None:
        """The VM that a UUT is on, by its name."""
        return self._resolved.topology.uut(uut).on

    def others(self) -> Sequence[Other]:
        """The other netbenches that have measured on this machine since the campaign began."""
        return self._up[1].others() if self._up else []

    def interfaces(self) -> dict[str | None, list[str]]:
        """The interfaces on this machine of the one that is up, by network namespace."""
        return self._up[1].interfaces() if self._up else {}

    def close(self) -> None:
        """Take down the one that is up, if any."""
        self._up = None
        self._stack.close()
