"""The room where attempts end: a bot says how, and the budget says whether the task is tried again.

Every word is matched to its attempt and its lease first. What is told twice is an echo; what is told about a lease
that is no longer the bot's is refused and changes nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from taskyard.core import attempt_policy
from taskyard.core.attempt_policy import Ruling
from taskyard.core.ids import Key, text_of
from taskyard.core.states import LEASED, REASONS, STOPPED, Millis, Outcome, Reason, Signal
from taskyard.lifecycle import propagate
from taskyard.lifecycle.commands import (
    Begun,
    Code,
    Done,
    Output,
    OutputStored,
    Publish,
    Refusal,
    Renewal,
    Renewed,
    Report,
)
from taskyard.lifecycle.lost_attempts import costs_nothing
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.queries import Row
from taskyard.store.repo.output import OutputSize
from taskyard.store.rows import TaskRecord
from taskyard.wire.bot_protocol import Stats

#: The words of every life, by names of their own: a word is slow to get at through its class.
_LOSE: Final = Signal.LOSE
_EXIT_CODE: Final = Reason.EXIT_CODE
_MOVE: Final = Outcome.MOVE
_NO_STATS: Final = Stats()


def end_attempts(transaction: Transaction, reports: Sequence[tuple[str, Report]]) -> list[Done | Refusal]:
    """End attempts as their bots say; each report comes with the bot that sent it."""
    tasks = transaction.lock_tasks({report.task for _, report in reports})
    propagate.prefetch(transaction, tasks)
    outcomes: list[Done | Refusal] = []
    moves: dict[int, Transition] = {}
    for bot, report in reports:
        if report.task in moves:  # the same task again is judged by where the first word has led it
            transaction.apply(list(moves.values()))
            moves = {}
        outcomes.append(_judge(transaction, tasks.get(report.task), bot, report, moves))
    transaction.apply(list(moves.values()))
    _keep_results(transaction, reports, outcomes)
    return outcomes


def _judge(
    transaction: Transaction, task: TaskRecord | None, bot: str, report: Report, moves: dict[int, Transition]
) -> Done | Refusal:
    if task is None:
        return Refusal(Code.NOT_FOUND, f"there is no task {text_of(Key(report.task))}")
    if not _is_theirs(task, bot, report):
        is_echo = _was_told(transaction, task, bot, report)
        return Done(task.id, task.state, echo=True) if is_echo else _lost(task, report)
    ruling = _ruling(transaction, task, report)
    if ruling.outcome is _MOVE:
        moves[task.id] = _move(task, report, ruling)
        return Done(task.id, ruling.target)
    return Done(task.id, ruling.target, echo=True) if ruling.outcome is Outcome.ECHO else _lost(task, report)


def _ruling(transaction: Transaction, task: TaskRecord, report: Report) -> Ruling:
    life, rules, now = task.life, task.rules, transaction.now
    why = report.reason
    if report.signal is _LOSE and why is not None and life.state in LEASED and costs_nothing(transaction, task, why):
        return attempt_policy.spare(life, rules, why, now)
    return attempt_policy.report(life, rules, report.attempt, report.signal, now, report.exit_code)


def _is_theirs(task: TaskRecord, bot: str, report: Report) -> bool:
    life = task.life
    holds = task.bot == bot if life.state in LEASED else True  # an ended attempt is told apart by its fence
    return holds and report.attempt == life.attempt and report.fence == task.fence


def _was_told(transaction: Transaction, task: TaskRecord, bot: str, report: Report) -> bool:
    """Tell whether a word about an older attempt is just what its bot said of it then."""
    if not 0 < report.attempt < task.life.attempt:
        return False
    older = (one for one in transaction.repo.attempts.of(task.id) if one.number == report.attempt)
    return any((one.bot, one.fence, one.signal) == (bot, report.fence, report.signal.text) for one in older)


def _lost(task: TaskRecord, report: Report) -> Refusal:
    return Refusal(
        Code.LEASE_LOST,
        f"cannot {report.signal} attempt {report.attempt} of task {text_of(Key(task.id))}: "
        f"it is {task.state} (attempt {task.life.attempt}{f', bot {task.bot}' if task.bot else ''})",
    )


def _move(task: TaskRecord, report: Report, ruling: Ruling) -> Transition:
    signal = report.signal
    if signal is _LOSE:
        task.avoid_bot = task.bot
    return Transition(task, signal, ruling.life_after, _why(report, ruling), None, report.exit_code)


def _why(report: Report, ruling: Ruling) -> Reason:
    """Say why an attempt ended; where the rules know of an exit code only, its bot may know better."""
    known = None if ruling.reason is _EXIT_CODE else ruling.reason
    return known or report.reason or REASONS[report.signal]


def _keep_results(
    transaction: Transaction, reports: Sequence[tuple[str, Report]], outcomes: Sequence[Done | Refusal]
) -> None:
    rows = [
        (report.task, report.attempt, bytes(report.result).decode())
        for (_, report), outcome in zip(reports, outcomes, strict=True)
        if bytes(report.result) and isinstance(outcome, Done) and not outcome.echo
    ]
    transaction.repo.attempts.add_results(rows)
    took = [
        (report.task, report.attempt, *_took(report.stats), int(report.truncated))
        for (_, report), outcome in zip(reports, outcomes, strict=True)
        if (report.stats is not None or report.truncated) and isinstance(outcome, Done) and not outcome.echo
    ]
    transaction.repo.output.add_stats(took)


def _took(stats: Stats | None) -> Row:
    stats = stats or _NO_STATS
    phases = (stats.prepared_ms, stats.ran_ms, stats.uploaded_ms)
    return (*phases, stats.cpu_s, stats.memory_bytes, stats.read_bytes, stats.written_bytes)


# The room where leases go on: a bot says that it is still at its attempts, and hears if one should stop.


#: How a bot itself says that an attempt has ended.
_ASSIGNED: Final = Reason.ASSIGNED.text
_RESULTS: Final = frozenset({Signal.SUCCEED, Signal.FAIL})


def renew(transaction: Transaction, renewals: Sequence[tuple[str, Renewal]]) -> list[Renewed | Refusal]:
    """Lengthen leases; each renewal comes with the bot that sent it."""
    tasks = transaction.lock_tasks({renewal.task for _, renewal in renewals})
    return [_renew(transaction, tasks.get(renewal.task), bot, renewal) for bot, renewal in renewals]


def _renew(transaction: Transaction, task: TaskRecord | None, bot: str, renewal: Renewal) -> Renewed | Refusal:
    if task is None or (renewal.attempt, renewal.fence) != (task.life.attempt, task.fence):
        return _renew_lost(renewal)
    if task.state not in LEASED:
        # A renewal that its own result has overtaken is welcome; what the clock has ended is lost.
        return Renewed(task.id, renewal.attempt, None) if task.life.ended in _RESULTS else _renew_lost(renewal)
    if task.bot != bot:
        return _renew_lost(renewal)
    assert task.lease_until_ms is not None, "what a bot has is leased"
    until = attempt_policy.lease_until(transaction.now, transaction.lease_ms, task.rules.deadline_ms)
    if until is not None and until > task.lease_until_ms:
        task.lease_until_ms = until
        task.due_ms = attempt_policy.due_at(task.life, task.rules, until, transaction.now)
        transaction.mark_changed(task)
    # Past its deadline a lease is not lengthened, but it is the bot's: how the attempt ends is about to be told.
    return Renewed(task.id, renewal.attempt, Millis(task.lease_until_ms), stop=task.state in STOPPED)


def record_begun(transaction: Transaction, begun: Sequence[tuple[str, Begun]]) -> None:
    """Note which attempts have begun; each comes with the bot that says so. What is not the bot's changes nothing."""
    tasks = transaction.lock_tasks({one.task for _, one in begun})
    for bot, one in begun:
        task = tasks.get(one.task)
        if task is None or task.reason != _ASSIGNED:
            continue
        if (task.bot, task.life.attempt, task.fence) == (bot, one.attempt, one.fence):
            task.reason = Reason.UNDER_WAY.text
            transaction.mark_changed(task)


def _renew_lost(renewal: Renewal) -> Refusal:
    return Refusal(
        Code.LEASE_LOST, f"attempt {renewal.attempt} of task {text_of(Key(renewal.task))} is not yours any more"
    )


# The room for what attempts say while they run: their output, in pieces by offset, their progress and checkpoints.
#
# A piece is kept once, whatever is sent twice; one that would leave a gap is not kept, and the answer says where the
# next has to begin. Only whoever has the lease is heard.


#: How much of what one attempt prints is kept. A log that is longer is read by nobody; it belongs in a file.
OUTPUT_MAX: Final = 67_108_864
_NOTHING: Final = OutputSize()


def store_output(transaction: Transaction, outputs: Sequence[tuple[str, Output]]) -> list[OutputStored | Refusal]:
    """Keep what attempts printed; each piece comes with the bot that sent it."""
    if not outputs:
        return []
    ids = {output.task for _, output in outputs}
    tasks, printed = transaction.lock_tasks(ids), transaction.repo.output.last_chunks(ids)
    rows: list[Row] = []
    kept = [_keep(tasks.get(output.task), bot, output, transaction.now, printed, rows) for bot, output in outputs]
    transaction.repo.output.add_chunks(rows)
    return kept


def store_progress(transaction: Transaction, renewals: Iterable[tuple[str, Renewal]]) -> None:
    """Keep what attempts say of themselves."""
    said = [(bot, one) for bot, one in renewals if one.progress is not None or one.checkpoint is not None]
    if not said:
        return
    tasks = transaction.lock_tasks({one.task for _, one in said})
    heard = [one for bot, one in said if holds_lease(tasks.get(one.task), bot, one.attempt, one.fence)]
    transaction.repo.output.set_progress(
        [(one.task, one.attempt, transaction.now, one.progress, one.checkpoint) for one in heard]
    )


def holds_lease(task: TaskRecord | None, bot: str | None, attempt: int, fence: int) -> bool:
    """Tell whether an attempt is under way by this lease; by any bot, if none is named."""
    return (
        task is not None
        and task.state in LEASED
        and (bot is None or task.bot == bot)
        and (attempt, fence) == (task.life.attempt, task.fence)
    )


def _keep(
    task: TaskRecord | None, bot: str, output: Output, now: Millis, printed: dict[int, OutputSize], rows: list[Row]
) -> OutputStored | Refusal:
    if task is None or (output.attempt, output.fence) != (task.life.attempt, task.fence):
        return _printing_lost(output)
    had = printed.get(task.id, _NOTHING)
    end = output.start + len(output.body)
    if end <= had.size:
        return OutputStored(
            task.id, output.attempt, had.size
        )  # it is there already, even if the attempt has ended since
    if not holds_lease(task, bot, output.attempt, output.fence):
        return _printing_lost(output)
    if output.start > had.size:
        return OutputStored(task.id, output.attempt, had.size)
    body = output.body[had.size - output.start : OUTPUT_MAX - output.start]
    if body:
        rows.append((task.id, output.attempt, had.chunks + 1, had.size, now, body))
        printed[task.id] = OutputSize(had.chunks + 1, had.size + len(body))
    return OutputStored(task.id, output.attempt, had.size + len(body))


def _printing_lost(output: Output) -> Refusal:
    return Refusal(
        Code.LEASE_LOST,
        f"attempt {output.attempt} of task {text_of(Key(output.task))} is not the bot's: what it prints is not kept",
    )


# The room where a running task speaks for itself: its result so far, its progress, what its next attempt should get.
#
# Only the attempt that is under way is heard. What it published is what its dependents get if it ends well, unless its
# bot brings another result with the end.


def publish(transaction: Transaction, one: Publish) -> Refusal | None:
    """Keep what a running task says of itself."""
    task = transaction.lock_tasks([one.task]).get(one.task)
    if not holds_lease(task, None, one.attempt, one.fence):
        return Refusal(
            Code.LEASE_LOST, f"attempt {one.attempt} of task {text_of(Key(one.task))} is over: nobody hears it any more"
        )
    if one.result is not None:
        transaction.repo.attempts.add_results([(one.task, one.attempt, one.result)])
    if one.progress is not None or one.checkpoint is not None:
        row = (one.task, one.attempt, transaction.now, one.progress, one.checkpoint)
        transaction.repo.output.set_progress([row])
    return None
