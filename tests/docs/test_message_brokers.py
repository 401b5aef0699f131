"""The programs of the page about message brokers, run as it shows them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from taskyard.core.states import State
from taskyard.server.amqp import Link
from tests.amqp.test_external_pools import external, make_external, until_state
from tests.amqp.yard import opened_yard
from tests.brokers import RabbitMQ
from tests.cli.waiting import until
from tests.docs.page import Written, steps
from tests.project.tree import ROOT

PAGE = ROOT / "docs" / "message-brokers.md"


@contextmanager
def running(program: Path, broker: RabbitMQ) -> Iterator[Path]:
    """Run a program of the page; give the file that it prints to."""
    printed = program.with_suffix(".out")
    environment = {**os.environ, "TASKYARD_AMQP": broker.url}
    with (
        printed.open("wb") as file,
        subprocess.Popen([sys.executable, str(program)], env=environment, stdout=file, stderr=file) as process,
    ):
        try:
            yield printed
        finally:
            process.terminate()


def test_the_consumer_and_the_worker_of_the_page_do_what_it_says(
    sqlite_url: str, rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    for step in steps(PAGE):
        assert isinstance(step, Written)
        (tmp_path / step.name).write_text(step.text, encoding="utf-8")
    with ExitStack() as stack:
        yard = stack.enter_context(opened_yard(sqlite_url, rabbitmq.url, "taskyard", make_external))
        yard.until_link(Link.PUBLISHING)
        printed = stack.enter_context(running(tmp_path / "consumer.py", rabbitmq))
        stack.enter_context(running(tmp_path / "worker.py", rabbitmq))
        node = external()
        node["task"]["payload"]["command"] = ["echo", "hello"]  # type: ignore[index]
        document = {"routing": "nightly", "tasks": {"a": node}}

        ran = []

        def is_heard() -> bool:
            """Run another graph: the consumer gets what happens after its start."""
            ran.append(yard.submit(document))
            until_state(yard, ran[-1], State.SUCCESSFUL)
            return "graph.finished" in printed.read_text(encoding="utf-8")

        until(is_heard, "the consumer to hear of a finished graph")
        with yard.engine.store.read() as repo:
            (result,) = repo.read.results(ran[0]["a"]).values()
    assert json.loads(result) == {"printed": "hello\n"}
