"""Sources and sinks that do not change with the load, so that no change of theirs is attributed to the UUT."""

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.model.profile import KindSpec, Profile
from netbench.plan.schedule import schedule_kind

_OPTION = "steady"  # option of kinds that choose by the load
_ENDS = {"generator": GENERATORS, "sink": SINKS}


def held_steady(profile: Profile) -> Profile:
    """Return the profile with steady sources and sinks, which do not choose by the load, if the schedule needs them.

    A source or sink with an explicit `steady` option in the profile is unchanged.
    """
    unsaid = {key: spec for key, spec in _that_choose(profile).items() if _OPTION not in spec.options}
    return profile.model_copy(update={key: _with_option(spec) for key, spec in unsaid.items()})


def that_follow_load(profile: Profile) -> dict[str, str]:
    """Return the kinds, by `generator` and `sink`, that choose by the load although the schedule needs steady ones."""
    return {key: spec.kind for key, spec in _that_choose(profile).items() if not spec.options.get(_OPTION)}


def _with_option(spec: KindSpec) -> KindSpec:
    return type(spec)(kind=spec.kind, **{**spec.options, _OPTION: True})


def _that_choose(profile: Profile) -> dict[str, KindSpec]:
    if not schedule_kind(profile.schedule.kind).wants_steady:
        return {}
    specs: dict[str, KindSpec] = {"generator": profile.generator, "sink": profile.sink}
    return {key: spec for key, spec in specs.items() if _OPTION in plugins(_ENDS[key])[spec.kind].Options.model_fields}
