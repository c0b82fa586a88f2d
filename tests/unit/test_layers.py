"""A module of the package imports only from the layers to its left."""

import ast
from pathlib import Path

import pytest

import kernelwright

PACKAGE = Path(kernelwright.__file__).parent

# The plan of the house, left to right. What is not a stage stands where its imports let it.
LAYERS = (
    *("errors", "settings", "device", "flags"),
    *("ir", "load", "capture", "simplify", "plan", "kernels", "generate", "emit"),
    *("build", "doctor", "judge", "tune", "result", "report"),
    *("pipeline", "suite", "cli"),
    *("__init__", "__main__"),
)
RANK = {layer: rank for rank, layer in enumerate(LAYERS)}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of everything a module imports, at its top or inside a function."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name) for alias in names]
            case ast.ImportFrom(module="kernelwright", names=names):
                found += [(node.lineno, f"kernelwright.{alias.name}") for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append((node.lineno, module))
            case ast.ImportFrom(module=module, level=level):
                above = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-level]
                found.append((node.lineno, ".".join((*above, module or ""))))
    return found


def imported_layers(path: Path) -> list[tuple[int, str]]:
    ours = [
        (line, name.split(".")) for line, name in imported_modules(path) if name.partition(".")[0] == "kernelwright"
    ]
    return [(line, parts[1] if len(parts) > 1 else "__init__") for line, parts in ours]


def test_every_layer_has_its_place() -> None:
    assert {layer_of(path) for path in MODULES} <= set(LAYERS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_left(path: Path) -> None:
    own = layer_of(path)
    for line, layer in imported_layers(path):
        assert layer in RANK, f"{path}:{line}: there is no kernelwright.{layer}"
        assert layer == own or RANK[layer] < RANK[own], f"{path}:{line}: {own} must not import {layer}"


def test_the_stages_from_load_to_emit_do_not_import_clocks_or_randomness_or_the_system() -> None:
    impure = {"time", "datetime", "random", "secrets", "uuid", "subprocess", "socket", "platform", "tempfile"}
    pure = ("ir", "capture", "simplify", "plan", "kernels", "generate", "emit")
    for path in MODULES:
        if layer_of(path) in pure:
            taken = {name.partition(".")[0] for _, name in imported_modules(path)} & impure
            assert not taken, f"{path}: {', '.join(sorted(taken))}: same input must give the same bytes"
