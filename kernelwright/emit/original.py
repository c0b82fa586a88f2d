"""The user's source comes in; what the emitted file keeps of it, and what it must know of forward(), goes out."""

from __future__ import annotations

import ast
from dataclasses import dataclass

FUTURE = "from __future__ import annotations"


@dataclass(frozen=True, slots=True)
class Original:
    """The kept text, the names it defines, and forward()'s parameters."""

    text: str
    needs_future: bool
    names: frozenset[str]
    parameters: tuple[str, ...]
    signature: str
    defaults: tuple[tuple[str, str], ...]


def original_of(source: str) -> Original:
    tree = ast.parse(source)
    forward = find_forward(tree)
    plain = forward is not None and not (forward.args.vararg or forward.args.kwarg or forward.args.kwonlyargs)
    args = [*forward.args.posonlyargs, *forward.args.args][1:] if forward is not None and plain else []
    return Original(
        text=kept_text(source, tree),
        needs_future=FUTURE in source,
        names=frozenset(defined_names(tree)),
        parameters=tuple(a.arg for a in args),
        signature=signature_of(forward) if forward is not None and plain else "*arguments",
        defaults=defaults_of(forward, [a.arg for a in args]) if forward is not None and plain else (),
    )


def find_forward(tree: ast.Module) -> ast.FunctionDef | None:
    """Model's own forward, or the one it inherits from a class in the same file."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    name: str | None = "Model"
    while name in classes:
        current = classes[name]
        for item in current.body:
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
    return tuple((name, ast.unparse(value)) for name, value in zip(names[len(names) - len(values) :], values, strict=True))


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
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.alias):
            names.append((node.asname or node.name).split(".")[0])
    return names
