"""Functions that run in processes of their own, which die at failpoints.

    python -m tests.fork_server MODULE:FUNCTION

For every input line of a failpoint and arguments, separated by tabs, it forks a process that calls the function with
the arguments and dies at the failpoint, and prints the exit code. The forking process has imported everything: imports
take longer than most of these functions.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import taskyard.store.migrations.apply
import taskyard.store.postgres
import taskyard.store.sqlite  # noqa: F401 - before the fork
from taskyard.engine.failpoints import arm
from tests.project.tree import ROOT

#: The exit code of a process that a failpoint has killed.
KILLED = -9


class ForkServer:
    """Runs a function of a test module again and again, each time in a new process."""

    def __init__(self, function: Callable[..., None]) -> None:
        name = f"{function.__module__}:{function.__name__}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, name], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, failpoint: str, *arguments: str | Path) -> int:
        """Call the function with a failpoint armed; return 0, or `KILLED`."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\t".join((failpoint, *map(str, arguments))) + "\n")
        self._process.stdin.flush()
        ended = int(self._process.stdout.readline())
        assert ended in {0, KILLED}, "it failed instead of being killed"
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes the input, which ends the process


def main(name: str) -> None:
    """Fork one process for each line of input."""
    module, _, function = name.partition(":")
    act = getattr(importlib.import_module(module), function)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            failpoint, *arguments = line.rstrip("\n").split("\t")
            arm(failpoint)
            act(*arguments)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
