"""The rules of launches, checked on the history of what happened. Nothing here uses the rules of the system itself.

A task holds what it is about from its admission until its end. The history of a task are its events, in the order of
their times; a test lets the clock go on between any two transactions.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from taskyard.store.connection import Repo
from taskyard.store.repo.launches import LaunchRow

ALL = 1_000_000
HOLDS = {"waiting", "running", "stopping"}
AD_HOC = {"ad_hoc", "source", "job_template"}
ENDED = {"successful", "failed", "error", "canceled", "skipped"}


@dataclass
class Span:
    """Between two moments a task was pending, or held something; `until` is None while it does."""

    since: int
    until: int | None = None

    def overlaps(self, other: "Span") -> bool:
        later, first = max(self.since, other.since), min(_end(self), _end(other))
        return later < first


@dataclass
class Work:
    """The task of a launch that does the work, and its history."""

    id: int
    kind: str  # job_template, project, source ...
    name: str
    graph: int
    created: int
    launch: LaunchRow
    state: str = "unscheduled"
    finished: int = 0
    pending: list[Span] = field(default_factory=list)
    held: list[Span] = field(default_factory=list)


@dataclass
class Uses:
    """What a template uses, and whether several of its jobs run at once."""

    project: str | None = None
    inventory: str | None = None
    simultaneous: bool = False


def read_work(repo: Repo, since: int) -> list[Work]:
    """Read the work of all launches whose graphs were created after a moment."""
    found = []
    for row in repo.launches.page("", "", None, -1, ALL):
        (graph,) = repo.graphs.peek([row.graph])
        if graph.created_ms <= since:
            continue
        labels = repo.tasks.with_labels(row.graph, ["job", "workflow", f"project:{row.name}", f"source:{row.name}"])
        label = {"project": f"project:{row.name}", "source": f"source:{row.name}"}.get(row.kind)
        id = labels[label] if label else next(iter(labels.values()))
        (task,) = repo.tasks.read([id])
        work = Work(id, row.kind, row.name, row.graph, task.created_ms, row)
        _follow(work, repo)
        found.append(work)
    return found


def _follow(work: Work, repo: Repo) -> None:
    for event in repo.events.of(work.id, 0, ALL):
        was, work.state = work.state, event.target
        for spans, states in ((work.pending, {"pending"}), (work.held, HOLDS)):
            if work.state in states and was not in states:
                spans.append(Span(event.at_ms))
            elif was in states and work.state not in states:
                spans[-1].until = event.at_ms
        work.finished = event.at_ms


def check(repo: Repo, since: int, uses: Mapping[str, Uses], cache_ms: Mapping[str, int]) -> list[Work]:
    """Check everything that happened after a moment, when all work has ended; return the work."""
    found = read_work(repo, since)
    assert [work for work in found if work.state not in ENDED] == [], "somebody waits for ever"
    assert list(_clashes(found, uses)) == []
    assert list(_overtaken(found)) == []
    _check_updates(repo, found, cache_ms)
    return found


def _clashes(found: Iterable[Work], uses: Mapping[str, Uses]) -> Iterator[str]:
    """Find two that ran together and must not."""
    listed = list(found)
    for place, one in enumerate(listed):
        for other in listed[place + 1 :]:
            if any(span.overlaps(its) for span in one.held for its in other.held):
                for rule in _broken(one, other, uses):
                    yield f"{rule}: {one.kind} {one.name} {one.id} and {other.kind} {other.name} {other.id}"


def _broken(one: Work, other: Work, uses: Mapping[str, Uses]) -> Iterator[str]:
    """Name the rules that forbid two to run together."""
    kinds, same = {one.kind, other.kind}, one.name == other.name
    same_project = _project(one, uses) == _project(other, uses)
    same_inventory = _inventory(one, uses) == _inventory(other, uses)
    alone = same and not uses.get(one.name, Uses()).simultaneous
    forbidden = {
        "only 1 project update for a project": kinds == {"project"} and same,
        "only 1 inventory update for a source": kinds == {"source"} and same,
        "only a job xor a project update": kinds == {"job_template", "project"} and same_project,
        "only a job xor inventory updates": kinds == {"job_template", "source"} and same_inventory,
        "an ad-hoc command has its inventory alone": "ad_hoc" in kinds and kinds <= AD_HOC and same_inventory,
        "only 1 system job": kinds == {"system_job_template"},
        "only 1 job for a template": kinds == {"job_template"} and alone,
        "only 1 workflow for a template": kinds == {"workflow_template"} and alone,
    }
    yield from (rule for rule, holds in forbidden.items() if holds)


def _project(work: Work, uses: Mapping[str, Uses]) -> str | None:
    return work.name if work.kind == "project" else uses.get(work.name, Uses()).project


def _inventory(work: Work, uses: Mapping[str, Uses]) -> str | None:
    if work.kind in {"source", "ad_hoc"}:
        return work.name.partition("/")[0]
    return uses.get(work.name, Uses()).inventory


def _overtaken(found: Iterable[Work]) -> Iterator[str]:
    """Find work that was admitted before older work of the same template or resource that waited already."""
    alike: dict[tuple[str, str], list[Work]] = defaultdict(list)
    for work in found:
        alike[work.kind, work.name].append(work)
    for listed in alike.values():
        ordered = sorted(listed, key=lambda work: (work.created, work.id))
        for older, younger in pairwise([work for work in ordered if work.held]):
            admitted = younger.held[0].since
            if older.pending and older.pending[0].since < admitted < older.held[0].since:
                yield f"{younger.kind} {younger.name} {younger.id} overtook {older.id}"


def _check_updates(repo: Repo, found: Iterable[Work], cache_ms: Mapping[str, int]) -> None:
    """Check that each launch had updates that were fresh enough, and that each dependent update was made once."""
    made: dict[int, list[int]] = defaultdict(list)
    for work in found:
        links = repo.launches.links([id for _, id in repo.read.labels_page(work.graph, -1, ALL)])
        assert len({link.resource for link in links.values()}) == len(links), "a resource is linked twice"
        for link in links.values():
            (update,) = repo.tasks.read([link.update])
            if link.freshness == "update":
                made[link.update].append(work.graph)
                assert update.created_ms < work.created, "an update is created before its job"
            if link.freshness == "fresh" and link.resource in cache_ms:
                assert update.moved_ms + cache_ms[link.resource] >= work.created - SLACK_MS, "it was too old"
            if work.held:
                assert update.state.text == "successful", "a job ran without its update"
                assert update.moved_ms <= work.held[0].since, "a job ran before its update had ended"
    dependent = [work for work in found if work.launch.launch_type == "dependent"]
    for work in dependent:
        assert len(made[work.id]) == 1, f"update {work.id} was made for {made[work.id]}"


#: The graphs of a launch are made one after the other, each a millisecond after the one before.
SLACK_MS = 10


def _end(span: Span) -> int:
    return 2**63 if span.until is None else span.until
