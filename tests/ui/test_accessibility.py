"""axe finds nothing serious or critical on any page, light or dark, and everything can be reached with keys."""

import pytest
from playwright.sync_api import expect

from tests.e2e.cluster import Graph
from tests.project.tree import ROOT
from tests.ui.browser import Watched

AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """() => axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Watched, demo: dict[str, Graph], scheme: str) -> None:
    release, nightly = demo["release"], demo["nightly"]
    one = page.page
    one.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    paths = [
        "/",
        "/graphs",
        f"/graphs/{release.id}?task={release.names['build']}",
        f"/graphs/{nightly.id}/table",
        f"/graphs/{release.id}/timeline",
        f"/graphs/{demo['held'].id}/why",
        f"/tasks/{nightly.names['unit']}",
        f"/tasks/{nightly.names['unit']}/log",
        f"/tasks/{nightly.names['unit']}/attempts",
        f"/tasks/{demo['held'].names['measure']}",
        "/tasks",
        "/fleet",
        "/fleet/bots/attic",
        "/limits",
        "/submit",
        "/events",
        "/catalogue",
        "/audit",
        "/tokens",
        "/secrets",
    ]
    # A script that a test brings is no script of the page.
    source = AXE.read_text(encoding="utf-8")
    found = {}
    for path in paths:
        page.open(path)
        expect(one.get_by_role("heading").first).to_be_visible()
        expect(one.get_by_role("status", name="Loading")).to_have_count(0)
        one.evaluate(source)
        if wrong := one.evaluate(RUN):
            found[path] = wrong
    assert found == {}


def test_keys_lead_everywhere_and_are_listed(page: Watched) -> None:
    one = page.open("/")
    expect(one.get_by_role("heading", name="Overview")).to_be_visible()
    one.keyboard.press("?")
    expect(one.get_by_role("dialog", name="Keys")).to_contain_text("Go to graphs")
    one.keyboard.press("Escape")
    one.keyboard.press("g")
    one.keyboard.press("g")
    expect(one.get_by_role("heading", name="Graphs")).to_be_visible()
    one.keyboard.press("/")
    expect(one.get_by_label("Exact name of a graph")).to_be_focused()
    one.keyboard.type("gf")
    expect(one.get_by_label("Exact name of a graph")).to_have_value("gf")


def test_the_page_can_be_used_on_a_phone(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.page
    one.set_viewport_size({"width": 390, "height": 800})
    for path in ("/", "/graphs", f"/graphs/{demo['release'].id}", f"/tasks/{demo['nightly'].names['unit']}", "/fleet"):
        page.open(path)
        expect(one.get_by_role("heading").first).to_be_visible()
        assert one.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    one.get_by_role("button", name="Menu").click()
    one.get_by_role("link", name="Events").click()
    expect(one.get_by_role("heading", name="Events")).to_be_visible()
    expect(one.get_by_role("link", name="Audit")).to_be_hidden()
