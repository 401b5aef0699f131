"""Every command in one table: its name, what it is good for, and the module where it lives.

A module is loaded when its command is called, and not before: no command pays for another. A new command is a new row.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from taskyard.cli import grammar

HERE: Final = "On this machine"
BRING: Final = "Bring graphs to a server"
LOOK: Final = "Look"
CHANGE: Final = "Change the course of things"
FLEET: Final = "The fleet and who may"
SETUP: Final = "Set up"
#: The order in which purposes are told.
PURPOSES: Final = (HERE, BRING, LOOK, CHANGE, FLEET, SETUP)


class Command(NamedTuple):
    """One command: its words, its purpose, the module below `taskyard.cli`, its function there, and its examples."""

    name: str  # two words for one that is below another
    purpose: str
    module: str
    function: str
    examples: str = "EXAMPLES"

    def load(self) -> Callable[..., Any]:
        """Give the function that carries it out."""
        found: Callable[..., Any] = getattr(self._loaded(), self.function)
        return found

    def shown(self) -> str:
        """Give its examples."""
        text: str = getattr(self._loaded(), self.examples)
        return text

    def syntax(self) -> grammar.Syntax:
        """Say what it takes."""
        return grammar.read(self.load())

    def _loaded(self) -> Any:
        return import_module(f"taskyard.cli.{self.module}")


COMMANDS: Final[dict[str, Command]] = {
    one.name: one
    for one in (
        Command("run", HERE, "running", "run"),
        Command("up", HERE, "up", "up"),
        Command("serve", HERE, "serving", "serve", "SERVE_EXAMPLES"),
        Command("bot", HERE, "serving", "bot", "BOT_EXAMPLES"),
        Command("doctor", HERE, "doctor", "doctor"),
        Command("submit", BRING, "submitting", "submit", "SUBMIT_EXAMPLES"),
        Command("extend", BRING, "submitting", "extend", "EXTEND_EXAMPLES"),
        Command("graphs", LOOK, "looking", "graphs", "GRAPHS_EXAMPLES"),
        Command("tasks", LOOK, "looking", "tasks", "TASKS_EXAMPLES"),
        Command("show", LOOK, "looking", "show", "SHOW_EXAMPLES"),
        Command("logs", LOOK, "logs", "logs"),
        Command("why", LOOK, "why", "why"),
        Command("story", LOOK, "looking", "story", "STORY_EXAMPLES"),
        Command("cancel", CHANGE, "wishes", "cancel", "CANCEL_EXAMPLES"),
        Command("rerun", CHANGE, "wishes", "rerun", "RERUN_EXAMPLES"),
        Command("approve", CHANGE, "approving", "approve"),
        Command("bots", FLEET, "fleet", "bots", "BOTS_EXAMPLES"),
        Command("bots events", FLEET, "fleet", "bot_events", "EVENTS_EXAMPLES"),
        Command("bots set", FLEET, "fleet", "set_bot", "SET_BOT_EXAMPLES"),
        Command("bots free", FLEET, "fleet", "free_bot", "FREE_BOT_EXAMPLES"),
        Command("pools", FLEET, "fleet", "pools", "POOLS_EXAMPLES"),
        Command("pools set", FLEET, "fleet", "set_pool", "SET_POOL_EXAMPLES"),
        Command("limits", FLEET, "shared", "limits", "LIMITS_EXAMPLES"),
        Command("limits set", FLEET, "shared", "set_limit", "SET_LIMIT_EXAMPLES"),
        Command("mutexes", FLEET, "shared", "mutexes", "MUTEXES_EXAMPLES"),
        Command("mutexes set", FLEET, "shared", "set_mutex", "SET_MUTEX_EXAMPLES"),
        Command("token", FLEET, "tokens", "tokens"),
        Command("token create", FLEET, "tokens", "create", "CREATE_EXAMPLES"),
        Command("token list", FLEET, "tokens", "tokens"),
        Command("token revoke", FLEET, "tokens", "revoke", "REVOKE_EXAMPLES"),
        Command("token rotate", FLEET, "tokens", "rotate", "ROTATE_EXAMPLES"),
        Command("token rekey", FLEET, "tokens", "rotate_key", "KEY_EXAMPLES"),
        Command("audit", FLEET, "audit", "audit"),
        Command("login", SETUP, "configuring", "login", "LOGIN_EXAMPLES"),
        Command("config", SETUP, "configuring", "config", "CONFIG_EXAMPLES"),
        Command("profile", SETUP, "configuring", "profiles", "LIST_EXAMPLES"),
        Command("profile list", SETUP, "configuring", "profiles", "LIST_EXAMPLES"),
        Command("profile use", SETUP, "configuring", "use", "USE_EXAMPLES"),
        Command("profile remove", SETUP, "configuring", "remove", "REMOVE_EXAMPLES"),
        Command("completion", SETUP, "completing", "completion"),
    )
}


def below(name: str) -> list[str]:
    """Name the commands below one: `set` below `bots`."""
    return [one.partition(" ")[2] for one in COMMANDS if one.startswith(f"{name} ")]


def first_words() -> list[str]:
    """Name the commands that are below none."""
    return [one for one in COMMANDS if " " not in one]
