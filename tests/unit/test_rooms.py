"""The rooms of docs/code.md are those of the contract that `make lint` enforces."""

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def contract():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["importlinter:contract:rooms"]["layers"].split("\n")
    return [room.strip() for line in lines for room in line.split("|") if room.strip()]


def test_the_page_shows_the_rooms_of_the_contract_in_its_order():
    packages = (ROOT / "docs/code.md").read_text().partition("\n    cli ")[1:]
    block = "".join(packages).partition("\n\n")[0]
    assert re.findall(r"^    (\w+) ", block, re.MULTILINE) == contract()


def test_every_room_is_in_the_contract():
    there = {path.stem for path in (ROOT / "netbench").iterdir() if path.suffix in ("", ".py")}
    assert there - {"__init__", "__main__", "__pycache__"} == set(contract())
