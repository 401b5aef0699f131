"""A canary: what a secret is stands nowhere in what real servers and bots write or show, whatever ends in between."""

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from taskyard.bot.secret_files import SecretFiles
from taskyard.store.schema import metadata
from tests.cli.waiting import until
from tests.e2e.cluster import Cluster, Graph
from tests.e2e.documents import call, node
from tests.postgres import Postgres

FIRST = b"canary/1f8e of+the=pool"
SECOND = b"canary/93d0 of+the=pool"
BLOB = b"canary/77aa of+a=request"
SECRETS = {"TOKEN": "deploy", "KEY": {"name": "deploy", "file": True}}
PRINT = (
    'echo "$TOKEN"; printf %s "$TOKEN" | base64; cat "$KEY"; echo "at $TOKEN" >&2; '
    'printf %s "$TOKEN" | head -c 9; sleep 0.3; printf %s "$TOKEN" | tail -c +10; echo; '
    'echo "{\\"t\\": \\"$TOKEN\\"}" > "$TASKYARD_RESULT"; '
    'echo "$TOKEN" > "$TASKYARD_PROGRESS"; echo "$TOKEN" > "$TASKYARD_CHECKPOINT"; '
    'test -n "$TOKEN" && test -s "$KEY"'
)


def forms(value: bytes) -> Iterator[bytes]:
    """Yield how a value looks in files and answers that have it."""
    yield from (value, json.dumps(value.decode())[1:-1].encode(), value.hex().encode(), quote(value, safe="").encode())
    yield from (
        base64.b64encode(value)[:-4],
        base64.b64encode(b"x" + value)[4:-4],
        base64.b64encode(b"xx" + value)[4:-4],
    )


HIDDEN = [form for value in (FIRST, SECOND, BLOB) for form in forms(value)]


def leaks(places: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    return [(name, form) for name, body in places for form in HIDDEN if form in body]


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Read every file below a folder."""
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield str(path), path.read_bytes()
        except FileNotFoundError:
            continue  # of another test, and it is gone


def of_database(url: str, postgres: Postgres | None) -> Iterator[tuple[str, bytes]]:
    """Read what a PostgreSQL keeps: its files with the log of writes, and each table, where large values are packed."""
    if postgres is None:
        return  # the files of SQLite are in the folder of the cluster
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        for name in metadata.tables:
            with connection.cursor().copy(f"COPY {name} TO STDOUT (FORMAT BINARY)") as rows:
                yield name, b"".join(bytes(row) for row in rows)
    yield from written(Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"])))


def of_processes(pids: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    """Read the arguments and the environment of processes."""
    for pid in pids:
        for part in ("cmdline", "environ"):
            try:
                yield f"{part} of {pid}", Path(f"/proc/{pid}/{part}").read_bytes()
            except OSError:
                continue  # it has just ended


def shown(cluster: Cluster, graphs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Read what the server tells about graphs and bots."""
    client = cluster.client
    yield "audit", repr(list(client.audit())).encode()
    yield "bot", repr([client.bot("main"), list(client.bot_events("main"))]).encode()
    for graph in graphs:
        yield "graph", repr([client.graph(graph), list(client.tasks(graph))]).encode()
        for task in client.tasks(graph):
            yield "output", client.output(task.id)
            parts = client.task(task.id), client.attempts(task.id), client.story(task.id)
            yield "task", repr(parts).encode()


def secret_files(state: Path) -> list[Path]:
    """Return the files in memory that a bot with this state folder keeps for attempts."""
    return [path for folder in SecretFiles(state.resolve() / "work").folders() for path in folder.glob("*/*")]


def used(cluster: Cluster) -> int:
    return sum(row.action == "use_secret" for row in cluster.client.audit())


@pytest.fixture
def server_of_database(request: pytest.FixtureRequest, database_url: str) -> Postgres | None:
    """The PostgreSQL in which the database of this test is, if it is one."""
    return None if database_url.startswith("sqlite") else request.getfixturevalue("postgres")


def test_a_secret_is_nowhere_in_what_servers_and_bots_write(
    own_cluster: Cluster, server_of_database: Postgres | None, tmp_path: Path
) -> None:
    one, gate = own_cluster, tmp_path / "gate"
    one.client.set_secret("deploy", FIRST)
    bot = one.bot("main")
    tasks = {
        "prints": node({"script": PRINT, "secrets": SECRETS}),
        "raises": call("raise_variable", "TOKEN"),
        "returns": call("return_variable", "TOKEN"),
        "missing": node({"command": ["/no/such/program"], "secrets": SECRETS}),
        "killed": node(
            {"script": f"echo begun; while [ ! -e {gate} ]; do sleep 0.02; done; {PRINT}", "secrets": SECRETS}
        ),
    }
    for label in ("raises", "returns"):
        tasks[label]["task"]["payload"]["secrets"] = SECRETS
    graph = one.submit(tasks)
    payload = {"script": f'{PRINT}; cat "$TASKYARD_SECRET_BYTES"', "secrets": SECRETS}
    blob = base64.b64encode(BLOB).decode()
    asked = one.client.request({"task": {"payload": payload}, "secret_bytes": blob}, key="k").graph_id
    assert one.client.wait(asked).state == "finished"
    until(lambda: graph.output("killed") == b"begun\n", "the attempt has begun with its secrets")
    assert leaks(of_processes((bot.program.pid, bot.runner))) == []
    commands = [Path(f"/proc/{pid}/cmdline") for pid in bot.marked()]
    assert leaks((str(path), path.read_bytes()) for path in commands if path.exists()) == []
    bot.kill(also_runner=True)
    one.client.set_secret("deploy", SECOND)
    one.kill_server()
    one.serve()
    gate.touch()
    one.bot("main")
    graph.settled()
    wanted = {
        "prints": "successful",
        "raises": "failed",
        "returns": "successful",
        "missing": "failed",
        "killed": "successful",
    }
    assert graph.states() == wanted
    _check_masks(one, graph, asked)
    assert used(one) >= 2 * len(tasks)
    one.client.delete_secret("deploy")
    assert leaks(shown(one, (graph.id, asked))) == []
    assert leaks(of_database(one.database, server_of_database)) == []
    files = dict(written(tmp_path))
    assert any(path.endswith(".log") for path in files)
    assert leaks(files.items()) == []
    until(lambda: not secret_files(bot.state), "the bot has removed the files of all attempts")


def _check_masks(cluster: Cluster, graph: Graph, asked: str) -> None:
    (task,) = cluster.client.tasks(asked)
    outputs = {label: graph.output(label) for label in ("prints", "killed", "raises")}
    outputs["request"] = cluster.client.output(task.id)
    assert {label: body.count(b"***") >= 4 for label, body in outputs.items() if label != "raises"} == {
        "prints": True, "killed": True, "request": True,
    }, outputs  # fmt: skip
    assert b"ValueError: ***" in outputs["raises"]
    assert graph.task("returns").result == "***"
    assert graph.task("prints").result == {"t": "***"}
