"""The Python that runs netbench, and its packages."""

import platform
import sys
from importlib import metadata
from importlib.util import find_spec

from netbench.testbed.doctor.checks import Check, Status

_IMPORTS = {
    "numpy": "numpy",
    "plotly": "plotly",
    "pydantic": "pydantic",
    "pyroute2": "pyroute2",
    "PyYAML": "yaml",
    "qemu.qmp": "qemu",
    "rich": "rich",
    "scipy": "scipy",
    "typer": "typer",
}


def check_packages() -> Check:
    """Whether the packages that netbench imports are there, and of which versions."""
    needed_for = "netbench itself"
    missing = [package for package, module in _IMPORTS.items() if find_spec(module) is None]
    if missing:
        remedy = f"{sys.executable} -m pip install {' '.join(missing)}"
        return Check("python", Status.MISSING, f"no {', '.join(missing)}", remedy, needed_for)
    versions = ", ".join(f"{package} {_version(package)}" for package in _IMPORTS)
    return Check("python", Status.OK, f"{platform.python_version()} with {versions}", "", needed_for)


def check_parquet() -> Check:
    """Whether the one optional package is there."""
    needed_for = "netbench export --format parquet"
    if find_spec("pyarrow") is None:
        return Check("parquet", Status.ABSENT, "no pyarrow", f"{sys.executable} -m pip install pyarrow", needed_for)
    return Check("parquet", Status.OK, f"pyarrow {_version('pyarrow')}", "", needed_for)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"
