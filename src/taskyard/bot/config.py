"""The configuration of a bot, and the dimensions that it reports."""

import os
import platform
import re
import socket
import ssl
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from taskyard.bot import gpus, tools
from taskyard.bot.caches import CacheLimits
from taskyard.bot.health_check import CheckSpec
from taskyard.bot.memory_limit import MIB
from taskyard.bot.task_user import TaskUser
from taskyard.sdk.servers import ServerList
from taskyard.wire.bot_protocol import OUTPUT_MAX, Welcome

#: A larger file is not a file of dimensions.
FILE_BYTES_MAX: Final = 65_536
_GIB: Final = 1 << 30
#: How much memory a container may use, with either version of cgroups.
_MEMORY_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: Words in a processor's name that identify nothing.
_NOISE = re.compile(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\b\d+-core\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BotConfig:
    """What a bot is started with. Nothing here is read from the environment or a file."""

    url: str  # of several servers, with commas between them
    token: str = field(repr=False)
    name: str
    slots: int
    state: Path  # a folder of its own: two bots never share one
    dimensions: Mapping[str, list[str]] = field(default_factory=dict)  # these win over detected ones
    dimensions_file: Path | None = None  # lines of `key=value`; a change takes effect at once
    once: bool = False  # take one batch of tasks, and end when it is done
    keep_output: Path | None = None  # a folder for the output that follows the streamed part
    output_max: int = OUTPUT_MAX  # how many bytes of an attempt's output are kept
    ca_file: str | None = None  # the CA certificate of the server; tasks get its path
    tls: ssl.SSLContext | None = None  # the context made from `ca_file`
    user: TaskUser | None = None  # the user that tasks run as; None: the bot's own
    inherit: bool = False  # pass the bot's whole environment on to tasks, not only what programs need
    check: CheckSpec | None = None  # what says whether the machine is fit
    engine: str = "local"  # what runs attempts
    # Its options. They may have a password.
    engine_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    caches: CacheLimits = CacheLimits()  # noqa: RUF009 - it is frozen
    # Called once, with the first welcome.
    connected: Callable[[Welcome], None] | None = field(default=None, compare=False)
    #: Made from the address: all connections of the bot use the same server.
    servers: ServerList = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "servers", ServerList(self.url, self.name))

    @property
    def marker(self) -> str:
        """The mark in the environment of everything that this bot starts, the same for all instances of the bot."""
        return f"{self.state.resolve()}#{self.name}"


# Dimensions, which tasks are matched with: detected on the machine, then read from a file, then given on the command
# line. Every value is a list of texts. What cannot be detected is left out.


Dimensions = dict[str, list[str]]


def detect_dimensions() -> Dimensions:
    """Detect the dimensions of this machine."""
    found = {
        "os": [platform.system()],
        "os_version": _os_version(),
        "arch": [platform.machine()],
        "cpu": _cpu(),
        "cores": [str(usable_cores())],
        "memory_gb": _memory_gb(),
        "python": [f"{sys.version_info.major}.{sys.version_info.minor}"],
        "hostname": [socket.gethostname()],
        "memory_mb": _usable_memory_mb(),
        "gpu": gpus.models(),
        "gpus": _gpu_count(),
        "ansible": list(tools.ansible_versions()),
        "git": list(tools.git_versions()),
    }
    return {key: kept for key, values in found.items() if (kept := sorted({value for value in values if value}))}


def merge_dimensions(*layers: Mapping[str, list[str]]) -> Dimensions:
    """Merge dimensions; later ones win, key by key."""
    whole: Dimensions = {}
    for layer in layers:
        whole.update({key: list(values) for key, values in layer.items()})
    return whole


def read_pairs(pairs: Iterable[str]) -> Dimensions:
    """Read `key=value` texts; a repeated key has several values. Raises ValueError for a text that is none."""
    found: Dimensions = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise ValueError(f"{pair!r} is not a dimension; write key=value")
        if value not in found.setdefault(key, []):
            found[key].append(value)
    return found


def read_file(path: Path) -> Dimensions:
    """Read a file of `key=value` lines, without empty ones and comments (#); a missing file has no dimensions."""
    try:
        with path.open(encoding="utf-8") as file:
            lines = [line.strip() for line in file.read(FILE_BYTES_MAX).splitlines()]
    except FileNotFoundError:
        return {}
    return read_pairs(line for line in lines if line and not line.startswith("#"))


def usable_cores() -> int:
    """Count the processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _os_version() -> list[str]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:  # not Linux, or a Linux without this file
        return [platform.mac_ver()[0] or platform.release()]
    return ["-".join(release[part] for part in ("ID", "VERSION_ID") if release.get(part))]


def _memory_gb() -> list[str]:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return []
    return [str(max(1, round(total / _GIB)))]


def _usable_memory_mb() -> list[str]:
    """Return the memory of the machine, or of the container if that may use less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return []
    limits = (_text(Path(file)).strip() for file in _MEMORY_LIMITS)
    return [str(min([total, *(int(limit) for limit in limits if limit.isdigit())]) // MIB)]


def _gpu_count() -> list[str]:
    """Return the number of GPUs, if there are any."""
    named = gpus.names()
    count = len(gpus.models() if named is None else named)
    return [str(count)] if count else []


def _cpu() -> list[str]:
    models = re.findall(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    name = models[0] if models else platform.processor()
    return [" ".join(_NOISE.sub(" ", name).split())]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
