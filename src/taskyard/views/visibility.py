"""What the caller of a view may see."""

from collections.abc import Collection
from typing import Protocol


class Visibility(Protocol):
    """The rights of the caller, as far as views depend on them."""

    def graph(self, graph: int) -> bool:
        """Whether the caller may see a graph."""

    def bots_of(self, pools: Collection[str]) -> bool:
        """Whether the caller may see the bots of some pools."""
