"""Child processes that run this program; they end with their parent, and Ctrl-C at its terminal does not reach them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskyard.private_files import make_file

#: How often it is checked whether a child has ended.
LOOK_SECONDS: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1


def start(
    arguments: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    *,
    read: bool,
    stdin: str = "",
    orphaned: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start this program with other arguments; its output goes to a log, or with `read` its stdout to a pipe.

    It gets `stdin` as standard input, which no other process can read, and the signal `orphaned` when its parent ends.
    """
    make_file(log)
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - this program, without a shell
            # -P: do not import modules from the current folder.
            [sys.executable, "-P", "-m", "taskyard", *arguments],
            env=dict(env),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE if read else output,
            stderr=output,
            # Ctrl-C must reach only the parent, which stops its children in order.
            start_new_session=True,
            preexec_fn=_die_with_parent(orphaned),  # noqa: PLW1509 - the parent has one thread
        )
    if child.stdin is not None:
        with suppress(BrokenPipeError), child.stdin:
            child.stdin.write(stdin.encode())
    return child


def without_token() -> dict[str, str]:
    """Return the environment without TASKYARD_TOKEN: children get their own tokens."""
    return {name: value for name, value in os.environ.items() if name != "TASKYARD_TOKEN"}


def stop(children: Sequence[subprocess.Popen[bytes]], within_s: float, hurry: Callable[[], bool]) -> bool:
    """Ask children to end, wait, and kill the rest; return whether all ended by themselves."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    until = time.monotonic() + within_s
    while any(child.poll() is None for child in children):
        if time.monotonic() > until or hurry():
            break
        time.sleep(LOOK_SECONDS)
    late = [child for child in children if child.poll() is None]
    for child in late:
        child.kill()
        child.wait()
    return not late


def _die_with_parent(by: signal.Signals) -> Callable[[], None] | None:
    """Make the function that has a child killed when its parent ends; None where the system cannot do that."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # noqa: PLC0415 - only parents need it

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
