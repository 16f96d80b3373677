"""The tables of the environment: settings of the host before and after the campaign."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netbench.report.blocks import Column, Table, table
from netbench.report.formats import UNKNOWN
from netbench.report.model import ReportModel
from netbench.report.tables.registry import report_table

UNKNOWN_SETTING = "unknown"
_ALWAYS_CHANGING = "activity"  # load and CPU ticks: the activity of the host, not its settings

SettingPath = tuple[str, ...]  # the names under which a setting is nested


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of the host before and after a campaign; `after` is empty if it is not finished."""

    before: Mapping[SettingPath, str]
    after: Mapping[SettingPath, str]

    @classmethod
    def of(cls, manifest: Mapping[str, object]) -> "Environment":
        """Read a manifest."""
        return cls(dict(_leaves(manifest.get("before"), ())), dict(_leaves(manifest.get("after"), ())))

    @property
    def paths(self) -> list[SettingPath]:
        """All settings."""
        return list(dict.fromkeys((*self.before, *self.after)))

    @property
    def changed(self) -> list[SettingPath]:
        """The settings that changed during the campaign."""
        return [path for path in self.paths if self.after and path[0] != _ALWAYS_CHANGING and self.differs(path)]

    def differs(self, path: SettingPath) -> bool:
        """Whether a setting has different values before and after."""
        return self.before.get(path, UNKNOWN_SETTING) != self.after.get(path, UNKNOWN_SETTING)


@report_table("environment", "Environment", "a manifest")
def environment(model: ReportModel) -> Iterator[Table]:
    """Settings with both values, the changed ones marked; then settings with a single value."""
    state = Environment.of(model.results.manifest)
    # Settings without a value are in the manifest only.
    known = [
        path
        for path in state.paths
        if {state.before.get(path, UNKNOWN_SETTING), state.after.get(path, UNKNOWN_SETTING)} != {UNKNOWN_SETTING}
    ]
    changing = [path for path in known if not state.after or state.differs(path)]
    both: tuple[Column[SettingPath], ...] = (
        Column("Setting", ".".join),
        Column("Before", lambda path: state.before.get(path, UNKNOWN_SETTING)),
        Column("After", lambda path: state.after.get(path, UNKNOWN_SETTING) if state.after else UNKNOWN),
    )
    single: tuple[Column[SettingPath], ...] = (
        Column("Setting, the same before and after", ".".join),
        Column("Value", lambda path: state.before.get(path, UNKNOWN_SETTING)),
    )
    changed = set(state.changed)
    for columns, paths in ((both, changing), (single, [path for path in known if path not in set(changing)])):
        if paths:
            yield table(
                columns,
                paths,
                "environment",
                block=lambda path: path[0],
                row_css=lambda path: "changed" if path in changed else "",
                shows_blocks=False,
            )


def _leaves(value: object, path: SettingPath) -> Iterator[tuple[SettingPath, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, str(name)))
    elif path:
        yield path, text_of(value)


def text_of(value: object) -> str:
    """A value of the manifest as text."""
    if value is None:
        return UNKNOWN_SETTING
    if isinstance(value, list | tuple):
        return ", ".join(text_of(item) for item in value)
    return str(value)
