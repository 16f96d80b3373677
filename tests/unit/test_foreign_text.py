"""Names that are not UTF-8: in from the kernel, back to it, and out to files that are UTF-8."""

import json
import subprocess
import sys

import pytest
from pydantic import TypeAdapter

from netbench.hosts.local import LocalHost
from netbench.linux.proc import all_processes, processes_of
from netbench.linux.safety.ports import ssh_sessions
from netbench.model.documents import document_of
from netbench.model.foreign_text import decoded, encoded, json_of, read_lines, well_formed

NAMES = [b"\xff", b"eth\xff0", b"caf\xc3", "ü".encode(), b"\xed\xa0\x80", b"a\xe2\x80\x83b", b"x) R 1\n"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_goes_back_as_it_came(name):
    assert encoded(decoded(name)) == name


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_utf_8(name):
    text = well_formed(decoded(name))
    assert text.encode().decode() == text
    assert json.loads(json_of({decoded(name): [decoded(name)]}).encode()) == {text: [text]}
    assert json.loads(document_of(TypeAdapter(dict[str, str]), {"name": decoded(name)})) == {"name": text}


def test_bytes_are_spelled_out_and_all_else_stays():
    assert well_formed(decoded(b"\xfe\xff" + "ü😀".encode())) == r"\xfe\xffü😀"
    assert well_formed("\ud800") == r"\ud800"


def test_only_a_newline_ends_a_line(tmp_path):
    (tmp_path / "file").write_bytes(b"a\x0bb\x85\xff\nc")
    assert read_lines(tmp_path / "file") == ["a\x0bb\udc85\udcff", "c"]


@pytest.fixture
def named():
    """A process whose name is cut inside a character, by its id."""
    program = "import ctypes; ctypes.CDLL(None).prctl(15, bytes([97, 0xff, 0xc3]), 0, 0, 0); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1)
    assert process.stdout
    process.stdout.readline()
    yield process.pid
    process.communicate(b"\n")


def test_processes_of_any_name_are_read(named):
    assert decoded(b"a\xff\xc3") in {process.name for process in all_processes()}
    assert decoded(b"a\xff\xc3") in {process.name for process in processes_of(LocalHost("here", "x"))}
    assert isinstance(ssh_sessions({}), set)


def test_a_command_takes_and_prints_any_byte():
    done = LocalHost("here", "x").run(["cat"], stdin=decoded(b"\xff\n"))
    assert encoded(done.stdout) == b"\xff\n"
