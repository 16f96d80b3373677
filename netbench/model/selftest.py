"""What a self-test found: truth beside measurement for each check, and the tester's ceilings. Data without I/O."""

from pydantic import BaseModel, ConfigDict, Field

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


class CeilingPoint(_Frozen):
    """One ceiling: frames/s that each of `sources` sources and its sink managed without loss at `frame_size` bytes."""

    sources: int = Field(ge=1)
    frame_size: int = Field(ge=1)
    fps: float = Field(gt=0)


class SelftestRecord(_Frozen):
    """One self-test of a testbed. `when_ns` is CLOCK_REALTIME; `fingerprint` is of what it was made on."""

    passed: bool
    when_ns: int
    topology: str
    generator: str
    fingerprint: str
    checks: tuple[Check, ...]
    ceilings: tuple[CeilingPoint, ...] = ()

    @property
    def known_ceilings(self) -> Ceilings:
        """Its ceilings as something to look rates up in."""
        return Ceilings(Ceiling(one.sources, one.frame_size, one.fps) for one in self.ceilings)
