"""The report page in a real browser (Chromium, headless): it renders, is quiet, sorts, prints, fits a phone."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from playwright.sync_api import sync_playwright

from bounds.surface.cli import main

SECTIONS = 8  # with steps, without a noise floor


@pytest.fixture(scope="module")
def browser():
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "Chromium is missing: apt-get install chromium, or name it in the environment variable CHROMIUM"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])  # CI runs as root
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """As a user makes it."""
    from bounds.evidence.readers import example_path

    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["certify", str(example_path("run")), "--mask", "seq_max_k2<=0.05", "--html", str(path)]) == 0
    return path


@pytest.fixture(params=["light", "dark"])
def page(browser, report, request):
    """The page in a colour scheme; nothing may be said on the console, nothing asked of a network."""
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1100, "height": 900})
    tab, heard, asked = context.new_page(), [], []
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("request", lambda sent: asked.append(sent.url))
    tab.goto(report.as_uri())
    yield tab
    assert heard == []
    assert asked == [report.as_uri()]
    context.close()


def luminance(colour):
    r, g, b = (int(x) / 255 for x in re.findall(r"\d+", colour)[:3])
    return sum(w * (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4) for w, x in
               zip((0.2126, 0.7152, 0.0722), (r, g, b), strict=True))  # fmt: skip


def contrast(a, b):
    low, high = sorted(map(luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


def test_it_renders_with_contrast(page):
    assert page.locator("h2").count() == SECTIONS
    assert page.locator("svg[role=img]").count() == 4
    for picture in page.locator("svg[role=img]").all():
        box = picture.bounding_box()
        assert box["width"] > 400
        assert box["height"] > 200
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for selector in ("body", ".verdict", "a:not(.skip)", "summary", "footer", "thead th", "svg text"):
        style = f"getComputedStyle(document.querySelector({selector!r}))"
        ink = page.evaluate(f"{style}.{'fill' if selector == 'svg text' else 'color'}")
        assert contrast(ink, ground) >= 4.5, selector
    dark = luminance(ground) < 0.1
    assert dark == page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_text_can_be_found(page):
    for text in ("J(theta) - J(roll) is between", "trajectory_kl", "mean_kl_token", "position in the response"):
        assert page.evaluate("text => window.find(text)", text), text
    assert page.get_by_text("cannot be excluded at step").first.is_visible()  # inside a picture


def column(table, k):
    return [row.locator("th, td").nth(k).inner_text() for row in table.locator("tbody tr").all()]


def test_tables_sort_by_mouse_and_by_keyboard(page):
    table = page.locator("table", has_text="worst_case_error_measured").first
    head = table.locator("thead th").nth(1)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    numbers = [float(x) for x in column(table, 1) if x != "-"]
    assert numbers == sorted(numbers)
    assert len(numbers) > 12
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    cells = column(table, 1)
    assert [float(x) for x in cells if x != "-"] == sorted(numbers, reverse=True)
    assert all(x == "-" for x in cells[len(numbers) :])  # what is not known stays last
    names = table.locator("thead th").nth(0)
    names.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    assert column(table, 0) == sorted(column(table, 0))


def test_numbers_stand_behind_each_picture(page):
    table = page.locator("details table", has_text="trajectory_kl").first
    assert not table.is_visible()
    for fold in page.locator("summary").all():
        fold.click()
    assert table.is_visible()
    assert page.locator("details[open] table").count() == page.locator("details table").count() >= 6


def test_links_lead_to_sections(page):
    for link in page.locator("nav a").all():
        link.click()
        assert page.evaluate("document.querySelector(location.hash).getBoundingClientRect().top") < 900


@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_phone(browser, report, width):
    tab = browser.new_page(viewport={"width": width, "height": 700})
    tab.goto(report.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == width  # tables scroll by themselves
    smallest = min(
        tab.evaluate("[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)")
    )
    assert smallest > 5
    assert tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    tab.close()


def test_it_prints_with_everything_unfolded(browser, report, tmp_path):
    tab = browser.new_page()
    tab.goto(report.as_uri())
    path = tmp_path / "report.pdf"
    tab.pdf(path=path)
    assert path.read_bytes().startswith(b"%PDF")
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details[open]").count() == 4
    assert not tab.locator("nav").is_visible()
    tab.close()
