"""The contract of every driver of guests. To check a new one, derive from `VmmContract` in a test module.

It needs root: guests forward real frames between the namespaces of a testbed, where nothing may remain afterwards.
The guests of some VMMs take minutes to boot, so the contract boots only two. A driver adds its own checks of these two
in `check_first` and `check_second`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.clock import wait_until
from netbench.model.paths import StreamPath
from netbench.model.topology_specs import CpuShares
from netbench.uut.base import EVERYTHING, ActiveGuest, Assignment
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm
from tests.netns.yard import FRAMES, Yard, assert_declared, fresh_yard

_NOTICE_S = 20.0


class VmmContract:
    """Define the drivers to check: `vmm` makes one, `broken` one whose guests cannot start (a missing image).

    Without `broken`, requirements of the driver are missing on the machine. Where no guest answers, as of a
    simulator, `no_answers` has the reason, and parts that need answers are skipped.
    """

    no_answers = ""
    shares: tuple[CpuShares, CpuShares] = (EVERYTHING, EVERYTHING)
    """The CPU shares of the first and of the second guest."""

    def vmm(self) -> Vmm:
        """A driver whose guests can run here."""
        raise NotImplementedError

    def second(self) -> Vmm:
        """The driver of the second guest, with other options where these are to be checked, too."""
        return self.vmm()

    def check_first(self, yard: Yard, active: ActiveGuest, captures: Path) -> None:
        """Add checks of this driver with the first guest, before the second one starts."""

    def check_second(self, yard: Yard, active: ActiveGuest, captures: Path) -> None:
        """Add checks of this driver with the second guest, beside the first. They may end the second guest."""

    def broken(self) -> Vmm:
        """A driver whose guests cannot start."""
        vmm = self.vmm()
        vmm.changes = lambda spec: iter(())  # type: ignore[method-assign]  # nothing is prepared for it
        return vmm

    @pytest.fixture
    def yard(self) -> Iterator[Yard]:
        """A testbed of two streams; anything left behind when it ends is a failure."""
        with fresh_yard("nbt-vmm") as yard:
            yield yard
            assert yard.left() == [], "processes of guests are left"

    def test_before_it_starts_a_guest_it_only_reports(self) -> None:
        uut = Guest(self.vmm())
        plan = uut.plan(Assignment("g"))
        assert plan.needs
        assert [step.command for step in plan.steps] == [step.command for step in uut.plan(Assignment("g")).steps]
        assert any(vars(type(step)).get("spec") for step in plan.steps), "one of them starts the guest"

    def test_guests_side_by_side_forward_and_count_are_ended_once_again_started_anew_and_missed_when_they_die(
        self, yard: Yard, tmp_path: Path
    ) -> None:
        """A name is used by one guest only, and the end of the other does not affect it.

        Two boots in all, after a guest that is ended before it answers.
        """
        self._need_answers("forwarding, commands inside, counters, CPU times, facts, and that a death shows in these")
        one, other = yard.paths
        self._is_at_work_until_it_is_ended(yard, one)
        with yard.uut(Guest(self.vmm()), "g", (one,), self.shares[0]) as first:
            self._forwards_runs_commands_and_counts(yard, first, one)
            self.check_first(yard, first, tmp_path)
            with yard.uut(Guest(self.second()), "g.second", (other,), self.shares[1]) as second:
                assert (yard.forwarded(first, one), yard.forwarded(second, other)) == (FRAMES, FRAMES)
                self.check_second(yard, second, tmp_path)
                second.uut.destroy()
                second.uut.destroy()
                assert yard.forwarded(first, one) == FRAMES
            with pytest.raises((TestbedError, MissingError)), yard.uut(Guest(self.vmm()), "g", (one,)):
                pytest.fail("two guests have one name")
            assert yard.forwarded(first, one) == FRAMES
            self.kill(yard)

            def noticed() -> bool:
                try:
                    first.uut.read()
                except TestbedError as error:
                    return "guest g" in str(error)
                return False

            assert wait_until(noticed, _NOTICE_S)
        assert yard.left() == []

    def _forwards_runs_commands_and_counts(self, yard: Yard, active: ActiveGuest, path: StreamPath) -> None:
        assert active.ready.inside is not None
        assert active.ready.inside.run(["true"]).exit_code == 0
        before = active.uut.read()
        assert yard.forwarded(active, path) == FRAMES
        after = active.uut.read()
        assert_declared(active, path, after)
        assert isinstance(active.uut.console(), str)
        assert active.ready.quiet_time_s > 0
        assert active.ready.facts["virtualisation"] in self.vmm().kinds
        assert active.ready.facts["attachment"] in self.vmm().supports.attachments
        grown = {
            (later.point, later.counter): (later.frames or 0) - (earlier.frames or 0)
            for earlier, later in zip(before.counters, after.counters, strict=True)
        }
        assert min(grown.values()) >= 0, "counters never go back"
        for side in ("ingress", "egress"):
            passed = [frames for (at, counter), frames in grown.items() if at.startswith(side) and len(counter) == 2]
            assert passed == [FRAMES], f"the {side} attachment counts what passes"
        assert set(before.cpu_s) == set(after.cpu_s)
        assert all(after.cpu_s[whose] >= used >= 0 for whose, used in before.cpu_s.items())

    def test_a_guest_is_at_work_before_it_answers_and_is_missed_when_it_dies(self, yard: Yard) -> None:
        """As seen by its driver."""
        path = yard.paths[0]
        if self.no_answers:  # otherwise the other test begins with it
            self._is_at_work_until_it_is_ended(yard, path)
        with yard.started(self.vmm(), "g", (path,)) as guest:
            assert guest.death() == ""
            self.kill(yard)
            assert wait_until(lambda: guest.death().startswith("guest g"), _NOTICE_S), guest.death()
        assert yard.left() == []

    def _is_at_work_until_it_is_ended(self, yard: Yard, path: StreamPath) -> None:
        """As seen by its driver, before it answers. A name is used by one guest only."""
        with yard.started(self.vmm(), "g", (path,)) as guest:
            assert (guest.spec.name, guest.death()) == ("g", "")
            assert isinstance(guest.console(), str)
            with pytest.raises((TestbedError, MissingError)), yard.started(self.vmm(), "g", (path,)):
                pytest.fail("two guests have one name")
            assert guest.death() == ""
            guest.stop()
            guest.stop()
        assert yard.left() == []

    def test_a_guest_that_cannot_start_reports_why_and_leaves_nothing(self, yard: Yard) -> None:
        with pytest.raises((TestbedError, MissingError)) as caught, yard.uut(Guest(self.broken()), "g"):
            pytest.fail("it is up")
        assert str(caught.value)
        assert yard.left() == []

    def _need_answers(self, what: str) -> None:
        if self.no_answers:
            pytest.skip(f"not checked: {what}; {self.no_answers}")

    def kill(self, yard: Yard) -> None:
        """End the guest from outside: here by its processes."""
        yard.kill()
