"""Rewrites calls in the methods of one module, so that they call a submodule instead.

A method is rewritten as source text: control flow, training branches and closures stay what they
are, and torch.compile, tracebacks and ``inspect.getsource`` see ordinary Python. The module gets a
class of its own, a subclass of its class under the same name, as torch's parametrizations do, and
below the class that those have made. A pickle of it holds the original class and the new text.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
from abc import ABCMeta
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

Position = tuple[int, int]  # line and column (in bytes) at which a call expression ends: unique


class CallEdit(NamedTuple):
    """Makes one call expression call ``self.<unit>`` instead."""

    unit: str
    is_method: bool  # x.relu() now, not self.relu(x) or F.relu(x)
    loop: bool  # the unit is a list with one entry for each iteration of a loop


# ---- reading ----


def method_with(cls: type, code: CodeType) -> tuple[str, FunctionType] | None:
    """The method of ``cls`` (name and function) whose body, or a function in it, is ``code``."""
    for owner in cls.__mro__:
        for name, value in vars(owner).items():
            if isinstance(value, FunctionType) and any(
                nested is code for nested in nested_codes(value.__code__)
            ):
                return name, value
    return None


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions that are written in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def calls_in(function: FunctionType) -> list[ast.Call]:
    """The call expressions in the source of ``function``; none if it cannot be read."""
    tree = _parse(function)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []


def call_at(function: FunctionType, end: Position) -> ast.Call | None:
    """The call expression in the source of ``function`` that ends there, if it can be read."""
    calls = calls_in(function)
    return next((c for c in calls if (c.end_lineno, c.end_col_offset) == end), None)


def input_of(call: ast.Call, is_method: bool) -> ast.expr | None:
    """The input of the activation that is called; None if the expression does not show it."""
    if is_method:
        return call.func.value if isinstance(call.func, ast.Attribute) else None
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((k.value for k in call.keywords if k.arg == "input"), None)


@functools.cache
def _parse(function: FunctionType) -> ast.FunctionDef | None:
    """The definition of ``function``, with the line numbers of its file."""
    try:
        lines, first = inspect.getsourcelines(function)
        nested = lines[0][:1].isspace()
        # Below a line that may be indented under, not dedented: columns must stay.
        tree = ast.parse("".join(["if True:\n", *lines] if nested else lines))
    except (OSError, TypeError, SyntaxError):
        return None
    ast.increment_lineno(tree, first - 1 - nested)
    body = tree.body[0].body if nested else tree.body  # type: ignore[attr-defined]
    definition = body[0]
    return definition if isinstance(definition, ast.FunctionDef) else None


# ---- new source ----


def _new_source(function: FunctionType, edits: dict[Position, CallEdit]) -> str:
    """The text of ``function`` with the calls replaced, in a function and a class around it.

    These two are never run. They make the compiler treat closure variables, ``super()`` and private
    names as it did in the original. Underscores before the name of a class make no difference to
    private names, and with two of them no method can mean this class by its name.
    """
    definition = copy.deepcopy(_parse(function))
    assert definition is not None, "call_at has read it before"
    receiver = function.__code__.co_varnames[0]
    iterators = []
    calls: list[Any] = [node for node in ast.walk(definition) if isinstance(node, ast.Call)]
    for call in calls:
        edit = edits.get((call.end_lineno, call.end_col_offset))
        if edit is None:
            continue
        unit = f"{receiver}.{edit.unit}"
        if edit.loop:
            iterator = f"{edit.unit}_iterator"
            iterators += ast.parse(f"{iterator} = iter({unit})").body
            # After the last iteration the list itself, whose forward raises an error; next()
            # without a default would end a loop of the caller silently.
            unit = f"next({iterator}, {unit})"
        x = input_of(call, edit.is_method)
        assert x is not None, "the observer has checked it"
        call.func, call.args, call.keywords = ast.parse(unit, mode="eval").body, [x], []
    definition.decorator_list = []  # what they did to the function is copied from it
    after_docstring = 1 if ast.get_docstring(definition) is not None else 0
    definition.body[after_docstring:after_docstring] = iterators
    # The name of the class around the function; without one, a name that makes none private.
    outer = ["_", *function.__qualname__.split(".")[:-1]][-1]
    around = ast.parse(
        f"def enclosing():\n    class __{outer if outer.isidentifier() else '_'}: pass"
    )
    enclosing: Any = around.body[0]
    free = [name for name in function.__code__.co_freevars if name != "__class__"]
    enclosing.args.args = [ast.arg(name) for name in free]
    enclosing.body[0].body = [definition]
    return ast.unparse(ast.fix_missing_locations(around))


def _compile(function: FunctionType, source: str) -> FunctionType:
    """``function`` with the code of ``source``, and its globals, closure and attributes."""
    filename = f"<torch_srelu: {function.__module__}.{function.__qualname__} {hash(source):x}>"
    # Entries without a time stamp stay: tracebacks and inspect find the text.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    code = compile(source, filename, "exec", dont_inherit=True)
    for name in (None, None, function.__name__):  # enclosing function, class, method
        inner = [c for c in code.co_consts if isinstance(c, CodeType)]
        code = next(c for c in inner if name is None or c.co_name == name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    new = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    for attribute in ("__kwdefaults__", "__annotations__", "__qualname__", "__module__"):
        setattr(new, attribute, getattr(function, attribute))
    new.__dict__.update(function.__dict__)
    return new


# ---- new classes ----

Sources = tuple[tuple[str, str], ...]  # (name of the method, its new text)

REWRITTEN = "_srelu_rewritten"  # on a class made here: the class that it rewrites, and its sources


def rewritten_class(module: nn.Module, edits: dict[str, dict[Position, CallEdit]]) -> type:
    """The class that makes these edits to the methods of ``module``."""
    top = type(module)
    cls = top.__bases__[0] if _is_parametrized(module) else top
    original, sources = vars(cls).get(REWRITTEN, (cls, ()))
    texts = dict(sources)
    for name, changes in edits.items():
        texts[name] = _new_source(inspect.getattr_static(cls, name), changes)
    new = _subclass(original, tuple(sorted(texts.items())))
    if cls is top:
        return new
    # Torch's class stays the topmost one: its properties compute the weights, and torch removes
    # them again. A new one, because copies of the module that are not converted share the old one.
    return _derive(new, dict(vars(top)), top.__name__)


def _is_parametrized(module: nn.Module) -> bool:
    """Whether the class of ``module`` is the one that torch made for its parametrized weights."""
    names = module.parametrizations if is_parametrized(module) else None
    return isinstance(names, nn.ModuleDict) and vars(type(module)).keys() >= names.keys()


@functools.cache
def _subclass(cls: type, sources: Sources) -> type:
    """``cls`` with some methods replaced. One class for all modules that are rewritten alike."""
    methods = {}
    for name, text in sources:
        old = inspect.getattr_static(cls, name)
        new = _compile(old, text)
        # A method may have several names, as after ``forward = run`` in the body of a class.
        same = [other for other in dir(cls) if inspect.getattr_static(cls, other, None) is old]
        methods |= dict.fromkeys(same, new)

    @functools.wraps(cls.__init__)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is rewritten:  # a new one has no units yet: its class is the original
            self.__class__ = cls
        cls.__init__(self, *args, **kwargs)

    def __reduce_ex__(self: nn.Module, protocol: Any) -> tuple:
        return _restore, (cls, sources), self.__getstate__()

    namespace = {
        **methods,
        "__init__": __init__,
        "__reduce_ex__": __reduce_ex__,
        **{name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")},
        REWRITTEN: (cls, sources),
    }
    rewritten = _derive(cls, namespace, cls.__name__)
    return rewritten


def _restore(cls: type, sources: Sources) -> nn.Module:
    """An empty module of the rewritten class; pickle and copy fill it. Pickles hold this name."""
    rewritten: Any = _subclass(cls, sources)
    return rewritten.__new__(rewritten)


class _WithoutInitSubclass:
    """As the first base of a class, keeps ``__init_subclass__`` of the others from being called."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        pass


def _derive(base: type, namespace: dict[str, Any], name: str) -> type:
    """A subclass that enters no registry, where it could take the place of ``base``.

    Neither ``__init_subclass__`` runs nor what the author of a metaclass has it do.
    """
    kind: Any = type(base)
    create = ABCMeta.__new__ if issubclass(kind, ABCMeta) else type.__new__
    new = create(kind, name, (_WithoutInitSubclass, base), namespace)
    new.__bases__ = (base,)
    return new


def set_class(module: nn.Module, cls: type, methods: Iterable[str]) -> None:
    """Gives ``module`` the class ``cls``, in which ``methods`` are rewritten.

    Also replaces methods that its own attributes hold, as after ``net.forward = net.run``.
    """
    old = {inspect.getattr_static(type(module), name): name for name in methods}
    module.__class__ = cls
    for attribute, value in vars(module).items():
        if isinstance(value, MethodType) and value.__self__ is module and value.__func__ in old:
            new = inspect.getattr_static(cls, old[value.__func__])
            vars(module)[attribute] = MethodType(new, module)
