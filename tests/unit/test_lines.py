"""Reading the output of a process with a time limit."""

import os

import pytest

from netbench.hosts.pipes import Lines, Tail, last_words


@pytest.fixture
def pipe():
    """Both ends of a pipe: the text to read, and the descriptor to write to."""
    end, start = os.pipe()
    with os.fdopen(end) as file, os.fdopen(start, "wb", buffering=0) as writer:
        yield file, writer


def test_lines_come_one_by_one_however_they_were_written(pipe):
    reader, writer = pipe
    lines = Lines(reader)
    writer.write(b"one\ntwo\nth")
    assert [lines.take(5), lines.take(5)] == [b"one", b"two"]
    with pytest.raises(TimeoutError):
        lines.take(0)
    writer.write(b"ree\n\n")
    assert [lines.take(5), lines.take(5)] == [b"three", b""]


def test_the_end_and_a_line_without_one_are_reported_apart(pipe):
    reader, writer = pipe
    lines = Lines(reader)
    writer.write(b"half a line")
    writer.close()
    with pytest.raises(EOFError):
        lines.take(5)


def test_a_line_without_end_is_not_kept(pipe):
    reader, writer = pipe
    writer.write(bytes(40_000))
    lines = Lines(reader)
    with pytest.raises(TimeoutError):
        lines.take(0)
    writer.write(bytes(40_000))
    with pytest.raises(ValueError, match="without end"):
        lines.take(5)


def test_last_words_are_those_that_are_there(pipe):
    reader, writer = pipe
    assert last_words(reader, 3) == ""
    writer.write(b"Traceback\n\n  File x \n\xff: no\nand no end")
    assert last_words(reader, 3) == "File x | \udcff: no | and no end"
    assert last_words(reader, 3) == ""


def test_of_what_is_reported_without_end_the_beginning_and_the_end_are_kept(pipe):
    reader, writer = pipe
    tail = Tail(reader)
    writer.write(b"begins\n")
    for _ in range(20):  # nothing else reads, and the writer does not wait
        writer.write(bytes(1_000_000))
    writer.write(b"ends")
    writer.close()
    text = tail.text(20)
    assert text.startswith("begins\n")
    assert text.endswith("ends")
    assert "bytes omitted]" in text
    assert len(text) < 300_000
