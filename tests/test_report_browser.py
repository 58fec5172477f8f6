"""The report's page in a browser: it asks for nothing, complains of nothing, and its controls do what they say."""

import re
import shutil

import pytest

from m2ac.report.page import page
from tests.test_report_page import HOSTILE, MADE, record

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("chromium is not installed: make browser", allow_module_level=True)
sync_playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make setup"
).sync_playwright


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    runs = [record(seed, 100.0 + 10 * seed) for seed in range(3)]
    runs += [record(seed, 50.0 + seed, algo="mbpo", horizon=10) for seed in range(3)]
    runs += [record(0, -3.0, env="Swimmer", algo="sac", horizon=None, steps=9000, state="unfinished")]
    runs += [record(seed, 7.0, env=HOSTILE, settings=HOSTILE) for seed in range(2)]
    path = tmp_path_factory.mktemp("report") / "report #1.html"
    path.write_text(page(runs, title=HOSTILE, made=MADE))
    return path


@pytest.fixture
def opened(browser, report):
    """The page; whatever it asks for or complains about fails the test."""
    context = browser.new_context(color_scheme="light", viewport={"width": 1200, "height": 800})
    tab = context.new_page()
    wrong = []
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
    uri = report.as_uri()
    tab.on("request", lambda r: r.url.startswith((uri, "data:")) or wrong.append(r.url))
    tab.goto(uri)
    yield tab
    assert wrong == []
    context.close()


def shown(tab, selector):
    return tab.evaluate(
        "selector => [...document.querySelectorAll(selector)].filter(e => e.getClientRects().length).length", selector
    )


def press(tab, text):
    tab.locator(".chip", has_text=re.compile(f"^{re.escape(text)}$")).locator("input").click()


def background(tab):
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


def test_every_chart_has_content(opened):
    boxes = opened.evaluate(
        """() => [...document.querySelectorAll('.chart')].map(chart => [...chart.querySelectorAll('svg [data-of] path')]
        .map(path => path.getBBox()).filter(box => box.width > 0).length)"""
    )
    assert len(boxes) == 1 + 6 + 1 + 6 + 1 + 6  # Swimmer's too: SAC has a model here
    assert min(boxes) > 0


def test_nothing_sticks_out_of_a_chart(opened):
    outside = opened.evaluate(
        """() => [...document.querySelectorAll('.chart svg')].flatMap(svg => {
          const edge = svg.getBoundingClientRect();
          return [...svg.querySelectorAll('text')].filter(text => {
            const box = text.getBoundingClientRect();
            return box.left < edge.left - 1 || box.right > edge.right + 8
              || box.top < edge.top - 1 || box.bottom > edge.bottom + 1;
          }).map(text => text.textContent);
        })"""
    )
    assert outside == []


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_the_page_is_never_wider_than_the_window(opened, width):
    opened.set_viewport_size({"width": width, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_hiding_a_task_hides_its_rows_charts_and_runs(opened):
    everything = {selector: shown(opened, selector) for selector in (".scores tbody tr", ".chart", ".run", ".group")}
    assert everything == {".scores tbody tr": 4, ".chart": 21, ".run": 9, ".group": 3}
    press(opened, "Pendulum-v1")
    left = {selector: shown(opened, selector) for selector in everything}
    assert left == {".scores tbody tr": 2, ".chart": 14, ".run": 3, ".group": 2}
    assert shown(opened, "[data-of^='Pendulum-v1|']") == 0
    assert opened.locator("#count").text_content() == "3 of 9 runs shown"
    opened.locator("#everything").click()
    assert {selector: shown(opened, selector) for selector in everything} == everything


def test_hiding_an_algorithm_hides_its_series_and_leaves_the_chart(opened):
    assert shown(opened, "svg [data-of^='Pendulum-v1|mbpo|']") > 0
    press(opened, "MBPO")
    assert shown(opened, "svg [data-of^='Pendulum-v1|mbpo|']") == 0
    assert shown(opened, "svg [data-of^='Pendulum-v1|m2ac|']") > 0
    assert shown(opened, ".chart") == 21
    assert shown(opened, ".comparison tbody tr") == 0
    assert shown(opened, "#comparison") == 0


def test_filters_live_in_the_address(opened, report):
    press(opened, "Swimmer")
    press(opened, "H=10")
    assert opened.url.endswith("#hide=task.Swimmer&hide=horizon.10")
    opened.reload()
    assert shown(opened, ".run") == 5
    opened.goto(f"{report.as_uri()}#hide=algo.m2ac")
    assert shown(opened, ".run") == 4
    opened.locator("nav a").last.click()
    assert opened.url.endswith("#hide=algo.m2ac")


def test_filters_that_leave_nothing_say_so(opened):
    for name in ("M2AC", "MBPO"):
        press(opened, name)
    assert shown(opened, "#nothing") == 0
    press(opened, "SAC")
    assert shown(opened, "#nothing") == 1
    assert shown(opened, "main section") == 0
    opened.locator("#nothing button").click()
    assert shown(opened, ".run") == 9


def test_chips_work_with_the_keyboard(opened):
    chip = opened.locator(".chip input").first
    chip.focus()
    opened.keyboard.press("Space")
    assert shown(opened, ".run") < 9
    opened.keyboard.press("Space")
    assert shown(opened, ".run") == 9


def test_headings_sort_the_table(opened):
    def column():
        return opened.evaluate("[...document.querySelectorAll('.scores tbody tr')].map(r => r.cells[4].dataset.sort)")

    heading = opened.locator(".scores th", has_text="Final return")
    heading.locator("button").click()
    assert list(map(float, column())) == [110.0, 51.0, 7.0, -3.0]
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").click()
    assert list(map(float, column())) == [-3.0, 7.0, 51.0, 110.0]
    opened.locator(".scores th button", has_text="IQM").click()
    iqm = opened.evaluate("[...document.querySelectorAll('.scores tbody tr')].map(r => r.cells[5].textContent)")
    assert iqm[-1] == "–"


def test_light_and_dark(opened):
    light = background(opened)
    opened.locator("#theme").click()
    dark = background(opened)
    assert light == "rgb(255, 255, 255)"
    assert dark != light
    opened.reload()
    assert background(opened) == dark
    opened.locator("#theme").click()
    assert background(opened) == light


def test_a_dark_system_has_a_dark_page_with_the_same_charts(browser, report):
    tab = browser.new_page(color_scheme="dark")
    tab.goto(report.as_uri())
    assert background(tab) == "rgb(20, 23, 26)"
    assert shown(tab, ".chart") == 21
    tab.close()


def test_a_run_opens_and_its_command_is_selected_or_copied(opened):
    run = opened.locator(".run").first
    run.locator("summary").first.click()
    run.locator(".copy").click()
    opened.wait_for_function("document.querySelector('.run .copy').textContent !== 'copy'")
    opened.reload()
    assert run.evaluate("run => run.open")
