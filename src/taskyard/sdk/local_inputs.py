"""Files of this machine that a graph document names: they are made into trees, which the document then names instead.

    inputs: [{local: src, to: code}]    becomes    inputs: [{tree: 9f86d0..., to: code}]

Nothing is sent here. Paths count from a folder that the caller gives. What is wrong is reported with its path.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskyard.files.collect import SILENT, Changed, Meter, collect
from taskyard.files.digests import BadTree, Tree, sha256, tree_text

#: Kinds of payloads that take no files: those that no bot runs, and a checkout, which brings its own.
_WITHOUT_FILES: Final = frozenset({"approval", "git", "graph", "noop"})


@dataclass(frozen=True, slots=True)
class LocalTree:
    """A tree, and the folder of this machine that has its files."""

    tree: Tree
    root: str
    digest: str
    path: str  # what was named: the folder itself, or a file in it


class BadInputs(ValueError):
    """Files that a document names cannot be used; each fault is a message and its path in the document."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for message, path in faults))
        self.faults = faults


@dataclass
class LocalInputs:
    """Makes trees of the files that documents name."""

    here: str
    meter: Meter = SILENT
    trees: dict[str, LocalTree] = field(default_factory=dict)  # by digest
    _known: dict[str, str] = field(default_factory=dict)  # the digest of each path
    _faults: list[tuple[str, str]] = field(default_factory=list)

    def resolved(self, document: Mapping[str, Any], whole: str | None = None) -> dict[str, Any]:
        """Return a copy of a document that names only trees; each task of a bot gets the folder `whole`, too."""
        first = None if whole is None else self._digest(whole, "--inputs")
        made: dict[str, Any] = self._graph(document, first, "")
        if self._faults:
            raise BadInputs(self._faults)
        return made

    def _graph(self, graph: Any, first: str | None, at: str) -> Any:
        if not isinstance(graph, dict) or not isinstance(graph.get("tasks"), dict):
            return graph
        nodes = {label: self._node(node, first, f"{at}tasks.{label}") for label, node in graph["tasks"].items()}
        return {**graph, "tasks": nodes}

    def _node(self, node: Any, first: str | None, at: str) -> Any:
        if not isinstance(node, dict) or not isinstance(node.get("task"), dict):
            return node
        task, at = dict(node["task"]), f"{at}.task"
        shared = task.get("payload")
        if isinstance(shared, dict):
            task["payload"] = self._payload(shared, first, f"{at}.payload")
        if isinstance(task.get("slices"), list):
            task["slices"] = [
                self._slice(one, shared, first, f"{at}.slices[{place}]") for place, one in enumerate(task["slices"])
            ]
        return {**node, "task": task}

    def _slice(self, one: Any, shared: Any, first: str | None, at: str) -> Any:
        """Resolve a slice; its payload is laid over that of the task, which may bring the inputs already."""
        if not isinstance(one, dict) or not isinstance(one.get("payload"), dict):
            return one
        own = one["payload"]
        has_shared = isinstance(shared, dict) and "inputs" not in own
        return {**one, "payload": self._payload(own, None if has_shared else first, f"{at}.payload")}

    def _payload(self, payload: dict[str, Any], first: str | None, at: str) -> dict[str, Any]:
        if "graph" in payload:
            return {**payload, "graph": self._graph(payload["graph"], first, f"{at}.graph.")}
        given = payload.get("inputs", [])
        if not isinstance(given, list) or payload.keys() & _WITHOUT_FILES:
            return payload
        inputs = [self._input(one, f"{at}.inputs[{place}]") for place, one in enumerate(given)]
        if first is not None:
            inputs.insert(0, {"tree": first})
        return {**payload, "inputs": inputs} if inputs else payload

    def _input(self, one: Any, at: str) -> Any:
        if not isinstance(one, dict) or not isinstance(one.get("local"), str) or "tree" in one or "from" in one:
            return one
        rest = {name: value for name, value in one.items() if name != "local"}
        return {"tree": self._digest(one["local"], f"{at}.local"), **rest}

    def _digest(self, path: str, at: str) -> str:
        """Make a tree of a folder or a file; note what is wrong with it."""
        path = os.path.normpath(os.path.join(self.here, path))
        if path not in self._known:
            self._known[path] = ""
            try:
                self._add(path)
            except BadTree as bad:
                self._faults += [(fault, at) for fault in bad.faults]
            except Changed as error:
                self._faults.append((str(error), at))
            except OSError as error:
                self._faults.append((f"cannot read {error.filename or path}: {error.strerror or error}", at))
        return self._known[path]

    def _add(self, path: str) -> None:
        found = tree_of(path, self.meter)
        self._known[path] = found.digest
        self.trees[found.digest] = found


def tree_of(path: str, meter: Meter = SILENT) -> LocalTree:
    """Make a tree of a folder, or of a single file; raise BadTree or OSError."""
    if os.path.isdir(path):
        root, tree = path, collect(path, meter=meter)
    else:
        os.stat(path)
        root, name = os.path.split(os.path.realpath(path))
        tree, path = collect(root, [_literal(name)], meter=meter), os.path.join(root, name)
    return LocalTree(tree, root, sha256(tree_text(tree)), path)


def _literal(name: str) -> str:
    """Spell a name as a pattern that means only that name."""
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)
