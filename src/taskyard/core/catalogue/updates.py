"""What the updates of resources run: a checkout for a project, `ansible-inventory` for a source of an inventory.

Parsing checks the same payloads that launches make, so that whatever an update would be refused for is refused when its
document is applied.
"""

from typing import Any, Final

from taskyard.core.catalogue.model import InventorySource, Project, Raw, project_resource
from taskyard.core.graph.errors import Path
from taskyard.core.states import Kind

#: Stands for the default branch.
HEAD: Final = "HEAD"
#: The secrets of a project that its checkout takes; others are variables of the program.
_OF_CHECKOUTS: Final = ("ssh_key", "token")


def project_payload(project: Project) -> dict[str, Any]:
    """Return what the update of a project runs: a checkout, which leaves the files of the project."""
    checkout: dict[str, Any] = {"url": project.git}
    if project.branch != HEAD:
        checkout["branch"] = project.branch
    checkout |= {name: _secret_name(project.secrets[name]) for name in _OF_CHECKOUTS if name in project.secrets}
    others = {name: named for name, named in project.secrets.items() if name not in _OF_CHECKOUTS}
    return surrounded({Kind.GIT.text: checkout}, others, project.timeout)


def source_payload(source: InventorySource) -> dict[str, Any]:
    """Return what the update of a source runs: `ansible-inventory`, which leaves its hosts as a file."""
    listing = source.plugin if source.plugin is not None else source.path
    payload: dict[str, Any] = {Kind.ANSIBLE.text: {"inventory_source": listing}}
    if source.project is not None:
        payload["inputs"] = [{"from": project_resource(source.project)}]
    return surrounded(payload, source.secrets, source.timeout)


def surrounded(payload: dict[str, Any], secrets: Raw, timeout: str | None) -> dict[str, Any]:
    """Add the secrets and the time-out of a document to the payload that is made of it."""
    if secrets:
        payload["secrets"] = dict(secrets)
    if timeout is not None:
        payload["timeout"] = timeout
    return payload


def field_of(path: Path, source: InventorySource | None = None) -> Path:
    """Return the field of a project or a source that a path in the payload of its update comes from."""
    if source is not None and path[:2] == (Kind.ANSIBLE.text, "inventory_source"):
        return ("plugin" if source.plugin is not None else "path", *path[2:])
    if path[:1] == (Kind.GIT.text,):
        name = {"url": "git"}.get(str(path[1]), str(path[1])) if len(path) > 1 else "git"
        return ("secrets", name) if name in _OF_CHECKOUTS else (name,)
    return path


def _secret_name(named: object) -> object:
    return named.get("name") if isinstance(named, dict) else named
