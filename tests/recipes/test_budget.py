"""`auto` fits a run into a time: the rule and its table, what is refused, and a resumed run that is the same run.

Run alone: pytest tests/recipes/test_budget.py
"""

from __future__ import annotations

import json

import pytest

import echoless
from echoless.config import DataConfig
from echoless.config.durations import parse_duration
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions
from echoless.errors import ConfigError, NoMemory
from echoless.recipes.budget import (
    CANDIDATES,
    LONGEST,
    SMALLEST_SHARE,
    TRAINING_SHARE,
    budget_of,
    candidates_for,
    choose,
    images_in,
    unfitted,
)
from echoless.recipes.resolve import resolve
from echoless.recipes.table import RECIPES
from echoless.training.timing import Speed
from echoless.verbs.planning import Time, make_plan

PHOTOS = DataFacts(3, 96, 96, 9469)
SPEEDS = dict(zip(CANDIDATES, (800.0, 300.0, 80.0, 50.0, 14.0)))  # images/s, of the order measured on two cores


def wanted(**settings) -> PretrainOptions:
    return PretrainOptions("PHOTOS", out="RUN", **settings)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("1h30m", 5400), ("2d", 172800), ("0.5h", 1800)]
)
def test_a_time_is_read(text, seconds):
    assert parse_duration("time", text) == seconds


@pytest.mark.parametrize("text", ["", "h", "3", "3x", "-1h", "0s", "1m2h", "9999d", "inf"])
def test_what_is_no_time_is_refused_in_one_sentence(text):
    with pytest.raises(ConfigError, match=r"time is .*; allowed: a time such as 90s, 45m"):
        parse_duration("time", text)


def test_every_candidate_is_a_recipe_and_the_table_goes_from_fast_to_slow():
    assert {candidate.recipe for candidate in CANDIDATES} <= RECIPES.keys()
    assert [candidate.images for candidate in CANDIDATES] == sorted(candidate.images for candidate in CANDIDATES)
    assert CANDIDATES[0].images == 0, "something is always chosen"


def test_more_time_never_gives_a_smaller_encoder_and_every_budget_is_kept():
    """The rule itself, for budgets from seconds to weeks."""
    chosen = []
    for seconds in (10, 600, 3600, 36_000, 360_000, 10**7):
        choice = choose(seconds, PHOTOS, CANDIDATES, SPEEDS.__getitem__)
        chosen.append(CANDIDATES.index(choice.candidate))
        images = images_in(seconds, choice.images_per_second, PHOTOS)
        assert images / choice.images_per_second <= TRAINING_SHARE * seconds + 1
        assert images <= LONGEST * PHOTOS.count
    assert chosen == sorted(chosen) and chosen[0] == 0 and chosen[-1] == len(CANDIDATES) - 1


def test_a_budget_that_the_plan_names_for_the_next_size_gives_that_size():
    choice = choose(3600, PHOTOS, CANDIDATES, SPEEDS.__getitem__)
    assert choice.larger is not None
    assert choose(choice.larger_seconds + 1, PHOTOS, CANDIDATES, SPEEDS.__getitem__).candidate == choice.larger


def test_a_small_set_ends_after_800_epochs_and_measures_no_encoder_that_it_could_not_train():
    measured = []
    facts = DataFacts(3, 96, 96, 50)
    choice = choose(10**7, facts, CANDIDATES, lambda c: measured.append(c) or SPEEDS[c])
    assert images_in(10**7, choice.images_per_second, facts) == LONGEST * 50
    assert choice.candidate == CANDIDATES[0] and measured == [CANDIDATES[0]]


def test_an_encoder_that_does_not_fit_in_memory_ends_the_search_and_is_refused_only_if_it_is_the_smallest():
    """A larger candidate is configured only to be measured: that was answered with its refusal."""

    def measured(fitting: int):
        def measure(candidate) -> float:
            if candidate not in CANDIDATES[:fitting]:
                raise NoMemory("batch_size is 1024")
            return SPEEDS[candidate]

        return measure

    for fitting in (1, 3):
        choice = choose(10**7, PHOTOS, CANDIDATES, measured(fitting))
        assert choice.candidate == CANDIDATES[fitting - 1] and choice.larger is None
    with pytest.raises(NoMemory):
        choose(10**7, PHOTOS, CANDIDATES, measured(0))


def test_a_patch_size_that_was_given_is_kept_and_small_images_have_no_coarse_patch():
    assert all(candidate.coarser == 1 for candidate in candidates_for(PHOTOS, patch_size=8))
    assert all(candidate.coarser == 1 for candidate in candidates_for(DataFacts(1, 7, 7, 100)))
    assert candidates_for(PHOTOS) == CANDIDATES


@pytest.mark.parametrize(("count", "batch", "name"), [(3, 32, "adamw"), (610, 76, "adamw"), (2000, 128, "soap")])
def test_a_small_set_learns_at_a_rate_that_does_not_fall_with_its_batch(count, batch, name):
    """At 5e-4 for 256 images, as before, batches of 3 had a rate of 6e-6: the loss stayed at 1 for a thousand steps."""
    config = RECIPES["mae-femto"](DataFacts(3, 96, 96, count))
    assert (config.batch_size, config.optim.name) == (batch, name)
    assert config.optim.base_lr * batch / 256 == pytest.approx(6e-3 if name == "soap" else 2e-3)


def plan_for(options: PretrainOptions, facts: DataFacts, *, spent: float = 0.0, share: float = 1.0):
    """For an hour, at 100 images per second."""
    time, speed = Time(3600.0, lambda: spent), Speed(100.0, share)
    return make_plan(options, time, facts, lambda o: resolve(o, facts, DataConfig()), lambda config: speed)


def test_the_plan_is_a_choice_of_options_that_repeats_the_run():
    plan = plan_for(wanted(), PHOTOS)
    assert plan.options.max_steps == int(TRAINING_SHARE * 3600 * 100) // 128
    exact = (
        f"--recipe {plan.options.recipe} --patch-size {plan.options.patch_size} --max-steps {plan.options.max_steps}"
    )
    assert plan.sentences[-1].endswith(exact)
    assert budget_of(plan.options, accelerated=False) is None
    assert (plan.budget.seconds, plan.budget.images_per_second) == (3600.0, 100.0)


def test_reading_and_measuring_are_part_of_the_time_and_at_least_half_of_it_is_training():
    """An hour is over after an hour, though decoding the photographs took twenty minutes of it."""
    plan = plan_for(wanted(), PHOTOS, spent=1200.0)
    assert plan.options.max_steps == int((TRAINING_SHARE * 3600 - 1200) * 100) // 128
    assert "plan: 1 h 0 min for this run, 20 min of which went into reading and measuring; " in plan.sentences[0]
    late = plan_for(wanted(), PHOTOS, spent=7200.0)
    assert late.options.max_steps == int(SMALLEST_SHARE * 3600 * 100) // 128
    assert "reading" not in plan_for(wanted(), PHOTOS, spent=10.0).sentences[0], "nobody asked"


def test_the_plan_says_what_it_trains_even_where_the_time_is_too_short_for_one_step():
    plan = make_plan(
        wanted(), Time(1.0), PHOTOS, lambda o: resolve(o, PHOTOS, DataConfig()), lambda config: Speed(10.0)
    )
    assert plan.options.max_steps == 1 and "128 images (0.0135 epochs) in 13 s at 10 images/s" in plan.sentences[0]


def test_a_small_set_that_has_all_its_epochs_is_not_told_to_take_more_time():
    """300 images: 800 epochs take less than the hour, and no larger encoder is planned for so few."""
    facts = DataFacts(3, 32, 32, 100)
    plan = plan_for(wanted(), facts)
    assert any(f"{LONGEST} epochs are the most" in line and "buy nothing" in line for line in plan.sentences)
    assert not any("more epochs" in line for line in plan.sentences)
    assert any("would buy more epochs" in line for line in plan_for(wanted(), PHOTOS).sentences)


@pytest.mark.parametrize("seconds", [170.0, 175.0, 180.0, 5000.0, 5500.0, 30_000.0, 35_000.0, 400_000.0])
def test_the_time_that_is_named_for_the_next_size_is_more_than_the_one_given_and_enough(seconds):
    """A budget that was nearly enough was once rounded down to itself."""
    speed = 0.999 * CANDIDATES[1].images / (TRAINING_SHARE * seconds)
    facts = DataFacts(3, 96, 96, 10_000)
    plan = make_plan(
        wanted(), Time(seconds), facts, lambda o: resolve(o, facts, DataConfig()), lambda config: Speed(speed)
    )
    (line,) = (line for line in plan.sentences if "more time would buy" in line)
    named = parse_duration("time", line.split("--time ")[1])
    assert seconds < named <= max(1.1 * seconds, seconds + 60), line
    assert choose(named, facts, CANDIDATES, lambda candidate: speed).candidate == CANDIDATES[1]


def test_a_busy_machine_is_named_because_the_plan_is_too_short_once_it_is_idle():
    said = [line for line in plan_for(wanted(), PHOTOS, share=0.05).sentences if "busy" in line]
    assert len(said) == 1 and "had 5 % of a core; alone, the run would see about 2,000 images/s" in said[0]
    assert not any("busy" in line for line in plan_for(wanted(), PHOTOS, share=0.9).sentences)


def test_with_a_gpu_auto_has_no_default_budget_and_a_time_sets_the_length_alone():
    assert budget_of(wanted(), accelerated=True) is None
    facts = DataFacts(3, 224, 224, 9469, accelerated=True)
    plan = plan_for(wanted(time="1h"), facts)
    assert plan.options.recipe is None
    assert resolve(plan.options, facts, DataConfig()).model == resolve(wanted(), facts, DataConfig()).model
    assert plan.options.max_steps == int(TRAINING_SHARE * 3600 * 100) // 1024


def test_a_length_that_was_given_needs_no_budget_and_two_lengths_are_refused():
    assert budget_of(wanted(), accelerated=False) == 3600
    assert budget_of(wanted(epochs=1.0), accelerated=False) is None
    assert budget_of(wanted(recipe="shapes"), accelerated=False) is None
    with pytest.raises(ConfigError, match="give one of --time, --epochs and --max-steps"):
        budget_of(wanted(time="1h", max_steps=5), accelerated=False)
    with pytest.raises(ConfigError, match="no masked autoencoder"):
        echoless.pretrain("shapes:16", out="RUN", recipe="sit-tiny", time="1h")


def test_a_resumed_run_is_the_same_run_and_nothing_is_measured_again(tmp_path, monkeypatch):
    """Size, length, budget and rate are in config.json; --resume reads them, and refuses another time."""
    from echoless.verbs import pretraining

    monkeypatch.setattr(pretraining, "measure_speed", lambda *args, **settings: Speed(20.0))
    run = tmp_path / "run"
    assert echoless.pretrain("shapes:16", out=run, time="1s", workers=0)
    before = json.loads((run / "config.json").read_text())
    assert before["budget"] == {"seconds": 1.0, "images_per_second": 20.0} and before["recipe"] == "auto"
    assert before["steps"] == 1, "20 images would fit, and a batch has 32"
    log = (run / "log.txt").read_text()
    assert "plan: " in log and "--max-steps" in log

    def never(*args, **settings):
        raise AssertionError("a resumed run was measured")

    monkeypatch.setattr(pretraining, "measure_speed", never)
    assert echoless.pretrain("shapes:16", out=run, resume=True)
    assert json.loads((run / "config.json").read_text()) == before
    assert echoless.pretrain("shapes:16", out=run, resume=True, time="1s"), "schedulers repeat the same command"
    with pytest.raises(ConfigError, match="the run being resumed was planned for 1 s; give --max-steps"):
        echoless.pretrain("shapes:16", out=run, resume=True, time="3h")


def test_speed_is_measured_on_the_images_without_a_trace(tmp_path):
    """Two measured runs of the same plan start from the same weights: measuring leaves no state behind."""
    run = tmp_path / "run"
    assert echoless.pretrain("shapes:16", out=run, recipe="demo", patch_size=16, batch_size=2, time="1s", workers=0)
    steps = json.loads((run / "config.json").read_text())["steps"]
    small = {"recipe": "demo", "patch_size": 16, "batch_size": 2, "workers": 0}
    assert echoless.pretrain("shapes:16", out=tmp_path / "again", max_steps=steps, **small)
    weights = "encoder/model.safetensors"
    assert (run / weights).read_bytes() == (tmp_path / "again" / weights).read_bytes()


def test_a_given_length_says_that_the_encoder_is_not_fitted_to_the_machine():
    told = "plan: --{} is given, so that the size was not fitted to this machine; --time 1h fits size and length to it"
    assert unfitted(wanted(max_steps=5), accelerated=False) == told.format("max-steps")
    assert unfitted(wanted(recipe="auto", epochs=2), accelerated=False) == told.format("epochs")
    for settings in ({}, {"time": "1h"}, {"recipe": "demo", "max_steps": 5}, {"init": "RUN", "epochs": 1}):
        assert unfitted(wanted(**settings), accelerated=False) == ""
    assert unfitted(wanted(max_steps=5), accelerated=True) == "", "with a GPU, nothing is fitted"


def test_of_few_images_the_plan_names_the_better_start():
    """Whoever wants features should hear it before the hour is spent; who starts from weights has it already."""
    few, many = (DataFacts(3, 96, 96, count) for count in (1_530, 20_000))
    (said,) = (line for line in plan_for(wanted(), few).sentences if "published" in line)
    assert said.startswith("plan: 1530 images are few to train an encoder from nothing") and "--init FOLDER" in said
    assert not any("published" in line for line in plan_for(wanted(), many).sentences)
    assert not any("published" in line for line in plan_for(wanted(init="FOLDER"), few).sentences)
