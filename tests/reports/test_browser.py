"""The page works in a real browser: every figure is there, maps answer, nothing leaves the page, text is legible.

Screenshots of both colour schemes at both widths are kept in artifacts/report, to be looked at.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from made_runs import make_run
from PIL import Image

from echoless.reports.page import Findings, report
from echoless.reports.search_page import Section, Tile, TileRow, write_search_page
from echoless.reports.server import make_server

SHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "report"
SCHEMES, WIDTHS = ("light", "dark"), (400, 1400)
HOSTILE = "<script>alert(1)<∕script> \"x\" 'y' é漢"

# The contrast of every piece of text with what lies behind it, by the formula of WCAG 2; the worst come first.
CONTRAST = """() => {
  const parse = (text) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const cache = new Map();
  const colour = (text) => cache.get(text) ?? (cache.set(text, parse(text)), cache.get(text));
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const cell = element.previousElementSibling;
    const shaded = element.tagName === "text" && cell && cell.classList.contains("shade");
    if (shaded) return colour(getComputedStyle(cell).fill);
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["SCRIPT", "STYLE", "title", "desc"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = colour(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walker.currentNode.data.trim().slice(0, 30)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.fixture(scope="module")
def pages(two_runs, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    hostile = make_run(folder / HOSTILE, points=40, steps=60)
    return {
        "one": report(two_runs[1:], folder / "one.html"),
        "two": report(two_runs, folder / "two.html"),
        "hostile": report([hostile, two_runs[0]], folder / f"{HOSTILE} page.html"),
    }


class Window:
    """A page with everything it said and asked for."""

    def __init__(self, browser, scheme: str = "light", width: int = 1400) -> None:
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("a dialog opened"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def visit(window: Window, path: Path):
    window.page.goto(path.as_uri())
    return window.page


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("two", scheme, width) for scheme in SCHEMES for width in WIDTHS] + [("one", "light", 1400)],
)
def test_the_page_is_whole_legible_and_silent(browser, pages, name, scheme, width):
    with Window(browser, scheme, width) as window:
        page = visit(window, pages[name])
        runs = 1 if name == "one" else 2
        titles = page.locator("figure h3").all_inner_texts()
        for title in FIGURES:
            assert any(shown.startswith(title) for shown in titles), (title, titles)
        assert page.locator("svg.chart").count() >= 20 and page.locator(".map canvas[data-map]").count() == runs
        assert page.locator("svg.chart > title").count() == page.locator("svg.chart > desc").count()
        assert page.locator("img.thumbnails").count() == runs
        broken = page.evaluate("[...document.images].filter((i) => !i.complete || !i.naturalWidth).length")
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        worst = page.evaluate(CONTRAST)[0]
        print(f"page {name} {scheme} {width}: figures {len(titles)}, least contrast {worst[0]:.2f} ({worst[1]})")
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}-{scheme}-{width}.png", full_page=True)
        assert broken == 0 and overflow <= 0 and worst[0] >= 4.5
        outside = [url for url in window.asked if not url.startswith(("file:", "data:"))]
        assert window.said == [] and outside == [] and sum(url.startswith("file:") for url in window.asked) == 1


FIGURES = (
    "Alpha of every shortcut",
    "Running product of the alphas",
    "Contribution of every layer",
    "Loss",
    "Learning rate",
    "Gradient norm",
    "Feature norm of every block",
    "Effective rank (RankMe)",
    "Effective rank (the paper's)",
    "Images per second",
    "kNN accuracy",
    "Linear probe accuracy",
    "Segmentation mIoU",
    "kNN accuracy by layer",
    "Linear probe accuracy by layer",
    "Effective rank (RankMe) by layer",
    "kNN accuracy over training",
    "Frechet distance by sampler steps",
    "Linear probe accuracy by layer and noise",
    "t-SNE map",
    "Reconstructions",
    "Spectral embedding of the patch features",
    "Samples",
)


def test_the_map_answers_the_pointer_and_the_keyboard(browser, pages):
    with Window(browser) as window:
        page = visit(window, pages["two"])
        canvas = page.locator("canvas[data-map]").first
        looked = page.locator(".looked").first
        canvas.scroll_into_view_if_needed()
        found = find_point(page, canvas)
        assert looked.locator("canvas").count() == 1 and "photos/of something/" in looked.inner_text()
        page.mouse.click(*found)
        assert looked.locator("figure.neighbour canvas").count() == 6
        assert "nearest neighbours are of its class" in looked.inner_text()
        pixels = looked.locator("figure.main canvas").evaluate(
            "(c) => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        assert pixels > 3, "the image itself is shown"
        canvas.press("Escape")
        assert looked.locator("canvas").count() == 0
        canvas.press("ArrowRight")
        canvas.press("Enter")
        assert looked.locator("figure.neighbour").count() == 6
        first = page.locator(".classes button").first
        first.click()
        assert first.get_attribute("aria-pressed") == "true" and window.said == []


def find_point(page, canvas) -> tuple[float, float]:
    """Move over the map until something is under the pointer."""
    box = canvas.bounding_box()
    for down in range(2, 40):
        for right in range(2, 40):
            at = box["x"] + right * box["width"] / 41, box["y"] + down * box["height"] / 41
            page.mouse.move(*at)
            if canvas.get_attribute("data-chosen") not in (None, "-1"):
                return at
    raise AssertionError("no point of the map answered")


def test_a_chart_tells_the_values_under_the_pointer(browser, pages):
    with Window(browser) as window:
        page = visit(window, pages["two"])
        chart = page.locator("#training svg.chart").first
        chart.scroll_into_view_if_needed()
        chart.hover()
        told = page.locator("#training .readout").first.inner_text()
        assert told.startswith("at ") and "plain 0." in told and "faded 0." in told


def test_hostile_names_are_text_in_the_browser_too(browser, pages):
    with Window(browser) as window:
        page = visit(window, pages["hostile"])
        assert HOSTILE in page.locator("#legend").inner_text()
        assert page.locator("script").count() == 2 and window.said == []


def test_print_is_light_and_shows_what_is_folded(browser, pages):
    with Window(browser, "dark") as window:
        page = visit(window, pages["one"])
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("details:not([open])").count() == 0
        assert page.evaluate(CONTRAST)[0][0] >= 4.5


CUT = """[...document.querySelectorAll('th, td')].flatMap((cell) => {
  const found = [], walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const word of node.data.matchAll(/[^\\s_-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
    }
  return found;
})"""
HIDDEN = """[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => getComputedStyle(box).backgroundImage.split('linear-gradient').length - 1)"""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [400, 1400])
def test_no_word_of_a_table_is_cut_and_a_table_that_scrolls_shows_it(browser, two_runs, tmp_path, width, scheme):
    """`alpha_mi` `n` and `labels80.c` `sv` stood there, and tables twice as wide as their box like whole ones."""
    runs = [tmp_path / "alpha_min-1.0_seed-0", tmp_path / "tuned"]
    for run, source in zip(runs, two_runs):
        shutil.copytree(source, run)
    config = json.loads((runs[1] / "config.json").read_text())
    config["data"] |= {"labels": "labels80.csv"}
    config |= {f"another_setting_{place}": place for place in range(14)}
    (runs[1] / "config.json").write_text(json.dumps(config))
    head = ["alpha_min", "batch_size", "effective_alpha", "kNN accuracy", "linear"]
    found = Findings(title="t", tables=[("table", [head, ["1.0", "64", "1.0e+00", "31.00 [29.1, 32.9]", "40.0"]])])
    with Window(browser, scheme, width) as window:
        page = visit(window, report(runs, tmp_path / "page.html", found))
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate(CUT) == []
        gradients = page.evaluate(HIDDEN)
        assert gradients and set(gradients) == {4}
        narrowest = page.evaluate(
            "Math.min(...[...document.querySelectorAll('.numbers tbody th')].map((e) => e.clientWidth))"
        )
        assert narrowest >= 230
        cells = page.evaluate("[...document.querySelectorAll('.numbers td')].map((each) => each.clientWidth)")
        assert min(cells) >= 160, "a difference with its interval is not cut into eight lines"
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"tables-{scheme}-{width}.png", full_page=True)


def test_a_phone_shows_all_of_the_legend_of_four_runs_with_long_names(browser, tmp_path):
    """Its last runs were cut off at the bottom, and what a link leads to stood below it."""
    name = "photographs-of-the-microscope-alpha_min-{}-seed-{}"
    runs = [
        make_run(tmp_path / name.format(alpha, seed), alpha_min=alpha, seed=seed)
        for alpha in (1, 0.6)
        for seed in (0, 1)
    ]
    with Window(browser, "light", 400) as window:
        page = visit(window, report(runs, tmp_path / "page.html"))
        assert page.evaluate("(e => e.scrollHeight - e.clientHeight)(document.querySelector('.legend ul'))") <= 0
        assert page.evaluate("document.querySelector('.legend').clientHeight / innerHeight") < 0.4
        page.evaluate("location.hash = '#training'")
        page.wait_for_timeout(300)
        below = "document.querySelector('#training h2').getBoundingClientRect().top"
        assert page.evaluate(f"{below} - document.querySelector('.legend').getBoundingClientRect().bottom") >= 0


def test_a_live_page_follows_its_run_without_being_loaded_again(browser, tmp_path):
    run = make_run(tmp_path / "runs" / "live", steps=60, points=20)
    server = make_server(tmp_path / "runs", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        with Window(browser) as window:
            page = window.page
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.get_by_role("link", name="live").click()
            page.wait_for_selector("#training svg.chart")
            page.evaluate("window.untouched = true")
            page.evaluate("document.querySelector('#learned').dataset.mine = 'kept'")
            page.wait_for_timeout(2500)  # it has asked once
            with (run / "metrics.jsonl").open("a") as file:
                file.write('{"step": 61, "loss": 0.5, "surprise": 7.0}\n')
            page.wait_for_selector("h3:text-is('Surprise')", timeout=30_000)
            assert page.evaluate("window.untouched"), "the page was not loaded again"
            assert page.locator("#learned").get_attribute("data-mine") == "kept", "what did not change stays"
            outside = [
                url for url in window.asked if not url.startswith((f"http://127.0.0.1:{server.server_port}", "data:"))
            ]
            assert window.said == [] and outside == []
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def looked_at(page) -> list[str]:
    """The names that the map lists."""
    return page.locator(".looked pre").first.inner_text().splitlines()


def test_the_map_finds_images_by_their_name(browser, pages):
    with Window(browser) as window:
        page = visit(window, pages["one"])
        box = page.locator(".find input").first
        box.fill("00001")
        named = [f"photos/of something/{index:06d}.png" for index in range(60) if "00001" in f"{index:06d}"]
        assert page.locator(".find span").first.inner_text() == f"{len(named)} of 60" and looked_at(page) == named
        assert page.locator(".looked figure.neighbour").count() == len(named)
        canvas = page.locator("canvas[data-map]").first
        canvas.scroll_into_view_if_needed()
        find_point(page, canvas)
        assert int(canvas.get_attribute("data-chosen")) in (1, *range(10, 20)), "the others do not answer"
        box.fill("nothing is called so")
        assert page.locator(".find span").first.inner_text() == "0 of 60"
        box.fill("")
        assert page.locator(".looked pre").count() == 0 and window.said == []


def test_a_lasso_lists_what_it_encloses(browser, pages):
    """Around everything, then around the left half, then around nothing."""
    with Window(browser) as window:
        page = visit(window, pages["one"])
        canvas = page.locator("canvas[data-map]").first
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()

        def draw(left: float, top: float, right: float, bottom: float) -> None:
            corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
            at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
            page.mouse.move(*at[0])
            page.mouse.down()
            for place in at[1:]:
                page.mouse.move(*place, steps=4)
            page.mouse.up()

        draw(0.005, 0.005, 0.995, 0.995)
        everything = looked_at(page)
        assert len(everything) == 60 and len(set(everything)) == 60
        draw(0.005, 0.005, 0.5, 0.995)
        left = looked_at(page)
        draw(0.5, 0.005, 0.995, 0.995)
        right = looked_at(page)
        assert 0 < len(left) < 60 and not set(left) & set(right) and set(left) | set(right) == set(everything)
        canvas.press("Escape")
        assert page.locator(".looked pre").count() == 0 and window.said == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_of_twenty_classes_has_its_own_colour(browser, tmp_path, scheme):
    """No two are closer than a tenth of the way from black to white, in any channel mix."""
    run = make_run(tmp_path / "run", steps=40, points=200, classes=20)
    with Window(browser, scheme) as window:
        page = visit(window, report([run], tmp_path / "page.html"))
        signs = page.locator(".classes canvas")
        assert signs.count() == 20
        middle = "(c) => [...c.getContext('2d').getImageData(12, 12, 1, 1).data]"
        colours = [signs.nth(index).evaluate(middle)[:3] for index in range(20)]
        apart = [
            (sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5, i, j)
            for i, a in enumerate(colours)
            for j, b in enumerate(colours[:i])
        ]
        print(f"20 classes, {scheme}: the closest two are {min(apart)[0]:.0f} of 441 apart")
        assert min(apart)[0] > 20


def test_points_without_a_label_are_grey_and_of_no_class(browser, tmp_path):
    """They had the colour and the name of the first class, and were counted as neighbours of its class."""
    run = make_run(tmp_path / "run", steps=40, points=60, classes=3, labelled=12)
    with Window(browser) as window:
        page = visit(window, report([run], tmp_path / "page.html"))
        buttons = page.locator(".classes button")
        assert buttons.all_inner_texts() == ["class 0", "class 1", "class 2", "no label"]
        middle = "(c) => [...c.getContext('2d').getImageData(12, 12, 1, 1).data]"
        grey = page.locator(".classes canvas").nth(3).evaluate(middle)[:3]
        assert max(grey) - min(grey) < 20, grey
        canvas, looked = page.locator("canvas[data-map]"), page.locator(".looked")
        said = []
        for _ in range(24):
            canvas.press("ArrowRight")
            canvas.press("Enter")
            said.append((looked.locator("figure.main figcaption").inner_text(), looked.inner_text()))
        assert window.said == []
        assert {name for name, _ in said[12:]} == {"no label"}
        assert not any("are of its class" in text for _, text in said[12:])
        assert all("are of its class" in text for _, text in said[:12])
        assert any("of them have no label" in text for _, text in said[:12])


def test_a_local_page_opens_the_original_and_says_nothing_where_there_is_none(browser, tmp_path):
    photos = tmp_path / "my photos"
    for index in range(20):
        file = photos / f"photos/of something/{index:06d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (3, 2), (10 * index, 0, 0)).save(file)
    run = make_run(tmp_path / "run", steps=40, points=20, root=photos)
    with Window(browser) as window:
        page = visit(window, report([run], tmp_path / "pages" / "page.html"))
        canvas = page.locator("canvas[data-map]").first
        canvas.press("ArrowRight")
        canvas.press("Enter")
        links = page.locator(".looked a.original")
        assert links.count() == 8, "of the image, of its name, and of six neighbours"
        assert links.first.get_attribute("href").startswith("../my%20photos/photos/of%20something/0000")
        with window.context.expect_page() as opened:
            links.first.click()
        opened.value.wait_for_load_state()
        assert opened.value.url == (photos / "photos/of something/000000.png").as_uri()
        assert opened.value.evaluate("document.images[0].naturalWidth") == 3 and window.said == []
    shutil.rmtree(photos)
    with Window(browser) as window:
        page = visit(window, report([run], tmp_path / "pages" / "page.html"))
        page.locator("canvas[data-map]").first.press("ArrowRight")
        assert page.locator(".looked canvas").count() == 1 and page.locator(".looked a").count() == 0


def test_on_a_phone_a_number_stands_apart_from_how_many_images_it_is_of(browser, two_runs, tmp_path):
    """`45.00 % [36.67, 54.17]n 120` had no gap."""
    run = shutil.copytree(two_runs[0], tmp_path / "run")
    records = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps([record | {"n": 12345} for record in records]))
    gaps = """[...document.querySelectorAll('.all tbody tr')].map((row) => {
      const value = document.createRange();
      value.selectNodeContents(row.children[1]);
      return row.children[2].getBoundingClientRect().left - value.getBoundingClientRect().right;
    })"""
    with Window(browser, "light", 400) as window:
        page = visit(window, report([run], tmp_path / "page.html"))
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert min(page.evaluate(gaps)) >= 8


@pytest.mark.parametrize("width", WIDTHS)
def test_a_map_alone_has_the_width_of_the_page_and_what_belongs_to_it_beside_it(browser, pages, width):
    """It used less than half of a wide window."""
    with Window(browser, "light", width) as window:
        page = visit(window, pages["one"])
        card, canvas, looked = (page.locator(each).first.bounding_box() for each in (".map", ".map canvas", ".looked"))
        assert card["width"] >= 0.85 * width and canvas["width"] >= (0.55 if width > 1000 else 0.9) * card["width"]
        beside = looked["x"] >= canvas["x"] + canvas["width"]
        assert beside == (width > 1000) and looked["y"] + looked["height"] <= card["y"] + card["height"]


@pytest.mark.parametrize("width", WIDTHS)
def test_neighbours_stay_right_of_their_query_or_below_it(browser, tmp_path, width):
    """Those of the third row stood under the query, left of the line."""
    images = [Tile(path=f"a/{index}.png", figure="0.9") for index in range(20)]
    section = Section("s", "t", "n", [TileRow(images=images, query=Tile(path="q.png", figure="query"))])
    with Window(browser, "light", width) as window:
        page = visit(window, write_search_page(tmp_path / "search.html", "t", [section], [], []))
        query, *others = [tile.bounding_box() for tile in page.locator(".tile").all()]
        right, below = query["x"] + query["width"], query["y"] + query["height"]
        assert all(tile["x"] >= right if width > 1000 else tile["y"] >= below for tile in others)
        assert len({tile["y"] for tile in others}) >= 3, "rows enough to reach below the query"


def test_an_image_without_a_label_is_grey_on_the_map_and_has_no_class(browser, tmp_path):
    run = make_run(tmp_path / "run", steps=40, points=20, classes=3)
    file = run / "figures" / "tsne.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"labels": [-1] * 10 + record["labels"][10:]}))
    with Window(browser) as window:
        page = visit(window, report([run], tmp_path / "page.html"))
        assert page.locator(".classes").first.inner_text().split("\n")[-1] == "no label"
        canvas = page.locator("canvas[data-map]").first
        canvas.press("ArrowRight")
        canvas.press("Enter")
        assert "of its class" not in page.locator(".looked").first.inner_text()
        assert page.locator(".looked figure.main figcaption").first.inner_text() == "no label"
        assert window.said == []
