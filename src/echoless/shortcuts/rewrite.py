"""How does `x + f(x)` in the source of any method become `alpha * x + f(x)`?

The method's source is parsed, the addition is replaced by a call of `residual`, and the result is compiled as the
method of a subclass, which is assigned to the object's `__class__`. There is no hook and no wrapper: a faded model runs
the same kernels as a plain one, `torch.compile` sees ordinary code, and `inspect.getsource(module.forward)` shows it.

Three constructs between the object and its addition are handled:
- a decorator: it is rebuilt around the new function, not applied a second time;
- a loop in the method (`for block in self.blocks: x = x + block(x)`): the alphas are taken one by one;
- a plain function (`dropout_add(x, fx, p)`): a copy of it is called that takes its alpha as an argument.
"""

from __future__ import annotations

import ast
import copy
import functools
import gc
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from echoless.shortcuts.residual import add_branch_, add_stream_, residual, stream_first
from echoless.shortcuts.trace import Place, content_of, home_of, leads_to

ALPHAS = "faded_alphas"  # the attribute of a rewritten object: one entry per rewritten addition
_serial = itertools.count()


class CannotRewrite(ValueError):
    """Why an addition cannot be rewritten: a clause that completes 'its addition cannot be rewritten: '."""


class Route(NamedTuple):
    """The call stack of one addition (`Addition.places`). `looped`: one call of the method executes it repeatedly."""

    places: tuple[Place, ...]
    identity: int
    looped: bool


def faded_class(cls: type, routes: Sequence[Route]) -> type:
    """A subclass whose k-th rewritten addition takes its alpha from `self.faded_alphas[k]`."""
    by_code: dict[CodeType, list[tuple[int, Route]]] = {}
    for index, route in enumerate(routes):
        by_code.setdefault(route.places[-1].code, []).append((index, route))
    methods: dict[type, dict[str, Any]] = {}
    for code, group in by_code.items():
        home = home_of(cls, code)
        assert home is not None  # the tracer found it there
        methods.setdefault(home, {})[code.co_name] = _faded_method(home, code, group)
    # A method defined by a base class is overridden right before that base in the MRO, where `super()` finds it too.
    bases = [_subclass((home,), methods[home]) for home in cls.__mro__[1:] if home in methods]
    return _subclass((cls, *bases), methods.get(cls, {}))


def _subclass(bases: tuple[type, ...], methods: Mapping[str, Any]) -> type:
    # Libraries read these names (`_no_split_modules`, saved configurations, repr), so they stay the same.
    names = {name: getattr(bases[0], name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(bases[0])(bases[0].__name__, bases, {**names, "__reduce_ex__": _reduce, **methods})


def _reduce(self: Any, protocol: Any) -> Any:
    """Copies are made as ever; a pickle, which would look for a class that exists in this process alone, is refused."""
    caller = sys._getframe(1).f_globals.get("__name__")
    if caller == "copy":
        return object.__reduce_ex__(self, protocol)
    raise TypeError(
        f"a faded {type(self).__name__} cannot be pickled, because its class was made by fade(); save its state_dict() "
        "(or save_pretrained), and restore it with fade_saved(model, saved, example=...)"
    )


def source_of(place: Place) -> str:
    """Source text of an expression, on one line."""
    lines = linecache.getlines(place.code.co_filename)[place.line - 1 : place.end_line]
    if not lines or place.column < 0:
        return "?"
    encoded = [line.encode() for line in lines]
    encoded[-1] = encoded[-1][: place.end_column]
    encoded[0] = encoded[0][place.column :]
    return " ".join(b"".join(encoded).decode(errors="replace").split())


def operand_source(place: Place, identity: int) -> str:
    """Source text of one operand of the addition at a place."""
    try:
        node = _addition_at(_definition(place.code), place)
    except CannotRewrite:
        return "?"
    operands = _operands(node)
    return " ".join(ast.unparse(operands[identity]).split()) if operands else "?"


def _faded_method(home: type, code: CodeType, routes: Sequence[tuple[int, Route]]) -> Callable[..., Any]:
    method = vars(home)[code.co_name]
    if not isinstance(method, FunctionType):
        raise CannotRewrite(f"{home.__name__}.{code.co_name} is a {type(method).__name__}, not a plain method")
    definition = copy.deepcopy(_definition(code))
    self_argument, *_ = (*definition.args.posonlyargs, *definition.args.args)
    function = _Function(definition, home.__name__)
    for index, route in routes:
        alpha = f"{self_argument.arg}.{ALPHAS}[{index}]"
        if route.looped:
            function.prologue.append(f"{ALPHAS}_{index} = iter({alpha})")
            alpha = f"next_alpha({ALPHAS}_{index})"
        function.fade(route.places, route.identity, alpha)
    return _transplant(method, code, function.build)


class _Function:
    """A function definition and the edits planned for it."""

    def __init__(self, definition: ast.FunctionDef, class_name: str | None = None) -> None:
        self.definition = definition
        self.class_name = class_name  # private names (`self.__x`) are mangled with it
        self.prologue: list[str] = []
        self.names: dict[str, object] = {
            "stream_plus_branch": stream_first,
            "branch_plus_stream": residual,
            "add_stream_": add_stream_,
            "add_branch_": add_branch_,
            "next_alpha": _next_alpha,
        }
        self._edits: dict[int, Callable[[Any], ast.AST]] = {}

    def fade(self, places: tuple[Place, ...], identity: int, alpha: str) -> None:
        """Plans the edit of one addition, in this function or in one that it calls."""
        outside = [place for place in places if not _contains(self.definition, place)]
        here = places[len(outside)]
        if not outside:
            node = _addition_at(self.definition, here)
            if _operands(node) is None:
                raise CannotRewrite(f"`{ast.unparse(node)}` is not a plain sum of two expressions")
            self._edits[id(node)] = functools.partial(_faded_sum, identity=identity, alpha=alpha)
            return
        call = _call_at(self.definition, here)
        name = f"faded_{outside[-1].code.co_name}_{len(self.names)}"
        self.names[name] = _faded_helper(tuple(outside), identity)
        self._edits[id(call)] = functools.partial(_redirected, name=name, alpha=alpha)

    def build(self, original: FunctionType) -> FunctionType:
        definition = _Editor(self._edits).visit(self.definition)
        definition.decorator_list = []
        start = 1 if ast.get_docstring(definition, clean=False) is not None else 0
        definition.body[start:start] = [ast.parse(line).body[0] for line in self.prologue]
        code = _compile(definition, self.class_name, [*original.__code__.co_freevars, *self.names])
        cells = dict(zip(original.__code__.co_freevars, original.__closure__ or ()))
        closure = tuple(cells.get(name) or CellType(self.names[name]) for name in code.co_freevars)
        return _same_but(original, code, closure)


def _faded_helper(places: tuple[Place, ...], identity: int) -> FunctionType:
    code = places[-1].code
    owners = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code]
    if not owners:
        raise CannotRewrite(f"the function {code.co_name} that holds it cannot be found")
    definition = copy.deepcopy(_definition(code))
    definition.args.kwonlyargs.append(ast.arg("faded_alpha"))
    definition.args.kw_defaults.append(None)
    function = _Function(definition)
    function.fade(places, identity, "faded_alpha")
    return function.build(owners[0])


class _Editor(ast.NodeTransformer):
    def __init__(self, edits: Mapping[int, Callable[[Any], ast.AST]]) -> None:
        self._edits = edits

    def visit(self, node: ast.AST) -> Any:
        edit = self._edits.get(id(node))
        node = self.generic_visit(node)
        return edit(node) if edit else node


def _faded_sum(node: ast.expr | ast.AugAssign, identity: int, alpha: str) -> ast.AST:
    operands = _operands(node)
    assert operands is not None  # checked in _Function.fade
    in_place = isinstance(node, ast.AugAssign) or _method_name(node) == "add_"
    # Keyword arguments are evaluated in their order: left operand before right, as in the sum.
    roles = ("x", "fx") if identity == 0 else ("fx", "x")
    out_of_place = ("stream_plus_branch", "branch_plus_stream")
    name = (("add_branch_", "add_stream_") if in_place else out_of_place)[identity]
    keywords = [ast.keyword(role, operand) for role, operand in zip(roles, operands)]
    call = ast.Call(ast.Name(name, ast.Load()), [], [*keywords, ast.keyword("alpha", _expression(alpha))])
    if isinstance(node, ast.AugAssign):
        return ast.Assign([node.target], call)
    return call


def _redirected(node: ast.Call, name: str, alpha: str) -> ast.Call:
    keyword = ast.keyword("faded_alpha", _expression(alpha))
    return ast.Call(ast.Name(name, ast.Load()), node.args, [*node.keywords, keyword])


def _next_alpha(alphas: Iterator[float]) -> float:
    alpha = next(alphas, None)
    if alpha is None:
        raise RuntimeError("a faded addition ran more often than on the example passed to fade()")
    return alpha


def _operands(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return left, right
        case ast.AugAssign(ast.Name(name), ast.Add(), right):
            return ast.Name(name, ast.Load()), right
        case ast.Call(ast.Attribute(ast.Name("torch"), "add"), [left, right], []):
            return left, right
        case ast.Call(ast.Attribute(left, "add" | "add_"), [right], []):
            return left, right
    return None


def _method_name(node: ast.AST) -> str | None:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _addition_at(definition: ast.AST, place: Place) -> ast.AST:
    nodes = [node for node in ast.walk(definition) if _ends_at(node, place)]
    sums = [n for n in nodes if isinstance(n, ast.BinOp | ast.AugAssign) and isinstance(n.op, ast.Add)]
    exact = [n for n in sums if (n.lineno, n.col_offset) == (place.line, place.column)]
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    if found := [*exact, *calls]:
        return found[0]
    raise CannotRewrite(f"there is no addition at line {place.line} of {place.code.co_filename}")


def _call_at(definition: ast.AST, place: Place) -> ast.Call:
    calls = [node for node in ast.walk(definition) if isinstance(node, ast.Call) and _ends_at(node, place)]
    if not calls:
        raise CannotRewrite(f"it is reached from line {place.line} of {place.code.co_filename} by no plain call")
    return calls[0]


def _ends_at(node: ast.AST, place: Place) -> bool:
    return (getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)) == (
        place.end_line,
        place.end_column,
    )


def _contains(definition: ast.FunctionDef, place: Place) -> bool:
    same_file = place.code.co_filename == getattr(definition, "filename", None)
    return same_file and definition.lineno <= place.line <= (definition.end_lineno or 0)


def _definition(code: CodeType) -> ast.FunctionDef:
    """The `def` that a code object was compiled from."""
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise CannotRewrite(f"the source of {code.co_name} is not available ({code.co_filename})")
    for node in ast.walk(_parsed("".join(lines))):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                node.filename = code.co_filename  # type: ignore[attr-defined]
                return node
    raise CannotRewrite(f"the source of {code.co_name} in {code.co_filename} has changed since it was imported")


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _compile(definition: ast.FunctionDef, class_name: str | None, free_names: Sequence[str]) -> CodeType:
    """Compiles a definition with the given free variables; `inspect` and tracebacks can show its source."""
    body: list[ast.stmt] = [definition]
    if class_name is not None:
        body = [ast.ClassDef(class_name, [], [], [definition], [])]
        if class_name not in free_names:  # `super(Block, self)` means the class of the module, not this one
            body.insert(0, ast.Global([class_name]))
    names = ", ".join(name for name in dict.fromkeys(free_names) if name != "__class__")
    outer = ast.parse(f"def _outer({names}): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = body
    source = ast.unparse(ast.fix_missing_locations(ast.Module([outer], [])))
    filename = f"<echoless {next(_serial)}: {class_name or 'function'}.{definition.name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return _find_code(compile(source, filename, "exec", dont_inherit=True), definition.name)


def _find_code(code: CodeType, name: str) -> CodeType:
    waiting = [code]
    while waiting:
        current = waiting.pop(0)
        if current.co_name == name:
            return current
        waiting += [const for const in current.co_consts if isinstance(const, CodeType)]
    raise CannotRewrite(f"{name} could not be compiled again")


def _transplant(function: FunctionType, code: CodeType, build: Callable[[FunctionType], FunctionType]) -> FunctionType:
    """A copy of a function, with its decorators, in which the innermost function is rebuilt."""
    if function.__code__ is code:
        return build(function)
    rebuilt = {
        id(inner): _transplant(inner, code, build)
        for cell in function.__closure__ or ()
        if isinstance(inner := content_of(cell), FunctionType) and leads_to(inner, code)
    }
    cells = [CellType(rebuilt[key]) if (key := id(content_of(c))) in rebuilt else c for c in function.__closure__ or ()]
    new = _same_but(function, function.__code__, tuple(cells))
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        new.__wrapped__ = rebuilt.get(id(wrapped), wrapped)  # type: ignore[attr-defined]
    return new


def _same_but(function: FunctionType, code: CodeType, closure: tuple[CellType, ...]) -> FunctionType:
    new = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    new.__kwdefaults__ = function.__kwdefaults__
    new.__annotations__ = function.__annotations__
    new.__qualname__, new.__module__, new.__doc__ = function.__qualname__, function.__module__, function.__doc__
    vars(new).update(vars(function))
    return new
