"""Finds the server and the token to use: arguments, the environment, a project file, or a profile.

The first of them that names a server wins; a URL wins over a profile in the same place. A token is only sent to the
server that it was stored with. A project file may come from other people: it can choose among the servers that the user
knows already, has no tokens, and never causes a token to be sent elsewhere.

Profiles are in the user's own file: servers with their tokens, each under a name, and the name of the default.
Whatever is wrong in these files is reported and otherwise ignored.
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
from taskyard.sdk.servers import split_urls

#: Reports what is wrong in a file.
Report: TypeAlias = Callable[[str], None]


class ProfileWarning(UserWarning):
    """A profile or project file has a part that is ignored, or can be read by other users."""


def warn(message: str) -> None:
    """Report as a Python warning."""
    import warnings  # noqa: PLC0415 - slow to load

    warnings.warn(message, ProfileWarning, stacklevel=2)


#: Larger than any such file.
FILE_BYTES_MAX: Final = 1_000_000
#: The keys of the file and of each profile, with their meaning.
KEYS: Final[Mapping[str, str]] = {
    "profile": "the name of the profile that is used unless another is named",
    "profiles": "the profiles, each a table `[profiles.NAME]`",
}
PROFILE_KEYS: Final[Mapping[str, str]] = {
    "url": "the server's address; of several servers of one database, with commas between them",
    "token": "the token for these servers; it is sent to no other",
    "ca_file": "a file with the certificate of the authority that signed the server's",
    "by": "`up`: `taskyard up` wrote this profile and may write it anew",
}


class Profile(NamedTuple):
    """A server with its token."""

    name: str
    url: str
    token: str | None = None
    by_up: bool = False  # written by `taskyard up`, which may write it anew
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, {self.url!r})"


class ProfileFile(NamedTuple):
    """The contents of the user's file."""

    default: str | None = None
    profiles: Mapping[str, Profile] = MappingProxyType({})


DEFAULT_URL: Final = "http://127.0.0.1:8420"
#: The name of project files, which are searched for from the working directory upwards.
PROJECT_FILE: Final = ".taskyard.toml"
PROJECT_KEYS: Final[Mapping[str, str]] = {
    "url": "the address of a server that one of your profiles has, or of this machine",
    "profile": "the name of one of your profiles",
}
#: Environment variables.
URL_VARIABLE, TOKEN_VARIABLE, PROFILE_VARIABLE = "TASKYARD_URL", "TASKYARD_TOKEN", "TASKYARD_PROFILE"
CA_VARIABLE: Final = "TASKYARD_CA_FILE"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_PORTS: Final = {"http": 80, "https": 443}


class Target(NamedTuple):
    """The server to use, with its token."""

    url: str
    token: str | None = None
    ca_file: str | None = None

    def __repr__(self) -> str:
        return f"Target({self.url!r})"


class Sourced(NamedTuple):
    """A value, and where it comes from."""

    value: str | None
    source: str


class ResolvedServer(NamedTuple):
    """The server to use, and where each setting comes from."""

    url: Sourced
    token: Sourced
    profile: Sourced
    ca_file: Sourced = Sourced(None, "none")


class _Candidate(NamedTuple):
    """A place that may name a server or a profile."""

    url: Sourced
    profile: Sourced
    untrusted: bool = False  # the file may come from other people


def resolve(
    url: str | None, token: str | None, profile: str | None = None, ca_file: str | None = None, report: Report = warn
) -> Target:
    """Find the server for the given flags; raise `Unset` if that is not possible."""
    given = token or os.environ.get(TOKEN_VARIABLE)
    named = url or (None if profile else os.environ.get(URL_VARIABLE))
    if named and given:
        return Target(
            named, given, ca_file or os.environ.get(CA_VARIABLE) or None
        )  # nothing in files would change this, and reading them takes time
    found = resolve_with_sources(url, token, profile, ca_file, report)
    return Target(found.url.value or DEFAULT_URL, found.token.value, found.ca_file.value)


def resolve_with_sources(
    url: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    ca_file: str | None = None,
    report: Report = warn,
) -> ResolvedServer:
    """Find the server, and where each setting comes from."""
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
    """Whether two addresses lead to the same server."""
    return _address_parts(one) == _address_parts(other)


def is_among(urls: str, others: str) -> bool:
    """Whether each of some addresses is among others; commas separate them."""
    known = {_address_parts(other) for other in split_urls(others)}
    return known.issuperset(map(_address_parts, split_urls(urls)))


def data_folder() -> Path:
    """Return the default folder of `taskyard up` for its database."""
    return folder("XDG_DATA_HOME", ".local/share")


def project_file(report: Report = warn) -> Path | None:
    """Find the project file, here or above; one that belongs to another user is reported and ignored."""
    here = Path.cwd()
    for place in (here, *here.parents):
        file = place / PROJECT_FILE
        try:
            owner = file.stat().st_uid
        except OSError:
            continue
        if not hasattr(os, "getuid") or owner in (os.getuid(), 0):
            return file
        report(f"{file} belongs to another user and is ignored")
        return None
    return None


def _candidates(url: str | None, profile: str | None, stored: ProfileFile, report: Report) -> list[_Candidate]:
    """Return the places that may name a server, the strongest first."""
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
    values = read_toml(file, report)
    if "token" in values:
        report(f"{file}: a token in a project file is ignored; `taskyard login` stores it for you alone")
    report_unknown_keys(file, {key: value for key, value in values.items() if key != "token"}, PROJECT_KEYS, report)
    url, profile = (Sourced(text_or_none(values.get(key)), str(file)) for key in ("url", "profile"))
    return _Candidate(url, profile, untrusted=True)


def _profile_named(stored: ProfileFile, name: Sourced) -> Profile:
    assert name.value is not None, "a candidate named it"
    if name.value not in stored.profiles:
        from taskyard.wire.close_match import unknown_name  # noqa: PLC0415 - loaded only after a mistake

        listed = unknown_name("profile", name.value, stored.profiles)
        raise Unset(f"{name.source}: {listed}" + ("" if stored.profiles else " `taskyard login URL` makes one."))
    return stored.profiles[name.value]


def _profile_for_url(stored: ProfileFile, url: str) -> Profile | None:
    """Find the profile that has all of these servers; the default profile comes first."""
    first = sorted(stored.profiles.values(), key=lambda one: one.name != stored.default)
    return next((one for one in first if is_among(url, one.url)), None) if url else None


def _choose_token(flag: str | None, known: Profile | None, by_flag: str | None) -> Sourced:
    """Choose the token: that of a flag, of a profile named by a flag, of the environment, of the server's profile."""
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
    """Choose the CA file: that of a flag, of the environment, of the profile."""
    if flag:
        return Sourced(flag, "--ca-file")
    if environment := os.environ.get(CA_VARIABLE):
        return Sourced(environment, CA_VARIABLE)
    return Sourced(known.ca_file, f"profile {known.name}") if known and known.ca_file else Sourced(None, "none")


def _refuse_unknown_server(address: Sourced, token: str | None) -> None:
    """Refuse a server that only a project file names, unless it is on this machine and gets no token."""
    url = address.value or ""
    hosts = {urlsplit(one).hostname for one in split_urls(url)}
    if hosts <= _LOOPBACK and not (token or os.environ.get(TOKEN_VARIABLE)):
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


# The user's own file.


def path() -> Path:
    """Return the path of the file."""
    return folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def folder(variable: str, below_home: str) -> Path:
    """Return Taskyard's folder below an XDG base folder."""
    base = os.environ.get(variable) or ""
    # The XDG specification says to ignore relative paths.
    return (Path(base) if Path(base).is_absolute() else Path.home() / below_home) / "taskyard"


def read_profiles(report: Report = warn) -> ProfileFile:
    """Read the file; a file that is missing or cannot be read counts as empty."""
    values = read_toml(path(), report)
    report_unknown_keys(path(), values, KEYS, report)
    tables = values.get("profiles")
    profiles = {
        name: _profile(name, table, report) for name, table in (tables if isinstance(tables, dict) else {}).items()
        if isinstance(table, dict) and text_or_none(table.get("url"))
    }  # fmt: skip
    if any(one.token for one in profiles.values()):
        _report_if_readable_by_others(path(), report)
    return ProfileFile(text_or_none(values.get("profile")), profiles)


def read_toml(file: Path, report: Report) -> dict[str, Any]:
    """Read a small TOML file; a missing file counts as empty, and so does an unreadable one, which is reported."""
    try:
        with file.open("rb") as opened:
            written = opened.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as fault:
        report(f"{file} cannot be read and is ignored: {fault.strerror}")
        return {}
    import tomllib  # noqa: PLC0415 - only loaded if there is a file

    try:
        return tomllib.loads(written.decode())
    except ValueError as fault:
        report(f"{file} cannot be read and is ignored: {fault}")
        return {}


def report_unknown_keys(file: Path, values: Mapping[str, Any], known: Mapping[str, str], report: Report) -> None:
    """Report unknown keys, with a suggestion."""
    unknown = [key for key in values if key not in known]
    if unknown:
        from taskyard.wire.close_match import unknown_name  # noqa: PLC0415 - loaded only after a mistake

        for key in unknown:
            report(f"{file}: {unknown_name('key', key, known)}")


def text_or_none(value: object) -> str | None:
    """Return a non-empty string, or None for any other value."""
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
    """Report that other users can read tokens."""
    with suppress(OSError):
        if file.stat().st_mode & OTHERS:
            report(f"others on this machine can read the tokens in {file}: chmod 600 {file}")
