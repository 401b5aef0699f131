"""AWX's blocking rules, as data: what each kind of AWX job excludes is said by its mutexes alone.

Nothing in Taskyard asks what kind of work a task is; whoever makes a job, an update or a workflow gives it these. An
id that is None (its project, inventory or template is gone) excludes nothing.
"""

from taskyard.core.graph.document import Mutex


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
