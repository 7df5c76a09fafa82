"""The report page in a real browser (Chromium, headless): it renders, is quiet, sorts, prints, fits a phone."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from playwright.sync_api import sync_playwright

from bounds.cli.main import main

SECTIONS = 13  # four cards, with steps, without a noise floor, the glossary


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
    from bounds.logs import example_path

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


# Every element that shows text: what it says, its colour, the colour behind it, and whether all of it is opaque.
SEEN = """() => [...document.querySelectorAll("body, body *")].filter((element) =>
  element.getClientRects().length && !element.closest("script")
  && [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())
).map((element) => {
  const style = getComputedStyle(element), drawn = element.closest("svg") !== null, chain = [];
  for (let above = element; above; above = above.parentElement) chain.push(getComputedStyle(above));
  const behind = chain.map((s) => s.backgroundColor).find((c) => c !== "rgba(0, 0, 0, 0)");
  const opaque = chain.every((s) => s.opacity === "1" && s.visibility === "visible")
    && (!drawn || style.fillOpacity === "1");
  return [element.textContent.trim(), drawn ? style.fill : style.color, behind, opaque, drawn];
})"""


def test_all_text_has_contrast(page):
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    seen = page.evaluate(SEEN)
    for text, ink, behind, opaque, _ in seen:
        assert opaque, text
        assert re.fullmatch(r"rgb\(\d+, \d+, \d+\)", ink), (text, ink)
        assert contrast(ink, behind) >= 4.5, (text, ink, behind)
    drawn = [text for text, *_, in_picture in seen if in_picture]
    assert len(drawn) > 60
    assert len(seen) - len(drawn) > 300
    arrow = page.evaluate("getComputedStyle(document.querySelector('thead button'), '::after').color")
    assert contrast(arrow, page.evaluate(GROUND)) >= 4.5


GROUND = "getComputedStyle(document.body).backgroundColor"


def test_it_renders(page):
    assert page.locator("h2").count() == SECTIONS
    drawn = [
        picture
        for picture in page.locator("svg[role=img], figure.bars, figure.intervals").all()
        if picture.is_visible()
    ]
    assert len(drawn) == 5
    for picture in drawn:
        box = picture.bounding_box()
        assert box["width"] == 864  # all of the column
        assert box["height"] > 180
    dark = luminance(page.evaluate(GROUND)) < 0.1
    assert dark == page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_text_can_be_found(page):
    for text in ("J(θ) − J(roll) is between", "trajectory_kl", "mean_kl_token", "position of the token"):
        assert page.evaluate("text => { getSelection().removeAllRanges(); return window.find(text); }", text), text
    assert page.get_by_text("lost at step").first.is_visible()  # inside a picture


def column(table, k):
    return [row.locator("th, td").nth(k).inner_text() for row in table.locator("tbody tr").all()]


def test_tables_sort_by_mouse_and_by_keyboard(page):
    table = page.locator("table", has_text="worst_case_error_measured").first
    head = table.locator("thead th").nth(1)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    numbers = [float(x.replace("−", "-")) for x in column(table, 1) if x != "-"]
    assert numbers == sorted(numbers)
    assert len(numbers) > 12
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    cells = column(table, 1)
    assert [float(x.replace("−", "-")) for x in cells if x != "-"] == sorted(numbers, reverse=True)
    assert all(x == "-" for x in cells[len(numbers) :])  # what is not known stays last
    names = table.locator("thead th").nth(0)
    names.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    told = [name.partition("\n")[0] for name in column(table, 0)]
    assert told == sorted(told)


def test_titles_of_columns_are_reached_by_tab(page):
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.evaluate("document.querySelector('nav a').focus()")
    reached, title = [], "(e => e.matches('thead th > button') ? e.textContent : null)(document.activeElement)"
    for _ in range(500):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        reached.append(page.evaluate(title))
    assert [text for text in reached if text is not None] == page.locator("thead th").all_text_contents()
    assert len(reached) > 60


CELLS = [
    "10 to 20",
    "word",
    "1,200",
    "-",
    "inf",
    "(3)",
    "",
    "[0.5, 9]",
    "-inf",
    "2e-3",
    "at least −0.5",
    "+0.7",
    "-1 to 0.4",
    "12.5%",
    "a word",
]
NUMBERS = ["-inf", "-1 to 0.4", "at least −0.5", "2e-3", "[0.5, 9]", "+0.7", "(3)", "10 to 20", "12.5%", "1,200", "inf"]
FILL = """cells => {
  const body = document.querySelector("table").tBodies[0];
  body.replaceChildren(...cells.map((cell) => {
    const row = document.createElement("tr");
    row.innerHTML = "<th>x</th><td></td>";
    row.cells[1].textContent = cell;
    return row;
  }));
}"""


def test_whatever_a_cell_holds_has_its_place(page):
    page.evaluate(FILL, CELLS)
    table = page.locator("table").first
    button = table.locator("thead th button").nth(1)
    button.click()
    assert column(table, 1) == [*NUMBERS, "a word", "word", "-", ""]
    button.click()
    assert column(table, 1) == ["word", "a word", *NUMBERS[::-1], "-", ""]  # nothing stays last


def head_cells(tab):
    """Titles of all columns, and how many of them are buttons."""
    heads = tab.locator("thead th")
    return [text.strip() for text in heads.all_text_contents()], heads.locator("> button").count()


def test_titles_of_columns_are_buttons_on_a_screen_and_text_elsewhere(browser, report):
    tab = browser.new_page()
    tab.goto(report.as_uri())
    on_screen, buttons = head_cells(tab)
    assert buttons == len(on_screen) > 30
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert head_cells(tab) == (on_screen, 0)
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert head_cells(tab) == (on_screen, buttons)
    tab.locator("thead button").first.click()
    assert tab.locator("thead th").first.get_attribute("aria-sort") == "ascending"
    tab.close()
    context = browser.new_context(java_script_enabled=False)
    bare = context.new_page()
    bare.goto(report.as_uri())
    assert head_cells(bare) == (on_screen, 0)
    for fold in bare.locator("summary").all():
        fold.click()
    assert all(head.is_visible() for head in bare.locator("thead th").all())
    assert bare.locator("button").count() == 0
    context.close()


def test_numbers_stand_behind_each_picture(page):
    table = page.locator("details table", has_text="trajectory_kl").first
    assert not table.is_visible()
    for fold in page.locator("summary").all():
        fold.click()
    assert table.is_visible()
    assert page.locator("details[open] table").count() == page.locator("details table").count() >= 6


def test_names_lead_to_the_glossary(page):
    page.locator("section > div > p a.term", has_text="trajectory_kl").first.click()
    assert page.evaluate("document.querySelector(location.hash).textContent") == "trajectory_kl"
    assert page.locator("dt:target + dd").inner_text().startswith("A bound on the error")


def test_links_lead_to_sections(page):
    for link in page.locator("nav a").all():
        link.click()
        assert page.evaluate("document.querySelector(location.hash).getBoundingClientRect().top") < 900


SMALLEST = """() => Math.min(...[...document.querySelectorAll("body *")].filter((element) =>
  element.getClientRects().length && [...element.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim())
).map((element) => {
  const svg = element.closest("svg"), size = parseFloat(getComputedStyle(element).fontSize);
  return svg ? size * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : size;
}))"""


@pytest.mark.parametrize("width", [320, 390, 641, 768, 864])
def test_it_fits_a_phone(browser, report, width):
    tab = browser.new_page(viewport={"width": width, "height": 700})
    tab.goto(report.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == width  # tables scroll by themselves
    assert tab.evaluate(SMALLEST) >= {320: 11, 390: 14, 641: 14, 768: 14, 864: 14}[width]
    wide = "[...document.querySelectorAll('.table')].every(t => t.scrollWidth <= t.clientWidth || t.matches('.wide'))"
    assert tab.evaluate(wide)  # and those which are wider than their box say so
    assert tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    tab.close()


def test_it_prints_with_everything_unfolded(browser, report, tmp_path):
    tab = browser.new_page()
    tab.goto(report.as_uri())
    path = tmp_path / "report.pdf"
    tab.pdf(path=path, prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", path.read_bytes())) <= 5
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details[open]").count() == 4
    assert not tab.locator("nav").is_visible()
    tab.close()
