"""Every draw in the source takes a generator or a seed; the global random states are neither used nor changed.

The check reads the syntax tree; planted examples show what it finds and what it lets pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from echoless.randomness import STREAMS, generator_for

SOURCE = Path(__file__).resolve().parent.parent / "src" / "echoless"

WITH_GENERATOR = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "normal_", "uniform_",
    "bernoulli", "bernoulli_", "binomial", "multinomial", "poisson", "exponential_", "geometric_", "log_normal_",
    "cauchy_", "random_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_",
    "orthogonal_", "sparse_", "random_split", "RandomSampler",
}  # fmt: skip
WITHOUT_ANY = {  # functions of the global state that take no generator
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "Dropout", "Dropout1d",
    "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "rrelu", "RReLU", "gumbel_softmax", "manual_seed",
    "manual_seed_all",
}  # fmt: skip
WITH_RANDOM_STATE = {"KMeans", "MiniBatchKMeans", "TSNE", "PCA", "TruncatedSVD", "LogisticRegression"}
SEEDED = {"default_rng", "Generator", "Random", "PCG64", "Philox", "SeedSequence"}  # of numpy and of Python

# Calls that are allowed without a generator, and why.
EXCEPTIONS = {
    # Runs models of other libraries, which draw from the global generators: seeds all of them and restores all of them.
    "shortcuts/check.py": {
        "torch.random.fork_rng", "torch.manual_seed", "random.getstate", "random.seed", "random.setstate",
        "numpy.random.get_state", "numpy.random.seed", "numpy.random.set_state",
    },
    "measures/tsne.py": {"PCA"},  # svd_solver="full" draws nothing
}  # fmt: skip


def draws_without_a_generator(source: str) -> Iterator[tuple[int, str]]:
    """Line and callee of every call that draws from, or sets, a global random state."""
    tree = ast.parse(source)
    modules = {alias.asname or alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            callee = ast.unparse(node.func)
            if _is_random_module(callee, modules):
                is_global = not (callee.split(".")[-1] in SEEDED and node.args)
            else:
                is_global = _draws_globally(node, callee)
            if is_global:
                yield node.lineno, callee


def _is_random_module(callee: str, modules: set[str]) -> bool:
    """A function of Python's `random`, of `numpy.random` or of `torch.random`."""
    path = callee.split(".")
    of_python = path[0] == "random" and "random" in modules
    return len(path) > 1 and (of_python or path[:-1] in (["np", "random"], ["numpy", "random"], ["torch", "random"]))


def _draws_globally(call: ast.Call, callee: str) -> bool:
    name = callee.split(".")[-1]
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if given.get("dropout_p", "0.0") not in ("0", "0.0"):  # scaled_dot_product_attention
        return True
    if name == "manual_seed" and ast.unparse(call.func) != "torch.manual_seed":  # torch.Generator().manual_seed(...)
        return False
    needed = "generator" if name in WITH_GENERATOR else "random_state" if name in WITH_RANDOM_STATE else None
    return name in WITHOUT_ANY or (needed is not None and given.get(needed, "None") == "None")


@pytest.mark.parametrize("line", [
    "torch.rand(3)",
    "torch.randn(3, generator=None)",
    "torch.randn_like(x)",
    "torch.randperm(n)[:5]",
    "x.normal_()",
    "x.uniform_(0, 1)",
    "nn.init.trunc_normal_(weight, std=0.02)",
    "nn.init.kaiming_normal_(weight)",
    "F.dropout(x, 0.1, self.training)",
    "self.drop = nn.Dropout(0.1)",
    "F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)",
    "torch.multinomial(p, 1)",
    "torch.manual_seed(0)",
    "np.random.rand(3)",
    "np.random.seed(0)",
    "np.random.default_rng()",
    "import random\nrandom.random()",
    "import random\nrandom.Random()",
    "KMeans(10, n_init=10)",
])  # fmt: skip
def test_a_planted_draw_is_found(line):
    assert list(draws_without_a_generator(line))


@pytest.mark.parametrize("line", [
    "torch.rand(3, generator=generator)",
    "x.normal_(generator=generator_for(seed, 'noise', step))",
    "nn.init.trunc_normal_(weight, std=0.02, generator=generator)",
    "torch.Generator().manual_seed(seed)",
    "F.scaled_dot_product_attention(q, k, v)",
    "np.random.default_rng(0).standard_normal(3)",
    "import random\nrandom.Random(0)",
    "KMeans(10, random_state=seed)",
    "self.random.choice(3)",
    "solver.uniform()",
])  # fmt: skip
def test_a_draw_with_a_generator_passes(line):
    assert not list(draws_without_a_generator(line))


def test_no_draw_in_the_source_is_without_a_generator():
    found = {}
    for file in SOURCE.rglob("*.py"):
        name = str(file.relative_to(SOURCE))
        calls = {callee for _, callee in draws_without_a_generator(file.read_text())}
        if calls:
            found[name] = calls
    assert found == EXCEPTIONS  # an exception that is no longer needed is deleted


def test_a_generator_is_a_function_of_seed_stream_and_step_alone():
    first = torch.rand(4, generator=generator_for(3, "mask", 7))
    torch.rand(5)  # the global state does not matter
    assert torch.rand(4, generator=generator_for(3, "mask", 7)).equal(first)
    others = [(4, "mask", 7), (3, "mask", 8), *((3, stream, 7) for stream in STREAMS if stream != "mask")]
    assert not any(torch.rand(4, generator=generator_for(*other)).equal(first) for other in others)
    with pytest.raises(ValueError, match="stream is 'masks'; allowed: order, "):
        generator_for(3, "masks", 7)
