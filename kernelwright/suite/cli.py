"""Command-line arguments of `kernelwright suite` come in; one call is made; what it gives is printed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from kernelwright.errors import EnvironmentProblem, InternalError, KernelwrightError
from kernelwright.suite.efforts import EFFORTS

BASELINES = ("eager", "compile", "max-autotune", "graph")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in new versions of click
    """60, 60s, 2m, 1h"""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        units = {"s": 1.0, "m": 60.0, "h": 3600.0}
        text = str(value)
        number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
        try:
            seconds = float(number) * unit
        except ValueError:
            self.fail(f"{value!r} is no time; write 60, 60s or 2m.", param, ctx)
        if not seconds > 0:
            self.fail("must be more than nothing.", param, ctx)
        return seconds


class Names(click.ParamType):  # type: ignore[type-arg]
    """eager,compile: some of a list, separated by commas; `none` for none of them."""

    name = "names"

    def __init__(self, known: tuple[str, ...]) -> None:
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(",") if name.strip() not in ("", "none"))
        for name in names:
            if name not in self.known:
                self.fail(f"{name!r} is none of {', '.join(self.known)}.", param, ctx)
        return names


class Part(click.ParamType):  # type: ignore[type-arg]
    """2/5: the second of five parts."""

    name = "k/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from kernelwright.suite.problems import Share

        if isinstance(value, Share):
            return value
        number, _, of = str(value).partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            self.fail(f"{value!r} is no part; write 2/5 for the second of five.", param, ctx)
        return Share(int(number), int(of))


@click.group()
def suite() -> None:
    """Run folders of problems, and show what came of them."""


@suite.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("RUN"), show_default=True,
              help="The run folder; a run that was interrupted goes on where it was.")  # fmt: skip
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda (all GPUs), cuda:N, or a GPU by name."
)
@click.option("--precision", type=click.Choice(["reference", "ieee", "tf32", "bf16", "fp16"]), default="reference",
              show_default=True, help="What contractions may round to.")  # fmt: skip
@click.option("--baselines", type=Names(BASELINES), default="eager,compile", show_default=True,
              help=f"Some of {','.join(BASELINES)}; none: only whether it is right.")  # fmt: skip
@click.option("--effort", type=click.Choice(list(EFFORTS)), default="normal", show_default=True,
              help="How thoroughly each problem is judged.")  # fmt: skip
@click.option("--budget", type=Duration(), help="Tuning and judging of one problem; by default what the effort says.")
@click.option("--total-budget", type=Duration(), help="Of the whole run: what is left then is left for the next run.")
@click.option("--limit-time", type=Duration(), help="A problem's processes are killed after this; 10 budgets + 4m.")
@click.option("--limit-memory", type=float, metavar="GB", help="The same for memory; nine tenths of the machine's.")
@click.option("--jobs", type=click.IntRange(1), help="Problems at a time; timing is always one at a time on a device.")
@click.option("--filter", "patterns", multiple=True, metavar="TEXT", help="Only problems whose name matches.")
@click.option("--slice", "share", type=Part(), metavar="K/N", help="Only the K-th of N equal parts.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N.")
@click.option("--redo", is_flag=True, help="Do again what is done.")
@click.option("--redo-failed", is_flag=True, help="Do again what is not right and not unchanged.")
@click.option("--done-in", multiple=True, type=click.Path(path_type=Path), metavar="RUN",
              help="What has a row in that run counts as done too.")  # fmt: skip
@click.option("--commit", envvar="KERNELWRIGHT_COMMIT", help="Of this tree, for the rows; by default git is asked.")
@click.option("--no-report", is_flag=True, help="Rows only; `suite report` makes the pages later.")
def run(
    places: tuple[Path, ...],
    output: Path,
    device: str,
    precision: str,
    baselines: tuple[str, ...],
    effort: str,
    budget: float | None,
    total_budget: float | None,
    limit_time: float | None,
    limit_memory: float | None,
    jobs: int | None,
    patterns: tuple[str, ...],
    share: Any,
    limit: int | None,
    redo: bool,
    redo_failed: bool,
    done_in: tuple[Path, ...],
    commit: str | None,
    no_report: bool,
) -> None:
    """Optimise and judge every problem below DIR..., each in processes of its own; one row for each.

    Ends with 0 if no problem is wrong or broken, else with 1.
    """
    with failures():
        from kernelwright.report.row import Terms, identity_of
        from kernelwright.settings import read_settings
        from kernelwright.suite.devices import find_places
        from kernelwright.suite.folder import RunFolder
        from kernelwright.suite.problems import find_problems, narrowed
        from kernelwright.suite.runner import Limits, Order, machine_memory, run_suite
        from kernelwright.suite.watching import watching

        problems = narrowed(find_problems(places), patterns, share, limit)
        where = find_places(device)
        seconds = budget or EFFORTS[effort].budget_s
        folder = RunFolder(output)
        cores = read_settings().jobs
        at_a_time = jobs or default_jobs(where.kind, cores)
        order = Order(
            terms=Terms(where.name, precision, baselines, seconds, effort),
            places=where,
            limits=Limits(
                limit_s=limit_time or 10 * seconds + 240,
                memory_bytes=int(limit_memory * 1e9) if limit_memory else machine_memory()[0] * 9 // 10,
                total_s=total_budget,
                jobs=at_a_time,
                compilers=max(1, cores // at_a_time),
            ),
            commit=commit or commit_here(),
            command=command_line(),
        )
        with folder.claimed():
            done = already_done(folder, done_in, redo=redo, redo_failed=redo_failed)
            left = [p for p in problems if identity_of(p.name, p.sha256, order.terms) not in done]
            folder.write_about({"command": order.command, "commit": order.commit, "problems": len(problems)})
            with watching(len(left)) as watch:
                outcome = run_suite(problems, order, folder, done=done, watch=watch)
    click.echo(closing_words(outcome, output))
    if not no_report and folder.rows_path.is_file():
        from kernelwright.suite.pages import sources_fit

        write_reports([folder], output, sources=sources_fit(folder))
        click.echo(str(output / "report.html"))
    sys.exit(1 if any(row.standing in ("wrong", "broken") for row in outcome.rows) else 0)


def already_done(folder: Any, elsewhere: tuple[Path, ...], *, redo: bool, redo_failed: bool) -> set[str]:
    """Identities that need no run: the last row of each counts."""
    from kernelwright.suite.folder import read_rows

    rows = folder.rows() if folder.rows_path.is_file() else []
    rows += [row for place in elsewhere for row in read_rows(place)]
    known = {row.identity: row for row in rows}
    return {identity for identity, row in known.items() if not (redo or (redo_failed and failed(row)))}


@suite.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the pages; the first RUN by default.")
@click.option("--title", help="Of the page.")
@click.option("--sources/--no-sources", default=True, show_default=True, help="Original and emitted files in the page.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, and write nothing.")
def report(runs: tuple[Path, ...], output: Path | None, title: str | None, sources: bool, as_json: bool) -> None:
    """Make report.html, report.md and results.sqlite of one run, or of several together."""
    with failures():
        from kernelwright.report.machine import summary_object
        from kernelwright.report.summary import summarise
        from kernelwright.suite.folder import RunFolder, latest

        folders = [RunFolder(path) for path in runs]
        if as_json:
            rows = latest(row for folder in folders for row in folder.rows())
            click.echo(json.dumps(summary_object(summarise(rows)), indent=1))
            return
        target = output or runs[0]
        for path in write_reports(folders, target, sources=sources, title=title):
            click.echo(str(path))


@suite.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 if anything is slower or newly wrong.")
def compare(before: Path, after: Path, as_json: bool, fail_on_worse: bool) -> None:
    """Say what got faster, slower, newly right or newly wrong from run BEFORE to run AFTER, beyond the noise."""
    with failures():
        from kernelwright.suite.compare import compared, comparison_object, comparison_text
        from kernelwright.suite.folder import latest, read_rows

        comparison = compared(latest(read_rows(before)), latest(read_rows(after)))
        click.echo(json.dumps(comparison_object(comparison), indent=1) if as_json else comparison_text(comparison))
    sys.exit(1 if fail_on_worse and (comparison.slower or comparison.newly_wrong) else 0)


@suite.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The merged run folder.")
@click.option("--sources/--no-sources", default=True, show_default=True, help="Whether files go along, or plans alone.")
def merge(runs: tuple[Path, ...], output: Path, sources: bool) -> None:
    """Put the rows and files of several runs into one: slices of a suite, or machines.

    Without sources the folder holds no text of the problems, and may be kept where they may not.
    """
    with failures():
        from kernelwright.suite.merge import copy_all, copy_plan, merged

        count = merged(runs, output, copy_all if sources else copy_plan)
    click.echo(f"{count} rows in {output}")


@suite.command("export-kernelbench")
@click.argument("source", type=click.Path(path_type=Path), metavar="RUN")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder for the files.")
@click.option("--run-name", default="kernelwright", show_default=True, help="What KernelBench calls the run.")
def export_kernelbench(source: Path, output: Path, run_name: str) -> None:
    """Write eval_results.json, the generated kernels and the baseline times as KernelBench lays them out."""
    with failures():
        from kernelwright.suite.kernelbench import export_run

        for path in export_run(source, output, run_name):
            click.echo(str(path))


@suite.command("import-kernelbench")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The run folder that gets the rows."
)
@click.option("--name", "peer", default="kernelbench", show_default=True, help="Whose results they are.")
@click.option("--level", type=click.IntRange(1, 9), help="Of an eval_results.json that does not say it.")
def import_kernelbench(files: tuple[Path, ...], output: Path, peer: str, level: int | None) -> None:
    """Read KernelBench's eval_results.json as rows, or its baseline timing JSON as a peer's times in a run's rows."""
    with failures():
        from kernelwright.suite.kernelbench import import_files

        for line in import_files(files, output, peer, level):
            click.echo(line)


def write_reports(folders: Any, target: Path, *, sources: bool, title: str | None = None) -> list[Path]:
    from kernelwright.suite.pages import write_pages

    return write_pages(folders, target, sources=sources, title=title)


def closing_words(outcome: Any, output: Path) -> str:
    from kernelwright.report.words import count_text
    from kernelwright.suite.watching import Tally

    tally = Tally()
    for row in outcome.rows:
        tally.add(row)
    before = f", {outcome.before} done before" if outcome.before else ""
    left = f", {len(outcome.left)} left for the next run" if outcome.left else ""
    return f"{count_text(len(outcome.rows), 'problem')} into {output}: {tally}{before}{left}"


def failed(row: Any) -> bool:
    return row.standing not in ("right", "unchanged")


def default_jobs(kind: str, cores: int) -> int:
    """On a GPU enough to keep it busy while others capture and compile; on a CPU jobs wait for each other's timings."""
    return max(1, min(8, cores // 2)) if kind == "cuda" else max(1, min(2, cores // 2))


def commit_here() -> str:
    """Of the tree this package lies in; nothing where git or the history is not there."""
    here = Path(__file__).resolve().parent
    try:
        asked = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return asked.stdout.strip()


def command_line() -> str:
    return shlex.join(["kernelwright", *sys.argv[1:]])


@contextmanager
def failures() -> Iterator[None]:
    """What ends a command: our own errors by their exit codes; Ctrl-C as 130."""
    try:
        yield
    except KernelwrightError as error:
        click.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on from here", err=True)
        sys.exit(130)
    except (click.ClickException, click.Abort):
        raise
    except Exception as error:
        unforeseen = as_ours(error)
        show_unforeseen(unforeseen, error)
        raise SystemExit(unforeseen.exit_code) from error


def as_ours(error: Exception) -> KernelwrightError:
    """An exception that nobody foresaw: a file the system does not let us have, or else a bug."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        cure = "Give a path that this user can read and write, or make room on the disk."
        return EnvironmentProblem(f"{error.strerror}.", where=str(error.filename), cure=cure)
    what = f"this is a bug of kernelwright: {type(error).__name__}: {error}".rstrip(".: ") + "."
    return InternalError(what, cure="Please report it with the lines above and the model's file.")


def show_unforeseen(unforeseen: KernelwrightError, error: Exception) -> None:
    if isinstance(unforeseen, InternalError):
        click.echo("".join(traceback.format_exception(error)), err=True)
    click.secho(f"{type(unforeseen).__name__}: {unforeseen}", fg="red", err=True)
