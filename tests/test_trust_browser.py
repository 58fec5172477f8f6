"""The page of `m2ac trust` in a browser: it asks for nothing, complains of nothing, and nothing sticks out of it."""

import shutil

import pytest

from m2ac.report.trust_page import trust_page
from m2ac.trust.findings import find
from m2ac.trust.suggest import Rule
from tests.test_trust import ABOUT, measured

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("chromium is not installed: make browser", allow_module_level=True)
sync_playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make setup"
).sync_playwright


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_the_page_of_trust_is_at_rest(tmp_path, scheme, width):
    path = tmp_path / "trust #1.html"
    path.write_text(trust_page(find(measured(), ABOUT, Rule())))
    wrong = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}).new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda r: r.url.startswith((path.as_uri(), "data:")) or wrong.append(r.url))
        tab.goto(path.as_uri())
        tab.locator(".copy").first.click()
        tab.locator("#theme").click()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator(".chart svg").count() == 6
        browser.close()
    assert wrong == []
