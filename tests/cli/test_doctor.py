"""`taskyard doctor` with a database: problems are reported, repaired where possible, and never made worse."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.core.ids import Key, text_of
from taskyard.engine.engine import Engine
from taskyard.lifecycle.submit import Submitted
from taskyard.store import migrate
from tests.cli.program import PLAIN_ENV, PROGRAM, taskyard, taskyard_in_process
from tests.cli.waiting import DEADLINE_SECONDS, read_until
from tests.engine.harness import EngineHarness, execute_raw, graph, task
from tests.postgres import Postgres

Answer = tuple[int, str, str]


def doctor(*arguments: str) -> Answer:
    """Run the doctor; return the exit code, stdout and stderr."""
    done = taskyard_in_process("doctor", *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def graph_id(database_url: str) -> int:
    """A graph of two tasks in the database."""
    with Engine.open(database_url) as engine:
        made = engine.submit(graph(a=task(), b=task("a")))
        assert isinstance(made, Submitted)
        return made.graph


@pytest.fixture
def file(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


@pytest.mark.usefixtures("graph_id")
def test_a_healthy_database_has_nothing_to_mend(database_url: str) -> None:
    assert doctor(database_url) == (0, "", "no problems found\n")
    assert doctor(database_url, "--repair") == (0, "", "no problems found\n")
    assert doctor(database_url, "-o", "json") == (0, "[]\n", "no problems found\n")


def test_problems_are_found_and_then_repaired(database_url: str, graph_id: int) -> None:
    execute_raw(database_url, "UPDATE graph SET behind = 7, unhandled = 3")
    sentences = "".join(
        f"graph {text_of(Key(graph_id))}: {column}; repair can mend it\n"
        for column in ("behind is 7 and should be 1", "unhandled is 3 and should be 0")
    )
    assert doctor(database_url) == (3, sentences, "2 findings; --repair can repair 2\n")
    assert doctor(database_url, "--repair") == (0, sentences, "repaired 2 findings\n")
    assert doctor(database_url) == (0, "", "no problems found\n")


def test_what_only_a_person_can_mend_stays(database_url: str, graph_id: int) -> None:
    execute_raw(
        database_url,
        "DELETE FROM event WHERE subject_id = {id} AND number = 1; UPDATE graph SET behind = 7",
        graph_id,
    )
    code, found, said = doctor(database_url, "--repair")
    assert (code, said) == (3, "repaired 1 finding; 1 left\n")
    assert [line.rpartition("; ")[2] for line in found.splitlines()] == [
        "repair can mend it",
        "a person has to look at it",
    ]
    code, found, said = doctor(database_url)
    assert (code, said) == (3, "1 finding; --repair can repair 0\n")
    assert found.startswith(f"graph {text_of(Key(graph_id))}: number of events is ")


def test_a_program_gets_a_list_of_findings(database_url: str, graph_id: int) -> None:
    execute_raw(database_url, "UPDATE graph SET behind = 7; UPDATE service SET queues = 9")
    code, found, _ = doctor(database_url, "-o", "json", "--repair")
    assert code == 0
    assert json.loads(found) == [
        {
            "kind": "graph",
            "subject": text_of(Key(graph_id)),
            "column": "behind",
            "stored": 7,
            "counted": 1,
            "mendable": True,
        },
        {"kind": "service", "subject": "here", "column": "queues", "stored": 9, "counted": 1, "mendable": True},
    ]


def test_a_repair_is_audited(database_url: str, graph_id: int) -> None:
    execute_raw(database_url, "UPDATE graph SET behind = 7")
    doctor(database_url, "--repair")
    with Engine.open(database_url) as engine, engine.store.read() as repo:
        audits = [(row.actor, row.action) for row in repo.events.audits_of(graph_id, 10)]
    assert audits == [("", "submit"), ("taskyard doctor", "repair")]


def test_time_stands_still_for_a_database_that_is_repaired(database_url: str) -> None:
    """The lease in the database ended long ago, and only a server may time it out."""
    with EngineHarness(database_url) as rig:
        labels = rig.submit(graph(a=task()))
        rig.hello()
        assert len(rig.claim()) == 1
        before = rig.tasks(labels)
    execute_raw(database_url, "UPDATE graph SET behind = 7")
    assert doctor(database_url, "--repair")[0] == 0
    with EngineHarness(database_url) as rig:
        assert rig.tasks(labels) == before


@pytest.mark.parametrize("spelling", ["{}", "sqlite:///{}"])
def test_a_file_is_named_by_its_path_or_its_address(file: Path, spelling: str) -> None:
    assert doctor(spelling.format(file)) == (0, "", "no problems found\n")
    done = taskyard("doctor", spelling.format(file.name), cwd=file.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no problems found\n")


@pytest.mark.parametrize("options", [[], ["--repair"]])
def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "none.db"
    told = f"taskyard: cannot check {path}: there is no file {path}\n"
    assert doctor(str(path), *options) == (1, "", told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--repair"]])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"name: nightly\n", "{0} is no database of SQLite"),
        (b"", "it has no schema of Taskyard: is it the right database?"),
        (b"SQLite format 3\0" + b"x" * 5000, "file is not a database"),
    ],
)
def test_a_file_that_is_no_database_is_not_changed(
    tmp_path: Path, content: bytes, told: str, options: list[str]
) -> None:
    path = tmp_path / "some.yaml"
    path.write_bytes(content)
    assert doctor(str(path), *options) == (1, "", f"taskyard: cannot check {path}: {told.format(path)}\n")
    assert path.read_bytes() == content


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    told = f"taskyard: cannot check {tmp_path}: {tmp_path}: Is a directory\n"
    assert doctor(str(tmp_path)) == (1, "", told)


def test_a_damaged_file_is_reported_in_one_line(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    code, found, said = doctor(str(file))
    assert (code, found, said.count("\n")) == (1, "", 1)
    assert said.startswith(f"taskyard: cannot check {file}: ")


def test_an_empty_database_is_not_filled(postgres: Postgres) -> None:
    url = postgres.empty()
    told = "taskyard: cannot check postgresql: it has no schema of Taskyard: is it the right database?\n"
    assert doctor(url, "--repair") == (1, "", told)
    assert migrate.current_version(url) is None
    postgres.drop(url)


@pytest.mark.parametrize("options", [[], ["--repair"]])
def test_a_database_of_a_newer_program_is_refused_with_what_helps(database_url: str, options: list[str]) -> None:
    execute_raw(database_url, "UPDATE alembic_version SET version_num = '9999'; UPDATE service SET queues = 9")
    code, found, said = doctor(database_url, *options)
    assert (code, found) == (1, "")
    assert (
        f"the database has version 9999 of the schema and this program knows versions up to {migrate.NEWEST}: " in said
    )
    assert "run the newer taskyard that made it" in said


@pytest.mark.parametrize("options", [[], ["--repair"]])
def test_a_database_of_an_older_program_is_refused_with_what_helps(database_url: str, options: list[str]) -> None:
    execute_raw(database_url, "UPDATE alembic_version SET version_num = '0000'")
    code, found, said = doctor(database_url, *options)
    assert (code, found) == (1, "")
    assert f"it has version 0000 of the schema and this program looks after version {migrate.NEWEST}: " in said
    assert "open it once with this Taskyard, which upgrades it" in said


def test_a_file_in_use_can_be_looked_at_and_not_repaired(sqlite_url: str) -> None:
    with Engine.open(sqlite_url) as engine:
        engine.submit(graph(a=task()))
        assert doctor(sqlite_url) == (0, "", "no problems found\n")
        code, found, said = doctor(sqlite_url, "--repair")
        assert (code, found) == (1, "")
        assert "taskyard.db is in use by another Taskyard: stop that one first" in said
        assert isinstance(engine.submit(graph(b=task())), Submitted)
    assert doctor(sqlite_url, "--repair")[0] == 0


def test_a_server_s_database_is_repaired_while_it_is_in_use(postgres_url: str) -> None:
    with Engine.open(postgres_url) as engine:
        engine.submit(graph(a=task()))
        execute_raw(postgres_url, "UPDATE graph SET behind = 7")
        assert doctor(postgres_url, "--repair")[0] == 0
        assert engine.doctor() == []


def test_an_unreachable_database_is_reported_without_the_password(tmp_path: Path) -> None:
    code, found, said = doctor(f"postgresql://ann:hunter2@/yard?host={tmp_path}")
    assert (code, found, said.count("\n")) == (1, "", 1)
    assert said.startswith("taskyard: cannot check postgresql: connection is bad: ")
    code, found, said = doctor("postgresql://ann:hunter2@[/yard")
    assert (code, found, said.count("\n")) == (1, "", 1)
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--repair"], "DATABASE"),
        (["mysql://host/yard"], "a database is a file, sqlite:///FILE, or a postgresql:// address"),
        (["sqlite://yard.db"], "a database is a file, sqlite:///FILE, or a postgresql:// address"),
        (["yard.db", "--mend"], "--mend"),
        (["yard.db", "-o", "xml"], "-o"),
    ],
)
def test_a_wrong_command_line_gives_exit_code_2(arguments: list[str], told: str) -> None:
    code, found, said = doctor(*arguments)
    assert (code, found) == (2, "")
    assert told in " ".join(said.split())


def test_no_name_can_act_on_a_terminal(sqlite_url: str) -> None:
    with Engine.open(sqlite_url) as engine:
        engine.submit(graph(a=task()))
    execute_raw(sqlite_url, "UPDATE queue SET root = char(27) || ']0;owned' || char(7) || 'shown' WHERE number = 1")
    code, found, _ = doctor(sqlite_url)
    assert code == 3
    assert "root is shown and should be" in found
    assert "\x1b" not in found


def test_a_reader_that_has_left_is_no_failure_of_the_doctor(sqlite_url: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(PROGRAM), "doctor", sqlite_url, "-o", "json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=PLAIN_ENV, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "no problems found\n")


@pytest.fixture
def terminal(sqlite_url: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The doctor on a terminal, and the side of the user."""
    person, program_side = pty.openpty()
    env = PLAIN_ENV | {"TERM": "xterm-256color"}
    command = [str(PROGRAM), "doctor", sqlite_url]
    with subprocess.Popen(command, env=env, stdin=program_side, stdout=program_side, stderr=program_side) as program:
        os.close(program_side)
        try:
            yield program, person
        finally:
            program.kill()
            os.close(person)


def test_a_terminal_sees_that_something_is_being_done(terminal: tuple[subprocess.Popen[bytes], int]) -> None:
    program, person = terminal
    seen = read_until(person, "no problems found", program)
    assert program.wait(DEADLINE_SECONDS) == 0
    assert "checking" in seen


def test_help_has_examples() -> None:
    code, found, _ = doctor("--help")
    assert code == 0
    for part in ("DATABASE", "--repair", "-o, --output", "taskyard doctor --repair yard.db"):
        assert part in " ".join(found.split())
    assert "doctor" in taskyard("--help").stdout
    assert "_taskyard_completion" in taskyard_in_process("completion", "bash").stdout
