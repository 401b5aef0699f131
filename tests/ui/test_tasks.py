"""One task: why it does not run, its story, its attempts, its log, its files, and its actions."""

import re

from playwright.sync_api import expect

from tests.e2e.cluster import Cluster, Graph
from tests.ui.browser import Watched
from tests.ui.demo import task


def test_a_held_task_says_who_holds_it(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/tasks/{demo['held'].names['measure']}")
    card = one.locator(".card", has_text="Why it is not running")
    expect(card).to_contain_text("device:7")
    expect(card.get_by_role("link", name="calibrate").first).to_be_visible()


def test_a_task_without_a_bot_shows_the_nearest_and_what_it_lacks(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/tasks/{demo['held'].names['train']}")
    card = one.locator(".card", has_text="Why it is not running")
    expect(card).to_contain_text("Nearest bot")
    expect(card).to_contain_text("should be h100")


def test_the_story_tells_every_attempt_and_its_cause(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/tasks/{demo['nightly'].names['unit']}")
    story = one.locator(".card", has_text="Story")
    expect(story.get_by_text("running")).to_have_count(3)
    expect(story).to_contain_text("exit code 1")


def test_attempts_are_side_by_side(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/tasks/{demo['nightly'].names['unit']}/attempts")
    expect(one.get_by_role("columnheader", name="Attempt 3")).to_be_visible()
    expect(one.get_by_role("row", name=re.compile("^Exit code")).get_by_role("cell")).to_have_text(["1", "1", "1"])


def test_a_log_has_colours_links_to_lines_and_a_search(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/tasks/{demo['nightly'].names['unit']}/log")
    expect(one.locator(".ansi-red", has_text="FAILED")).to_be_visible()
    one.get_by_role("link", name="Line 9", exact=True).click()
    assert "line=9" in one.url
    expect(one.locator(".log-line.target")).to_contain_text("FAILED")
    one.get_by_label("Search the log").fill("passed")
    expect(one.get_by_text("1 of 8")).to_be_visible()
    one.get_by_role("button", name="Next").click()
    expect(one.get_by_text("2 of 8")).to_be_visible()
    with one.expect_download() as download:
        one.get_by_role("link", name="Download the log").click()
    assert "FAILED" in download.value.path().read_text()


def test_a_log_is_followed_while_it_is_written(page: Watched, yard: Cluster) -> None:
    flag = yard.folder / "go on"
    script = f"for n in $(seq 500); do echo line $n; done; while ! test -e '{flag}'; do sleep 0.05; done; echo the end"
    graph = yard.submit({"speaks": task(script)}, name="speaks")
    graph.until("speaks", "running")
    one = page.open(f"/tasks/{graph.names['speaks']}/log")
    expect(one.locator(".log-line", has_text="line 500")).to_be_visible()
    flag.touch()
    expect(one.locator(".log-line", has_text="the end")).to_be_visible()
    expect(one.locator(".state.badge", has_text="successful")).to_be_visible()


def test_results_and_definitions_are_shown(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open(f"/tasks/{demo['release'].names['package']}")
    expect(one.get_by_role("region", name="Result")).to_contain_text('"version": "4.2.0"')
    one.get_by_role("link", name="Definition").click()
    expect(one.get_by_role("region", name="Definition")).to_contain_text("TASKYARD_RESULT")


def test_files_can_be_downloaded(page: Watched, yard: Cluster) -> None:
    payload = {
        "script": "mkdir out; echo hello > out/greeting.txt",
        "outputs": [{"name": "greeting", "path": "out/greeting.txt"}],
    }
    graph = yard.submit({"leaves": task(payload=payload)}, name="leaves files")
    graph.finished()
    one = page.open(f"/tasks/{graph.names['leaves']}/files")
    with one.expect_download() as download:
        one.get_by_role("link", name="greeting", exact=True).click()
    assert download.value.path().read_text() == "hello\n"
    expect(one.get_by_role("link", name="out/greeting.txt")).to_be_visible()


def test_an_approval_is_decided_with_a_comment(page: Watched, yard: Cluster) -> None:
    graph = yard.submit({"ask": task(payload={"approval": {"message": "go?"}})}, name="asks")
    graph.until("ask", "running")
    one = page.open(f"/tasks/{graph.names['ask']}")
    one.get_by_role("button", name="Deny").click()
    dialog = one.get_by_role("dialog")
    dialog.get_by_label("Comment").fill("not <b>yet</b>")
    dialog.get_by_role("button", name="Deny").click()
    expect(one.locator(".state.badge", has_text="failed")).to_be_visible()
    expect(one.locator(".card", has_text="Story")).to_contain_text("not <b>yet</b>")


def test_a_task_is_canceled_and_run_again_from_here(page: Watched, yard: Cluster) -> None:
    graph = yard.submit({"build": task("true"), "serve": task("sleep 600", "build")}, name="serves")
    graph.until("serve", "running")
    one = page.open(f"/tasks/{graph.names['serve']}")
    one.get_by_role("button", name="Cancel", exact=True).click()
    one.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()
    expect(one.locator(".state.badge", has_text="canceled")).to_be_visible()
    one.get_by_role("button", name="Run from here").click()
    one.get_by_role("dialog").get_by_role("button", name="Make the new graph").click()
    expect(one.get_by_text("Runs again what was")).to_be_visible()
    again = Graph(yard, one.url.rpartition("/")[2])
    assert again.task("build").reused is not None
    yard.client.cancel_graph(again.id)
    again.settled()
