"""Who has heard what: a task that has more to tell than fits into one transaction leaves a note.

Whoever a note is for is told page by page, in the order of their ids; while it is open, later moves of the same task
are told them by notes too, one after the other. So everybody has always heard a first part of a task's moves, and
`heard_by` says which. What dependents hear and what prerequisites hear does not wait for each other. A note counts as
active, so its graph cannot finish meanwhile. Nothing here tells anything.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from taskyard.core.words import State
from taskyard.store.records import Note, TaskRecord
from taskyard.store.txn import Txn

if TYPE_CHECKING:
    from taskyard.lifecycle.moves import Corridor

#: The note "tell the dependents of this task".
TELL: Final = "tell"
#: The note "tell the prerequisites of this task, for it may deal with their failures now, or no more".
DEAL: Final = "deal"
#: The same of a task that ran to its end. Until it is done nobody in the graph is rerun: else the run would count for
#: a failure that came after it.
RAN: Final = "ran"
#: The notes that dependents wait for, and those that prerequisites wait for.
TELLING: Final = frozenset({TELL})
DEALING: Final = frozenset({DEAL, RAN})

Edge = TypeVar("Edge")


def heard_by(listener: int, state: State, notes: Iterable[Note]) -> State:
    """Say where `listener` thinks a task is that is in `state` and has these notes open for it, in order."""
    for note in notes:
        if note.source is not None and note.cursor <= listener:
            return State(note.source)
    return state


def has_heard(listener: int, notes: Iterable[Note]) -> bool:
    """Tell whether a listener has heard everything about a task with these notes."""
    return all(note.cursor > listener for note in notes)


def notes_of(corridor: "Corridor", tasks: Iterable[TaskRecord], kinds: frozenset[str]) -> dict[int, list[Note]]:
    """Read what tasks have still to tell, in order; whoever is missing has told everything."""
    return notes_about(corridor, {task.id for task in tasks if task.telling}, kinds)


def notes_about(corridor: "Corridor", ids: Iterable[int], kinds: frozenset[str]) -> dict[int, list[Note]]:
    """Read what the tasks with these ids have still to tell."""
    found: dict[int, list[Note]] = defaultdict(list)
    for note in corridor.txn.notes.about(sorted(ids)):
        if note.task is not None and note.kind in kinds:
            found[note.task].append(note)
    return found


def first_of(txn: Txn, note: Note) -> Note:
    """Find the note that those who wait for a note of a task have to hear first."""
    assert note.task is not None
    kinds = DEALING if note.kind in DEALING else TELLING
    return next(one for one in txn.notes.about([note.task]) if one.kind in kinds)


def leave(corridor: "Corridor", left: Sequence[tuple[str, TaskRecord, State, State]]) -> None:
    """Promise to tell later: a kind of note, a task, and from where to where it went."""
    rows = [(kind, task.graph, task.id, str(source), str(target), "", "") for kind, task, source, target in left]
    corridor.txn.notes.add(rows)
    for _, task, _, _ in left:
        task.telling += 1
        corridor.change(task)
        corridor.count(task.graph, active=1)


def close(corridor: "Corridor", task: TaskRecord, note: Note) -> None:
    """A note of a task is done."""
    corridor.txn.notes.drop(note.id)
    task.telling -= 1
    corridor.change(task)
    corridor.count(task.graph, active=-1)


def whole(edges: list[Edge], listener: Callable[[Edge], int]) -> list[Edge]:
    """Leave the last listener of a page to the next one, since not all of its edges may be here."""
    last = listener(edges[-1])
    found = [edge for edge in edges if listener(edge) != last]
    assert found, "there are more edges between two tasks than there are kinds of edges"
    return found
