"""What an evaluation says in plain words follows from its numbers: four cases whose answer is known by hand."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.stats
import torch

from echoless.cli.parsing import parse
from echoless.config.metrics import Metric, table
from echoless.config.options import FinetuneOptions, PretrainOptions
from echoless.config.words import best_of, collapsed, in_words, tuned_in_words
from echoless.measures import accuracy_interval
from echoless.measures.outcomes import kept
from echoless.reports.gains import paired_interval


def linear(value: float, features: str = "trained", **protocol) -> Metric:
    interval = (value - 0.02, value + 0.02)
    return Metric(metric="linear", value=value, n=500, interval=interval, protocol={"features": features, **protocol})


def rankme(value: float, **protocol) -> Metric:
    return Metric(metric="rankme", value=value, n=500, protocol={"features": "trained", **protocol})


@pytest.mark.parametrize(
    ("metrics", "verdict", "step", "tone"),
    [
        (
            [linear(0.5), linear(0.3, "raw pixels"), linear(0.2, "untrained"), rankme(30.0)],
            "it beats raw pixels (30.00 %) by 20.0 points and it beats untrained (20.00 %) by 30.0 points. They use",
            "Use them: echoless embed RUN DATA",
            "good",
        ),
        (
            [linear(0.3), linear(0.31, "raw pixels")],
            "it does not clearly differ from raw pixels (31.00 %)",
            "longer",
            "neutral",
        ),
        (
            [linear(0.2), linear(0.31, "raw pixels")],
            "worse than raw pixels (31.00 %) by 11.0 points",
            "Train longer",
            "warning",
        ),
        (
            [linear(0.9, overlap=12)],
            "12 of 500 images trained the encoder by their labels",
            "Give --test images",
            "warning",
        ),
        (
            [linear(0.9, test="val", overlap=12)],
            "12 of 500 images trained the probe or, by label, the encoder",
            "Give --test images",
            "warning",
        ),
        (
            [linear(0.9, test="val", overlap=12, overlap_by_label=0)],
            "12 of 500 images are in the training set too",
            "Give --test images",
            "warning",
        ),
        ([linear(0.5), rankme(1.2)], "The features collapsed: RankMe is 1.2", "--alpha-min", "warning"),
        (
            [linear(0.5), rankme(2.6)],
            "about 2.6 directions (RankMe of 500 images), which is close to a collapse",
            "",
            "neutral",
        ),
        (
            [rankme(9.0)],
            "have not collapsed. How good they are, labels alone can tell.",
            "--labels FILE.csv",
            "neutral",
        ),
    ],
)
def test_the_verdict_the_next_step_and_the_tone(metrics, verdict, step, tone):
    words = in_words(metrics)
    assert verdict in words.verdict and step in words.next and words.tone == tone


def test_nothing_is_compared_on_a_few_images_or_on_the_tiles_of_a_few_files():
    """Six right answers of six are no 100 %, and 500 tiles of six files are no 500 images."""
    few = [replace(linear(1.0), n=6), replace(linear(0.5, "raw pixels"), n=6)]
    tiles = [linear(1.0, files=6), linear(0.5, "raw pixels", files=6)]
    for metrics, where in ((few, "6 images"), (tiles, "6 files")):
        words = in_words(metrics)
        assert words.verdict.endswith(f"is 100.00 % on {where}: too few to compare with anything.")
        assert words.tone == "neutral"


def test_a_baseline_on_other_images_is_not_spoken_of():
    """A run that was measured on two sets has baselines on both."""
    words = in_words([linear(0.1, "raw pixels", train_set="aa"), linear(0.5, train_set="bb")])
    assert "no baseline was measured" in words.verdict
    words = in_words([linear(0.1, "raw pixels", train_set="aa"), linear(0.5, train_set="aa", layer="block05/+mlp")])
    assert "it beats raw pixels (10.00 %)" in words.verdict


def test_a_run_is_trained_longer_by_options_that_its_own_verb_has():
    """A fine-tuned run was told to give --time and --alpha-min, which `finetune` refuses."""
    worse = [linear(0.2), linear(0.31, "raw pixels")]
    assert in_words(worse).next.startswith("Train longer (--resume with more --max-steps, ")
    assert in_words(worse, verb="finetune").next.startswith("Train longer (--epochs, ")
    assert "--alpha-min" not in in_words([rankme(1.2)], verb="finetune").next
    for advice, options in (
        (in_words(worse, verb="finetune").next, FinetuneOptions),
        (in_words(worse).next, PretrainOptions),
    ):
        for name in re.findall(r"--([a-z-]+)", advice.partition(")")[0]):
            assert name.replace("-", "_") in {field.name for field in fields(options)}


def test_weights_that_no_verb_trained_are_not_trained_longer_but_started_from():
    """Of a transformers folder, `evaluate` advised "--resume with more --max-steps"."""
    command = "(echoless pretrain DATA --init hfvit --out RUN)"
    worse, equal = [linear(0.2), linear(0.31, "raw pixels")], [linear(0.3), linear(0.31, "raw pixels")]
    assert in_words(worse, "hfvit", verb="").next.startswith(f"Train it on your images {command}. Another layer")
    assert in_words(equal, "hfvit", verb="").next.startswith(f"Train it on your images {command} or label more images.")
    assert in_words([rankme(1.2)], "hfvit", verb="").next.endswith(f"Train it on your images {command}.")
    assert "echoless pretrain DATA --out RUN" in in_words(worse, "timm:vit_tiny_patch16_224", verb="").next
    assert "--init 'my vit' --out RUN" in in_words(worse, "my vit", verb="").next
    assert parse(PretrainOptions, shlex.split(command.strip("()"))[2:], "echoless pretrain").init == "hfvit"


def test_the_rank_that_is_spoken_of_is_that_of_the_images_of_the_accuracy():
    """A run was measured on labelled images, then on others: their rank stood beside the first accuracy."""
    labelled, others = linear(0.5, train_set="aa"), rankme(3.9, train_set="bb")
    assert "RankMe" not in in_words([labelled, others]).verdict
    assert "about 4.2 directions" in in_words([rankme(4.2, train_set="aa"), labelled, others]).verdict
    collapsed = in_words([labelled, rankme(1.1, train_set="bb")])
    assert "collapsed" not in collapsed.verdict, "on other images"


def test_the_strongest_evaluation_is_spoken_of_and_no_overlap_where_there_is_a_test():
    """A page was headed by a number that was no test, or by one of few labels although there was one of more."""
    few, inflated = linear(0.4, train_set="aa", label_set="x"), linear(0.9, train_set="bb", overlap=12)
    assert "is 40.00 %" in in_words([few, inflated]).verdict
    more = Metric(metric="knn", value=0.5, n=600, interval=(0.4, 0.6), protocol={"train_set": "aa", "label_set": "y"})
    assert "kNN accuracy of the trained features is 50.00 %" in in_words([few, inflated, more]).verdict
    assert "is 50.00 %" in in_words([more, inflated, few]).verdict, "in whatever order they were measured"


def test_without_labels_of_the_test_set_those_are_asked_for():
    """`--labels` was given, and asked for again."""
    assert "--test-labels FILE.csv for --test" in in_words([rankme(9.0, test="HELD_OUT")]).next


def test_the_checkpoint_of_a_stopped_run_is_compared_with_its_baselines():
    """Baselines have no checkpoint: its entry in the protocol does not make them another measurement."""
    words = in_words([linear(0.2, checkpoint=188), linear(0.31, "raw pixels")])
    assert "features at step 188 is 20.00 %: it is worse than raw pixels (31.00 %)" in words.verdict
    assert words.tone == "warning" and "continue it with --resume" in words.next
    words = in_words([linear(0.3, checkpoint=188), linear(0.31, "raw pixels")])
    assert words.tone == "neutral" and "continue it with --resume" in words.next


def test_the_end_of_a_run_counts_before_its_checkpoints_and_a_later_one_before_an_earlier():
    """In whatever order they were measured: the results of a run that was stopped twice hold all of them."""
    early, late, end = linear(0.2, checkpoint=9), linear(0.3, checkpoint=188), linear(0.4)
    assert "features is 40.00 %" in in_words([end, late, early]).verdict
    assert "features at step 188 is 30.00 %" in in_words([late, early]).verdict


def test_without_baselines_the_next_step_is_to_measure_them():
    words = in_words([linear(0.5)])
    assert "no baseline was measured" in words.verdict and words.tone == "neutral"
    assert words.next.endswith("echoless evaluate RUN --baselines, with the same images and labels."), (
        "the page of a sweep said `the same command`, and `sweep` has no --baselines"
    )


def test_an_accuracy_that_naming_the_largest_class_reaches_too_is_called_so():
    """0.38 with the interval [0.36, 0.40] is not above 0.37, though it beats raw pixels; it is above 0.35."""
    words = in_words([linear(0.38, chance=0.37), linear(0.2, "raw pixels", chance=0.37)])
    assert (
        "(20.00 %) by 18.0 points and it is not clearly better than always naming the largest class of the test images "
        "(37.00 %)." in words.verdict
    )
    assert words.tone == "neutral" and "Use them" not in words.next
    words = in_words([linear(0.38, chance=0.35), linear(0.2, "raw pixels", chance=0.35)])
    assert "largest class" not in words.verdict and words.tone == "good"


def test_an_accuracy_below_chance_in_folds_is_explained_and_asks_for_labels():
    """Of noise with few labels, a fold takes away what it asks for; a test set has no folds to blame."""
    folded = [linear(0.2, chance=0.25, folds=5), linear(0.3, "raw pixels", chance=0.25, folds=5)]
    words = in_words(folded)
    assert "it is below always naming the largest class of the test images (25.00 %)" in words.verdict
    assert words.next.startswith("Label more images, or give --test: folds of few images leave some classes too few")
    assert words.tone == "warning"
    for chance, protocol in ((0.21, {"folds": 5}), (0.25, {})):
        words = in_words([linear(0.2, chance=chance, **protocol)])
        assert "is not clearly better than always naming" in words.verdict and "folds" not in words.next


@pytest.mark.parametrize(
    ("trained", "test", "where"), [(1.0, {}, "in different folds"), (0.99, {"test": "HELD_OUT"}, "in both sets")]
)
def test_a_test_that_raw_pixels_pass_is_called_too_easy(trained, test, where):
    """Frames of a film: every fold holds the neighbours of the others, and all features are right. No longer training
    and no more labels change that."""
    words = in_words([linear(trained, **test), linear(1.0, "raw pixels", **test), linear(0.98, "untrained", **test)])
    assert "too easy to tell encoders apart (raw pixels and untrained: nearly perfect)" in words.verdict
    assert f"neighbouring frames, lie {where}, or the labels show in the pixels" in words.verdict
    assert words.next == "Measure on images of other scenes, patients or files: --test DATA."
    assert words.tone == "warning"


def test_a_test_with_one_large_class_is_not_called_too_easy():
    words = in_words([linear(0.99, chance=0.98), linear(0.98, "raw pixels", chance=0.98)])
    assert "too easy" not in words.verdict


def test_the_next_step_is_not_what_was_just_done():
    measured = [linear(0.5), linear(0.3, "raw pixels")]
    advice = "Another layer may be better: echoless evaluate RUN --layers all, with the same images and labels."
    assert in_words(measured).next.endswith(advice)
    assert "--layers all" not in in_words([*measured, linear(0.4, scan="layers")]).next


def test_a_scan_that_the_run_holds_is_not_asked_for_again():
    """One layer was measured by its name, after a scan of all on the same images."""
    measured = [linear(0.5, layer="block02/+mlp", train_set="aa"), linear(0.3, "raw pixels", train_set="aa")]
    scan = linear(0.4, scan="layers", train_set="aa")
    assert "--layers all" not in in_words(measured, known=[scan]).next
    for other in ({"train_set": "bb"}, {"train_set": "aa", "checkpoint": 9}):
        elsewhere = linear(0.4, scan="layers", **other)
        assert "--layers all" in in_words(measured, known=[elsewhere]).next, "other images, other weights"


def test_a_run_that_is_not_finished_has_not_collapsed():
    words = in_words([rankme(1.2, checkpoint=15)])
    assert words.verdict.startswith("RankMe is 1.2 at step 15") and "--resume" in words.next and words.tone == "neutral"


def test_nothing_is_said_where_nothing_was_measured_and_scans_do_not_count():
    assert in_words([]) is None
    assert in_words([linear(0.9, scan="layers")]) is None


def answered(right_N: np.ndarray, features: str, metric: str = "linear", groups_N: np.ndarray | None = None) -> Metric:
    """As an evaluation records them: with the interval of each alone, and with which images were right."""
    answers, groups = (None if each is None else torch.from_numpy(each) for each in (right_N, groups_N))
    value, low, high = accuracy_interval(answers, generator=torch.Generator().manual_seed(0), groups_N=groups)
    fields = {"interval": (low, high), "protocol": {"features": features}, **kept(answers, groups)}
    return Metric(metric=metric, value=value, n=len(answers), **fields)


def test_trained_features_and_their_baselines_are_compared_image_by_image():
    """Where both err on the same images, their intervals overlap although one is better on nearly all that differ."""
    draw = np.random.default_rng(0)
    raw = draw.random(500) < 0.6
    trained = raw | (draw.random(500) < 0.1)
    metrics = [answered(trained, "trained"), answered(raw, "raw pixels")]
    assert metrics[0].interval[0] < metrics[1].interval[1], "they overlap"
    gain = 100 * (trained.mean() - raw.mean())
    theirs = scipy.stats.binomtest(int((trained & ~raw).sum()), int((trained != raw).sum()))
    assert theirs.pvalue < 1e-3
    assert (
        f"it beats raw pixels ({100 * raw.mean():.2f} %) by {gain:.1f} points."
        in in_words(metrics, differ=paired_interval).verdict
    )
    without = [replace(metric, right="") for metric in metrics]
    assert "does not clearly differ from raw pixels" in in_words(without, differ=paired_interval).verdict


def test_a_gain_in_one_file_of_tiles_is_no_clear_gain():
    file_N = np.arange(500) // 100
    raw = np.random.default_rng(0).random(500) < 0.5
    trained = raw | (file_N == 0)
    by_tile, by_file = (
        in_words(
            [answered(trained, "trained", groups_N=each), answered(raw, "raw pixels", groups_N=each)],
            differ=paired_interval,
        )
        for each in (None, file_N)
    )
    assert "it beats raw pixels" in by_tile.verdict and "does not clearly differ from raw pixels" in by_file.verdict


def test_without_the_answers_the_interval_of_the_difference_decides_and_not_whether_two_intervals_overlap():
    """0.50 +- 0.02 and 0.465 +- 0.02 overlap; their difference is 0.035 +- 0.028."""
    words = in_words([linear(0.5), linear(0.465, "raw pixels")])
    assert "it beats raw pixels (46.50 %) by 3.5 points." in words.verdict
    assert "does not clearly differ" in in_words([linear(0.5), linear(0.475, "raw pixels")]).verdict


def test_neighbours_that_disagree_with_the_probe_about_raw_pixels_are_heard():
    def near(value: float, features: str) -> Metric:
        return replace(linear(value, features), metric="knn")

    probed = [linear(0.5), linear(0.3, "raw pixels")]
    words = in_words([near(0.3, "trained"), near(0.31, "raw pixels"), *probed])
    assert words.verdict.endswith("By kNN they do not clearly differ from raw pixels (30.00 % and 31.00 %).")
    words = in_words([near(0.2, "trained"), near(0.31, "raw pixels"), *probed])
    assert words.verdict.endswith("By kNN they are worse than raw pixels (20.00 % and 31.00 %).")
    assert "By kNN" not in in_words([near(0.4, "trained"), near(0.31, "raw pixels"), *probed]).verdict
    assert "By kNN" not in in_words([near(0.4, "trained"), *probed]).verdict


def tuned(value: float, **protocol) -> Metric:
    sets = {"train_set": "aa", "test_set": "bb", "chance": 0.12, "train_n": 120, **protocol}
    return Metric(metric="finetune", value=value, n=500, interval=(value - 0.02, value + 0.02), protocol=sets)


@pytest.mark.parametrize(
    ("metric", "frozen", "verdict", "step", "tone"),
    [
        (
            tuned(0.11),
            [],
            "not clearly better than always naming the largest class of the test images (12.00 %) and",
            "Train longer (--epochs, or --resume with more --max-steps) or label more images. Measure the frozen",
            "warning",
        ),
        (
            tuned(0.5),
            [],
            "is 50.00 %: it is clearly above the largest class of the test images (12.00 %) and the frozen",
            "Measure the frozen features on the same images: echoless evaluate RUN --train L",
            "neutral",
        ),
        (
            tuned(0.5),
            [linear(0.4, train_set="aa", test_set="cc")],
            "were not measured on these images",
            "echoless evaluate",
            "neutral",
        ),
        (
            tuned(0.5),
            [linear(0.4, train_set="aa", test_set="bb")],
            "it beats linear probe accuracy of the frozen features (40.00 %) by 10.0 points.",
            "Use it: echoless embed TUNED",
            "good",
        ),
        (
            tuned(0.5),
            [linear(0.51, train_set="aa", test_set="bb")],
            "and it does not clearly differ from linear probe accuracy",
            "Train longer",
            "neutral",
        ),
        (
            tuned(0.5),
            [linear(0.6, train_set="aa", test_set="bb")],
            "it is worse than linear probe accuracy of the frozen features (60.00 %)",
            "Train longer",
            "warning",
        ),
        (
            tuned(0.9, overlap=40, overlap_by_label=0),
            [],
            "90.00 % is not a test: 40 of 500 images are in the training set too",
            "--test images",
            "warning",
        ),
        (
            tuned(0.9, overlap=40, overlap_by_label=40),
            [],
            "90.00 % is not a test: 40 of 500 images trained the encoder by their labels",
            "--test images",
            "warning",
        ),
        (tuned(0.9, files=6), [], "on 6 files: too few", "Label more test images", "neutral"),
    ],
)
def test_a_fine_tuned_accuracy_is_compared_with_chance_and_with_the_frozen_features(
    metric, frozen, verdict, step, tone
):
    """A bare 8.33 % says nothing: chance was 11.67 %, and a probe of the frozen encoder had 38 %."""
    words = tuned_in_words(metric, frozen, "echoless evaluate RUN --train L --test T")
    assert verdict in words.verdict and step in words.next and words.tone == tone


def test_the_best_value_is_marked_only_beyond_the_intervals_and_a_rank_never():
    metrics = [linear(0.5), linear(0.3, "raw pixels"), rankme(3.0), rankme(9.0)]
    assert best_of(metrics) == [True, False, False, False]
    assert best_of([linear(0.5), linear(0.49, "raw pixels")]) == [False, False]
    text = table(metrics, best_of(metrics))
    assert "50.00 % [48.00, 52.00]*" in text and text.count("*") == 1
    assert max(map(len, text.splitlines())) <= 100


def test_the_rank_of_a_handful_of_images_says_nothing_of_the_encoder():
    few = Metric(metric="rankme", value=1.2, n=5, protocol={"features": "trained"})
    assert collapsed(few) is None and collapsed(rankme(1.2)) is not None and collapsed(rankme(2.5)) is None
    words = in_words([few])
    assert words.verdict == "5 images are too few to say whether the features collapsed." and "labels" in words.next


def test_a_collapse_after_a_short_run_is_answered_by_more_training_first():
    """Without a checkpoint in the protocol the run has ended, which says nothing about its length."""
    words = collapsed(rankme(1.7))
    assert words.next.index("train longer") < words.next.index("--alpha-min")
    assert "look the same to the encoder" in words.verdict


def test_the_table_breaks_no_word_at_its_hyphen():
    """`sub-` at the end of a line would be read as another word."""
    for width in range(40, 100):
        protocol = {"train": "x" * width, "labels": "sub-folders"}
        lines = table([linear(0.5, **protocol), linear(0.4, "raw pixels", **protocol)]).splitlines()
        assert any("sub-folders" in line for line in lines)
