"""Which server is meant and with which token, and who said so: an argument, the environment, a project file, a profile.

The first of them that names a server decides; a name of its own wins over a profile at the same place. A token is for
the server that it was stored with, and is never sent to another. A project file comes with other people's files: it
chooses among the servers that a person knows already, brings no tokens, and is no reason to send one elsewhere.

Profiles are in a person's own file: servers with their tokens, each under a name, and which of them is used. What is
odd in these files is told, and changes nothing else.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from taskyard.private_files import OTHERS
from taskyard.sdk.errors import Unset
from taskyard.sdk.nearest import unknown

#: Tells somebody what is odd in a file.
Tell: TypeAlias = Callable[[str], None]


class ProfileWarning(UserWarning):
    """Something in the file of profiles, or in a project file, is left aside, or others can read it."""


def warn(said: str) -> None:
    """Warn a program of what is odd in a file."""
    import warnings  # noqa: PLC0415 - it costs time to load

    warnings.warn(said, ProfileWarning, stacklevel=2)


#: More than any such file needs.
FILE_BYTES_MAX: Final = 1_000_000
#: The keys of the file, and of each profile in it.
KEYS: Final[Mapping[str, str]] = {
    "profile": "the name of the profile that is used unless another is named",
    "profiles": "the profiles, each a table `[profiles.NAME]`",
}
PROFILE_KEYS: Final[Mapping[str, str]] = {
    "url": "the server's address",
    "token": "the token for this server; it is sent to no other",
    "ca_file": "a file with the certificate of the authority that signed the server's",
    "by": "`up`: `taskyard up` wrote this profile and may write it anew",
}


class Profile(NamedTuple):
    """A server, and the token for it."""

    name: str
    url: str
    token: str | None = None
    by_up: bool = False  # written by `taskyard up`, which may write it anew
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, {self.url!r})"


class Kept(NamedTuple):
    """What the file says."""

    default: str | None = None
    profiles: Mapping[str, Profile] = MappingProxyType({})


DEFAULT_URL: Final = "http://127.0.0.1:8420"
#: What a project file is called; it is looked for from here upwards.
PROJECT_FILE: Final = ".taskyard.toml"
PROJECT_KEYS: Final[Mapping[str, str]] = {
    "url": "the address of a server that one of your profiles has, or of this machine",
    "profile": "the name of one of your profiles",
}
#: What the environment can say.
URL_VARIABLE, TOKEN_VARIABLE, PROFILE_VARIABLE = "TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_PROFILE"
CA_VARIABLE: Final = "TASKYARD_CA_FILE"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PORTS: Final = {"http": 80, "https": 443}


class Target(NamedTuple):
    """A server and the token for it."""

    url: str
    token: str | None = None
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Target({self.url!r})"


class Origin(NamedTuple):
    """A value, and who said it."""

    value: str | None
    source: str


class Found(NamedTuple):
    """Everything that was found out about which server is meant."""

    url: Origin
    token: Origin
    profile: Origin
    ca_file: Origin = Origin(None, "none")


class _Voice(NamedTuple):
    """One place that may name a server, or a profile with one."""

    url: Origin
    profile: Origin
    foreign: bool = False  # it came with other people's files


def find(
    url: str | None, token: str | None, profile: str | None = None, ca_file: str | None = None, tell: Tell = warn
) -> Target:
    """Say which server is meant, with what was given as flags; raise `Unset` when that cannot be said."""
    given = token or os.environ.get(TOKEN_VARIABLE)
    named = url or (None if profile else os.environ.get(URL_VARIABLE))
    if named and given:
        return Target(
            named, given, ca_file or os.environ.get(CA_VARIABLE) or None
        )  # files have nothing to add, and reading them takes time
    found = look(url, token, profile, ca_file, tell)
    return Target(found.url.value or DEFAULT_URL, found.token.value, found.ca_file.value)


def look(
    url: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    ca_file: str | None = None,
    tell: Tell = warn,
) -> Found:
    """Find out which server is meant, and who said what."""
    own = read(tell)
    voice = next((one for one in _voices(url, profile, own, tell) if one.url.value or one.profile.value), None)
    if voice is None:
        address, chosen = Origin(DEFAULT_URL, "default"), None
    elif voice.url.value:
        address, chosen = voice.url, None
    else:
        chosen = _named(own, voice.profile)
        address = Origin(chosen.url, f"profile {chosen.name}")
    known = chosen or _knowing(own, address.value or "")
    if voice is not None and voice.foreign and known is None:
        _refuse_stranger(address, token)
    by_profile = Origin(known.name, voice.profile.source if chosen and voice else "its url") if known else None
    return Found(address, _token(token, known, profile), by_profile or Origin(None, "none"), _ca_file(ca_file, known))


def same_server(one: str, other: str) -> bool:
    """Tell whether two addresses are those of one server."""
    return _parts(one) == _parts(other)


def yard_folder() -> Path:
    """Say where `taskyard up` keeps its database unless told."""
    return folder("XDG_DATA_HOME", ".local/share")


def project_file(tell: Tell = warn) -> Path | None:
    """Find the project file, here or above; one that another user wrote is left aside, and that is told."""
    here = Path.cwd()
    for place in (here, *here.parents):
        file = place / PROJECT_FILE
        try:
            owner = file.stat().st_uid
        except OSError:
            continue
        if not hasattr(os, "getuid") or owner in (os.getuid(), 0):
            return file
        tell(f"{file} belongs to another user and is left aside")
        return None
    return None


def _voices(url: str | None, profile: str | None, own: Kept, tell: Tell) -> "list[_Voice]":
    """Name the places that may say something, the strongest first."""
    flag = _Voice(Origin(url, "--url"), Origin(profile, "--profile"))
    environment = _Voice(
        Origin(os.environ.get(URL_VARIABLE) or None, URL_VARIABLE),
        Origin(os.environ.get(PROFILE_VARIABLE) or None, PROFILE_VARIABLE),
    )
    user = _Voice(Origin(None, ""), Origin(own.default, str(path())))
    if any(origin.value for voice in (flag, environment) for origin in (voice.url, voice.profile)):
        return [flag, environment]
    return [_project(tell), user]


def _project(tell: Tell) -> _Voice:
    file = project_file(tell)
    if file is None:
        return _Voice(Origin(None, ""), Origin(None, ""))
    said = read_toml(file, tell)
    if "token" in said:
        tell(f"{file}: a token in a project file is left aside; `taskyard login` keeps it for you alone")
    tell_unknown(file, {key: value for key, value in said.items() if key != "token"}, PROJECT_KEYS, tell)
    url, profile = (Origin(text_of(said.get(key)), str(file)) for key in ("url", "profile"))
    return _Voice(url, profile, foreign=True)


def _named(own: Kept, name: Origin) -> Profile:
    assert name.value is not None, "somebody named it"
    if name.value not in own.profiles:
        listed = unknown("profile", name.value, own.profiles)
        raise Unset(f"{name.source}: {listed}" + ("" if own.profiles else " `taskyard login URL` makes one."))
    return own.profiles[name.value]


def _knowing(own: Kept, url: str) -> Profile | None:
    """Find the profile of a server, first of all the one in use."""
    first = sorted(own.profiles.values(), key=lambda one: one.name != own.default)
    return next((one for one in first if same_server(one.url, url)), None)


def _token(flag: str | None, known: Profile | None, by_flag: str | None) -> Origin:
    """Choose the token: a flag's, then that of a profile named by a flag, the environment's, the server's own."""
    of_profile = Origin(known.token, f"profile {known.name}") if known and known.token else None
    environment = os.environ.get(TOKEN_VARIABLE)
    if flag:
        return Origin(flag, "--token")
    if by_flag and of_profile:
        return of_profile
    if environment:
        return Origin(environment, TOKEN_VARIABLE)
    return of_profile or Origin(None, "none")


def _ca_file(flag: str | None, known: Profile | None) -> Origin:
    """Choose the file of the authority that signs servers: a flag's, the environment's, that of the profile."""
    if flag:
        return Origin(flag, "--ca-file")
    if environment := os.environ.get(CA_VARIABLE):
        return Origin(environment, CA_VARIABLE)
    return Origin(known.ca_file, f"profile {known.name}") if known and known.ca_file else Origin(None, "none")


def _refuse_stranger(address: Origin, token: str | None) -> None:
    """Refuse a server that only a project file knows, unless it is on this machine and gets no token."""
    url = address.value or ""
    if urlsplit(url).hostname in _LOOPBACK and not (token or os.environ.get(TOKEN_VARIABLE)):
        return
    raise Unset(
        f"{address.source} names the server {url}, which none of your profiles has, so nothing is sent there: "
        f"`taskyard login {url}` makes it yours, --url {url} uses it once"
    )


def _parts(url: str) -> tuple[str, str, int | None, str]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port or _PORTS.get(parts.scheme), parts.path.rstrip("/")


# The person's own file.


def path() -> Path:
    """Say where the file is."""
    return folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def folder(variable: str, below_home: str) -> Path:
    """Say where things of one kind are kept."""
    base = os.environ.get(variable) or ""
    # A path that is not absolute is to be ignored, says the XDG specification.
    return (Path(base) if Path(base).is_absolute() else Path.home() / below_home) / "taskyard"


def read(tell: Tell = warn) -> Kept:
    """Read the file; one that is not there, or cannot be read, says nothing."""
    said = read_toml(path(), tell)
    tell_unknown(path(), said, KEYS, tell)
    tables = said.get("profiles")
    profiles = {
        name: _profile(name, table, tell) for name, table in (tables if isinstance(tables, dict) else {}).items()
        if isinstance(table, dict) and text_of(table.get("url"))
    }  # fmt: skip
    if any(one.token for one in profiles.values()):
        _warn_if_exposed(path(), tell)
    return Kept(text_of(said.get("profile")), profiles)


def read_toml(file: Path, tell: Tell) -> dict[str, Any]:
    """Read a small file; one that is not there says nothing, and neither does one that cannot be read, once told."""
    try:
        with file.open("rb") as opened:
            written = opened.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        tell(f"{file} cannot be read and is left aside: {fault.strerror}")
        return {}
    import tomllib  # noqa: PLC0415 - who has no file does not pay for it

    try:
        return tomllib.loads(written.decode())
    except ValueError as fault:
        tell(f"{file} cannot be read and is left aside: {fault}")
        return {}


def tell_unknown(file: Path, said: Mapping[str, Any], known: Mapping[str, str], tell: Tell) -> None:
    """Say which keys mean nothing, and what was probably meant."""
    for key in said:
        if key not in known:
            tell(f"{file}: {unknown('key', key, known)}")


def text_of(value: object) -> str | None:
    """Take a value for text, or for nothing."""
    return value if isinstance(value, str) and value else None


def _profile(name: str, table: Mapping[str, Any], tell: Tell) -> Profile:
    tell_unknown(path(), table, PROFILE_KEYS, tell)
    return Profile(
        name,
        text_of(table["url"]) or "",
        text_of(table.get("token")),
        table.get("by") == "up",
        text_of(table.get("ca_file")),
    )


def _warn_if_exposed(file: Path, tell: Tell) -> None:
    """Say that others can read a secret."""
    with suppress(OSError):
        if file.stat().st_mode & OTHERS:
            tell(f"others on this machine can read the tokens in {file}: chmod 600 {file}")
