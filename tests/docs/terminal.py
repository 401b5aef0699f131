"""A terminal: a real bash that is typed into, and what comes back."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

DEADLINE_SECONDS = 60
READ_BYTES = 65_536
#: Printed after each command, with its exit code, which the next command can still read.
_DONE = "=done="
_END = f"__code=$?; printf '\\n{_DONE}%s\\n' $__code; (exit $__code)\n"


class Terminal:
    """A bash in a process group of its own, as a terminal gives it one."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._printed = ""

    def run(self, command: str) -> tuple[str, int]:
        """Type a command and wait for its end; give what it printed and its exit code."""
        self.type(command)
        return self.ended(command)

    def type(self, command: str) -> None:
        """Type a command."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{command}\n{_END}".encode())
        self._bash.stdin.flush()

    def ended(self, what: str) -> tuple[str, int]:
        """Wait for the end of what was typed."""
        self.wait(
            lambda printed: _DONE in printed and printed.rpartition(_DONE)[2].endswith("\n"), f"the end of {what}"
        )
        printed, _, code = self._printed.rpartition(f"\n{_DONE}")
        self._printed = ""
        return printed, int(code)

    def wait(self, until: Callable[[str], bool], what: str) -> None:
        """Read until something is printed."""
        assert self._bash.stdout is not None
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not until(self._printed):
            left = deadline - time.monotonic()
            assert left > 0, f"waited {DEADLINE_SECONDS} s for {what}; so far: {self._printed}"
            if select.select([self._bash.stdout], [], [], left)[0]:
                piece = os.read(self._bash.stdout.fileno(), READ_BYTES)
                assert piece, f"the shell ended before {what}; it printed: {self._printed}"
                self._printed += piece.decode()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self._bash.pid, signal.SIGINT)

    def close(self) -> None:
        """Leave; what still runs there is ended."""
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        try:
            self._bash.wait(DEADLINE_SECONDS if self._is_idle() else 0)
        except subprocess.TimeoutExpired:
            os.killpg(self._bash.pid, signal.SIGTERM)
            self._bash.wait(DEADLINE_SECONDS)
        finally:
            if self._bash.stdout is not None:
                self._bash.stdout.close()

    def _is_idle(self) -> bool:
        return self._printed == ""
