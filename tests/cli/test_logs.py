"""`taskyard logs` with a real server and bot: of a task or a graph, with --follow, --tail, --since and --timestamps."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, script
from tests.cli.server_process import ServerProcess, home_env, start_program, stop_program
from tests.cli.waiting import DEADLINE_SECONDS, read_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("yard")
    with start_program(
        ["up", "--port", "0", "--slots", "3", "--data", str(folder / "data"), "-o", "json"], folder
    ) as up:
        assert up.stdout is not None
        said = json.loads(read_until(up.stdout.fileno(), "\n", up))
        yield ServerProcess(folder, said["url"], said["token"], up)


def submitted(server: ServerProcess, wait: bool = True, **tasks: object) -> str:
    document = json.dumps({"name": "logs", "tasks": tasks})
    done = server.run("submit", *(["--wait"] if wait else []), "-", document=document)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout.strip()


@contextmanager
def following(server: ServerProcess, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [str(PROGRAM), "logs", "-f", *arguments]
    with subprocess.Popen(command, env=server.env, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        try:
            yield program, program.stdout.fileno()
        finally:
            stop_program(program)


def test_a_graph_has_the_output_of_all_its_tasks_each_line_with_its_label(server: ServerProcess) -> None:
    graph = submitted(server, first=script("echo one; printf two"), quiet=script("true"), last=script("echo three"))
    assert sorted(server.output("logs", graph).splitlines()) == ["first | one", "first | two", "last | three"]
    assert server.output("logs", f"{graph}/first") == "one\ntwo", "one task is printed as it is"
    wrong = server.run("logs", "--attempt", "1", graph)
    assert (wrong.returncode, "--attempt needs a task" in wrong.stderr) == (2, True)


def test_a_graph_is_followed_while_its_tasks_print_until_it_is_settled(server: ServerProcess) -> None:
    for name in ("go", "on"):
        os.mkfifo(server.folder / name)
    slow = script(f"echo begun; read -r line < {server.folder / 'go'}; echo $line")
    again = script('echo "try $TASKYARD_ATTEMPT"; exit 1') | {"requires": ["slow"], "reruns": 1}
    graph = submitted(server, wait=False, slow=slow, beside=script(f"read -r x < {server.folder / 'on'}"), again=again)
    with following(server, graph[-8:]) as (program, out):
        seen = read_until(out, "slow | begun\n", program)
        (server.folder / "go").write_text("gone on\n")
        seen += read_until(out, "again | try 2\n", program)
        assert program.poll() is None, "a task is running"
        (server.folder / "on").write_text("\n")
        assert program.wait(DEADLINE_SECONDS) == 0
    assert seen.splitlines()[-4:] == ["slow | begun", "slow | gone on", "again | try 1", "again | try 2"]


def test_only_the_last_lines_are_printed_if_these_are_wanted(server: ServerProcess) -> None:
    graph = submitted(server, many=script("seq 1 40000"), few=script("echo a; printf b"))
    assert server.output("logs", "--tail", "2", f"{graph}/many") == "39999\n40000"
    # More than is read at once.
    assert server.output("logs", "--tail", "30000", f"{graph}/many").splitlines() == [
        str(n) for n in range(10001, 40001)
    ]
    assert server.output("logs", "--tail", "1", f"{graph}/few") == "b"
    assert server.output("logs", "--tail", "9", f"{graph}/few") == "a\nb"
    assert server.output("logs", "--tail", "0", f"{graph}/few") == ""
    assert sorted(server.output("logs", "--tail", "1", graph).splitlines()) == ["few | b", "many | 40000"]
    with following(server, "--tail", "1", f"{graph}/few") as (program, out):
        assert program.wait(DEADLINE_SECONDS) == 0
        assert os.read(out, 100) == b"b"


def test_each_line_has_the_time_at_which_it_came_and_what_came_before_is_left_out(server: ServerProcess) -> None:
    os.mkfifo(server.folder / "next")
    graph = submitted(
        server, wait=False, slow=script(f"echo early; read -r line < {server.folder / 'next'}; echo late")
    )
    with following(server, "-t", f"{graph}/slow") as (program, out):
        seen = read_until(out, "early\n", program)
        (server.folder / "next").write_text("\n")
        seen += read_until(out, "late\n", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    with server.client as client:
        came = [datetime.fromtimestamp(one.at_ms / 1000, UTC) for one in client.output_times(f"{graph}/slow")]
    stamps = [f"{one:%Y-%m-%dT%H:%M:%S}.{one.microsecond // 1000:03}Z" for one in came]
    assert seen.splitlines() == [f"{stamps[0]} early", f"{stamps[1]} late"]
    told = server.output("logs", "--timestamps", graph).splitlines()
    assert told == [f"slow | {stamps[0]} early", f"slow | {stamps[1]} late"]
    for named, early in ((f"{graph}/slow", "early\nlate"), (graph, "slow | early\nslow | late")):
        assert server.output("logs", "--since", "1d", named) == early
        assert server.output("logs", "--since", "0s", named) == ""


def test_what_a_task_took_over_is_printed_with_it(server: ServerProcess) -> None:
    graph = submitted(server, a=script("echo original"), b=script("echo anew") | {"requires": ["a"]})
    again = server.output("rerun", "--from", "b", graph)
    with server.client as client:
        client.wait(again, DEADLINE_SECONDS)
    assert server.output("logs", f"{again}/a") == "original"
    assert server.output("logs", "-f", f"{again}/a") == "original"
    assert server.output("logs", "--tail", "1", "-t", f"{again}/a").endswith("Z original")
    assert server.output("logs", again).splitlines() == ["a | original", "b | anew"]
    assert server.run("graphs", "delete", graph).returncode == 0
    assert [server.output("logs", *how, f"{again}/a") for how in ([], ["-f"], ["--tail", "1", "-t"])] == ["", "", ""]
    assert server.output("logs", again).splitlines() == ["b | anew"]


def test_a_terminal_does_not_obey_what_tasks_of_a_graph_print(server: ServerProcess, tmp_path: Path) -> None:
    graph = submitted(server, evil=script(r"printf '\033]0;owned\007shown\n'"))
    assert server.output("logs", graph) == "evil | \x1b]0;owned\x07shown", "a pipe gets every byte"
    command = ["script", "-qec", f"{PROGRAM} logs {graph}", "/dev/null"]
    done = subprocess.run(
        command,
        env=home_env(tmp_path) | server.env | {"TERM": "xterm"},
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout.strip() == b"evil | shown"
