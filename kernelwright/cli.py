"""Command-line arguments come in; one call is made; what it gives is printed. The only module that prints."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelwright.errors import KernelwrightError
from kernelwright.suite.cli import Duration, as_ours, show_unforeseen, suite

if TYPE_CHECKING:
    from kernelwright.judge import Judgement
    from kernelwright.result import Result

STAGES = ("capture", "simplify", "plan", "generate", "emit")

device_option = click.option(
    "--device", default="auto", show_default=True, metavar="NAME",
    help="auto, cpu, cuda, cuda:N, or a GPU by name (h200, h100, a100 ...), which need not be here.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
precision_option = click.option(
    "--precision", type=click.Choice(["reference", "ieee", "tf32", "bf16", "fp16"]),
    default="reference", show_default=True,
    help="What contractions may round to; reference: as accurate as the original under its own flags.",
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kernelwright")
def main() -> None:
    """Read a PyTorch model file, write a faster one, and prove it.

    \b
    Exit codes: 0 done; 1 a negative verdict; 2 usage; 3 a bug of ours; 4 something is missing on this machine;
    5 nothing to do; 130 interrupted.
    """


main.add_command(suite)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where ModelNew goes; MODEL_new.py by default.")
@device_option
@precision_option
@click.option("--budget", type=Duration(), default="50s", show_default=True, help="Time for tuning and judging.")
@click.option("--dump", type=click.Path(path_type=Path), help="Folder for what each stage made, as text.")
@click.option("--report", type=click.Path(path_type=Path), metavar="PAGE", help="A page for people: plan, times, code.")
@click.option("--fail-under", type=float, metavar="X", help="Exit with 1 unless at least X times as fast as eager.")
@click.option("--strict-weights", is_flag=True, help="Pack no weights ahead: writes past PyTorch's counters are seen.")
@json_option
def optimize(
    model: Path,
    output: Path | None,
    device: str,
    precision: str,
    budget: float,
    dump: Path | None,
    report: Path | None,
    fail_under: float | None,
    strict_weights: bool,
    as_json: bool,
) -> None:
    """Write a faster MODEL and judge it."""
    began = time.perf_counter()
    with failures(as_json), progress_bar() as progress:
        from kernelwright.pipeline import optimize as run
        from kernelwright.pipeline import write_dumps

        target = output or model.with_name(f"{model.stem}_new.py")
        if output is not None:  # beside the model there is a folder, or no model
            output.parent.mkdir(parents=True, exist_ok=True)  # before the work, which would be lost
        result = run(
            model,
            device=device,
            precision=precision,  # type: ignore[arg-type]
            budget_s=max(budget / 2, budget - (time.perf_counter() - began)),  # importing torch is part of the wait
            progress=progress,
            strict_weights=strict_weights,
        )
        target.write_text(result.source)
        if dump is not None:
            write_dumps(result, dump)
        if report is not None:
            from kernelwright.report.single import result_page

            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(result_page(result, precision, budget), encoding="utf-8")
    show_result(result, target, as_json)
    sys.exit(exit_code(result.judgement, fail_under))


@main.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.argument("candidate", type=click.Path(path_type=Path), required=False)
@device_option
@precision_option
@click.option("--budget", type=Duration(), default="40s", show_default=True, help="Time for checking and timing.")
@click.option("--no-timing", is_flag=True, help="Only whether it is right.")
@click.option("--record", type=click.Path(path_type=Path), help="Write the whole record as JSON.")
@click.option("--fail-under", type=float, metavar="X", help="Exit with 1 unless at least X times as fast as eager.")
@json_option
@click.option(
    "--replay",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="RECORD",
    help="Judge again what this record was made from, with its seeds; no MODEL and CANDIDATE then.",
)
def check(
    model: Path | None,
    candidate: Path | None,
    device: str,
    precision: str,
    budget: float,
    no_timing: bool,
    record: Path | None,
    fail_under: float | None,
    as_json: bool,
    replay: Path | None,
) -> None:
    """Judge CANDIDATE, a .py file or an answer in .md or .txt, against MODEL."""
    if (model is None or candidate is None) == (replay is None):
        raise click.UsageError("Give MODEL and CANDIDATE, or --replay RECORD.")
    with failures(as_json), progress_bar() as progress:
        from kernelwright import judge as court
        from kernelwright.device import resolve
        from kernelwright.load import load

        if record is not None:
            record.parent.mkdir(parents=True, exist_ok=True)  # before the work, which would be lost
        if replay is not None:
            judgement = court.replay(read_record(replay), progress)
        else:
            assert model is not None
            assert candidate is not None
            policy = court.Policy(budget_s=budget, precision=precision, timing=not no_timing)  # type: ignore[arg-type]
            answer = court.extract(read_text(candidate), candidate.suffix)
            judgement = court.judge(load(model), answer, policy, resolve(device), progress)
    if record is not None:
        record.write_text(json.dumps(judgement.record, indent=1))
    show_judgement(judgement, as_json)
    sys.exit(exit_code(judgement, fail_under))


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--after", type=click.Choice(STAGES), help="Show what this stage made, and stop.")
@device_option
def explain(model: Path, after: str | None, device: str) -> None:
    """Show MODEL's graph, its plan and the expected floor; nothing is run."""
    with failures(as_json=False):
        from kernelwright.pipeline import explained

        dumps = explained(model, device, after or "plan")
    shown = [after] if after is not None else ["simplify", "plan"]
    for stage in shown:
        click.echo(f"# {stage}") if after is None else None
        click.echo(dumps[stage])


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what is here, what is missing, and what to do."""
    with failures(as_json):
        from kernelwright.doctor import diagnose

        findings = diagnose()
    if as_json:
        rows = [{"subject": f.subject, "state": str(f.state), "detail": f.detail, "cure": f.cure} for f in findings]
        click.echo(json.dumps(rows, indent=1))
        return
    from kernelwright.report.tables import findings_table

    console().print(findings_table(findings))


RECORD_CURE = "Give the file that `kernelwright check --record` wrote."


def read_record(path: Path) -> dict[str, Any]:
    """What `--record` wrote."""
    from kernelwright.errors import UsageError

    try:
        found = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UsageError(f"this is no record: {error}.", where=path, cure=RECORD_CURE) from error
    if not isinstance(found, dict):
        raise UsageError(f"this is no record but a JSON {type(found).__name__}.", where=path, cure=RECORD_CURE)
    return found


def read_text(path: Path) -> str:
    from kernelwright.errors import UsageError

    if not path.is_file():
        cure = "Give the candidate's .py file, or an answer in .md or .txt."
        raise UsageError("there is no such file.", where=path, cure=cure)
    return path.read_text(encoding="utf-8", errors="replace")


def show_result(result: Result, target: Path, as_json: bool) -> None:
    if as_json:
        from kernelwright.report.machine import result_object

        click.echo(json.dumps(result_object(result, str(target)), indent=1))
        return
    from kernelwright.report.tables import judgement_view, kernels_table

    out = console()
    if result.judgement is not None:
        out.print(judgement_view(result.judgement))
    else:
        out.print(f"{result.device.name} is not in this machine: generated and compiled, nothing was run.")
    out.print(kernels_table(result.tuned))
    out.print(f"wrote {target}", soft_wrap=True)


def show_judgement(judgement: Judgement, as_json: bool) -> None:
    if as_json:
        from kernelwright.report.machine import judgement_object

        click.echo(json.dumps(judgement_object(judgement), indent=1))
        return
    from kernelwright.report.tables import judgement_view

    console().print(judgement_view(judgement))


def exit_code(judgement: Judgement | None, fail_under: float | None) -> int:
    """1 for a wrong candidate, or one that is not as fast as asked; a device that is not here gives no verdict.

    Faster than the machine can be is not fast; and where noise leaves no word on the speed, the least it may be counts.
    """
    if judgement is None:
        return 0
    if not judgement.passed:
        return 1
    if fail_under is None:
        return 0
    eager = judgement.speedup.get("eager")
    if eager is None or judgement.speed == "IMPOSSIBLE":
        return 1
    return 0 if (eager.low if judgement.speed == "INCONCLUSIVE" else eager.median) >= fail_under else 1


@contextmanager
def failures(as_json: bool) -> Iterator[None]:
    """What ends a command: our own errors by their exit codes, in words or as JSON; Ctrl-C as 130."""
    try:
        yield
    except KernelwrightError as error:
        if as_json:
            click.echo(json.dumps({"verdict": None, "detail": str(error), "error_kind": type(error).__name__}))
        click.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except (click.ClickException, click.Abort):
        raise
    except Exception as error:
        unforeseen = as_ours(error)
        if as_json:
            kind = type(unforeseen).__name__
            click.echo(json.dumps({"verdict": None, "detail": str(unforeseen), "error_kind": kind}))
        show_unforeseen(unforeseen, error)
        raise SystemExit(unforeseen.exit_code) from error


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr for people; plain lines, one a stage, when stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    err = Console(stderr=True)
    if not err.is_terminal:
        yield line_printer()
        return
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("load", total=1.0)
        yield lambda phase, share: bar.update(task, description=phase, completed=share)


def line_printer() -> Callable[[str, float], None]:
    last = [""]

    def report(phase: str, share: float) -> None:
        if phase != last[0]:
            last[0] = phase
            click.echo(phase, err=True)

    return report


def console() -> Any:
    """Wide enough for the tables where the output is no terminal."""
    from rich.console import Console

    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=140)
