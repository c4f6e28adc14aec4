"""What does a model output on an example, and are two outputs equal?

An `ExampleRunner` has no side effects: it restores training modes, buffers, the example and every random state. Every
run starts from the same random state, so that two runs of one model agree bit for bit even if it draws random numbers
(a masked autoencoder's mask).
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from echoless.shortcuts.modes import in_mode
from echoless.shortcuts.trace import FadedOperand, Tracer, tensors_in


class ExampleRunner:
    """Runs `model` on `example`: a tensor, a tuple of positional arguments, or a mapping of keyword arguments."""

    def __init__(self, model: nn.Module, example: object) -> None:
        if not isinstance(example, Tensor | tuple | list | Mapping):
            raise ValueError(
                f"example is a {type(example).__name__}; allowed: a tensor, a tuple of arguments, or a dict of "
                "keyword arguments, that the model can be called with"
            )
        self.model, self.example = model, example

    def run(self, *, training: bool = False) -> list[Tensor]:
        """The tensors of the output, in eval or in training mode."""
        with self._restored(training):
            out = list(tensors_in(self._call(_cloned(self.example))))
        if not out:
            raise ValueError("the model's output on the example contains no tensor, so that it cannot be checked")
        return out

    def trace(
        self, *, training: bool = False, fades: Mapping[int, FadedOperand] | None = None
    ) -> tuple[Tracer, list[Tensor]]:
        """The same under a `Tracer`, which is returned with the output."""
        with self._restored(training):
            example = _cloned(self.example)
            with Tracer(self.model, example, fades) as tracer:
                out = self._call(example)
            return tracer, list(tensors_in(out))

    def _call(self, example: Any) -> object:
        try:
            if isinstance(example, Mapping):
                return self.model(**example)
            return self.model(*example) if isinstance(example, tuple | list) else self.model(example)
        except Exception as error:
            raise ValueError(
                f"the example does not run through {type(self.model).__name__}: {type(error).__name__}: {error}"
            ) from error

    @contextlib.contextmanager
    def _restored(self, training: bool) -> Iterator[None]:
        buffers = [
            (module._buffers, name, buffer, buffer.clone())
            for module in self.model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        devices = {p.device.index for p in self.model.parameters() if p.device.type == "cuda"}
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=sorted(devices)), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user sees them when the model is used
                torch.manual_seed(0)
                with _python_and_numpy_seeded(), in_mode(self.model, training=training):
                    yield
        finally:
            with torch.no_grad():
                for home, name, buffer, before in buffers:
                    buffer.copy_(before)
                    home[name] = buffer


@contextlib.contextmanager
def _python_and_numpy_seeded() -> Iterator[None]:
    """Seeds the global generators of Python and numpy, which some models mask and drop with, and restores them."""
    python, numpy = random.getstate(), sys.modules.get("numpy")
    before = numpy.random.get_state() if numpy is not None else None
    random.seed(0)
    if numpy is not None:
        numpy.random.seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(before)


def refuse_not_finite(model: str, example: object, output: list[Tensor]) -> None:
    """Any two computations of NaN agree. Infinities are no mistake in an example: masks of attention have them."""
    if any(tensor.isnan().any() for tensor in tensors_in(example)):
        raise ValueError("the example contains NaN, with which no output can be checked; give finite numbers")
    if not all(tensor.isfinite().any() and not tensor.isnan().any() for tensor in output if tensor.numel()):
        raise ValueError(
            f"the output of {model} on the example is not finite, so that it cannot be checked; give a model with "
            "finite weights, and an example like its real inputs"
        )


def equal_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    """Are the tensors equal bit for bit (NaNs and signed zeros included)?"""
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b)) for a, b in zip(first, second)
    )


def close(first: list[Tensor], second: list[Tensor], tolerance: float | None = None) -> bool:
    """Are the tensors equal up to rounding, as after another order of summation?

    tolerance: relative to the largest entry (default: 7e-5 in single, 4e-10 in double precision).
    """
    return len(first) == len(second) and all(_close(a, b, tolerance) for a, b in zip(first, second))


def _close(a: Tensor, b: Tensor, tolerance: float | None) -> bool:
    if a.shape != b.shape or not a.is_floating_point():
        return a.shape == b.shape and torch.equal(a, b)
    tolerance = torch.finfo(a.dtype).eps ** 0.6 if tolerance is None else tolerance
    scale = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 1.0
    return torch.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def in_double(value: Any) -> Any:
    """The example for a model in double precision."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: in_double(item) for key, item in value.items()}
    return type(value)(map(in_double, value)) if type(value) in (list, tuple) else value


def _cloned(value: Any) -> Any:
    """A copy of the example, because some models modify their input in place."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _cloned(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_cloned(item) for item in value)
    return value
