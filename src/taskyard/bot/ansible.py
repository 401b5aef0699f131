"""The program that runs a play: `python -m taskyard.bot.ansible FILE`.

It runs `ansible-playbook`, or `ansible` for one module, by way of ansible-runner, prints what Ansible prints, and
leaves a summary as the result; for an inventory source it runs `ansible-inventory` and leaves the hosts. The exit code
is that of Ansible, except for two that say that no play could run.

Passwords and keys come as files. Nothing of them is in an argument, and what ansible-runner writes for itself is in the
private folder of the attempt.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from taskyard.bot.galaxy import install_requirements
from taskyard.bot.own_program import (
    BotFailed,
    Missing,
    key_file,
    private_folder,
    program,
    run,
    say,
    take_secrets,
    write_result,
)
from taskyard.wire.attempt_limits import RESULT_MAX
from taskyard.wire.plays import INVENTORY_FILE, VAULT_VARIABLE, Play, vaults

if TYPE_CHECKING:
    from ansible_runner.runner_config import RunnerConfig

#: How many hosts and tasks a summary names, and how much of the name of each.
HOSTS_MAX: Final = 1_000
TASKS_MAX: Final = 500
NAME_MAX: Final = 200
#: The largest list of hosts that is read.
INVENTORY_BYTES_MAX: Final = 64 * 1024 * 1024
#: How often ansible-runner looks whether Ansible has ended, while a process that stays behind keeps its output open.
_LOOK_SECONDS: Final = 1
#: The names of Ansible's counts, and ours.
_COUNTS: Final[Mapping[str, str]] = {
    "ok": "ok", "changed": "changed", "failures": "failed", "dark": "unreachable", "skipped": "skipped",
    "rescued": "rescued", "ignored": "ignored",
}  # fmt: skip
_BAD: Final = ("failed", "unreachable")
#: What the events of a host in a task are counted as.
_ENDS: Final[Mapping[str, str]] = {
    "runner_on_ok": "ok", "runner_on_failed": "failed", "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}  # fmt: skip
#: The keys of the result of a play; and the one with what it has set with `set_stats`.
_STATS: Final = "stats"
_RESULT_KEYS: Final = frozenset({"hosts", "tasks", _STATS})
#: Ansible asks whether to trust an unknown host; nobody is there to look at its key.
_ANSWERS: Final = {r"Are you sure you want to continue connecting.*\?\s*$": "no"}


def _run(play: Play | str) -> int:
    play = Play(playbook=play) if isinstance(play, str) else play
    secrets = take_secrets(_secret_variables(play))
    private = private_folder("ansible")
    os.environ.setdefault("ANSIBLE_NOCOLOR", "1")
    os.environ["ANSIBLE_LOCAL_TEMP"] = str(private / "tmp")
    if not os.access(os.path.expanduser("~"), os.W_OK):  # a user for tasks may have no home
        os.environ.setdefault("ANSIBLE_HOME", str(private / "home"))
    for field in ("playbook", "inventory_source"):
        if isinstance(path := getattr(play, field), str):
            _check_there(path, field)
    install_requirements()
    found = _Run(play, private, secrets)
    return found.list_hosts() if play.inventory_source is not None else found.play()


def _secret_variables(play: Play) -> Iterator[str]:
    yield from ("TASKYARD_BECOME_PASSWORD", "TASKYARD_CONNECTION_PASSWORD", "TASKYARD_SSH_KEY")
    yield from (f"{VAULT_VARIABLE}{number}" for number, _ in enumerate(vaults(play.vault_passwords)))


def _check_there(path: str, field: str) -> None:
    if not os.path.exists(path):
        raise Missing(f"{field}: there is no {path} in the working folder")


class _Run:
    """One run of Ansible."""

    def __init__(self, play: Play, private: Path, secrets: Mapping[str, str]) -> None:
        self._play = play
        self._private = private
        self._secrets = secrets

    def play(self) -> int:
        """Run the playbook or the module; leave a summary."""
        name = "ansible-playbook" if self._play.playbook is not None else "ansible"
        command = [program(name), *self._arguments()]
        try:
            from ansible_runner.runner import Runner  # noqa: PLC0415 - only a play needs it
            from ansible_runner.runner_config import RunnerConfig  # noqa: PLC0415
        except ImportError as error:
            raise BotFailed(f"ansible-runner is not installed beside this bot: {error}") from error
        summary = Summary()
        config = RunnerConfig(
            private_data_dir=str(self._private),
            project_dir=os.getcwd(),
            ident="play",
            quiet=True,
            passwords=dict(_ANSWERS),
            playbook=self._play.playbook,
            module=self._play.module,
        )
        self._prepare(config, command)
        _, code = Runner(config, event_handler=summary.add).run()
        if code is None:
            raise BotFailed(f"{name} was ended by a signal")
        write_result(summary.result())
        return int(code)

    def _prepare(self, config: "RunnerConfig", command: list[str]) -> None:
        """Take over what ansible-runner has decided about the command, its folder and what it keeps."""
        config.prepare()
        config.command, config.cwd = command, os.getcwd()
        config.suppress_output_file = True
        config.pexpect_timeout = _LOOK_SECONDS
        if "ANSIBLE_HOST_KEY_CHECKING" not in os.environ:
            del config.env["ANSIBLE_HOST_KEY_CHECKING"]  # ansible-runner turns it off

    def list_hosts(self) -> int:
        """List the hosts of an inventory source; leave them as a file, and as the result if they fit."""
        source = self._play.inventory_source
        assert source is not None
        if isinstance(source, dict):
            source = self._written("source.yml", msgspec.json.encode(source))
        listing = self._private / "listing.json"
        command = [
            program("ansible-inventory"), "--inventory", source, "--list", "--export",
            "--output", str(listing), *_option("--limit", self._play.limit), *self._verbosity(), *self._vaults(),
        ]  # fmt: skip
        os.environ["ANSIBLE_INVENTORY_UNPARSED_FAILED"] = "True"
        code = subprocess.run(  # noqa: S603 - the program of this bot, with options of its own
            command, stdin=subprocess.DEVNULL, stderr=sys.stdout, check=False
        ).returncode
        if code < 0:
            raise BotFailed("ansible-inventory was ended by a signal")
        if code:
            return code
        if (size := listing.stat().st_size) > INVENTORY_BYTES_MAX:
            say(f"taskyard: the hosts have {size} bytes; at most {INVENTORY_BYTES_MAX}")
            return 1
        inventory = static_inventory(msgspec.json.decode(listing.read_bytes()))
        body = msgspec.json.encode(inventory)
        Path(INVENTORY_FILE).unlink(missing_ok=True)
        Path(INVENTORY_FILE).write_bytes(body)
        hosts, groups = len(inventory["all"]["hosts"]), len(inventory["all"]["children"])
        say(f"{hosts} hosts in {groups} groups")
        result = {"hosts": hosts, "groups": groups, "file": INVENTORY_FILE}
        whole = {**result, "inventory": inventory}
        write_result(whole if len(body) <= RESULT_MAX // 2 else result)
        return 0

    def _arguments(self) -> Iterator[str]:
        play = self._play
        for one in self._inventories():
            yield f"--inventory={one}"
        yield from _option("--limit", play.limit)
        yield from _option("--tags", ",".join(play.tags))
        yield from _option("--skip-tags", ",".join(play.skip_tags))
        yield from _option("--forks", play.forks)
        yield from self._verbosity()
        yield from (flag for flag, wanted in (("--check", play.check), ("--diff", play.diff)) if wanted)
        yield from _option("--user", play.user)
        yield from ["--become"] if play.become else []
        yield from _option("--become-user", play.become_user)
        yield from _option("--become-password-file", self._secrets.get("TASKYARD_BECOME_PASSWORD"))
        yield from _option("--connection-password-file", self._secrets.get("TASKYARD_CONNECTION_PASSWORD"))
        yield from _option("--private-key", key_file(self._secrets.get("TASKYARD_SSH_KEY"), self._private))
        yield from self._vaults()
        for file in self._variables():
            yield f"--extra-vars=@{file}"
        if play.playbook is not None:
            yield os.path.join(".", play.playbook) if play.playbook.startswith("-") else play.playbook
        else:
            yield from ("all", f"--module-name={play.module}", *_option("--args", play.module_args))

    def _inventories(self) -> list[str]:
        """Return what names the hosts; hosts of the payload itself are written to a file."""
        named = self._play.inventory
        if named is None:
            return []
        os.environ.setdefault("ANSIBLE_INVENTORY_UNPARSED_FAILED", "True")
        return [self._hosts(*each) for each in enumerate(named if isinstance(named, list) else [named])]

    def _hosts(self, number: int, named: str | dict[str, Any]) -> str:
        if isinstance(named, dict):
            return self._written(f"hosts-{number}.json", msgspec.json.encode(named))
        if "," not in named:
            _check_there(named, "inventory")
        return named

    def _variables(self) -> Iterator[str]:
        """Write the extra variables to files: those of prerequisites, then those of the play, which win."""
        inputs = msgspec.json.decode(Path(os.environ["TASKYARD_INPUTS"]).read_bytes())
        for number, label in enumerate(self._play.extra_vars_from):
            found = inputs.get(label)
            if found is None:
                continue
            if not isinstance(found, dict):
                raise Missing(f"extra_vars_from: the result of {label} is no object")
            variables = found[_STATS] if found.keys() >= _RESULT_KEYS else found
            yield self._written(f"result-{number}.yml", unsafe_yaml(variables).encode())
        if self._play.extra_vars:
            yield self._written("extra_vars.json", msgspec.json.encode(self._play.extra_vars))

    def _written(self, name: str, body: bytes) -> str:
        file = self._private / name
        file.write_bytes(body)
        return str(file)

    def _vaults(self) -> Iterator[str]:
        for number, (vault, _) in enumerate(vaults(self._play.vault_passwords)):
            file = self._secrets[f"{VAULT_VARIABLE}{number}"]
            yield f"--vault-password-file={file}" if vault is None else f"--vault-id={vault}@{file}"

    def _verbosity(self) -> list[str]:
        return ["-" + "v" * self._play.verbosity] if self._play.verbosity else []


def _option(name: str, value: object) -> list[str]:
    """Write an option in one argument, so that no value is taken for an option."""
    return [f"{name}={value}"] if value else []


class Summary:
    """Prints what Ansible prints, and counts what its events say."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Any]] = {}
        self._began: dict[str, float] = {}
        self._hosts: dict[str, dict[str, int]] = {}
        self._stats: dict[str, Any] = {}
        self._left_out = 0  # tasks

    def add(self, event: Mapping[str, Any]) -> bool:
        """Take an event; False says that ansible-runner need not keep it."""
        if printed := event.get("stdout"):
            say(printed.replace("\r\n", "\n"))
        data = event.get("event_data") or {}
        name = event["event"]
        if name in ("playbook_on_task_start", "playbook_on_handler_task_start"):
            self._add_task(data, _moment(event))
        elif name in _ENDS:
            self._add_end(_ENDS[name], data, _moment(event))
        elif name == "playbook_on_stats":
            self._add_stats(data)
        return False

    def _add_task(self, data: Mapping[str, Any], moment: float) -> None:
        id = data.get("task_uuid", "")
        if id in self._tasks:
            return
        if len(self._tasks) >= TASKS_MAX:
            self._left_out += 1
            return
        names = {"play": data.get("play"), "task": data.get("task")}
        self._tasks[id] = {key: str(value or "")[:NAME_MAX] for key, value in names.items()} | {"seconds": 0.0}
        self._began[id] = moment

    def _add_end(self, end: str, data: Mapping[str, Any], moment: float) -> None:
        task = self._tasks.get(data.get("task_uuid", ""))
        if task is None:
            return
        if end == "failed" and data.get("ignore_errors"):
            end = "ignored"
        task[end] = task.get(end, 0) + 1
        if end == "ok" and (data.get("res") or {}).get("changed"):
            task["changed"] = task.get("changed", 0) + 1
        task["seconds"] = max(task["seconds"], round(moment - self._began[data["task_uuid"]], 3))

    def _add_stats(self, data: Mapping[str, Any]) -> None:
        self._stats = data.get("artifact_data") or {}
        for theirs, ours in _COUNTS.items():
            for host, count in (data.get(theirs) or {}).items():
                self._hosts.setdefault(host, dict.fromkeys(_COUNTS.values(), 0))[ours] = count

    def result(self) -> dict[str, Any]:
        """Return the summary, with as many hosts and tasks as fit, those with failures first."""
        most_hosts, most_tasks = HOSTS_MAX, TASKS_MAX
        while True:
            found = self._cut(most_hosts, most_tasks)
            if len(msgspec.json.encode(found)) <= RESULT_MAX or not (most_hosts or most_tasks):
                return found
            most_hosts, most_tasks = most_hosts // 2, most_tasks // 2

    def _cut(self, most_hosts: int, most_tasks: int) -> dict[str, Any]:
        hosts = sorted(self._hosts, key=lambda host: (not any(self._hosts[host][bad] for bad in _BAD), host))
        kept = hosts[:most_hosts]
        totals = {count: sum(one[count] for one in self._hosts.values()) for count in _COUNTS.values()}
        left_out = {
            "hosts": len(hosts) - len(kept),
            "tasks": self._left_out + max(0, len(self._tasks) - most_tasks),
        }
        return {
            _STATS: self._stats,
            "totals": {"hosts": len(hosts), **totals},
            "hosts": {host[:NAME_MAX]: self._hosts[host] for host in kept},
            "tasks": list(self._tasks.values())[:most_tasks],
            **({"left_out": left_out} if any(left_out.values()) else {}),
        }


def _moment(event: Mapping[str, Any]) -> float:
    """Return when Ansible made an event; it may be read later, with others."""
    return datetime.fromisoformat(event["created"]).timestamp()


def static_inventory(listing: dict[str, Any]) -> dict[str, Any]:
    """Write what `ansible-inventory --list` prints as a YAML inventory has it, which Ansible reads from a file."""
    hosts: dict[str, Any] = dict((listing.get("_meta") or {}).get("hostvars") or {})
    children = {}
    for name, group in listing.items():
        if name == "_meta":
            continue
        for host in group.get("hosts", ()):
            hosts.setdefault(host, {})
        if name not in ("all", "ungrouped"):
            children[name] = _static_group(group)
    everything = {"hosts": hosts, "children": children, "vars": (listing.get("all") or {}).get("vars")}
    return {"all": {key: value for key, value in everything.items() if key != "vars" or value}}


def _static_group(group: Mapping[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {key: {name: {} for name in group.get(key, ())} for key in ("hosts", "children")}
    return {key: value for key, value in {**parts, "vars": group.get("vars")}.items() if value}


def unsafe_yaml(found: object) -> str:
    """Write JSON as YAML in which every text is marked as unsafe: Ansible would run templates in what others left."""
    if isinstance(found, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {unsafe_yaml(item)}" for key, item in found.items()) + "}"
    if isinstance(found, list):
        return "[" + ", ".join(map(unsafe_yaml, found)) + "]"
    return f"!unsafe {_quoted(found)}" if isinstance(found, str) else msgspec.json.encode(found).decode()


def _quoted(text: str) -> str:
    return '"' + "".join(one if " " <= one <= "~" and one not in '"\\' else f"\\U{ord(one):08x}" for one in text) + '"'


def main(arguments: list[str]) -> int:
    """Run what a file says."""
    return run(Play | str, _run, arguments)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
