"""A grid is planned before anything runs: every combination once, every command one that the real parsers accept."""

from __future__ import annotations

import pytest

from echoless.cli.parsing import parse
from echoless.config.options import SweepOptions
from echoless.errors import ConfigError
from echoless.sweeps.experiment import Experiment, Trial
from echoless.sweeps.grid import grid
from echoless.verbs.table import VERBS


def parsed(words):
    """What the verb's own parser makes of a planned command."""
    return parse(VERBS[words[0]].options, words[1:], f"echoless {words[0]}")


def test_the_grid_of_the_front_page_has_fifteen_runs_each_trained_and_measured(tmp_path):
    plan = grid("shapes", SweepOptions("DATA", out="OUT"))
    assert len(plan.trials) == 15 and len({trial.name for trial in plan.trials}) == 15
    assert {trial.settings["alpha_min"] for trial in plan.trials} == {1.0, 0.9, 0.8, 0.7, 0.6}
    assert plan.contrast == ("alpha_min",), "rows are compared with the row that differs in nothing else"
    for trial in plan.trials:
        train, measure = (parsed(words) for words in trial.commands_in(tmp_path))
        assert train.alpha_min == trial.settings["alpha_min"] and train.seed == trial.settings["seed"]
        assert train.resume and train.out == str(tmp_path / trial.name) and measure.run == train.out


def test_labelled_images_of_their_own_are_measured_with_and_not_pretrained_on():
    plan = grid("DATA", SweepOptions("DATA", out="OUT", train="FEW", labels="FEW.csv", seeds=1))
    for trial in plan.trials:
        run, measure = map(parsed, trial.commands)
        assert (run.data, run.labels, measure.train, measure.labels) == ("DATA", None, "FEW", "FEW.csv")


def test_every_setting_reaches_its_run():
    over = ("schedule=linear,cosine", "normalize_pixels=false", "base_lr=1e-3", "mask-ratio=0.5,0.75")
    plan = grid(
        "shapes", SweepOptions("DATA", out="OUT", alpha_min=(0.7,), seeds=2, over=over, max_steps=7, batch_size=16)
    )
    assert len(plan.trials) == 2 * 2 * 2
    seen = set()
    for trial in plan.trials:
        run = parsed(trial.commands[0])
        assert (run.normalize_pixels, run.base_lr, run.max_steps, run.batch_size) == (False, 1e-3, 7, 16)
        seen.add((run.schedule, run.mask_ratio, run.seed))
        assert set(trial.settings) == {"alpha_min", "schedule", "mask_ratio", "seed"}  # what is fixed is no column
    assert len(seen) == 8


def test_a_variant_that_knows_no_alpha_min_is_not_run_once_for_each():
    plan = grid(
        "shapes",
        SweepOptions("DATA", out="OUT", alpha_min=(1.0, 0.8, 0.6), seeds=2, over=("variant=faded,scale_both",)),
    )
    assert len(plan.trials) == 2 * (3 + 1)


def test_seeds_come_last_so_that_a_stopped_sweep_has_compared_every_setting_once():
    plan = grid("shapes", SweepOptions("DATA", out="OUT", alpha_min=(1.0, 0.6), seeds=3))
    assert [trial.settings["seed"] for trial in plan.trials] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"alpha_min": (1.5,)}, "alpha_min is 1.5; allowed: a number in [0, 1]"),
        ({"alpha_min": (float("nan"),)}, "alpha_min is nan"),
        ({"alpha_min": ()}, "alpha_min is ()"),
        ({"seeds": 0}, "seeds is 0; allowed: a whole number from 1 to 100"),
        ({"over": ("varaint=faded",)}, "did you mean 'variant'?"),
        ({"over": ("variant",)}, "over is 'variant'"),
        ({"over": ("variant=,",)}, "over is 'variant=,'"),
        ({"over": ("seed=1,2",)}, "over is 'seed=1,2'"),
        ({"over": ("variant=faded", "variant=identity")}, "each setting once"),
        ({"over": ("variant=fadde",)}, "variant is 'fadde'"),
        ({"over": ("mask_ratio=0.5,7",)}, "mask_ratio is 7"),
        ({"over": ("optimizer=../../etc",)}, "optimizer is '../../etc'"),
        ({"recipe": "mae-tiyn"}, "did you mean 'mae-tiny'?"),
        ({"epochs": 1.0, "max_steps": 1}, "either epochs or max_steps"),
        ({"seeds": 100, "over": ("base_lr=" + ",".join(f"{i}e-6" for i in range(1, 30)),)}, "at most 10000"),
    ],
)
def test_what_no_run_could_be_trained_with_is_refused_before_the_first(wrong, says):
    with pytest.raises(ConfigError) as refused:
        grid("shapes", SweepOptions("DATA", out="OUT", **wrong))
    assert says in str(refused.value)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden", "-rf", "x" * 200])
def test_a_trial_cannot_be_named_so_that_it_leaves_its_folder(name):
    with pytest.raises(ConfigError):
        Trial(name=name, settings={}, commands=())


def test_two_trials_cannot_share_a_folder():
    twin = Trial(name="a", settings={}, commands=())
    with pytest.raises(ConfigError):
        Experiment(name="e", title="", trials=(twin, twin), quantities=())
