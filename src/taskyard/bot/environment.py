"""The environment of what a bot starts: some of the bot's own, what the payload says, and who the attempt is.

Unless whoever started the bot wants all of its environment passed on, nothing is in it that was not named here or by
the payload. The bot's token never is, nor anything else of Taskyard's that is around the bot itself.
"""

import os
from collections.abc import Mapping
from typing import Final

from taskyard.bot.config import BotConfig
from taskyard.wire.bots import Lease

#: What programs need to find their way on a machine.
PASSED_ON: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "TERM",
    "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SYSTEMROOT",
    "SYSTEMDRIVE", "WINDIR", "PATHEXT", "COMSPEC", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR",
})  # fmt: skip


#: What belongs to the login of one user, and is not for another.
OF_A_LOGIN: Final = frozenset({"XDG_RUNTIME_DIR", "MAIL", "PWD", "OLDPWD", "SUDO_COMMAND", "SUDO_USER"})
#: How the names begin of what Taskyard says to whatever it starts: the bot's token, and who the bot itself is.
OURS: Final = "TASKYARD_"


def passed_on(own: Mapping[str, str] | None = None, everything: bool = False) -> dict[str, str]:
    """Choose what everything that a bot starts has of the bot's own environment."""
    source = os.environ if own is None else own
    if everything:
        return {name: value for name, value in source.items() if not name.startswith(OURS)}
    return {name: value for name, value in source.items() if name in PASSED_ON or name.startswith("LC_")}


class Surroundings:
    """Writes the environment of each attempt of one bot."""

    def __init__(self, config: BotConfig) -> None:
        self._url = {"TASKYARD_URL": config.url}
        if config.ca_file is not None:
            self._url["TASKYARD_CA_FILE"] = os.path.abspath(config.ca_file)
        self._passed_on = passed_on(everything=config.inherit)
        if config.user is not None:
            self._passed_on = {
                name: value for name, value in self._passed_on.items() if name not in OF_A_LOGIN
            } | config.user.environment
        self._marker = config.marker

    @property
    def of_runner(self) -> dict[str, str]:
        """What the runner has, and so every warm worker; the runner marks with it whatever it starts."""
        return {**self._passed_on, **self._url, "TASKYARD_BOT": self._marker}

    def of(self, lease: Lease, files: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Write the whole environment of an attempt: the payload cannot take the place of what the bot says."""
        return {**self._passed_on, **given, **self._url, **files, **identity(lease)}


def identity(lease: Lease) -> dict[str, str]:
    """Say which attempt this is, and the word by which it may speak to the server."""
    return {
        "TASKYARD_TOKEN": lease.token,
        "TASKYARD_TASK_ID": lease.task,
        "TASKYARD_GRAPH_ID": lease.graph,
        "TASKYARD_LABEL": lease.label,
        "TASKYARD_ATTEMPT": str(lease.attempt),
    }
