"""A stream and its branch are added in shortcuts/residual.py and nowhere else in the source.

A sum is residual if one operand is computed from the other by a call of a layer, a submodule or a function: as in
`x + self.attn(x)`, also across assignments. Builtins, numpy, math, torch's own functions and methods of tensors are not
layers. The check reads the syntax tree; planted examples show what it finds and what it lets pass.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import Tensor

SOURCE = Path(__file__).resolve().parent.parent / "src" / "echoless"
THE_ONE_PLACE = SOURCE / "shortcuts" / "residual.py"
# Their steps are x + dt * velocity(x, t) and x + length * direction(x): sums over time and not over depth.
ITERATIONS = ("objectives/samplers/", "measures/lbfgs.py")

# Sums of integers that look like one.
NUMBERS = (
    "unit_rows + threads * (similarities + 2 * 4 * dim * QUERY_TILE + candidates) + results",  # measures/knn.py: bytes
    "kept_B + start",  # data/loader.py: places in a batch
    "top + size[0]",  # data/resizing.py: corners of a crop
    "left + size[1]",
)

ADDITIONS = {"add", "add_", "addcmul", "addcmul_", "lerp", "lerp_"}
LIBRARIES = {"torch", "np", "math", *dir(builtins)}
NO_TENSORS = {"shape", "ndim", "dtype", "device", "config"}  # attributes that are not, or do not lead to, tensors
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Value = tuple[str, int]  # a name or attribute as written, and how often it had been assigned before


class ResidualSums(ast.NodeVisitor):
    """The residual sums of one function, in source order; nested functions are functions of their own."""

    def __init__(self) -> None:
        self.found: list[ast.AST] = []
        self._assigned: dict[str, int] = {}
        self._lists: set[Value] = set()
        self._made_from: dict[Value, frozenset[Value]] = {}  # by calls, directly or through other variables

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        pass

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.op, ast.Add):
            self._check(node, node.target, node.value)
        self._assign(node.target, node.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            self._check(node, node.left, node.right)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        match node.func:
            case ast.Attribute(ast.Name("torch"), name) | ast.Name(name) if name in ADDITIONS:
                operands = given
            case ast.Attribute(receiver, name) if name in ADDITIONS:
                operands = [receiver, *given]
            case ast.Name("sum") if given and isinstance(given[0], ast.List | ast.Tuple):
                operands = given[0].elts
            case _:
                return
        pairs = list(itertools.combinations(operands, 2))
        factors = name.startswith("addcmul") and len(pairs) == 3  # a + b * c: b and c are not added to each other
        for left, right in pairs[:2] if factors else pairs:
            self._check(node, left, right)

    def _check(self, node: ast.AST, left: ast.expr, right: ast.expr) -> None:
        pairs = ((left, right), (right, left))
        if any(self._values(stream) & self._call_inputs(branch) - self._lists for stream, branch in pairs):
            self.found.append(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        inputs = self._call_inputs(value)
        for node in ast.walk(target):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = ast.unparse(node)
                self._assigned[name] = self._assigned.get(name, 0) + 1
                self._made_from[name, self._assigned[name]] = inputs
                if isinstance(value, ast.List | ast.ListComp):
                    self._lists.add((name, self._assigned[name]))

    def _value(self, node: ast.expr) -> Value:
        name = ast.unparse(node)
        return name, self._assigned.get(name, 0)

    def _values(self, node: ast.expr) -> frozenset[Value]:
        """The operand itself, without its factors, casts and changes of layout."""
        match node:
            case ast.Name() | ast.Attribute():
                return frozenset(self._value(name) for name in names_in(node))
            case ast.BinOp(left, ast.Mult() | ast.Add() | ast.Sub(), right):
                return self._values(left) | self._values(right)
            case ast.BinOp(left, ast.Div()):
                return self._values(left)
            case ast.UnaryOp(_, operand) | ast.Subscript(operand):
                return self._values(operand)
            case ast.Call(ast.Attribute(receiver, method)) if hasattr(Tensor, method):
                return self._values(receiver)
        return frozenset()

    def _call_inputs(self, node: ast.expr) -> frozenset[Value]:
        """The inputs of every layer called in this expression, or in the making of its variables."""
        inputs = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and is_layer(part.func):
                given = [*part.args, *(keyword.value for keyword in part.keywords)]
                inputs |= {self._value(name) for argument in given for name in names_in(argument)}
        for name in names_in(node):
            inputs |= self._made_from.get(self._value(name), frozenset())
        return frozenset(inputs)


def is_layer(callee: ast.expr) -> bool:
    """May this call be a layer: a submodule, or a function that is not a builtin's, a library's or a tensor's?"""
    if isinstance(callee, ast.Name):
        return not hasattr(builtins, callee.id)
    if isinstance(callee, ast.Attribute):
        path = ast.unparse(callee)
        submodule = path.startswith("self.") and path.count(".") == 1
        return submodule or (path.split(".")[0] not in LIBRARIES and not hasattr(Tensor, callee.attr))
    return True  # self.blocks[0](x)


def names_in(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Names of tensors: `self.x` as a whole, `x` of `x.mT` and of `x.flatten()`, nothing of `x.shape`."""
    if isinstance(node, ast.Attribute) and NO_TENSORS & set(ast.unparse(node).split(".")):
        return
    if isinstance(node, ast.Attribute) and hasattr(Tensor, node.attr):
        yield from names_in(node.value)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from names_in(child)


def residual_sums(source: str) -> Iterator[str]:
    """`line: text` of every residual sum."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, FUNCTIONS):
            visitor = ResidualSums()
            for statement in function.body if isinstance(function.body, list) else [function.body]:
                visitor.visit(statement)
            for node in visitor.found:
                yield f"{node.lineno}: {ast.unparse(node)}"


def products_with_alpha(source: str) -> Iterator[str]:
    """`line: text` of every product with something called alpha, and of every addition with the keyword alpha."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.BinOp(left, ast.Mult(), right):
                factors = [ast.unparse(factor).split("[")[0].split(".")[-1] for factor in (left, right)]
                if {"alpha", "alphas"} & set(factors):
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Call(ast.Attribute(_, name), keywords=keywords) if name in ADDITIONS:
                if any(keyword.arg == "alpha" for keyword in keywords):
                    yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("body", [
    "x = x + self.attn(x)",
    "x = x + self.attn(self.norm(x))",
    "x = self.mlp(self.norm(x)) + x",
    "x += self.mlp(x)",
    "x = torch.add(x, self.mlp(x))",
    "x = torch.add(input=x, other=self.mlp(x))",
    "x = add(self.mlp(x), x)",
    "x = sum([x, self.attn(x), self.mlp(x)])",
    "x = torch.add(self.mlp(x), x, alpha=alpha)",
    "x = self.mlp(x).add_(x)",
    "x = torch.addcmul(self.mlp(x), x, self.alpha)",
    "y = self.attn(x); x = x + y",
    "h = self.norm(x); y = self.attn(h); x = x + self.drop(y)",
    "y, weights = self.attn(x, x, x); x = x + y",
    "x = alpha * x + self.attn(x)",
    "x = x + self.gamma * self.attn(x)",
    "x = x + self.attn(x).transpose(1, 2)",
    "x = self.norm(x + self.attn(x))",
    "self.stream = self.stream + self.mlp(self.stream)",
    "for block in self.blocks:\n  y = block(x)\n  x = x + y",
    "if (y := self.mlp(x)) is not None:\n  x = y + x",
    "return x + self.attn(x) + self.mlp(x)",
    "join = lambda x: x + self.mlp(x)",
    "y = self.mix(x); x = x + y.mT",
    "y = self.mix(x); x = x + y.flatten(1)",
    "x = x + block.attn(x)",
    "x = x + F.linear(x, self.weight)",
])  # fmt: skip
def test_a_planted_residual_sum_is_found(body):
    lines = "\n".join(f"  {line}" for statement in body.split("; ") for line in statement.split("\n"))
    assert list(residual_sums(f"def forward(self, x, alpha):\n{lines}\n"))


@pytest.mark.parametrize("body", [
    "x = tokens + positions",
    "x = self.embed(images) + self.positions",
    "x = self.shortcut(x, self.attn(self.norm(x)))",
    "x = residual(x, self.attn(x), alpha)",
    "x = self.left(x) + self.right(x)",
    "x = self.embed(self.norm(x)) + self.positions",
    "x = x + torch.arange(len(x))",
    "y = self.attn(x); top = x + y.shape[0]",
    "x = x + 0.044715 * x.pow(3)",
    "y = self.norm(x); x = x * 2; z = x + y",
    "loss = loss + self.weight",
    "found = [f(x)]; found += more(found)",
    "y = torch.addcmul(self.bias, x, self.scale(x))",  # a gate, or a normalisation: x is multiplied
    "name = prefix + suffix",
])  # fmt: skip
def test_other_sums_pass(body):
    lines = "\n".join(f"  {statement}" for statement in body.split("; "))
    assert not list(residual_sums(f"def forward(self, x, tokens, positions, alpha):\n{lines}\n"))


def test_no_residual_sum_is_written_outside_its_one_place():
    assert list(residual_sums(THE_ONE_PLACE.read_text())) == []  # it adds its two arguments and calls no branch
    files = {str(file.relative_to(SOURCE)): file.read_text() for file in SOURCE.rglob("*.py")}
    with_torch = {name: text for name, text in files.items() if "torch" in text and not name.startswith(ITERATIONS)}
    assert len(with_torch) > 100
    found = {f"{name}:{line}" for name, text in with_torch.items() for line in residual_sums(text)}
    assert not {line for line in found if not line.endswith(NUMBERS)}


def test_no_stream_is_multiplied_by_alpha_outside_its_one_place():
    for planted in (
        "alpha * x + fx",
        "self.alpha * x",
        "x * alphas[i]",
        "fx.add(x, alpha=a)",
        "torch.add(fx, x, alpha=a)",
    ):
        assert list(products_with_alpha(planted)), planted
    assert not list(products_with_alpha("residual(x, fx, alpha=alpha) + 2 * alpha_min"))
    schedule = THE_ONE_PLACE.with_name("schedule.py")  # products of alphas with each other
    outside = [file for file in SOURCE.rglob("*.py") if file not in (THE_ONE_PLACE, schedule)]
    found = {f"{file.relative_to(SOURCE)}:{line}" for file in outside for line in products_with_alpha(file.read_text())}
    assert not found
