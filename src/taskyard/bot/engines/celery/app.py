"""The Celery app of the engine: its settings, its task, and the control command of bots."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celery import Celery, Task
from celery.signals import celeryd_after_setup, task_revoked, worker_shutdown
from celery.worker.control import control_command

from taskyard.bot.engines.celery.messages import GREETING, START, TASK
from taskyard.bot.engines.protocol import EngineUnusable

if TYPE_CHECKING:
    from taskyard.bot.engines.celery.worker import CeleryWorker

#: The queue of attempts, unless bot and workers name another one.
QUEUE: Final = "taskyard"
#: How long Redis keeps a message that a worker took before it gives it to another one. That one drops it; so this only
#: has to be long enough that it seldom happens.
VISIBILITY_SECONDS: Final = 6 * 3_600
#: Transports that the engine is tested with.
TRANSPORTS: Final = ("amqp", "amqps", "pyamqp", "redis", "rediss")
#: How long a connection may take: a broker that cannot be reached is asked again, for ever.
CONNECT_SECONDS: Final = 5.0
#: A broker that is away is asked this often, in seconds: leases go on meanwhile.
RECONNECT: Final = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 1.0}
_LOG = logging.getLogger("taskyard.bot")

app = Celery("taskyard", set_as_current=False)
app.conf.update(
    broker_connection_timeout=CONNECT_SECONDS,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # A worker has as many attempts as it can run, and a broker keeps each until it has ended.
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    # The warm processes and the runner serve all slots of a worker.
    worker_pool="threads",
    task_ignore_result=True,  # results go to the bot
    worker_hijack_root_logger=False,
    worker_enable_remote_control=True,
)


def configure(broker: str, queue: str = QUEUE) -> Celery:
    """Use a broker and a queue; raise `EngineUnusable` for a broker of another kind."""
    scheme = broker.partition("://")[0]
    if scheme not in TRANSPORTS:
        raise EngineUnusable(f"the broker must be amqp://... (RabbitMQ) or redis://...; this is {scheme[:40]!r}")
    visibility = {"visibility_timeout": VISIBILITY_SECONDS} if scheme.startswith("redis") else {}
    app.conf.update(
        broker_url=broker,
        broker_transport_options=RECONNECT | visibility,
        task_default_queue=queue,
        control_exchange=f"{queue}.control",
    )
    return app


def broker_from_environment() -> str:
    """Return the broker that the environment or a file that it names says; raise `EngineUnusable` without one."""
    if url := os.environ.get("TASKYARD_BROKER"):
        return url
    if file := os.environ.get("TASKYARD_BROKER_FILE"):
        return read_broker_file(Path(file))
    raise EngineUnusable("there is no broker: set TASKYARD_BROKER or TASKYARD_BROKER_FILE")


def read_broker_file(file: Path) -> str:
    """Return the first line of a file."""
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.readline(4_096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EngineUnusable(f"cannot read the broker from {file}: {error}") from error


def configure_from_environment() -> None:
    """Use the broker and the queue that the environment says, if it does: `celery -A` gets no options of ours."""
    queue = os.environ.get("TASKYARD_QUEUE", QUEUE)
    if os.environ.get("TASKYARD_BROKER") or os.environ.get("TASKYARD_BROKER_FILE"):
        configure(broker_from_environment(), queue)
    else:
        app.conf.update(task_default_queue=queue, control_exchange=f"{queue}.control")


configure_from_environment()


# A Celery worker.

_worker: "CeleryWorker | None" = None
_controllers: list[Any] = []


def worker_failed() -> bool:
    """Whether the Celery worker of this process has ended because of an error, not because it was told to."""
    return bool(_controllers and _controllers[-1].exitcode)


@app.task(name=TASK, bind=True, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def run_attempt(self: "Task[Any, Any]", text: str) -> None:
    """Run an attempt of a bot; return when it has ended."""
    assert _worker is not None, "only a worker runs attempts"
    _worker.run(START.decode(text), bool((self.request.delivery_info or {}).get("redelivered")))


@control_command(name=GREETING, args=[("bot", str), ("inbox", str)])  # type: ignore[untyped-decorator]
def greet(_: object, bot: str, inbox: str) -> None:
    """Learn of a bot."""
    if _worker is not None:
        _worker.meet(bot, inbox)


@celeryd_after_setup.connect  # type: ignore[untyped-decorator]
def _start_worker(sender: str, instance: Any, **_: object) -> None:
    global _worker  # noqa: PLW0603 - a process is one worker
    if instance.app is not app:
        return
    from taskyard.bot.engines.celery import worker  # noqa: PLC0415

    if not instance.pool_cls.__module__.endswith(".thread"):
        raise SystemExit("a worker of Taskyard needs the pool of threads: leave --pool out, or say --pool threads")
    _worker = worker.CeleryWorker(app, sender, instance.concurrency, worker.settings())
    _controllers.append(instance)


@task_revoked.connect  # type: ignore[untyped-decorator]
def _on_revoked(sender: object, request: Any, **_: object) -> None:
    """Tell the bot that an attempt will not begin."""
    if _worker is not None and getattr(sender, "name", "") == TASK and request is not None:
        task, attempt = str(request.id).rsplit("-", 1)
        _worker.revoked((task, int(attempt)), bool((request.delivery_info or {}).get("redelivered")))


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _end_worker(**_: object) -> None:
    if _worker is not None:
        _worker.close()
