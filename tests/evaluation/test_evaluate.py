"""`evaluate` measures what it says: every number carries its protocol, baselines stand beside it, re-runs are equal."""

from __future__ import annotations

import json
import re
import shutil
from html import escape
from shutil import copytree

import pytest
import torch
from scipy.stats import pearsonr
from sklearn.linear_model import LogisticRegression

from echoless.cli.main import main
from echoless.config.metrics import METRICS, YIELDS, Metric, MetricInfo
from echoless.config.options import EvaluateOptions, SweepOptions
from echoless.data import open_images
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation.augmented import mae_linear
from echoless.evaluation.classify import check_labels, fold_count, knn, linear, mae_epochs
from echoless.evaluation.context import Evaluation, FeatureSource, Measurement
from echoless.evaluation.encoder import raw_pixels
from echoless.evaluation.extract import FeatureSet, View, extract
from echoless.evaluation.frozen import load
from echoless.evaluation.registry import MEASUREMENTS
from echoless.measures.outcomes import unpack
from echoless.sweeps.grid import grid
from echoless.verbs.evaluate import evaluate


def blobs(n: int, seed: int, classes: int = 4) -> FeatureSet:
    """Classes as Gaussian blobs that overlap."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(n) % classes
    features = centres[labels] + 1.2 * torch.randn(n, 16, generator=generator)
    return FeatureSet(View("x"), features.numpy(), torch.arange(n), labels)


def test_the_quick_probe_is_scikit_learns_logistic_regression():
    train, test = blobs(1000, 1), blobs(2000, 2)
    metric = linear(train, test, probe="quick", seed=0)
    theirs = LogisticRegression(max_iter=2000).fit(train.features_ND, train.labels_N)
    assert abs(metric.value - theirs.score(test.features_ND, test.labels_N)) < 0.01
    assert metric.interval[0] < metric.value < metric.interval[1] and metric.n == 2000


def test_without_a_test_set_five_folds_judge_every_image_once():
    (metric,) = knn(blobs(500, 3), None, ks=[5], seed=0)
    assert metric.n == 500 and metric.protocol["folds"] == 5


def test_every_number_carries_its_protocol_and_goes_to_results_json(run):
    metrics = evaluate(run, train="shapes:200", test="shapes:100@test", k=(5, 20))
    recorded = [Metric.from_json(record) for record in json.loads((run / "results.json").read_text())]
    assert all(metric in recorded for metric in metrics)
    subjects = {metric.protocol["features"] for metric in metrics}
    assert subjects == {"trained", "raw pixels", "untrained"}
    (trained,) = [
        m for m in metrics if m.metric == "knn" and m.protocol["features"] == "trained" and m.protocol["k"] == 5
    ]
    assert trained.protocol | {"layer": "block05/+mlp", "pooling": "mean", "temperature": 0.07} == trained.protocol
    assert trained.n == 100 and trained.interval is not None
    assert all(unpack(m.right, 100).double().mean() == pytest.approx(m.value) for m in metrics if m.metric == "knn")
    assert {m.metric for m in metrics} == {*YIELDS["knn"], *YIELDS["linear"], *YIELDS["rank"]}


def test_an_encoder_without_its_run_keeps_no_numbers_and_says_so(run, tmp_path):
    shutil.copytree(run / "encoder", tmp_path / "encoder")
    said: list[str] = []
    evaluate.run(
        EvaluateOptions(tmp_path / "encoder", train="shapes:60", metrics=("rank",), baselines=False), said.append
    )
    assert "is not a run that was trained here: the numbers are printed, and not kept in it" in said[0]
    assert not (tmp_path / "encoder" / "results.json").exists()


def test_a_second_run_gives_the_same_digits(run):
    once, twice = (evaluate(run, train="shapes:200", test="shapes:100@test", cache=cache) for cache in (True, False))
    assert once == twice
    print("R20 evaluate: from the cache and without it, identical digits")


def test_print_and_a_notebook_end_with_what_the_command_line_ends_with(run, capsys):
    """In Python there was no verdict and no next step: `closing` was empty."""
    metrics = evaluate(run, train="shapes:200")
    verdict, advice = metrics.closing
    assert verdict.startswith("Linear probe accuracy of the trained features is ") and advice.startswith("Next: ")
    assert " ".join(f"{verdict} {advice}".split()) in " ".join(str(metrics).split())
    assert f"<p>{escape(verdict)}</p><p>{escape(advice)}</p>" in metrics._repr_html_()
    capsys.readouterr()
    assert main(["evaluate", str(run), "--train", "shapes:200"]) == 0
    assert capsys.readouterr().out.endswith(f"{metrics}\n")


def test_layers_all_says_which_is_best_without_looking_at_the_test_set(run):
    said = []
    wanted = EvaluateOptions(run, train="shapes:200", test="shapes:100@test", layers=("all",), baselines=False)
    metrics = evaluate.run(wanted, said.append)
    scanned = [m for m in metrics if m.metric == "knn" and m.protocol.get("scan") == "layers"]
    assert len(scanned) == 6 * 3
    assert any(
        line.startswith("best by kNN (k 20), 5-fold cross-validation on 200 training images: block") for line in said
    )
    closing = metrics.closing[-1]
    assert closing.startswith("Best layer by kNN (k 20), 5-fold cross-validation on 200 training images: ")


def test_the_usual_layer_is_what_embed_takes_whatever_pooling_was_asked_for(run):
    """`--pooling cls` was called usual, although `embed` takes the encoder's own, which is the mean."""
    how = {"train": "shapes:60", "baselines": False, "metrics": ("knn",), "k": (3,)}
    closing = evaluate(run, layers=("last", "block03/+mlp"), pooling="cls", **how).closing[-1]
    assert re.search(r"the usual (one, )?block05/\+mlp, mean pooling", closing), closing


def test_what_counts_comes_last_behind_a_scan_of_all_layers(run, capsys):
    """One line of 55 matters, and stood above the table."""
    assert main(["evaluate", str(run), "--train", "shapes:200", "--layers", "all", "--no-baselines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    last = lines[-next(place for place, line in enumerate(reversed(lines)) if not line) :]
    assert last[0].startswith("Best layer by kNN (k 20), 5-fold cross-validation on 200 training images: ")
    assert " pooling" in " ".join(last) and len(last) <= 4
    assert any(line.startswith("Next: ") for line in lines[-8:]) and sum("scan layers" in line for line in lines) > 18


def test_snapshots_are_measured_with_their_step(run):
    metrics = evaluate(run, train="shapes:200", snapshots=True, baselines=False, metrics=("knn", "rank"))
    assert sorted({m.protocol["step"] for m in metrics if "step" in m.protocol}) == [10, 20, 30]


def test_rank_and_accuracy_are_correlated_across_runs_at_each_snapshot(run, tmp_path):
    """Against scipy, from the numbers that each run recorded. Other runs are made by turning the snapshots round."""
    runs = [tmp_path / f"run{turn}" for turn in range(3)]
    for turn, copy in enumerate(runs):
        copytree(run, copy, ignore=lambda *_: {"features", "results.json"})
        for folder in sorted((copy / "snapshots").iterdir()):
            folder.rename(folder.with_name(f"turned-{(int(folder.name[5:]) // 10 + turn - 1) % 3 * 10 + 10:08d}"))
        for folder in (copy / "snapshots").iterdir():
            folder.rename(folder.with_name(folder.name.replace("turned", "step")))
    asked = {"train": "shapes:100", "snapshots": True, "baselines": False, "metrics": ("knn", "rank")}
    metrics = evaluate(runs[0], against=tuple(map(str, runs[1:])), **asked)
    correlations = {m.protocol["step"]: m for m in metrics if m.metric == "pearson"}
    assert sorted(correlations) == [10, 20, 30]
    recorded = [[Metric.from_json(r) for r in json.loads((each / "results.json").read_text())] for each in runs]
    for step, metric in correlations.items():
        ranks, accuracies = (
            [next(m.value for m in ms if m.metric == name and m.protocol.get("step") == step) for ms in recorded]
            for name in ("rank_paper", "knn")
        )
        assert metric.value == pytest.approx(pearsonr(ranks, accuracies).statistic, abs=1e-9)
        assert metric.n == 3 and metric.interval == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"against": ("other",), "snapshots": True}, "a correlation needs 3 points"),
        ({"against": ("a", "b")}, "allowed: with --snapshots"),
        ({"against": ("RUN", "other"), "snapshots": True}, "a correlation needs 3 points"),
        ({"against": ("a", "b"), "snapshots": True, "metrics": ("rank",)}, "rank and one of knn and linear"),
    ],
)
def test_a_correlation_that_cannot_be_is_refused_before_any_work(run, asked, sentence):
    others = tuple(str(run) if other == "RUN" else other for other in asked["against"])
    with pytest.raises(ConfigError, match=sentence):
        evaluate(run, train="shapes:50", **asked | {"against": others})


def test_the_images_that_both_sets_share_are_counted_among_those_of_the_test(run):
    said: list[str] = []
    asked = EvaluateOptions(run, train="shapes:60", test="shapes:20", metrics=("rank",), baselines=False)
    evaluate.run(asked, said.append)
    assert any(line.startswith("20 of 20 images of --test are in --train too") for line in said), said


def test_a_correlation_with_a_run_that_has_no_snapshots_is_refused_before_any_work(run, tmp_path):
    others = [tmp_path / "other", tmp_path / "third"]
    for other in others:
        shutil.copytree(run, other, ignore=lambda *_: {"features", "snapshots"})
    with pytest.raises(RunError, match="other has no snapshots"):
        evaluate(run, train="shapes:50", snapshots=True, against=tuple(others), metrics=("knn", "rank"))
    assert not (others[0] / "features").exists()


def test_small_classes_have_fewer_folds_and_single_images_are_refused():
    few = blobs(12, 3)  # three images of each class
    assert knn(few, None, ks=[1], seed=0)[0].protocol["folds"] == 3
    with pytest.raises(DataError, match=r"most classes have a single image.*; give --test, or"):
        fold_count(torch.tensor([0, 1, 2, 3, 3]))
    assert fold_count(torch.arange(40) % 4) == 5


def test_the_map_of_an_encoder_without_class_token_pools_by_the_mean(run):
    encoder = raw_pixels(load(run))
    evaluation = Evaluation(encoder, None, None, EvaluateOptions("run", pooling="cls"), None, None, print)
    assert FeatureSource(evaluation, "trained", encoder).view == View("output", "mean")


def test_the_probe_of_mae_trains_on_augmented_images_and_says_how(run):
    train, test = open_images("shapes:80"), open_images("shapes:40@test")
    encoder, view = load(run), View("block05/+mlp")
    features = extract(encoder, test, [view], cache=None)[view]
    heard: list[int] = []
    metric = mae_linear(
        encoder, train, features, view=view, seed=0, epochs=2, report=lambda done, total: heard.append(done)
    )
    asked = {"probe": "mae", "epochs": 2, "batch_size": 80, "train_n": 80, "layer": view.layer, "pooling": "mean"}
    assert metric.protocol == {**asked, "seed": 0} and metric.n == 40 and heard == [1, 2]


def test_the_probe_of_mae_has_the_epochs_of_its_authors(run):
    """ViT-B 90; ViT-L and ViT-H 50, by FINETUNE.md of facebookresearch/mae."""
    assert load(run).depth == 6
    assert [mae_epochs(depth) for depth in (6, 12, 24, 32)] == [90, 90, 50, 50]


def test_pictures_and_segmentation(run):
    metrics = evaluate(
        run,
        train="shapes:60",
        metrics=("spectral", "reconstruct", "tsne"),
        images=30,
        baselines=False,
    )
    assert [m.metric for m in metrics] == ["miou", "miou_object"]
    assert [m.protocol["classes"] for m in metrics] == [11, 2]
    assert [m.protocol["drawn"] for m in metrics] == ["stratified"] * 2, "30 of 60: not the first ones"
    assert all(m.interval and 0 <= m.interval[0] <= m.value <= m.interval[1] <= 1 for m in metrics)
    names = {path.name for path in (run / "figures").iterdir()}
    assert names >= {"spectral-trained.png", "reconstructions.png", "tsne.png"}


def test_unlabelled_images_are_measured_by_what_needs_no_labels(run, tmp_path):
    from PIL import Image

    images = open_images("shapes:30")
    for index in range(30):
        Image.fromarray(images.get([index]).pixels[0].transpose(1, 2, 0)).save(tmp_path / f"{index}.png")
    said = []
    metrics = evaluate.run(EvaluateOptions(run, train=tmp_path, baselines=False), said.append)
    assert {m.metric for m in metrics} == {"rank_paper", "rank_centered", "rankme"}
    assert "--train has no labels, which knn and linear need" in said[0]
    with pytest.raises(DataError, match="--train has no labels, which knn needs; give"):
        evaluate(run, train=tmp_path, metrics=("knn",))


def test_a_single_class_is_named_and_measures_no_accuracy(run, tmp_path):
    from PIL import Image

    for index in range(12):
        Image.new("RGB", (32, 32), (index, 90, 200)).save(tmp_path / f"{index}.png")
    labels = tmp_path / "one.csv"
    labels.write_text("path,label\n" + "".join(f"{index}.png,cat\n" for index in range(12)))
    said = []
    metrics = evaluate.run(EvaluateOptions(run, train=tmp_path, labels=labels, baselines=False), said.append)
    assert {m.metric for m in metrics} == {"rank_paper", "rank_centered", "rankme"}
    sentence = "--train has one class, 'cat' (from one.csv), and knn and linear need two or more"
    assert any(line.startswith(sentence) for line in said)
    with pytest.raises(DataError, match=r"--train has one class, 'cat' \(from one.csv\), and knn needs two"):
        evaluate(run, train=tmp_path, labels=labels, metrics=("knn",))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"k": (0,)}, "k is 0; allowed: a whole number, 1 or more"),
        ({"probe": ("quick", "mae")}, "probe is 'mae without --test'; allowed: give --test"),
        ({"layers": ("block06/+mlp",)}, "layers is 'block06/[+]mlp'; allowed: last, all, block00/[+]mlp"),
        ({"layers": ("last", "blok05")}, "layers is 'blok05'"),
    ],
)
def test_bad_options_are_refused_before_any_feature_is_computed(run, tmp_path, asked, sentence):
    copytree(run, tmp_path / "run", ignore=lambda *_: {"features"})
    with pytest.raises(ConfigError, match=sentence):
        evaluate(tmp_path / "run", train="shapes:50", **asked)
    assert not (tmp_path / "run" / "features").exists()


def test_every_measurement_is_in_both_tables_and_yields_metrics_of_the_table():
    assert set(YIELDS) == set(MEASUREMENTS)
    assert {name for names in YIELDS.values() for name in names} <= set(METRICS)


def test_a_measurement_added_from_outside_is_accepted_measured_and_shown(run, monkeypatch, tmp_path):
    """Three tables and nothing else: what it means, what it yields, how it is made."""

    def measure_spread(source: FeatureSource) -> list[Metric]:
        features = source.test_or_train[source.view].features_ND
        return [Metric(metric="spread", value=float(features.std()), n=len(features), protocol=source.protocol)]

    monkeypatch.setitem(METRICS, "spread", MetricInfo("Spread", "spread", "number", 0, "Standard deviation."))
    monkeypatch.setitem(YIELDS, "spread", ("spread",))
    monkeypatch.setitem(MEASUREMENTS, "spread", Measurement(measure=measure_spread))
    metrics = evaluate(run, train="shapes:60", metrics=("spread",))
    assert [(m.metric, m.protocol["features"]) for m in metrics] == [
        ("spread", "trained"),
        ("spread", "raw pixels"),
        ("spread", "untrained"),
    ]
    assert grid("shapes", SweepOptions("DATA", out="OUT", metrics=("spread",))).quantities[0].heading == "spread"
    with pytest.raises(ConfigError, match=r"metrics is 'sprade'; allowed: knn, .*spread; did you mean 'spread'"):
        EvaluateOptions("RUN", metrics=("sprade",))


def test_bad_input_is_refused_in_one_sentence(run, tmp_path, capsys):
    with pytest.raises(DataError, match="the test set has classes that the training set lacks: 5, 6, 7, 8, 9"):
        check_labels(torch.arange(5), torch.arange(10))
    with pytest.raises(RunError, match="no snapshots to measure"):
        copytree(run, tmp_path / "bare", ignore=lambda *_: {"snapshots"})
        evaluate(tmp_path / "bare", train="shapes:50", snapshots=True, metrics=("rank",))
    assert main(["evaluate", str(run), "--train", str(tmp_path / "nowhere")]) == 2
    assert main(["evaluate", str(tmp_path / "nothing")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_more_neighbours_than_images_of_a_class_are_said(run, capsys):
    """In five folds, a fifth of each class is predicted and the others are there to vote."""
    folds = {"train": "shapes:60", "metrics": ("knn",), "baselines": False, "cache": False}
    (metric, _) = evaluate(run, **folds, k=(20, 3))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("knn: "))
    typical = int(open_images("shapes:60").labels.bincount().median())
    left = typical - -(-typical // 5)
    assert line.startswith(f"knn: k is 20, but a typical class has {left} training images in each of 5 folds: nearly")
    assert "nearly every vote then includes images of other classes (the nearest images count most); --k" in line
    assert metric.protocol["k"] == 20, "what was asked for is measured"
    evaluate(run, **folds | {"train": "shapes:400"}, test="shapes:50@test", k=(20,))
    assert "knn: " not in capsys.readouterr().out


def test_a_single_neighbour_is_never_too_many(run, tmp_path, capsys):
    """Two classes of two images leave one of each to learn from; `--k 1` was answered by: --k 1 asks fewer."""
    from PIL import Image

    for number in range(4):
        file = tmp_path / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        Image.new("RGB", (32, 32), (60 * number, 90, 120)).save(file)
    asked = {"train": tmp_path, "metrics": ("knn",), "baselines": False, "cache": False}
    evaluate(run, **asked, k=(1,))
    assert "knn: " not in capsys.readouterr().out
    evaluate(run, **asked, k=(1, 3))
    assert "knn: k is 3, but a typical class has 1 training image in" in capsys.readouterr().out
