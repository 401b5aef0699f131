"""Waiting for processes: for a line, a pid, an end. Every wait has a deadline and ends as soon as it can."""

import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

#: Far longer than any wait takes on the slowest machine.
DEADLINE_SECONDS = 60.0


def until(fact: Callable[[], bool], what: str) -> None:
    """Poll until `fact` holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not fact():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        select.select([], [], [], 0.01)


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended; a zombie has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it ended before or during the read
        return True
    return state in "ZX"


def read_fifo(path: Path, writer: subprocess.Popen[bytes]) -> str:
    """Read a line that `writer`, or a child of it, writes to a named pipe."""
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return read_until(pipe, "\n", writer)
    finally:
        os.close(pipe)


def read_until(stream: int, wanted: str, writer: subprocess.Popen[bytes]) -> str:
    """Read until `wanted` has come; fail at once when `writer` has ended without it."""
    text = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while wanted.encode() not in text:
        # Checked before reading: what it wrote before its end can still be read.
        has_ended = writer.poll() is not None
        chunk = _read(stream) if select.select([stream], [], [], 0.1)[0] else b""
        assert chunk or not has_ended, f"ended without {wanted!r} after {text!r}: {_last_words(writer)!r}"
        assert time.monotonic() < deadline, f"waited too long for {wanted!r} after {text!r}"
        text += chunk
    return text.decode()


def _last_words(program: subprocess.Popen[bytes]) -> bytes:
    return program.stderr.read() if program.stderr and not program.stderr.closed else b""


def _read(stream: int) -> bytes:
    try:
        return os.read(stream, 65536)
    except OSError:
        return b""  # the other side of a terminal is closed


def read_all(stream: int, writer: subprocess.Popen[bytes]) -> str:
    """Read everything that `writer` writes until it ends."""
    text = b""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        has_ended = writer.poll() is not None
        chunk = _read(stream) if select.select([stream], [], [], 0.05)[0] else b""
        if not chunk and has_ended:
            return text.decode(errors="replace")
        assert time.monotonic() < deadline, f"waited too long for the end after {text!r}"
        text += chunk
