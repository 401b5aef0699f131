"""The rules of AWX's task manager as facts about mutexes, order and capacity, without any code for them."""

from dataclasses import dataclass

from taskyard.core.admission.rules import Contender, Facts, Pool, decide
from taskyard.core.graph.model import Mutex
from taskyard.core.launch import (
    ad_hoc_mutexes,
    inventory_update_mutexes,
    job_mutexes,
    project_update_mutexes,
    system_job_mutexes,
    workflow_mutexes,
)
from taskyard.core.states import Millis, TaskId
from tests.each_row import each_row

NOW = Millis(1_000)


@dataclass(frozen=True)
class Rule:
    """The running tasks, the pending ones (oldest first), and those that are then admitted, by name in `WORK`."""

    sentence: str
    running: str
    pending: str
    admitted: str
    capacity: int | None = None


#: Each name is a kind of work and what distinguishes it from others of its kind.
WORK: dict[str, tuple[Mutex, ...]] = {
    "job": job_mutexes(project="7", inventory="3", template="9"),
    "job-again": job_mutexes(project="7", inventory="3", template="9"),
    "job-of-another-template": job_mutexes(project="7", inventory="3", template="10"),
    "job-elsewhere": job_mutexes(project="8", inventory="4", template="11"),
    "job-simultaneous": job_mutexes(project="7", inventory="3", template="12", allow_simultaneous=True),
    "job-simultaneous-again": job_mutexes(project="7", inventory="3", template="12", allow_simultaneous=True),
    "project-update": project_update_mutexes("7"),
    "project-update-again": project_update_mutexes("7"),
    "project-update-elsewhere": project_update_mutexes("8"),
    "inventory-update": inventory_update_mutexes("3", source="5"),
    "inventory-update-again": inventory_update_mutexes("3", source="5"),
    "inventory-update-of-another-source": inventory_update_mutexes("3", source="6"),
    "inventory-update-elsewhere": inventory_update_mutexes("4", source="7"),
    "system-job": system_job_mutexes(),
    "system-job-again": system_job_mutexes(),
    "workflow": workflow_mutexes("4"),
    "workflow-again": workflow_mutexes("4"),
    "workflow-simultaneous": workflow_mutexes("5", allow_simultaneous=True),
    "workflow-simultaneous-again": workflow_mutexes("5", allow_simultaneous=True),
    "ad-hoc": ad_hoc_mutexes("3"),
    "ad-hoc-again": ad_hoc_mutexes("3"),
}

RULES = (
    Rule("Independent jobs are ran in order of creation time, earliest first", "", "job job-elsewhere", "job", 1),
    Rule(
        "Jobs with dependencies are also ran in creation time order within the group of job dependencies",
        "project-update",
        "job project-update-again job-of-another-template",
        "",
    ),
    Rule(
        "Groups of blocked tasks run in chronological order",
        "",
        "project-update job project-update-again",
        "project-update",
    ),
    Rule(
        "Groups of blocked tasks run in chronological order: the next of the group",
        "",
        "job project-update-again job-of-another-template",
        "job job-of-another-template",
    ),
    Rule(
        "Tasks that are not blocked run whenever there is capacity available",
        "",
        "job job-elsewhere",
        "job job-elsewhere",
        2,
    ),
    Rule(
        "Tasks that are not blocked run whenever there is capacity available: a blocked one is passed over",
        "project-update",
        "job job-elsewhere",
        "job-elsewhere",
        2,
    ),
    Rule("1 job is always allowed to run, even if there isn't enough capacity", "", "job job-elsewhere", "job", 0),
    Rule("Only 1 Project Updates for a Project may be running", "project-update", "project-update-again", ""),
    Rule(
        "Only 1 Project Updates for a Project may be running: another project is another matter",
        "project-update",
        "project-update-elsewhere",
        "project-update-elsewhere",
    ),
    Rule(
        "Only 1 Inventory Update for an Inventory Source may be running",
        "inventory-update",
        "inventory-update-again",
        "",
    ),
    Rule(
        "Only 1 Inventory Update for an Inventory Source may be running: another source is another matter",
        "inventory-update",
        "inventory-update-of-another-source",
        "inventory-update-of-another-source",
    ),
    Rule("For a related Project, only a Job xor Project Update may be running: job first", "job", "project-update", ""),
    Rule(
        "For a related Project, only a Job xor Project Update may be running: update first", "project-update", "job", ""
    ),
    Rule(
        "For a related Project, only a Job xor Project Update may be running: unrelated",
        "job",
        "project-update-elsewhere",
        "project-update-elsewhere",
    ),
    Rule(
        "For a related Inventory, only a Job xor Inventory Update(s) may be running: job first",
        "job",
        "inventory-update",
        "",
    ),
    Rule(
        "For a related Inventory, only a Job xor Inventory Update(s) may be running: update first",
        "inventory-update",
        "job",
        "",
    ),
    Rule(
        "For a related Inventory, only a Job xor Inventory Update(s) may be running: both updates, no job",
        "",
        "inventory-update inventory-update-of-another-source job",
        "inventory-update inventory-update-of-another-source",
    ),
    Rule(
        "For a related Inventory, only a Job xor Inventory Update(s) may be running: unrelated",
        "job",
        "inventory-update-elsewhere",
        "inventory-update-elsewhere",
    ),
    Rule("Only 1 Job for a Job Template may be running", "job", "job-again", ""),
    Rule(
        "Only 1 Job for a Job Template may be running: another template is another matter",
        "job",
        "job-of-another-template",
        "job-of-another-template",
    ),
    Rule(
        "allow_simultaneous feature relaxes this condition",
        "job-simultaneous",
        "job-simultaneous-again",
        "job-simultaneous-again",
    ),
    Rule("allow_simultaneous relaxes nothing else", "project-update", "job-simultaneous", ""),
    Rule("Only 1 System Job may be running", "system-job", "system-job-again", ""),
    Rule(
        "A system job leaves others alone", "system-job", "job project-update-elsewhere", "job project-update-elsewhere"
    ),
    Rule("Only 1 workflow job for a workflow template may be running", "workflow", "workflow-again", ""),
    Rule(
        "Only 1 workflow job for a workflow template may be running, unless simultaneous",
        "workflow-simultaneous",
        "workflow-simultaneous-again",
        "workflow-simultaneous-again",
    ),
    Rule("An ad-hoc command has its inventory alone: ad-hoc", "ad-hoc", "ad-hoc-again", ""),
    Rule("An ad-hoc command has its inventory alone: update", "inventory-update", "ad-hoc", ""),
    Rule("An ad-hoc command has its inventory alone: job", "ad-hoc", "job", ""),
)


@each_row("rule", RULES)
def test_task_manager_rules(rule: Rule) -> None:
    running = tuple(work(name, 0).admitted(Millis(0)) for name in rule.running.split())
    pending = tuple(work(name, created) for created, name in enumerate(rule.pending.split(), 1))
    facts = Facts(pending, running, (Pool("default", rule.capacity),))
    assert decide(facts, NOW).admitted == tuple(rule.admitted.split())


def work(name: str, created: int) -> Contender:
    return Contender(TaskId(name), 100, Millis(created), "default", 1, WORK[name])


@each_row(
    ("mutexes", "shown"),
    [
        (WORK["job"], "project:7/job inventory:3/job template:9"),
        (WORK["job-simultaneous"], "project:7/job inventory:3/job template:12/simultaneous"),
        (WORK["project-update"], "project:7"),
        (WORK["inventory-update"], "inventory:3/update source:3/5"),
        (WORK["system-job"], "system"),
        (WORK["workflow"], "workflow:4"),
        (WORK["workflow-simultaneous"], "workflow:5/simultaneous"),
        (WORK["ad-hoc"], "inventory:3"),
        (job_mutexes(project=None, inventory="0", template=None), "inventory:0/job"),
    ],
)
def test_the_rules_are_data(mutexes: tuple[Mutex, ...], shown: str) -> None:
    assert " ".join(mutex.key + (f"/{mutex.party}" if mutex.party else "") for mutex in mutexes) == shown


def test_a_blocked_group_runs_to_its_end_as_soon_as_nothing_running_excludes_it() -> None:
    assert waves_of({}) == [
        ("project-update",),
        ("job", "job-of-another-template", "job-simultaneous"),
        ("project-update-again",),
    ]


def waves_of(stake_after: dict[str, int | None]) -> list[tuple[TaskId, ...]]:
    """Which tasks are admitted together, and which next, when all of those have ended."""
    names = ("project-update", "job", "job-of-another-template", "project-update-again", "job-simultaneous")
    facts = Facts(tuple(work(name, created) for created, name in enumerate(names)), stake_after=stake_after)
    waves = []
    while facts.pending:
        admitted = decide(facts, NOW).admitted
        waves.append(admitted)
        facts = Facts(facts.after(admitted, NOW).pending, stake_after=stake_after)  # and all that run end
    return waves


def test_in_strict_order_a_task_behind_a_held_one_waits_for_it() -> None:
    assert waves_of(dict.fromkeys(("project:7", "inventory:3"), 0)) == [
        ("project-update",),
        ("job", "job-of-another-template"),
        ("project-update-again",),
        ("job-simultaneous",),
    ]
