"""Which modules of a transformer block, of any library, are its queries, keys, values, output, MLP and norms?

Recognised by structure: three linear layers for queries, keys and values, or one for all three; the one linear layer
after the attention; the other linear layers of the block. Forward hooks record the order of execution, which in a
pre-norm block is norm, attention, norm, MLP. No library is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from echoless.shortcuts.modes import evaluating

_SEPARATE = (("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("to_q", "to_k", "to_v"), ("q", "k", "v"))
_FUSED = ("qkv", "c_attn")  # thirds of one layer, each with all heads
_HEADS = ("num_heads", "heads", "num_attention_heads", "n_head", "n_heads")
_SCALES = ("gamma", "lambda1", "lambda_1", "lambda_2")  # gains on a branch, one number per channel
_PRE_NORM = ["norm", "attention", "norm", "MLP"]
_PROBE_TOKENS = 4


@dataclass(frozen=True)
class Projection:
    """A matrix W of y = x W + b (in, out): a layer's own, or one third of it."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    transposed: bool  # torch's linear layers keep W^T, GPT-2's keep W
    third: int | None = None

    @property
    def matrix(self) -> Tensor:
        """A view: writing to it changes the layer."""
        matrix = self.weight.T if self.transposed else self.weight
        return matrix if self.third is None else matrix.chunk(3, dim=1)[self.third]

    @property
    def offset(self) -> Tensor | None:
        if self.bias is None or self.third is None:
            return self.bias
        return self.bias.chunk(3)[self.third]

    def __call__(self, x: Tensor) -> Tensor:
        y = x @ self.matrix
        return y if self.offset is None else y + self.offset


@dataclass(frozen=True)
class SelfAttention:
    """`reader` is the module whose first input is what the queries are made from."""

    name: str
    reader: nn.Module
    query: Projection
    key: Projection
    value: Projection
    output: Projection
    heads: int

    @property
    def width(self) -> int:
        return self.output.matrix.shape[1]


@dataclass(frozen=True)
class TransformerBlock:
    """One block: its attention, the linear layers of its MLP, its norms, its LayerScale gains."""

    name: str
    module: nn.Module
    attention: SelfAttention
    mlp: tuple[Projection, ...]
    norms: tuple[nn.Module, ...]
    scales: tuple[nn.Parameter, ...]
    first_norm: nn.Module  # runs before the attention, on what enters the block
    second_norm: nn.Module  # runs before the MLP, on what the attention made of the stream


def find_blocks(model: nn.Module, example: object = None) -> list[TransformerBlock]:
    """The pre-norm blocks of a model, in order; ValueError if it has any other kind of block.

    example: input of one forward of the model (a tensor, a tuple, a dict); without it each block is run by itself.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model is a {type(model).__name__}; allowed: a torch.nn.Module")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError("model is on the meta device and has no weights; allowed: a model in memory")
    found = [_attention(model, name, module) for name, module in model.named_modules() if _readers(module) is not None]
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no attention that could be recognised; it must be a transformer with linear "
            "queries, keys and values"
        )
    _refuse_convolutions(model)
    return [_block(model, attention, example) for attention in found]


# --- the attention ---


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (type(module).__name__ == "Conv1D" and hasattr(module, "nf"))


def _projection(layer: nn.Module, third: int | None = None) -> Projection:
    weight, bias = layer.weight, getattr(layer, "bias", None)
    assert isinstance(weight, nn.Parameter)
    return Projection(weight, bias, isinstance(layer, nn.Linear), third)


def _readers(module: nn.Module) -> tuple[nn.Module, list[Projection]] | None:
    """Queries, keys and values where this very module holds them."""
    if isinstance(module, nn.MultiheadAttention):
        weight = module.in_proj_weight
        thirds = [] if weight is None else [Projection(weight, module.in_proj_bias, True, i) for i in range(3)]
        return module, thirds
    children = {name: child for name, child in module.named_children() if is_linear(child)}
    for names in _SEPARATE:
        if all(name in children for name in names):
            return children[names[0]], [_projection(children[name]) for name in names]
    for name in _FUSED:
        if name in children:
            return children[name], [_projection(children[name], third) for third in range(3)]
    return None


def _attention(model: nn.Module, name: str, module: nn.Module) -> SelfAttention:
    readers = _readers(module)
    assert readers is not None
    reader, projections = readers
    inside = {id(projection.weight) for projection in projections}
    for where in _outwards(name):
        outer = model.get_submodule(where)
        others = [m for m in outer.modules() if is_linear(m) and id(m.weight) not in inside]
        if others:
            break
    if len(projections) != 3 or len(others) != 1:
        raise ValueError(
            f"{name or 'the model'} has no single layer after its attention that could be recognised; it needs "
            "queries, keys and values of one width, and one linear layer behind them"
        )
    if any(_is_norm(m) for m in module.modules()):
        raise ValueError(
            f"{name} normalises its queries and keys, so that W_Q W_K^T does not set its logits; the attention must be "
            "without such norms"
        )
    query, key, value = projections
    attention = SelfAttention(where, reader, query, key, value, _projection(others[0]), _heads(model, name, where))
    _refuse_shapes(attention)
    return attention


def _heads(model: nn.Module, inner: str, outer: str) -> int:
    for where in dict.fromkeys((inner, outer)):
        module = model.get_submodule(where)
        for owner in (module, getattr(module, "config", None)):
            for attribute in _HEADS:
                if isinstance(heads := getattr(owner, attribute, None), int):
                    return heads
    raise ValueError(f"{outer or 'the model'} does not say how many heads it has; allowed: one of {', '.join(_HEADS)}")


def _refuse_shapes(attention: SelfAttention) -> None:
    width, heads = attention.width, attention.heads
    for part in ("query", "key", "value", "output"):
        shape = tuple(getattr(attention, part).matrix.shape)
        if shape != (width, width):
            raise ValueError(f"{attention.name}: its {part} is {shape[0]} x {shape[1]}; allowed: {width} x {width}")
    if heads < 1 or width % heads:
        raise ValueError(f"{attention.name}: it has {heads} heads; allowed: a divisor of its width {width}")


def _refuse_convolutions(model: nn.Module) -> None:
    """A patch embedding is one convolution whose kernels do not overlap."""
    convolutions = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    stems = [name for name, m in convolutions if m.kernel_size != m.stride or m.groups != 1]
    stems += [name for name, _ in convolutions if name not in stems][1:]
    if stems:
        raise ValueError(
            f"{type(model).__name__} has the convolution {stems[0]}; its only one must be a patch embedding, with "
            "stride equal to its kernel"
        )


# --- the block around it ---


def _outwards(name: str) -> Iterator[str]:
    """The name and those of everything around it, up to the model itself, which is ""."""
    parts = name.split(".") if name else []
    for length in range(len(parts), -1, -1):
        yield ".".join(parts[:length])


def _block(model: nn.Module, attention: SelfAttention, example: object) -> TransformerBlock:
    own = attention.query, attention.key, attention.value, attention.output
    inside = {id(projection.weight) for projection in own}
    mlp: list[nn.Module] = []
    for name in _outwards(attention.name):
        module = model.get_submodule(name)
        mlp = [m for m in module.modules() if is_linear(m) and id(m.weight) not in inside]
        if len(mlp) >= 2:
            break
    if len(mlp) < 2 or sum(_readers(m) is not None for m in module.modules()) != 1:
        raise ValueError(
            f"{attention.name or 'the model'} is not in a block with an MLP of two or more linear layers; each block "
            "must have one attention and one MLP"
        )
    norms = [m for m in module.modules() if _is_norm(m)]
    run = (lambda: _run_alone(name, module, attention)) if example is None else (lambda: _run(model, example))
    first, second = _norms_in_order(name, attention, mlp, norms, model if example is not None else module, run)
    projections = tuple(_projection(layer) for layer in mlp)
    return TransformerBlock(name, module, attention, projections, tuple(norms), _scales(module), first, second)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not list(module.children())


def _scales(module: nn.Module) -> tuple[nn.Parameter, ...]:
    return tuple(
        parameter
        for owner in module.modules()
        if not _is_norm(owner)
        for name, parameter in owner.named_parameters(recurse=False)
        if name in _SCALES and parameter.ndim == 1
    )


def _norms_in_order(
    name: str,
    attention: SelfAttention,
    mlp: Sequence[nn.Module],
    norms: Sequence[nn.Module],
    running: nn.Module,
    run: Callable[[], object],
) -> tuple[nn.Module, nn.Module]:
    """The norm before the attention and the norm before the MLP; refused where there are no such two."""
    kinds = {attention.reader: "attention", **dict.fromkeys(mlp, "MLP"), **dict.fromkeys(norms, "norm")}
    calls: list[nn.Module] = []
    hooks = [module.register_forward_pre_hook(lambda module, _: calls.append(module)) for module in kinds]
    try:
        with torch.no_grad(), evaluating(running):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    order = [kind for kind, _ in groupby(kinds[module] for module in calls)]
    if order[:4] != _PRE_NORM:
        raise ValueError(
            f"{name or 'the model'} runs {', '.join(order) or 'nothing'}; it must be a pre-norm block, which runs "
            f"{', '.join(_PRE_NORM)}"
        )
    before = calls.index(attention.reader)
    after = next(i for i, module in enumerate(calls) if kinds[module] == "MLP")
    return calls[before - 1], calls[after - 1]


def _run_alone(name: str, module: nn.Module, attention: SelfAttention) -> None:
    weight = attention.query.weight
    tokens = torch.linspace(-1, 1, _PROBE_TOKENS * attention.width, dtype=weight.dtype, device=weight.device)
    parameters = list(inspect.signature(module.forward).parameters.values())
    needed = [p for p in parameters[1:] if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    try:  # masks and the like are None where there is nothing to mask
        module(tokens.view(1, _PROBE_TOKENS, attention.width), *[None] * len(needed))
    except Exception as error:  # whatever a block says that needs more than its tokens
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{name} cannot be run on its tokens alone ({reason}); give example=, an input of the whole model"
        ) from error


def _run(model: nn.Module, example: object) -> None:
    if isinstance(example, dict):
        model(**example)
    else:
        model(*(example if isinstance(example, tuple) else (example,)))
