"""SOAP moves every weight as pytorch-optimizer's does, continues its checkpoints, and stacks weights without mixing
them."""

from __future__ import annotations

import copy

import pytest
import torch

from echoless.training import soap
from echoless.training.soap import SOAP

SHAPES = [(6, 5), (6, 5), (5, 6), (12, 3), (4, 3, 2, 2), (4, 3, 2, 2), (7,), (7,), ()]
STEPS = 31  # the bases are renewed in three of them, and the first only initialises


def theirs(groups, **settings):
    import pytorch_optimizer

    return pytorch_optimizer.SOAP(groups, **settings)


def weights(dtype=torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def optimiser(make, parameters, **settings) -> torch.optim.Optimizer:
    """Weight decay on matrices alone; one shape has a side that is too large for a basis."""
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return make(groups, **{"lr": 1e-2, "betas": (0.9, 0.95), "max_precondition_dim": 10} | settings)


def take_steps(optimiser: torch.optim.Optimizer, steps: range, without: dict[int, range] | None = None) -> None:
    """Noise as gradients, with another scale for every row; `without`: weights and the steps they have none in."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for place, p in enumerate(parameters):
            noise = torch.randn(p.shape, generator=generator)
            if p.ndim:
                noise *= torch.linspace(0.1, 2, p.shape[0]).view(-1, *[1] * (p.ndim - 1))
            p.grad = None if step in (without or {}).get(place, ()) else noise.to(p.dtype)
        optimiser.step()


def largest_difference(ours, others) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, others, strict=True))


def test_a_very_long_side_beside_a_short_one_has_no_basis(monkeypatch):
    """As the library without a basis for that side. It cost thirty steps, and learned more slowly."""
    monkeypatch.setattr(soap, "LONG", 16)
    ours, others = ([torch.nn.Parameter(torch.ones(40, 2)), torch.nn.Parameter(torch.ones(3))] for _ in range(2))
    take_steps(optimiser(SOAP, ours, max_precondition_dim=10_000), range(STEPS))
    take_steps(optimiser(theirs, others, max_precondition_dim=39), range(STEPS))
    assert largest_difference(ours, others) < 1e-5
    longer = torch.nn.Parameter(torch.ones(40, 3))
    take_steps(learner := optimiser(SOAP, [longer, torch.nn.Parameter(torch.ones(3))]), range(1))
    take_steps(whole := optimiser(SOAP, [longer, torch.nn.Parameter(torch.ones(3))], max_precondition_dim=40), range(1))
    assert learner.state[longer]["bases"][0] is None is not whole.state[longer]["bases"][0]


def test_it_moves_every_weight_as_the_library_does():
    """Three renewals; a step moves a weight by about lr = 1e-2, and rounding alone by less than 1e-5."""
    ours, others = weights(), weights()
    take_steps(optimiser(SOAP, ours), range(STEPS))
    take_steps(optimiser(theirs, others), range(STEPS))
    difference = largest_difference(ours, others)
    print(f"largest difference after {STEPS} steps: {difference:.1e}")
    assert largest_difference(ours, weights()) > 0.1
    assert difference < 1e-5


def test_in_double_precision_the_difference_is_rounding():
    """Without renewals, which the library computes in single precision."""
    ours, others = weights(torch.float64), weights(torch.float64)
    take_steps(optimiser(SOAP, ours, precondition_frequency=100), range(STEPS))
    take_steps(optimiser(theirs, others, precondition_frequency=100), range(STEPS))
    assert largest_difference(ours, others) < 1e-10


@pytest.mark.parametrize("done", [1, 15])
def test_a_checkpoint_of_the_library_continues(done):
    """Runs of earlier versions hold the library's state, here after its first step and between two renewals."""
    others = weights()
    library = optimiser(theirs, others)
    take_steps(library, range(done))
    ours = [torch.nn.Parameter(p.detach().clone()) for p in others]
    continued = optimiser(SOAP, ours)
    continued.load_state_dict(copy.deepcopy(library.state_dict()))
    take_steps(continued, range(done, STEPS))
    take_steps(library, range(done, STEPS))
    assert largest_difference(ours, others) < 1e-5


def test_a_weight_without_a_gradient_waits_and_joins_later():
    """Weight 0 begins at step 5 and weight 3 pauses: the others, of their stacks too, move as in the library.

    In the library the gradient that initialises a late weight also updates it: along directions that it lacks, this
    divides rounding errors by each other. Here the first gradient of any weight only initialises.
    """
    without = {0: range(5), 3: range(8, 12)}
    ours, others = weights(), weights()
    optimisers = optimiser(SOAP, ours), optimiser(theirs, others)
    take_steps(optimisers[0], range(6), without)
    assert torch.equal(ours[0], weights()[0])
    take_steps(optimisers[0], range(6, STEPS), without)
    take_steps(optimisers[1], range(STEPS), without)
    assert largest_difference(ours[1:], others[1:]) < 1e-5
    assert 0.05 < largest_difference(ours[:1], weights()[:1]) < 0.5


def test_the_size_of_a_stack_does_not_matter(monkeypatch):
    """Each weight alone moves as it does among others; what is limited is memory."""
    together, alone = weights(), weights()
    take_steps(optimiser(SOAP, together), range(STEPS))
    monkeypatch.setattr(soap, "STACKED_VALUES", 1)
    single = optimiser(SOAP, alone)
    take_steps(single, range(STEPS))
    assert all(len(stack.weights) == 1 for stacks in single._stacks.values() for stack in stacks)
    assert largest_difference(together, alone) < 1e-5


def test_bases_stay_orthonormal_and_sorted():
    """After three renewals, to the rounding of single precision; eigenvalues fall along the columns."""
    parameters = weights()
    trained = optimiser(SOAP, parameters)
    take_steps(trained, range(STEPS))
    state = trained.state[parameters[0]]
    for basis, covariance in zip(state["bases"], state["covariances"]):
        torch.testing.assert_close(basis.T @ basis, torch.eye(len(basis)), atol=1e-5, rtol=0)
        eigenvalues = (basis.T @ covariance @ basis).diagonal()
        assert eigenvalues[0] > 1.5 * eigenvalues[-1] > 0
    assert [side is None for side in trained.state[parameters[3]]["bases"]] == [True, False]
