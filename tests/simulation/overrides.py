"""Changes to the product by name, in a process of its own: what a mutant does to leave a clause out.

A name is `module:function` or `module:Class.method`. What is changed is the code that the function runs: the
function stays the same object, so that whoever has imported it, or keeps it in a table, is reached as well.
Bodies may change as they like, then, as long as the names of the rules stay.

Each counts how often it was reached. A mutant that never was is no proof.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType
from typing import Any, Final

_numbers: Final = count()
_edited: Final[dict[str, ast.Module]] = {}  # by file: another edit of a function comes to those before it


class StaleMutant(Exception):
    """What a mutant changes is not there any more."""


@dataclass(frozen=True)
class Override:
    """Runs `instead` in the place of a function or method."""

    name: str
    instead: Callable[..., Any]

    def check(self) -> None:
        """Raises `StaleMutant` if it does not fit."""
        _check_arguments(self.name, self.instead, ())

    def install(self, reached: Counter[Change]) -> None:
        """Does it, in this process and for good; counts in `reached`."""

        def counted(*arguments: Any, **named: Any) -> Any:
            reached[self] += 1
            return self.instead(*arguments, **named)

        _redirect(function_of(self.name), counted)


@dataclass(frozen=True)
class Wrap:
    """Runs `around` in the place of a function or method, with the original as its first argument."""

    name: str
    around: Callable[..., Any]

    def check(self) -> None:
        """Raises `StaleMutant` if it does not fit."""
        _check_arguments(self.name, self.around, (None,))

    def install(self, reached: Counter[Change]) -> None:
        """Does it, in this process and for good; counts in `reached`."""
        function = function_of(self.name)
        original = FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        original.__kwdefaults__ = function.__kwdefaults__

        def counted(*arguments: Any, **named: Any) -> Any:
            reached[self] += 1
            return self.around(original, *arguments, **named)

        _redirect(function, counted)


@dataclass(frozen=True)
class Edit:
    """Puts another expression, or other statements, in the place of those of a function: for a clause in the
    midst of it that has no name. Neither its format nor its place matters.
    """

    name: str
    old: str
    new: str

    def check(self) -> None:
        """Raises `StaleMutant` if it does not fit."""
        self._code(_tree_of(function_of(self.name)), "reached")

    def install(self, reached: Counter[Change]) -> None:
        """Does it, in this process and for good; counts in `reached`."""

        def counted(value: Any = None) -> Any:
            reached[self] += 1
            return value

        function, counter = function_of(self.name), f"_reached_{next(_numbers)}"
        function.__globals__[counter] = counted
        file = function.__code__.co_filename
        function.__code__ = self._code(_edited.setdefault(file, _tree_of(function)), counter)

    def _code(self, tree: ast.Module, counter: str) -> CodeType:
        """What the function runs once the tree is changed."""
        code = function_of(self.name).__code__
        definition = _definition(tree, self.name.partition(":")[2].split("."))
        old, new = _parsed(self.old), _parsed(self.new)
        if isinstance(old, ast.expr) and isinstance(new, ast.expr):
            _replace_expression(definition, self._only(_expressions(definition, old)), _call(counter, new))
        else:
            body, begin = self._only(_runs(definition, statements := _statements(old)))
            body[begin : begin + len(statements)] = [ast.Expr(_call(counter)), *_statements(new)]
        ast.fix_missing_locations(tree)
        changed = compile(tree, code.co_filename, "exec", dont_inherit=True)
        return next(one for one in _codes(changed) if one.co_qualname == code.co_qualname)

    def _only(self, places: Iterator[Any]) -> Any:
        found = list(places)
        if len(found) != 1:
            raise StaleMutant(f"{self.old!r} stands {len(found)} times in {self.name}, not once")
        return found[0]


Change = Override | Wrap | Edit


def install(changes: Sequence[Change]) -> Counter[Change]:
    """Does them all, in this process and for good; returns how often each was reached since."""
    reached: Counter[Change] = Counter(dict.fromkeys(changes, 0))
    for change in sorted(changes, key=lambda one: not isinstance(one, Edit)):  # what is wrapped is edited
        change.install(reached)
    return reached


def function_of(name: str) -> FunctionType:
    """The function that a name stands for: of a property the one that reads it."""
    found = _found(name)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, classmethod | staticmethod):
        found = found.__func__
    found = getattr(found, "__wrapped__", found)
    if not isinstance(found, FunctionType):
        raise StaleMutant(f"{name} is no function")
    return found


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = vars(found)[part]
    except (ImportError, KeyError) as error:
        raise StaleMutant(f"there is no {name} any more") from error
    return found


def _check_arguments(name: str, function: Callable[..., Any], before: tuple[None, ...]) -> None:
    kinds = inspect.Parameter
    asked = inspect.signature(function_of(name)).parameters.values()
    placed = [None for one in asked if one.kind in {kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD}]
    named = {one.name: None for one in asked if one.kind is kinds.KEYWORD_ONLY}
    try:
        inspect.signature(function).bind(*before, *placed, **named)
    except TypeError as error:
        raise StaleMutant(f"{name} takes other arguments: {error}") from error


def _redirect(function: FunctionType, to: Callable[..., Any]) -> None:
    """The function calls `to` from now on."""
    name = f"_override_{next(_numbers)}"
    function.__globals__[name] = to
    call = f"{name}(*arguments, **named)"
    if function.__code__.co_flags & inspect.CO_GENERATOR:
        call = f"(yield from {call})"
    closed_over = function.__code__.co_freevars
    source = f"""
def outer({", ".join(closed_over)}):
    def redirected(*arguments, **named):
        return {call}
        {", ".join(closed_over)}
"""
    code = next(one for one in _codes(compile(source, name, "exec")) if one.co_name == "redirected")
    function.__code__, function.__defaults__, function.__kwdefaults__ = code, None, None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """It, and what is in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _tree_of(function: FunctionType) -> ast.Module:
    return ast.parse(Path(function.__code__.co_filename).read_text())


def _definition(tree: ast.AST, path: Sequence[str]) -> ast.AST:
    for part in path:
        kinds = ast.ClassDef | ast.FunctionDef
        found = [one for one in ast.walk(tree) if isinstance(one, kinds) and one.name == part]
        if not found:
            raise StaleMutant(f"{'.'.join(path)} is not written down under its name")
        tree = found[0]
    return tree


def _parsed(source: str) -> ast.expr | list[ast.stmt]:
    statements = ast.parse(dedent(source)).body
    if len(statements) == 1 and isinstance(statements[0], ast.Expr):
        return statements[0].value
    return statements


def _statements(parsed: ast.expr | list[ast.stmt]) -> list[ast.stmt]:
    return parsed if isinstance(parsed, list) else [ast.Expr(parsed)]


def _expressions(definition: ast.AST, wanted: ast.expr) -> Iterator[ast.expr]:
    text = ast.unparse(wanted)
    for one in ast.walk(definition):
        if isinstance(one, ast.expr) and ast.unparse(one) == text:
            yield one


def _runs(definition: ast.AST, wanted: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int]]:
    """Where these stand, one after the other: whose body, and from which statement on."""
    texts = [ast.unparse(one) for one in wanted]
    for node in ast.walk(definition):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                for begin in range(len(body) - len(texts) + 1):
                    if [ast.unparse(one) for one in body[begin : begin + len(texts)]] == texts:
                        yield body, begin


def _replace_expression(definition: ast.AST, old: ast.expr, new: ast.expr) -> None:
    class Replacing(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return new if node is old else self.generic_visit(node)

    Replacing().visit(definition)


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def beside(**attributes: Any) -> Callable[..., Any]:
    """To wrap a method with: while it runs, its object has these attributes."""

    def around(original: Callable[..., Any], self: Any, *arguments: Any, **named: Any) -> Any:
        before = {name: getattr(self, name) for name in attributes}
        vars(self).update(attributes)
        try:
            return original(self, *arguments, **named)
        finally:
            vars(self).update(before)

    return around


def afterwards(**attributes: Any) -> Callable[..., Any]:
    """To wrap a method with: once it has run, its object has these attributes."""

    def around(original: Callable[..., Any], self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        vars(self).update(attributes)
        return result

    return around
