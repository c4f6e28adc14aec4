"""Which additions of a traced forward are residual shortcuts, and which operand is the identity?

An addition of two tensors of equal shape is a shortcut if one operand, the identity, is an ancestor of the other, the
branch, and if a layer lies between them: an operation that mixes positions or channels. Every other addition is left
alone, with a reason. The rules use no model's or library's name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from echoless.shortcuts.rewrite import operand_source
from echoless.shortcuts.trace import Addition, Node

Kind = Literal["attention", "mlp"]
Extra = Literal["projections", "long skips"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of torch functions.
_LAYOUT = _words("""
    view view_as reshape reshape_as transpose permute flatten unflatten squeeze unsqueeze contiguous clone to type
    type_as float double half bfloat16 movedim swapaxes __get__
""")
_SELECTION = _words("""
    __getitem__ __setitem__ cat concat stack chunk split unbind narrow select index_select gather expand expand_as
    repeat repeat_interleave pad roll flip tile copy_ detach
""")
_DROPOUT = _words("dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout bernoulli_ bernoulli")
_SCALED = _LAYOUT | _SELECTION | _DROPOUT | {"mean"}
_STATISTICS = _words("""
    layer_norm group_norm batch_norm instance_norm rms_norm local_response_norm normalize softmax log_softmax mean sum
    var std var_mean std_mean norm vector_norm linalg_vector_norm amax amin max min logsumexp cumsum
""")
# Activations that torch does not tag as pointwise.
_ACTIVATIONS = _words("hardswish hardsigmoid glu prelu rrelu softmin gumbel_softmax")
_ATTENTION = _words("scaled_dot_product_attention multi_head_attention_forward softmax")

# A convolutional position embedding is added as x + f(x) too; only its name distinguishes it from a shortcut.
_POSITION = re.compile(r"\bpos(ition(al)?)?_?(emb|enc)", re.IGNORECASE)


@dataclass(eq=False, frozen=True, slots=True)
class FoundShortcut:
    """An addition whose operand number `identity` (0 left, 1 right) is the identity shortcut of the other."""

    addition: Addition
    identity: int
    kind: Kind

    @property
    def stream(self) -> Node:
        return (self.addition.left, self.addition.right)[self.identity]

    @property
    def branch(self) -> Node:
        return (self.addition.left, self.addition.right)[1 - self.identity]


@dataclass(eq=False, frozen=True, slots=True)
class Other:
    """An addition that is no shortcut, and the reason."""

    addition: Addition
    reason: str


def find_shortcuts(
    nodes: Sequence[Node], additions: Sequence[Addition], include: frozenset[str] = frozenset()
) -> tuple[list[FoundShortcut], list[Other]]:
    """Classifies the additions of a trace as shortcuts or others, both in order of execution."""
    sorted_ = [_classify(nodes, addition, include) for addition in additions]
    shortcuts = [item for item in sorted_ if isinstance(item, FoundShortcut)]
    others = [item for item in sorted_ if isinstance(item, Other)]
    if "long skips" not in include:
        # A branch may contain one shortcut of its own; a skip around more than one is a long skip.
        long_skips = {id(s): inner for s in shortcuts if (inner := _shortcuts_inside(nodes, s, shortcuts)) > 1}
        others += [
            Other(s.addition, f"a long skip around {long_skips[id(s)]} other shortcuts (include='long skips' fades it)")
            for s in shortcuts
            if id(s) in long_skips
        ]
        shortcuts = [s for s in shortcuts if id(s) not in long_skips]
    return shortcuts, sorted(others, key=lambda other: other.addition.order)


def _classify(nodes: Sequence[Node], addition: Addition, include: frozenset[str]) -> FoundShortcut | Other:
    left, right = addition.left, addition.right
    if left.shape != right.shape:
        return Other(addition, "the operands differ in shape (an embedding, a bias or a mask)")
    if left is right:
        return Other(addition, "a tensor added to itself")
    for identity, (stream, branch) in enumerate(((left, right), (right, left))):
        origin = _undo_layout(stream)
        if branch.comes_from(origin):
            names = {node.name for node in between(nodes, origin, branch)}
            if all(is_elementary(name) for name in names):
                return Other(addition, "no layer lies between the operands, only elementwise arithmetic")
            if _POSITION.search(operand_source(addition.places[0], 1 - identity)):
                return Other(addition, "a position embedding, by its name")
            return FoundShortcut(addition, identity, _kind(names))
    return _classify_merge(nodes, addition, include)


def _classify_merge(nodes: Sequence[Node], addition: Addition, include: frozenset[str]) -> FoundShortcut | Other:
    """Neither operand is an ancestor of the other; both may descend from a third (a ResNet's projection shortcut)."""
    left, right = addition.left, addition.right
    common = left.origins & right.origins
    origins = [nodes[i] for i in _bits_from_the_top(common) if nodes[i].floating]
    if not origins:
        return Other(addition, "neither operand was computed from the other (an embedding, a bias or a mask)")
    paths = [between(nodes, origins[0], end) for end in (left, right)]
    layers = [sum(_has_weights_or_mixes(node.name) for node in path) for path in paths]
    light, heavy = (0, 1) if layers[0] < layers[1] else (1, 0)
    if layers[light] > 1 or layers[heavy] <= layers[light] or not _has_nonlinearity(paths[heavy]):
        return Other(addition, "a merge of two branches, neither of which is an identity")
    if "projections" in include:
        return FoundShortcut(addition, light, _kind({node.name for node in paths[heavy]}))
    what = "projected" if layers[light] else "selected, scaled or normalised"
    return Other(addition, f"its shortcut is {what}, not an identity (include='projections' fades it)")


def between(nodes: Sequence[Node], start: Node, end: Node) -> list[Node]:
    """The nodes on all paths from `start` (excluded) to `end` (included)."""
    return [
        node
        for node in nodes[start.index + 1 : end.index + 1]
        if end.origins >> node.index & 1 and node.comes_from(start)
    ]


def _undo_layout(node: Node) -> Node:
    """The ancestor with the same values, before it was reshaped, transposed or copied."""
    while node.name in _LAYOUT and len(node.parents) == 1 and node.parents[0].shape.numel() == node.shape.numel():
        node = node.parents[0]
    return node


def origin_of_scale(node: Node) -> Node:
    """The ancestor that this node is a copy, a part or a mean of: if that is multiplied by c > 0, so is this."""
    while node.name in _SCALED and len(node.parents) == 1:
        node = node.parents[0]
    return node


def _shortcuts_inside(nodes: Sequence[Node], outer: FoundShortcut, shortcuts: Sequence[FoundShortcut]) -> int:
    origin = _undo_layout(outer.stream)
    inside = {node.index for node in between(nodes, origin, outer.branch)}
    return sum(inner.addition.result.index in inside for inner in shortcuts if inner is not outer)


def _kind(names: set[str]) -> Kind:
    return "attention" if names & _ATTENTION else "mlp"


def _has_weights_or_mixes(name: str) -> bool:
    """Is this a layer, and not a change of resolution, which projection shortcuts contain too?"""
    return not is_elementary(name) and "pool" not in name and name != "interpolate"


def _has_nonlinearity(path: Sequence[Node]) -> bool:
    linear = _LAYOUT | _SELECTION | _DROPOUT | {"mul", "div", "add", "add_", "sub", "batch_norm", "group_norm"}
    return any(node.name not in linear and is_elementary(node.name) for node in path)


def _bits_from_the_top(bits: int) -> list[int]:
    return [i for i in range(bits.bit_length() - 1, -1, -1) if bits >> i & 1]


@functools.cache
def is_elementary(name: str) -> bool:
    """Is this function not a layer: pointwise, a change of layout, a selection, a statistic, or dropout?"""
    return name in _LAYOUT | _SELECTION | _DROPOUT | _STATISTICS | _ACTIVATIONS or _is_pointwise(name)


def _is_pointwise(name: str) -> bool:
    bare = name.strip("_")
    for candidate in (bare, bare.removeprefix("r"), bare.removeprefix("i"), bare.removeprefix("true")):
        packet = getattr(torch.ops.aten, candidate, None)
        overloads = packet.overloads() if packet is not None else ()
        if any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in overloads):
            return True
    return False
