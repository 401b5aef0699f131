"""The commands that use a server, with a real one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.server_process import ServerProcess, server_process

NOOP = {"task": {"payload": {"noop": True}}}
WORK = {"task": {"payload": {"command": ["true"]}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("yard")) as one:
        yield one


def graph(name: str, **tasks: object) -> str:
    return json.dumps({"name": name, "tasks": tasks})


def submitted(server: ServerProcess, name: str, **tasks: object) -> str:
    return server.output("submit", "-", document=graph(name, **tasks))


def test_a_submitted_graph_is_known_by_the_id_that_was_printed(server: ServerProcess) -> None:
    id = submitted(server, "known", a=WORK, b={**WORK, "requires": ["a"]})
    assert len(id) == 16
    assert id in server.output("graphs", "--name", "known", "-o", "name").split()
    shown = json.loads(server.output("show", id, "-o", "json"))
    assert (shown["name"], shown["state"], sum(shown["counts"].values()), shown["failed"]) == (
        "known",
        "running",
        2,
        [],
    )


def test_a_graph_in_yaml_is_taken_from_a_file(server: ServerProcess) -> None:
    (server.folder / "g.yaml").write_text("name: from-yaml\ntasks:\n  a: {task: {payload: {command: ['true']}}}\n")
    said = json.loads(server.output("submit", "g.yaml", "-o", "json"))
    assert (list(said["nameMapping"]), said["echo"]) == (["a"], False)


def test_a_key_makes_a_repeat_the_same_graph(server: ServerProcess) -> None:
    document = graph("keyed", a=WORK)
    first, again = (server.output("submit", "--key", "k-1", "-", document=document) for _ in range(2))
    assert first == again


def test_all_faults_of_a_document_are_listed_with_their_lines_and_exit_code_2(server: ServerProcess) -> None:
    document = (
        "name: bad\ntasks:\n  a:\n    requires: [nobody]\n    task: {payload: {command: ['true']}}\n  b: {task: 7}\n"
    )
    (server.folder / "bad.yaml").write_text(document)
    done = server.run("submit", "bad.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.yaml cannot be run: 2 faults" in done.stderr
    assert "bad.yaml:4: tasks.a.requires[0]" in done.stderr
    assert "bad.yaml:6: tasks.b.task" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [("[1, 2]", "must be an object with `tasks`"), ("a: [", "bad.yaml cannot be run: 1 fault"), ("", "empty")],
)
def test_text_that_is_no_document_is_refused_before_it_is_sent(text: str, told: str, server: ServerProcess) -> None:
    (server.folder / "bad.yaml").write_text(text)
    done = server.run("submit", "bad.yaml", TASKYARD_URL="http://127.0.0.1:1")
    assert done.returncode == 2
    assert told in done.stderr


def test_a_wait_shows_the_end_and_its_exit_code_is_the_outcome(server: ServerProcess) -> None:
    done = server.run(
        "submit", "--wait", "-o", "table", "-", document=graph("ends", a=NOOP, b={**NOOP, "requires": ["a"]})
    )
    assert (done.returncode, done.stdout) == (0, "ends: finished: 2 successful\n")
    assert "Ctrl-C stops waiting" in done.stderr


def test_a_wait_that_is_over_too_early_says_so_with_124(server: ServerProcess) -> None:
    done = server.run("submit", "--wait", "--timeout", "0", "-", document=graph("stays", a=WORK))
    assert (done.returncode, done.stdout) == (124, "")
    assert "was not settled within 0 s; the graph continues" in done.stderr


def test_what_no_bot_can_run_ends_with_6(server: ServerProcess) -> None:
    nobody = {"dimensions": {"gpu": "none-has-it"}, "wait_for_capacity": False, "payload": {"command": ["true"]}}
    done = server.run("submit", "--wait", "-", document=graph("nobody", a={"task": {"slices": [nobody]}}))
    assert done.returncode == 6, done.stderr
    assert "error       a (no bot can run it: no bot has gpu: none-has-it" in done.stderr


def test_a_graph_grows_and_is_canceled(server: ServerProcess) -> None:
    id = submitted(server, "grows", a=WORK)
    assert server.output("extend", id, "-", document=graph("", b={**WORK, "requires": ["a"]})) == id
    assert server.output("tasks", id, "-o", "name").count("\n") == 1
    done = server.run("cancel", id)
    assert (done.returncode, done.stdout) == (0, f"{id}\n")
    assert json.loads(server.output("show", id, "-o", "json"))["counts"] == {"canceled": 2}
    assert "nothing to do" in server.run("cancel", id).stderr


def test_part_of_a_graph_is_canceled_by_label_and_what_failed_is_run_again(server: ServerProcess) -> None:
    id = submitted(server, "part", a=WORK, b={**WORK, "requires": ["a"]}, c={**WORK, "requires": ["b"]})
    done = server.run("cancel", "--from", "b", id)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, id, "2 tasks canceled\n")
    done = server.run("rerun", "--failed", id)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, id, "2 tasks to run again\n")
    assert json.loads(server.output("show", id, "-o", "json"))["counts"] == {"unscheduled": 2, "waiting": 1}
    server.output("cancel", id)


def test_a_graph_is_run_again_from_a_label_on(server: ServerProcess) -> None:
    id = server.output("submit", "--wait", "-", document=graph("again", a=NOOP, b={**NOOP, "requires": ["a"]}, c=NOOP))
    done = server.run("rerun", "--from", "b", "--from", "c", "--key", "k-2", id)
    assert done.stderr == f"submitted: 2 tasks to run again, 1 reused from graph {id}\n"
    new = done.stdout.strip()
    assert server.output("rerun", "--from", "b", "--from", "c", "--key", "k-2", "--wait", id) == new
    shown = json.loads(server.output("show", new, "-o", "json"))
    assert (shown["rerun_of"], shown["rerun_from"], shown["reused"]) == (id, ["b", "c"], 1)
    assert f"rerun of  {id} from b, c; 1 task reused" in server.output("show", new)
    taken = server.output("tasks", new, "--label", "a", "-o", "name")
    assert "reused from task" in server.output("story", taken)
    assert "reused from task" in server.output("show", taken)
    wrong = server.run("rerun", "--from", "d", id)
    assert (wrong.returncode, "unknown label" in wrong.stderr) == (2, True)
    assert server.run("rerun", "--failed", "--from", "b", id).returncode == 2


def test_a_task_is_canceled_with_all_behind_it_and_run_again(server: ServerProcess) -> None:
    id = submitted(server, "subtree", a=WORK, b={**WORK, "requires": ["a"]}, c=WORK)
    a = server.output("tasks", id, "--label", "a", "-o", "name")
    server.output("cancel", "--subtree", a)
    states = {
        task["label"]: task["state"] for task in map(json.loads, server.output("tasks", id, "-o", "jsonl").split("\n"))
    }
    assert (states["a"], states["b"]) == ("canceled", "canceled")
    assert states["c"] != "canceled"
    assert server.output("rerun", a) == a
    assert json.loads(server.output("show", a, "-o", "json"))["state"] in ("pending", "waiting")


def test_a_story_names_the_requests_of_users(server: ServerProcess) -> None:
    task = server.output("tasks", submitted(server, "told", a=WORK), "-o", "name")
    server.output("cancel", task)
    story = server.output("story", task)
    assert "a is submitted" in story
    assert "asked: cancel the task" in story
    assert " canceled it" in story


def test_limits_are_made_and_listed(server: ServerProcess) -> None:
    assert "total  5" in server.output("limits", "set", "licences", "5").lower()
    assert json.loads(server.output("limits", "-o", "json")) == [{"name": "licences", "total": 5, "used": 0}]


def test_the_order_at_a_mutex_is_set_and_shown(server: ServerProcess) -> None:
    for said, told in (("never", "never"), ("0s", "0s"), ("5m", "300s")):
        assert server.output("mutexes", "set", "a/b:7", "--stake-after", said).lower().split()[-1] == told
    (mutex,) = json.loads(server.output("mutexes", "a/b:7", "-o", "json"))
    assert (mutex["key"], mutex["stake_after_ms"], mutex["waiting"]) == ("a/b:7", 300_000, [])
    wrong = server.run("mutexes", "set", "k", "--stake-after", "soon")
    assert wrong.returncode != 0
    assert "must be never, or a duration like 5m, at most 365d" in wrong.stderr


def test_pools_are_made_and_listed(server: ServerProcess) -> None:
    assert "capacity  8" in server.output("pools", "set", "lab", "--capacity", "8").lower()
    pools = {pool["name"]: pool["capacity"] for pool in json.loads(server.output("pools", "-o", "json"))}
    assert pools == {"default": None, "lab": 8}
    assert "capacity  8" in server.output("pools", "set", "lab").lower()
    assert "capacity  0 slots of its bots" in server.output("pools", "set", "lab", "--from-bots").lower()
    assert "capacity  0 slots of its bots" in server.output("pools", "set", "lab").lower()
    assert "capacity  3" in server.output("pools", "set", "lab", "--capacity", "3").lower()
    assert "capacity  any" in server.output("pools", "set", "lab", "--no-capacity").lower()
    both = server.run("pools", "set", "lab", "--capacity", "3", "--from-bots")
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)


def test_graphs_say_how_many_of_their_tasks_succeeded_failed_run_and_are_left(server: ServerProcess) -> None:
    denied = {"task": {"payload": {"approval": {"message": "?", "on_timeout": "deny"}, "timeout": "1s"}}}
    document = graph("counted", a=NOOP, b=denied, c={**NOOP, "requires": ["b"]}, d=NOOP)
    id = server.run("submit", "--wait", "-", document=document).stdout.strip()
    head, row = server.output("graphs", "--state", "failed", "--name", "counted").splitlines()
    assert head.split()[3:7] == ["SUCCEEDED", "FAILED", "RUNNING", "LEFT"]
    assert row.split()[2:7] == ["blocked", "2", "1", "0", "1"]
    (listed,) = json.loads(server.output("graphs", "--name", "counted", "-o", "json"))
    assert (listed["id"], listed["counts"]) == (id, {"successful": 2, "failed": 1, "blocked": 1})


def test_a_token_may_do_what_its_scopes_say_until_it_is_revoked(server: ServerProcess) -> None:
    made = json.loads(
        server.output("token", "create", "--name", "reader", "--scope", "pool:*:read", "--expires", "1h", "-o", "json")
    )
    assert server.run("graphs", TASKYARD_TOKEN=made["token"]).returncode == 0
    denied = server.run("submit", "-", document=graph("denied", a=WORK), TASKYARD_TOKEN=made["token"])
    assert (denied.returncode, denied.stdout) == (4, "")
    assert made["view"]["id"] in server.output("token", "list", "-o", "name").split()
    server.output("token", "revoke", made["view"]["id"])
    revoked = server.run("graphs", TASKYARD_TOKEN=made["token"])
    assert revoked.returncode == 4
    assert made["token"] not in server.output("token", "list", "-o", "json")


def test_the_audit_is_listed_by_actor_action_and_subject_and_for_admins_alone(server: ServerProcess) -> None:
    words = ("token", "create", "--name", "auditor", "--scope", "pool:*:read", "--scope", "pool:*:submit", "-o", "json")
    made = json.loads(server.output(*words))
    done = server.run("submit", "-", document=graph("audited", a=NOOP), TASKYARD_TOKEN=made["token"])
    id = done.stdout.strip()
    rows = json.loads(server.output("audit", "--actor", "auditor", "--action", "submit", "--since", "1h", "-o", "json"))
    assert [(one["action"], one["subject"], one["note"]) for one in rows] == [("submit", id, "1 task")]
    assert "submit" in server.output("audit", "--about", id).splitlines()[-1]
    denied = server.run("audit", TASKYARD_TOKEN=made["token"])
    assert (denied.returncode, denied.stdout) == (4, "")
    assert "403 forbidden" in server.output("audit", "--actor", made["view"]["id"], "--action", "denied")


def test_tokens_and_the_run_key_are_rotated_and_the_last_admin_stays(server: ServerProcess) -> None:
    old = json.loads(server.output("token", "create", "--name", "turned", "--scope", "pool:*:read", "-o", "json"))
    new = server.output("token", "rotate", old["view"]["id"])
    assert server.run("graphs", TASKYARD_TOKEN=old["token"]).returncode == 4
    assert server.run("graphs", TASKYARD_TOKEN=new).returncode == 0
    newest = server.output("token", "rotate", new.split("_")[2], "--keep", "1h")
    assert [server.run("graphs", TASKYARD_TOKEN=one).returncode for one in (new, newest)] == [0, 0]
    for words, told in (((), "stay valid until these end"), (("--now",), "are no longer valid")):
        done = server.run("token", "rekey", *words)
        assert (done.returncode, told in done.stderr) == (0, True), done.stderr
    last = server.run("token", "revoke", server.token.split("_")[2])
    assert (last.returncode, "the last token with the scope admin" in last.stderr) == (1, True), last.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["tasks"],
        ["logs"],
        ["story"],
        ["cancel"],
        ["rerun"],
        ["token", "revoke"],
        ["bots", "set", "--drain"],
        ["bots", "free"],
    ],
)
def test_a_missing_object_gives_exit_code_5(arguments: list[str], server: ServerProcess) -> None:
    done = server.run(*arguments, "0000000000000001")
    assert (done.returncode, done.stdout) == (5, "")
    assert "0000000000000001" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sumbit", "x"], 'Did you mean "submit"?'),
        (["submit", "-", "--timeout", "soon"], "is not a duration"),
        (["bots", "set", "rack4"], "nothing to change"),
        (["token", "create"], "--name"),
        (["bot", "--dimension", "gpu"], "is not a dimension"),
        (["serve", "--port", "70000"], "65535"),
        (["serve", "--lease", "1s"], "must be from 2s to 1h"),
        (["serve", "--scheduler-id", "a.b"], "no dots"),
        (["graphs", "-o", "xml"], "-o"),
    ],
)
def test_a_wrong_command_line_gives_exit_code_2(arguments: list[str], told: str, server: ServerProcess) -> None:
    done = server.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_an_unreachable_server_gives_exit_code_1_and_advice(tmp_path: Path, server: ServerProcess) -> None:
    done = server.run("graphs", TASKYARD_URL="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot reach http://127.0.0.1:1" in done.stderr
    assert "taskyard up" in done.stderr


def test_the_events_of_a_graph_are_printed_as_a_table_and_as_lines_of_json(server: ServerProcess) -> None:
    id = submitted(server, "eventful", a=NOOP)
    server.output("submit", "--wait", "-", document=graph("after", a=NOOP))
    events = [json.loads(line) for line in server.output("events", id, "--all", "-o", "jsonl").splitlines()]
    assert [one["number"] for one in events] == list(range(1, len(events) + 1))
    assert {one["label"] for one in events} == {"a", None}
    head, *rows = server.output("events", id[-6:], "--limit", "2", "--columns", "number,kind").splitlines()
    assert (head.split(), [row.split() for row in rows]) == (
        ["NUMBER", "KIND"],
        [["1", events[0]["kind"]], ["2", events[1]["kind"]]],
    )
