"""Tasks: a page of a graph's tasks, one task in full, its attempts, and its output by range."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from taskyard.core.graph.errors import Fault
from taskyard.core.graph.model import routing_key
from taskyard.core.graph.payload import GRAPH_KINDS, input_trees
from taskyard.core.graph.rerun import named
from taskyard.core.ids import Key, text_of
from taskyard.core.matching import pool_of
from taskyard.core.states import ACTIVE, ENDED, LEASED, UNSUCCESSFUL, Millis, Reason, Signal, sources
from taskyard.core.structs import value
from taskyard.core.tags import all_tags
from taskyard.lifecycle.definitions import decoded
from taskyard.lifecycle.release import NO_BOT
from taskyard.store.connection import Repo
from taskyard.store.queries import Row
from taskyard.store.repo.bots import SnapshotRow
from taskyard.store.repo.output import StatsRow
from taskyard.store.repo.read import LastAttemptRow
from taskyard.store.repo.tasks import AttemptRow, ReusedAttempt
from taskyard.store.rows import TaskRecord
from taskyard.views import deadlock
from taskyard.views.explain import ExplainFacts, answers
from taskyard.views.visibility import Visibility
from taskyard.wire.api import (
    AttemptView,
    Edge,
    FilesRef,
    Identified,
    Ids,
    OutputTime,
    Parent,
    Resolution,
    Reused,
    Stats,
    TaskView,
)

#: How many edges of a task are shown, in each direction.
EDGES_MAX: Final = 10_000
#: How many graphs that end with a task are shown.
CHILDREN_MAX: Final = 100
#: The task-graph scheduler shows the graph as the dependent of tasks that have no other.
GRAPH: Final = "task-graph"
#: How many ids with one suffix are shown, and how many graphs and tasks are looked at for them.
SUFFIX_MAX: Final = 20
SUFFIX_LOOKED_MAX: Final = 500
_INNER: Final = frozenset(kind.text for kind in GRAPH_KINDS)


def find(repo: Repo, id: int) -> TaskRecord | None:
    """Read a task, unless it or its graph is still being loaded."""
    found = repo.tasks.read([id])
    if not found or found[0].loading or repo.read.graph(found[0].graph) is None:
        return None
    return found[0]


def pools(repo: Repo, record: TaskRecord) -> frozenset[str]:
    """Return the pools of a task: those of its slices, or those of its graph if the slices name none."""
    slices = decoded(repo.tasks.definitions([record.id])[record.id][1]).slices
    named = frozenset(pool_of(one.dimensions) for one in slices) - {""}
    return named or repo.graphs.pools_of([record.graph])[record.graph]


def task(repo: Repo, id: int, url: str, now: Millis, visibility: Visibility) -> TaskView | None:
    """Show one task in full; `url` is the address of the server."""
    record = find(repo, id)
    if record is None:
        return None
    (view,) = _views(repo, [record], url, _reasons(repo, [record], now, visibility))
    definition = repo.tasks.definitions([id])[id][1]
    slices = decoded(definition).slices
    files = repo.files.outputs(id).get(record.life.attempt)
    result = repo.read.last_results([id]).get(id)
    dependents = [text_of(Key(edge.dependent)) for edge in repo.edges.page_out_of(id, -1, EDGES_MAX)]
    return replace(
        view,
        requires=_requires(repo, id),
        dependents=[*dict.fromkeys(dependents)] or [GRAPH],
        definition=msgspec.Raw(definition.encode()),
        result=None if result is None else msgspec.Raw(result.encode()),
        deadlock=deadlock.of_task(repo, record, visibility) if record.state in ACTIVE else None,
        children=[
            text_of(Key(graph)) for graph in repo.task_list.children(id, CHILDREN_MAX) if visibility.graph(graph)
        ],
        input_trees=sorted({tree for one in slices for tree in input_trees(one.payload)}),
        files=None if files is None else FilesRef(files.tree, files.files, files.bytes),
    )


def tasks(repo: Repo, graph: int, after: int, wanted: tuple[str, str], count: int) -> tuple[list[int], int | None]:
    """Return ids of tasks of a graph after an id, in a state or with a label if given; and where the next page is."""
    state, label = wanted
    if label:
        found = repo.tasks.read(list(repo.tasks.with_labels(graph, [label]).values()))
        return [one.id for one in found if not one.loading and one.id > after and state in ("", one.state.text)], None
    ids = repo.read.tasks(graph, after, state, count + 1)
    return ids[:count], ids[count - 1] if len(ids) > count else None


def task_rows(repo: Repo, ids: Sequence[int], url: str, now: Millis, visibility: Visibility) -> list[TaskView]:
    """Show tasks in outline."""
    records = repo.tasks.read(ids)
    return _views(repo, records, url, _reasons(repo, records, now, visibility))


def parent_view(repo: Repo, attempt: tuple[int, int] | None) -> Parent | None:
    """Show the attempt with which a graph ends, or that it is; without the task's graph, if the task is deleted."""
    if attempt is None:
        return None
    found = repo.tasks.read([attempt[0]])
    return Parent(text_of(Key(attempt[0])), attempt[1], text_of(Key(found[0].graph)) if found else "")


def find_by_suffix(repo: Repo, digits: str, visibility: Visibility) -> Ids:
    """Find the graphs and tasks whose ids end in some digits, as far as the caller may see them."""
    graphs, tasks = repo.read.ids_ending_in(digits, SUFFIX_LOOKED_MAX)
    found = [
        *((id, id, "graph", row.name) for id in graphs if (row := repo.read.graph(id)) is not None),
        *((one.id, one.graph, "task", "") for id in tasks if (one := find(repo, id)) is not None),
    ]
    seen = sorted(one for one in found if visibility.graph(one[1]))
    labels = repo.tasks.definitions([id for id, _, kind, _ in seen[:SUFFIX_MAX] if kind == "task"])
    items = [
        Identified(text_of(Key(id)), kind, labels[id][0] if id in labels else name, text_of(Key(graph)))
        for id, graph, kind, name in seen[:SUFFIX_MAX]
    ]
    return Ids(items, len(seen) <= SUFFIX_MAX and max(len(graphs), len(tasks)) < SUFFIX_LOOKED_MAX)


def _requires(repo: Repo, id: int) -> list[Edge]:
    edges = repo.edges.page_into(id, -1, EDGES_MAX)
    labels = repo.tasks.definitions([edge.prerequisite for edge in edges])
    return [Edge(text_of(Key(edge.prerequisite)), labels[edge.prerequisite][0], edge.on.text) for edge in edges]


def _reasons(repo: Repo, records: Sequence[TaskRecord], now: Millis, visibility: Visibility) -> dict[int, str]:
    """Return the reasons of tasks that have not ended, as `why` gives them; rows have the reason of the last move."""
    open_ = [one for one in records if one.state not in ENDED]
    found = answers(ExplainFacts(repo, now, visibility, brief=True), open_)
    return {record.id: answer.reason.text for record, answer in zip(open_, found, strict=True)}


def _views(repo: Repo, records: Sequence[TaskRecord], url: str, reasons: Mapping[int, str]) -> list[TaskView]:
    ids = [record.id for record in records]
    definitions = repo.tasks.definitions(ids)
    runs, progress = repo.read.last_attempts(ids), repo.output.progress(ids)
    sources = repo.reuse.sources([record.id for record in records if _is_reused(record)])
    graphs = {graph: repo.graphs.definition(graph) for graph in {record.graph for record in records}}
    subgraphs = repo.graphs.subgraphs([record.id for record in records if record.kind in _INNER])
    unserved = [one.id for one in records if one.state in ENDED and one.reason == Reason.NO_BOT]
    notes = repo.read.audit_notes(unserved, NO_BOT)
    owners, parents = repo.task_list.owners(ids), repo.task_list.parents(graphs)
    views = []
    for record in records:
        label, definition = definitions[record.id]
        task = decoded(definition)
        key = _routing(record, graphs[record.graph], task.routing)
        run = runs[record.id]
        view = _with_reuse(_with_run(_view(record, label, key, url), run), sources.get(record.id), url)
        found = subgraphs.get((record.id, record.life.attempt))
        views.append(
            replace(
                view,
                reason=reasons.get(record.id, view.reason),
                note=notes.get(record.id),
                progress=progress.get(record.id),
                inner_graph=None if found is None else text_of(Key(found)),
                user=owners[record.id][1],
                authenticated=owners[record.id][0],
                tags=list(all_tags(task, owners[record.id][1])),
                parent=parent_view(repo, parents.get(record.graph)),
            )
        )
    return views


def _with_run(view: TaskView, run: LastAttemptRow) -> TaskView:
    """Add the last attempt; link to its result only if there is one."""
    started, ended, resolution = run.claimed_ms, run.ended_ms, view.resolution
    if resolution is not None and not run.has_result:
        resolution = replace(resolution, resultUrl=None)
    return replace(
        view,
        bot=view.bot or (run.bot if resolution is not None else None),
        exit_code=run.exit_code,
        started_ms=started,
        ended_ms=ended,
        duration_ms=None if started is None or ended is None else max(0, ended - started),
        resolution=resolution,
    )


def reused(source: ReusedAttempt | None) -> Reused | None:
    """Show the attempt that a task reuses."""
    if source is None:
        return None
    saved_ms = None if source.took_ms is None else max(0, source.took_ms)
    return Reused(text_of(Key(source.task)), text_of(Key(source.graph)), source.attempt, saved_ms)


def _is_reused(record: TaskRecord) -> bool:
    return record.state in ENDED and not record.life.attempt


def _with_reuse(view: TaskView, source: ReusedAttempt | None, url: str) -> TaskView:
    """Add the attempt that a task reuses; its output is that of the reused attempt."""
    found = reused(source)
    if found is None:
        return view
    at = f"{url}/api/v1/tasks"
    result = None if view.resolution is None else view.resolution.resultUrl
    return replace(view, reused=found, resolution=Resolution(False, result, f"{at}/{found.task}/output"))


def _routing(record: TaskRecord, definition: Row | None, routing: str) -> str:
    assert definition is not None, "a loaded graph has its definition"
    return routing_key(definition[0], text_of(Key(record.graph)), definition[2], routing)


def _view(record: TaskRecord, label: str, routing: str, url: str) -> TaskView:
    life, rules = record.life, record.rules
    return TaskView(
        id=text_of(Key(record.id)),
        graph_id=text_of(Key(record.graph)),
        label=label,
        state=record.state.text,
        reason=record.reason,
        kind=record.kind,
        attempt=life.attempt,
        created_ms=record.created_ms,
        moved_ms=record.moved_ms,
        priority=record.priority,
        bot=record.bot,
        slice_index=life.slice_index,
        routing=routing,
        rerunsAllowed=rules.reruns,
        rerunsLeft=max(0, rules.reruns - life.reruns_used),
        retries_left=max(0, rules.retries - life.retries_used),
        deadline_ms=rules.deadline_ms,
        not_before_ms=life.not_before_ms,
        resolution=_resolution(record, url),
    )


def _resolution(record: TaskRecord, url: str) -> Resolution | None:
    if record.state not in ENDED:
        return None
    failed = record.state in UNSUCCESSFUL
    at = f"{url}/api/v1/tasks/{text_of(Key(record.id))}"
    return Resolution(failed, f"{at}/result", f"{at}/output" if record.life.attempt else None)


# Attempts and their output. Output is bytes, counted from 0, in no particular encoding.

#: How many chunks of output one query reads: some megabytes at most.
CHUNKS_MAX: Final = 16
#: How many events of a task one query reads, and how many pages, to find how long attempts waited.
EVENTS_PAGE: Final = 500
EVENT_PAGES_MAX: Final = 20
#: The resource use of an attempt that has reported none.
NO_STATS: Final = StatsRow(0, None, None, None, None, None, None, None, None, None, None, 0)
#: The states in which bots claim tasks.
_QUEUED: Final = frozenset(map(str, sources(Signal.CLAIM)))


def attempts(repo: Repo, task: int) -> list[AttemptView]:
    """Show all attempts of a task."""
    stats, results, sizes = repo.output.stats(task), repo.read.results(task), repo.output.sizes(task)
    queued, rows = _queued(repo, task), repo.attempts.of(task)
    snapshots = repo.bots.snapshots({row.snapshot for row in rows if row.snapshot is not None})
    files = repo.files.outputs(task)
    found = [
        _attempt(
            row,
            results.get(row.number),
            sizes.get(row.number, 0),
            stats.get(row.number, NO_STATS),
            queued.get(row.number),
            None if row.snapshot is None else snapshots.get(row.snapshot),
        )
        for row in rows
    ]
    return [
        replace(one, files=FilesRef(row.tree, row.files, row.bytes)) if (row := files.get(one.number)) else one
        for one in found
    ]


def inputs(repo: Repo, task: int) -> Mapping[str, msgspec.Raw]:
    """Return the results of the prerequisites of a task, by label."""
    return {label: msgspec.Raw(body.encode()) for _, label, body in repo.output.inputs([task])}


def result(repo: Repo, task: int) -> bytes | None:
    """Return the result of the last attempt of a task, as JSON."""
    found = repo.read.last_results([task]).get(task)
    return None if found is None else found.encode()


def output_size(repo: Repo, task: int, attempt: int) -> int:
    """Return how many bytes of output an attempt has."""
    return repo.output.sizes(task).get(attempt, 0)


def read_output(repo: Repo, task: int, attempt: int, start: int, until: int) -> bytes:
    """Return output of an attempt from `start` on: some bytes, or none if there are none before `until`."""
    found = bytearray()
    for at, body in repo.output.chunks(task, attempt, start, CHUNKS_MAX):
        expected = start + len(found)
        if at > expected or at >= until:
            break  # it was not requested, or there is a gap before it
        found += body[expected - at : until - at]
    return bytes(found)


def output_times(
    repo: Repo, task: int, attempt: int, start: int, since_ms: int, count: int
) -> tuple[list[OutputTime], int | None]:
    """Return when output of an attempt arrived, from `start` and a time on; and where the next page begins."""
    found = repo.output.chunk_times(task, attempt, start, since_ms, count + 1)
    return [OutputTime(*one) for one in found[:count]], found[count][0] if len(found) > count else None


def under_way(record: TaskRecord, attempt: int) -> bool:
    """Whether an attempt may still print output."""
    return record.life.attempt == attempt and record.state in LEASED


def _queued(repo: Repo, task: int) -> dict[int, int]:
    """Return how long each attempt waited in a queue before a bot claimed it, by the clock of the server."""
    found: dict[int, int] = {}
    after, since = 0, 0
    for _ in range(EVENT_PAGES_MAX):
        page = repo.events.of(task, after, EVENTS_PAGE)
        for event in page:
            if event.target in _QUEUED:
                since = event.at_ms
            elif event.source in _QUEUED and event.attempt is not None:
                found[event.attempt] = event.at_ms - since
        if len(page) < EVENTS_PAGE:
            break
        after = page[-1].number
    return found


def _attempt(
    row: AttemptRow,
    published: str | None,
    size: int,
    stats: StatsRow,
    queued_ms: int | None,
    bot: SnapshotRow | None,
) -> AttemptView:
    return AttemptView(
        number=row.number,
        bot=row.bot,
        round=row.round,
        slice_index=row.slice_index,
        claimed_ms=row.claimed_ms,
        ended_ms=row.ended_ms,
        signal=row.signal,
        reason=row.reason,
        exit_code=row.exit_code,
        output_bytes=size,
        truncated=stats.truncated == 1,
        result=None if published is None else msgspec.Raw(published.encode()),
        stats=_stats(stats, queued_ms) if queued_ms is not None or stats is not NO_STATS else None,
        bot_version=None if bot is None else bot.version or None,
        bot_dimensions=None if bot is None else {key: list(values) for key, values in bot.dimensions},
    )


def _stats(stats: StatsRow, queued_ms: int | None) -> Stats:
    return Stats(
        queued_ms=queued_ms,
        prepared_ms=stats.prepared_ms,
        cached_ms=stats.cached_ms,
        downloaded_ms=stats.downloaded_ms,
        ran_ms=stats.ran_ms,
        uploaded_ms=stats.uploaded_ms,
        cleaned_ms=stats.cleaned_ms,
        cpu_s=stats.cpu_s,
        memory_bytes=stats.memory_bytes,
        read_bytes=stats.read_bytes,
        written_bytes=stats.written_bytes,
    )


@value
class NamedTasks:
    """The tasks that names refer to, and the faults of names that refer to none."""

    tasks: tuple[int, ...]
    faults: tuple[Fault, ...] = ()


def tasks_behind(repo: Repo, tasks: Collection[int], most: int) -> list[TaskRecord] | None:
    """Read tasks and everything that depends on them, however indirectly; None if that is more than `most` edges."""
    found, frontier, left = set(tasks), sorted(tasks), most
    while frontier:
        edges = repo.edges.page_after(frontier, (-1, -1, ""), left + 1)
        left -= len(edges)
        if left < 0:
            return None
        frontier = sorted({dependent for _, dependent, _ in edges} - found)
        found.update(frontier)
    return repo.tasks.read(found)


def tasks_by_name(repo: Repo, graph: int, names: Sequence[str]) -> NamedTasks:
    """Find tasks by label, or by the name of a matrix, which refers to all its combinations.

    Labels are looked up; only other names need all labels of the graph.
    """
    found = repo.tasks.with_labels(graph, set(names))
    if len(found) == len(set(names)):
        return NamedTasks(tuple(sorted(found.values())))
    rows = repo.tasks.definitions_of(graph)
    ids = {label: id for id, label, _, _ in rows}
    labels, faults = named(names, {label: decoded(text).node for _, label, text, _ in rows})
    return NamedTasks(tuple(sorted(ids[label] for label in labels)), faults)
