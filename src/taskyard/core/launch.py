"""Launches: which mutexes what is launched holds, and which updates it needs first.

The rules about what runs together are data: nothing depends on the kind of work of a task, and whatever makes a job, an
update or a workflow gives it these mutexes. A project, an inventory or a template that is None excludes nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Final

from taskyard.core.graph.model import Mutex
from taskyard.core.states import Impossible, Millis, On, Reason, State, TaskId


@unique
class LaunchType(StrEnum):
    """Why something was launched."""

    MANUAL = "manual"  # a person or a program asked for it
    DEPENDENT = "dependent"  # an update that a launch needs
    WORKFLOW = "workflow"  # a node of a workflow
    SCHEDULED = "scheduled"
    RELAUNCH = "relaunch"  # an earlier launch, planned anew


#: The states of a task in the words of AWX.
STATUSES: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.UNSCHEDULED: "pending",
        State.BLOCKED: "pending",
        State.PENDING: "pending",
        State.WAITING: "waiting",
        State.RUNNING: "running",
        State.STOPPING: "running",
        State.SUCCESSFUL: "successful",
        State.FAILED: "failed",
        State.ERROR: "error",
        State.CANCELED: "canceled",
        State.SKIPPED: "canceled",
    }
)


def status(state: State, reason: str) -> str:
    """Return the state of a task in the words of AWX: it is `waiting` until its attempt has begun."""
    return "waiting" if state is State.RUNNING and reason == Reason.ASSIGNED else STATUSES[state]


def job_mutexes(
    project: str | None, inventory: str | None, template: str | None, allow_simultaneous: bool = False
) -> tuple[Mutex, ...]:
    """A job shares its project and its inventory with jobs, and its template only if that allows it."""
    return (
        *_mutex("project", project, "job"),
        *_mutex("inventory", inventory, "job"),
        *_mutex("template", template, _simultaneous(allow_simultaneous)),
    )


def project_update_mutexes(project: str | None) -> tuple[Mutex, ...]:
    """A project update wants its project alone."""
    return _mutex("project", project)


def inventory_update_mutexes(inventory: str | None, source: str | None) -> tuple[Mutex, ...]:
    """An inventory update shares its inventory with updates from other sources; `source` is one of this inventory."""
    named = None if inventory is None or source is None else f"{inventory}/{source}"
    return (*_mutex("inventory", inventory, "update"), *_mutex("source", named))


def system_job_mutexes() -> tuple[Mutex, ...]:
    """There is one system job at a time."""
    return (Mutex("system"),)


def workflow_mutexes(template: str | None, allow_simultaneous: bool = False) -> tuple[Mutex, ...]:
    """A workflow wants its template alone, unless that allows more."""
    return _mutex("workflow", template, _simultaneous(allow_simultaneous))


def ad_hoc_mutexes(inventory: str | None) -> tuple[Mutex, ...]:
    """An ad-hoc command wants its inventory alone."""
    return _mutex("inventory", inventory)


# Weights, where the capacity of a pool is counted in forks: AWX's figures.


#: How many hosts a play reaches at once that says nothing.
FORKS: Final = 5
#: What a system job weighs.
SYSTEM_JOB_WEIGHT: Final = 5


def play_weight(forks: int | None, hosts: int | None) -> int:
    """Return what a play weighs: a fork for each host that it reaches at once, and one for itself.

    None stands for what is not known, or not said.
    """
    wanted = FORKS if forks is None else forks
    return (wanted if hosts is None else min(hosts, wanted)) + 1


def _mutex(what: str, name: str | None, party: str | None = None) -> tuple[Mutex, ...]:
    return () if name is None else (Mutex(f"{what}:{name}", party),)


def _simultaneous(allowed: bool) -> str | None:
    return "simultaneous" if allowed else None


# The rules in words.


@unique
class Role(StrEnum):
    """What the task of a launch is, as people call it."""

    JOB = "job"
    PROJECT_UPDATE = "project update"
    INVENTORY_UPDATE = "inventory update"
    AD_HOC = "ad-hoc command"
    SYSTEM_JOB = "system job"
    WORKFLOW = "workflow"


_UPDATES: Final = frozenset({Role.PROJECT_UPDATE, Role.INVENTORY_UPDATE})
#: The rule that a mutex is about, by the first part of its key.
_RULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "project": "for a project, a job or a project update, not both",
        "inventory": "for an inventory, a job or inventory updates, not both",
        "source": "one inventory update per source",
        "template": "one job per job template",
        "workflow": "one workflow per workflow template",
        "system": "one system job",
    }
)


def rule_words(key: str, own: Role, holder: Role) -> str:
    """Say which rule keeps a launched task from running beside one that holds a mutex; it goes on with that task.

    It is empty for a mutex that the rules do not know: templates can name more.
    """
    what, _, name = key.partition(":")
    rule = _RULES.get(what, "")
    if what == "project" and own is holder:
        rule = "one project update per project"
    elif what == "inventory" and Role.AD_HOC in (own, holder):
        rule = "an ad-hoc command has its inventory alone"
    does = "is being updated by" if holder in _UPDATES else "is used by"
    return f"{rule}: {name or 'it'} {does}" if rule else ""


def is_good(state: State) -> bool:
    """Whether an update in a state is one that can be used."""
    return state is State.SUCCESSFUL


# Freshness: whether an earlier update can be used again.
#
# A launch may need its resources refreshed first (update on launch). An earlier update is enough if it succeeded and is
# young enough; age counts from the finish. One that is under way counts, too. `plan` only says which are needed.


#: The edge to an update: a task that waits for it needs its success, and fails if that is impossible.
LINK_ON: Final = On.SUCCESS
LINK_IMPOSSIBLE: Final = Impossible.FAIL
#: Can still succeed by itself. One that is being stopped cannot, and a blocked one needs a person.
IN_FLIGHT: Final = frozenset({State.UNSCHEDULED, State.PENDING, State.WAITING, State.RUNNING})


@dataclass(frozen=True, slots=True)
class Resource:
    """Something a launch uses: a project, or an inventory source that may itself come from a project."""

    name: str
    update_on_launch: bool = True
    cache_ms: int = 0  # how long a successful update is good enough
    comes_from: "Resource | None" = None
    content: str = ""  # a digest of what is fetched: an update of something else says nothing about it

    def __post_init__(self) -> None:
        if self.comes_from is not None and self.comes_from.comes_from is not None:
            raise ValueError(
                f"{self.name} comes from {self.comes_from.name}, which comes from another: one step is allowed"
            )


@dataclass(frozen=True, slots=True)
class Update:
    """The latest update of a resource."""

    resource: str
    task: TaskId
    state: State
    finished_ms: Millis | None = None


@unique
class Freshness(StrEnum):
    """What a resource needs before it is used."""

    FRESH = "fresh"  # nothing: link its last update, which is satisfied
    JOIN = "join"  # wait: link the update that is in flight
    UPDATE = "update"  # make an update and link it


@dataclass(frozen=True, slots=True)
class Need:
    """What one resource of a launch needs."""

    resource: str
    freshness: Freshness
    update: TaskId | None = None  # the one to link; None when it has to be made
    after: str | None = None  # the resource whose update the one to be made waits for
    used: bool = True  # the launch itself waits for it; if not, only another update does


def needs(resource: str, latest: Update | None, now: Millis, cache_ms: int, explicit: bool = False) -> Freshness:
    """Return what a resource needs, given its latest update.

    A person who asks for an update gets one of their own, whatever is cached or in flight: one that began before they
    asked may have missed what they want to see. The resource's mutex keeps the two apart.
    """
    assert latest is None or latest.resource == resource, "the update is of another resource"
    if explicit or latest is None:
        return Freshness.UPDATE
    if latest.state in IN_FLIGHT:
        return Freshness.JOIN
    return Freshness.FRESH if _is_cached(latest, now, cache_ms) else Freshness.UPDATE


def plan(
    resources: Iterable[Resource], latest: Mapping[str, Update], now: Millis, updated: Collection[str] = ()
) -> tuple[Need, ...]:
    """Return what a launch needs: each resource once, and each after what it waits for.

    Resources that are not updated on launch, or are `updated` already, are left out. A launch that is planned after
    another finds the other's updates in `latest`, pending, and joins them. An explicit update of an inventory source is
    planned as a launch that uses its project alone, so no update ever waits for itself.
    """
    wanted = [one for one in resources if _is_wanted(one, updated)]
    needed = {one.name: _need(one, latest, now) for one in wanted}
    for source in wanted:
        project = source.comes_from
        if project and _is_wanted(project, updated) and needed[source.name].freshness is Freshness.UPDATE:
            needed[source.name] = replace(needed[source.name], after=project.name)
            needed.setdefault(project.name, replace(_need(project, latest, now), used=False))
    return tuple(sorted(needed.values(), key=lambda need: need.after is not None))


def _is_cached(latest: Update, now: Millis, cache_ms: int) -> bool:
    if latest.state is not State.SUCCESSFUL or latest.finished_ms is None:
        return False
    return latest.finished_ms + cache_ms >= now


def _is_wanted(resource: Resource, updated: Collection[str]) -> bool:
    return resource.update_on_launch and resource.name not in updated


def _need(resource: Resource, latest: Mapping[str, Update], now: Millis) -> Need:
    last = latest.get(resource.name)
    freshness = needs(resource.name, last, now, resource.cache_ms)
    linked = last if freshness is not Freshness.UPDATE else None
    return Need(resource.name, freshness, update=linked.task if linked else None)
