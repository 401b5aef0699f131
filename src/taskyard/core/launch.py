"""AWX's blocking rules, as data: what each kind of AWX job excludes is said by its mutexes alone.

Nothing in Taskyard asks what kind of work a task is; whoever makes a job, an update or a workflow gives it these. An
id that is None (its project, inventory or template is gone) excludes nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Final

from taskyard.core.graph.model import Mutex
from taskyard.core.states import Impossible, Millis, On, State, TaskId


def job_mutexes(
    project: int | None, inventory: int | None, template: int | None, allow_simultaneous: bool = False
) -> tuple[Mutex, ...]:
    """A job shares its project and its inventory with jobs, and its template only if that allows it."""
    return (
        *_mutex("project", project, "job"),
        *_mutex("inventory", inventory, "job"),
        *_mutex("template", template, _simultaneous(allow_simultaneous)),
    )


def project_update_mutexes(project: int | None) -> tuple[Mutex, ...]:
    """A project update wants its project alone."""
    return _mutex("project", project)


def inventory_update_mutexes(inventory: int | None, source: int | None) -> tuple[Mutex, ...]:
    """An inventory update shares its inventory with updates from other sources."""
    return (*_mutex("inventory", inventory, "update"), *_mutex("source", source))


def system_job_mutexes() -> tuple[Mutex, ...]:
    """There is one system job at a time."""
    return (Mutex("system"),)


def workflow_mutexes(template: int | None, allow_simultaneous: bool = False) -> tuple[Mutex, ...]:
    """A workflow wants its template alone, unless that allows more."""
    return _mutex("workflow", template, _simultaneous(allow_simultaneous))


def ad_hoc_mutexes(inventory: int | None) -> tuple[Mutex, ...]:
    """An ad-hoc command wants its inventory alone."""
    return _mutex("inventory", inventory)


def _mutex(what: str, id: int | None, party: str | None = None) -> tuple[Mutex, ...]:
    return () if id is None else (Mutex(f"{what}:{id}", party),)


def _simultaneous(allowed: bool) -> str | None:
    return "simultaneous" if allowed else None


# Freshness: whether an earlier update or result can be used again.
#
# A launch may need its resources refreshed first (update on launch), and an idempotent task may take the result of an
# equal one. Both need an earlier one that succeeded and is young enough; age counts from the finish. For a resource an
# update that is under way counts, too. `plan` only says which updates are needed.


#: A week, as in Swarming: long enough for a release branch, short enough that the world has not changed.
REUSE_WINDOW_MS: Final = 7 * 86_400_000
#: How whatever waits for an update hangs on it: it needs its success, and fails when that cannot be.
LINK_ON: Final = On.SUCCESS
LINK_IMPOSSIBLE: Final = Impossible.FAIL
#: Can still end well by itself. One that is being stopped cannot, and a blocked one needs a person.
IN_FLIGHT: Final = frozenset({State.UNSCHEDULED, State.PENDING, State.WAITING, State.RUNNING})


@dataclass(frozen=True, slots=True)
class Resource:
    """Something a launch uses: a project, or an inventory source that may itself come from a project."""

    name: str
    update_on_launch: bool = True
    cache_ms: int = 0  # how long a successful update is good enough
    comes_from: "Resource | None" = None

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


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an idempotent task that has ended."""

    task: TaskId
    digest: str  # of everything that makes two tasks equal
    state: State
    finished_ms: Millis
    reused: bool = False  # it was itself taken from another task


def needs(resource: str, latest: Update | None, now: Millis, cache_ms: int, explicit: bool = False) -> Freshness:
    """Say what a resource needs, given its latest update.

    A person who asks for an update gets one of their own, whatever is cached or in flight: one that began before they
    asked may have missed what they want to see. The resource's mutex keeps the two apart.
    """
    assert latest is None or latest.resource == resource, "an update of another resource tells nothing"
    if explicit or latest is None:
        return Freshness.UPDATE
    if latest.state in IN_FLIGHT:
        return Freshness.JOIN
    return Freshness.FRESH if _is_cached(latest, now, cache_ms) else Freshness.UPDATE


def plan(
    resources: Iterable[Resource], latest: Mapping[str, Update], now: Millis, updated: Collection[str] = ()
) -> tuple[Need, ...]:
    """Say what a launch needs: each resource once, and each after what it waits for.

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


def reusable(results: Iterable[Result], digest: str, now: Millis, window_ms: int = REUSE_WINDOW_MS) -> Result | None:
    """Find the result that an idempotent task may take: the newest that is equal, successful, original and young.

    A reused result is never reused itself, else a chain of them would outlive any window. A window of 0 forbids.
    """
    good = [one for one in results if one.digest == digest and one.state is State.SUCCESSFUL and not one.reused]
    young = [one for one in good if now - one.finished_ms < window_ms]
    return min(young, key=lambda one: (-one.finished_ms, one.task), default=None)


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
