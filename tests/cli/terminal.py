"""The program on a pseudo-terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.program import PROGRAM
from tests.cli.waiting import DEADLINE_SECONDS, read_all


@contextmanager
def terminal(columns: int = 80, rows: int = 24) -> Iterator[tuple[int, int]]:
    """Open a terminal of some size; yield the side of the user and the side of the program, which must be closed."""
    person, program_side = pty.openpty()
    fcntl.ioctl(program_side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    try:
        yield person, program_side
    finally:
        os.close(person)


@contextmanager
def on_terminal(
    arguments: Sequence[str], env: Mapping[str, str], cwd: Path, columns: int = 80, rows: int = 24
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start the program on a terminal; yield it and the side of the user."""
    with (
        terminal(columns, rows) as (person, program_side),
        subprocess.Popen(
            [str(PROGRAM), *arguments],
            cwd=cwd,
            env={"TERM": "xterm-256color", **env},
            stdin=program_side,
            stdout=program_side,
            stderr=program_side,
        ) as program,
    ):
        os.close(program_side)
        try:
            yield program, person
        finally:
            program.kill()


def run_on_terminal(arguments: Sequence[str], env: Mapping[str, str], cwd: Path, columns: int = 80) -> tuple[int, str]:
    """Run the program on a terminal; return its exit code and everything that it wrote."""
    with on_terminal(arguments, env, cwd, columns) as (program, person):
        text = read_all(person, program)
        return program.wait(DEADLINE_SECONDS), text
