"""The user's source comes in; what the emitted file keeps of it, and what it must know of forward(), goes out."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

from kernelwright.capture.capture import SHADOWING

FUTURE = "from __future__ import annotations"

# Where the emitted file takes names from.
HOMES = ("collections", "torch.utils.cpp_extension", "torch.utils.weak")


@dataclass(frozen=True, slots=True)
class Original:
    """The kept text, the names it defines, and forward()'s parameters."""

    text: str
    needs_future: bool
    names: frozenset[str]
    mentioned: frozenset[str]  # what may be an attribute of the model: names, what follows a dot, and strings
    rebound: frozenset[str]  # what the top level of the file binds, but for plain imports; "*" where nobody can tell
    has_own_f: bool  # F is something else than torch.nn.functional
    parameters: tuple[str, ...]
    signature: str
    defaults: tuple[tuple[str, str], ...]


def original_of(source: str) -> Original:
    tree = ast.parse(source)
    forward = find_forward(tree)
    names = frozenset(defined_names(tree))
    plain = forward is not None and is_plain(forward, module_names(tree))
    args = [*forward.args.posonlyargs, *forward.args.args][1:] if forward is not None and plain else []
    return Original(
        text=kept_text(source, tree),
        needs_future=FUTURE in source,
        names=names,
        mentioned=names | frozenset(mentioned_names(tree)),
        rebound=rebound_names(tree),
        has_own_f=has_own_f(tree),
        parameters=tuple(a.arg for a in args),
        signature=signature_of(forward) if forward is not None and plain else "*arguments",
        defaults=defaults_of(forward, [a.arg for a in args]) if forward is not None and plain else (),
    )


def is_plain(forward: ast.FunctionDef, known: frozenset[str]) -> bool:
    """Whether its parameters can be written down again: no decorator that may take others, no stars, and defaults that
    mean the same in another class."""
    a = forward.args
    defaults = [*a.defaults, *(d for d in a.kw_defaults if d is not None)]
    mentioned = {n.id for default in defaults for n in ast.walk(default) if isinstance(n, ast.Name)}
    names = {argument.arg for argument in (*a.posonlyargs, *a.args)}
    written_again = not (forward.decorator_list or a.vararg or a.kwarg or a.kwonlyargs or names & set(SHADOWING))
    return written_again and mentioned <= known | frozenset(dir(builtins))


def module_names(tree: ast.Module) -> frozenset[str]:
    """What is defined at the top level of the file."""
    return frozenset(name for node in top_level(tree) for name in names_of(node))


def rebound_names(tree: ast.Module) -> frozenset[str]:
    """The same but for what we would import under that name too: `import sys`, `from collections import Counter`"""
    nodes = top_level(tree)
    usual = [n for n in nodes if isinstance(n, ast.Import) or (isinstance(n, ast.ImportFrom) and n.module in HOMES)]
    plain = {id(alias) for node in usual for alias in node.names if alias.asname is None and alias.name != "*"}
    return frozenset(name for node in nodes if id(node) not in plain for name in names_of(node))


def top_level(tree: ast.Module) -> list[ast.AST]:
    """Every node of the file that is not inside a function or a class."""
    found: list[ast.AST] = []
    for node in tree.body:
        found += [node] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ast.walk(node)
    return found


def has_own_f(tree: ast.Module) -> bool:
    """Whether F may be something else than torch.nn.functional where our code stands."""
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    usual = {("torch.nn.functional", None), ("functional", "torch.nn")}
    bound = [
        ((alias.name, getattr(node, "module", None)), alias.asname or alias.name)
        for node in imports
        for alias in node.names
    ]
    other_import = any(name == "F" and origin not in usual for origin, name in bound)
    arguments = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return other_import or "F" in arguments | assigned


def find_forward(tree: ast.Module) -> ast.FunctionDef | None:
    """Model's own forward, or the one it inherits from a class in the same file."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    name: str | None = "Model"
    while name in classes:
        current = classes[name]
        for item in reversed(current.body):
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                return item
        bases = [base.id for base in current.bases if isinstance(base, ast.Name)]
        name = next((base for base in bases if base in classes), None)
    return None


def signature_of(forward: ast.FunctionDef) -> str:
    """The parameters after self, without annotations."""
    arguments = ast.parse(f"def f({ast.unparse(forward.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    for argument in (*arguments.args.posonlyargs, *arguments.args.args):
        argument.annotation = None
    positional = arguments.args.posonlyargs or arguments.args.args
    del positional[0]
    return ast.unparse(arguments.args)


def defaults_of(forward: ast.FunctionDef, names: list[str]) -> tuple[tuple[str, str], ...]:
    values = forward.args.defaults
    last = names[len(names) - len(values) :]
    return tuple((name, ast.unparse(value)) for name, value in zip(last, values, strict=True))


def kept_text(source: str, tree: ast.Module) -> str:
    """The source without its docstring, its __future__ import and what runs under `if __name__ == "__main__"`."""
    lines = source.splitlines()
    dropped: set[int] = set()
    for number, node in enumerate(tree.body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        is_main = isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
        if is_docstring or is_future or is_main:
            assert node.end_lineno is not None
            dropped |= set(range(node.lineno, node.end_lineno + 1))
    return "\n".join(line for i, line in enumerate(lines, 1) if i not in dropped).strip("\n")


def defined_names(tree: ast.Module) -> list[str]:
    return [name for node in ast.walk(tree) for name in names_of(node)]


def mentioned_names(tree: ast.Module) -> list[str]:
    """Attributes, and strings that may be names of some: register_buffer("scale", ...), getattr(self, "scale")."""
    attributes = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    return attributes + [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def names_of(node: ast.AST) -> list[str]:
    """The names that one node of the tree binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return [(node.asname or node.name).split(".")[0]] if isinstance(node, ast.alias) else []
