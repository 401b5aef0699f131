"""The Celery engine with a real server, bots, workers and a broker, while some of them are killed and frozen."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.brokers import Redis
from tests.cli.waiting import until
from tests.e2e.cluster import SHORT_LEASES, Cluster, Graph, cluster, end
from tests.e2e.documents import call, node, script
from tests.effort import SOAK

#: Beside many other tests one of these sometimes waits in vain, for a reason that is not found yet.
in_soaks = pytest.mark.skipif(not SOAK, reason="Celery under load: `make soak` runs it")

#: A task that holds a lock while it runs, and says so if another attempt of it has the lock.
WITNESS = """
exec 9> {folder}/lock; flock -n 9 || {{ echo "$TASKYARD_ATTEMPT" >> {folder}/overlap; exit 9; }}
echo "$TASKYARD_ATTEMPT" >> {folder}/begun; echo "begun $TASKYARD_ATTEMPT"
n=0; while [ ! -e {folder}/go ]; do n=$((n + 1)); echo "line $n"; sleep 0.1; done
echo "ended $TASKYARD_ATTEMPT"
"""
LAB = {"dimensions": {"lab": "celery"}}


class Yard:
    """A server with short leases, a broker, and what a test starts."""

    def __init__(self, one: Cluster, broker: Redis, folder: Path, started: ExitStack) -> None:
        self.cluster, self.folder = one, folder
        self._broker, self._started = broker, started
        self._env = {"TASKYARD_BROKER": broker.url, "TASKYARD_QUEUE": folder.name}

    def bot(self, name: str = "celery") -> "subprocess.Popen[bytes]":
        """Start a bot with the Celery engine."""
        options = ("--engine", "celery", "--dimension", "lab=celery")
        return self.cluster.bot(name, *options, state=f"{self.folder.name}-{name}", env=self._env).program

    def worker(self, name: str, slots: int = 1) -> "subprocess.Popen[bytes]":
        """Start a Celery worker."""
        state = self.folder / f"worker-{name}"
        with (self.folder / f"worker-{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "taskyard", "celery-worker", "--slots", str(slots), "--state", str(state)],
                env=self.cluster.env() | self._env,
                stderr=log,
                stdout=subprocess.DEVNULL,
            )
        self._started.callback(end, process)
        return process

    def witness(self) -> Graph:
        """Submit a task that holds a lock."""
        return self.cluster.submit({"work": script(WITNESS.format(folder=self.folder), task=LAB)})

    def begun(self) -> list[str]:
        """The attempts of the task that have begun."""
        file = self.folder / "begun"
        return file.read_text().split() if file.exists() else []

    def let_go(self, graph: Graph) -> None:
        """Let the task end, and see that no two attempts of it ran at once."""
        (self.folder / "go").touch()
        graph.finished()
        assert not (self.folder / "overlap").exists()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("celery")
    with cluster(folder, f"sqlite:///{folder / 'taskyard.db'}") as one:
        yield one


@pytest.fixture(scope="module")
def hasty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server whose leases last seconds."""
    folder = tmp_path_factory.mktemp("hasty")
    with cluster(folder, f"sqlite:///{folder / 'taskyard.db'}", SHORT_LEASES, lease="4s") as one:
        yield one


@pytest.fixture
def yard(server: Cluster, redis: Redis, tmp_path: Path) -> Iterator[Yard]:
    with ExitStack() as started, _ended_bots(server):
        yield Yard(server, redis, tmp_path, started)


@pytest.fixture
def hasty_yard(hasty_server: Cluster, redis: Redis, tmp_path: Path) -> Iterator[Yard]:
    with ExitStack() as started, _ended_bots(hasty_server):
        yield Yard(hasty_server, redis, tmp_path, started)


@contextmanager
def _ended_bots(one: Cluster) -> Iterator[None]:
    """End the bots that a test has started before its workers end."""
    before = len(one.bots)
    yield
    for bot in one.bots[before:]:
        bot.program.send_signal(signal.SIGCONT)
        bot.end()


def test_a_graph_runs_on_celery_with_results_secrets_files_and_output(yard: Yard) -> None:
    yard.worker("a", slots=2)
    bot = yard.bot()
    one = yard.cluster
    one.client.set_secret("deploy", "a-secret-of-the-test")
    make = 'echo "token $TOKEN"; echo content > left; echo \'{"n": 7}\' > "$TASKYARD_RESULT"'
    graph = one.submit(
        {
            "make": node({"script": make, "secrets": {"TOKEN": "deploy"}, "outputs": ["left"]}, task=LAB),
            "use": node({"script": 'cat "$TASKYARD_INPUTS" left', "inputs": [{"from": "make"}]}, "make", task=LAB),
            "call": call("same", 5, task=LAB),
            "fails": node({"script": "exit 3"}, {"task": "make", "on": "success"}, task=LAB),
            "handles": node({"script": "true"}, {"task": "fails", "on": "failure"}, task=LAB),
            "wide": node({"script": "true"}, {"task": "make"}, task={**LAB, "slots": 2}),
        }
    )
    graph.settled()
    states = graph.states()
    assert {label: states[label] for label in ("make", "use", "fails", "handles", "wide")} == {
        "make": "successful",
        "use": "successful",
        "fails": "failed",
        "handles": "successful",
        "wide": "failed",
    }
    assert graph.output("make") == b"token ***\n"
    assert graph.output("use") == b'{"make":{"n": 7}}content\n'
    assert b"runs only tasks that take one slot" in graph.output("wide")
    (attempt,) = graph.attempts("fails")
    assert (attempt.reason, attempt.exit_code, attempt.bot) == ("exit_code", 3, "celery")
    assert bot.poll() is None


@in_soaks
def test_a_task_waits_until_a_worker_takes_it_and_a_cancel_ends_it(yard: Yard) -> None:
    yard.worker("a")
    yard.bot()
    first = yard.witness()
    until(lambda: yard.begun() == ["1"], "the first runs")
    until(lambda: first.task("work").reason == "under_way", "it is shown as running")
    until(lambda: b"line 2" in first.output("work"), "its output is there while it runs")
    second = yard.cluster.submit({"work": script(f"touch {yard.folder}/never", task=LAB)})
    until(lambda: second.task("work").reason in ("assigned", "in_line", "bots_busy", "unseen"), "the second waits")
    yard.cluster.client.cancel_graph(second.id)
    yard.cluster.client.cancel_graph(first.id)
    first.until("work", "canceled")
    second.until("work", "canceled")
    assert not (yard.folder / "never").exists()


@in_soaks
def test_a_killed_worker_is_a_lost_bot(hasty_yard: Yard) -> None:
    yard = hasty_yard
    worker = yard.worker("a")
    yard.bot()
    graph = yard.witness()
    until(lambda: yard.begun() == ["1"], "it runs")
    until(lambda: graph.task("work").reason == "under_way", "the server knows that")
    yard.worker("b")
    worker.send_signal(signal.SIGKILL)
    until(lambda: yard.begun() == ["1", "2"], "it runs again")
    yard.let_go(graph)
    assert [(one.signal, one.reason) for one in graph.attempts("work")] == [("lose", "bot_lost"), ("succeed", "done")]


@in_soaks
def test_a_killed_bot_adopts_what_its_workers_run_when_it_is_restarted(yard: Yard) -> None:
    yard.worker("a", slots=2)
    bot = yard.bot()
    graph = yard.witness()
    until(lambda: b"line 1" in graph.output("work"), "it runs and prints")
    bot.send_signal(signal.SIGKILL)
    bot.wait()
    yard.bot()
    printed = len(graph.output("work"))
    until(lambda: len(graph.output("work")) > printed, "its output goes on")
    yard.let_go(graph)
    (attempt,) = graph.attempts("work")
    assert (attempt.number, attempt.signal) == (1, "succeed")
    lines = graph.output("work").decode().splitlines()
    count = len(lines) - 2
    assert lines == ["begun 1", *(f"line {number + 1}" for number in range(count)), "ended 1"]
    said = [one.note for one in yard.cluster.client.bot_events("celery") if one.kind == "connected"]
    assert any("goes on with attempts" in (text or "") for text in said)


@in_soaks
def test_what_a_frozen_bot_runs_ends_with_its_lease_before_another_bot_begins_it(hasty_yard: Yard) -> None:
    yard = hasty_yard
    yard.worker("a")
    bot = yard.bot()
    graph = yard.witness()
    until(lambda: yard.begun() == ["1"], "it runs")
    os.kill(bot.pid, signal.SIGSTOP)
    yard.cluster.bot("other", "--dimension", "lab=celery", state=f"{yard.folder.name}-other")
    until(lambda: yard.begun() == ["1", "2"], "another bot runs it")
    os.kill(bot.pid, signal.SIGCONT)
    yard.let_go(graph)
    assert [(one.bot, one.signal) for one in graph.attempts("work")][-1] == ("other", "succeed")
