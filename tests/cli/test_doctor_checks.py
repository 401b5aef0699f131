"""`taskyard doctor` without a database: problems of an installation are reported with their fixes."""

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from taskyard.cli import doctor_checks
from taskyard.cli.client import Server
from taskyard.cli.doctor_checks import Check
from tests.cli.program import taskyard
from tests.cli.server_process import ServerProcess, home_env, server_process
from tests.each_row import each_row

METADATA = """\
Metadata-Version: 2.1
Name: taskyard
Version: 9.9
Requires-Python: >=3.99
Requires-Dist: msgspec<0.2,>=0.1
Requires-Dist: no-such-package[all]>=1
Requires-Dist: only-elsewhere; sys_platform == 'nowhere'
Requires-Dist: for-some; extra == 'more'
Requires-Dist: rich>=15
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("yard")) as one:
        yield one


def verdicts(found: list[dict[str, str]], *names: str) -> list[tuple[str, str]]:
    return [(one["name"], one["verdict"]) for one in found if one["name"] in names]


def results(found: Iterator[Check]) -> list[tuple[str, str]]:
    return [(one.verdict, one.text) for one in found]


def test_a_good_installation_is_examined_from_the_python_to_the_server(server: ServerProcess) -> None:
    done = server.run("doctor", "-o", "json", "--data", str(server.folder))
    found = json.loads(done.stdout)
    assert {one["name"] for one in found} == {
        "python", "packages", "locale", "sqlite", "fsync", "disk", "files", "server", "clock", "token", "bot",
    }  # fmt: skip
    assert [one for one in found if one["verdict"] == "fault"] == []
    assert verdicts(found, "server", "clock", "token") == [("server", "ok"), ("clock", "ok"), ("token", "ok")]
    (token,) = (one["text"] for one in found if one["name"] == "token")
    assert token.startswith("admin (")
    assert token.endswith("), a user with admin")
    assert done.returncode == 0


def test_a_token_that_is_not_taken_is_a_fault_with_1_and_a_line_says_what_to_do(server: ServerProcess) -> None:
    done = server.run("doctor", "--data", str(server.folder), "--token", "ty_user_wrong")
    assert done.returncode == 1
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert ["ok", "server", f"{server.url} answers"] in lines
    assert [
        "fault", "token",
        "this is not a token of this server; set TASKYARD_TOKEN; an admin makes tokens with `taskyard token create`",
    ] in lines  # fmt: skip
    assert "1 fault" in done.stderr


def test_the_rights_of_a_token_are_shown(server: ServerProcess) -> None:
    made = server.client.new_token("user", "ann", scopes=["pool:lab:read", "pool:*:submit"], expires_in_ms=3_600_000)
    found = results(doctor_checks.check_server(Server(server.url, made.token)))
    verdict, said = found[-1]
    assert verdict == "warning"
    assert said.startswith(f"ann ({made.view.id}), a user with pool:*:submit, pool:lab:read, until ")
    bot = server.client.new_token("bot", "b1", pool="lab")
    assert results(doctor_checks.check_server(Server(server.url, bot.token)))[-1] == (
        "ok", f"b1 ({bot.view.id}), a bot with pool lab",
    )  # fmt: skip


def test_packages_and_python_that_do_not_fit_are_faults(tmp_path: Path) -> None:
    home = tmp_path / "site" / "taskyard-9.9.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text(METADATA)
    path = os.pathsep.join([str(home.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = home_env(tmp_path) | {"PYTHONPATH": path, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = taskyard("doctor", "-o", "json", "--url", "http://127.0.0.1:1", env=env, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert [one["text"].split(" is ")[0] for one in found if one["name"] == "packages"] == [
        f"msgspec {version('msgspec')}", "no-such-package >=1",
    ]  # fmt: skip
    assert verdicts(found, "python", "packages", "locale", "server") == [
        ("python", "fault"), ("packages", "fault"), ("packages", "fault"), ("locale", "warning"), ("server", "fault"),
    ]  # fmt: skip


@each_row(
    ("one", "versions", "fits"),
    [
        ("3.11.7", ">=3.11", True),
        ("3.10.9", ">=3.11", False),
        ("2.0", ">=1.20,<2", False),
        ("1.20", ">=1.20,<2", True),
        ("0.22.1rc1", ">=0.22,<0.23", True),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("1.0", "==1.0.0", True),
        ("1.0.1", "!=1.0.1", False),
        ("7", ">6,<=7", True),
        ("7", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(one: str, versions: str, fits: bool) -> None:
    assert doctor_checks.fits(one, versions) is fits


def test_secrets_that_others_can_read_are_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data, profile = tmp_path / "data", tmp_path / "config" / "taskyard" / "config.toml"
    data.mkdir(mode=0o755)
    profile.parent.mkdir(parents=True)
    for file in (profile, data / "admin.token", data / "taskyard.db"):
        file.write_text("")
        file.chmod(0o644)
    assert [(one.verdict, one.text, one.fix) for one in doctor_checks.files(data)] == [
        ("fault", f"{profile} holds a secret, and others can read it", f"chmod 600 {profile}"),
        ("fault", f"{data}/admin.token holds a secret, and others can read it", f"chmod 600 {data}/admin.token"),
        ("warning", f"others can list {data}", f"chmod 700 {data}"),
        ("fault", f"others can read or change {data}/taskyard.db", f"chmod 600 {data}/taskyard.db"),
    ]
    for path, mode in ((profile, 0o600), (data / "admin.token", 0o600), (data / "taskyard.db", 0o600), (data, 0o700)):
        path.chmod(mode)
    assert results(doctor_checks.files(data)) == [("ok", "only you can read 2 files with secrets and 2 data paths")]
    assert results(doctor_checks.files(tmp_path / "nowhere")) == [
        ("ok", "only you can read 1 file with secrets and 0 data paths")
    ]


def test_the_log_of_sqlite_and_the_disk_are_tried_where_things_will_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "not" / "yet"
    log, speed = doctor_checks.sqlite(data)
    assert (log.verdict, log.text) == (
        "ok",
        f"SQLite {sqlite3.sqlite_version}; its write-ahead log works in {tmp_path}",
    )
    assert speed.text.startswith(f"a write to {tmp_path} is on disk in ")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(doctor_checks, "SYNC_MAX_MS", -1.0)
    assert [one.verdict for one in doctor_checks.sqlite(data)] == ["ok", "warning"]
    monkeypatch.setattr(doctor_checks, "SQLITE_MIN", (99, 0, 0))
    assert [one.verdict for one in doctor_checks.sqlite(data)] == ["fault"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that no user can write to")
def test_a_folder_that_cannot_be_written_to_is_a_fault() -> None:
    ((verdict, said),) = results(doctor_checks.sqlite(Path("/proc/taskyard")))
    assert verdict == "fault"
    assert said.startswith("cannot write to /proc: ")


def test_a_disk_that_is_almost_full_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (free,) = doctor_checks.disk(tmp_path)
    assert free.text.endswith(f" GiB free at {tmp_path}")
    monkeypatch.setattr(doctor_checks, "FREE_MIN", 1 << 62)
    assert [one.verdict for one in doctor_checks.disk(tmp_path)] == ["warning"]
    monkeypatch.setattr(doctor_checks, "FREE_LEAST", 1 << 61)
    assert [one.verdict for one in doctor_checks.disk(tmp_path)] == ["fault"]


@contextmanager
def answering(status: int, body: dict[str, Any]) -> Iterator[str]:
    """Run a server that gives the same answer to every request; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("ahead_ms", "verdict"), [(3_600_000, "fault"), (-20_000, "warning"), (0, "ok")])
def test_another_version_and_another_time_are_reported(ahead_ms: int, verdict: str) -> None:
    now = round(time.time() * 1000)
    body = {
        "version": "99.0", "now_ms": now + ahead_ms, "actor": "ann", "kind": "user", "scopes": [],
        "pool": None, "expires_ms": None,
    }  # fmt: skip
    with answering(200, body) as url:
        found = list(doctor_checks.check_server(Server(url, "ty")))
    assert [(one.name, one.verdict) for one in found] == [("server", "warning"), ("clock", verdict), ("token", "ok")]
    assert found[0].text == f"{url} has version 99.0, this program has {version('taskyard')}"


def test_an_older_server_and_another_program_are_reported() -> None:
    problem = {"type": "", "title": "", "status": 404, "detail": "", "code": "not_found"}
    with answering(404, problem) as url:
        assert results(doctor_checks.check_server(Server(url, "ty"))) == [
            ("warning", f"the server at {url} is older than this program")
        ]
    with answering(200, {"hello": "world"}) as url:
        ((verdict, said),) = results(doctor_checks.check_server(Server(url, "ty")))
    assert verdict == "fault"
    assert f"the answer of {url} cannot be read" in said


def test_postgresql_is_reached_if_the_environment_names_one(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    assert list(doctor_checks.postgresql()) == []
    for key, value in conninfo_to_dict(postgres_url).items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(key, f"PG{key.upper()}"), str(value))
    ((verdict, said),) = results(doctor_checks.postgresql())
    assert verdict == "ok"
    assert said.endswith(" answers")
    monkeypatch.setattr(doctor_checks, "POSTGRESQL_MIN", 990_000)
    assert [one.verdict for one in doctor_checks.postgresql()] == ["fault"]
    monkeypatch.setenv("PGHOST", str(tmp_path))
    ((verdict, said),) = results(doctor_checks.postgresql())
    assert verdict == "fault"
    assert said.startswith("cannot connect: ")


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux has")
def test_what_a_bot_needs_is_tried_and_changes_nothing_here() -> None:
    assert [one.verdict for one in doctor_checks.features()] == ["ok"] * 4


def test_a_machine_that_lacks_something_for_bots_says_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    found = {one.text: (one.verdict, one.fix) for one in doctor_checks.features()}
    assert found["no pidfd: a process is never mistaken for another with the same id"] == (
        "warning", "use Linux 5.3 or newer",
    )  # fmt: skip


def test_a_check_that_breaks_down_keeps_no_other_from_being_made() -> None:
    def broken() -> Iterator[Check]:
        yield Check("odd", "ok", "so far")
        raise RuntimeError("no such thing")

    assert results(doctor_checks._results("odd", broken)) == [
        ("ok", "so far"), ("fault", "the check failed: RuntimeError: no such thing"),
    ]  # fmt: skip
