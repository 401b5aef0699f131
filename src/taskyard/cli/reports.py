"""What a run leaves on stdout: a summary for people, or one JSON object for programs; and faults on stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterable

from taskyard.cli import text, views
from taskyard.wire.faults import Fault
from taskyard.wire.progress import Outcome, Progress, Reason


def delivered(write: Callable[[], object]) -> bool:
    """Write to stdout; False if that cannot be. A reader that has left has what it wanted, so that is no failure."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        _silence()
        say_error(f"cannot write to stdout: {error.strerror}")
        return False
    return True


#: What fits a screen; the headline counts all, and `-o json` has them.
NAMED_MAX = 20


def give_summary(outcome: Outcome) -> None:
    """Say how the graph ended, then name the tasks that did not end well, those that ran first."""
    answer(text.headline(outcome))
    bad = sorted((task for task in outcome.tasks.values() if task.reason is not Reason.DONE), key=_never_ran)
    for task in bad[:NAMED_MAX]:
        answer(f"  {views.lines(task)[0]}")
    if len(bad) > NAMED_MAX:
        answer(f"  and {len(bad) - NAMED_MAX} more")


def give_json(outcome: Outcome) -> None:
    """Print the outcome as one JSON object, in ASCII: what tasks printed cannot act on a terminal."""
    shape = {
        "name": outcome.name,
        "state": outcome.state,
        "elapsed_ms": outcome.elapsed_ms,
        "tasks": {label: _shape(task) for label, task in outcome.tasks.items()},
    }
    answer(json.dumps(shape, indent=2))


def say_faults(name: str, faults: Iterable[Fault]) -> None:
    """List what is wrong with a document, a line for each fault, the place first as compilers do."""
    listed = tuple(faults)
    talk(f"{text.harmless(name)} cannot be run: {text.many(len(listed), 'fault')}; nothing was started.")
    for fault in listed:
        talk(f"  {text.harmless(_place(name, fault))}: {text.harmless(fault.message)}")


def list_faults(faults: Iterable[tuple[str, str]]) -> None:
    """List what a server found wrong, each with its place."""
    for path, message in faults:
        talk(f"  {text.harmless(path)}: {text.harmless(message)}" if path else f"  {text.harmless(message)}")


def say_error(message: str) -> None:
    """Say why something could not be done."""
    talk(f"taskyard: {text.harmless(message)}")


def answer(line: str) -> None:
    """Write a line for whoever asked."""
    sys.stdout.write(line + "\n")


def talk(line: str) -> None:
    """Write a line for whoever looks on."""
    sys.stderr.write(line + "\n")


def _silence() -> None:
    # Python writes what is left once more at its end, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _never_ran(task: Progress) -> bool:
    return not task.attempt


def _shape(task: Progress) -> dict[str, object]:
    return {
        "state": task.state,
        "reason": task.reason,
        "exit_code": task.exit_code,
        "attempts": task.attempt,
        "elapsed_ms": task.elapsed_ms,
        "blocked_by": list(task.blocked_by),
        "tail": task.tail,
    }


def _place(name: str, fault: Fault) -> str:
    numbers = [str(number) for number in (fault.line, fault.column) if number is not None]
    place = ":".join([name, *numbers])
    return f"{place}: {fault.path}" if fault.path else place
