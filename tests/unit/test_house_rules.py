"""Rules of the house that no linter knows, held over every file of the package."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kernelwright

PACKAGE = Path(kernelwright.__file__).parent
ROOT = PACKAGE.parent
MODULES = sorted(PACKAGE.rglob("*.py"))
WORKER = (
    "judge/worker.py",
    "judge/zygote.py",
)  # they run in the judge's worker process, beside a candidate that may do anything
HEADERS = sorted([*PACKAGE.rglob("*.cuh"), *PACKAGE.rglob("*.hpp")])


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def reads_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv" | "putenv"):
            return True
        case ast.ImportFrom(module="os", names=names):
            return any(alias.name in ("environ", "environb", "getenv") for alias in names)
    return False


def swallows_everything(node: ast.AST) -> bool:
    """Catches any exception and goes on; to clean up or translate and raise again is another thing."""
    if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
        return False
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )


def prints(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="print")):
            return True
        case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
            return True
    return False


def offenders(rule: object, allowed: tuple[str, ...]) -> list[str]:
    assert callable(rule)
    elsewhere = [path for path in MODULES if path.relative_to(PACKAGE).as_posix() not in allowed]
    return [place(path, node) for path in elsewhere for node in nodes(path) if rule(node)]


def test_only_settings_reads_the_environment() -> None:
    # The worker is given its environment by the judge, and puts it on.
    assert offenders(reads_environment, ("settings.py", *WORKER)) == []


def test_only_the_command_line_prints() -> None:
    assert offenders(prints, ("cli.py", *WORKER)) == []


def test_only_the_worker_of_the_judge_swallows_every_exception() -> None:
    # And capture: a model that torch.export cannot trace without values, whatever the reason, is traced with them.
    assert offenders(swallows_everything, (*WORKER, "capture/export.py")) == []


def test_no_header_contains_a_word_that_the_static_check_of_kernelbench_rejects() -> None:
    rejected = re.compile(r"\b(try|except|pass)\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in HEADERS
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if rejected.search(line)
    ]
    assert found == []


def test_every_module_says_in_a_docstring_what_it_is() -> None:
    assert [str(path.relative_to(ROOT)) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_module_is_named_after_nothing_in_particular() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
    assert [
        str(path.relative_to(ROOT)) for path in MODULES if vague & set(path.relative_to(PACKAGE).with_suffix("").parts)
    ] == []


def test_no_file_names_the_machine_it_was_written_on() -> None:
    # A folder of a person or a workplace; /usr and /opt are where programs are.
    home = re.compile(r"(?<![\w./<{$-])/(?:home|root|Users|work|mnt)/\w")
    found = []
    for path in kept_files():
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), start=1):
            if home.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def kept_files() -> list[Path]:
    """What git keeps or would keep; in a source tree without git, the folders that are ours."""
    git = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode == 0 and git.stdout:
        names = [ROOT / name for name in git.stdout.splitlines()]
    else:
        folders = ("kernelwright", "tests", "examples", "benchmarks", "docs", "scripts")
        names = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    text = {".py", ".cuh", ".hpp", ".cpp", ".cu", ".md", ".toml", ".txt", ".json", ".jsonl", ""}
    return [path for path in names if path.suffix in text and path.is_file() and path != Path(__file__).resolve()]
