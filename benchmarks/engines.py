"""What it costs to run a task by way of Celery, against plain Celery with the same work in the same run.

Tasks run /bin/true, with two slots, on real RabbitMQ and real Redis. Of Taskyard it is the time from the submission of
a graph to its end, durably stored; of plain Celery, from the first `delay` until all results are there (`rpc` with
RabbitMQ, Redis with Redis). The ratio is the median of three rounds in turn.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.cluster import Cluster, cluster
from benchmarks.report import Case, Peer, main
from tests.brokers import RabbitMQ, Redis

_TRUE = ["/bin/true"]
#: Each system has as many slots as the machine of reference has processors.
SLOTS = 2


def measure(quick: bool) -> Sequence[Case]:
    """Measure with both brokers; `quick` only shows that it works."""
    return [_measure(kind, 20 if quick else 1_000) for kind in (RabbitMQ, Redis)]


def _measure(kind: type[RabbitMQ] | type[Redis], count: int) -> Case:
    ours, plain = [], []
    with kind() as broker, cluster("sqlite") as one, tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TASKYARD_BROKER": broker.url,
            "BENCH_BACKEND": "rpc://" if kind is RabbitMQ else broker.url,
        }
        with _worker(environment, Path(folder)), _plain_worker(environment):
            one.bot("b1", SLOTS, "", "--engine", "celery", TASKYARD_BROKER=broker.url)
            _run(one, 20)
            _run_plain(environment, 20)
            for _ in range(3):
                ours.append(_run(one, count) / count * 1000)
                plain.append(_run_plain(environment, count) / count * 1000)
    ratio = median(mine / theirs for mine, theirs in zip(ours, plain, strict=True))
    return Case(
        f"{broker.name}, a task against plain Celery",
        ratio,
        "times",
        "lower",
        must=1.5,
        goal=1.0,
        peer=Peer("plain Celery, ms a task", median(plain)),
    )


def _run(one: Cluster, count: int) -> float:
    return one.run({"tasks": {f"t{number}": {"task": {"payload": {"command": _TRUE}}} for number in range(count)}})


def _run_plain(environment: dict[str, str], count: int) -> float:
    """Send so many tasks from a process of their own, and wait for their results; return the seconds."""
    program = (
        "import sys, time; from benchmarks.celery_app import run; "
        f"began = time.perf_counter(); sent = [run.delay({_TRUE}) for _ in range({count})]; "
        "[one.get(timeout=120) for one in sent]; print(time.perf_counter() - began)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


@contextmanager
def _worker(environment: dict[str, str], state: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "taskyard", "celery-worker", "--slots", str(SLOTS), "--state", str(state)]
    with _running(command, environment):
        yield


@contextmanager
def _plain_worker(environment: dict[str, str]) -> Iterator[None]:
    options = ["--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_app", "worker", "-c", str(SLOTS), *options]
    with _running(command, environment):
        yield


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    sys.exit(main("engines", measure))
