"""The page is one file that loads nothing, holds every figure with words beside it, and shows hostile names as text."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_runs import make_run

from echoless.config.metrics import Metric
from echoless.errors import ConfigError
from echoless.reports.collect import Picture, RunData, collect_all
from echoless.reports.facts import facts
from echoless.reports.figures import training_figures
from echoless.reports.learned import heat_maps
from echoless.reports.page import Findings, render, report
from echoless.reports.payload import shrink, shrink_to_budget
from echoless.sweeps.experiment import Quantity
from echoless.sweeps.tabulate import _gain

HOSTILE = ["<script>alert(1)</script>", "a \"b\" 'c' & d", "Ünïcödé 漢字 \u202e"]
LIMIT = 8_000_000  # bytes


class Elements(HTMLParser):
    """Every element with its attributes, and every piece of text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


@pytest.fixture(scope="module")
def page(two_runs) -> str:
    return render(collect_all(two_runs))


def test_nothing_is_loaded_from_anywhere(page):
    for tag, attributes in Elements(page).elements:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/", "#")), (tag, name, value)
    assert "url(" not in page and "@import" not in page
    assert re.search(r"Content-Security-Policy\" content=\"default-src &#39;none&#39;", page)


def test_links_at_the_top_are_in_the_order_of_the_sections(two_runs):
    """ "Compared" stood behind "What was learned", two sections too late."""
    page = render(collect_all(two_runs), findings=Findings(title="t", tables=[("", [["a"], ["1"]])]))
    found = Elements(page).elements
    links = [(each["href"] or "")[1:] for tag, each in found if tag == "a" and (each.get("href") or "").startswith("#")]
    sections = [each["id"] for tag, each in found if tag == "section" and each.get("id") in links]
    assert links == sections and "compared" in links and "findings" in links


def test_options_are_not_cut_after_their_dashes_and_commands_stay_as_typed(tmp_path):
    """A line ended in "--out one -", and the next began with "-recipe demo"."""
    run = make_run(tmp_path / "run <b>")
    found = Elements(page := render(collect_all([run])))
    assert '<span class="option">--recipe</span> demo</code>' in page and "<b>" not in page
    command = "echoless pretrain shapes --out 'run <b>' --recipe demo"
    assert command in "".join(found.texts), "as it is copied"


def test_a_comparison_of_single_runs_says_so_also_where_nothing_is_comparable(two_runs, tmp_path):
    runs = collect_all(two_runs)
    assert "One seed each: a difference between runs may be chance" in render(runs)
    apart = render([runs[0], replace(runs[1], results=[])])
    assert "No metric was measured under the same protocol" in apart and "One seed each: a difference" in apart


def test_seeds_of_one_setting_have_their_means_on_the_page(tmp_path):
    runs = collect_all([make_run(tmp_path / str(seed), seed=seed) for seed in range(3)])
    page = render(runs)
    assert "Numbers, as means over seeds" in page and "one setting (3 seeds)" in page
    assert "their differences from" not in page and "The difference of two single runs" not in page


def test_every_figure_has_a_text_alternative(page):
    found = Elements(page)
    charts = [a for tag, a in found.elements if tag == "svg" and a.get("class") == "chart"]
    assert len(charts) > 20 and found.count("desc") == len(charts) and all(a.get("role") == "img" for a in charts)
    assert all(attributes.get("alt") for tag, attributes in found.elements if tag == "img")
    assert all(attributes.get("aria-label") for tag, attributes in found.elements if tag == "canvas")


def test_the_verdicts_the_rules_and_the_command_are_there(page):
    text = " ".join(Elements(page).texts)
    for words in (
        "still improving",
        "Rule: still improving if",
        "Its command; to repeat the run",
        "echoless pretrain shapes",
        "A Processor",
        "4000 images of about 32 x 32, 3 channels, 8 bit",
        "encoder 192 x 12, 5.9 M parameters",
        "faded, alpha from 1 to 0.6",
    ):
        assert words in text
    assert "difference +15" in text and "best" in text


def test_panels_of_one_quantity_have_one_scale_and_say_when_it_is_logarithmic(tmp_path):
    small = make_run(tmp_path / "small")
    large = make_run(tmp_path / "large")
    lines = [json.loads(line) for line in (large / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["feature_norm"] = {block: 100 * norm for block, norm in line.get("feature_norm", {}).items()}
    (large / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures = training_figures(collect_all([small, large]))
    panels = [str(figure.drawing) for figure in figures if figure.title.startswith("Feature norm of every block")]
    first, second = (re.findall(r'data-y="([^"]+)"', panel) for panel in panels)
    assert first == second and all("logarithmic scale" in panel for panel in panels)


def test_a_comparison_says_how_many_seeds_it_rests_on(page, tmp_path):
    assert "One seed each: a difference between runs may be chance" in page
    assert page.count("<small>one seed</small>") == 2
    runs = [
        make_run(tmp_path / f"{alpha}-{seed}", alpha_min=alpha, seed=seed, points=20, steps=30)
        for alpha in (1.0, 0.6)
        for seed in range(3)
    ]
    text = " ".join(Elements(render(collect_all(runs))).texts)
    assert "3 seeds per setting." in text and "paired over 3 seeds" in text
    assert "One seed each" not in text


def test_a_run_of_an_earlier_version_is_described_by_its_settings(tmp_path):
    """Its about.json has no facts, and what its log says is never read back."""
    run = make_run(tmp_path / "run", points=20, steps=30)
    about = json.loads((run / "about.json").read_text())
    (run / "about.json").write_text(json.dumps({name: about[name] for name in ("command", "sessions", "seconds")}))
    (run / "log.txt").write_text("model: a sentence that was logged\n")
    text = dict(facts(collect_all([run])[0]))
    assert text["data"].startswith("shapes, ") and text["model"].startswith("masked autoencoder")
    assert text["shortcuts"].startswith("faded, alpha from 1 to 0.6")


def test_a_run_that_began_with_weights_says_which(tmp_path):
    run = make_run(tmp_path / "run", points=20, steps=30)
    about = json.loads((run / "about.json").read_text())
    assert "started from" not in dict(facts(collect_all([run])[0]))
    start = {"path": "elsewhere/encoder", "fingerprint": "0123456789ab"}
    (run / "about.json").write_text(json.dumps(about | {"start": start}))
    assert dict(facts(collect_all([run])[0]))["started from"] == "elsewhere/encoder (0123456789ab)"


def test_the_heat_map_is_drawn_once(tmp_path):
    """From its numbers where they are known; the picture of it stands in for them where they are not."""
    run = make_run(tmp_path / "run")
    shutil.copy(run / "figures" / "reconstructions.png", run / "figures" / "grid.png")
    assert "Layers and noise levels" not in render(collect_all([run]))
    (run / "results.json").unlink()
    assert "Layers and noise levels" in render(collect_all([run]))


def test_the_heat_map_has_layers_below_and_noise_beside_each_other(tmp_path):
    (figure,) = heat_maps(collect_all([make_run(tmp_path / "run")])[0], alone=True)
    words = re.findall(r"<text[^>]*>([^<]+)</text>", str(figure.drawing))
    assert words[:2] == ["layer", "noise"]
    assert words[2:6] == ["0.1", "0.3", "0.5", "0.7"] and words[6].startswith("block")
    assert figure.caption.startswith("Highest at block")


def test_numbers_are_drawn_with_their_count_and_protocol(page):
    assert re.search(r"n = [\d,]+\. [^.]*pooling mean", page), "what a value was measured on stands below it"


def test_hostile_names_appear_as_text(tmp_path):
    folder = tmp_path / HOSTILE[1]
    runs = [make_run(folder / name.replace("/", "∕"), points=20, steps=30) for name in HOSTILE]
    page = render(collect_all(runs))
    found = Elements(page)
    assert found.count("script") == 2, "the page's own script and its data"
    names = [name.replace("/", "∕") for name in HOSTILE]
    assert all(any(name in text for text in found.texts) for name in names)
    assert "<script>alert" not in page


def test_a_bad_request_is_one_sentence(two_runs, tmp_path):
    with pytest.raises(ConfigError, match="no run is given"):
        report([], tmp_path / "a.html")
    with pytest.raises(ConfigError, match=r"out is '.*plain'; allowed: a file whose name ends in .html"):
        report(two_runs, two_runs[0])


def test_ten_runs_with_different_images_stay_below_the_limit(tmp_path):
    """Pictures that do not compress, of many runs: they are shrunk, not dropped."""
    import numpy as np
    from PIL import Image

    from echoless.reports.pictures import save_picture

    runs = [make_run(tmp_path / str(seed), seed=seed, points=20, steps=30) for seed in range(10)]
    noise = np.random.default_rng(0).integers(0, 255, (500, 700, 3), dtype=np.uint8)
    for name in ("reconstructions.png", "tsne-images.jpg", "other.png"):
        noisy = save_picture(tmp_path / name, Image.fromarray(noise)).read_bytes()
        for place, run in enumerate(runs):
            (run / "figures" / name).write_bytes(noisy + bytes(place))
    page = report(runs, tmp_path / "page.html")
    size = page.stat().st_size
    print(f"page of ten runs with noisy pictures: {size / 1e6:.2f} MB")
    assert size < LIMIT and Elements(page.read_text()).count("img") == 10 * 6


def test_a_picture_that_cannot_be_read_is_left_as_it_is():
    broken = Picture(b"\x89PNG\r\n\x1a\nnothing more", "image/png")
    assert shrink(broken, 10) == broken and shrink_to_budget([broken], 10) == [broken]


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(two_runs, tmp_path):
    """Its styles must not reach into the notebook, nor names in it out of the attribute."""
    written = report(two_runs, tmp_path / "page.html")
    frame = Elements(written._repr_html_())
    assert [tag for tag, _ in frame.elements] == ["iframe"]
    assert frame.elements[0][1]["srcdoc"] == (tmp_path / "page.html").read_text()


def seeds(gains: list[float]) -> list[RunData]:
    """Plain runs of 30 % and faded ones that have these gains."""
    runs = []
    for seed, gain in enumerate(gains):
        for name, alpha, value in (("plain", 1.0, 0.3), ("faded", 0.6, 0.3 + gain)):
            config = {"model": {"shortcuts": {"alpha_min": alpha}}, "seed": seed}
            number = Metric(metric="knn", value=value, n=100, protocol={"k": 20})
            runs.append(RunData(path=Path(f"{name}{seed}"), name=f"{name}{seed}", config=config, results=[number]))
    return sorted(runs, key=lambda run: run.name, reverse=True)


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([-0.08, -0.09, -0.07], "clearly lower, paired over 3 seeds"),
        ([-0.08, 0.09, -0.07], "not clear, paired over 3 seeds"),
        ([0.08, 0.09, 0.07, 0.08, 0.09, 0.07], "clearly higher, paired over 6 seeds, p = 0.0312"),
    ],
)
def test_a_difference_has_one_verdict_on_the_page_and_in_a_terminal(gains, words):
    """The terminal said -8.1 ± 3.2 and the page of the same difference p = 0.25, the least of three seeds."""
    runs = seeds(gains)
    page = render(runs)
    assert f"<small>{words}</small>" in page
    assert "With 6 common seeds or more, p of the exact sign-flip test" in page
    plain, faded = ([run.results[0] for run in runs if run.name.startswith(name)] for name in ("plain", "faded"))
    assert _gain(Quantity(metric="knn"), list(zip(faded, plain))).endswith(f", {words.partition(',')[0]}")
