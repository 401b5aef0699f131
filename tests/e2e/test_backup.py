"""A backup of a cluster at work, restored after its end; and a move to PostgreSQL under a running bot."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.waiting import DEADLINE_SECONDS
from tests.e2e.cluster import Cluster, cluster
from tests.e2e.documents import gated, node, script
from tests.postgres import Postgres


@pytest.fixture
def new_url(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database that is to be made, of the same kind as that of the cluster."""
    if database_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'restored.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.empty()
    yield url
    server.drop(url)


def program(cluster: Cluster, *words: str) -> dict[str, Any]:
    """Run a command, which must succeed; return what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "taskyard", *words, "-o", "json"],
        cwd=cluster.folder,
        env=cluster.env(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_graphs_of_a_backup_that_was_made_at_work_go_on_to_their_end(
    database_url: str, new_url: str, tmp_path: Path
) -> None:
    gate, files, other = tmp_path / "gate", str(tmp_path / "files"), str(tmp_path / "other")
    keeps = node({"script": "echo kept > out.txt", "outputs": ["out.txt"]})
    last = node({"script": "cat out.txt", "inputs": [{"from": "keeps"}]}, "held", "keeps")
    with cluster(tmp_path, database_url, options=["--files", files]) as one:
        bot = one.bot("one")
        graph = one.submit({"keeps": keeps, "held": gated(gate), "last": last})
        graph.until("keeps", "successful")
        graph.until("held", "running")
        made = program(one, "backup", one.database, "backup.zip", "--files", files)
        assert (made["files"] > 0, made["missing"]) == (True, 0)
        later = one.submit({"later": script("true")})
        later.finished()
        one.kill_server()

        program(one, "restore", "backup.zip", new_url, "--files", other)
        one.database, one._options = new_url, ["--files", other]
        one.serve()
        assert bot.ended() == 1, "a bot of the old server is refused"
        assert [found.id for found in one.client.graphs()] == [graph.id], "what came after the backup is not there"
        gate.touch()
        one.bot("one")
        graph.finished()
        assert graph.output("last") == b"kept\n"
        assert [len(graph.attempts(label)) for label in ("keeps", "held", "last")] == [1, 2, 1]


def test_a_move_to_postgresql_loses_no_lease_of_a_running_bot(
    sqlite_url: str, postgres: Postgres, tmp_path: Path
) -> None:
    gate, url = tmp_path / "gate", postgres.empty()
    try:
        with cluster(tmp_path, sqlite_url) as one:
            one.bot("one")
            graph = one.submit({"held": gated(gate), "last": script("echo last", "held")})
            graph.until("held", "running")
            one.kill_server()
            moved = program(one, "move-store", one.database, url)
            assert {"task", "event", "attempt"} <= {table["name"] for table in moved["tables"] if table["rows"]}
            one.database = url
            one.serve()
            gate.touch()
            graph.finished()
            assert [len(graph.attempts(label)) for label in ("held", "last")] == [1, 1]
    finally:
        postgres.drop(url)
