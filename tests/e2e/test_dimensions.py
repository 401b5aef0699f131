"""Compared dimensions on a real server and real bots."""

import subprocess
import sys

from tests.cli.waiting import DEADLINE_SECONDS
from tests.e2e.cluster import Cluster
from tests.e2e.documents import script


def asks(gb: str | list[str], **more: object) -> dict[str, object]:
    return script("true", task={"dimensions": {"trial": "numbers", "memory_gb": gb}, **more})


def test_numbers_of_bots_are_compared(shared_cluster: Cluster) -> None:
    nodes = {
        "least": asks(">=9"),
        "large": asks(">16"),
        "not-small": asks(["!=16", "<100.5"]),
        "either": asks("<1|>=32"),
    }
    graph = shared_cluster.submit(nodes)
    shared_cluster.bot("small", "--dimension", "memory_gb=16", "--dimension", "trial=numbers")
    graph.until("least", "successful")
    assert {label: graph.task(label).state for label in nodes if label != "least"} == dict.fromkeys(
        ["large", "not-small", "either"], "waiting"
    )
    shared_cluster.bot("large", "--dimension", "memory_gb=32.0", "--dimension", "trial=numbers")
    graph.finished()
    assert {label: graph.attempts(label)[0].bot for label in nodes} == {
        "least": "small", "large": "large", "not-small": "large", "either": "large",
    }  # fmt: skip
    dimensions = {"trial": "numbers", "memory_gb": ">=64"}
    way = {"payload": {"script": "true"}, "dimensions": dimensions, "wait_for_capacity": False}
    unserved = shared_cluster.submit({"a": {"task": {"slices": [way]}}})
    unserved.settled()
    assert (unserved.task("a").reason, unserved.attempts("a")) == ("no_bot", [])
    found = {one.label for one in shared_cluster.client.tasks(tags=["memory_gb:>=9"])}
    assert found == {"least"}


def test_a_bot_whose_own_value_is_a_comparison_is_refused(shared_cluster: Cluster) -> None:
    state = shared_cluster.folder / "bots" / "comparing"
    words = ["bot", "--name", "comparing", "--dimension", "memory_gb=>=16", "--state", str(state), "--url"]
    found = subprocess.run(
        [sys.executable, "-m", "taskyard", *words, shared_cluster.url],
        env={**shared_cluster.env(), "TASKYARD_TOKEN": shared_cluster.bot_token},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert found.returncode != 0
    assert "must not begin with >=" in found.stderr
    assert "comparing" not in {one.id for one in shared_cluster.client.bots()}
