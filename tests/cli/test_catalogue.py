"""The commands of the catalogue: apply, export, list, history and delete, and faults with files and lines."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandResult

Invoke = Callable[..., CommandResult]
OPERATIONS = """\
kind: project
name: cli-site
git: /srv/site.git   # a comment
---
# nothing but a comment
---
kind: job_template
name: cli-deploy
project: cli-site
playbook: deploy.yml
---
kind: schedule
name: cli-nightly
template: cli-deploy
cron: 0 3 * * *
"""
NAMES = [("schedule", "cli-nightly"), ("job_template", "cli-deploy"), ("project", "cli-site")]


@pytest.fixture
def invoke(invoke: Invoke) -> Iterator[Invoke]:
    """Commands; what they applied is deleted in the end."""
    yield invoke
    for kind, name in NAMES:
        invoke("delete", kind, name)


def listed(invoke: Invoke) -> list[str]:
    return [line for line in invoke("catalogue", "-o", "name").out.splitlines() if "cli-" in line]


def test_documents_are_applied_shown_and_deleted(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "operations.yaml"
    file.write_text(OPERATIONS)
    dry = invoke("apply", "-f", str(file), "--dry-run")
    assert dry.code == 0, dry.err
    assert dry.err == "3 documents: 3 to create, 0 to change, 0 unchanged; nothing is stored\n"
    assert dry.out.splitlines()[1].split() == ["create", "project", "cli-site", "default", "1"]
    assert re.fullmatch(r"schedule cli-nightly runs next at (.{20}, ){2}.{20}", dry.out.splitlines()[-1]), dry.out
    assert listed(invoke) == []
    assert invoke("apply", "-f", str(file)).err == "3 documents: 3 created, 0 changed, 0 unchanged\n"
    assert invoke("apply", "-f", str(file)).err == "3 documents: 0 created, 0 changed, 3 unchanged\n"
    assert listed(invoke) == ["job_template cli-deploy", "project cli-site", "schedule cli-nightly"]
    file.write_text(OPERATIONS.replace("/srv/site.git", "/srv/other.git"))
    changed = invoke("apply", "-f", str(file), "-o", "json")
    assert [(one["action"], one["version"]) for one in json.loads(changed.out)["items"]] == [
        ("change", 2),
        ("unchanged", 1),
        ("unchanged", 1),
    ]
    history = invoke("catalogue", "history", "project", "cli-site")
    assert [line.split()[0] for line in history.out.splitlines()] == ["VERSION", "2", "1"]
    refused = invoke("delete", "project", "cli-site")
    assert (refused.code, "job_template cli-deploy would lack it" in refused.err) == (1, True)
    for kind, name in NAMES:
        assert invoke("delete", kind, name).code == 0
    assert invoke("delete", "project", "cli-site").code == 5


def test_what_is_exported_is_applied_as_an_echo(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "operations.yaml"
    file.write_text(OPERATIONS)
    assert invoke("apply", "-f", str(file)).code == 0
    for form, name in (("yaml", "all.yaml"), ("json", "all.json")):
        exported = invoke("export", "-o", form)
        assert exported.code == 0
        (tmp_path / name).write_text(exported.out)
        again = invoke("apply", "-f", str(tmp_path / name))
        assert again.code == 0, again.err
        assert " 0 created, 0 changed, " in again.err
    one = invoke("export", "project", "cli-site")
    assert one.out == "kind: project\nname: cli-site\ngit: /srv/site.git\n"
    assert "cli-deploy" in invoke("export", "job_template").out


def test_every_fault_of_every_file_has_its_file_and_line(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.yaml").write_text(OPERATIONS.replace("cron: 0 3 * * *", "cron: often"))
    (folder / "b.json").write_text('[\n{"kind": "limit", "name": "x"},\n{"kind": "pol", "name": "y"}\n]')
    (folder / "c.yml").write_text("- kind: project\n  name: other\n  git: -x\n- kind: project\n  name: a/b\n  git: x\n")
    (folder / "ignored.txt").write_text("no document")
    answer = invoke("apply", "-f", str(folder))
    assert answer.code == 2
    lines = [line.strip() for line in answer.err.splitlines()]
    assert f"{folder}/a.yaml cannot be applied: 1 fault; nothing is changed." in lines
    starts = [line.partition(": must")[0].partition(": needs")[0].partition(": holds")[0] for line in lines]
    assert f"{folder}/a.yaml:15: cron" in " ".join(starts)
    assert f"{folder}/b.json:2" in starts
    assert f"{folder}/b.json:3: kind" in starts
    assert f"{folder}/c.yml:3: git" in starts
    assert f"{folder}/c.yml:5: name" in starts
    assert listed(invoke) == []


def test_a_file_that_cannot_be_read_is_named_and_nothing_is_applied(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(OPERATIONS)
    (tmp_path / "bad.yaml").write_text("kind: project\nname: [\n")
    answer = invoke("apply", "-f", str(tmp_path / "good.yaml"), "-f", str(tmp_path / "bad.yaml"), "-f", "none.yaml")
    assert answer.code == 2
    assert f"{tmp_path}/bad.yaml cannot be applied: 1 fault" in answer.err
    assert "cannot read none.yaml: No such file or directory" in answer.err
    assert listed(invoke) == []
    (tmp_path / "empty").mkdir()
    assert "there is no document" in invoke("apply", "-f", str(tmp_path / "empty")).err


@pytest.mark.parametrize("words", [("export", "projct"), ("catalogue", "projct"), ("delete", "projct", "x")])
def test_a_misspelled_kind_names_the_nearest(invoke: Invoke, words: Any) -> None:
    answer = invoke(*words)
    assert (answer.code, "Did you mean" in answer.err) == (2, True)
