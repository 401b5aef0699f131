"""A server with two bots and graphs in many states, a browser, and a page that is signed in."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from taskyard.server.page import FOLDER
from tests.e2e.cluster import Cluster, Graph, cluster
from tests.project.tree import ROOT
from tests.ui.browser import Watched, browser
from tests.ui.demo import populate

SCREENSHOTS = ROOT / "screenshots"


# Playwright has an event loop in its thread: it ends with this package, because other tests run loops of their own.


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    assert (FOLDER / "index.html").exists(), "the page is not built: run `make page`"
    with browser() as found:
        yield found


@pytest.fixture(scope="package")
def yard(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("yard")
    database = folder / "yard.db"
    database.write_bytes(sqlite_template.read_bytes())
    with cluster(folder, f"sqlite:///{database}") as one:
        one.bot("attic", "--dimension", "gpu=a100", slots=4)
        one.bot("cellar", slots=2)
        yield one


@pytest.fixture(scope="package")
def demo(yard: Cluster) -> dict[str, Graph]:
    return populate(yard)


@pytest.fixture
def fresh(request: pytest.FixtureRequest, chromium: Browser, yard: Cluster) -> Iterator[Watched]:
    """A page in a browser that knows nothing. Nothing may go wrong in it; its last picture is kept."""
    context = chromium.new_context(viewport={"width": 1360, "height": 860}, color_scheme="light")
    watched = Watched(context, yard.url)
    try:
        yield watched
        SCREENSHOTS.mkdir(exist_ok=True)
        watched.page.screenshot(path=SCREENSHOTS / f"{re.sub(r'[^a-z0-9_]+', '-', request.node.name.lower())}.png")
    finally:
        context.close()
    assert watched.wrong == []


@pytest.fixture
def page(fresh: Watched, yard: Cluster) -> Watched:
    """A page that is signed in as the admin."""
    fresh.sign_in(yard.token)
    return fresh
