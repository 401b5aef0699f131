"""Signing in and out, and what a browser keeps."""

from playwright.sync_api import expect

from tests.e2e.cluster import Cluster
from tests.ui.browser import Watched


def test_a_token_signs_in_and_is_kept_nowhere_that_scripts_can_read(fresh: Watched, yard: Cluster) -> None:
    page = fresh.open("/graphs")
    page.get_by_label("Token").fill("ty_user_of_nobody")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not a token of this server")
    page.get_by_label("Token").fill(yard.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Graphs")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert yard.token not in kept
    page.reload()
    expect(page.get_by_role("heading", name="Graphs")).to_be_visible()


def test_a_link_signs_in_once_and_leaves_the_address(fresh: Watched, yard: Cluster) -> None:
    code = yard.client.sign_in_link().code
    page = fresh.open(f"/graphs#sign-in={code}")
    expect(page.get_by_role("heading", name="Graphs")).to_be_visible()
    assert "sign-in" not in page.url
    page.context.clear_cookies()
    page.goto("about:blank")
    fresh.open(f"/graphs#sign-in={code}")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_revoked_token_ends_its_sessions(fresh: Watched, yard: Cluster) -> None:
    made = yard.client.new_token("user", "a reader", scopes=["pool:default:read"])
    fresh.sign_in(made.token)
    page = fresh.open("/graphs")
    expect(page.get_by_role("heading", name="Graphs")).to_be_visible()
    yard.client.revoke_token(made.view.id)
    # The stream ends with the token, so nobody has to do anything for the page to notice.
    expect(page.get_by_text("Your session is over")).to_be_visible()


def test_signing_out_leads_back_to_the_form(page: Watched) -> None:
    one = page.open("/graphs")
    one.get_by_role("button", name="Sign out").click()
    expect(one.get_by_label("Token")).to_be_visible()
    one.reload()
    expect(one.get_by_label("Token")).to_be_visible()
