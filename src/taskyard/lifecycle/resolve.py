"""The room where attempts end: a bot says how, and the budget says whether the task is tried again.

Every word is matched to its attempt and its lease first. What is told twice is an echo; what is told about a lease
that is no longer the bot's is refused and changes nothing.
"""

from collections.abc import Sequence
from typing import Final

from taskyard.core import budget
from taskyard.core.budget import Ruling
from taskyard.core.ids import Key, text_of
from taskyard.core.machine import LEASED, REASONS, Outcome
from taskyard.core.words import Reason, Signal
from taskyard.lifecycle import telling
from taskyard.lifecycle.commands import Report, Stats
from taskyard.lifecycle.losing import is_free
from taskyard.lifecycle.move import Move
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Code, Done, Refusal
from taskyard.store.records import TaskRecord
from taskyard.store.sessions import Row

#: The words of every life, by names of their own: a word is slow to get at through its class.
_LOSE: Final = Signal.LOSE
_EXIT_CODE: Final = Reason.EXIT_CODE
_MOVE: Final = Outcome.MOVE


def resolve(corridor: Corridor, reports: Sequence[tuple[str, Report]]) -> list[Done | Refusal]:
    """End attempts as their bots say; each report comes with the bot that sent it."""
    tasks = corridor.look({report.task for _, report in reports})
    telling.foresee(corridor, tasks)
    outcomes: list[Done | Refusal] = []
    moves: dict[int, Move] = {}
    for bot, report in reports:
        if report.task in moves:  # the same task again is judged by where the first word has led it
            corridor.send(list(moves.values()))
            moves = {}
        outcomes.append(_judge(corridor, tasks.get(report.task), bot, report, moves))
    corridor.send(list(moves.values()))
    _keep_results(corridor, reports, outcomes)
    return outcomes


def _judge(
    corridor: Corridor, task: TaskRecord | None, bot: str, report: Report, moves: dict[int, Move]
) -> Done | Refusal:
    if task is None:
        return Refusal(Code.NOT_FOUND, f"there is no task {text_of(Key(report.task))}")
    if not _is_theirs(task, bot, report):
        is_echo = _was_told(corridor, task, bot, report)
        return Done(task.id, task.state, echo=True) if is_echo else _lost(task, report)
    ruling = _ruling(corridor, task, report)
    if ruling.outcome is _MOVE:
        moves[task.id] = _move(task, report, ruling)
        return Done(task.id, ruling.target)
    return Done(task.id, ruling.target, echo=True) if ruling.outcome is Outcome.ECHO else _lost(task, report)


def _ruling(corridor: Corridor, task: TaskRecord, report: Report) -> Ruling:
    life, rules, now = task.life, task.rules, corridor.now
    why = report.reason
    if report.signal is _LOSE and why is not None and life.state in LEASED and is_free(corridor, task, why):
        return budget.spare(life, rules, why, now)
    return budget.report(life, rules, report.attempt, report.signal, now, report.exit_code)


def _is_theirs(task: TaskRecord, bot: str, report: Report) -> bool:
    life = task.life
    holds = task.bot == bot if life.state in LEASED else True  # an ended attempt is told apart by its fence
    return holds and report.attempt == life.attempt and report.fence == task.fence


def _was_told(corridor: Corridor, task: TaskRecord, bot: str, report: Report) -> bool:
    """Tell whether a word about an older attempt is just what its bot said of it then."""
    if not 0 < report.attempt < task.life.attempt:
        return False
    older = (one for one in corridor.txn.attempts.of(task.id) if one.number == report.attempt)
    return any((one.bot, one.fence, one.signal) == (bot, report.fence, report.signal.text) for one in older)


def _lost(task: TaskRecord, report: Report) -> Refusal:
    return Refusal(
        Code.LEASE_LOST,
        f"cannot {report.signal} attempt {report.attempt} of task {text_of(Key(task.id))}: "
        f"it is {task.state} (attempt {task.life.attempt}{f', bot {task.bot}' if task.bot else ''})",
    )


def _move(task: TaskRecord, report: Report, ruling: Ruling) -> Move:
    signal = report.signal
    if signal is _LOSE:
        task.not_by = task.bot
    return Move(task, signal, ruling.life_after, _why(report, ruling), None, report.exit_code)


def _why(report: Report, ruling: Ruling) -> Reason:
    """Say why an attempt ended; where the rules know of an exit code only, its bot may know better."""
    known = None if ruling.reason is _EXIT_CODE else ruling.reason
    return known or report.reason or REASONS[report.signal]


def _keep_results(
    corridor: Corridor, reports: Sequence[tuple[str, Report]], outcomes: Sequence[Done | Refusal]
) -> None:
    rows = [
        (report.task, report.attempt, report.result)
        for (_, report), outcome in zip(reports, outcomes, strict=True)
        if report.result is not None and isinstance(outcome, Done) and not outcome.echo
    ]
    corridor.txn.attempts.add_results(rows)
    took = [
        (report.task, report.attempt, *_took(report.stats))
        for (_, report), outcome in zip(reports, outcomes, strict=True)
        if report.stats is not None and isinstance(outcome, Done) and not outcome.echo
    ]
    corridor.txn.traces.add_stats(took)


def _took(stats: Stats) -> Row:
    phases = (stats.prepared_ms, stats.ran_ms, stats.uploaded_ms)
    return (*phases, stats.cpu_s, stats.memory_bytes, stats.read_bytes, stats.written_bytes, int(stats.truncated))
