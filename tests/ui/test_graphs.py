"""The list of graphs, and one graph as a drawing, a table and a timeline, live, with its actions."""

import re

from playwright.sync_api import expect

from tests.e2e.cluster import Cluster, Graph
from tests.ui.browser import Watched
from tests.ui.demo import task


def test_the_list_filters_by_state_name_and_tag_and_the_address_says_so(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open("/graphs")
    expect(one.get_by_role("link", name="release 4.2")).to_be_visible()
    one.get_by_role("button", name="blocked").click()
    expect(one.get_by_role("link", name="release 4.2")).to_have_count(0)
    expect(one.get_by_role("link", name="nightly").first).to_be_visible()
    assert "state=blocked" in one.url
    page.open("/graphs?tag=team:lab")
    expect(one.get_by_role("link", name="lab run")).to_be_visible()
    expect(one.get_by_role("link", name="nightly")).to_have_count(0)
    one.get_by_role("button", name="Save this search").click()
    one.get_by_label("Name of the search").fill("the lab")
    one.keyboard.press("Enter")
    page.open("/graphs")
    one.get_by_role("link", name="the lab").click()
    assert "tag=team%3Alab" in one.url


def test_a_drawing_shows_each_task_its_state_and_its_panel(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/graphs/{demo['release'].id}")
    expect(one.locator(".node")).to_have_count(13)
    expect(one.get_by_role("button", name="build successful")).to_be_visible()
    expect(one.get_by_role("button", name="publish running · critical")).to_be_visible()
    one.get_by_role("button", name="package successful").click()
    panel = one.get_by_role("complementary", name="The chosen task")
    expect(panel).to_contain_text("package")
    assert f"task={demo['release'].names['package']}" in one.url


def test_a_drawing_follows_what_happens(page: Watched, yard: Cluster) -> None:
    graph = yard.submit({"go": task(payload={"approval": {"message": "go?"}}), "then": task("true", "go")}, name="live")
    one = page.open(f"/graphs/{graph.id}")
    expect(one.get_by_role("button", name="go running · critical")).to_be_visible()
    yard.client.approve(graph.names["go"])
    expect(one.get_by_role("button", name="then successful · critical")).to_be_visible()
    expect(one.locator(".state.badge", has_text="finished")).to_be_visible()


def test_a_large_graph_opens_as_groups_that_show_their_tasks(page: Watched, yard: Cluster) -> None:
    parts = {f"part-{n}": task("", "first", payload={"noop": True}) for n in range(320)}
    graph = yard.submit({"first": task(payload={"noop": True}), **parts}, name="large")
    graph.finished()
    one = page.open(f"/graphs/{graph.id}")
    expect(one.get_by_role("button", name=re.compile(r"part-\* 320"))).to_be_visible()
    one.get_by_role("button", name=re.compile(r"part-\* 320")).click()
    expect(one.locator(".drawing[data-drawn='321']")).to_be_visible()
    one.get_by_role("button", name="All tasks").click()
    expect(one.get_by_role("button", name="first successful", exact=False)).to_be_visible()


def test_the_table_sorts_and_opens_tasks_with_keys(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/graphs/{demo['nightly'].id}/table")
    table = one.get_by_role("table", name="Tasks of the graph")
    expect(table.get_by_role("row")).to_have_count(7)
    one.get_by_role("button", name="State").click()
    expect(table.get_by_role("columnheader", name="State")).to_have_attribute("aria-sort", "ascending")
    table.get_by_role("row", name="unit").focus()
    one.keyboard.press("Enter")
    expect(one.get_by_role("complementary", name="The chosen task")).to_contain_text("unit")


def test_a_timeline_has_a_bar_for_each_task_that_ran(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/graphs/{demo['release'].id}/timeline")
    chart = one.get_by_role("img", name="Timeline of 12 tasks")
    expect(chart).to_be_visible()
    one.get_by_role("button", name="by bot").click()
    expect(chart).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] / 2, "y": 60})
    one.mouse.wheel(0, -300)
    expect(one.get_by_role("button", name="Show all")).to_be_enabled()


def test_what_holds_a_graph_up_is_grouped(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/graphs/{demo['held'].id}/why")
    expect(one.locator(".notice", has_text="device:7")).to_be_visible()
    expect(one.locator(".notice", has_text="h100")).to_be_visible()


def test_canceling_a_graph_asks_and_says_what_it_does(page: Watched, yard: Cluster) -> None:
    graph = yard.submit({"long": task("sleep 600"), "after": task("true", "long")}, name="to cancel")
    graph.until("long", "running")
    one = page.open(f"/graphs/{graph.id}")
    one.get_by_role("button", name="Cancel").click()
    dialog = one.get_by_role("dialog", name="Cancel this graph?")
    expect(dialog).to_contain_text("2 tasks")
    dialog.get_by_role("button", name="Go back").click()
    assert graph.states()["long"] == "running"
    one.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the graph").click()
    expect(one.locator(".state.badge", has_text="canceled")).to_be_visible()


def test_rerunning_what_failed_unblocks_the_rest(page: Watched, yard: Cluster) -> None:
    flag = yard.folder / "mended"
    graph = yard.submit({"flaky": task(f"test -e {flag}"), "after": task("true", "flaky")}, name="to rerun")
    graph.until("after", "blocked")
    flag.touch()
    one = page.open(f"/graphs/{graph.id}")
    one.get_by_role("button", name="Rerun failed").click()
    one.get_by_role("dialog").get_by_role("button", name="Rerun").click()
    expect(one.locator(".state.badge", has_text="finished")).to_be_visible()
