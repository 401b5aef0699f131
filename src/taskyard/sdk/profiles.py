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

#: Tells somebody what is odd in a file.
Report: TypeAlias = Callable[[str], None]


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


class ProfileFile(NamedTuple):
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


class Sourced(NamedTuple):
    """A value, and who said it."""

    value: str | None
    source: str


class ResolvedServer(NamedTuple):
    """Everything that was found out about which server is meant."""

    url: Sourced
    token: Sourced
    profile: Sourced
    ca_file: Sourced = Sourced(None, "none")


class _Candidate(NamedTuple):
    """One place that may name a server, or a profile with one."""

    url: Sourced
    profile: Sourced
    untrusted: bool = False  # it came with other people's files


def resolve(
    url: str | None, token: str | None, profile: str | None = None, ca_file: str | None = None, report: Report = warn
) -> Target:
    """Say which server is meant, with what was given as flags; raise `Unset` when that cannot be said."""
    given = token or os.environ.get(TOKEN_VARIABLE)
    named = url or (None if profile else os.environ.get(URL_VARIABLE))
    if named and given:
        return Target(
            named, given, ca_file or os.environ.get(CA_VARIABLE) or None
        )  # files have nothing to add, and reading them takes time
    found = resolve_with_sources(url, token, profile, ca_file, report)
    return Target(found.url.value or DEFAULT_URL, found.token.value, found.ca_file.value)


def resolve_with_sources(
    url: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    ca_file: str | None = None,
    report: Report = warn,
) -> ResolvedServer:
    """Find out which server is meant, and who said what."""
    stored = read_profiles(report)
    candidate = next(
        (one for one in _candidates(url, profile, stored, report) if one.url.value or one.profile.value), None
    )
    if candidate is None:
        address, chosen = Sourced(DEFAULT_URL, "default"), None
    elif candidate.url.value:
        address, chosen = candidate.url, None
    else:
        chosen = _profile_named(stored, candidate.profile)
        address = Sourced(chosen.url, f"profile {chosen.name}")
    known = chosen or _profile_for_url(stored, address.value or "")
    if candidate is not None and candidate.untrusted and known is None:
        _refuse_unknown_server(address, token)
    by_profile = Sourced(known.name, candidate.profile.source if chosen and candidate else "its url") if known else None
    return ResolvedServer(
        address,
        _choose_token(token, known, profile),
        by_profile or Sourced(None, "none"),
        _choose_ca_file(ca_file, known),
    )


def same_server(one: str, other: str) -> bool:
    """Tell whether two addresses are those of one server."""
    return _address_parts(one) == _address_parts(other)


def data_folder() -> Path:
    """Say where `taskyard up` keeps its database unless told."""
    return folder("XDG_DATA_HOME", ".local/share")


def project_file(report: Report = warn) -> Path | None:
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
        report(f"{file} belongs to another user and is left aside")
        return None
    return None


def _candidates(url: str | None, profile: str | None, stored: ProfileFile, report: Report) -> list[_Candidate]:
    """Name the places that may say something, the strongest first."""
    flag = _Candidate(Sourced(url, "--url"), Sourced(profile, "--profile"))
    environment = _Candidate(
        Sourced(os.environ.get(URL_VARIABLE) or None, URL_VARIABLE),
        Sourced(os.environ.get(PROFILE_VARIABLE) or None, PROFILE_VARIABLE),
    )
    user = _Candidate(Sourced(None, ""), Sourced(stored.default, str(path())))
    if any(origin.value for candidate in (flag, environment) for origin in (candidate.url, candidate.profile)):
        return [flag, environment]
    return [_project_candidate(report), user]


def _project_candidate(report: Report) -> _Candidate:
    file = project_file(report)
    if file is None:
        return _Candidate(Sourced(None, ""), Sourced(None, ""))
    said = read_toml(file, report)
    if "token" in said:
        report(f"{file}: a token in a project file is left aside; `taskyard login` keeps it for you alone")
    report_unknown_keys(file, {key: value for key, value in said.items() if key != "token"}, PROJECT_KEYS, report)
    url, profile = (Sourced(text_or_none(said.get(key)), str(file)) for key in ("url", "profile"))
    return _Candidate(url, profile, untrusted=True)


def _profile_named(stored: ProfileFile, name: Sourced) -> Profile:
    assert name.value is not None, "somebody named it"
    if name.value not in stored.profiles:
        from taskyard.wire.close_match import unknown_name  # noqa: PLC0415 - loaded only after a mistake

        listed = unknown_name("profile", name.value, stored.profiles)
        raise Unset(f"{name.source}: {listed}" + ("" if stored.profiles else " `taskyard login URL` makes one."))
    return stored.profiles[name.value]


def _profile_for_url(stored: ProfileFile, url: str) -> Profile | None:
    """Find the profile of a server, first of all the one in use."""
    first = sorted(stored.profiles.values(), key=lambda one: one.name != stored.default)
    return next((one for one in first if same_server(one.url, url)), None)


def _choose_token(flag: str | None, known: Profile | None, by_flag: str | None) -> Sourced:
    """Choose the token: a flag's, then that of a profile named by a flag, the environment's, the server's own."""
    of_profile = Sourced(known.token, f"profile {known.name}") if known and known.token else None
    environment = os.environ.get(TOKEN_VARIABLE)
    if flag:
        return Sourced(flag, "--token")
    if by_flag and of_profile:
        return of_profile
    if environment:
        return Sourced(environment, TOKEN_VARIABLE)
    return of_profile or Sourced(None, "none")


def _choose_ca_file(flag: str | None, known: Profile | None) -> Sourced:
    """Choose the file of the authority that signs servers: a flag's, the environment's, that of the profile."""
    if flag:
        return Sourced(flag, "--ca-file")
    if environment := os.environ.get(CA_VARIABLE):
        return Sourced(environment, CA_VARIABLE)
    return Sourced(known.ca_file, f"profile {known.name}") if known and known.ca_file else Sourced(None, "none")


def _refuse_unknown_server(address: Sourced, token: str | None) -> None:
    """Refuse a server that only a project file knows, unless it is on this machine and gets no token."""
    url = address.value or ""
    if urlsplit(url).hostname in _LOOPBACK and not (token or os.environ.get(TOKEN_VARIABLE)):
        return
    raise Unset(
        f"{address.source} names the server {url}, which none of your profiles has, so nothing is sent there: "
        f"`taskyard login {url}` makes it yours, --url {url} uses it once"
    )


def _address_parts(url: str) -> tuple[str, str, int | None, str]:
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


def read_profiles(report: Report = warn) -> ProfileFile:
    """Read the file; one that is not there, or cannot be read, says nothing."""
    said = read_toml(path(), report)
    report_unknown_keys(path(), said, KEYS, report)
    tables = said.get("profiles")
    profiles = {
        name: _profile(name, table, report) for name, table in (tables if isinstance(tables, dict) else {}).items()
        if isinstance(table, dict) and text_or_none(table.get("url"))
    }  # fmt: skip
    if any(one.token for one in profiles.values()):
        _report_if_readable_by_others(path(), report)
    return ProfileFile(text_or_none(said.get("profile")), profiles)


def read_toml(file: Path, report: Report) -> dict[str, Any]:
    """Read a small file; one that is not there says nothing, and neither does one that cannot be read, once told."""
    try:
        with file.open("rb") as opened:
            written = opened.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        report(f"{file} cannot be read and is left aside: {fault.strerror}")
        return {}
    import tomllib  # noqa: PLC0415 - who has no file does not pay for it

    try:
        return tomllib.loads(written.decode())
    except ValueError as fault:
        report(f"{file} cannot be read and is left aside: {fault}")
        return {}


def report_unknown_keys(file: Path, said: Mapping[str, Any], known: Mapping[str, str], report: Report) -> None:
    """Say which keys mean nothing, and what was probably meant."""
    unknown = [key for key in said if key not in known]
    if unknown:
        from taskyard.wire.close_match import unknown_name  # noqa: PLC0415 - loaded only after a mistake

        for key in unknown:
            report(f"{file}: {unknown_name('key', key, known)}")


def text_or_none(value: object) -> str | None:
    """Take a value for text, or for nothing."""
    return value if isinstance(value, str) and value else None


def _profile(name: str, table: Mapping[str, Any], report: Report) -> Profile:
    report_unknown_keys(path(), table, PROFILE_KEYS, report)
    return Profile(
        name,
        text_or_none(table["url"]) or "",
        text_or_none(table.get("token")),
        table.get("by") == "up",
        text_or_none(table.get("ca_file")),
    )


def _report_if_readable_by_others(file: Path, report: Report) -> None:
    """Say that others can read a secret."""
    with suppress(OSError):
        if file.stat().st_mode & OTHERS:
            report(f"others on this machine can read the tokens in {file}: chmod 600 {file}")
