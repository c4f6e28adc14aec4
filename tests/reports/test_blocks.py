"""Accuracy by block: one curve per setting, the mean over its seeds with their interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.config.metrics import Metric
from echoless.measures import mean_interval
from echoless.reports.blocks import accuracy_by_block, profiles, ticks
from echoless.reports.collect import RunData
from echoless.reports.compare import Group
from echoless.reports.learned import learned_figures


def scanned(layer: str, value: float, **protocol: object) -> Metric:
    about = {"features": "trained", "pooling": "mean", "scan": "layers", "layer": layer, **protocol}
    return Metric(metric="knn", value=value, n=100, interval=(value - 0.02, value + 0.02), protocol=about)


def setting(name: str, first: int, *runs: list[Metric]) -> Group:
    found = [
        RunData(path=Path(name), name=name, config={"seed": seed}, results=results) for seed, results in enumerate(runs)
    ]
    return Group(name, tuple(found), first)


def test_layers_are_in_order_of_depth_and_values_are_means_over_seeds():
    group = setting(
        "faded",
        1,
        [scanned("norm", 0.5), scanned("block01", 0.3), scanned("block00", 0.1), scanned("embed", 0.05)],
        [scanned("block00", 0.2), scanned("block01", 0.4), scanned("norm", 0.9), scanned("embed", 0.15)],
    )
    (profile,) = profiles([group], "knn")
    assert profile.layers == ["embed", "block00", "block01", "norm"]
    assert [estimate.value for estimate in profile.estimates] == pytest.approx([0.1, 0.15, 0.35, 0.7])
    assert profile.estimates[1].interval == pytest.approx(mean_interval([0.1, 0.2])[1:])


def test_the_axis_counts_layers_as_their_names_do():
    """Below the curves stood 1 to 6, in the caption and in every table block00 to block05."""
    layers = [f"block{block:02d}/+mlp" for block in range(6)]
    assert ticks(layers) == ["0", "1", "2", "3", "4", "5"]
    assert ticks(["embed", "block00/+mlp", "block11/+mlp", "norm"]) == ["embed", "0", "11", "norm"]
    assert ticks(["block03/attn", "block03/+mlp"]) == ["3/attn", "3/+mlp"], "two of one block keep their places"
    results = [scanned(layer, 0.1 + 0.1 * place) for place, layer in enumerate(layers)]
    run = RunData(path=Path("r"), name="r", results=results)
    ((_, (alone,)),) = learned_figures([run])
    shared = accuracy_by_block([setting("plain", 0, results), setting("faded", 1, results)])
    for figure, caption in (
        (alone, "Layer 0 is block00/+mlp, 5 is block05/+mlp."),
        (shared, " 0 is block00/+mlp, 5 is"),
    ):
        assert (
            caption in figure.caption and ">5</text>" in str(figure.drawing) and ">6</text>" not in str(figure.drawing)
        )


def test_other_poolings_snapshots_and_untrained_encoders_are_no_part_of_it():
    others = [scanned("block00", 0.9, pooling="cls"), scanned("block00", 0.9, step=10)]
    others.append(scanned("block00", 0.9, features="untrained"))
    group = setting("plain", 0, [scanned("block00", 0.1), scanned("block01", 0.2), *others])
    assert [estimate.value for estimate in profiles([group], "knn")[0].estimates] == [0.1, 0.2]


def test_there_is_no_chart_of_a_single_setting():
    plain = setting("plain", 0, [scanned("block00", 0.1), scanned("block01", 0.2)])
    assert accuracy_by_block([plain]) is None
    figure = accuracy_by_block([plain, setting("faded", 1, [scanned("block00", 0.1), scanned("block01", 0.4)])])
    assert figure is not None and [name for *_, name in figure.key] == ["plain", "faded"]


def test_two_evaluations_of_one_run_are_not_two_seeds():
    """The mean of 600 and of 50 test images was drawn as that of two seeds, with an interval over them."""
    many = [scanned("block00", 0.1, test_set="many"), scanned("block01", 0.2, test_set="many")]
    few = [scanned("block00", 0.9, test_set="few"), scanned("block01", 0.8, test_set="few")]
    again = [scanned("block01", 0.25, test_set="many", k=7)]
    groups = [setting("plain", 0, [*few, *many, *again]), setting("faded", 1, many)]
    assert [estimate.value for estimate in profiles(groups, "knn")[0].estimates] == [0.1, 0.25]
    assert all(estimate.seeds == 1 for profile in profiles(groups, "knn") for estimate in profile.estimates)


def test_curves_of_several_runs_are_of_images_that_they_share():
    """One run was drawn on the images of its first scan, the other on those of its only one."""
    shared = [scanned("block00", 0.1, test_set="shared"), scanned("block01", 0.2, test_set="shared")]
    own = [scanned("block00", 0.91, test_set="own"), scanned("block01", 0.92, test_set="own")]

    def by_layer(first: list[Metric]) -> str:
        runs = [RunData(path=Path(name), name=name, results=found) for name, found in (("a", first), ("b", shared))]
        return next(str(figures[0].drawing) for heading, figures in learned_figures(runs) if heading == "By layer")

    assert by_layer([*own, *shared]) == by_layer(shared) != by_layer(own)
