"""The other pages: overview, fleet, limits, submitting, the catalogue, events, audit, tokens and secrets."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.cluster import Cluster, Graph
from tests.ui.browser import Watched
from tests.ui.demo import task

TEMPLATE = {
    "kind": "job_template",
    "name": "greet",
    "payload": {"script": 'echo "hello $WHO"'},
    "survey": [
        {"name": "who", "type": "text", "description": "Who is greeted?", "required": True},
        {"name": "loud", "type": "boolean", "default": False},
    ],
}


def test_the_overview_shows_what_runs_what_is_held_and_what_failed(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open("/")
    expect(one.get_by_role("table", name="Running graphs").get_by_role("link", name="release 4.2")).to_be_visible()
    expect(one.get_by_role("table", name="Failed tasks").get_by_role("link", name="unit")).to_be_visible()
    expect(one.locator(".card", has_text="What is held, and why")).to_contain_text("device:7")
    expect(one.locator(".card", has_text="Waiting for a person")).to_contain_text("Publish version 4.2")
    # Counts are written every ten seconds, and read every five.
    expect(one.get_by_role("img", name=re.compile(r"Tasks that ended: successful [1-9]"))).to_be_visible()


def test_bots_are_filtered_by_their_dimensions(page: Watched, yard: Cluster) -> None:
    one = page.open("/fleet")
    table = one.get_by_role("table", name="Bots")
    expect(table.get_by_role("link", name="cellar")).to_be_visible()
    one.get_by_label("Add a dimension key:value").fill("gpu:a100")
    one.keyboard.press("Enter")
    expect(table.get_by_role("link", name="cellar")).to_have_count(0)
    expect(table.get_by_role("link", name="attic")).to_be_visible()


def test_an_admin_quarantines_and_frees_a_bot(page: Watched, yard: Cluster) -> None:
    one = page.open("/fleet/bots/cellar")
    one.get_by_role("button", name="Quarantine").click()
    dialog = one.get_by_role("dialog")
    dialog.get_by_label("Why").fill("its disk is full")
    dialog.get_by_role("button", name="Quarantine").click()
    expect(one.locator(".notice", has_text="its disk is full")).to_be_visible()
    one.get_by_role("button", name="Lift quarantine").click()
    one.get_by_role("dialog").get_by_role("button", name="Lift it").click()
    expect(one.get_by_role("button", name="Quarantine", exact=True)).to_be_visible()


def test_mutexes_show_who_holds_them_and_who_waits(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open("/limits")
    card = one.locator(".card", has_text="device:7")
    expect(card.get_by_role("link", name="calibrate")).to_be_visible()
    expect(card.get_by_role("link", name="measure")).to_be_visible()


def test_tasks_are_found_by_state_and_by_the_end_of_their_id(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open("/tasks?state=failed")
    expect(one.get_by_role("table", name="Tasks").get_by_role("link", name="unit")).to_be_visible()
    id = demo["release"].names["build"]
    one.get_by_label("Last digits of an id").fill(id[-8:])
    expect(one.get_by_role("link", name="build").first).to_have_attribute("href", f"/tasks/{id}")


def test_a_document_is_checked_as_it_is_typed_and_then_submitted(page: Watched) -> None:
    one = page.open("/submit")
    editor = one.get_by_label("Graph document")
    first = "name: typed\ntasks:\n  a:\n    task: {payload: {command: make}}\n"
    editor.fill(first + "  b:\n    requires: [c]\n    task: {payload: {script: 'true'}}\n")
    expect(one.get_by_role("alert")).to_contain_text("line 4")
    expect(one.get_by_role("alert")).to_contain_text("line 6")
    expect(one.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    editor.fill("name: typed\ntasks:\n  a:\n    task: {payload: {script: 'true'}}\n")
    expect(one.get_by_role("button", name="a unscheduled")).to_be_visible()
    one.get_by_role("button", name="Submit", exact=True).click()
    expect(one.get_by_role("heading", name="typed")).to_be_visible()
    expect(one.locator(".state.badge", has_text="finished")).to_be_visible()


@pytest.fixture
def template(yard: Cluster) -> None:
    yard.client.apply([TEMPLATE])


def test_a_template_is_launched_with_the_answers_to_its_survey(page: Watched, template: None) -> None:
    one = page.open("/catalogue/job_template/greet")
    one.get_by_role("button", name="Launch").click()
    dialog = one.get_by_role("dialog", name="Launch greet")
    dialog.get_by_label("Who is greeted?").fill("the yard")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("1 task would be made")
    dialog.get_by_role("button", name="Launch").click()
    expect(one.get_by_text("Launched from")).to_be_visible()
    page.open("/catalogue/launches")
    expect(one.get_by_role("table", name="Launches").get_by_role("link", name="greet").first).to_be_visible()


def test_events_come_as_they_happen(page: Watched, yard: Cluster) -> None:
    one = page.open("/events")
    expect(one.get_by_text("Live", exact=True)).to_be_visible()
    yard.submit({"seen": task("true")}, name="seen").finished()
    expect(one.get_by_role("table", name="Events").get_by_role("link", name="seen").first).to_be_visible()


def test_the_audit_says_who_did_what(page: Watched, demo: dict[str, Graph]) -> None:
    one = page.open("/audit?action=submit")
    expect(one.get_by_role("table", name="Audit").get_by_role("row").nth(1)).to_contain_text("admin")


def test_a_token_is_shown_once_and_revoked(page: Watched) -> None:
    one = page.open("/tokens")
    one.get_by_role("button", name="New token").click()
    dialog = one.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("ann of the tests")
    dialog.get_by_role("button", name="Make it").click()
    shown = dialog.get_by_label("Token", exact=True).input_value()
    assert shown.startswith("ty_user_")
    dialog.get_by_role("button", name="Done").click()
    row = one.get_by_role("row", name=re.compile("ann of the tests"))
    expect(row).to_be_visible()
    assert shown not in one.content()
    row.get_by_role("button", name="Revoke").click()
    one.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")


def test_a_secret_is_set_and_never_shown(page: Watched) -> None:
    one = page.open("/secrets")
    one.get_by_role("button", name="New secret").click()
    dialog = one.get_by_role("dialog")
    dialog.get_by_label("Name").fill("deploy-key")
    dialog.get_by_label("Value").fill("a value that nobody sees")
    dialog.get_by_role("button", name="Set it").click()
    expect(one.get_by_role("row", name=re.compile("deploy-key"))).to_be_visible()
    assert "a value that nobody sees" not in one.content()


def test_the_page_says_that_the_server_is_away_and_reads_again_when_it_is_back(
    page: Watched, yard: Cluster, demo: dict[str, Graph]
) -> None:
    one = page.open("/graphs")
    expect(one.get_by_text("Live", exact=True)).to_be_visible()
    yard.kill_server()
    try:
        expect(one.get_by_text("The connection to the server is down")).to_be_visible()
    finally:
        yard.serve()
    expect(one.get_by_text("Live", exact=True)).to_be_visible()
    expect(one.get_by_text("The connection to the server is down")).to_have_count(0)
    yard.submit({"later": task("true")}, name="after the outage")
    expect(one.get_by_role("link", name="after the outage")).to_be_visible()
    page.wrong.clear()  # requests that failed meanwhile
