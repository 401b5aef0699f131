"""What the tests and the pictures of the page show: graphs in many states on a server with two bots."""

from typing import Any

from tests.cli.waiting import until
from tests.e2e.cluster import Cluster, Graph

#: Prints as builds do, with colours.
BUILD = r"""
printf '\033[1mBuilding\033[0m dist/app\n'
for part in core store engine server bot; do printf '  \033[32m✓\033[0m compiled \033[36m%s\033[0m\n' $part; done
printf '\033[33mwarning:\033[0m unused variable in engine/writer.c:218\n'
echo "linked 5 objects into dist/app (1.2 MiB)"
"""
FAILING = r"""
for n in 1 2 3 4 5 6 7 8; do printf '\033[32mPASSED\033[0m tests/test_store.py::test_%s\n' $n; done
printf '\033[31mFAILED\033[0m tests/test_store.py::test_reopen\n'
printf '\033[31mE   AssertionError: 3 rows instead of 4\033[0m\n'
exit 1
"""


def task(script: str = "true", *requires: object, **more: Any) -> dict[str, Any]:
    """Write a node of a graph that runs a script."""
    beside = {name: more.pop(name) for name in ("reruns",) if name in more}
    payload = more.pop("payload", {"script": script})
    found = {"task": {"payload": payload, **more}, **beside}
    return {**found, "requires": list(requires)} if requires else found


def release(cluster: Cluster) -> Graph:
    """Submit a graph that succeeds up to a question to a person."""
    tests = {
        f"test-{system}-{version}": task("echo ok; sleep 0.2", "build")
        for system in ("linux", "windows")
        for version in ("3.11", "3.12", "3.13")
    }
    question = {"approval": {"message": "Publish version 4.2 to everybody?"}}
    result = """echo '{"version": "4.2.0", "files": 3}' > "$TASKYARD_RESULT"; echo packed"""
    return cluster.submit(
        {
            "checkout": task("echo 'HEAD is now at 3f2c9a1 Fix the reader'"),
            "build": task(BUILD + "sleep 0.4", "checkout"),
            "lint": task("echo clean", "checkout"),
            "docs": task("echo 41 pages", "checkout"),
            **tests,
            "package": task(result, *tests, "lint", "docs"),
            "publish": task("", "package", payload=question),
            "announce": task("echo sent", "publish"),
        },
        name="release 4.2",
        description="Build, test on every platform, and publish once a person agrees",
        tags={"branch": "main", "team": "core"},
    )


def nightly(cluster: Cluster) -> Graph:
    """Submit a graph in which a task fails, is tried again, and blocks others."""
    return cluster.submit(
        {
            "build": task(BUILD),
            "unit": task(FAILING, "build", reruns=2),
            "integration": task("echo 128 passed; sleep 0.3", "build"),
            "coverage": task("true", "unit", "integration"),
            "report": task("echo mailed", {"task": "unit", "on": "failure"}),
            "upload": task("true", "coverage"),
        },
        name="nightly",
        tags={"branch": "main"},
    )


def held(cluster: Cluster) -> Graph:
    """Submit tasks that run for long, wait for a mutex, for another bot, and for a time."""
    return cluster.submit(
        {
            "calibrate": task(
                "for n in $(seq 600); do echo step $n of 600; sleep 1; done", mutexes=[{"key": "device:7"}]
            ),
            "measure": task("true", mutexes=[{"key": "device:7"}]),
            "train": task("true", dimensions={"pool": "default", "gpu": "h100"}),
            "analyse": task("true", "measure"),
        },
        name="lab run",
        tags={"team": "lab"},
    )


def wide(cluster: Cluster, shards: int = 40) -> Graph:
    """Submit a graph with many tasks of one kind."""
    parts = {f"shard-{n}": task("", "split", payload={"noop": True}) for n in range(shards)}
    return cluster.submit(
        {"split": task(payload={"noop": True}), **parts, "merge": task("echo merged", *parts)}, name="shards"
    )


def populate(cluster: Cluster) -> dict[str, Graph]:
    """Submit all of these, and wait until they are where they should be."""
    graphs = {"release": release(cluster), "nightly": nightly(cluster), "held": held(cluster), "wide": wide(cluster)}
    until(lambda: graphs["release"].states()["publish"] == "running", "the question")
    until(lambda: graphs["nightly"].states()["coverage"] == "blocked", "the failure")
    until(lambda: graphs["held"].states()["calibrate"] == "running", "the long task")
    until(lambda: graphs["wide"].states()["merge"] == "successful", "the many tasks")
    return graphs
