"""What the programs of a bot read that run the kinds `ansible` and `git`, and how they say how it went.

The server has validated both (`core/graph/plays.py`). A bot writes them into a file for the program, as they were
submitted; the secrets that they name are in other files, whose paths are in variables.
"""

from typing import Any, Final

import msgspec

from taskyard.core.graph.plays import VAULT_VARIABLE as VAULT_VARIABLE  # noqa: PLC0414 - programs import it from here
from taskyard.core.graph.plays import repository_cache as repository_cache  # noqa: PLC0414
from taskyard.core.graph.plays import secret_uses as secret_uses  # noqa: PLC0414
from taskyard.core.graph.plays import vaults as vaults  # noqa: PLC0414

#: The exit code of a program that finds its playbook, its inventory or another file missing (EX_UNAVAILABLE), and of
#: one that crashes, or lacks something of its bot (EX_SOFTWARE). Ansible and git end with none of them.
MISSING_EXIT: Final = 69
BOT_FAILED_EXIT: Final = 70
#: The variable with a folder that only the user of the task can read, and that goes with the attempt. It is in memory.
PRIVATE_VARIABLE: Final = "TASKYARD_PRIVATE"
#: The file with the hosts of an inventory source.
INVENTORY_FILE: Final = "inventory.json"
#: Where a checkout has its files, and its repository, in the working folder.
TREE_FOLDER: Final = "tree"
REPOSITORY_FOLDER: Final = "repository"


class Play(msgspec.Struct, frozen=True):
    """A play, or an inventory source."""

    playbook: str | None = None
    module: str | None = None
    module_args: str | None = None
    inventory_source: str | dict[str, Any] | None = None
    inventory: str | dict[str, Any] | list[str | dict[str, Any]] | None = None
    limit: str | None = None
    tags: list[str] = []
    skip_tags: list[str] = []
    extra_vars: dict[str, Any] = {}
    extra_vars_from: list[str] = []
    forks: int | None = None
    verbosity: int = 0
    check: bool = False
    diff: bool = False
    user: str | None = None
    become: bool = False
    become_user: str | None = None
    become_password: str | None = None
    connection_password: str | None = None
    ssh_key: str | None = None
    vault_passwords: str | dict[str, str] | None = None


class Checkout(msgspec.Struct, frozen=True):
    """A checkout of a repository."""

    url: str
    branch: str | None = None
    ssh_key: str | None = None
    token: str | None = None
    user: str = "git"
