"""A group of tools (run, test or lint) comes in; a .venv in which its modules can be imported goes out.

Nothing is downloaded that is already there. A Python that has torch, as on a GPU machine, lends its packages to the
.venv, so that its build of torch is the one used; elsewhere torch and the rest are installed as constraints.txt says.
Standard library only: this runs before anything is installed.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = str(VENV / "bin" / "python")

RUN = ("torch", "click", "rich", "ninja")
TEST = (*RUN, "pytest", "hypothesis")
GROUPS = {"run": RUN, "test": TEST, "lint": (*TEST, "ruff", "mypy")}


def main(group: str) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  an older Python must be told, and get this far
        found = sys.version.split()[0]
        sys.exit(f"kernelwright needs Python 3.11 or newer; this is {found}. Name one: make PYTHON=python3.12 demo")
    if not Path(PYTHON).exists():
        create_venv()
    if wanted := missing(PYTHON, GROUPS[group]):
        install(wanted)
    if still := missing(PYTHON, GROUPS[group]):
        sys.exit(f"Not importable after the installation: {', '.join(still)}. Remove .venv and try again.")


def create_venv() -> None:
    if missing(sys.executable, ("torch",)):
        output(sys.executable, "-m", "venv", str(VENV))
        return
    output(sys.executable, "-m", "venv", "--without-pip", str(VENV))
    # A .pth file rather than --system-site-packages: that would not see the packages of a Python that is itself a venv.
    lent = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (venv_packages() / "lent.pth").write_text("\n".join([str(ROOT), *lent]) + "\n")


def install(wanted: list[str]) -> None:
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    if (
        "torch" in wanted
    ):  # a .venv of our own: the package, its tools, all they need, and numpy, which torch misses aloud
        what = ["--editable", f"{ROOT}[dev]", "numpy", *constraints]
    elif (venv_packages() / "lent.pth").exists():  # on loan: add what is missing, and leave the lender's torch alone
        what = ["--target", str(venv_packages()), *constraints, *wanted]
    else:
        what = [*constraints, *wanted]
    sys.stderr.write(f"Installing {', '.join(wanted)} into .venv\n")
    pip = subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *what], check=False)
    if pip.returncode:
        sys.exit(
            f"Installing {', '.join(wanted)} failed. Without a network, use a Python that has them: make PYTHON=..."
        )


def missing(python: str, modules: tuple[str, ...]) -> list[str]:
    look = "import importlib.util as u, sys; print(*[m for m in sys.argv[1:] if u.find_spec(m) is None])"
    return output(python, "-c", look, *modules).split()


def venv_packages() -> Path:
    return Path(output(PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1])
