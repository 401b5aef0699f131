"""Plays on a bot: real Ansible on hosts that are this machine, or that nobody answers for."""

import base64
import json
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from taskyard.bot.ansible import HOSTS_MAX, TASKS_MAX, Summary, static_inventory, unsafe_yaml
from taskyard.bot.secret_files import SecretFiles
from taskyard.wire.attempt_limits import RESULT_MAX
from taskyard.wire.bot_protocol import Report
from taskyard.wire.plays import BOT_FAILED_EXIT, MISSING_EXIT
from tests.bot.fake_server import Bot, FakeServer, bot, serving
from tests.bot.own_programs import python_without, run_program
from tests.cli.waiting import is_gone, until
from tests.each_row import each_row

PASSWORD = "canary-of-the-sudo"  # noqa: S105
#: A program in the place of sudo: it asks for the password, and runs the command if it is right.
SUDO = """#!{python}
import subprocess, sys
words = sys.argv[1:]
sys.stderr.write(words[words.index("-p") + 1])
sys.stderr.flush()
if sys.stdin.readline().strip() != {password!r}:
    sys.exit("wrong password")
sys.exit(subprocess.run(words[words.index("-u") + 2 :]).returncode)
"""
#: Prints the path of the file with the password, as Ansible was told it.
FIND_FILE = "tr '\\0' '\\n' < /proc/$PPID/cmdline | sed -n 's/^--become-password-file=//p'"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as one:
        yield one


@pytest.fixture(scope="module", autouse=True)
def running(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bot]:
    with bot(server, tmp_path_factory.mktemp("state"), slots=4) as one:
        yield one


def on(*hosts: str, **variables: Any) -> dict[str, Any]:
    """An inventory in which each host is this machine."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    return {"all": {"hosts": dict.fromkeys(hosts), "vars": here | variables}}


def add(server: FakeServer, folder: Path, play: dict[str, Any], tasks: list[Any] | None = None, **more: Any) -> str:
    """Queue a play; its tasks are written as the playbook `site.yml`."""
    if tasks is not None:
        (folder / "site.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
        play = {"playbook": "site.yml", **play}
    return server.add({"ansible": play, "cwd": str(folder)}, **more)


def printed(server: FakeServer, task: str) -> str:
    return server.printed.get(task, b"").decode()


def result_of(report: Report) -> Any:
    return json.loads(bytes(report.result))


def test_a_play_prints_as_ansible_does_and_leaves_a_summary(server: FakeServer, tmp_path: Path) -> None:
    tasks = [
        {"name": "greet", "debug": {"msg": "hello {{ who }}"}},
        {"name": "touch", "command": "true"},
        {"name": "only b", "command": "true", "when": "inventory_hostname == 'b'"},
        {"set_stats": {"data": {"version": 7, "who": "{{ who }}"}, "aggregate": False}},
    ]
    task = add(server, tmp_path, {"inventory": on("a", "b"), "extra_vars": {"who": "world"}}, tasks)
    report = server.report(task)
    said = printed(server, task)
    assert (report.signal, report.exit_code) == ("succeed", 0), said
    assert "\nTASK [greet] ****" in said
    assert '"msg": "hello world"' in said
    assert "PLAY RECAP ***" in said
    assert "\r" not in said
    assert "\x1b" not in said, "no colours and no marks of the events"
    found = result_of(report)
    counts = {"ok": 4, "changed": 2, "failed": 0, "unreachable": 0, "skipped": 0, "rescued": 0, "ignored": 0}
    assert found["stats"] == {"version": 7, "who": "world"}
    assert found["hosts"] == {"a": counts | {"ok": 3, "changed": 1, "skipped": 1}, "b": counts}
    assert found["totals"] == counts | {"hosts": 2, "ok": 7, "changed": 3, "skipped": 1}
    assert [one["task"] for one in found["tasks"]] == ["greet", "touch", "only b", "set_stats"]
    assert {"play": "all", "task": "only b", "ok": 1, "changed": 1, "skipped": 1} == {
        key: value for key, value in found["tasks"][2].items() if key != "seconds"
    }
    assert 0 < found["tasks"][1]["seconds"] < 600, "from its start until the last host had it"


def test_a_failing_and_an_unreachable_host_fail_the_task_and_are_named(server: FakeServer, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        hosts = on("good", "bad")
        hosts["all"]["children"] = {"away": {"hosts": {"gone": {
            "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": closed.getsockname()[1],
        }}}}  # fmt: skip
        tasks = [{"name": "work", "command": "test {{ inventory_hostname }} = good"}]
        task = add(server, tmp_path, {"inventory": hosts}, tasks)
        report = server.report(task)
    assert (report.signal, report.reason, report.exit_code) == ("fail", "exit_code", 4), printed(server, task)
    found = result_of(report)
    ends = {
        host: [name for name in ("ok", "failed", "unreachable") if one[name]] for host, one in found["hosts"].items()
    }
    assert ends == {"bad": ["failed"], "gone": ["unreachable"], "good": ["ok"]}
    assert list(found["hosts"])[-1] == "good", "those with failures come first"
    assert "Connection refused" in printed(server, task)


def test_results_of_prerequisites_are_variables_and_no_templates(server: FakeServer, tmp_path: Path) -> None:
    hostile = "{{ lookup('pipe', 'touch pwned') }}\u2028\u0085 \"é😀"
    play_before = {"stats": {"version": 7, "hostile": hostile}, "hosts": {}, "tasks": [], "totals": {}}
    inputs = {"before": play_before, "build": {"image": "app:1", "deep": {"list": [1, None, True, hostile]}}}
    tasks = [
        {"copy": {"dest": str(tmp_path / "got"), "content": "{{ [version, hostile, image, deep, mine] | to_json }}"}}
    ]
    play = {
        "inventory": on("a"),
        "extra_vars_from": ["before", "build", "left-nothing"],
        "extra_vars": {"mine": "{{ version }}"},
    }
    task = add(server, tmp_path, play, tasks, inputs=inputs)
    assert server.report(task).signal == "succeed", printed(server, task)
    assert json.loads((tmp_path / "got").read_text()) == [7, hostile, "app:1", {"list": [1, None, True, hostile]}, 7]
    assert not (tmp_path / "pwned").exists()


def test_check_mode_limits_and_tags_hold(server: FakeServer, tmp_path: Path) -> None:
    tasks = [
        {"name": "write", "copy": {"dest": str(tmp_path / "made"), "content": "new\n"}, "tags": "files"},
        {"name": "never", "command": "false", "tags": "other"},
    ]
    common = {"inventory": on("a", "b"), "limit": "b", "tags": ["files"], "forks": 2, "verbosity": 1}
    tried = add(server, tmp_path, {**common, "check": True, "diff": True}, tasks)
    report = server.report(tried)
    assert report.signal == "succeed", printed(server, tried)
    assert not (tmp_path / "made").exists()
    assert "+new" in printed(server, tried), "the difference that it would make"
    found = result_of(report)
    assert {host: one["changed"] for host, one in found["hosts"].items()} == {"b": 1}
    assert [one["task"] for one in found["tasks"]] == ["write"]
    done = add(server, tmp_path, common, tasks)
    assert server.report(done).signal == "succeed", printed(server, done)
    assert (tmp_path / "made").read_text() == "new\n"


def test_a_module_runs_on_all_hosts_without_a_playbook(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(json.dumps(on("a", "b")))
    inventory = ["hosts.yml", {"more": on("c")["all"]}]
    play = {"module": "command", "module_args": "echo from {{ inventory_hostname }}", "inventory": inventory}
    task = add(server, tmp_path, play)
    report = server.report(task)
    assert report.signal == "succeed", printed(server, task)
    assert "from a" in printed(server, task)
    assert {host: one["ok"] for host, one in result_of(report)["hosts"].items()} == {"a": 1, "b": 1, "c": 1}


def test_passwords_and_keys_come_as_files_and_are_seen_nowhere(
    server: FakeServer, running: Bot, tmp_path: Path
) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text(SUDO.format(python=sys.executable, password=PASSWORD))
    sudo.chmod(0o755)
    vaulted, other = tmp_path / "secret.yml", tmp_path / "other.yml"
    for file, vault, password in ((vaulted, "", "canary-of-the-vault-1"), (other, "prod", "canary-of-the-vault-2")):
        (tmp_path / "password").write_text(password)
        file.write_text(f"from_vault{vault}: opened{vault}\n")
        name = f"{vault}@{tmp_path / 'password'}" if vault else str(tmp_path / "password")
        command = [str(Path(sys.executable).with_name("ansible-vault")), "encrypt", "--vault-id", name, str(file)]
        subprocess.run([*command, *(["--encrypt-vault-id", vault] if vault else [])], check=True, capture_output=True)
    (tmp_path / "password").unlink()
    tasks = [
        {"include_vars": {"file": str(vaulted)}},
        {"include_vars": {"file": str(other)}},
        {"name": "as root", "command": "echo became", "register": "became", "become": True},
        {"name": "look", "shell": "cat /proc/$PPID/cmdline /proc/*/cmdline | tr '\\0' ' '; env", "register": "seen"},
        {"debug": {"msg": "{{ from_vault }} {{ from_vaultprod }} {{ became.stdout }} {{ ansible_become_exe }}"}},
        {"debug": {"msg": "{{ lookup('file', lookup('pipe', find_file)) }}"}},
        {"shell": "grep -rls 'canary-of-the-[a-z]*' $(dirname $TASKYARD_RESULT)/../.. || true", "register": "kept"},
        {"copy": {"dest": str(tmp_path / "kept"), "content": "{{ kept.stdout }}"}},
        {"copy": {"dest": str(tmp_path / "seen"), "content": "{{ seen.stdout }}"}},
    ]
    play = {
        "inventory": on("a", ansible_become_exe=str(sudo), find_file=FIND_FILE),
        "vault_passwords": {"dev": "vault-dev", "prod": "vault-prod"},
        "become_password": "sudo", "ssh_key": "key",
    }  # fmt: skip
    given = {
        "TASKYARD_BECOME_PASSWORD": PASSWORD,
        "TASKYARD_SSH_KEY": "-----BEGIN KEY-----\ncanary-of-the-key\n-----END KEY-----",
        "TASKYARD_VAULT_0": "canary-of-the-vault-1",
        "TASKYARD_VAULT_1": "canary-of-the-vault-2",
    }
    items = [
        {"variable": name, "body": base64.b64encode(body.encode()).decode(), "is_file": True}
        for name, body in given.items()
    ]
    items.append({"variable": "TOKEN", "body": base64.b64encode(b"canary-of-the-token").decode(), "is_file": False})
    with server.changed:
        task = add(server, tmp_path, play, tasks)
        server.secrets[task] = (200, {"items": items})
    report = server.report(task)
    said = printed(server, task)
    assert report.signal == "succeed", said
    assert "opened openedprod became" in said
    assert '"msg": "***"' in said, "the password is masked"
    seen = (tmp_path / "seen").read_text()
    assert "--become-password-file=" in seen
    for body in given.values():
        assert body not in said
        assert body not in seen
        assert body not in bytes(report.result).decode()
    assert "TASKYARD_BECOME_PASSWORD=" not in seen
    assert (tmp_path / "kept").read_text() == "", "what ansible-runner writes of the environment is not on the disk"
    folders = SecretFiles(running.state.resolve() / "work").folders()
    assert not [path for folder in folders for path in folder.glob("*/ansible")], "nothing is left in memory"


@pytest.mark.parametrize(
    ("play", "said"),
    [
        ({"playbook": "no/site.yml"}, "taskyard: playbook: there is no no/site.yml in the working folder\n"),
        (
            {"playbook": "site.yml", "inventory": "hosts"},
            "taskyard: inventory: there is no hosts in the working folder\n",
        ),
        ({"inventory_source": "aws.yml"}, "taskyard: inventory_source: there is no aws.yml in the working folder\n"),
    ],
)
def test_what_is_missing_is_an_error_of_the_system(
    server: FakeServer, tmp_path: Path, play: dict[str, Any], said: str
) -> None:
    (tmp_path / "site.yml").write_text("[]")
    task = add(server, tmp_path, play)
    report = server.report(task)
    assert (report.signal, report.reason) == ("lose", "missing"), printed(server, task)
    assert printed(server, task).endswith(said)


def test_a_crash_of_what_runs_the_play_is_an_error_of_the_system(
    server: FakeServer, running: Bot, tmp_path: Path
) -> None:
    tasks = [{"shell": f"echo $$ > {tmp_path}/pid; exec sleep 3600"}]
    task = add(server, tmp_path, {"inventory": on("a")}, tasks)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "", "the play sleeps")
    sleeper = int((tmp_path / "pid").read_text())
    (driver,) = [one for one in psutil.Process(sleeper).parents() if "taskyard.bot.ansible" in one.cmdline()]
    driver.kill()
    report = server.report(task)
    assert (report.signal, report.reason) == ("lose", "bot_failed")
    until(lambda: is_gone(sleeper), "nothing of the play is left")


def test_a_bot_announces_the_version_of_its_ansible(server: FakeServer) -> None:
    server.wait_until(lambda: server.hellos, "the bot")
    short, whole = server.hellos[0].dimensions["ansible"]
    assert whole.startswith(f"{short}.")
    assert float(short) >= 2


def test_a_user_without_a_home_runs_plays(tmp_path: Path) -> None:
    play = {"module": "command", "module_args": "echo done", "inventory": on("a"), "limit": "a"}
    env = {"HOME": "/nonexistent", "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote")}
    code, said, result = run_program("ansible", play, tmp_path, env=env)
    assert (code, result and result["totals"]["ok"]) == (0, 1), said
    assert not Path("/nonexistent").exists()


# Inventory sources: the program alone.


def listed(folder: Path, source: str | dict[str, Any], **play: Any) -> tuple[int, str, Any]:
    """Run the program on an inventory source; return its exit code, what it printed and its result."""
    return run_program("ansible", {"inventory_source": source, **play}, folder)


def test_an_inventory_source_leaves_hosts_that_ansible_reads_again(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(
        "lone\n[web]\na x=1\nb\n[web:vars]\nport=80\n[db]\nb y='{{ x }}'\n[prod:children]\nweb\ndb\n[all:vars]\nz=3\n"
    )
    code, said, result = listed(tmp_path, "hosts.ini")
    assert (code, result["hosts"], result["groups"], result["file"]) == (0, 3, 3, "inventory.json"), said
    assert json.loads((tmp_path / "inventory.json").read_text()) == result["inventory"]
    again = tmp_path / "again"
    again.mkdir()
    (again / "inventory.yml").write_text(json.dumps(result["inventory"]))
    assert listed(again, "inventory.yml", limit="b")[2]["inventory"]["all"]["hosts"].keys() == {"b"}
    assert listed(again, "inventory.yml")[2] == result


def test_a_script_and_a_plugin_are_sources_too(tmp_path: Path) -> None:
    script = tmp_path / "script" / "cloud.sh"
    script.parent.mkdir()
    listing = {"_meta": {"hostvars": {"s1": {"zone": "{{ x }}"}}}, "cloud": {"hosts": ["s1", "s2"], "vars": {"v": 1}}}
    script.write_text(f"#!/bin/sh\necho '{json.dumps(listing)}'\n")
    script.chmod(0o755)
    code, said, result = listed(script.parent, "cloud.sh")
    assert (code, result["hosts"]) == (0, 2), said
    assert result["inventory"]["all"]["children"]["cloud"] == {"hosts": {"s1": {}, "s2": {}}, "vars": {"v": 1}}
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "gen.yml").write_text(
        "plugin: ansible.builtin.generator\nhosts: {name: 'n{{ i }}'}\nlayers: {i: [1, 2, 3]}\n"
    )
    code, said, result = listed(plugin, "gen.yml")
    assert (code, result["hosts"]) == (0, 3), said
    inline = tmp_path / "inline"
    inline.mkdir()
    config = {"plugin": "ansible.builtin.generator", "hosts": {"name": "m{{ i }}"}, "layers": {"i": [1, 2]}}
    code, said, result = listed(inline, config)
    assert (code, result["hosts"]) == (0, 2), said


def test_a_broken_source_fails_and_a_large_one_is_only_a_file(tmp_path: Path) -> None:
    broken, large = tmp_path / "broken", tmp_path / "large"
    broken.mkdir()
    (broken / "hosts.yml").write_text("all: [\n")
    assert listed(broken, "hosts.yml")[0] == 1
    large.mkdir()
    (large / "hosts.ini").write_text("".join(f"host-{number:05d} text={'x' * 40}\n" for number in range(3_000)))
    code, said, result = listed(large, "hosts.ini")
    assert (code, result) == (0, {"hosts": 3_000, "groups": 0, "file": "inventory.json"}), said
    assert len(json.loads((large / "inventory.json").read_text())["all"]["hosts"]) == 3_000


def test_a_bot_without_ansible_announces_none_and_says_so(tmp_path: Path) -> None:
    bare = python_without(tmp_path / "bare", "ansible")
    (tmp_path / "site.yml").write_text("[]")
    plays = {"playbook": "ansible-playbook", "module": "ansible", "inventory_source": "ansible-inventory"}
    for field, name in plays.items():
        code, said, _ = run_program("ansible", {field: "site.yml"}, tmp_path, python=str(bare))
        assert (code, said) == (BOT_FAILED_EXIT, f"taskyard: {name} is not in the PATH of this bot\n")
    look = "from taskyard.bot.config import detect_dimensions; print('ansible' in detect_dimensions())"
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run([str(bare), "-c", look], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# The parts.


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A project whose playbook uses a role and a role of a collection, both in archives of their own."""
    made = tmp_path / "made"
    greet = json.dumps([{"debug": {"msg": "hello from the role {{ role_name }}"}}])
    for folder in (made / "plain" / "tasks", made / "ann" / "tools" / "roles" / "greet" / "tasks"):
        folder.mkdir(parents=True)
        (folder / "main.yml").write_text(greet)
    (made / "plain" / "meta").mkdir()
    about = {"author": "ann", "description": "x", "license": "x", "min_ansible_version": "2.16"}
    (made / "plain" / "meta" / "main.yml").write_text(json.dumps({"galaxy_info": about}))
    collection = made / "ann" / "tools"
    (collection / "README.md").write_text("x")
    (collection / "galaxy.yml").write_text(
        json.dumps({"namespace": "ann", "name": "tools", "version": "1.0.0", "readme": "README.md", "authors": ["ann"]})
    )
    folder = tmp_path / "site"
    (folder / "archives").mkdir(parents=True)
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    build = [str(galaxy), "collection", "build", str(collection), "--output-path", str(folder / "archives")]
    subprocess.run(build, check=True, capture_output=True, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    with tarfile.open(folder / "archives" / "plain.tar.gz", "w:gz") as archive:
        archive.add(made / "plain", "plain")
    roles = [{"include_role": {"name": name}} for name in ("plain", "ann.tools.greet")]
    (folder / "site.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": roles}]))
    return folder


def test_what_a_project_requires_is_installed_from_its_own_files(site: Path) -> None:
    (site / "roles").mkdir()
    (site / "roles" / "requirements.yml").write_text("- {src: ./archives/plain.tar.gz, name: plain}\n")
    (site / "requirements.yaml").write_text("collections: [{name: ./archives/ann-tools-1.0.0.tar.gz, type: file}]\n")
    code, said, _ = run_program("ansible", {"playbook": "site.yml", "inventory": on("a")}, site)
    assert code == 0, said
    assert "hello from the role plain" in said
    assert "hello from the role greet" in said
    assert not (site / "roles" / "plain").exists(), "it is for this attempt alone"


def test_what_is_among_the_files_is_not_fetched_and_other_paths_still_count(site: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (site / "collections" / "ansible_collections" / "ann").mkdir(parents=True)
    (made / "ann" / "tools").rename(site / "collections" / "ansible_collections" / "ann" / "tools")
    (site / "mine").mkdir()
    (made / "plain").rename(site / "mine" / "plain")
    (site / "ansible.cfg").write_text("[defaults]\nroles_path = mine\n")
    (site / "requirements.yml").write_text(
        "roles: [{src: ./archives/plain.tar.gz, name: other}]\ncollections: ['ann.tools:>=1.0']\n"
    )
    code, said, _ = run_program("ansible", {"playbook": "site.yml", "inventory": on("a")}, site)
    assert code == 0, said
    assert "other was installed" in said
    assert "hello from the role plain" in said


@each_row(
    ("file", "body", "message"),
    [
        ("requirements.yml", "roles: [ann.web]", "could not install these roles: ann.web from NOBODY"),
        (
            "collections/requirements.yml",
            "collections: [{name: ann.tools, source: 'NOBODY/hub/'}]",
            "could not install these collections: ann.tools from NOBODY/hub/",
        ),
        (
            "roles/requirements.yml",
            "[{src: 'NOBODY/web.tar.gz'}]",
            "could not install these roles: NOBODY/web.tar.gz",
        ),
        ("requirements.yml", "roles: x", "needs a list of roles, or an object with"),
        ("requirements.yml", "a: [", "is no YAML"),
    ],
)
def test_what_cannot_be_had_is_an_error_that_names_its_source(file: str, body: str, message: str) -> None:
    with tempfile.TemporaryDirectory() as made, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        site, message = Path(made), message.replace("NOBODY", nobody)
        (site / file).parent.mkdir(exist_ok=True)
        (site / file).write_text(body.replace("NOBODY", nobody))
        (site / "site.yml").write_text("[]")
        (site / "ansible.cfg").write_text(f"[galaxy]\nserver = {nobody}\n")
        code, said, _ = run_program("ansible", {"playbook": "site.yml", "inventory": on("a")}, site)
    assert code == MISSING_EXIT, said
    assert f"taskyard: {file}: " in said
    assert message in said.splitlines()[-1], said


def test_a_summary_is_bounded_and_keeps_the_failures() -> None:
    summary = Summary()
    for number in range(TASKS_MAX + 10):
        data = {"task_uuid": str(number), "play": "p", "task": "t" * 5_000}
        began, ended = ({"created": f"2026-01-01T00:00:0{second}+00:00"} for second in (1, 3))
        summary.add({"event": "playbook_on_task_start", "event_data": data, **began})
        summary.add({"event": "runner_on_ok", "event_data": data | {"res": {"changed": True}}, **ended})
    hosts = [f"host-{number:05d}-{'x' * 150}" for number in range(HOSTS_MAX * 2)]
    counts = {"ok": dict.fromkeys(hosts, 1), "failures": {hosts[-1]: 1}, "artifact_data": {"set": 1}}
    summary.add({"event": "playbook_on_stats", "event_data": counts})
    found = summary.result()
    assert len(json.dumps(found, separators=(",", ":"))) <= RESULT_MAX
    assert next(iter(found["hosts"])) == hosts[-1]
    assert found["totals"]["hosts"] == len(hosts)
    assert found["left_out"]["hosts"] == len(hosts) - len(found["hosts"])
    assert found["left_out"]["tasks"] == TASKS_MAX + 10 - len(found["tasks"])
    assert found["stats"] == {"set": 1}
    assert found["tasks"][0] == {"play": "p", "task": "t" * 200, "seconds": 2.0, "ok": 1, "changed": 1}


def test_an_empty_listing_is_an_inventory() -> None:
    assert static_inventory({"_meta": {"hostvars": {}}, "all": {"children": ["ungrouped"]}}) == {
        "all": {"hosts": {}, "children": {}}
    }


def test_texts_of_others_are_marked_in_yaml() -> None:
    assert unsafe_yaml({"a b": ["x", 1, None, True, 1.5]}) == '{"a b": [!unsafe "x", 1, null, true, 1.5]}'
