"""A schedule that looks for the highest load without loss, by halving."""

from collections.abc import Mapping

from pydantic import BaseModel

from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import Verdict
from netbench.plan.schedule import CampaignPlan, Schedule


class HalvingOptions(BaseModel, extra="forbid"):
    """`highest` is no longer thought possible, in frames/s for each source; the range below is halved `steps` times."""

    highest: int = 100_000
    steps: int = 8


class Halving(Schedule):
    """The highest load without loss of each UUT, scenario and frame size, by halving."""

    Options = HalvingOptions
    wants_steady = True  # otherwise a change of the source would look like a limit

    def __init__(self, plan: CampaignPlan, options: HalvingOptions) -> None:
        """As every schedule."""
        super().__init__(plan, options)
        self._highest, self._steps = options.highest, options.steps

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | None:
        """Half-way between the highest load that was clean and the lowest that was not."""
        index = 0
        for boot, uut in enumerate(self.plan.uuts, start=1):
            for scenario in self.plan.scenarios:
                for size in self.plan.profile.frame_sizes:
                    low, high = 0, self._highest
                    for _ in range(self._steps):
                        fps = (low + high + 1) // 2
                        trial = self.plan.trial(uut, scenario, size, Load.of_fps(fps), 1, index=index, boot=boot)
                        if trial.key not in results:
                            return trial
                        index += 1
                        if results[trial.key].verdict is not Verdict.VALID:
                            break  # it shows nothing about the UUT
                        low, high = (fps, high) if _lossless(results[trial.key]) else (low, fps)
        return None


def _lossless(result: TrialResult) -> bool:
    return not result.is_saturated and not any(counts.lost_frames for counts in result.streams)
