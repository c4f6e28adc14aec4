"""Proves the three probes: the optimum against scikit-learn on real images, the recipes against their steps.

Run alone: pytest tests/measures/test_probe.py. The real features are CIFAR-10 images where the data is at hand.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from torch import nn

from echoless.errors import ConfigError, DataError
from echoless.measures import LARS, accuracy, imagenet100_probe, mae_probe, quick_probe, shuffled_batches
from echoless.measures import probe as probe_module
from echoless.measures.logistic import PENALTIES, fit_logistic, refine
from echoless.measures.splits import groups_per_class, stratified_folds


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 real handwritten digits of 8 x 8 pixels, which scikit-learn carries with it."""
    data = load_digits()
    return torch.from_numpy(data.data).float(), torch.from_numpy(data.target).long()


def clusters(n: int, dim: int = 8, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    centres = torch.randn(classes, dim, generator=generator(99))
    labels = torch.randint(classes, (n,), generator=generator(seed))
    return centres[labels] + torch.randn(n, dim, generator=generator(seed + 1)), labels


def by_scikit_learn(probe, train, labels, test) -> tuple[LogisticRegression, np.ndarray]:
    standard = [((x - probe.mean_D) * probe.scale_D).double().numpy() for x in (train, test)]
    model = LogisticRegression(C=1 / probe.settings["penalty"], tol=1e-7, max_iter=20_000)
    model.fit(standard[0], labels.numpy())
    return model, model.predict(standard[1])


def mean_objective(probe, train, labels, weight, bias) -> float:
    standard = ((train - probe.mean_D) * probe.scale_D).double()
    loss = nn.functional.cross_entropy(standard @ weight + bias, labels)
    weight = weight - weight.mean(dim=1, keepdim=True)  # softmax does not see a common shift
    return float(loss + probe.settings["penalty"] / 2 * weight.square().sum() / len(train))


def test_the_quick_probe_is_logistic_regression_at_convergence_on_real_digits():
    features, labels = digits()
    train, test = features[:1200], features[1200:]
    probe = quick_probe(train, labels[:1200], generator=generator())
    model, expected = by_scikit_learn(probe, train, labels[:1200], test)
    ours = accuracy(probe.predict(test), labels[1200:])
    theirs = float((expected == labels[1200:].numpy()).mean())
    print(f"quick probe digits ours={ours:.4f} sklearn={theirs:.4f} penalty={probe.settings['penalty']}")
    assert abs(ours - theirs) <= 0.003
    best = mean_objective(
        probe, train, labels[:1200], torch.from_numpy(model.coef_.T), torch.from_numpy(model.intercept_)
    )
    found = mean_objective(probe, train, labels[:1200], probe.weight_DC.double(), probe.bias_C.double())
    assert best <= found <= best + 1e-4


CIFAR10 = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10"


def cifar10(split: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images averaged to 8 x 8 pixels: 192 real, correlated features."""
    table = pq.ParquetFile(CIFAR10 / f"{split}.parquet").read().slice(0, rows)
    images, labels = (table.column(i).to_pylist() for i in range(2))
    pixels = [np.asarray(Image.open(io.BytesIO(image["bytes"])).convert("RGB").reduce(4)) for image in images]
    return torch.from_numpy(np.stack(pixels)).flatten(1).float(), torch.tensor(labels)


@pytest.mark.skipif(
    not CIFAR10.exists(), reason=f"CIFAR-10 IS NOT AT {CIFAR10.parent.name}/{CIFAR10.name}: NOT CHECKED"
)
def test_the_quick_probe_is_logistic_regression_at_convergence_on_cifar10():
    (train, labels), (test, answers) = cifar10("train", 3000), cifar10("test", 2000)
    probe = quick_probe(train, labels, generator=generator())
    _, expected = by_scikit_learn(probe, train, labels, test)
    ours, theirs = accuracy(probe.predict(test), answers), float((expected == answers.numpy()).mean())
    print(f"quick probe CIFAR-10 ours={ours:.4f} sklearn={theirs:.4f} penalty={probe.settings['penalty']}")
    assert abs(ours - theirs) <= 0.003


def test_many_blocks_of_rows_on_two_threads_have_the_minimum_of_scikit_learn():
    """9,001 rows: five blocks, none of them full."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(9001, 12, generator=generator)
    labels = (features @ torch.randn(12, 4, generator=generator) + torch.randn(9001, 4, generator=generator)).argmax(1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        weight, bias = fit_logistic(features, labels, 4, penalty=1.0, tolerance=1e-6)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(features.double().numpy(), labels.numpy())
    ours = torch.cat([weight, bias.unsqueeze(1)], dim=1).double()
    expected = torch.from_numpy(np.concatenate([theirs.coef_, theirs.intercept_[:, None]], axis=1))
    ours[:, -1] -= ours[:, -1].mean() - expected[:, -1].mean()  # a constant for all classes changes nothing
    torch.testing.assert_close(ours, expected, rtol=0, atol=2e-3)


def drawn(kind: str, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Five classes; the last one is rare."""
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(rows, 16, generator=draws) @ torch.randn(16, 24, generator=draws)  # 24 of rank 16
    noise = 0.0 if kind == "separable" else 5.0
    scores = features @ torch.randn(24, 5, generator=draws) + noise * torch.randn(rows, 5, generator=draws)
    scores[:, 4] -= 25 if kind == "rare class" else 0
    if kind == "repeated features":
        features = torch.cat([features, features[:, :3], torch.full((rows, 1), 7.0)], dim=1)
    return features, scores.argmax(dim=1)


@pytest.mark.parametrize("kind", ["noisy", "rare class", "repeated features", "separable"])
def test_many_rows_are_fitted_from_a_few_to_the_minimum_of_scikit_learn(kind):
    """12,000 rows: the metric of each class comes from 5,000 of them."""
    features, labels = drawn(kind, 12_000)
    probe = quick_probe(features, labels, generator=generator())
    model, _ = by_scikit_learn(probe, features, labels, features[:10])
    best, found = (
        mean_objective(probe, features, labels, weight_DC, bias_C)
        for weight_DC, bias_C in (
            (torch.from_numpy(model.coef_.T), torch.from_numpy(model.intercept_)),
            (probe.weight_DC.double(), probe.bias_C.double()),
        )
    )
    print(
        f"quick probe, {kind}: {found - best:.1e} above the minimum of {best:.4f}, penalty {probe.settings['penalty']}"
    )
    assert best - 1e-6 <= found <= best + 2e-5


def test_the_chosen_penalty_is_about_as_good_as_the_best_one_on_unseen_rows():
    features, labels = digits()
    scores = {}
    for penalty in (None, 1e4, 1e3, 1e2, 1e1, 1e0):
        probe = quick_probe(features[:900], labels[:900], generator=generator(), penalty=penalty)
        scores[penalty] = accuracy(probe.predict(features[900:]), labels[900:])
    assert scores[None] >= max(scores.values()) - 0.01


def planted(n: int, seed: int, dim: int = 64, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes that differ in the directions of small variance, as those of a network do that was trained on pixels."""
    draws, own = generator(99), generator(seed)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=draws))[0]
    centres = 0.6 * torch.randn(classes, dim, generator=draws)
    centres[:, :8] = 0
    labels = torch.arange(n) % classes
    latent = (centres[labels] + torch.randn(n, dim, generator=own)) * torch.arange(1, dim + 1) ** -1.5
    return latent @ turn, labels


def test_the_penalty_chosen_on_few_rows_does_not_hang_on_the_seed():
    """One held-out tenth of 80 rows called for the strongest penalty every third time: 25 % instead of 74 %."""
    (train, labels), (test, answers) = planted(80, 1), planted(2000, 2)
    probes = [quick_probe(train, labels, generator=generator(seed)) for seed in range(10)]
    found = [accuracy(probe.predict(test), answers) for probe in probes]
    standard = [((x - probes[0].mean_D) * probes[0].scale_D).double().numpy() for x in (train, test)]
    search = GridSearchCV(LogisticRegression(max_iter=5000), {"C": [1 / each for each in PENALTIES]}, cv=5)
    theirs = search.fit(standard[0], labels.numpy()).score(standard[1], answers.numpy())
    print(f"80 rows, 10 seeds: {100 * min(found):.1f} to {100 * max(found):.1f} %, scikit-learn {100 * theirs:.1f} %")
    assert max(found) - min(found) < 0.05 and min(found) > theirs - 0.03


def test_constant_and_shifted_features_do_not_disturb_the_quick_probe():
    features, labels = clusters(600)
    plain = quick_probe(features, labels, generator=generator())
    odd = torch.cat([features * 1e-3 + 5, torch.full((600, 2), 7.3)], dim=1)
    other = quick_probe(odd, labels, generator=generator())
    agreement = (plain.predict(features) == other.predict(odd)).double().mean()
    assert agreement > 0.99 and other.weight_DC.isfinite().all()


def test_labels_may_be_any_whole_numbers_and_few_rows_are_enough():
    features, labels = clusters(300)
    names = torch.tensor([-3, 10, 11, 700])
    assert set(quick_probe(features, names[labels], generator=generator()).predict(features).tolist()) <= set(
        names.tolist()
    )
    few = quick_probe(torch.eye(3), torch.tensor([5, 6, 7]), generator=generator())
    assert few.predict(torch.eye(3)).tolist() == [5, 6, 7]


def test_digits_are_identical_over_runs_and_prediction_batches():
    features, labels = clusters(500)
    first = quick_probe(features, labels, generator=generator())
    logits = first.logits(features)
    for _ in range(4):
        again = quick_probe(features, labels, generator=generator())
        assert again.weight_DC.equal(first.weight_DC) and again.bias_C.equal(first.bias_C)
    worst = 0.0
    for size in (1, 7, 64):
        parts = torch.cat([first.logits(part) for part in features[:64].split(size)])
        worst = max(worst, float((parts - logits[:64]).abs().max()))
    print(f"R20 probe runs=5 identical=5 batches=[1, 7, 64] difference={worst:.1e}")
    assert worst <= 1e-6


def test_the_imagenet100_probe_is_adamw_with_a_cosine_by_epoch():
    """The same recipe from torch's own parts, fed the same batches."""
    features, labels = clusters(300)
    probe = imagenet100_probe(features, labels, generator=generator(5), epochs=4, batch_size=64)
    draw = generator(5)
    head = nn.utils.skip_init(nn.Linear, 8, 4)
    for parameter in head.parameters():
        nn.init.uniform_(parameter, -(8**-0.5), 8**-0.5, generator=draw)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(4):
        for index in torch.randperm(300, generator=draw).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(features[index]), labels[index]).backward()
            optimizer.step()
        schedule.step()
    assert torch.allclose(probe.weight_DC.T, head.weight, atol=1e-6)
    assert torch.allclose(probe.logits(features), head(features), atol=1e-5)


def test_the_mae_probe_normalises_warms_up_and_learns():
    features, labels = clusters(1024)
    features = features * torch.logspace(-2, 2, 8) + 3
    draw = generator(1)

    def batches(epoch: int):
        return shuffled_batches(features, labels, 256, generator=draw, drop_last=True)

    # The published rate belongs to batches of 16,384; LARS moves a matrix by lr / 1000 of its size.
    settings = {"steps_per_epoch": 4, "dim": 8, "classes": 4, "batch_size": 256, "base_lr": 6.4, "epochs": 60}
    probe = mae_probe(batches, **settings, generator=generator())
    reference = quick_probe(features, labels, generator=generator())
    ours, best = (accuracy(p.predict(features), labels) for p in (probe, reference))
    assert torch.allclose(probe.mean_D, features.mean(dim=0), rtol=0.05, atol=0.05)
    assert torch.allclose(probe.scale_D, features.std(dim=0).reciprocal(), rtol=0.1)
    print(f"mae probe ours={ours:.3f} quick={best:.3f}")
    assert ours > best - 0.05


def test_lars_takes_a_step_of_the_trusted_length_for_a_matrix_and_a_plain_one_for_a_vector():
    weight, bias = nn.Parameter(torch.full((2, 2), 3.0)), nn.Parameter(torch.zeros(2))
    optimizer = LARS([weight, bias], lr=2.0)
    for _ in range(2):
        weight.grad, bias.grad = torch.full((2, 2), 0.5), torch.tensor([1.0, -1.0])
        optimizer.step()
    # |w| = 6, |g| = 1: the first step moves every entry by 2 * 0.001 * 6 * 0.5; the second adds 0.9 of it again.
    first = 2 * 0.001 * 6 * 0.5
    second = 2 * (0.9 * 0.003 + 0.001 * (6 - 2 * first) * 0.5)
    assert torch.allclose(weight, torch.full((2, 2), 3.0 - first - second))
    assert torch.allclose(bias, torch.tensor([-2.0 - 3.8, 2.0 + 3.8]))


def test_folds_are_balanced_within_every_class():
    labels = torch.cat([torch.zeros(11), torch.ones(23), torch.full((5,), 2)]).long()
    fold = stratified_folds(labels, 5, generator=generator())
    for label in range(3):
        counts = fold[labels == label].bincount(minlength=5)
        assert int(counts.max() - counts.min()) <= 1
    assert not fold.equal(stratified_folds(labels, 5, generator=generator(1)))


def test_folds_of_samples_that_stand_alone_are_those_without_groups():
    labels = torch.randint(5, (203,), generator=generator(3))
    alone = torch.randperm(203, generator=generator(4))
    plain, grouped = (stratified_folds(labels, 5, generator=generator(7), groups_N=each) for each in (None, alone))
    assert torch.equal(plain, grouped)


@pytest.mark.parametrize("largest", [2, 8, 40])
def test_folds_by_group_split_none_and_are_as_stratified_as_those_of_scikit_learn(largest):
    """Each group is of one class, as the tiles of a file are. The measure is the class that is shared out worst."""
    sizes = torch.randint(1, largest + 1, (60,), generator=generator(largest))
    groups = torch.arange(60).repeat_interleave(sizes)[torch.randperm(int(sizes.sum()), generator=generator(5))]
    labels = (groups * 7) % 4

    def spread(fold_N: torch.Tensor) -> float:
        assert all(len(fold_N[groups == group].unique()) == 1 for group in range(60)), "a group is in two folds"
        counts = torch.zeros(5, 4).index_put_((fold_N, labels), torch.ones(len(labels)), accumulate=True)
        return float((counts / counts.sum(dim=0)).std(dim=0).max())

    theirs = torch.empty_like(labels)
    splitter = StratifiedGroupKFold(5, shuffle=True, random_state=0)
    for fold, (_, rows) in enumerate(splitter.split(labels, labels, groups)):
        theirs[torch.from_numpy(rows)] = fold
    ours = spread(stratified_folds(labels, 5, generator=generator(1), groups_N=groups))
    print(f"folds by group, up to {largest} samples each: spread {ours:.3f}, scikit-learn {spread(theirs):.3f}")
    assert ours <= spread(theirs) + 0.02


def test_one_copied_pair_moves_no_other_image():
    """It changed the folds of all images, and with them every number of a cross-validation."""
    labels, alone = torch.randint(4, (200,), generator=generator(3)), torch.arange(200)
    labels[17] = labels[130]
    pair = torch.where(alone == 130, 17, alone)
    plain, grouped = (stratified_folds(labels, 5, generator=generator(7), groups_N=each) for each in (alone, pair))
    others = (alone != 17) & (alone != 130)
    assert torch.equal(plain[others], grouped[others]) and grouped[17] == grouped[130]


@given(st.integers(2, 5), st.integers(6, 60), st.integers(2, 60), st.integers(0, 10_000))
def test_folds_of_any_groups_are_balanced_and_never_empty(folds, samples, places, seed):
    """Of groups of one class each: within a class, sizes differ by at most that of its largest group."""
    draw = generator(seed)
    groups = torch.randint(places, (samples,), generator=draw)
    labels = torch.randint(4, (places,), generator=draw)[groups]
    if int(groups_per_class(labels, groups).min()) < folds:
        return
    fold = stratified_folds(labels, folds, generator=generator(), groups_N=groups)
    assert len(fold.unique()) == folds and all(len(fold[groups == each].unique()) == 1 for each in groups.unique())
    for label in labels.unique():
        counts = fold[labels == label].bincount(minlength=folds)
        assert counts.max() - counts.min() <= max(1, int(groups[labels == label].bincount().max()))


def test_more_folds_than_groups_are_refused():
    with pytest.raises(ConfigError, match="folds is 5; allowed: at most 4, the number of groups"):
        stratified_folds(torch.arange(20) % 2, 5, generator=generator(), groups_N=torch.arange(20) // 5)


def test_rows_of_one_group_are_held_out_together_where_the_penalty_is_chosen():
    """Each of 120 rows 20 times: a held-out row of which a copy was learned from calls for the weakest penalty."""
    features, labels = torch.randn(120, 64, generator=generator(1)), torch.arange(120) % 4
    features[:, 0] += labels
    groups = torch.arange(120).repeat(20)
    draws = [features.repeat(20, 1) + 0.01 * torch.randn(2400, 64, generator=generator(5)), labels.repeat(20)]
    plain, split, whole = (
        quick_probe(*rows, generator=generator(2), groups_N=each).settings["penalty"]
        for rows, each in (((features, labels), None), (draws, None), (draws, groups))
    )
    print(f"penalty of 120 rows {plain}, of 20 copies of each {split}, of copies held out together {whole}")
    assert split < min(plain, whole)


def test_bad_input_is_refused_with_a_sentence():
    features, labels = clusters(20)
    with pytest.raises(DataError, match="train_labels holds one class, 3"):
        quick_probe(features, torch.full((20,), 3), generator=generator())
    with pytest.raises(DataError, match="not finite in row 0"):
        imagenet100_probe(features * math.nan, labels, generator=generator())
    with pytest.raises(ConfigError, match="penalty is -1"):
        quick_probe(features, labels, generator=generator(), penalty=-1)
    with pytest.raises(DataError, match="features has 3 dimensions; allowed: 8"):
        quick_probe(features, labels, generator=generator()).predict(torch.zeros(2, 3))
    with pytest.raises(DataError, match="a batch has shape"):
        settings = {"steps_per_epoch": 1, "dim": 8, "classes": 4, "batch_size": 2, "generator": generator()}
        mae_probe(lambda epoch: [(features[:1], labels[:1])], **settings)


def test_a_feature_that_is_constant_up_to_its_last_bit_is_not_learned_from():
    """Blown up to unit variance, the last bit of a constant would be a feature like any other, here a perfect one."""
    labels = torch.arange(400) % 2
    constant = torch.full((400,), 1000.0)
    last_bit = torch.where(labels == 1, constant.nextafter(torch.tensor(2000.0)), constant)
    noise = torch.randn(400, 3, generator=generator())
    probe = quick_probe(torch.cat([noise, last_bit[:, None]], dim=1), labels, generator=generator(), penalty=1.0)
    assert probe.scale_D[3] == 0 and (probe.scale_D[:3] > 0).all()
    right = (probe.predict(torch.cat([noise, last_bit[:, None]], dim=1)) == labels).double().mean()
    assert right < 0.7


def test_the_rate_of_the_mae_probe_is_that_of_its_authors_at_every_step(monkeypatch):
    """base_lr * batch / 256, warmed up over whole epochs and then half a cosine, updated at every step."""
    rates = []
    monkeypatch.setattr(probe_module, "_descend", lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    batch = torch.randn(2, 3, generator=generator()), torch.tensor([0, 1])
    settings = {"steps_per_epoch": 2, "dim": 3, "classes": 2, "batch_size": 512, "epochs": 6, "warmup_epochs": 2}
    mae_probe(lambda epoch: [batch, batch], **settings, generator=generator())
    peak, epochs = 0.1 * 512 / 256, [step / 2 for step in range(12)]
    expected = [peak * (e / 2 if e < 2 else 0.5 * (1 + math.cos(math.pi * (e - 2) / 4))) for e in epochs]
    assert rates == pytest.approx(expected)


def test_a_class_that_nobody_doubts_has_a_metric_too():
    """Its block of the Hessian is zero in float32, where the Cholesky factorisation of the metric has no answer."""
    features_ND = torch.randn(10_000, 2, generator=generator()).sign()
    targets_N = (features_ND[:, 0] > 0).long()
    start = (torch.tensor([[-1e4, 0.0], [1e4, 0.0], [0.0, 0.0]]), torch.zeros(3))
    weight_CD, bias_C = refine(features_ND, targets_N, 1.0, start, generator())
    assert ((features_ND @ weight_CD.T + bias_C).argmax(dim=1) == targets_N).all() and weight_CD.isfinite().all()
