"""A checkout works in any folder: also in one named like the package, or with a space in its path.

`.ci/run` runs all tests in such a folder. This file finds the usual mistake without that.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("netbench", "tests", "benchmarks", "examples")
# A shell and `make` split such a path at its spaces unless it is quoted.
UNQUOTED = {
    "code": r"\{(?:sys\.executable|__file__)\}",
    "Makefile": r"\$\(abspath|\s(?:-[\w-]+=)?\$\(CURDIR\)",
}


@pytest.mark.parametrize("where", UNQUOTED)
def test_no_command_has_a_path_of_the_checkout_that_nothing_quotes(where):
    code = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in (code if where == "code" else [ROOT / "Makefile"])
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(UNQUOTED[where], line)
    ]
    assert found == [], "use shlex.join or shlex.quote"
