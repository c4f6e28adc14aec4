"""The experiment on diffusion models trains, samples and measures both networks, plain and faded, at equal budgets."""

from __future__ import annotations

import json

import pytest

from echoless.config.metrics import Metric
from echoless.config.options import SweepOptions
from echoless.errors import ConfigError
from echoless.sweeps.papers import paper
from echoless.sweeps.papers.readings import final_loss
from echoless.sweeps.tabulate import rows
from echoless.verbs.sweep import sweep


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


@pytest.mark.parametrize("scale", ["tiny", "cpu"])
def test_every_small_scale_trains_its_own_extractor(scale):
    experiment = paper("diffusion", "folder", SweepOptions("DATA", out="OUT", seeds=1, scale=scale))
    assert len(experiment.trials) == 4 and "--test" not in experiment.trials[0].commands[-1]
    assert [words[0] for words in experiment.trials[0].commands].count("pretrain") == 2


def published(name, **options):
    given = {"seeds": 1, "scale": "paper", "extractor": "inception:FILE", **options}
    return paper(name, "folder", SweepOptions("DATA", out="OUT", paper=name, **given))


def option(words, name):
    return words[words.index(f"--{name}") + 1] if f"--{name}" in words else None


def commands(trial, verb):
    return [words for words in trial.commands if words[0] == verb]


def test_table_4_on_pixels_is_cifar_100_as_published():
    """U-ViT-small without classes, 50,000 samples of 1000 Euler-Maruyama steps against the training set."""
    table = published("table4")
    assert [t.settings["alpha_min"] for t in table.trials] == [1.0, 0.8, 0.7, 0.6]
    for trial in table.trials:
        (train,), (draw,), (measure,) = (commands(trial, verb) for verb in ("pretrain", "sample", "evaluate"))
        assert option(train, "recipe") == "uvit-small" and "--no-conditional" in train and "--latent" not in train
        assert [option(draw, name) for name in ("n", "sampler", "steps")] == ["50000", "em", "1000"]
        assert "--no-clip" in draw and option(draw, "precision") == "auto" and "--guidance" not in draw
        assert option(measure, "reference") == "train" and option(measure, "extractor") == "inception:FILE"
        assert "linear" in measure
    shown = {(f.metric, f.settings["alpha_min"]): f.value for f in table.published}
    assert shown["frechet", 0.7] == 8.99 and shown["linear", 0.7] == 0.6686 and len(shown) == 8


def test_table_4_on_latents_is_imagenet_100_without_and_with_classes():
    """U-ViT-Mid, 50 steps of its DPM-Solver; guidance, where there are classes to guide to."""
    table = published("table4", latent="VAE")
    assert len(table.trials) == 8
    for trial in table.trials:
        (train,), (draw,), (measure,) = (commands(trial, verb) for verb in ("pretrain", "sample", "evaluate"))
        conditional = trial.settings["task"] == "class-conditional"
        assert option(train, "recipe") == "uvit-mid" and option(train, "latent") == "VAE"
        assert ("--conditional" in train) == conditional == ("linear" not in measure)
        assert [option(draw, name) for name in ("sampler", "steps")] == ["dpm3", "50"]
        assert option(draw, "guidance") == ("1.4" if conditional else None)
    shown = {(f.metric, f.settings["task"], f.settings["alpha_min"]): f.value for f in table.published}
    assert shown["frechet", "class-conditional", 0.6] == 4.98 and shown["frechet", "unconditional", 1.0] == 44.4
    assert shown["linear", "unconditional", 0.7] == 0.761 and len(shown) == 12


@pytest.mark.parametrize(("latent", "recipe", "figure"), [(None, "uvit-small", 0.6686), ("VAE", "uvit-mid", 0.761)])
def test_published_probes_stand_beside_networks_without_classes(latent, recipe, figure):
    """The paper probes U-ViTs that were trained without labels, so ours must not see them either."""
    table = published("diffusion", latent=latent)
    trainings = {trial.settings["recipe"]: trial.commands[0] for trial in table.trials}
    assert "--no-conditional" in trainings[recipe]
    assert "--conditional" in trainings.get("sit-xl2", ("--conditional",))
    shown = {(each.settings["recipe"], each.settings["alpha_min"]): each.value for each in table.published}
    assert shown[recipe, 0.7] == figure


def test_sit_has_three_networks_and_the_faded_one_also_at_half_of_its_training():
    table = published("sit", latent="VAE")
    plain, skipped, faded = table.trials
    assert "--no-long-skips" in plain.commands[0] and "--long-skips" in skipped.commands[0]
    for trial in table.trials:
        (train,) = commands(trial, "pretrain")
        assert option(train, "recipe") == "sit-xl2" and "--conditional" in train
        assert all(option(words, "sampler") == "sde" for words in commands(trial, "sample"))
        assert all(option(words, "steps") == "250" for words in commands(trial, "sample"))
    assert option(faded.commands[0], "snapshot-every") == "200000" and option(faded.commands[0], "alpha-min") == "0.8"
    sources = [words[1] for words in commands(faded, "sample")]
    assert sources == ["{run}", "{run}/snapshots/step-00200000"] and len(commands(plain, "sample")) == 1
    shown = {(f.metric, *f.settings.values()): f.value for f in table.published}
    assert shown == {
        ("frechet", "none", 1.0, None): 17.2,
        ("frechet", "long", 1.0, None): 16.5,
        ("inception-score", "long", 1.0, None): 74.8,
        ("frechet", "long", 0.8, 200_000): 14.2,
        ("inception-score", "long", 0.8, 200_000): 79.7,
        ("frechet", "long", 0.8, None): 11.8,
        ("inception-score", "long", 0.8, None): 91.8,
    }


def test_the_row_of_a_snapshot_stands_beside_the_end_of_training():
    table = published("sit", latent="VAE")
    faded = table.trials[-1].name
    protocol = {"features": "trained", "extractor": "inception:FILE"}
    found = [
        Metric(metric="frechet", value=12.0, n=1, protocol=protocol),
        Metric(metric="frechet", value=15.0, n=1, protocol={**protocol, "step": 200_000}),
    ]
    shown = {row.columns.get("step"): row for row in rows(table, {faded: found}) if row.seeds}
    assert shown[None].values["Frechet"] == {0: 12.0} and shown[None].published["Frechet"] == 11.8
    assert shown[200_000].values["Frechet"] == {0: 15.0} and shown[200_000].published["Frechet"] == 14.2


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("table4", {"extractor": None}, "--paper table4 at scale paper needs --extractor"),
        ("sit", {}, "trains SiT-XL/2 on latents, so it needs --latent"),
        ("fig8", {}, "samples a class-conditional U-ViT-Mid, so it needs --latent"),
    ],
)
def test_what_a_published_experiment_needs_is_asked_for_before_any_work(name, options, says):
    with pytest.raises(ConfigError, match=says):
        published(name, **options)


def test_a_file_of_statistics_has_no_images_for_precision_and_other_extractors_no_inception_score():
    trial = published("table4", latent="VAE", reference="statistics.npz").trials[0]
    (measure,) = commands(trial, "evaluate")
    assert option(measure, "reference") == "statistics.npz" and "precision" not in measure
    assert "inception-score" in measure
    other = published("table4", latent="VAE", extractor="RUN")
    assert "inception-score" not in commands(other.trials[0], "evaluate")[0]
    assert not [figure for figure in other.published if figure.metric == "frechet"], "published FIDs are of Inception"


def test_latents_at_a_small_scale_keep_the_size_of_the_images():
    trial = paper("sit", "folder", SweepOptions("DATA", out="OUT", seeds=1, latent="VAE")).trials[0]
    (train, _) = commands(trial, "pretrain")
    assert option(train, "latent") == "VAE" and option(train, "patch-size") == "2" and "--image-size" not in train


def test_the_loss_is_the_mean_of_the_last_tenth(tmp_path):
    lines = [json.dumps({"step": step, "loss": float(step)}) for step in range(1, 101)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (metric,) = final_loss(tmp_path)
    assert metric.value == pytest.approx(95.5) and metric.n == 10
    assert final_loss(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"latent": "nowhere"}, "latent is 'nowhere'; allowed: a folder that holds an AutoencoderKL"),
        ({"extractor": "inception:nowhere.pth"}, r"but the file nowhere\.pth does not exist"),
        ({"reference": "nowhere.npz"}, r"reference is 'nowhere\.npz'; allowed: train, test, or an \.npz file"),
    ],
)
def test_files_that_the_last_command_would_miss_are_refused_before_the_first(options, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        sweep("shapes:20", out=tmp_path / "out", paper="sit", **options)
    assert not (tmp_path / "out").exists()
