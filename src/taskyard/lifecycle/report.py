"""What bots report about their attempts: their ends, renewals of leases, output, progress, checkpoints and results.

When an attempt ends, the attempt policy says whether the task is tried again. Every report is first matched to its
attempt and lease. A repeated report is an echo; a report about a lease that the bot no longer has is refused and
changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from taskyard.core import attempt_policy, fleet
from taskyard.core.attempt_policy import Ruling
from taskyard.core.ids import Key, text_of
from taskyard.core.states import LEASED, REASONS, STOPPED, Millis, Outcome, Reason, Signal
from taskyard.lifecycle import propagate
from taskyard.lifecycle.bot_care import count_failures
from taskyard.lifecycle.commands import (
    Begun,
    Code,
    Done,
    Output,
    OutputStored,
    Publish,
    PublishFiles,
    Refusal,
    Renewal,
    Renewed,
    Report,
)
from taskyard.lifecycle.definitions import external_lease_ms
from taskyard.lifecycle.lost_attempts import costs_nothing, is_poison
from taskyard.lifecycle.transaction import Transaction
from taskyard.lifecycle.transition import Transition
from taskyard.store.queries import Row
from taskyard.store.repo.output import OutputSize
from taskyard.store.rows import TaskRecord
from taskyard.wire.bot_protocol import Stats

#: Aliases of enum members: together they save a twentieth of the instructions of a life (`benchmarks.lives`, 64).
_LOSE: Final = Signal.LOSE
_EXIT_CODE: Final = Reason.EXIT_CODE
_NO_STATS: Final = Stats()
_MOVE: Final = Outcome.MOVE


def end_attempts(transaction: Transaction, reports: Sequence[tuple[str, Report]]) -> list[Done | Refusal]:
    """End attempts as their bots report; each report comes with the bot that sent it."""
    tasks = transaction.lock_tasks({report.task for _, report in reports})
    propagate.prefetch(transaction, tasks)
    outcomes: list[Done | Refusal] = []
    transitions: dict[int, Transition] = {}
    first = 0
    for place, (bot, report) in enumerate(reports):
        if report.task in transitions:  # a second report about a task is judged by its state after the first
            _end(transaction, reports[first:place], outcomes[first:], transitions)
            first, transitions = place, {}
        outcomes.append(_judge(transaction, tasks.get(report.task), bot, report, transitions))
    _end(transaction, reports[first:], outcomes[first:], transitions)
    count_failures(
        transaction,
        {
            bot
            for (bot, report), outcome in zip(reports, outcomes, strict=True)
            if report.signal is _LOSE
            and report.reason is not Reason.MISSING
            and isinstance(outcome, Done)
            and not outcome.echo
        },
    )
    return outcomes


def _end(
    transaction: Transaction,
    reports: Sequence[tuple[str, Report]],
    outcomes: Sequence[Done | Refusal],
    transitions: Mapping[int, Transition],
) -> None:
    """Store what the attempts leave, before dependents and equal tasks need it, and end them."""
    _keep_results(transaction, reports, outcomes)
    transaction.apply(list(transitions.values()))


def _judge(
    transaction: Transaction, task: TaskRecord | None, bot: str, report: Report, transitions: dict[int, Transition]
) -> Done | Refusal:
    if task is None:
        return Refusal(Code.NOT_FOUND, f"there is no task {text_of(Key(report.task))}")
    if not _has_lease(task, bot, report):
        is_echo = _was_reported(transaction, task, bot, report)
        return Done(task.id, task.state, echo=True) if is_echo else _lost(task, report)
    ruling = _ruling(transaction, task, report)
    if ruling.outcome is _MOVE:
        transitions[task.id] = _transition(task, report, ruling)
        return Done(task.id, ruling.target)
    return Done(task.id, ruling.target, echo=True) if ruling.outcome is Outcome.ECHO else _lost(task, report)


def _ruling(transaction: Transaction, task: TaskRecord, report: Report) -> Ruling:
    life, rules, now = task.life, task.rules, transaction.now
    if report.signal is _LOSE and life.state in LEASED:
        if report.reason is not None and costs_nothing(transaction, task, report.reason):
            return attempt_policy.spare(life, rules, report.reason, now)
        if report.reason is Reason.MISSING:
            return attempt_policy.unrunnable(life, rules, now)
        if is_poison(transaction, task):
            return attempt_policy.poisoned(life, rules, now)
    return attempt_policy.report(life, rules, report.attempt, report.signal, now, report.exit_code)


def _has_lease(task: TaskRecord, bot: str, report: Report) -> bool:
    life = task.life
    holds = task.bot == bot if life.state in LEASED else True  # an ended attempt is identified by its fence
    return holds and report.attempt == life.attempt and report.fence == task.fence


def _was_reported(transaction: Transaction, task: TaskRecord, bot: str, report: Report) -> bool:
    """Whether a report about an older attempt repeats what its bot reported then."""
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


def _transition(task: TaskRecord, report: Report, ruling: Ruling) -> Transition:
    signal = report.signal
    if signal is _LOSE:
        task.avoid_bot = task.bot
    return Transition(task, signal, ruling.life_after, _reason(report, ruling), None, report.exit_code)


def _reason(report: Report, ruling: Ruling) -> Reason:
    """Return why an attempt ended. If the policy only sees an exit code or a loss, its bot may know more."""
    if ruling.reason is Reason.BOT_LOST and report.reason is Reason.BOT_FAILED:
        return Reason.BOT_FAILED
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
    stats = [
        (report.task, report.attempt, *_stats_row(report.stats), int(report.truncated))
        for (_, report), outcome in zip(reports, outcomes, strict=True)
        if (report.stats is not None or report.truncated) and isinstance(outcome, Done) and not outcome.echo
    ]
    transaction.repo.output.add_stats(stats)


def _stats_row(stats: Stats | None) -> Row:
    stats = stats or _NO_STATS
    before = (stats.prepared_ms, stats.cached_ms, stats.downloaded_ms)
    after = (stats.uploaded_ms, stats.cleaned_ms)
    return (*before, stats.ran_ms, *after, stats.cpu_s, stats.memory_bytes, stats.read_bytes, stats.written_bytes)


# Renewals: a bot says that it still runs its attempts, and learns which of them it has to stop.


#: A claimed attempt that has not begun.
_ASSIGNED: Final = Reason.ASSIGNED.text
#: The signals by which a bot reports the end of an attempt.
_RESULTS: Final = frozenset({Signal.SUCCEED, Signal.FAIL})


def renew(transaction: Transaction, renewals: Sequence[tuple[str, Renewal]]) -> list[Renewed | Refusal]:
    """Extend leases; each renewal comes with the bot that sent it."""
    tasks = transaction.lock_tasks({renewal.task for _, renewal in renewals})
    return [_renew(transaction, tasks.get(renewal.task), bot, renewal) for bot, renewal in renewals]


def _renew(transaction: Transaction, task: TaskRecord | None, bot: str, renewal: Renewal) -> Renewed | Refusal:
    if task is None or (renewal.attempt, renewal.fence) != (task.life.attempt, task.fence):
        return _refuse_renewal(renewal)
    if task.state not in LEASED:
        # A renewal that comes after its own result is an echo; an attempt that a timeout has ended is lost.
        return Renewed(task.id, renewal.attempt, None) if task.life.ended in _RESULTS else _refuse_renewal(renewal)
    if task.bot != bot:
        return _refuse_renewal(renewal)
    assert task.lease_until_ms is not None, "a leased task has a lease"
    lasts_ms = external_lease_ms(transaction.repo, task) if fleet.is_external(bot) else transaction.lease_ms
    until = attempt_policy.lease_until(transaction.now, lasts_ms, task.rules.deadline_ms)
    if until is not None and until > task.lease_until_ms:
        task.lease_until_ms = until
        task.due_ms = attempt_policy.due_at(task.life, task.rules, until, transaction.now)
        transaction.mark_changed(task)
    # Past its deadline a lease is not extended, but the bot still has it and is about to report the end.
    return Renewed(task.id, renewal.attempt, Millis(task.lease_until_ms), stop=task.state in STOPPED)


def record_begun(transaction: Transaction, begun: Sequence[tuple[str, Begun]]) -> None:
    """Record which attempts have begun; each comes with the bot that says so. Attempts of other bots do not change."""
    tasks = transaction.lock_tasks({one.task for _, one in begun})
    for bot, one in begun:
        task = tasks.get(one.task)
        if task is None or task.reason != _ASSIGNED:
            continue
        if (task.bot, task.life.attempt, task.fence) == (bot, one.attempt, one.fence):
            task.reason = Reason.UNDER_WAY.text
            transaction.mark_changed(task)


def _refuse_renewal(renewal: Renewal) -> Refusal:
    return Refusal(
        Code.LEASE_LOST, f"attempt {renewal.attempt} of task {text_of(Key(renewal.task))} is no longer yours"
    )


# Output, in chunks by offset. A chunk is stored once, even if it is sent twice; one that would leave a gap is not
# stored, and the answer says where the next has to begin. Only the bot that has the lease can add output.


#: How many bytes of the output of one attempt are stored. A longer log belongs in a file.
OUTPUT_MAX: Final = 67_108_864
_NO_OUTPUT: Final = OutputSize()


def store_output(transaction: Transaction, outputs: Sequence[tuple[str, Output]]) -> list[OutputStored | Refusal]:
    """Store the output of attempts; each chunk comes with the bot that sent it."""
    if not outputs:
        return []
    ids = {output.task for _, output in outputs}
    tasks, printed = transaction.lock_tasks(ids), transaction.repo.output.last_chunks(ids)
    rows: list[Row] = []
    stored = [
        _store_chunk(tasks.get(output.task), bot, output, transaction.now, printed, rows) for bot, output in outputs
    ]
    transaction.repo.output.add_chunks(rows)
    transaction.note_printed(ids)
    return stored


def store_progress(transaction: Transaction, renewals: Iterable[tuple[str, Renewal]]) -> None:
    """Store the progress and checkpoints of attempts; each renewal comes with the bot that sent it."""
    new = [(bot, one) for bot, one in renewals if one.progress is not None or one.checkpoint is not None]
    if not new:
        return
    tasks = transaction.lock_tasks({one.task for _, one in new})
    valid = [one for bot, one in new if holds_lease(tasks.get(one.task), bot, one.attempt, one.fence)]
    transaction.repo.output.set_progress(
        [(one.task, one.attempt, transaction.now, one.progress, one.checkpoint) for one in valid]
    )


def holds_lease(task: TaskRecord | None, bot: str | None, attempt: int, fence: int) -> bool:
    """Whether an attempt runs under this lease, at any bot if `bot` is None."""
    return (
        task is not None
        and task.state in LEASED
        and (bot is None or task.bot == bot)
        and (attempt, fence) == (task.life.attempt, task.fence)
    )


def _store_chunk(
    task: TaskRecord | None, bot: str, output: Output, now: Millis, printed: dict[int, OutputSize], rows: list[Row]
) -> OutputStored | Refusal:
    if task is None or (output.attempt, output.fence) != (task.life.attempt, task.fence):
        return _refuse_output(output)
    had = printed.get(task.id, _NO_OUTPUT)
    end = output.start + len(output.body)
    if end <= had.size:
        return OutputStored(
            task.id, output.attempt, had.size
        )  # it is stored already, even if the attempt has ended since
    if not holds_lease(task, bot, output.attempt, output.fence):
        return _refuse_output(output)
    if output.start > had.size:
        return OutputStored(task.id, output.attempt, had.size)
    body = output.body[had.size - output.start : OUTPUT_MAX - output.start]
    if body:
        rows.append((task.id, output.attempt, had.chunks + 1, had.size, now, body))
        printed[task.id] = OutputSize(had.chunks + 1, had.size + len(body))
    return OutputStored(task.id, output.attempt, had.size + len(body))


def _refuse_output(output: Output) -> Refusal:
    return Refusal(
        Code.LEASE_LOST,
        f"attempt {output.attempt} of task {text_of(Key(output.task))} is not the bot's: its output is not stored",
    )


# What a running task publishes itself: its result so far, its progress, and a checkpoint for its next attempt.
# Dependents get the published result if the attempt succeeds, unless its bot reports another one with the end.


def publish(transaction: Transaction, one: Publish) -> Refusal | None:
    """Store what a running task publishes."""
    task = transaction.lock_tasks([one.task]).get(one.task)
    if not holds_lease(task, None, one.attempt, one.fence):
        return Refusal(
            Code.LEASE_LOST, f"attempt {one.attempt} of task {text_of(Key(one.task))} has ended: it can publish nothing"
        )
    if one.result is not None:
        transaction.repo.attempts.add_results([(one.task, one.attempt, one.result)])
    if one.progress is not None or one.checkpoint is not None:
        row = (one.task, one.attempt, transaction.now, one.progress, one.checkpoint)
        transaction.repo.output.set_progress([row])
    return None


def publish_files(transaction: Transaction, one: PublishFiles) -> Refusal | None:
    """Store which files a running task leaves."""
    task = transaction.lock_tasks([one.task]).get(one.task)
    if not holds_lease(task, None, one.attempt, one.fence):
        return Refusal(
            Code.LEASE_LOST, f"attempt {one.attempt} of task {text_of(Key(one.task))} has ended: it can keep no files"
        )
    if one.tree is not None:
        transaction.repo.files.set_outputs([(one.task, one.attempt, one.pool, *one.tree)])
    transaction.repo.files.set_artifacts(
        [
            (one.task, one.attempt, made.name, one.pool, made.tree, made.path, made.size, made.content_type)
            for made in one.artifacts
        ]
    )
    return None
