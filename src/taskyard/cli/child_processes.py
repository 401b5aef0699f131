"""Child processes that run this program: they end when their parent ends, and get no Ctrl-C from its terminal."""

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

#: How often it is looked whether a child has ended.
LOOK_SECONDS: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1


def start(
    arguments: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    *,
    read: bool,
    told: str = "",
    orphaned: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start this program again, with other arguments; what it says goes to a log, or with `read` its stdout to here.

    It reads `told` from its stdin, where no other process can see it. When the parent is gone, it gets the signal
    `orphaned`.
    """
    make_file(log)
    with log.open("ab") as said:
        child = subprocess.Popen(  # noqa: S603 - it is this program, and no shell
            # -P: a file in this folder with the name of a module is not that module.
            [sys.executable, "-P", "-m", "taskyard", *arguments],
            env=dict(env),
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=subprocess.PIPE if read else said,
            stderr=said,
            # A Ctrl-C is for the parent, which ends its children in their order.
            start_new_session=True,
            preexec_fn=_tie(orphaned),  # noqa: PLW1509 - the parent has one thread
        )
    if child.stdin is not None:
        with suppress(BrokenPipeError), child.stdin:
            child.stdin.write(told.encode())
    return child


def without_token() -> dict[str, str]:
    """Give this environment without a token of whoever started this program: children are told theirs."""
    return {name: value for name, value in os.environ.items() if name != "TASKYARD_TOKEN"}


def stop(children: Sequence[subprocess.Popen[bytes]], within_s: float, hurry: Callable[[], bool]) -> bool:
    """Ask children to end, wait for them, and kill what is left; say whether all of them ended by themselves."""
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


def _tie(by: signal.Signals) -> Callable[[], None] | None:
    """Make what ties a child's life to its parent's, where the system can do that."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # noqa: PLC0415 - only who has children needs it

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
