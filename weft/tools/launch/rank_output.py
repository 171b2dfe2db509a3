"""The output of ranks as whole lines, with the rank in front, and in one log file per rank.

In:   bytes of standard output and standard error of each rank, as they arrive.
Out:  lines on the launcher's own standard output and standard error; `DIR/rank-3.log`.
Laws: lines of different ranks never mix, and no line is lost. A progress bar, which ends its
      updates by a carriage return, shows at most one update per second, always the last one. All
      bytes pass unchanged, whatever they are.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

#: the streams of a rank, which are also the launcher's file descriptors for them
OUT, ERR = 1, 2
_UPDATE_S = 1.0
_LONGEST_LINE = 1 << 20


class LineBuffer:
    """The lines of one stream.

    >>> buffer = LineBuffer()
    >>> buffer.feed(b"one\\ntw", 0.0), buffer.feed(b"o\\nend", 0.0), buffer.end()
    ([b'one\\n'], [b'two\\n'], [b'end\\n'])
    >>> buffer.feed(b"1 %\\r2 %\\r3 %\\n", 10.0)
    [b'1 %\\n', b'3 %\\n']
    """

    def __init__(self) -> None:
        self._incomplete = bytearray()
        self._update = b""  # the newest update of a progress bar that was not shown
        self._after_update = False
        self._updated = float("-inf")

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Return the lines that `data`, which arrived at `now`, completes."""
        self._incomplete += data
        pieces = bytes(self._incomplete).splitlines(keepends=True)
        self._incomplete.clear()
        # A carriage return at the end may be the first half of a line end.
        if pieces and not pieces[-1].endswith(b"\n") and len(pieces[-1]) < _LONGEST_LINE:
            self._incomplete += pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            if piece.endswith(b"\r"):
                lines += self._take_update(piece[:-1], now)
            else:
                lines += self._take_line(piece)
        return lines

    def end(self) -> list[bytes]:
        """Return the remaining text at the end of the stream."""
        text = bytes(self._incomplete).rstrip(b"\r") or self._update
        self._incomplete.clear()
        self._update = b""
        return [text + b"\n"] if text else []

    def _take_update(self, text: bytes, now: float) -> list[bytes]:
        if not text:
            return []
        self._after_update = True
        if now - self._updated < _UPDATE_S:
            self._update = text
            return []
        self._updated, self._update = now, b""
        return [text + b"\n"]

    def _take_line(self, line: bytes) -> list[bytes]:
        is_end_of_update = self._after_update and not line.strip(b"\r\n")
        if is_end_of_update:
            line = self._update + b"\n" if self._update else b""
        self._after_update, self._update = False, b""
        if not line:
            return []
        return [line if line.endswith(b"\n") else line + b"\n"]


class RankOutput:
    """Writes the output of all ranks; calls `on_closed(stream)` once if a stream's reader is gone."""

    def __init__(self, prefix: bool, log_dir: str | None) -> None:
        self.on_closed: Callable[[int], None] = lambda stream: None
        self._prefix, self._log_dir = prefix, None if log_dir is None else Path(log_dir)
        self._lock = threading.RLock()
        self._buffers: dict[tuple[int, int], LineBuffer] = {}
        self._logs: dict[int, Path] = {}
        self._closed: set[int] = set()

    def receive(self, rank: int, stream: int, data: bytes) -> None:
        """Write output of a rank; empty `data` ends the stream."""
        with self._lock:
            self._log(rank, data)
            key = rank, stream
            buffer = self._buffers.setdefault(key, LineBuffer())
            if data:
                lines = buffer.feed(data, time.monotonic())
            else:
                lines = buffer.end()
                del self._buffers[key]
            self._write_lines(rank, stream, lines)

    def show_text(self, rank: int, text: str) -> None:
        """Write a text about a rank, such as its traceback, to standard error."""
        data = text.encode(errors="surrogateescape")
        with self._lock:
            self._write_lines(rank, ERR, data.splitlines(keepends=True))

    def log_text(self, rank: int, text: str) -> None:
        """Write a text to a rank's log file only."""
        with self._lock:
            self._log(rank, text.encode(errors="surrogateescape"))

    def say(self, text: str) -> None:
        """Write a line of the launcher itself to standard error."""
        with self._lock:
            self._write(ERR, f"weft launch: {text}\n".encode(errors="surrogateescape"))

    def _log(self, rank: int, data: bytes) -> None:
        if self._log_dir is None or not data:
            return
        is_first = rank not in self._logs
        path = self._logs.setdefault(rank, self._log_dir / f"rank-{rank}.log")
        try:
            with open(path, "wb" if is_first else "ab") as file:
                file.write(data)
        except OSError as error:
            self._log_dir = None
            self.say(f"no more output goes to {path}: {error.strerror}")

    def _write_lines(self, rank: int, stream: int, lines: Iterable[bytes]) -> None:
        prefix = f"[{rank}] ".encode() if self._prefix else b""
        data = b"".join(prefix + line for line in lines)
        if data and not data.endswith(b"\n"):
            data += b"\n"
        self._write(stream, data)

    def _write(self, stream: int, data: bytes) -> None:
        if stream in self._closed:
            return
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(stream, view) :]
                except BlockingIOError:
                    select.select([], [stream], [])
        except BrokenPipeError:
            self._closed.add(stream)
            self.on_closed(stream)
        except OSError as error:
            self._closed.add(stream)
            self.say(f"cannot write the output of ranks: {error.strerror}")
            self.on_closed(stream)
