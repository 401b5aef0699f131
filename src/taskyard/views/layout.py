"""The drawing of a graph: where its tasks are, and their states, as columns that are small to send."""

from collections.abc import Sequence
from typing import Final

from taskyard.core.ids import Key, text_of
from taskyard.core.layout import group, lay_out
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST
from taskyard.wire.api import GraphLayout, GraphStates

#: Graphs with more tasks or edges are not drawn: their layout would take seconds and tens of megabytes.
DRAWN_TASKS_MAX: Final = 100_000
DRAWN_EDGES_MAX: Final = 500_000
#: Graphs with more tasks are drawn as groups first.
WHOLE_TASKS_MAX: Final = 300
AUTO: Final = "auto"
TASKS: Final = "tasks"
GROUPS: Final = "groups"
VIEWS: Final = (AUTO, TASKS, GROUPS)


def layout(repo: Repo, graph: int, view: str) -> GraphLayout | None:
    """Lay out a graph as tasks or as groups of them; None if it is too large."""
    tasks = repo.read.labels_page(graph, FIRST, DRAWN_TASKS_MAX + 1)
    rows = repo.read.edges_of(graph, DRAWN_EDGES_MAX + 1)
    if len(tasks) > DRAWN_TASKS_MAX or len(rows) > DRAWN_EDGES_MAX:
        return None
    place = {id: number for number, (_, id) in enumerate(tasks)}
    # An edge to a task that is added at this moment is left out: the task is not there yet.
    known = [(place[row[0]], place[row[1]], row[2]) for row in rows if row[0] in place and row[1] in place]
    edges = [(source, target) for source, target, _ in known]
    labels = [label for label, _ in tasks]
    drawn = lay_out(len(tasks), edges)
    id = text_of(Key(graph))
    if view == GROUPS or (view == AUTO and len(tasks) > WHOLE_TASKS_MAX):
        found = group(labels, drawn.layers, edges)
        whole = lay_out(len(found.names), found.edges)
        between = [list(pair) for pair in found.edges]
        return GraphLayout(id, len(tasks), GROUPS, [], found.names, whole.x, whole.y, between, [], found.group_of)
    ids = [text_of(Key(one)) for _, one in tasks]
    pairs = [list(pair) for pair in edges]
    return GraphLayout(id, len(tasks), TASKS, ids, labels, drawn.x, drawn.y, pairs, [on for *_, on in known], [])


def states(repo: Repo, graph: int, times: bool) -> GraphStates:
    """Return the state of each task of a graph, in the order of its layout."""
    if not times:
        names, tasks = _numbered(repo.read.states_of(graph, DRAWN_TASKS_MAX))
        return GraphStates(text_of(Key(graph)), names, tasks)
    rows = repo.read.times_of(graph, DRAWN_TASKS_MAX)
    names, tasks = _numbered([row[0] for row in rows])
    bots, bot_of = _numbered([row[1] or "" for row in rows])
    known = [-1 if not bots[one] else one for one in bot_of]
    began, ended = [row[2] or 0 for row in rows], [row[3] or 0 for row in rows]
    return GraphStates(text_of(Key(graph)), names, tasks, began, ended, bots, known)


def _numbered(words: Sequence[str]) -> tuple[list[str], list[int]]:
    """Replace words by their places in a list of the different ones."""
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(word, len(numbers)) for word in words]
    return list(numbers), found
