"""The contents of an image: packages and selected files of them, kernel modules, and netbench's own files.

guest/contents.yaml lists the contents of every guest, recipes/NAME.yaml the additional ones of the image NAME.
"""

import platform
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from netbench.config.document import yaml_value
from netbench.hosts.guest_agent import program as agent_program
from netbench.images.library import content_digest

# Increased when the same recipe and packages would give another image.
_BUILDER = b"3"

GUEST = Path(__file__).parent / "guest"
AGENT = Path(agent_program.__file__)
_RECIPES = Path(__file__).parent / "recipes"
BUILD_MODULES = _RECIPES / "build-modules.sh"

DEFAULT_KERNELS = {"amd64": "linux-image-amd64", "arm64": "linux-image-arm64"}
# The architecture of pinned packages.
PINNED_FOR = "amd64"


class Recipe(BaseModel):
    """The contents of an image.

    The image includes `commands` and `files` (patterns) of Debian's `packages`, with the libraries they need; Python
    modules are included as bytecode. `packed_commands` are unpacked at their first run. `modules` are kernel modules by
    purpose. `pinned` is the text of a list of further packages in the format of sha256sum(1), by path in Debian's
    archive; their files replace those of the others. `built_sources` are C files in `guest/` that become modules, built
    together with those of the pinned packages. `links` are links by path. The script `start` runs in the VM before the
    agent. `hypervisor` is a file of a package (a pattern), compressed by gzip. `digest` covers all of this.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    packages: tuple[str, ...]
    commands: tuple[str, ...]
    packed_commands: tuple[str, ...]
    files: tuple[str, ...]
    required_modules: tuple[str, ...]
    modules: dict[str, tuple[str, ...]]
    pinned: str = ""
    built_sources: tuple[str, ...] = ()
    links: dict[str, str] = {}
    start: str = ""
    hypervisor: str = ""
    digest: str = ""


def load_recipe(name: str) -> Recipe:
    """Return the contents of every guest and the additional ones of the image `name`."""
    combined = _read(GUEST / "contents.yaml")
    path = _RECIPES / f"{name}.yaml"
    for key, value in (_read(path) if path.is_file() else {}).items():
        if isinstance(value, list):
            combined[key] = [*combined.get(key, ()), *value]
        elif isinstance(value, dict):
            combined[key] = {**combined.get(key, {}), **value}
        else:
            combined[key] = value
    if "pinned" in combined:
        combined["pinned"] = (_RECIPES / combined["pinned"]).read_text()
    files = sorted(path for path in (*GUEST.rglob("*"), AGENT, BUILD_MODULES) if path.is_file())
    combined["digest"] = content_digest(_BUILDER, repr(combined).encode(), *(path.read_bytes() for path in files))
    return Recipe.model_validate(combined)


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml_value(path.read_text().replace("{machine}", platform.machine()))
    return content
