"""`taskyard logs` on a real server with a real bot: one task or all of a graph, followed, cut, with times."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, script
from tests.cli.waiting import DEADLINE_SECONDS, read_until
from tests.cli.yard import Yard, at_home, end, started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    with started(["up", "--port", "0", "--slots", "3", "--data", str(folder / "data"), "-o", "json"], folder) as up:
        assert up.stdout is not None
        said = json.loads(read_until(up.stdout.fileno(), "\n", up))
        yield Yard(folder, said["url"], said["token"], up)


def submitted(place: Yard, wait: bool = True, **tasks: object) -> str:
    document = json.dumps({"name": "logs", "tasks": tasks})
    done = place.run("submit", *(["--wait"] if wait else []), "-", document=document)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout.strip()


@contextmanager
def following(place: Yard, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [str(PROGRAM), "logs", "-f", *arguments]
    with subprocess.Popen(command, env=place.env, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        try:
            yield program, program.stdout.fileno()
        finally:
            end(program)


def test_a_graph_has_the_output_of_all_its_tasks_each_line_with_its_label(place: Yard) -> None:
    graph = submitted(place, first=script("echo one; printf two"), quiet=script("true"), last=script("echo three"))
    assert sorted(place.told("logs", graph).splitlines()) == ["first | one", "first | two", "last | three"]
    assert place.told("logs", f"{graph}/first") == "one\ntwo", "one task is printed as it is"
    wrong = place.run("logs", "--attempt", "1", graph)
    assert (wrong.returncode, "--attempt chooses among the attempts of a task" in wrong.stderr) == (2, True)


def test_a_graph_is_followed_while_its_tasks_print_until_it_is_settled(place: Yard) -> None:
    for name in ("go", "on"):
        os.mkfifo(place.folder / name)
    slow = script(f"echo begun; read -r line < {place.folder / 'go'}; echo $line")
    again = script('echo "try $TASKYARD_ATTEMPT"; exit 1') | {"requires": ["slow"], "reruns": 1}
    graph = submitted(place, wait=False, slow=slow, beside=script(f"read -r x < {place.folder / 'on'}"), again=again)
    with following(place, graph[-8:]) as (program, out):
        seen = read_until(out, "slow | begun\n", program)
        (place.folder / "go").write_text("gone on\n")
        seen += read_until(out, "again | try 2\n", program)
        assert program.poll() is None, "a task is running"
        (place.folder / "on").write_text("\n")
        assert program.wait(DEADLINE_SECONDS) == 0
    assert seen.splitlines()[-4:] == ["slow | begun", "slow | gone on", "again | try 1", "again | try 2"]


def test_only_the_last_lines_are_printed_if_these_are_wanted(place: Yard) -> None:
    graph = submitted(place, many=script("seq 1 40000"), few=script("echo a; printf b"))
    assert place.told("logs", "--tail", "2", f"{graph}/many") == "39999\n40000"
    # More than is read at once.
    assert place.told("logs", "--tail", "30000", f"{graph}/many").splitlines() == [str(n) for n in range(10001, 40001)]
    assert place.told("logs", "--tail", "1", f"{graph}/few") == "b"
    assert place.told("logs", "--tail", "9", f"{graph}/few") == "a\nb"
    assert place.told("logs", "--tail", "0", f"{graph}/few") == ""
    assert sorted(place.told("logs", "--tail", "1", graph).splitlines()) == ["few | b", "many | 40000"]
    with following(place, "--tail", "1", f"{graph}/few") as (program, out):
        assert program.wait(DEADLINE_SECONDS) == 0
        assert os.read(out, 100) == b"b"


def test_each_line_has_the_time_at_which_it_came_and_what_came_before_is_left_out(place: Yard) -> None:
    os.mkfifo(place.folder / "next")
    graph = submitted(place, wait=False, slow=script(f"echo early; read -r line < {place.folder / 'next'}; echo late"))
    with following(place, "-t", f"{graph}/slow") as (program, out):
        seen = read_until(out, "early\n", program)
        (place.folder / "next").write_text("\n")
        seen += read_until(out, "late\n", program)
        assert program.wait(DEADLINE_SECONDS) == 0
    with place.client as client:
        came = [datetime.fromtimestamp(one.at_ms / 1000, UTC) for one in client.output_times(f"{graph}/slow")]
    stamps = [f"{one:%Y-%m-%dT%H:%M:%S}.{one.microsecond // 1000:03}Z" for one in came]
    assert seen.splitlines() == [f"{stamps[0]} early", f"{stamps[1]} late"]
    told = place.told("logs", "--timestamps", graph).splitlines()
    assert told == [f"slow | {stamps[0]} early", f"slow | {stamps[1]} late"]
    for named, early in ((f"{graph}/slow", "early\nlate"), (graph, "slow | early\nslow | late")):
        assert place.told("logs", "--since", "1d", named) == early
        assert place.told("logs", "--since", "0s", named) == ""


def test_what_a_task_took_over_is_printed_with_it(place: Yard) -> None:
    graph = submitted(place, a=script("echo original"), b=script("echo anew") | {"requires": ["a"]})
    again = place.told("rerun", "--from", "b", graph)
    with place.client as client:
        client.wait(again, DEADLINE_SECONDS)
    assert place.told("logs", f"{again}/a") == "original"
    assert place.told("logs", "-f", f"{again}/a") == "original"
    assert place.told("logs", "--tail", "1", "-t", f"{again}/a").endswith("Z original")
    assert place.told("logs", again).splitlines() == ["a | original", "b | anew"]


def test_a_terminal_does_not_obey_what_tasks_of_a_graph_print(place: Yard, tmp_path: Path) -> None:
    graph = submitted(place, evil=script(r"printf '\033]0;owned\007shown\n'"))
    assert place.told("logs", graph) == "evil | \x1b]0;owned\x07shown", "a pipe gets every byte"
    command = ["script", "-qec", f"{PROGRAM} logs {graph}", "/dev/null"]
    done = subprocess.run(
        command,
        env=at_home(tmp_path) | place.env | {"TERM": "xterm"},
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout.strip() == b"evil | shown"
