"""Folders of a document, counted from where the run was started: its bot runs elsewhere.

It reads documents that were found good, and changes none: what has to differ is a copy.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def placed(document: Mapping[str, Any], here: Path) -> dict[str, Any]:
    """Give a document whose folders no longer depend on where anybody is."""
    return {**document, "tasks": {label: _node(node, here) for label, node in document["tasks"].items()}}


def _node(node: Any, here: Path) -> Any:
    return {**node, "task": _task(node["task"], here)} if _has(node, "task") else node


def _task(task: Any, here: Path) -> Any:
    changed = _slice(task, here)
    if _has(changed, "slices") and isinstance(changed["slices"], list):
        changed = {**changed, "slices": [_slice(one, here) for one in changed["slices"]]}
    return changed


def _slice(one: Any, here: Path) -> Any:
    """Place the payload of a task or of a slice; what stands behind a mark is left to it."""
    if not _has(one, "payload") or not isinstance(one["payload"], dict):
        return one
    payload = dict(one["payload"])
    if isinstance(payload.get("cwd"), str):
        payload["cwd"] = str(here / payload["cwd"])
    if _has(payload.get("graph"), "tasks"):
        payload["graph"] = placed(payload["graph"], here)
    return {**one, "payload": payload}


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value
