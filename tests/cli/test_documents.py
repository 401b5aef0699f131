"""`taskyard run` with a faulty document: all faults at once, exit code 2, and nothing starts."""

import json
from pathlib import Path

import pytest

from tests.cli.program import run, script, taskyard


def refused(document: str, name: str, folder: Path) -> str:
    """Run a document that must be refused; return stderr."""
    (folder / name).write_text(document)
    answer = taskyard("run", name, cwd=folder)
    assert (answer.returncode, answer.stdout) == (2, ""), answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr


def test_every_fault_of_a_graph_is_listed_with_its_line_and_path(tmp_path: Path) -> None:
    document = """\
name: bad
tasks:
  build:
    requires: [test]
    task:
      payload: {command: make}
  test:
    requires: [build, nothing]
    rerun: 2
    task: {payload: {script: "true"}}
"""
    said = refused(document, "bad.yaml", tmp_path)
    assert said.startswith("bad.yaml cannot be run: ")
    assert "bad.yaml:6: tasks.build.task.payload.command: " in said
    assert "bad.yaml:8: tasks.test.requires[1]: " in said
    assert "bad.yaml:9: tasks.test.rerun: " in said
    assert 'did you mean "reruns"?' in said


def test_every_fault_of_the_text_is_listed_with_its_place(tmp_path: Path) -> None:
    said = refused("name: x\nname: y\ntasks: !!python/object:os.system {}\n", "bad.yaml", tmp_path)
    assert said.splitlines() == [
        "bad.yaml cannot be run: 2 faults; nothing was started.",
        "  bad.yaml:2:1: the key 'name' is there twice, first on line 1",
        "  bad.yaml:3:8: the tag !!python/object:os.system is not allowed",
    ]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ("", "empty.yaml"),
        ("[" * 100_000, "deep.yaml"),
        ("[" * 100_000, "deep.json"),
        ("tasks: [", "cut.yaml"),
        ('{"tasks": ', "cut.json"),
        ("just text", "text.yaml"),
        ("[1, 2]", "list.json"),
        ('{"tasks": {"a": {"task": {"payload": {"noop": NaN}}}}}', "nan.json"),
        ('{"tasks": {"\\u001b]0;x\\u0007": {"task": {"payload": {"noop": true}}}}}', "hostile.json"),
        ('{"tasks": {"a": {"requires": ["a"], "task": {"payload": {"noop": true}}}}}', "cycle.json"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n" * 2, "anchors.yaml"),
    ],
)
def test_no_document_makes_a_traceback_or_reaches_the_terminal(document: str, name: str, tmp_path: Path) -> None:
    said = refused(document, name, tmp_path)
    assert "1 fault; nothing was started." in said or "faults; nothing was started." in said
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize("path", ["absent.yaml", ".", "file/below"])
def test_a_file_that_cannot_be_read_is_one_clear_line(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = taskyard("run", path, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"taskyard: cannot read {path}: ")
    assert answer.stderr.count("\n") == 1


def test_a_run_has_no_secrets_and_says_who_has() -> None:
    answer = run({"deploy": {"task": {"payload": {"command": ["true"], "secrets": {"TOKEN": "deploy"}}}}})
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "tasks.deploy.task.payload.secrets: names secrets, and only a server has any" in answer.stderr


def test_what_holds_by_itself_is_not_refused() -> None:
    payload = {"script": "true", "io_timeout": "0s", "outputs": [], "secrets": {}}
    task = {"retries": 5, "weight": 3, "routing": "x", "tags": {"a": "b"}, "payload": payload}
    answer = run({"task": {"task": task}})
    assert answer.returncode == 0, answer.stderr


def test_a_document_from_standard_input_is_named_so() -> None:
    answer = taskyard("run", "-", document="tasks:\n  a: {}\n")
    assert answer.returncode == 2
    assert answer.stderr.startswith("<stdin> cannot be run: ")
    assert "  <stdin>:2: tasks.a" in answer.stderr


def test_a_huge_document_is_refused_by_its_size(tmp_path: Path) -> None:
    document = json.dumps({"tasks": {"a": script("#" * 11 * 1024 * 1024)}})
    assert "at most 10485760 are read" in refused(document, "huge.json", tmp_path)


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ('{"tasks": {"a": {"reruns": -1, "reruns": -2, "task": {"payload": {"noop": true}}}}}', "twice.json"),
        ("tasks:\n  a:\n    reruns: -1\n    reruns: -2\n    task: {payload: {noop: true}}\n", "twice.yaml"),
    ],
)
def test_faults_of_the_text_do_not_hide_those_of_the_graph(document: str, name: str, tmp_path: Path) -> None:
    said = refused(document, name, tmp_path)
    assert "there twice" in said
    assert "tasks.a.reruns: must be an integer from 0 to 999" in said
