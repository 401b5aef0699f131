"""Builds the web page into wheels and source distributions; for an editable installation, `make page` does."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the page before files are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling calls it so
        """Build the page, unless a source distribution brings it along."""
        root = Path(self.root)
        is_source_distribution = (root / "PKG-INFO").exists()
        page = root / "src" / "taskyard" / "server" / "page" / "index.html"
        if version == "editable" or (is_source_distribution and page.exists()):
            return
        sys.path.insert(0, str(root / "ui"))
        from build import build  # type: ignore[import-not-found]  # noqa: PLC0415 - it is beside the sources of the page

        build()
