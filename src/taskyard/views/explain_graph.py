"""Why a graph does not go on: its root causes, grouped by what they have in common, most urgent first.

Tasks that wait for a prerequisite are only counted, because the cause is what holds the prerequisite. A limited number
of tasks is looked at, and the answer says whether these were all.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeAlias

from taskyard.core.explain import Why
from taskyard.core.explain_text import counted, names, state_says
from taskyard.core.graph.state import Tally, settled, unhandled
from taskyard.core.ids import Key, text_of
from taskyard.core.states import ACTIVE, BEHIND, UNSUCCESSFUL, Millis, State
from taskyard.store.connection import Repo
from taskyard.store.repo.read import FIRST, GraphRow
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock
from taskyard.views.explain import ExplainFacts, answers, reason_view, urgency
from taskyard.views.visibility import Visibility
from taskyard.wire.explain import WhyGraphView, WhyGroup

#: How many active tasks are looked at, and how many unsuccessful ones.
LOOKED_MAX: Final = 500
#: How many tasks of a group are named.
NAMED_MAX: Final = 20
#: How many dependents of failures are looked at, to find those that are blocked.
DEPENDENTS_MAX: Final = 2_000

_Member: TypeAlias = tuple[TaskRecord, Why]


def explain_graph(repo: Repo, graph: int, now: Millis, visibility: Visibility) -> WhyGraphView | None:
    """Return why a graph does not go on; None if it does not exist or is not loaded."""
    row = repo.read.graph(graph)
    if row is None:
        return None
    active, all_active = _page(repo, graph, ACTIVE)
    failed, all_failed = _page(repo, graph, UNSUCCESSFUL)
    records = [*_culprits(repo, failed), *active]
    members = list(zip(records, answers(ExplainFacts(repo, now, visibility, brief=True), records), strict=True))
    facts = ExplainFacts(repo, now, visibility)
    groups = [_group(facts, found) for found in _grouped(members)]
    known = deadlock.of_graph(repo, graph, visibility) if row.active else None
    return WhyGraphView(
        graph_id=text_of(Key(graph)),
        name=row.name,
        state=row.state,
        settled=settled(Tally(row.active, row.behind, row.unhandled)),
        sentence=_sentence(row, groups) + ("" if known is None else f"; {known.sentence}"),
        groups=groups,
        behind=row.behind,
        whole=all_active and all_failed,
        deadlock=known,
    )


def _page(repo: Repo, graph: int, states: Iterable[State]) -> tuple[list[TaskRecord], bool]:
    ids = repo.tasks.page(graph, states, FIRST, LOOKED_MAX + 1)
    return [one for one in repo.tasks.read(ids[:LOOKED_MAX]) if not one.loading], len(ids) <= LOOKED_MAX


def _culprits(repo: Repo, failed: Sequence[TaskRecord]) -> list[TaskRecord]:
    """Return the failures that hold the graph: those without a handler, and those that block another task."""
    handled = {one.id for one in failed if not unhandled(one.state, one.handlers)}
    edges = repo.edges.out_of(handled, DEPENDENTS_MAX) if handled else []
    behind = {one.id for one in repo.tasks.read({edge.dependent for edge in edges}) if one.state in BEHIND}
    blocking = {edge.prerequisite for edge in edges if edge.dependent in behind}
    return [one for one in failed if one.id not in handled or one.id in blocking]


def _grouped(members: Iterable[_Member]) -> list[list[_Member]]:
    found: dict[Hashable, list[_Member]] = {}
    for record, answer in sorted(members, key=lambda one: urgency(one[1])):
        found.setdefault(_alike(answer), []).append((record, answer))
    return list(found.values())


def _alike(answer: Why) -> Hashable:
    """Return what the answers of one group have in common."""
    about = answer.held.name if answer.held else None
    return answer.state, answer.reason, about, answer.dimensions if answer.bots else None


def _group(facts: ExplainFacts, members: Sequence[_Member]) -> WhyGroup:
    """Describe tasks with equal answers; only the first of them is explained in full."""
    record, brief = members[0]
    (answer,) = answers(facts, [record])
    first = reason_view(record, answer, facts.now)
    return WhyGroup(
        state=brief.state.text,
        reason=brief.reason.text,
        count=len(members),
        sentence=_group_says(members, first.sentence),
        tasks={why.label: text_of(Key(one.id)) for one, why in members[:NAMED_MAX]},
        example=first,
    )


def _group_says(members: Sequence[_Member], first: str) -> str:
    if len(members) == 1:
        return first
    labels = names(why.label for _, why in members)
    return f"{len(members)} tasks are {state_says(members[0][1].state)} ({labels}); {first}"


def _sentence(graph: GraphRow, groups: Sequence[WhyGroup]) -> str:
    start = f"{graph.name or text_of(Key(graph.id))} is {graph.state}"
    if not groups:
        return f"{start}: nothing holds it"
    others = len(groups) - 1
    more = f" (and {counted(others, 'more root cause')})" if others else ""
    behind = f"; {counted(graph.behind, 'task')} wait{'s' * (graph.behind == 1)} for others" if graph.behind else ""
    return f"{start}: {groups[0].sentence}{more}{behind}"
