"""External pools: workers behind a message broker run their tasks, and report with messages.

A bot stands for all workers of such a pool. A server that has the right to publish says hello for it, polls for it and
announces what it claims. A lease lasts as long as the time-out of the task, and so again from each heartbeat on. An
attempt that no worker has begun is `assigned`, so that it costs no retry if it is lost.
"""

from collections.abc import Collection, Iterable, Sequence

from taskyard.core.fleet import is_external
from taskyard.core.graph.errors import Fault
from taskyard.core.graph.model import Task
from taskyard.core.graph.payload import SERVER_KINDS, patience_ms
from taskyard.core.matching import DEFAULT_POOL, POOL, pool_of
from taskyard.core.structs import value
from taskyard.lifecycle.claim import with_definitions
from taskyard.lifecycle.commands import Begun, Code, Done, Lease, Refusal, Renewal, Renewed, Report
from taskyard.lifecycle.report import end_attempts, record_begun, renew, store_progress
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo


def external_pools(repo: Repo) -> list[str]:
    """Return the external pools."""
    return [pool.name for pool in repo.admission.pools() if pool.external]


def refuse_unfit(repo: Repo, tasks: Collection[Task]) -> Refusal | None:
    """Refuse tasks of external pools without a time-out, or that ask for more than their pool."""
    external = set(external_pools(repo))
    faults = [fault for task in tasks if external for fault in _faults(task, external)]
    return Refusal(Code.INVALID, "some tasks do not fit their external pools", tuple(faults)) if faults else None


def _faults(task: Task, external: Collection[str]) -> Iterable[Fault]:
    for one in task.slices:
        pool = pool_of(one.dimensions) or DEFAULT_POOL
        if pool not in external or one.kind in SERVER_KINDS:
            continue
        at = f"tasks.{task.label}.task"
        if patience_ms(one.payload) is None:
            text = f"is missing: pool {pool} is external, and a lease there lasts as long as the time-out, such as 30m"
            yield Fault(f"{at}.payload.timeout", text)
        others = sorted(key for key, _ in one.dimensions if key != POOL)
        if others:
            text = f"names {', '.join(others)}: in the external pool {pool} a task can ask for nothing but the pool"
            yield Fault(f"{at}.dimensions", text)


# What workers report.


@value
class WorkerReport:
    """A message of a worker: its attempt has begun or goes on, or it has ended."""

    task: int
    attempt: int
    fence: int
    ended: Report | None = None
    renewal: Renewal | None = None


def take_reports(transaction: Transaction, reports: Sequence[WorkerReport]) -> list[Done | Renewed | Refusal]:
    """Take what workers report, in order, as if the bots of their pools reported it."""
    tasks = transaction.lock_tasks({one.task for one in reports})
    answers: list[Done | Renewed | Refusal] = []
    for one in reports:
        task = tasks.get(one.task)
        bot = "" if task is None or task.bot is None else task.bot
        if bot and not is_external(bot):
            answers.append(Refusal(Code.FORBIDDEN, f"bot {bot} runs the task: its pool is not external"))
        elif one.renewal is not None:
            store_progress(transaction, [(bot, one.renewal)])
            answers += renew(transaction, [(bot, one.renewal)])
            record_begun(transaction, [(bot, Begun(one.task, one.attempt, one.fence))])
            transaction.apply()
        else:
            assert one.ended is not None, "a report renews or ends"
            answers += end_attempts(transaction, [(bot, one.ended)])
    return answers


def announced(transaction: Transaction, started: Collection[tuple[int, int]]) -> list[Lease]:
    """Return the leases of external attempts that are still to be announced, with all that a worker needs."""
    tasks = transaction.lock_tasks({task for task, _ in started})
    leases = []
    for id, attempt in sorted(started):
        task = tasks.get(id)
        if task is not None and is_external(task.bot) and task.life.attempt == attempt:
            assert task.lease_until_ms is not None, "a leased task has a lease"
            leases.append(Lease(id, attempt, task.fence, task.lease_until_ms, task.life.slice_index))
    return with_definitions(transaction, leases) if leases else []
