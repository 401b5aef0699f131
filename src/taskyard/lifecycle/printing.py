"""The room for what attempts say while they run: their output, in pieces by offset, their progress and checkpoints.

A piece is kept once, whatever is sent twice; one that would leave a gap is not kept, and the answer says where the next
has to begin. Only whoever has the lease is heard.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.core.machine import LEASED
from taskyard.core.words import Millis
from taskyard.lifecycle.commands import Output, Renewal
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.outcomes import Code, Kept, Refusal
from taskyard.store.records import TaskRecord
from taskyard.store.sessions import Row
from taskyard.store.verbs.traces import Printed

#: How much of what one attempt prints is kept. A log that is longer is read by nobody; it belongs in a file.
OUTPUT_MAX: Final = 67_108_864
_NOTHING: Final = Printed()


def keep(corridor: Corridor, outputs: Sequence[tuple[str, Output]]) -> list[Kept | Refusal]:
    """Keep what attempts printed; each piece comes with the bot that sent it."""
    if not outputs:
        return []
    ids = {output.task for _, output in outputs}
    tasks, printed = corridor.look(ids), corridor.txn.traces.printed(ids)
    rows: list[Row] = []
    kept = [_keep(tasks.get(output.task), bot, output, corridor.now, printed, rows) for bot, output in outputs]
    corridor.txn.traces.add_chunks(rows)
    return kept


def note(corridor: Corridor, renewals: Iterable[tuple[str, Renewal]]) -> None:
    """Keep what attempts say of themselves."""
    said = [(bot, one) for bot, one in renewals if one.progress is not None or one.checkpoint is not None]
    if not said:
        return
    tasks = corridor.look({one.task for _, one in said})
    heard = [one for bot, one in said if is_leased(tasks.get(one.task), bot, one.attempt, one.fence)]
    corridor.txn.traces.note_progress(
        [(one.task, one.attempt, corridor.now, one.progress, one.checkpoint) for one in heard]
    )


def is_leased(task: TaskRecord | None, bot: str | None, attempt: int, fence: int) -> bool:
    """Tell whether an attempt is under way by this lease; by any bot, if none is named."""
    return (
        task is not None
        and task.state in LEASED
        and (bot is None or task.bot == bot)
        and (attempt, fence) == (task.life.attempt, task.fence)
    )


def _keep(
    task: TaskRecord | None, bot: str, output: Output, now: Millis, printed: dict[int, Printed], rows: list[Row]
) -> Kept | Refusal:
    if task is None or (output.attempt, output.fence) != (task.life.attempt, task.fence):
        return _lost(output)
    had = printed.get(task.id, _NOTHING)
    end = output.start + len(output.body)
    if end <= had.size:
        return Kept(task.id, output.attempt, had.size)  # it is there already, even if the attempt has ended since
    if not is_leased(task, bot, output.attempt, output.fence):
        return _lost(output)
    if output.start > had.size:
        return Kept(task.id, output.attempt, had.size)
    body = output.body[had.size - output.start : OUTPUT_MAX - output.start]
    if body:
        rows.append((task.id, output.attempt, had.chunks + 1, had.size, now, body))
        printed[task.id] = Printed(had.chunks + 1, had.size + len(body))
    return Kept(task.id, output.attempt, had.size + len(body))


def _lost(output: Output) -> Refusal:
    return Refusal(
        Code.LEASE_LOST,
        f"attempt {output.attempt} of task {text_of(Key(output.task))} is not the bot's: what it prints is not kept",
    )
