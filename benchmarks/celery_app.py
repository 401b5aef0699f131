"""What a plain Celery worker runs in `benchmarks.engines`: the same work as a task of Taskyard, with its result kept.

It acknowledges late, takes as many messages as it has slots, and uses Celery's default pool of processes.
"""

import os
import subprocess

from celery import Celery

app = Celery("plain", broker=os.environ.get("TASKYARD_BROKER"), backend=os.environ.get("BENCH_BACKEND"))
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
)


@app.task(name="plain.run")  # type: ignore[untyped-decorator]
def run(argv: list[str]) -> tuple[int, str]:
    """Run a program, and return its exit code and its output."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode()
