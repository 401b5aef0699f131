"""Chromium for tests of the page, driven by Playwright: it reaches nothing but the server that a test started."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, expect, sync_playwright

from tests.debian import find_program

#: Chromium asks hosts of its makers otherwise, at every start.
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
#: A slow machine is no fault.
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    program = find_program("Chromium")
    # Root cannot use the sandbox of Chromium, nor can it be used where it was only unpacked.
    options = [*QUIET, "--no-sandbox"]
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=str(program.path), args=options, env={**os.environ, **program.environment}
        )
        try:
            yield found
        finally:
            found.close()


#: The browser reports every refusal: that nobody is signed in yet, or that a document is not valid as it is typed.
REFUSED = re.compile(r"Failed to load resource: .* (400|401) ")


class Watched:
    """A page with everything that went wrong in it: errors of scripts, refusals of the policy, foreign requests."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)
        self.page.on("dialog", self._dialog)

    def open(self, path: str) -> Page:
        """Open a path of the page."""
        self.page.goto(f"{self.url}{path}")
        return self.page

    def sign_in(self, token: str) -> None:
        """Exchange a token for a session, as the form does, but without the form."""
        answer = self.page.request.post(
            f"{self.url}/api/v1/session", data={"token": token}, headers={"Origin": self.url}
        )
        assert answer.status == 201, answer.text()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not REFUSED.search(message.text):
            self.wrong.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.wrong.append(f"asked {request.url}")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()
