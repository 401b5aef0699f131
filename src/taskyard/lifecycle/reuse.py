"""The room where a new graph takes over what an older one has done: its tasks succeed without having run.

All that is taken over at once is moved before anybody hears of it; where it takes several transactions, dependents are
moved before what they require. So nothing that is to be taken over is ever released by what it hangs on. Until all of
it is, no task that waits for nobody is released either. Nothing here knows what the older graph was.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from taskyard.core.machine import Outcome, step
from taskyard.core.words import Signal
from taskyard.lifecycle import reach
from taskyard.lifecycle.move import move_by
from taskyard.lifecycle.moves import Corridor
from taskyard.lifecycle.reach import Pages
from taskyard.store.records import Note
from taskyard.store.verbs.reuse import RerunRow

#: The note "these tasks are done because others were".
REUSE: Final = "reuse"
#: What the audit calls the wish to run something again.
RERUN: Final = "rerun"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a new graph runs again."""

    row: RerunRow
    told: str  # for people: from where on, and how much of it is taken over
    pages: Pages  # the tasks that are, dependents before what they require


def take_over(corridor: Corridor, ids: Collection[int]) -> None:
    """Let tasks succeed without having run, where they still can."""
    tasks = [task for task in corridor.look(ids).values() if step(task.state, Signal.REUSE).outcome is Outcome.MOVE]
    corridor.send([move_by(task, Signal.REUSE) for task in tasks])


def promise(corridor: Corridor, graph: int, origin: Origin, actor: str) -> None:
    """Leave notes to take over what a large graph is born with."""
    reach.promise(corridor, REUSE, graph, _filled(origin.pages), actor)


def reuse_page(corridor: Corridor, note: Note) -> bool:
    """Take over the tasks of a note; say that this was all."""
    if not corridor.canceled(note.graph):
        take_over(corridor, reach.promised(note))
    reach.keep_promise(corridor, note)
    return True


def _filled(pages: Pages) -> Sequence[Sequence[int]]:
    return [page for page in pages if page]
