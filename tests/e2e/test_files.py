"""Files of tasks on real servers and bots: what they take, what they leave, and what kills cannot take away."""

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from taskyard.engine.failpoints import Boundary, Side
from taskyard.files.digests import CHUNK_BYTES, sha256
from taskyard.files.gc import collect_garbage
from taskyard.files.local import LocalFiles
from taskyard.files.store import blobs, trees
from taskyard.sdk import Unreachable
from taskyard.sdk.local_inputs import tree_of
from taskyard.store.connection import open_store
from tests.cli.terminal import run_on_terminal
from tests.cli.waiting import DEADLINE_SECONDS, until
from tests.e2e.cluster import Cluster, Graph, cluster
from tests.e2e.documents import gated, node, only

#: Prints each file below the working folder with its content, in order.
SHOW = 'find . -type f | LC_ALL=C sort | while read -r one; do echo "$one=$(cat "$one")"; done'


def submitted(cluster: Cluster, folder: Path, tasks: dict[str, object]) -> Graph:
    """Store a graph that names files of a folder."""
    made = cluster.client.submit_with_files({"name": "files", "tasks": tasks}, here=str(folder))
    return Graph(cluster, made.graph_id, dict(made.nameMapping))


def command(cluster: Cluster, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as a person would."""
    env = {**cluster.env(), "TASKYARD_URL": cluster.url, "TASKYARD_TOKEN": cluster.token}
    return subprocess.run(
        [sys.executable, "-m", "taskyard", *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with files, one of which can be run, and a link."""
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\necho ran with $1\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/run.sh")
    return tmp_path


def test_inputs_are_there_for_every_kind_of_task_and_outputs_flow_on(shared_cluster: Cluster, source: Path) -> None:
    local = [{"local": "source"}]
    build = "./link build; mkdir -p dist/deep; cp a.txt dist/deep/b.txt; echo log > made.log; echo no > left.out"
    graph = submitted(
        shared_cluster,
        source,
        {
            "build": node({"script": build, "inputs": local, "outputs": ["dist/", "**/*.log"]}),
            "command": node({"command": ["sub/run.sh", "command"], "inputs": local}),
            "inside": node({"command": ["./run.sh", "inside"], "inputs": local, "cwd": "sub"}),
            "function": node(
                {
                    "python": "tests.e2e.task_functions:list_files",
                    "args": ["new/made"],
                    "inputs": [{"from": "build", "path": "dist/", "to": "in"}],
                    "outputs": ["new"],
                },
                "build",
            ),
            "last": node(
                {
                    "script": SHOW,
                    "inputs": [
                        *local,
                        {"from": "build", "path": "dist/deep/b.txt", "to": "a.txt"},
                        {"from": "function"},
                    ],
                },
                "build",
                "function",
            ),
        },
    )
    graph.finished()
    assert graph.output("build") == b"ran with build\n"
    assert graph.output("command") == b"ran with command\n"
    assert graph.output("inside") == b"ran with inside\n"
    assert graph.task("function").result == ["in/deep/b.txt", "new/made"]
    shown = graph.output("last").decode().splitlines()
    assert shown[0] == "./a.txt=a"
    assert "./new/made=made" in shown
    left = shared_cluster.client.files(graph.names["build"])
    assert [one.path for one in left.items] == ["dist/deep/b.txt", "made.log"]
    assert b"".join(shared_cluster.client.read_file(graph.names["build"], "dist/deep/b.txt")) == b"a"
    (attempt,) = graph.attempts("build")
    assert attempt.files == graph.task("build").files == left.tree
    assert attempt.stats is not None
    assert attempt.stats.downloaded_ms is not None
    assert attempt.stats.uploaded_ms is not None
    assert graph.task("command").input_trees == [tree_of(str(source / "source")).digest]


def test_outputs_are_taken_whatever_became_of_the_prerequisite(shared_cluster: Cluster, source: Path) -> None:
    """Failed ones, those of an `any` join that have not ended, the last of several attempts, and by another slice."""
    took, gate = {"local": "source", "to": "own/"}, source / "gate"
    twice = 'echo "attempt $TASKYARD_ATTEMPT" > left; test "$TASKYARD_ATTEMPT" = 2'
    nowhere = {"os": "nowhere"}
    slices = [
        {"dimensions": nowhere, "wait_for_capacity": False, "payload": {"inputs": [{"from": "twice"}]}},
        {"dimensions": {}, "payload": {"inputs": [{"from": "twice", "path": "left", "to": "in/"}, took]}},
    ]
    always = [{"task": one, "on": "always"} for one in ("failed", "bare")]
    graph = submitted(
        shared_cluster,
        source,
        {
            "failed": node({"script": "echo why > left; exit 3", "outputs": ["left"]}),
            "bare": node({"script": "exit 3", "outputs": ["left"]}),
            "after": node({"script": SHOW, "inputs": [{"from": "failed"}, {"from": "bare"}]}, *always),
            "slow": gated(gate, after="echo late > late"),
            "any": node(
                {"script": f"{SHOW}; touch {gate}", "inputs": [{"from": "slow"}, {"from": "twice"}]},
                "slow",
                "twice",
                join="any",
            ),
            "twice": node({"script": twice, "outputs": ["left"]}, reruns=1),
            "slices": node({"script": SHOW}, "twice", task={"slices": slices}),
        },
    )
    graph.settled()
    assert graph.output("after") == b"./left=why\n"
    assert graph.output("any") == b"./left=attempt 2\n"
    assert graph.task("any").state == "successful"
    assert graph.output("slices").decode().splitlines() == [
        "./in/left=attempt 2",
        "./own/a.txt=a",
        "./own/sub/run.sh=#!/bin/sh",
        "echo ran with $1",
    ]
    assert b"".join(shared_cluster.client.read_file(graph.names["twice"], "left", attempt=1)) == b"attempt 1\n"
    again = shared_cluster.client.rerun_from(graph.id, ["slices"])
    copy = Graph(shared_cluster, again.subject)
    copy.until("slices", "successful")
    assert copy.output("slices") == graph.output("slices"), "what it takes was copied along"


def test_what_a_task_leaves_and_may_not_fails_it_and_what_a_failed_one_leaves_is_kept(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    graph = submitted(
        shared_cluster,
        tmp_path,
        {
            "missing": node({"script": "true", "outputs": ["none", "no*ne"]}),
            "out": node({"script": "ln -s /etc/passwd out", "outputs": ["out"]}),
            "pipe": node({"script": "mkfifo pipe", "outputs": ["pipe"]}),
            "case": node({"script": "touch a A", "outputs": ["*"]}),
            "failed": node({"script": "echo why > report; exit 3", "outputs": ["report", "none"]}),
            "late": node({"script": "echo why > report; sleep 600", "outputs": ["report"], "timeout": "1s"}),
            "taker": node({"script": "true", "inputs": [{"from": "empty"}]}, "empty"),
            "empty": node({"script": "true"}),
        },
    )
    graph.settled()
    ended = {label: graph.attempts(label)[0] for label in graph.names}
    assert {label: one.reason for label, one in ended.items()} == {
        **dict.fromkeys(("missing", "out", "pipe", "case"), "bad_result"),
        "failed": "exit_code",
        "late": "timed_out",
        "taker": "exit_code",
        "empty": "done",
    }
    assert graph.output("missing") == b"taskyard: outputs: there is no 'none'\n"
    assert b"leads out of its folder" in graph.output("out")
    assert b"is a named pipe" in graph.output("pipe")
    assert b"are the same on some machines" in graph.output("case")
    assert b"'empty' has kept no files" in graph.output("taker")
    for label in ("failed", "late"):
        assert b"".join(shared_cluster.client.read_file(graph.names[label], "report")) == b"why\n", label


def test_a_running_task_keeps_an_artifact_and_files_come_and_go_by_command(
    shared_cluster: Cluster, source: Path
) -> None:
    keep = f"{sys.executable} -m taskyard put --artifact early --type text/plain early.txt"
    payload = {
        "script": f"echo early > early.txt; {keep}; mkdir out; echo {'x' * 5} > out/x",
        "outputs": ["out", {"path": "out/x", "name": "named", "type": "text/html"}],
        "env": {"PYTHONPATH": shared_cluster.env()["PYTHONPATH"]},
        "inputs": [{"local": "source"}],
    }
    (source / "graph.json").write_text(json.dumps({"tasks": {"a": node(payload)}}))
    done = command(shared_cluster, "submit", "--wait", "graph.json", cwd=source)
    assert done.returncode == 0, done.stderr
    task = f"{next(iter(shared_cluster.client.graphs(limit=1))).id}/a"
    assert {one.name: one.content_type for one in shared_cluster.client.artifacts(task)} == {
        "early": "text/plain",
        "named": "text/html",
    }
    got = command(shared_cluster, "get", "--artifact", "early", "--to", "-", task, cwd=source)
    assert (got.returncode, got.stdout) == (0, "early\n")
    got = command(shared_cluster, "get", "--to", "here", task, "out", cwd=source)
    assert (got.returncode, (source / "here/out/x").read_text()) == (0, "xxxxx\n"), got.stderr
    assert command(shared_cluster, "get", "--to", "-", task, "out/none", cwd=source).returncode == 5
    listed = command(shared_cluster, "get", "--list", "-o", "name", task, cwd=source)
    assert listed.stdout.split() == ["out/x"]
    digest = command(shared_cluster, "put", "source", cwd=source)
    assert digest.stdout.strip() == tree_of(str(source / "source")).digest
    assert "0 bytes were sent" in digest.stderr
    plain = json.dumps({"tasks": {"b": node({"script": SHOW})}})
    (source / "plain.json").write_text(plain)
    done = command(shared_cluster, "submit", "--wait", "--inputs", "source", "plain.json", cwd=source)
    assert done.returncode == 0, done.stderr
    graph = next(iter(shared_cluster.client.graphs(limit=1))).id
    assert b"./a.txt=a\n" in shared_cluster.client.output(f"{graph}/b")
    bad = json.dumps({"tasks": {"b": node({"script": "true", "inputs": [{"local": "none"}]})}})
    (source / "bad.json").write_text(bad)
    refused = command(shared_cluster, "submit", "bad.json", cwd=source)
    assert (refused.returncode, "tasks.b.task.payload.inputs[0].local" in refused.stderr) == (2, True), refused.stderr


def test_long_transfers_show_on_a_terminal_how_far_they_are(shared_cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "one").write_bytes(os.urandom(20_000_000))
    (tmp_path / "small").write_text("small")
    env = {**shared_cluster.env(), "TASKYARD_URL": shared_cluster.url, "TASKYARD_TOKEN": shared_cluster.token}

    def shown(*words: str) -> str:
        exit_code, text = run_on_terminal(words, env, tmp_path)
        assert exit_code == 0, text
        return text

    text = shown("put", "large")
    assert "reading 20 MB" in text
    assert "sending 20 MB" in text
    assert "100%" in text
    assert "sending" not in shown("put", "large"), "all of it is there"
    assert "reading" not in shown("put", "small"), "it takes no time"
    document = {"tasks": {"a": node({"script": "true", "inputs": [{"local": "large"}], "outputs": ["one"]})}}
    (tmp_path / "graph.json").write_text(json.dumps(document))
    assert "reading 20 MB" in shown("submit", "--wait", "graph.json")
    task = f"{next(iter(shared_cluster.client.graphs(limit=1))).id}/a"
    assert "receiving 20 MB" in shown("get", "--to", "back", task)
    assert (tmp_path / "back" / "one").read_bytes() == (tmp_path / "large" / "one").read_bytes()
    quiet = command(shared_cluster, "get", "--to", "again", task, cwd=tmp_path)
    assert "receiving" not in quiet.stderr, "it is no terminal"


LARGE = 10 * CHUNK_BYTES


def chunks(cluster: Cluster) -> int:
    """Count the chunks that are stored."""
    return sum(1 for path in cluster.folder.rglob("*/blobs/*/*") if path.is_file())


def test_a_kill_in_the_middle_of_an_upload_loses_nothing(own_cluster: Cluster, tmp_path: Path) -> None:
    bot = own_cluster.bot("b1")
    for victim in ("server", "bot"):
        before = chunks(own_cluster)
        large = node({"script": f"head -c {LARGE} /dev/urandom > large", "outputs": ["large"]})
        graph = own_cluster.submit({"a": large})
        until(lambda before=before: chunks(own_cluster) > before, "the upload has begun")  # type: ignore[misc]
        if victim == "server":
            own_cluster.kill_server()
            own_cluster.serve()
        else:
            bot.kill()
            own_cluster.bot("b1")
        graph.finished()
        (left,) = own_cluster.client.files(graph.names["a"]).items
        assert left.size == LARGE
        back = tmp_path / victim
        own_cluster.client.get_files(graph.names["a"], str(back))
        stored = graph.task("a").files
        assert stored is not None
        assert tree_of(str(back)).digest == stored.digest


def collected(cluster: Cluster) -> set[str]:
    """Make a pass of the collector, as another server of the database would; return what is stored then."""
    (incoming,) = cluster.folder.rglob("incoming")
    files, store = LocalFiles(incoming.parent), open_store(cluster.database)

    def used(trees: Collection[str]) -> set[str]:
        with store.read() as repo:
            return repo.files.used_trees(trees)

    try:
        collect_garbage(files, used, unused_seconds=-60, settle_seconds=0, bits=1 << 16)
    finally:
        store.close()
    return {*files.digests(blobs("default")), *files.digests(trees("default"))}


def test_a_kill_in_the_middle_of_a_purge_leaves_no_file_too_many_and_takes_none_too_few(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    own_cluster.bot("main", slots=4)

    def leaves(number: int) -> dict[str, object]:
        before = (f"t{place}" for place in range(number))
        return node({"script": f"echo {number} > own; echo both > both", "outputs": ["own", "both"]}, *before)

    gone = own_cluster.submit({f"t{number}": leaves(number) for number in range(30)})
    kept = own_cluster.submit({"a": node({"script": "echo both > both", "outputs": ["both"]})})
    gone.finished()
    kept.finished()
    own_cluster.kill_server()
    own_cluster.serve(f"{Boundary.PURGE}.{Side.AFTER}:exit@1")
    with suppress(Unreachable):  # it may be killed before it has answered
        own_cluster.client.delete_graph(gone.id)
    assert own_cluster.server_ended() == -signal.SIGKILL
    collected(own_cluster)
    own_cluster.serve()
    assert b"".join(own_cluster.client.read_file(kept.names["a"], "both")) == b"both\n"
    left = kept.task("a").files
    assert left is not None
    own_cluster.client.delete_graph(own_cluster.submit({"z": node({"noop": True})}).id)  # wakes what deletes
    # The first pass after the purge removes the trees, the second their chunks.
    until(lambda: collected(own_cluster) == {left.digest, sha256(b"both\n")}, "only what is referred to is left")
    own_cluster.client.get_files(kept.names["a"], str(tmp_path / "back"))
    assert (tmp_path / "back" / "both").read_text() == "both\n"


def test_a_full_disk_of_the_server_holds_up_what_a_task_leaves_until_there_is_room(
    sqlite_url: str, tmp_path: Path
) -> None:
    """A task that has done its work is not run again for that."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "none", str(disk)], check=False).returncode != 0:
        pytest.skip("only root can make a small disk, and not in every container")
    try:
        with cluster(tmp_path, sqlite_url, options=("--files", str(disk))) as one:
            one.bot("b1")
            graph = one.submit({"a": node({"script": "echo ran; echo kept > x", "outputs": ["x"]})})

            def said() -> str:
                return " ".join(event.note for event in one.client.bot_events("b1"))

            until(lambda: "the disk of the files is full" in said(), "the bot says why it waits")
            assert graph.task("a").state == "running"
            subprocess.run(["mount", "-o", "remount,size=400m", str(disk)], check=True)
            graph.finished()
            assert (graph.output("a"), len(graph.attempts("a"))) == (b"ran\n", 1)
            assert b"".join(one.client.read_file(graph.names["a"], "x")) == b"kept\n"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def small_cluster(sqlite_url: str, tmp_path: Path) -> Iterator[Cluster]:
    """A server without bots on a database file."""
    with cluster(tmp_path, sqlite_url) as one:
        yield one


def test_a_terminated_bot_keeps_what_its_tasks_leave(small_cluster: Cluster, tmp_path: Path) -> None:
    bot, gate = small_cluster.bot("b1"), tmp_path / "gate"
    document = gated(gate, after="echo kept > x")
    document["task"]["payload"]["outputs"] = ["x"]
    graph = small_cluster.submit({"a": document})
    graph.until("a", "running")
    bot.program.send_signal(signal.SIGTERM)
    gate.touch()
    assert bot.ended() == 0
    assert b"".join(small_cluster.client.read_file(graph.names["a"], "x")) == b"kept\n"


def test_tasks_of_another_user_have_files_too(small_cluster: Cluster, source: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run tasks as another user")
    nobody = pwd.getpwnam("nobody").pw_uid
    small_cluster.bot("b1", "--user", "nobody")
    took = {"local": "source"}
    graph = submitted(
        small_cluster,
        source,
        {
            "a": node(
                {
                    "script": "id -u; stat -c %u a.txt; ./link x; echo made > made",
                    "inputs": [took],
                    "outputs": ["made"],
                },
                task=only("b1"),
            )
        },
    )
    graph.finished()
    assert graph.output("a").decode() == f"{nobody}\n{nobody}\nran with x\n"
    assert b"".join(small_cluster.client.read_file(graph.names["a"], "made")) == b"made\n"
    # The bot reads what a task leaves with the rights of the task: a link to what only root reads gives nothing away.
    hidden = small_cluster.folder / "admin.token"
    graph = submitted(
        small_cluster,
        source,
        {"a": node({"script": f"ln -s {hidden} secret; ln {hidden} hard || true", "outputs": ["secret", "hard*"]})},
    )
    assert graph.settled().state == "blocked"
    assert graph.attempts("a")[0].reason == "bad_result"
