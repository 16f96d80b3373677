"""What a self-test found: truth beside measurement for each check, and the tester's ceilings. Data without I/O."""

from pydantic import BaseModel, ConfigDict

from netbench.model.ceiling import Ceiling, Ceilings


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Check(_Frozen):
    """One check: what is true, what the tester said, and how far that is off, as people read it.

    `passed` is None where it could not be made here; `detail` says why, or what is wrong and what to do about it.
    """

    name: str
    uut: str = ""
    truth: str = ""
    measured: str = ""
    error: str = ""
    passed: bool | None
    detail: str = ""


class SelftestRecord(_Frozen):
    """One self-test of a testbed. `when_ns` is CLOCK_REALTIME; `fingerprint` is of what it was made on."""

    passed: bool
    when_ns: int
    topology: str
    generator: str
    fingerprint: str
    checks: tuple[Check, ...]
    ceilings: tuple[Ceiling, ...] = ()

    @property
    def known_ceilings(self) -> Ceilings:
        """Its ceilings as something to look rates up in."""
        return Ceilings(self.ceilings)
