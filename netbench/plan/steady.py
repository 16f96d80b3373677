"""What sends and receives the same at all loads, where its change would be taken for one of the UUT."""

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.model.profile import KindSpec, Profile
from netbench.plan.schedule import schedule_kind

_OPTION = "steady"  # of kinds that choose by the load
_ENDS = {"generator": GENERATORS, "sink": SINKS}


def held_steady(profile: Profile) -> Profile:
    """The profile with sources and sinks that do not choose by the load, for a schedule that wants none that do.

    One of which the profile itself says whether it is steady stays as it is.
    """
    unsaid = {key: spec for key, spec in _that_choose(profile).items() if _OPTION not in spec.options}
    return profile.model_copy(update={key: _with_option(spec) for key, spec in unsaid.items()})


def that_follow_load(profile: Profile) -> dict[str, str]:
    """The kind of a generator or sink, by these words, that chooses by the load where the schedule wants none to."""
    return {key: spec.kind for key, spec in _that_choose(profile).items() if not spec.options.get(_OPTION)}


def _with_option(spec: KindSpec) -> KindSpec:
    return type(spec)(kind=spec.kind, **{**spec.options, _OPTION: True})


def _that_choose(profile: Profile) -> dict[str, KindSpec]:
    if not schedule_kind(profile.schedule.kind).wants_steady:
        return {}
    specs: dict[str, KindSpec] = {"generator": profile.generator, "sink": profile.sink}
    return {key: spec for key, spec in specs.items() if _OPTION in plugins(_ENDS[key])[spec.kind].Options.model_fields}
