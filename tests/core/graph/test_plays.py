"""What the kinds ansible and git take, and every fault with its path."""

from typing import Any

from taskyard.core.graph import validate
from taskyard.core.graph.parse import secret_pools
from taskyard.core.graph.payload import cache_names, names_secrets, secrets_of
from taskyard.core.graph.plays import repository_cache
from taskyard.core.states import Kind
from tests.each_row import each_row

INVENTORY = {
    "all": {"hosts": {"a": {"x": 1}, "b": None}, "children": {"web": {"hosts": {"a": None}, "vars": {"p": 80}}}}
}
TREE = "0" * 64
URL = "a URL such as https://host/path, ssh://git@host/path or git@host:path, or an absolute path"


def graph_of(payload: dict[str, Any], *requires: str, **task: Any) -> dict[str, Any]:
    others: dict[str, Any] = {label: {"task": {"payload": {"noop": True}}} for label in requires}
    return {"tasks": {**others, "it": {"requires": list(requires), "task": {"payload": payload, **task}}}}


def faults_of(payload: dict[str, Any], *requires: str) -> list[tuple[str, str]]:
    return [
        (one.path.removeprefix("tasks.it.task.payload."), one.message)
        for one in validate(graph_of(payload, *requires)).faults
    ]


@each_row(
    "payload",
    [
        {"ansible": "site.yml"},
        {
            "ansible": {
                "playbook": "site.yml",
                "inventory": INVENTORY,
                "become": True,
                "become_user": "app",
                "user": "deploy",
            }
        },
        {
            "ansible": {
                "playbook": "site.yml",
                "inventory": ["hosts.ini", "a,b,", INVENTORY],
                "forks": 500,
                "check": True,
            }
        },
        {"ansible": {"playbook": "site.yml", "vault_passwords": "v", "ssh_key": "k", "become_password": "b"}},
        {"ansible": {"module": "ping", "inventory": "hosts", "vault_passwords": {"dev": "v", "prod": "w"}}},
        {"ansible": {"inventory_source": "aws_ec2.yml", "limit": "web"}},
        {
            "ansible": {"inventory_source": {"plugin": "amazon.aws.aws_ec2"}},
            "secrets": {"AWS_SECRET_ACCESS_KEY": "aws"},
        },
        {"ansible": {"playbook": {"$subs": "taskId:before"}, "extra_vars_from": ["before"]}},
        {"git": "https://example.com/a/b.git"},
        {"git": "git@example.com:a/b.git"},
        {"git": "/srv/git/b.git", "outputs": ["playbooks/"]},
        {"git": {"url": "ssh://git@example.com:2222/a", "branch": "release/1.0", "ssh_key": "key"}},
        {"git": {"url": "https://example.com/a", "branch": "0" * 40, "token": "t", "user": "oauth2"}},
        {"git": {"url": "file:///srv/b.git"}},
    ],
)
def test_plays_and_checkouts_are_valid(payload: dict[str, Any]) -> None:
    found = validate(graph_of(payload, "before"))
    assert found.faults == ()
    assert found.graph is not None
    (slice_,) = found.graph.tasks["it"].slices
    assert slice_.kind in (Kind.ANSIBLE, Kind.GIT)
    assert (slice_.kind.text, (">=2",)) in slice_.dimensions, "only a bot that has it can run it"


@each_row(
    ("payload", "path", "text"),
    [
        ({"ansible": {}}, "ansible", 'needs one of "playbook", "module" and "inventory_source"'),
        (
            {"ansible": {"playbook": "a", "module": "b"}},
            "ansible",
            'needs one of "playbook", "module" and "inventory_source"; keep one',
        ),
        ({"ansible": "/etc/site.yml"}, "ansible", "must be a relative path with / and without .."),
        ({"ansible": {"playbook": "../a"}}, "ansible.playbook", "must be a relative path with / and without .."),
        ({"ansible": {"playbook": "a", "module_args": "x"}}, "ansible.module_args", 'belongs to "module"'),
        ({"ansible": {"module": "a", "tags": ["x"]}}, "ansible.tags", 'means nothing beside "module"; remove it'),
        (
            {"ansible": {"inventory_source": "a", "become": True}},
            "ansible.become",
            'means nothing beside "inventory_source"; remove it',
        ),
        (
            {"ansible": {"playbook": "a", "inventory": "/etc/hosts"}},
            "ansible.inventory",
            "must be a relative path with / and without ..",
        ),
        (
            {"ansible": {"playbook": "a", "inventory": {"all": {"host": {}}}}},
            "ansible.inventory.all.host",
            'unknown field "host" of a group; did you mean "hosts"?',
        ),
        (
            {"ansible": {"playbook": "a", "inventory": {"all": {"hosts": ["a"]}}}},
            "ansible.inventory.all.hosts",
            "must be an object by name; got a list",
        ),
        (
            {"ansible": {"playbook": "a", "inventory": {"all": {"children": {"web": {"hosts": {"a": 1}}}}}}},
            "ansible.inventory.all.children.web.hosts.a",
            "must be an object with the variables of the host; got 1",
        ),
        ({"ansible": {"playbook": "a", "forks": 0}}, "ansible.forks", "must be an integer from 1 to 500; got 0"),
        (
            {"ansible": {"playbook": "a", "extra_vars_from": ["no"]}},
            "ansible.extra_vars_from[0]",
            '"no" is no prerequisite; add it to requires',
        ),
        (
            {"ansible": {"playbook": "a", "vault_passwords": {"-x": "v"}}},
            "ansible.vault_passwords.-x",
            'must be a vault id of letters, digits, _ . and -, at most 64; got "-x"',
        ),
        ({"git": {"branch": "main"}}, "git", 'needs the field "url"'),
        (
            {"git": "ext::sh -c id"},
            "git",
            "must hold no blanks and no control characters",
        ),
        (
            {"git": "ext::id"},
            "git",
            f"names a remote helper, which could run any program; write {URL}",
        ),
        ({"git": "--upload-pack=id"}, "git", None),
        ({"git": "-oProxyCommand=id:x"}, "git", None),
        ({"git": "ssh://-oProxyCommand=id/x"}, "git", None),
        ({"git": "ssh://git@-oProxyCommand=id/x"}, "git", None),
        ({"git": "gopher://example.com/x"}, "git", None),
        ({"git": "https:///x"}, "git", None),
        ({"git": "relative/path"}, "git", None),
        (
            {"git": "https://ann:secret@example.com/x"},
            "git",
            'has credentials in it; set them as a secret, and name that in "token"',
        ),
        (
            {"git": {"url": "http://example.com/x", "token": "t"}},
            "git.token",
            "is only sent over https; change the url, or remove it",
        ),
        (
            {"git": {"url": "https://example.com/x", "ssh_key": "k"}},
            "git.ssh_key",
            "is only used over ssh; change the url, or remove it",
        ),
        ({"git": {"url": "/x", "user": "ann"}}, "git.user", 'belongs to "token"; over ssh, the user is in the url'),
        ({"git": {"url": "/x", "branch": "-b"}}, "git.branch", None),
        ({"git": {"url": "/x", "branch": "a..b"}}, "git.branch", None),
        ({"git": {"url": "/x", "branch": "a b"}}, "git.branch", None),
        ({"git": "/x", "inputs": [TREE]}, "inputs", "means nothing to a checkout; remove it"),
        ({"git": "/x", "caches": {"c": "c"}}, "caches", "means nothing to a checkout; remove it"),
        (
            {"script": "true", "caches": {"taskyard-git-1": "c"}},
            "caches.taskyard-git-1",
            "is for the bot to use; do not begin it with taskyard-",
        ),
    ],
)
def test_every_fault_has_its_path(payload: dict[str, Any], path: str, text: str | None) -> None:
    found = faults_of(payload)
    assert path in dict(found), found
    assert text is None or dict(found)[path] == text


def test_secrets_of_plays_and_checkouts_are_files_of_the_pool() -> None:
    play = {"playbook": "a", "become_password": "b", "ssh_key": "k", "vault_passwords": {"z": "v1", "a": "v2"}}
    uses = [(one.variable, one.name, one.is_file, one.at) for one in secrets_of({"ansible": play})]
    assert uses == [
        ("TASKYARD_BECOME_PASSWORD", "b", True, ("ansible", "become_password")),
        ("TASKYARD_SSH_KEY", "k", True, ("ansible", "ssh_key")),
        ("TASKYARD_VAULT_0", "v2", True, ("ansible", "vault_passwords", "a")),
        ("TASKYARD_VAULT_1", "v1", True, ("ansible", "vault_passwords", "z")),
    ]
    (only,) = secrets_of({"git": {"url": "https://x/y", "token": "t"}})
    assert (only.variable, only.name, only.is_file) == ("TASKYARD_GIT_TOKEN", "t", True)
    assert [names_secrets(one) for one in ({"ansible": "a"}, {"git": "/x"}, {"ansible": play})] == [False, False, True]
    found = validate(graph_of({"ansible": play}, dimensions={"pool": "lab"})).graph
    assert found is not None
    assert secret_pools(found.tasks.values()) == {"lab"}, "so submitting it needs the right `secrets` there"


def test_a_checkout_has_a_cache_of_its_own_for_each_repository() -> None:
    assert tuple(cache_names({"git": "/x"})) == tuple(cache_names({"git": {"url": "/x"}})) == (repository_cache("/x"),)
    assert repository_cache("/x") != repository_cache("/y")
