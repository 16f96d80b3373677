"""Where frames were lost, over all trials of a UUT."""

from collections import Counter
from collections.abc import Iterable

from netbench.model.counts import StreamCounts
from netbench.model.points import rank
from netbench.model.trial import TrialResult

UNEXPLAINED = "explained by no counter"
UNKNOWN_PLACE = "somewhere: counters could not be read"


def lost_frames_by_place(trials: Iterable[TrialResult]) -> Counter[str]:
    """Frames lost at each hop; those no counter explains or could place have a name of their own."""
    places: Counter[str] = Counter()
    for trial in trials:
        for counts in trial.streams:
            for loss in counts.lost_at:
                places[loss.hop] += loss.frames
            places[UNEXPLAINED] += counts.unexplained_frames or 0
            places[UNKNOWN_PLACE] += _unplaced(counts)
    return Counter({place: frames for place, frames in places.items() if frames})


def along_the_path(places: Iterable[str]) -> list[str]:
    """Places of loss from source to sink; what has no place comes last."""
    nowhere = (UNEXPLAINED, UNKNOWN_PLACE)
    return sorted(places, key=lambda place: (place in nowhere, rank(place), place))


def _unplaced(counts: StreamCounts) -> int:
    if counts.unexplained_frames is not None or counts.lost_frames is None:
        return 0
    return counts.lost_frames - sum(loss.frames for loss in counts.lost_at)
