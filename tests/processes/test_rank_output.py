"""Output of ranks: lines from bytes, progress bars, and readers that close."""

import os

import pytest

from weft.tools.launch.rank_output import ERR, OUT, LineBuffer, RankOutput

CASES = {
    "lines in parts": ([b"a", b"b\nc", b"\n"], [b"ab\n", b"c\n"]),
    "no line end at the end": ([b"a\nb"], [b"a\n", b"b\n"]),
    "line ends of two bytes": ([b"a\r\nb\r", b"\nc"], [b"a\r\n", b"b\r\n", b"c\n"]),
    "empty lines": ([b"\n\na\n"], [b"\n", b"\n", b"a\n"]),
    "a bar that starts its updates": ([b"\r1", b"\r2", b"\r3", b"\r4\n"], [b"1\n", b"4\n"]),
    "a bar that ends its updates": ([b"1\r", b"2\r", b"3\r"], [b"1\n", b"3\n"]),
    "a bar, then a line end": ([b"1\r2\r3\r\nx\n"], [b"1\n", b"3\r\n", b"x\n"]),
    "a bar whose end is shown": ([b"1\r", b"\n", b"x\n"], [b"1\r\n", b"x\n"]),
    "bytes that are no text": (
        [bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") + b"\n"],
        [bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") + b"\n"],
    ),
    "only a carriage return": ([b"\r"], []),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_become_lines(name):
    parts, lines = CASES[name]
    buffer, shown = LineBuffer(), []
    for i, part in enumerate(parts):
        shown += buffer.feed(part, 0.01 * i)
    assert [*shown, *buffer.end()] == lines


@pytest.mark.parametrize("name", [name for name in CASES if "bar" not in name])
def test_lines_do_not_depend_on_the_parts(name):
    data, buffer, shown = b"".join(CASES[name][0]), LineBuffer(), []
    for i in range(len(data)):
        shown += buffer.feed(data[i : i + 1], 0.0)
    assert [*shown, *buffer.end()] == CASES[name][1]


def test_a_bar_shows_an_update_each_second():
    buffer = LineBuffer()
    shown = [line for i in range(40) for line in buffer.feed(b"\r%d" % i, 0.1 * i)]
    assert len(shown) == 4 and buffer.end() == [b"39\n"]


def test_lines_without_an_end_are_written_in_parts():
    buffer = LineBuffer()
    shown = [line for _ in range(40) for line in buffer.feed(b"x" * 65536, 0.0)]
    assert b"".join([*shown, *buffer.end()]).replace(b"\n", b"") == b"x" * 40 * 65536
    assert max(map(len, shown)) < 2_000_000


@pytest.fixture
def streams(monkeypatch):
    """Replace both standard streams by pipes, and return the bytes written to each."""
    pipes, write = {OUT: os.pipe(), ERR: os.pipe()}, os.write
    monkeypatch.setattr(
        os, "write", lambda stream, data: write(pipes.get(stream, (0, stream))[1], data)
    )
    yield pipes
    for pipe in pipes.values():
        for end in pipe:
            try:
                os.close(end)
            except OSError:
                pass


def test_a_closed_reader_is_reported_once(streams):
    output, closed = RankOutput(True, None), []
    output.on_closed = closed.append
    output.receive(3, OUT, b"one\n")
    assert os.read(streams[OUT][0], 100) == b"[3] one\n"
    os.close(streams[OUT][0])
    for _ in range(3):
        output.receive(3, OUT, b"two\n")
    output.receive(3, ERR, b"three\n")
    assert closed == [OUT] and os.read(streams[ERR][0], 100) == b"[3] three\n"


def test_texts_of_the_launcher_are_lines(streams):
    output = RankOutput(True, None)
    output.receive(0, ERR, b"begins")
    output.say("news")
    output.show_text(1, "two\nlines")
    output.receive(0, ERR, b"")
    assert os.read(streams[ERR][0], 100) == b"weft launch: news\n[1] two\n[1] lines\n[0] begins\n"


def test_logs_that_cannot_be_written_stop_only_themselves(streams, tmp_path):
    output = RankOutput(True, str(tmp_path))
    (tmp_path / "rank-0.log").mkdir()
    output.receive(0, OUT, b"a\n")
    output.receive(0, OUT, b"b\n")
    assert os.read(streams[OUT][0], 100) == b"[0] a\n[0] b\n"
    assert os.read(streams[ERR][0], 1000).count(b"no more output goes to") == 1
