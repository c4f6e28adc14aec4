"""`fade` follows its arguments, reports and saves what it did, is reverted by `unfade`, and refuses what it cannot do.

The ways to write a shortcut: test_fade_styles.py. Models of other libraries: test_fade_models.py.
"""

from __future__ import annotations

import copy
import inspect
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from stacks import A4, WIDTH, Loop, Residual, Stack, Wrapped, mlp
from torch import Tensor, nn

from echoless.shortcuts import alphas, fade, fade_saved, unfade
from echoless.shortcuts.travel import BUFFER


@pytest.fixture(autouse=True)
def one_seed() -> None:
    torch.manual_seed(0)


# --- torch's own encoder, whose eval mode hides the shortcuts in one kernel ---


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:.*nested tensor.*:UserWarning")
def test_torchs_transformer_encoder_is_faded_in_its_fused_eval_path_too(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x, mask = torch.randn(2, 3, WIDTH), torch.tensor([[False] * 3, [False, False, True]])
    plain = model(x)
    fade(model, 1.0, example=x)
    with torch.no_grad():
        assert torch.equal(model(x), undone(model)(x))
    unfade(model)
    report = fade(model, 0.4, example=x)
    assert [s.kind for s in report.shortcuts] == ["attention", "mlp"] * 2

    expected = x
    for block, (a, b) in zip(model.layers, (A4[:2], A4[2:])):
        if norm_first:
            y = block.norm1(expected)
            expected = a * expected + block.self_attn(y, y, y)[0]
            expected = b * expected + block.linear2(torch.relu(block.linear1(block.norm2(expected))))
        else:
            expected = block.norm1(a * expected + block.self_attn(expected, expected, expected)[0])
            expected = block.norm2(b * expected + block.linear2(torch.relu(block.linear1(expected))))
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
        padded = model(x, src_key_padding_mask=mask)  # only the second sample has a padded token
        torch.testing.assert_close(padded[0], expected[0], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(padded[1, :2], expected[1, :2], atol=1e-3)
    unfade(model)
    torch.testing.assert_close(model(x), plain)


def undone(model: nn.Module) -> nn.Module:
    twin = copy.deepcopy(model)
    unfade(twin)
    return twin


# --- choices ---


class Transformer(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, norm_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x))


def test_the_alphas_are_those_of_the_schedule() -> None:
    x = torch.randn(2, 3, WIDTH)
    for schedule in ("linear", "cosine", "constant"):
        report = fade(Transformer(), 0.5, example=x, schedule=schedule)
        assert report.alphas == alphas(shortcuts=7, alpha_min=0.5, schedule=schedule)
        assert report.effective_alpha == pytest.approx(math.prod(report.alphas))
    report = fade(Transformer(), example=x)
    assert report.alphas == alphas(shortcuts=7)
    assert "floor" in str(report)


def test_within_limits_the_fading_and_around_chooses_attention_or_mlp() -> None:
    x = torch.randn(2, 3, WIDTH)
    report = fade(Transformer(), 0.5, example=x, within="encoder.layers.[12]", around="mlp")
    assert report.alphas == alphas(2, alpha_min=0.5, fade="mlp")
    assert {s.where for s in report.shortcuts} == {"encoder.layers.1", "encoder.layers.2"}
    assert {o.where for o in report.left_alone if "outside" in o.reason} == {"encoder.layers.0", "head"}
    report = fade(Transformer(), 0.4, example=x, around="attention")
    assert report.alphas == pytest.approx((1, 1, 0.8, 1, 0.6, 1, 1))


def test_zero_init_makes_every_branch_start_at_zero_and_says_where_it_could_not() -> None:
    model, x = Transformer(), torch.randn(2, 3, WIDTH)
    report = fade(model, 0.5, example=x, zero_init=True)
    assert "encoder.layers.0.self_attn.out_proj.weight" in report.zeroed
    assert "head.branch.3.bias" in report.zeroed
    assert len(report.zeroed) == 14
    torch.testing.assert_close(model(x), report.effective_alpha * x)
    assert "not found" in fade(Fourier(), 0.5, example=x, zero_init=True).not_zeroed[0]


class Fourier(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.fft.fft(x).real


def test_alphas_are_saved_beside_the_weights_and_restored(tmp_path: Path) -> None:
    model, x, file = Transformer(), torch.randn(2, 3, WIDTH), tmp_path / "shortcuts.json"
    report = fade(model, 0.4, example=x, within="encoder")
    report.save(file)
    fresh = Transformer()
    again = fade_saved(fresh, file, example=x)
    fresh.load_state_dict(model.state_dict())
    assert again.alphas == report.alphas
    assert torch.equal(fresh(x), model(x))
    with pytest.raises(ValueError, match="holds alphas for 6 shortcuts"):
        fade_saved(Transformer(4), file, example=x)


@pytest.mark.parametrize("change", [
    {"format": "other"}, {"shortcuts": []}, {"shortcuts": [{"alpha": 0.5}]}, {"shortcuts": "all"},
    {"within": [1]}, {"include": "all"},
])  # fmt: skip
def test_a_file_of_another_kind_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    x, file = torch.randn(2, 3, WIDTH), tmp_path / "shortcuts.json"
    fade(Loop(), 0.4, example=x).save(file)
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, **change}))
    with pytest.raises(ValueError, match=r"is not a file written by FadeReport\.save"):
        fade_saved(Loop(), file, example=x)
    record["shortcuts"][0]["alpha"] = 1.5
    file.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"alpha is 1\.5"):
        fade_saved(Loop(), file, example=x)


def test_weights_cannot_be_loaded_without_their_alphas_or_under_others() -> None:
    """Loading reported 'all keys matched', and gave another function."""
    model, x = Transformer(), torch.randn(2, 3, WIDTH)
    plain = copy.deepcopy(model)
    fade(model, 0.4, example=x)
    with pytest.raises(RuntimeError, match=f"Unexpected key.*{BUFFER}"):
        Transformer().load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match=f"Missing key.*{BUFFER}"):
        model.load_state_dict(plain.state_dict())
    other = Transformer()
    fade(other, 0.6, example=x)
    with pytest.raises(
        RuntimeError, match=r"belong to a model faded with 7 alphas, 1, 0\.9, 0\.8, 0\.7, 0\.6, 0\.5, 0\.4"
    ):
        other.load_state_dict(model.state_dict(), strict=False)


def test_a_state_dict_is_enough_to_restore_a_faded_model_whatever_was_wrapped_around_it_or_its_precision() -> None:
    model, x = Transformer(), torch.randn(2, 3, WIDTH)
    report = fade(model, 0.4, example=x, within="encoder")
    state = {f"module.{name}": tensor for name, tensor in model.half().state_dict().items()}
    fresh = Transformer()
    assert fade_saved(fresh, state, example=x).alphas == report.alphas
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model.float()(x))
    with pytest.raises(ValueError, match="the state dict has 0 entries"):
        fade_saved(Transformer(), Transformer().state_dict(), example=x)


def test_a_pickle_of_a_faded_model_is_refused_with_the_way_to_save_it() -> None:
    model, x = Transformer(), torch.randn(2, 3, WIDTH)
    fade(model, 0.4, example=x)
    with pytest.raises(TypeError, match=r"cannot be pickled.*save its state_dict\(\)"):
        torch.save(model, io.BytesIO())
    assert torch.equal(copy.deepcopy(model)(x), model(x)), "a copy is no pickle"
    unfade(model)
    torch.save(model, io.BytesIO())
    assert BUFFER not in model.state_dict()


def test_distributed_data_parallel_runs_a_faded_model(tmp_path: Path) -> None:
    model, x = Wrapped(), torch.randn(2, 3, WIDTH)
    fade(model, 0.4, example=x)
    expected = model(x)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(model)
        out = parallel(x)
        out.sum().backward()
        assert torch.equal(out, expected)
        with pytest.raises(ValueError, match="faded already"):
            fade(parallel, 0.5, example=x)
    finally:
        # The wrapper goes first: a group that dies with it, under the interpreter's lock, can wait for its own threads.
        parallel = out = None
        torch.distributed.destroy_process_group()


def test_the_source_that_runs_can_be_read() -> None:
    model = Wrapped()
    fade(model, 0.4, example=torch.randn(2, 3, WIDTH))
    assert "alpha=self.faded_alphas[0]" in inspect.getsource(model.blocks[0].forward)
    assert type(model.blocks[0]).__name__ == "Residual"


# --- what is refused ---


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Residual(mlp())

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.block(self.block(x)))


def test_a_shared_module_can_have_one_alpha_only() -> None:
    model, x = Shared(), torch.randn(2, 3, WIDTH)
    plain = model(x)
    with pytest.raises(ValueError, match="runs in 3 calls of one module"):
        fade(model, 0.4, example=x)
    assert torch.equal(model(x), plain)
    fade(model, 0.4, example=x, schedule="constant")
    expected = x
    for _ in range(3):
        expected = 0.4 * expected + model.block.branch(expected)
    torch.testing.assert_close(model(x), expected)


class Summed(Stack):
    def forward(self, x: Tensor) -> Tensor:
        return sum([x, self.branches[0](x)])


class Lambda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        branch = self.branch = mlp()
        self.join = lambda x: x + branch(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x)


class Sly(Stack):
    """Computes its shortcut elsewhere when nobody traces it."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.overrides._is_torch_function_mode_enabled():
            return x + self.branches[0](x)
        return torch.stack([x, self.branches[0](x)]).sum(0)


class Restless(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return self.runs + x + self.branches[0](x)


class Picky(Stack):
    """Differs by a hair once its class is another one, as a rewritten model's is."""

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.branches[0](x)
        return y if type(self) is Picky else y * (1 + 1e-6)


class Named(nn.Linear):
    """Calls its parent the way Python 2 did."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super(Named, self).forward(x)  # noqa: UP008


def test_a_method_may_name_its_own_class() -> None:
    class Local(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x + super(Local, self).forward(x)  # noqa: UP008

    for kind in (Named, Local):
        model, x = kind(WIDTH, WIDTH), torch.randn(2, 3, WIDTH)
        fade(model, 0.4, example=x)
        torch.testing.assert_close(model(x), 0.4 * x + nn.functional.linear(x, model.weight, model.bias))


class Masked(Loop):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x * mask.exp())


def test_an_example_or_output_that_is_not_finite_is_refused_because_any_two_would_agree() -> None:
    x, bad, infinite = torch.randn(2, 3, WIDTH), torch.randn(2, 3, WIDTH), Loop()
    bad[0, 0, 0] = float("nan")
    with torch.no_grad():
        next(infinite.parameters()).fill_(float("inf"))
    for model, example, message in (
        (Loop(), bad, "^the example contains NaN, with which no output can be checked; give finite numbers"),
        (
            infinite,
            x,
            "^the output of Loop on the example is not finite, so that it cannot be checked; give a model with",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            fade(model, 0.5, example=example)
        with pytest.raises(ValueError, match="has no faded shortcuts"):
            unfade(model)
    mask = torch.zeros(2, 3, 1)
    mask[0, 0] = -torch.inf
    assert len(fade(Masked(), 0.5, example=(x, mask)).shortcuts) == 4, "a mask of attention may be infinite"


def test_what_cannot_be_done_is_refused_in_one_sentence_and_leaves_the_model_as_it_was() -> None:
    x = torch.randn(2, 3, WIDTH)
    cases: list[tuple[nn.Module, dict[str, Any], str]] = [
        (nn.Linear(WIDTH, WIDTH), {}, "no shortcut was found in Linear because no two tensors are added"),
        (
            Loop(),
            {"within": "branchs"},
            "within is 'branchs', which matches no module of Loop; the nearest are branches",
        ),
        (
            Wrapped(),
            {"within": "branches"},
            "within is 'branches', which contains no shortcut; the rest of the model has 4",
        ),
        (Loop(), {"alpha_min": 1.5}, "alpha_min is 1.5"),
        (Loop(), {"schedule": "linar"}, "did you mean 'linear'"),
        (Loop(), {"around": "all"}, "around is 'all'"),
        (Loop(), {"around": "attention"}, "none of the 4 shortcuts found has such a branch"),
        (Loop(), {"include": "everything"}, "include has 'everything'; allowed: projections, long skips"),
        (Loop(), {"example": "image.png"}, "example is a str"),
        (Loop(), {"example": torch.randn(2, 5)}, "the example does not run through Loop: RuntimeError"),
        (torch.compile(Loop()), {}, "model is compiled already"),
        (Summed(), {"include": "projections"}, "is not a plain sum of two expressions"),
        (Lambda(), {}, "its addition cannot be rewritten"),
        (Sly(), {}, "rewritten does not give the output of the faded additions"),
        (Restless(), {}, "gives two different outputs for the same example"),
        (Picky(), {}, "with every alpha at 1 does not reproduce its output bit for bit"),
    ]
    for model, options, message in cases:
        classes = [type(m) for m in model.modules()]
        with pytest.raises(ValueError) as error:
            fade(model, **{"alpha_min": 0.4, "example": x, **options})
        assert message in str(error.value)
        assert [type(m) for m in model.modules()] == classes
        assert not any(name.startswith("faded") for m in model.modules() for name in vars(m))


def test_fading_twice_and_unfading_a_plain_model_are_refused() -> None:
    model, x = Loop(), torch.randn(2, 3, WIDTH)
    with pytest.raises(ValueError, match="Loop has no faded shortcuts"):
        unfade(model)
    fade(model, 0.4, example=x)
    with pytest.raises(ValueError, match="are faded already"):
        fade(model, 0.4, example=x)
    with pytest.raises(ValueError, match="are faded already"):
        fade(nn.Sequential(model), 0.4, example=x)
    unfade(model)
    fade(model, 0.4, example=x)


def test_code_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {"nn": nn}
    exec(
        "class Hidden(nn.Sequential):\n def forward(self, x):\n  return x + super().forward(x)",
        namespace,
    )
    with pytest.raises(ValueError, match="source of forward is not available"):
        fade(namespace["Hidden"](mlp()), 0.4, example=torch.randn(2, 3, WIDTH))
