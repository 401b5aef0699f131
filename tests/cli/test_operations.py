"""The worked catalogue of the examples: its script makes a repository, and its documents are applied as they are."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import CommandResult
from tests.cli.program import ROOT

Invoke = Callable[..., CommandResult]
EXAMPLE = ROOT / "examples" / "operations"
NAMES = [
    ("workflow_template", "release"),
    ("job_template", "deploy"),
    ("job_template", "check"),
    ("inventory", "here"),
    ("project", "site"),
]


def prepare(folder: Path) -> Path:
    """Make the repository and the documents of the example in a folder."""
    done = subprocess.run(
        ["sh", str(EXAMPLE / "prepare.sh"), str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder / "site.git"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def invoke(invoke: Invoke) -> Iterator[Invoke]:
    """Commands; what they applied is deleted in the end."""
    yield invoke
    for kind, name in NAMES:
        invoke("delete", kind, name)


def test_the_script_makes_a_repository_and_adds_only_what_changed(tmp_path: Path) -> None:
    prepare(tmp_path)
    first = git(tmp_path, "rev-parse", "main")
    assert set(git(tmp_path, "ls-tree", "-r", "--name-only", "main").split()) == {
        "check.yml",
        "deploy.yml",
        "inventory/groups.yml",
    }
    prepare(tmp_path)
    assert git(tmp_path, "rev-parse", "main") == first


def test_the_documents_are_applied_and_applied_again_as_an_echo(invoke: Invoke, tmp_path: Path) -> None:
    file = str(prepare(tmp_path))
    dry = invoke("apply", "-f", file, "--dry-run")
    assert (dry.code, dry.err) == (0, "5 documents: 5 to create, 0 to change, 0 unchanged; nothing is stored\n")
    assert invoke("apply", "-f", file).err == "5 documents: 5 created, 0 changed, 0 unchanged\n"
    assert invoke("apply", "-f", file).err == "5 documents: 0 created, 0 changed, 5 unchanged\n"
    shown = invoke("export", "project", "site").out
    assert f"git: {tmp_path}/site.git\n" in shown
    assert "update_cache_timeout: 1m\n" in shown


def test_what_there_is_is_listed_with_the_last_update_and_launch_of_each(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("apply", "-f", str(prepare(tmp_path))).code == 0
    assert invoke("update", "project", "site").code == 0
    projects = [line.split() for line in invoke("projects").out.splitlines()]
    assert projects[0] == ["NAME", "POOL", "VERSION", "GIT", "BRANCH", "LAST", "UPDATE", "WHEN", "TYPE", "BY", "GRAPH"]
    (site,) = [line for line in projects if line[0] == "site"]
    assert site[5] in {"pending", "waiting"}
    assert "manual" in site
    inventories = invoke("inventories", "-o", "jsonl").out.splitlines()
    (here,) = [one for one in map(json.loads, inventories) if one["inventory"] == "here"]
    assert (here["source"], here["update"]) == ("groups", None)
    templates = [line.split()[:3] for line in invoke("templates").out.splitlines()]
    assert ["check", "job", "default"] in templates
    assert ["release", "workflow", "default"] in templates


def test_a_dry_run_launches_nothing_and_shows_what_options_mean(invoke: Invoke, tmp_path: Path) -> None:
    def launched() -> list[dict[str, object]]:
        return [json.loads(line) for line in invoke("launches", "here", "-o", "jsonl").out.splitlines()]

    assert invoke("apply", "-f", str(prepare(tmp_path))).code == 0
    file = tmp_path / "plain.yaml"
    file.write_text("{kind: inventory, name: here, hosts: {localhost: {ansible_connection: local}}}")
    assert invoke("apply", "-f", str(file)).code == 0
    ad_hoc = ("launch", "--ad-hoc", "-i", "here", "-m", "ping", "--check")
    dry = invoke(*ad_hoc, "--dry-run", "-o", "json")
    assert (dry.code, launched()) == (0, [])
    play = json.loads(dry.out)["document"]["tasks"]["job"]["task"]["payload"]["ansible"]
    assert (play["module"], play["check"]) == ("ping", True)
    made = invoke(*ad_hoc)
    assert made.code == 0, made.err
    (listed,) = launched()
    assert (listed["graph_id"], listed["options"]) == (made.out.strip(), {"check": True, "module": "ping"})
    shown = [line.split(maxsplit=1) for line in invoke("show", made.out.strip()).out.splitlines()]
    assert ["given", 'check=true, module="ping"'] in shown, shown
    assert any(name == "launch" and said.startswith("ad_hoc here, version ") for name, said in shown), shown
    typed = invoke("launch", "deploy", "-e", "version=1.2", "--dry-run", "-o", "json")
    assert typed.code == 0, typed.err
    assert (
        json.loads(typed.out)["document"]["tasks"]["job"]["task"]["payload"]["ansible"]["extra_vars"]["version"]
        == "1.2"
    )
    wrong = invoke("launch", "deploy", "-m", "ping")
    assert (wrong.code, "-i, -m and -a belong to --ad-hoc" in wrong.err) == (2, True)
