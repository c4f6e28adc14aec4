"""`doctor --plan`: what many images cost is the measured rates times their number, and the page says the same.

pytest -s tests/verbs/test_scale_plan.py -m "slow or not slow"
"""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace

import pytest
from PIL import Image

from echoless.cli.main import main
from echoless.verbs import scale_plan, scale_rates
from echoless.verbs.scale_plan import cost, describe_rates, table_of
from echoless.verbs.scale_rates import Pace, Rates, pace_of, photograph

RATES = Rates(
    decoded=1000.0,
    trained=100.0,
    embedded=500.0,
    written=500e6,
    file_bytes=100_000,
    pixel_bytes=500_000,
    feature_bytes=3072,
    device="cpu",
    cores=8,
    share=1.0,
)


def test_a_million_images_by_hand():
    million = cost(10**6, RATES)
    assert (million.file_bytes, million.shards, million.index_bytes) == (10**11, 100, 72 * 10**6)
    assert (million.pixel_bytes, million.feature_bytes, million.parts) == (5 * 10**11, 3_072_000_000, 4)
    assert million.decode_hours == pytest.approx(1000 / 3600) and million.epoch_hours == pytest.approx(10_000 / 3600)
    assert million.embed_hours == pytest.approx(2000 / 3600) and million.write_hours == pytest.approx(1000 / 3600)


def test_the_table_has_a_column_for_every_number_of_images():
    table = {name: cells for name, *cells in table_of([cost(count, RATES) for count in scale_plan.COUNTS])}
    assert table["images"] == ["1e6", "1e8", "1e9"]
    assert table["JPEG files"] == ["100 GB", "10 TB", "100 TB"] and table["tar shards"] == ["100", "10,000", "100,000"]
    assert table["features"] == ["3.07 GB", "307 GB", "3.07 TB"] and table["parquet parts"] == ["4", "308", "3,072"]
    assert table["train one epoch"] == ["2.78 h", "278 h", "2,778 h"]


def test_a_busy_machine_is_planned_as_if_it_were_idle_and_says_so():
    assert Pace(100.0, 0.25).idle == 400.0 and Pace(100.0, 0.9).idle == 100.0
    assert "busy" not in dict(describe_rates(RATES))
    assert "left 25 % of the cores" in dict(describe_rates(replace(RATES, share=0.25)))["busy"]


def test_a_pace_counts_the_processor_time_of_its_own_work():
    """Work that sleeps has no share of a core; work of a GPU is not judged by the processor."""
    sleeping = pace_of(lambda: time.sleep(0.01) or 3, threads=1, seconds=0.1)
    assert sleeping.share < 0.5 and 0 < sleeping.rate <= 300
    assert pace_of(lambda: time.sleep(0.01) or 3, seconds=0.05).share == 1.0


def test_the_measured_image_is_like_one_of_imagenet():
    file = photograph()
    assert 95_000 < len(file) < 125_000  # the average of its training set is 108 kB
    assert Image.open(io.BytesIO(file)).size == (500, 375)


def test_doctor_prints_what_was_measured_and_what_was_assumed(monkeypatch, capsys):
    monkeypatch.setattr(scale_rates, "measure_rates", lambda folder: RATES)
    assert main(["doctor", "--plan"]) == 0
    printed = capsys.readouterr().out
    assert printed.index("measured now") < printed.index("assumed") < printed.index("cost on this machine")
    assert main(["doctor", "--plan", "--json"]) == 0
    sections = {json.loads(line)["section"] for line in capsys.readouterr().out.splitlines()}
    assert sections == {"measured now", "assumed", "cost on this machine"}


@pytest.mark.slow
def test_real_rates_are_rates(tmp_path):
    rates = scale_rates.measure_rates(tmp_path)
    print(*(f"{topic}: {text}" for topic, text in describe_rates(rates)), sep="\n")
    assert min(rates.decoded, rates.trained, rates.embedded, rates.written) > 0
    assert rates.embedded > rates.trained and rates.pixel_bytes == 3 * 375 * 500 and rates.feature_bytes == 4 * 768
