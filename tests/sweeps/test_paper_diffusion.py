"""The experiment on diffusion models trains, samples and measures both networks, plain and faded, at equal budgets."""

from __future__ import annotations

import json

import pytest

from echoless.config.options import SweepOptions
from echoless.sweeps.papers import paper
from echoless.sweeps.papers.readings import final_loss


def test_plain_and_faded_differ_in_alpha_alone():
    experiment = paper("diffusion", "shapes", SweepOptions("DATA", out="OUT", seeds=2))
    assert len(experiment.trials) == 2 * 2 * 2
    for plain, faded in zip(experiment.trials[::2], experiment.trials[1::2]):
        assert plain.settings == {**faded.settings, "alpha_min": 1.0} and faded.settings["alpha_min"] == 0.7
        differing = [(a, b) for a, b in zip(plain.commands[0], faded.commands[0]) if a != b]
        assert differing == [("1.0", "0.7")] and plain.commands[1:] == faded.commands[1:]
    verbs = [words[0] for words in experiment.trials[0].commands]
    assert verbs == ["pretrain", "pretrain", "sample", "evaluate"], "the network, the extractor, samples, numbers"
    measured = experiment.trials[0].commands[-1]
    assert measured[measured.index("--test") + 1] == "shapes:2000@test", "the built-in set holds images out"


@pytest.mark.parametrize("scale", ["tiny", "cpu", "paper"])
def test_every_scale_can_be_laid_out(scale):
    experiment = paper("diffusion", "folder", SweepOptions("DATA", out="OUT", seeds=1, scale=scale))
    assert len(experiment.trials) == 4 and "--test" not in experiment.trials[0].commands[-1]


def test_the_loss_is_the_mean_of_the_last_tenth(tmp_path):
    lines = [json.dumps({"step": step, "loss": float(step)}) for step in range(1, 101)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (metric,) = final_loss(tmp_path)
    assert metric.value == pytest.approx(95.5) and metric.n == 10
    assert final_loss(tmp_path / "nowhere") == []
