"""Where the tasks of a graph are drawn: in layers, each task after what it requires, with few crossings.

A task is in the layer after the last of its prerequisites. Within a layer, tasks are ordered by the mean place of their
neighbours, a few times forwards and backwards. A large graph is drawn as groups: tasks of one layer with similar
labels. All of it is linear in tasks and edges, times the logarithm of sorting.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, TypeAlias

from taskyard.core.structs import value

#: An edge between two tasks, by their places in the list of tasks.
Pair: TypeAlias = tuple[int, int]

#: How often tasks are ordered by their neighbours; more changes little.
SWEEPS: Final = 4
#: How far apart tasks are, in pixels: a box is 208 wide and 46 or 58 high.
X_GAP: Final = 280
Y_GAP: Final = 72
#: Layers with more tasks than this continue in a column beside the first.
COLUMN_MAX: Final = 60
#: Into how many groups a graph is collapsed at most: so many can be read, and drawn at once.
GROUPS_MAX: Final = 300
_NUMBER: Final = re.compile(r"\d+")
#: What a label has behind its first word.
_REST: Final = re.compile(r"[^A-Za-z].*$", re.DOTALL)


@value
class Layout:
    """The layer and the place of each node."""

    layers: list[int]
    x: list[int]
    y: list[int]


@value
class Grouping:
    """The group of each task, the name of each group, and the edges between groups."""

    group_of: list[int]
    names: list[str]
    edges: list[Pair]


def lay_out(count: int, edges: Sequence[Pair]) -> Layout:
    """Lay out an acyclic graph."""
    layers = layers_of(count, edges)
    rows = _ordered(layers, edges)
    x, y = [0] * count, [0] * count
    left = 0
    for row in rows:
        columns = max(1, -(-len(row) // COLUMN_MAX))
        height = -(-len(row) // columns)
        for place, node in enumerate(row):
            x[node] = (left + place // height) * X_GAP
            y[node] = round((place % height - (height - 1) / 2) * Y_GAP)
        left += columns
    return Layout(layers, x, y)


def layers_of(count: int, edges: Sequence[Pair]) -> list[int]:
    """Return the layer of each node: the length of the longest path that leads to it."""
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for source, target in edges:
        after[source].append(target)
        missing[target] += 1
    layers = [0] * count
    ready = [node for node in range(count) if not missing[node]]
    while ready:
        node = ready.pop()
        for target in after[node]:
            layers[target] = max(layers[target], layers[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return layers


def group(labels: Sequence[str], layers: Sequence[int], edges: Sequence[Pair]) -> Grouping:
    """Collapse a graph into groups; edges between them go from one layer to a later one, so they form no cycle.

    Tasks of one layer whose labels differ only in numbers are a group; if these are too many, those with the same first
    word, then those of one layer, then those of some layers in a row.
    """
    by_number = [f"{layer}\0{_NUMBER.sub('*', label)}" for layer, label in zip(layers, labels, strict=True)]
    keys = by_number
    if len(set(keys)) > GROUPS_MAX:
        keys = [f"{layer}\0{_REST.sub('', label)} …" for layer, label in zip(layers, labels, strict=True)]
    if len(set(keys)) > GROUPS_MAX:
        last = max(layers)
        bands = [layer * min(GROUPS_MAX, last + 1) // (last + 1) for layer in layers]
        keys = [f"{band}\0step {band + 1}" for band in bands]
    numbers: dict[str, int] = {}
    group_of = [numbers.setdefault(key, len(numbers)) for key in keys]
    between = dict.fromkeys((group_of[source], group_of[target]) for source, target in edges)
    names = [key.partition("\0")[2] for key in numbers]
    return Grouping(group_of, names, [pair for pair in between if pair[0] != pair[1]])


def _ordered(layers: Sequence[int], edges: Sequence[Pair]) -> list[list[int]]:
    """Return the nodes of each layer in the order in which they are drawn."""
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    place = [0.0] * len(layers)
    for row in rows:
        _spread(row, place)
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        near = before if forwards else after
        for row in rows if forwards else reversed(rows):
            wanted = {node: sum(place[one] for one in near[node]) / len(near[node]) for node in row if node in near}
            row.sort(key=lambda node: wanted.get(node, place[node]))
            _spread(row, place)
    return rows


def _spread(row: Sequence[int], place: list[float]) -> None:
    """Number the nodes of a layer from 0 to 1, so that layers of different sizes compare."""
    for number, node in enumerate(row):
        place[node] = (number + 0.5) / len(row)
