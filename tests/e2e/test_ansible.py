"""Projects, inventories and plays on a real server: what flows between them, and how they end."""

import json
import sys
from pathlib import Path

import pytest

from taskyard.sdk.errors import Refused
from tests.bot.test_git import commit, work
from tests.cli.waiting import until
from tests.e2e.cluster import Cluster
from tests.e2e.documents import node, script
from tests.effort import SOAK

__all__ = ["work"]  # a fixture
#: Plays take seconds each and know nothing of the database: one is enough here, and another module has the other.
pytestmark = pytest.mark.parametrize(
    "shared_cluster", ["sqlite", "postgres"] if SOAK else ["sqlite"], indirect=True, scope="package"
)
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
HOSTS = "[web]\na\nb\n[web:vars]\n" + "".join(f"{key}={value}\n" for key, value in HERE.items())
PLAY = """
- hosts: web
  gather_facts: false
  tasks:
    - name: work
      command: echo {{ inventory_hostname }} {{ revision[:7] }} {{ image }}
    - set_stats: {data: {deployed: "{{ image }}"}}
      run_once: true
"""


def test_a_project_and_an_inventory_reach_a_play_and_its_stats_reach_what_follows(
    shared_cluster: Cluster, work: Path
) -> None:
    revision = commit(work, **{"site.yml": PLAY, "hosts.ini": HOSTS})
    graph = shared_cluster.submit(
        {
            "project": node({"git": f"file://{work.parent / 'bare.git'}"}),
            "hosts": node({"inputs": [{"from": "project"}], "ansible": {"inventory_source": "hosts.ini"}}, "project"),
            "build": script('echo "{\\"image\\": \\"app:7\\"}" > $TASKYARD_RESULT'),
            "deploy": node(
                {
                    "inputs": [{"from": "project"}, {"from": "hosts", "to": "cloud"}],
                    "ansible": {
                        "playbook": "site.yml",
                        "inventory": "cloud/inventory.json",
                        "extra_vars_from": ["project", "build"],
                    },
                },
                "project", "hosts", "build",
            ),
            "after": script("cat $TASKYARD_INPUTS", "deploy"),
        }
    )  # fmt: skip
    graph.finished()
    project = graph.task("project")
    assert project.result == {
        "revision": revision, "branch": "main", "files": 5, "bytes": len(PLAY) + len(HOSTS) + 23,
        "tree": shared_cluster.client.files(graph.names["project"]).tree.digest,
    }  # fmt: skip
    assert [one.path for one in shared_cluster.client.files(graph.names["project"]).items] == [
        ".hidden", "hosts.ini", "link", "roles/run.sh", "site.yml",
    ]  # fmt: skip
    hosts = graph.task("hosts").result
    assert (hosts["hosts"], hosts["groups"]) == (2, 1)
    assert json.loads(graph.output("after"))["deploy"]["stats"] == {"deployed": "app:7"}
    assert {host: one["changed"] for host, one in graph.task("deploy").result["hosts"].items()} == {"a": 1, "b": 1}
    again = shared_cluster.submit({"project": node({"git": f"file://{work.parent / 'bare.git'}"})})
    again.finished()
    assert again.task("project").result == project.result, "from the cache, the same tree"


def test_a_failed_play_says_which_host_failed_and_what_is_missing_is_an_error(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    inventory = {"all": {"hosts": {"good": None, "bad": None}, "vars": HERE}}
    play = {"module": "command", "module_args": "test {{ inventory_hostname }} = good", "inventory": inventory}
    graph = shared_cluster.submit(
        {
            "empty": script("true"),
            "play": node({"ansible": play}, reruns=1),
            "told": script("cat $TASKYARD_INPUTS", {"task": "play", "on": "always"}),
            "none": node({"ansible": "site.yml"}),
            "tree": node({"ansible": "site.yml", "inputs": [{"from": "empty"}]}, "empty"),
        }
    )
    graph.settled()
    play_view = graph.task("play")
    assert (play_view.state, play_view.attempt, play_view.exit_code) == ("failed", 2, 2)
    assert play_view.result["hosts"]["bad"]["failed"] == 1
    assert json.loads(graph.output("told"))["play"]["totals"]["failed"] == 1
    for label in ("none", "tree"):
        assert (graph.task(label).state, graph.task(label).reason, graph.task(label).attempt) == ("error", "missing", 1)
        why = shared_cluster.client.why(graph.names[label])
        assert "its playbook, inventory or files are not there in attempt 1 on main" in why.sentence
    assert b"there is no site.yml in the working folder" in graph.output("none")
    assert b"has kept no files" in graph.output("tree")


def test_a_cancel_ends_a_play_at_once_with_everything_that_it_started(shared_cluster: Cluster, tmp_path: Path) -> None:
    script_text = f"echo $$ > {tmp_path}/pid; sleep 3600; touch {tmp_path}/later"
    play = {"module": "shell", "module_args": script_text, "inventory": {"all": {"hosts": {"a": HERE}}}}
    graph = shared_cluster.submit({"play": node({"ansible": play, "grace": "1h"})})
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "", "the play sleeps")
    bot = shared_cluster.bots[0]
    before = [command for command in bot.marked().values() if "ansible" in command]
    assert len(before) >= 3, "the program of the bot, Ansible, and the module"
    shared_cluster.client.cancel_task(graph.names["play"])
    assert graph.until("play", "canceled").reason == "asked"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    until(lambda: not any(" sleep " in f" {command} " for command in bot.marked().values()), "nothing of it is left")
    assert not (tmp_path / "later").exists()


def test_secrets_of_a_play_are_checked_at_submission(shared_cluster: Cluster) -> None:
    play = {"playbook": "site.yml", "become_password": "nobody-has-set-it", "vault_passwords": {"prod": "nor-this"}}
    with pytest.raises(Refused) as refused:
        shared_cluster.submit({"play": node({"ansible": play})})
    assert {one.path for one in refused.value.faults} == {
        "tasks.play.task.payload.ansible.become_password",
        "tasks.play.task.payload.ansible.vault_passwords.prod",
    }
