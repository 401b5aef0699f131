"""What the kinds `ansible` and `git` run: a play, an inventory source, a checkout of a repository.

Bots run both by programs of their own, so a task of these kinds asks for a bot that has Ansible, or git. Passwords and
keys are secrets of the pool: a payload only names them, and the programs get them as files.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from taskyard.core.graph.errors import Faults, Path, quoted
from taskyard.core.graph.model import (
    ARGUMENT_MAX,
    FORKS_MAX,
    NAME_MAX,
    PATH_MAX,
    PLAY_LABELS_MAX,
    PLAY_TAGS_MAX,
    REF_MAX,
    VAULTS_MAX,
    VERBOSITY_MAX,
)
from taskyard.core.graph.scalars import (
    REQUIRED,
    Field,
    Level,
    Reader,
    boolean,
    constant,
    integer,
    is_mark,
    list_of,
    matching,
    pairs_of,
    read_name,
    shorthand,
    text,
    text_or_subs,
)
from taskyard.core.states import Kind

#: What a bot needs for a kind of work: a dimension, and a comparison that any version of use meets.
NEEDS: Final[Mapping[Kind, tuple[str, str]]] = MappingProxyType(
    {Kind.ANSIBLE: ("ansible", ">=2"), Kind.GIT: ("git", ">=2")}
)
#: The beginning of the names of caches that kinds of work have for themselves.
OWN_CACHES: Final = "taskyard-"
#: The fields of which a play has one, and those that only a playbook, or no inventory source has.
_ACTIONS: Final = ("playbook", "module", "inventory_source")
_OF_PLAYBOOKS: Final = frozenset({"tags", "skip_tags"})
_OF_PLAYS: Final = frozenset({
    "inventory", "extra_vars", "extra_vars_from", "forks", "check", "diff", "become", "become_user", "user",
    "become_password", "connection_password", "ssh_key", "module_args",
}) | _OF_PLAYBOOKS  # fmt: skip
_GROUP_FIELDS: Final = ("hosts", "vars", "children")
_HIDDEN: Final = re.compile(r"[\x00-\x20\x7f]")
_REMOTE_HELPER: Final = re.compile(r"[A-Za-z0-9+.-]+::")
_SCP_LIKE: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^:].*")
_URL: Final = re.compile(
    r"(?P<scheme>https|http|ssh|git)://(?:(?P<user>[A-Za-z0-9_][^/@]*)@)?"
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/.*)?"
)
_URL_TAKES: Final = "a URL such as https://host/path, ssh://git@host/path or git@host:path, or an absolute path"


def path_fault(path: str) -> str | None:
    """Return what is wrong with a path in a working folder; None if nothing is."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path:
        return "must be a relative path with / and without .."
    if "" in parts or "." in parts:
        return f"is not in its shortest form; write {quoted('/'.join(part for part in parts if part not in ('', '.')))}"
    return None


def _inner_path(value: object, at: Path, faults: Faults) -> object:
    path = _LINE.read(value, at, faults)
    if isinstance(path, str) and (fault := path_fault(path)):
        faults.add(at, fault)
    return path


def _place(value: object, at: Path, faults: Faults) -> object:
    """Read where hosts are listed: a path in the working folder, or hosts with commas between them."""
    return _LINE.read(value, at, faults) if isinstance(value, str) and "," in value else _inner_path(value, at, faults)


def _inventory(value: object, at: Path, faults: Faults) -> object:
    return _PLACES.read(value, at, faults) if isinstance(value, list) else _hosts(value, at, faults)


def _hosts(value: object, at: Path, faults: Faults) -> object:
    """Read where hosts are listed, or the hosts themselves."""
    if isinstance(value, str) or is_mark(value):
        return _place(value, at, faults)
    if not isinstance(value, dict):
        faults.wrong(at, _HOSTS_TAKES, value)
        return None
    for name, group in value.items():
        _group(group, (*at, name), faults)
    return value


def _group(value: object, at: Path, faults: Faults) -> None:
    """Check a group of an inventory, as a YAML inventory has them; the survey has bounded its depth."""
    if value is None:
        return
    if not isinstance(value, dict):
        faults.wrong(at, "a group: an object with hosts, vars and children", value)
        return
    for field, entries in value.items():
        if field not in _GROUP_FIELDS:
            meant = faults.meant(field, _GROUP_FIELDS) or f"; its fields are {', '.join(_GROUP_FIELDS)}"
            faults.add((*at, field), f"unknown field {quoted(field)} of a group{meant}")
        elif entries is not None and not isinstance(entries, dict):
            faults.wrong((*at, field), "an object by name", entries)
        elif field != "vars":
            for name, entry in (entries or {}).items():
                _check_entry(field, entry, (*at, field, name), faults)


def _check_entry(field: str, entry: object, at: Path, faults: Faults) -> None:
    if field == "children":
        _group(entry, at, faults)
    elif entry is not None and not isinstance(entry, dict):
        faults.wrong(at, "an object with the variables of the host", entry)


def read_play(value: object, at: Path, faults: Faults) -> object:
    """Read a play: one of its actions, and what belongs to that."""
    found = ANSIBLE.read(value, at, faults)
    if not isinstance(value, dict):
        return found
    actions = [name for name in _ACTIONS if name in value]
    if len(actions) != 1:
        faults.add(at, f'needs one of "playbook", "module" and "inventory_source"{"; keep one" if actions else ""}')
        return found
    if "module_args" in value and actions != ["module"]:
        faults.add((*at, "module_args"), 'belongs to "module"')
    idle = {"playbook": frozenset[str](), "module": _OF_PLAYBOOKS, "inventory_source": _OF_PLAYS - {"module_args"}}
    for name in sorted(value.keys() & idle[actions[0]]):
        faults.add((*at, name), f"means nothing beside {quoted(actions[0])}; remove it")
    return found


def read_checkout(value: object, at: Path, faults: Faults) -> object:
    """Read a checkout: a repository that git may speak to, and credentials that go with its URL."""
    found = GIT.read(value, at, faults)
    url = value.get("url") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(url, str):
        return found
    if "token" in value and not url.startswith("https://"):
        faults.add((*at, "token"), "is only sent over https; change the url, or remove it")
    if "ssh_key" in value and not (url.startswith("ssh://") or ("://" not in url and not url.startswith("/"))):
        faults.add((*at, "ssh_key"), "is only used over ssh; change the url, or remove it")
    if "user" in value and "token" not in value:
        faults.add((*at, "user"), 'belongs to "token"; over ssh, the user is in the url')
    return found


def _read_url(value: object, at: Path, faults: Faults) -> object:
    url = _PLAIN_LINE.read(value, at, faults)
    if isinstance(url, str) and (fault := _url_fault(url)):
        faults.add(at, fault)
    return url


def _url_fault(url: str) -> str | None:
    """Return why git is not told to speak to a URL: some make it run programs, and some hold passwords."""
    if _HIDDEN.search(url):
        return "must hold no blanks and no control characters"
    if _REMOTE_HELPER.match(url):
        return f"names a remote helper, which could run any program; write {_URL_TAKES}"
    found = _URL.fullmatch(url)
    if found is None:
        is_local = url.startswith(("/", "file:///"))
        return None if is_local or _SCP_LIKE.fullmatch(url) else f"must be {_URL_TAKES}"
    user = found["user"] or ""
    if ":" in user or (user and found["scheme"].startswith("http")):
        return 'has credentials in it; set them as a secret, and name that in "token"'
    return None


_LINE = text_or_subs(PATH_MAX)
_PLAIN_LINE = text(PATH_MAX)
_INNER_PATH = Reader("a relative path", _inner_path)
_HOSTS_TAKES = "a relative path, hosts with commas, or an object of groups"
_PLACES = list_of(Reader(_HOSTS_TAKES, _hosts), 1, PLAY_TAGS_MAX)
_INVENTORY_TAKES = f"{_HOSTS_TAKES}, or a list of these"
_TAGS = list_of(_LINE, 0, PLAY_TAGS_MAX)
_ANY_OBJECT = constant(dict, "an object")
_LABELS = list_of(text(NAME_MAX), 0, PLAY_LABELS_MAX)
_VAULT_ID = matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "a vault id of letters, digits, _ . and -, at most 64")
_REF = matching(
    rf"(?!-)(?!.*(?:\.\.|@\{{|//))[^\x00-\x20\x7f~^:?*\[\\]{{1,{REF_MAX}}}",
    "the name of a branch or a tag, or a commit",
)

ANSIBLE = Level(
    "a play",
    Field("playbook", _INNER_PATH, None, "The playbook: its path in the working folder."),
    Field("module", _LINE, None, "A module to run on all hosts instead of a playbook (an ad-hoc command)."),
    Field("module_args", text_or_subs(ARGUMENT_MAX), None, "The arguments of that module."),
    Field(
        "inventory_source",
        shorthand(_INNER_PATH, str, constant(dict, "the configuration of a plugin as an object")),
        None,
        "A file, a folder, a script, or the configuration of a plugin: its hosts are the result, instead of a play.",
    ),
    Field(
        "inventory",
        Reader(_INVENTORY_TAKES, _inventory),
        None,
        "The hosts: paths in the working folder, hosts with commas, or groups as in a YAML inventory.",
    ),
    Field("limit", _LINE, None, "The pattern of hosts to keep to."),
    Field("tags", _TAGS, (), "Run only what has one of these tags."),
    Field("skip_tags", _TAGS, (), "Leave out what has one of these tags."),
    Field("extra_vars", _ANY_OBJECT, None, "Variables that win over all others."),
    Field(
        "extra_vars_from",
        _LABELS,
        (),
        "Prerequisites whose results are variables, too: of a play its `stats`, of others the object that they left.",
    ),
    Field("forks", integer(1, FORKS_MAX), None, "How many hosts at once; left out, Ansible's own setting."),
    Field("verbosity", integer(0, VERBOSITY_MAX), 0, "The verbosity of Ansible, as the number of its -v."),
    Field("check", boolean(), False, "Change nothing; say what would change."),
    Field("diff", boolean(), False, "Show the differences that are made."),
    Field("user", _LINE, None, "The user to log in as."),
    Field("become", boolean(), False, "Become another user on the hosts, root unless `become_user` names one."),
    Field("become_user", _LINE, None, "The user to become."),
    Field("become_password", read_name(), None, "The secret with the password to become another user."),
    Field("connection_password", read_name(), None, "The secret with the password to log in with."),
    Field("ssh_key", read_name(), None, "The secret with the private key to log in with, without a passphrase."),
    Field(
        "vault_passwords",
        shorthand(read_name(), str, pairs_of(_VAULT_ID, read_name(), VAULTS_MAX)),
        None,
        "The secret with the vault password, or one for each vault id.",
    ),
)

GIT = Level(
    "a checkout",
    Field("url", Reader(_URL_TAKES, _read_url), REQUIRED, "The repository."),
    Field("branch", _REF, None, "A branch, a tag or a commit; left out, the default branch of the repository."),
    Field(
        "ssh_key", read_name(), None, "The secret with the private key to log in with over ssh, without a passphrase."
    ),
    Field("token", read_name(), None, "The secret with the token or password to log in with over https."),
    Field("user", text(NAME_MAX), "git", "The user that goes with the token."),
)

#: The fields with secrets of each kind, and the variables that have the paths of their files.
_SECRET_FIELDS: Final[Mapping[Kind, Mapping[str, str]]] = MappingProxyType({
    Kind.ANSIBLE: MappingProxyType({
        "become_password": "TASKYARD_BECOME_PASSWORD",
        "connection_password": "TASKYARD_CONNECTION_PASSWORD",
        "ssh_key": "TASKYARD_SSH_KEY",
    }),
    Kind.GIT: MappingProxyType({"ssh_key": "TASKYARD_SSH_KEY", "token": "TASKYARD_GIT_TOKEN"}),
})  # fmt: skip
#: The variable of a vault password, without its number.
VAULT_VARIABLE: Final = "TASKYARD_VAULT_"


def secret_uses(payload: Mapping[str, object]) -> Iterator[tuple[str, str, Path]]:
    """Yield the secrets that a play or a checkout names: variable, name and place in the payload."""
    for kind, fields in _SECRET_FIELDS.items():
        work = payload.get(kind)
        if not isinstance(work, Mapping):
            continue
        for field, variable in fields.items():
            if field in work:
                yield variable, str(work[field]), (kind.text, field)
        for number, (vault, name) in enumerate(vaults(work.get("vault_passwords"))):
            at = (kind.text, "vault_passwords")
            yield f"{VAULT_VARIABLE}{number}", name, at if vault is None else (*at, vault)


def vaults(passwords: object) -> list[tuple[str | None, str]]:
    """List the vault ids of a play, in order, each with the name of its secret; None is no id at all."""
    if isinstance(passwords, Mapping):
        return [(vault, str(passwords[vault])) for vault in sorted(passwords)]
    return [] if passwords is None else [(None, str(passwords))]


def labels_of_variables(payload: Mapping[str, object]) -> list[tuple[int, str]]:
    """Return the labels of prerequisites whose results are variables of a play, each with its place in the list."""
    work = payload.get(Kind.ANSIBLE)
    found = work.get("extra_vars_from") if isinstance(work, Mapping) else None
    return [(place, one) for place, one in enumerate(found if isinstance(found, list) else ()) if isinstance(one, str)]


def own_cache(payload: Mapping[str, object]) -> str | None:
    """Return the name of the cache in which a checkout keeps its repository; None for any other work."""
    work = payload.get(Kind.GIT)
    url = work.get("url") if isinstance(work, Mapping) else work
    return None if url is None else repository_cache(str(url))


def repository_cache(url: str) -> str:
    """Return the name of the cache of a repository."""
    return f"{OWN_CACHES}git-{sha256(url.encode()).hexdigest()[:16]}"
