"""`--device` comes in on the command line; the device's name and where its work can be done go out as JSON.

A program of its own: asking torch takes seconds and, on a GPU, memory, which the suite itself need not pay for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from kernelwright.errors import EnvironmentProblem

__all__ = ["Places", "find_places", "started"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Places:
    """A device by the name a row carries, and what to call each of its kind here: cuda:0, cuda:1."""

    name: str
    kind: str
    devices: tuple[str, ...]


def find_places(spec: str) -> Places:
    """Asks a process of its own."""
    asked = subprocess.run([*started("devices"), spec], capture_output=True, text=True, check=False, timeout=300)
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise EnvironmentProblem(f"{spec} cannot be used: {last}", where="--device", cure="Try `kernelwright doctor`.")
    fields = json.loads(asked.stdout.splitlines()[-1])
    return Places(fields["name"], fields["kind"], tuple(fields["devices"]))


def started(module: str) -> list[str]:
    """The command that runs a module of the suite in a process of its own: this very package, wherever it was found."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from kernelwright.suite.{module} import main; main()"
    return [sys.executable, "-c", program]


def places_here(spec: str) -> Places:
    from kernelwright.device import resolve

    device = resolve(spec)
    if device.kind == "cpu":
        return Places(device.name, "cpu", ("cpu",))
    if not device.present:
        return Places(device.name, "cuda", (spec,))
    if spec not in ("auto", "cuda"):
        return Places(device.name, "cuda", (device.torch_name,))
    import torch

    alike = [i for i in range(torch.cuda.device_count()) if resolve(f"cuda:{i}").name == device.name]
    return Places(device.name, "cuda", tuple(f"cuda:{i}" for i in alike))


def main() -> None:
    click.echo(json.dumps(asdict(places_here(sys.argv[1]))))
