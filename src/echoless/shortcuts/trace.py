"""Which tensors does one forward compute from which, and which source line executes each addition?

A `Tracer` records a forward at the level of torch functions as a small graph: one node per tensor, with its parents
and the set of its ancestors. Every addition of two tensors is recorded with its source location, to the column, and
with the object whose method ran it. The graph does not depend on autograd, so that frozen models, integer inputs and
`no_grad` make no difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import CellType, CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from echoless.shortcuts.residual import residual, stream_first

_ADDITIONS = frozenset({torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__})
_IN_PLACE_ADDITIONS = frozenset({Tensor.add_, Tensor.__iadd__})


@dataclass(eq=False, frozen=True, slots=True)
class Node:
    """A tensor of the traced forward. `origins` is a bit set: the indices of its ancestors and its own."""

    index: int
    name: str  # of the torch function that returned it
    parents: tuple[Node, ...]
    weights: tuple[nn.Parameter, ...]  # parameters among the arguments of the function
    shape: torch.Size
    floating: bool
    origins: int
    module: str  # name of the innermost module that was running; "" for inputs and constants, too

    def comes_from(self, other: Node) -> bool:
        return self is not other and bool(self.origins >> other.index & 1)


class Place(NamedTuple):
    """A source location: code object, first line, last line, first column, last column."""

    code: CodeType
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(eq=False, frozen=True, slots=True)
class Addition:
    """One execution of `left + right`.

    `places` is the call stack from the addition outwards, through plain functions, to the method of `owner` (None if
    there is no such method); `call` numbers the calls of such methods.
    """

    order: int
    left: Node
    right: Node
    result: Node
    in_place: bool
    owner: object | None
    module: str  # name of the innermost module that was running
    call: int
    places: tuple[Place, ...]


class FadedOperand(NamedTuple):
    """Which operand of an addition is multiplied by alpha when a forward is replayed."""

    identity: int  # 0 left, 1 right
    alpha: float


class Tracer(TorchFunctionMode):
    """Records a forward; with `fades`, keyed by the order of the additions, it also executes those additions faded.

    The outputs under `fades` are the reference for a rewritten model: they are computed without the rewriting.
    """

    def __init__(self, model: nn.Module, inputs: object, fades: Mapping[int, FadedOperand] | None = None) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.additions: list[Addition] = []
        self.uses: dict[int, int] = {}  # id of a parameter -> number of calls that used it
        self._names = {id(module): name for name, module in model.named_modules()}
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._node_of = WeakTensorKeyDictionary()
        self._calls: dict[FrameType, int] = {}
        self._fades = fades or {}
        for tensor in tensors_in(inputs):
            self._node_of[tensor] = self._new_node("input", (), (), tensor, "")

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = list(tensors_in((args, kwargs)))
        parents = tuple(node for tensor in given if (node := self._node_of.get(tensor)) is not None)
        operands = _operands(func, args, kwargs)
        before = tuple(self._node_of.get(tensor) or self._constant(tensor) for tensor in operands or ())
        order, versions = len(self.additions), [_version(tensor) for tensor in given]
        if operands is not None and order in self._fades:
            out = _faded(func, operands, self._fades[order])
        else:
            out = func(*args, **kwargs)
        changed = [tensor for tensor, version in zip(given, versions) if _version(tensor) != version]
        self._record(func, given, parents, changed, out, sys._getframe(1))
        if operands is not None:
            self._record_addition(func, before, self._node_of[out], sys._getframe(1))
        return out

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._calls.clear()  # frames keep every local alive, activations included

    def _record(
        self,
        func: Any,
        given: list[Tensor],
        parents: tuple[Node, ...],
        changed: list[Tensor],
        out: object,
        frame: FrameType,
    ) -> None:
        name = getattr(func, "__name__", str(func))
        weights = tuple(t for t in given if id(t) in self._parameters and isinstance(t, nn.Parameter))
        for weight in weights:
            self.uses[id(weight)] = self.uses.get(id(weight), 0) + 1
        # A function that returns its argument unchanged (`contiguous`, dropout in eval mode) adds no node.
        made = [tensor for tensor in tensors_in(out) if not any(tensor is t for t in given)]
        module = self._innermost_module(frame) if made or changed else ""
        for tensor in made + changed:
            self._node_of[tensor] = self._new_node(name, parents, weights, tensor, module)

    def _record_addition(self, func: Any, operands: tuple[Node, ...], result: Node, frame: FrameType) -> None:
        owner, call, places = _who_ran(frame)
        addition = Addition(
            order=len(self.additions),
            left=operands[0],
            right=operands[1],
            result=result,
            in_place=func in _IN_PLACE_ADDITIONS,
            owner=owner,
            module=self._innermost_module(frame),
            call=self._calls.setdefault(call, len(self._calls)),
            places=places,
        )
        self.additions.append(addition)

    def _constant(self, tensor: Tensor) -> Node:
        return self._new_node("constant", (), (), tensor, "")

    def _new_node(
        self, name: str, parents: tuple[Node, ...], weights: tuple[nn.Parameter, ...], tensor: Tensor, module: str
    ) -> Node:
        index = len(self.nodes)
        floating = tensor.is_floating_point() or tensor.is_complex()
        origins = 1 << index
        # Ancestry stops at detach() and at integer tensors, as gradients do.
        if floating and name != "detach":
            for parent in parents:
                origins |= parent.origins
        node = Node(index, name, parents, weights, tensor.shape, floating, origins, module)
        self.nodes.append(node)
        return node

    def _innermost_module(self, frame: FrameType | None) -> str:
        while frame is not None:
            if (name := self._names.get(id(_first_argument(frame)))) is not None:
                return name
            frame = frame.f_back
        return ""


def tensors_in(value: object) -> Iterator[Tensor]:
    """Every tensor in nested containers, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name, None))


def _operands(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    if func not in _ADDITIONS or kwargs.keys() - {"input", "other"}:
        return None
    both = (*args, *(kwargs[name] for name in ("input", "other") if name in kwargs))
    if len(both) != 2 or not all(isinstance(t, Tensor) and t.is_floating_point() and t.ndim for t in both):
        return None
    return both


def _faded(func: Any, operands: tuple[Tensor, Tensor], fade: FadedOperand) -> Tensor:
    join = residual if fade.identity else stream_first
    sum_ = join(operands[fade.identity], operands[1 - fade.identity], fade.alpha)
    return operands[0].copy_(sum_) if func in _IN_PLACE_ADDITIONS else sum_


def _version(tensor: Tensor) -> int:
    """Number of in-place changes of a tensor."""
    return 0 if tensor.is_inference() else tensor._version


def _who_ran(frame: FrameType) -> tuple[object | None, FrameType, tuple[Place, ...]]:
    """The innermost object with a method on the call stack, that method's frame, and the stack up to it."""
    start = frame
    places: list[Place] = []
    caller: FrameType | None = frame
    while caller is not None and len(places) < 8:
        places.append(_place(caller))
        owner = _first_argument(caller)
        if owner is not None and not isinstance(owner, Tensor) and home_of(type(owner), caller.f_code):
            return owner, caller, tuple(places)
        caller = caller.f_back
    return None, start, tuple(places)


def _place(frame: FrameType) -> Place:
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return Place(frame.f_code, *(number if number is not None else -1 for number in positions))


def _first_argument(frame: FrameType) -> object | None:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def home_of(cls: type, code: CodeType) -> type | None:
    """The class, `cls` or one it inherits from, whose own method is, or wraps, the function with this code."""
    return next((base for base in cls.__mro__ if leads_to(vars(base).get(code.co_name), code)), None)


def leads_to(function: object, code: CodeType, depth: int = 6) -> bool:
    """Does this function, or one that it wraps as a decorator does, have this code?"""
    if getattr(function, "__code__", None) is code:
        return True
    cells = getattr(function, "__closure__", None) or ()
    return depth > 0 and any(leads_to(content_of(cell), code, depth - 1) for cell in cells)


def content_of(cell: CellType) -> object:
    """Content of a closure's cell, or None."""
    try:
        return cell.cell_contents
    except ValueError:  # a cell that is still empty
        return None
