"""A glance at a poll: true only of what scrutiny finds no fault with, and of nearly every poll there is.

Bots poll all the time, and to read every field by its table takes longer than to carry the poll out.
"""

from taskyard.core.graph.limits import NAME_MAX
from taskyard.core.words import Reason, Signal
from taskyard.engine.bounds import (
    CHECKPOINT_MAX,
    EXIT_CODE_MAX,
    EXIT_CODE_MIN,
    NUMBER_MAX,
    OUTPUTS_MAX,
    PIECE_MAX,
    POLL_WORDS_MAX,
    PROGRESS_MAX,
    REASONS_OF_BOTS,
    RESULT_MAX,
    RESULTS_MAX,
)
from taskyard.lifecycle.commands import Begun, Output, Poll, Renewal, Report, Stats


def is_plain(one: Poll) -> bool:
    """Tell at a glance that nothing is wrong with a poll."""
    return (
        type(one) is Poll
        and _is_plain_name(one.bot)
        and _is_plain_name(one.session)
        and (_is_plain_name(one.poll) or one.poll == "")
        and type(one.want) is int
        and 0 <= one.want <= NUMBER_MAX
        and type(one.reports) is tuple
        and type(one.renewals) is tuple
        and len(one.reports) <= POLL_WORDS_MAX
        and len(one.renewals) <= POLL_WORDS_MAX
        and _are_plain_reports(one.reports)
        and all(map(_is_plain_renewal, one.renewals))
        and _is_bool(one.waits)
        and _is_bool(one.briefed)
        and (one.pool is None or _is_plain_name(one.pool))
        and type(one.outputs) is tuple
        and (not one.outputs or _are_plain_outputs(one.outputs))
        and (one.begun is None or _are_plain_begun(one.begun))
    )


def _is_bool(one: object) -> bool:
    return type(one) is bool


def _is_plain_name(name: object) -> bool:
    return (
        type(name) is str
        and 0 < len(name) <= NAME_MAX
        and name.isascii()
        and name.isprintable()
        and name[0] != " "
        and name[-1] != " "
    )


def _are_plain_reports(reports: tuple[Report, ...]) -> bool:
    return all(map(_is_plain_report, reports)) and (
        len(reports) * RESULT_MAX <= RESULTS_MAX or sum(len(one.result or "") for one in reports) <= RESULTS_MAX
    )


def _is_plain_report(one: Report) -> bool:
    return (
        type(one) is Report
        and _is_plain_lease(one.task, one.attempt, one.fence)
        and (one.signal is Signal.SUCCEED or one.signal is Signal.FAIL)
        and (one.reason is None or (type(one.reason) is Reason and one.reason in REASONS_OF_BOTS))
        and (one.exit_code is None or (type(one.exit_code) is int and EXIT_CODE_MIN <= one.exit_code <= EXIT_CODE_MAX))
        and (one.result is None or _is_plain_text(one.result, RESULT_MAX))
        and (one.stats is None or _are_plain_stats(one.stats))
    )


def _are_plain_stats(one: Stats) -> bool:
    return (
        type(one) is Stats
        and _is_plain_number(one.prepared_ms)
        and _is_plain_number(one.ran_ms)
        and _is_plain_number(one.uploaded_ms)
        and (one.cpu_s is None or (type(one.cpu_s) is float and 0 <= one.cpu_s <= NUMBER_MAX))
        and _is_plain_number(one.memory_bytes)
        and _is_plain_number(one.read_bytes)
        and _is_plain_number(one.written_bytes)
        and type(one.truncated) is bool
    )


def _is_plain_number(one: object) -> bool:
    return one is None or (type(one) is int and 0 <= one <= NUMBER_MAX)


def _are_plain_outputs(outputs: tuple[Output, ...]) -> bool:
    return (
        len(outputs) <= POLL_WORDS_MAX
        and all(map(_is_plain_output, outputs))
        and sum(len(one.body) for one in outputs) <= OUTPUTS_MAX
    )


def _are_plain_begun(begun: tuple[Begun, ...]) -> bool:
    return (
        type(begun) is tuple
        and len(begun) <= POLL_WORDS_MAX
        and all(type(one) is Begun and _is_plain_lease(one.task, one.attempt, one.fence) for one in begun)
    )


def _is_plain_output(one: Output) -> bool:
    return (
        type(one) is Output
        and _is_plain_lease(one.task, one.attempt, one.fence)
        and type(one.start) is int
        and 0 <= one.start <= NUMBER_MAX
        and type(one.body) is bytes
        and len(one.body) <= PIECE_MAX
    )


def _is_plain_renewal(one: Renewal) -> bool:
    return (
        type(one) is Renewal
        and _is_plain_lease(one.task, one.attempt, one.fence)
        and (one.progress is None or _is_plain_text(one.progress, PROGRESS_MAX))
        and (one.checkpoint is None or (type(one.checkpoint) is bytes and len(one.checkpoint) <= CHECKPOINT_MAX))
    )


def _is_plain_lease(task: object, attempt: object, fence: object) -> bool:
    return (
        type(task) is int
        and type(attempt) is int
        and type(fence) is int
        and 0 <= task <= NUMBER_MAX
        and 1 <= attempt <= NUMBER_MAX
        and 0 <= fence <= NUMBER_MAX
    )


def _is_plain_text(text: object, longest: int) -> bool:
    return type(text) is str and 1 <= len(text) <= longest and text.isascii() and "\0" not in text
