"""Which small changes can be made by rule? Operators, constants, arguments and statements, found in the syntax tree.

Left alone, because no behaviour hangs on them: docstrings, strings, messages of exceptions and of the log, type
annotations, decorators, assertions (they narrow types), imports, `__repr__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutants.mutant import Mutant, make_mutant

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
OPPOSITES = {
    **{"min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum"},
    **{"any": "all", "floor": "ceil", "zeros": "ones", "zeros_like": "ones_like"},
}
OPPOSITES |= {value: key for key, value in OPPOSITES.items()}

UNORDERED = {"min", "max", "minimum", "maximum", "equal", "allclose", "gcd", "hypot"}  # swapped arguments are the same
INTROSPECTION = {"isinstance", "getattr", "setattr", "hasattr"}  # swapped arguments fail at once
SILENT_CALLS = {"say", "print", "log", "warn", "show", "Progress", "cast", "TypeVar"}  # messages, and types
SILENT_KEYWORDS = {"help", "metavar", "desc", "title", "strict"}
SILENT_FUNCTIONS = {"__repr__", "__str__"}
SILENT_TARGETS = {"__all__", "__slots__"}


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of the text."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    found = []
    for node, new, rule in _changes(tree):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        mutant = make_mutant(file, source, start, end, new, rule)
        if source[start:end] != new.encode():
            found.append(mutant)
    return sorted(set(found), key=lambda mutant: (mutant.start, mutant.end, mutant.new))


Change = tuple[ast.expr | ast.stmt, str, str]


def _changes(node: ast.AST) -> Iterator[Change]:
    """(what is replaced, by which text, by which rule), for a node and everything below it that matters."""
    if _is_silent(node):
        return
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    for child in _children_that_matter(node):
        yield from _changes(child)


def _is_silent(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) if name in SILENT_FUNCTIONS:
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name in SILENT_TARGETS:
            return True
        case ast.Call():
            return _name_of(node.func) in SILENT_CALLS
    return isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom)


def _children_that_matter(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "exc", "cause"}:  # exc: what a raise statement says
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg in SILENT_KEYWORDS:
                continue
            if isinstance(child, ast.AST):
                yield child


# --- statements ---


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call()) if not _is_silent(node.value):
            yield node, "pass", "statement dropped"
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Delete() | ast.Return(value=None):
            yield node, "pass", "statement dropped"
        case ast.AugAssign():
            yield node, "pass", "statement dropped"
            if type(node.op) in ARITHMETIC:
                other = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
                yield node, ast.unparse(other), "arithmetic"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass", "statement dropped"
        case ast.If(test=test) | ast.While(test=test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield test, f"not {ast.unparse(test)}", "negation"


# --- expressions ---


def _of_expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            other = ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
            yield node, _kept_together(other), "comparison"
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not _joins_sequences(node):
            yield node, _kept_together(ast.BinOp(node.left, ARITHMETIC[type(op)](), node.right)), "arithmetic"
        case ast.BoolOp(op=op, values=values):
            yield node, _kept_together(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)), "and/or"
        case ast.UnaryOp(op=ast.Not()):
            yield node, _kept_together(node.operand), "negation"
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield node, _kept_together(node.operand), "arithmetic"
        case ast.IfExp(test=test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield test, f"not {ast.unparse(test)}", "negation"
        case ast.Constant(value=value):
            yield from ((node, text, "constant") for text in _other_constants(value))
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[Change]:
    name = _name_of(node.func)
    if name in OPPOSITES:
        func = node.func
        other: ast.expr = (
            ast.Attribute(func.value, OPPOSITES[name]) if isinstance(func, ast.Attribute) else ast.Name(OPPOSITES[name])
        )
        yield func, ast.unparse(other), "opposite function"
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args[:2])
    if len(node.args) >= 2 and plain and name not in UNORDERED | INTROSPECTION:
        first, second, *rest = node.args
        yield node, ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords)), "arguments swapped"
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in SILENT_KEYWORDS:
            kept = [other for other in node.keywords if other is not keyword]
            yield node, ast.unparse(ast.Call(node.func, node.args, kept)), "argument dropped"


def _other_constants(value: object) -> list[str]:
    match value:
        case bool():
            return [str(not value)]
        case int():
            return [str(value + 1)]
        case float():
            return [repr(value * 2 if value else 1.0)]
    return []


def _kept_together(node: ast.expr) -> str:
    """In parentheses: what stands around the expression must not tear it apart."""
    return f"({ast.unparse(node)})"


def _joins_sequences(node: ast.BinOp) -> bool:
    """`"a" + b`, `[a] + b`: another operator would fail at once."""
    sequences = ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Dict
    return any(
        isinstance(side, sequences) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _name_of(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
