"""Which room carries out which command, and in which order: one transaction for all that arrived together.

Whoever comes is greeted before anybody polls, and what people ask for is done before bots take tasks: so a poll sees
all that arrived with it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from taskyard.engine.naming import Named, extend_named, submit_named
from taskyard.engine.passage import Passage
from taskyard.lifecycle.approve import approve
from taskyard.lifecycle.bot_sessions import goodbye, hello
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.claim import WANT_MAX
from taskyard.lifecycle.commands import Approve, Cancel, Goodbye, Hello, Poll, Rerun
from taskyard.lifecycle.idempotency import keyed
from taskyard.lifecycle.poll import poll
from taskyard.lifecycle.rerun import rerun
from taskyard.lifecycle.submit import PAGE_MAX, Extension

#: How many bytes of output are written in the time that a task takes.
BYTES_PER_TASK: Final = 4_096

Command: TypeAlias = Poll | Hello | Goodbye | Cancel | Rerun | Approve | Named | Extension
_Room: TypeAlias = Callable[[Passage, Sequence[Any]], Sequence[object] | None]


def carry_out(passage: Passage, commands: Sequence[Command]) -> list[Any]:
    """Carry out commands; give an answer for each, in their order."""
    places: dict[type, list[int]] = defaultdict(list)
    for place, command in enumerate(commands):
        places[type(command)].append(place)
    answers: list[Any] = [None] * len(commands)
    for kind, room in _ROOMS.items():
        if kind in places:
            outcomes = room(passage, [commands[place] for place in places[kind]])
            for place, outcome in zip(places[kind], outcomes or (), strict=bool(outcomes)):
                answers[place] = outcome
    passage.promised = passage.promised or Cancel in places or Rerun in places
    return answers


def weight(command: Command) -> int:
    """Say about how many tasks a command touches."""
    if isinstance(command, Poll):
        printed = sum(len(one.body) for one in command.outputs) // BYTES_PER_TASK if command.outputs else 0
        said = len(command.reports) + len(command.renewals) + len(command.begun or ())
        return 1 + said + max(0, min(command.want, WANT_MAX)) + printed
    if isinstance(command, Named):
        return 1 + command.submission.brood.weight
    if isinstance(command, Extension):
        return 1 + command.brood.weight
    if isinstance(command, Cancel | Rerun):
        return 1 if command.task is not None and not getattr(command, "subtree", False) else PAGE_MAX
    return 1


_ROOMS: Final[Mapping[type, _Room]] = {
    Hello: hello,
    Goodbye: goodbye,
    Named: submit_named,
    Extension: extend_named,
    Cancel: lambda passage, commands: keyed(passage, commands, cancel),
    Rerun: lambda passage, commands: keyed(passage, commands, rerun),
    Approve: lambda passage, commands: keyed(passage, commands, approve),
    Poll: poll,
}
