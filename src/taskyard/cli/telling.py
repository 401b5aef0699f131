"""How attempts and graphs of a run ended, in words for people. All text of tasks is made harmless."""

from collections import Counter
from collections.abc import Iterable

from taskyard.cli.text import harmless, seconds
from taskyard.wire.progress import Outcome, Progress, Reason


def ending(progress: Progress) -> str:
    """Say how an attempt ended."""
    parts = [_cause(progress)]
    if progress.attempt > 1:
        parts.append(f"attempt {progress.attempt}")
    if progress.elapsed_ms is not None:
        parts.append(seconds(progress.elapsed_ms))
    return ", ".join(part for part in parts if part)


def counts(tasks: Iterable[Progress]) -> str:
    """Count tasks by state: `3 successful, 1 failed`."""
    return ", ".join(f"{count} {state}" for state, count in Counter(task.state.value for task in tasks).items())


def headline(outcome: Outcome) -> str:
    """Say how a graph ended, in a line."""
    ended = f"{harmless(outcome.name)}: {outcome.state} in {seconds(outcome.elapsed_ms)}"
    return f"{ended}: {counts(outcome.tasks.values())}" if outcome.tasks else ended


#: Ends that no exit code tells.
_CAUSES = {
    Reason.TIMED_OUT: "timed out",
    Reason.DENIED: "denied",
    Reason.GRAPH_FAILED: "the graph inside it did not finish",
    Reason.SILENT: "printed nothing for too long",
    Reason.BAD_RESULT: "its result, progress or checkpoint cannot be taken",
    Reason.BOT_LOST: "its bot was lost",
    Reason.EXPIRED: "waited too long for a bot",
    Reason.NO_BOT: "no bot here can run it",
    Reason.DEADLINE: "its deadline is over",
}


def _cause(progress: Progress) -> str:
    if progress.reason in _CAUSES:
        return _CAUSES[progress.reason]
    if progress.reason is Reason.SIGNALED and progress.exit_code:
        return f"ended by signal {progress.exit_code - 128}"
    return f"exit code {progress.exit_code}" if progress.exit_code else ""
