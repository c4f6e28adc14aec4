"""Proves that the kNN search is exact, its ties are decided by the stated rules, and its digits ignore chunk sizes.

Run alone: pytest tests/measures/test_knn.py. References: brute force in numpy, faiss, scikit-learn.
"""

from __future__ import annotations

import math
import subprocess
import sys

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from echoless.errors import ConfigError, DataError
from echoless.measures import accuracy, knn_classify, memory_estimate, nearest_neighbours
from echoless.measures.knn import weighted_vote


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def unit(rows: torch.Tensor) -> np.ndarray:
    x = rows.double().numpy()
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)


def brute_force(bank, labels, queries, k, temperature=0.07):
    """Predictions in numpy: neighbours by (similarity, row), the smaller label among equal votes."""
    similarities = unit(queries) @ unit(bank).T
    predictions = []
    for row in similarities:
        nearest = np.lexsort((np.arange(len(row)), -row))[: min(k, len(row))]
        votes: dict[int, float] = {}
        for i in nearest:
            votes[int(labels[i])] = votes.get(int(labels[i]), 0.0) + np.exp(row[i] / temperature)
        best = max(votes.values())
        predictions.append(min(label for label, vote in votes.items() if np.isclose(vote, best, rtol=1e-9)))
    return np.array(predictions)


def test_neighbours_are_those_of_faiss_over_several_tiles_and_chunks():
    bank, queries = normal(5000, 24), normal(300, 24, seed=1)
    values, rows = nearest_neighbours(bank, queries, 20, bank_chunk=2048)
    index = faiss.IndexFlatIP(24)
    index.add(unit(bank).astype(np.float32))
    expected_values, expected_rows = index.search(unit(queries).astype(np.float32), 20)
    assert np.abs(values.numpy() - expected_values).max() < 1e-6
    agreement = (rows.numpy() == expected_rows).mean()
    print(f"kNN faiss agreement={agreement:.6f}")
    assert agreement > 0.999  # float32 near-ties may swap


def test_predictions_are_those_of_brute_force_and_scikit_learn():
    bank, queries = normal(3000, 16), normal(200, 16, seed=1)
    labels = torch.randint(7, (3000,), generator=torch.Generator().manual_seed(2)) * 3 - 4
    predictions = knn_classify(bank, labels, queries, k=[1, 5, 20, 200])
    for k, predicted in predictions.items():
        assert (predicted.numpy() == brute_force(bank, labels, queries, k)).all(), k
        model = KNeighborsClassifier(k, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / 0.07))
        assert (predicted.numpy() == model.fit(bank.double(), labels).predict(queries.double())).mean() > 0.994


# Norms 0, 1 and 2, so that every cosine is exact in float32 and equal ones are equal to the last bit.
EXACT = torch.cat(
    [torch.zeros(1, 4), torch.eye(4), -torch.eye(4), torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)]
)


@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 90), st.integers(1, 3))
def test_search_and_vote_are_those_of_brute_force_where_almost_everything_is_tied(seed, n, k, classes):
    """Duplicates, zero vectors, equal similarities, equal votes, and k beyond n."""
    generator = torch.Generator().manual_seed(seed)
    bank = EXACT[torch.randint(len(EXACT), (n,), generator=generator)]
    bank = bank * 2.0 ** torch.randint(-3, 4, (n, 1), generator=generator)
    queries = EXACT[torch.randint(len(EXACT), (9,), generator=generator)]
    labels = torch.randint(classes, (n,), generator=generator)
    values, rows = nearest_neighbours(bank, queries, k)
    similarities = unit(queries) @ unit(bank).T
    expected = np.stack([np.lexsort((np.arange(n), -row))[:k] for row in similarities])
    assert (rows.numpy() == expected).all()
    assert (values.numpy() == np.take_along_axis(similarities, expected, axis=1)).all()
    predicted = knn_classify(bank, labels, queries, k)[k].numpy()
    assert (predicted == brute_force(bank, labels, queries, k)).all()


def test_among_equal_similarities_the_first_row_of_the_bank_wins_across_tiles():
    one = normal(1, 13)
    bank = one.repeat(4000, 1)
    values, rows = nearest_neighbours(bank, one * 2, 50, bank_chunk=1)
    assert len(values.unique()) == 1 and (rows == torch.arange(50)).all()
    bank[0] = -bank[0]
    assert (nearest_neighbours(bank, one, 50)[1] == torch.arange(1, 51)).all()


def test_a_duplicate_has_the_same_similarity_wherever_it_stands():
    bank = normal(3000, 33)
    bank[[5, 1023, 1024, 2500, 2999]] = bank[7].clone()
    values, rows = nearest_neighbours(bank, bank[7:8], 6)
    assert rows.tolist() == [[5, 7, 1023, 1024, 2500, 2999]] and len(values.unique()) == 1


def test_equal_votes_go_to_the_smaller_label():
    bank = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert knn_classify(bank, torch.tensor([9, 4]), bank[:1], k=2)[2].item() == 4


def test_the_cosine_of_a_zero_vector_is_zero():
    bank = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    values, rows = nearest_neighbours(bank, torch.tensor([[1.0, 0.0], [0.0, 0.0]]), 3)
    assert rows.tolist() == [[1, 2, 0], [0, 1, 2]]
    assert values.tolist() == [[0.0, 0.0, -1.0], [0.0, 0.0, 0.0]]


def test_huge_and_tiny_vectors_keep_their_direction():
    bank = torch.tensor([[1e30, 1e30], [1e-30, 0.0], [0.0, -1e38]])
    values, rows = nearest_neighbours(bank, torch.tensor([[1e-38, 1e-38]]), 3)
    assert rows.tolist() == [[0, 1, 2]]
    assert torch.allclose(values, torch.tensor([[1.0, 0.5**0.5, -(0.5**0.5)]]))


def test_no_temperature_overflows():
    bank, labels = normal(50, 4), torch.arange(50)
    assert knn_classify(bank, labels, bank, k=5, temperature=1e-6)[5].equal(labels)


def test_a_bank_that_gets_nearer_all_the_time_is_searched_exactly():
    """The worst order: every row is a candidate when it is met."""
    angle = torch.linspace(3.0, 0.1, 6000)
    bank = torch.stack([angle.cos(), angle.sin()], dim=1)
    _, rows = nearest_neighbours(bank, torch.tensor([[1.0, 0.0]]).repeat(700, 1), 20)
    assert (rows == torch.arange(5999, 5979, -1)).all()


def test_digits_are_identical_over_runs_and_chunk_sizes():
    bank, queries = normal(2100, 48).half(), normal(64, 48, seed=1)
    labels = torch.randint(10, (2100,), generator=torch.Generator().manual_seed(2))
    reference = nearest_neighbours(bank, queries, 20)
    runs = 0
    for _ in range(5):
        for size in (1, 7, 64):
            values, rows = nearest_neighbours(bank, queries, 20, bank_chunk=size * 20)
            assert values.equal(reference[0]) and rows.equal(reference[1])
            runs += 1
    predictions = knn_classify(bank, labels, queries)[20]
    for size in (1, 7, 64):  # queries that arrive in batches
        parts = [knn_classify(bank, labels, part)[20] for part in queries.split(size)]
        assert torch.cat(parts).equal(predictions)
    print(f"R20 knn runs={runs} identical={runs} batches=[1, 7, 64] identical=3")


def test_digits_do_not_depend_on_the_number_of_threads_and_torch_keeps_its_own():
    bank, queries = normal(5000, 40), normal(1500, 40, seed=1)
    alone = nearest_neighbours(bank, queries, 20)
    torch.set_num_threads(2)
    together = nearest_neighbours(bank, queries, 20)
    assert torch.get_num_threads() == 2
    assert all(a.equal(b) for a, b in zip(alone, together))


def test_numpy_and_memory_mapped_banks_give_the_same_digits(tmp_path):
    bank, queries = normal(2500, 8), normal(20, 8, seed=1)
    np.save(tmp_path / "bank.npy", bank.numpy())
    mapped = np.load(tmp_path / "bank.npy", mmap_mode="r")
    reference = nearest_neighbours(bank, queries, 7)
    for other in (bank.numpy(), mapped):
        assert all(a.equal(b) for a, b in zip(reference, nearest_neighbours(other, queries.numpy(), 7)))


def test_the_estimate_for_imagenet_is_below_one_gigabyte():
    worst = max(memory_estimate(1_281_167, 50_000, 768, k) for k in (20, 200))
    print(f"kNN memory estimate 1.28M x 768 against 50,000: {worst / 1e9:.2f} GB")
    assert worst < 1e9


MEASURE = """
import re, sys, numpy as np, torch
from echoless.measures import memory_estimate, nearest_neighbours
torch.set_num_threads(1)
bank = np.lib.format.open_memmap(sys.argv[1], mode="r")
queries = torch.randn(3000, bank.shape[1], generator=torch.Generator().manual_seed(0))
nearest_neighbours(bank[:2000], queries[:10], 20)
status = lambda field: int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) * 1024
before = status("RssAnon")
peak = before
import echoless.measures.knn as knn
add = knn._Nearest.add
def watched(self, *arguments):
    global peak
    add(self, *arguments)
    peak = max(peak, status("RssAnon"))
knn._Nearest.add = watched
nearest_neighbours(bank, queries, 20)
print(peak - before, memory_estimate(len(bank), 3000, bank.shape[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_measured_memory_stays_below_the_estimate_for_a_memory_mapped_bank(tmp_path):
    bank = np.lib.format.open_memmap(tmp_path / "bank.npy", mode="w+", dtype=np.float32, shape=(150_000, 256))
    generator = np.random.default_rng(0)
    for start in range(0, len(bank), 10_000):
        bank[start : start + 10_000] = generator.standard_normal((10_000, 256), dtype=np.float32)
    bank.flush()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "bank.npy")], capture_output=True, text=True, check=True
    )
    used, estimate = map(int, done.stdout.split())
    print(f"kNN memory used={used / 1e6:.0f} MB estimate={estimate / 1e6:.0f} MB")
    assert used < estimate


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"train_ND": torch.tensor([[1.0, float("nan")]] * 3)}, "train has a value that is not finite in row 0"),
        ({"queries_MD": torch.tensor([[1.0, 1.0], [float("inf"), 1.0]])}, "queries has a value .* in row 1"),
        ({"train_ND": torch.zeros(0, 2), "train_labels_N": torch.zeros(0).long()}, "train has 0 rows"),
        ({"queries_MD": torch.zeros(1, 3)}, "train has 2 dimensions and queries has 3"),
        ({"train_labels_N": torch.zeros(2).long()}, r"train_labels has shape \(2,\); allowed: \(3,\)"),
        ({"train_labels_N": torch.zeros(3)}, "train_labels has type torch.float32"),
    ],
)
def test_bad_data_is_refused_with_a_sentence(arguments, sentence):
    good = {"train_ND": torch.eye(3)[:, :2], "train_labels_N": torch.arange(3), "queries_MD": torch.ones(2, 2)}
    with pytest.raises(DataError, match=sentence):
        knn_classify(**{**good, **arguments})


@pytest.mark.parametrize("setting", [{"k": 0}, {"k": []}, {"k": 2.5}, {"temperature": 0.0}, {"bank_chunk": 0}])
def test_bad_settings_are_refused_with_a_sentence(setting):
    with pytest.raises(ConfigError, match="allowed"):
        knn_classify(torch.eye(3), torch.arange(3), torch.eye(3), **setting)


def test_accuracy_is_the_share_of_equal_labels():
    assert accuracy(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 0, 0])) == 0.5


def test_the_temperature_decides_between_one_near_and_two_far_neighbours():
    """A low temperature listens to the nearest alone, a high one counts heads: exp(.9 / t) against 2 exp(.6 / t)."""
    similarities, labels = torch.tensor([[0.9, 0.6, 0.6]]), torch.tensor([[0, 1, 1]])
    switch = 0.3 / math.log(2)
    assert weighted_vote(similarities, labels, 0.9 * switch).item() == 0
    assert weighted_vote(similarities, labels, 1.1 * switch).item() == 1
    train = torch.nn.functional.normalize(torch.tensor([[1.0, 0.48], [1.0, 1.33], [1.0, -1.33]]), dim=1)
    query, classes = torch.tensor([[1.0, 0.0]]), torch.tensor([0, 1, 1])
    low, high = (knn_classify(train, classes, query, k=3, temperature=t)[3].item() for t in (0.05, 5.0))
    assert (low, high) == (0, 1)
