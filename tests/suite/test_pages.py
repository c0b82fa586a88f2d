"""The page, Markdown and database of a run, without a browser."""

import html
import re
import sqlite3
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kernelwright.report.boxes import Arrow, Box, Picture, picture_json, read_picture
from kernelwright.report.drawing import MOST_BOXES, placed_boxes, plan_svg
from kernelwright.report.exhibit import Exhibit
from kernelwright.report.highlight import highlight
from kernelwright.report.markdown import markdown
from kernelwright.report.page import page
from kernelwright.report.row import Errors
from kernelwright.report.words import anchor_of, ratio_text, time_text
from kernelwright.suite.folder import RunFolder
from kernelwright.suite.merge import copy_all, copy_plan, merged
from kernelwright.suite.pages import write_pages
from tests.suite.made import KERNEL, PICTURE, failed_row, make_row, many_exhibits

ROOT = Path(__file__).resolve().parents[2]


class Outline(HTMLParser):
    """Elements that must be closed, ids, links to them, and anything that would be loaded."""

    VOID = ("meta", "link", "input", "br", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID and tag not in ("path", "circle", "rect"):
            self.open.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif source := given.get("src") or (given.get("href") if tag == "link" else None):
            self.loads.append(source)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "circle", "rect"):
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag


def test_the_page_is_well_formed_and_its_links_resolve() -> None:
    outline = Outline(page(many_exhibits(40), "A <run>"))
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    inside = [link[1:] for link in outline.links if link.startswith("#")]
    assert len(inside) > 80
    assert set(inside) <= set(outline.ids)


def test_the_page_loads_nothing() -> None:
    text = page(many_exhibits(5), "run")
    assert [source for source in Outline(text).loads if not source.startswith("data:")] == []
    assert not re.search(r"@import|url\(|https?://", text)


def test_250_problems_without_their_sources_are_under_5_megabytes() -> None:
    assert len(page(many_exhibits(250), "run").encode()) < 5_000_000


def test_what_a_problem_says_is_text_and_never_markup() -> None:
    nasty = failed_row("a/<script>alert(1)</script>", "BUG", "<img src=x onerror=alert(1)> & more")
    text = page([Exhibit(nasty, original="x = '</code><script>'"), *many_exhibits(2)], "<b>")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert text.count("<script>") == 1  # our own


def test_a_page_of_one_problem_is_its_section_alone_and_open() -> None:
    text = page([Exhibit(make_row("mlp"), PICTURE, "import torch\n", "class ModelNew: ...\n")], "mlp")
    assert "<details" in text
    assert 'open=""' in text
    assert "<script>" not in text
    assert "All problems" not in text


def cells(text: str) -> list[list[str]]:
    """The words of each cell of each row of the page's tables."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.S)
    return [[re.sub(r"<[^>]+>", "", c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def test_a_section_has_errors_beside_those_of_eager_and_the_share_of_its_floor_that_each_kernel_reaches() -> None:
    conv = replace(KERNEL, name="conv_kernel", template="conv_sm90", median_us=200.0, library_us=600.0, flops=10**9)
    untimed = replace(KERNEL, name="small_kernel", median_us=None)
    errors = Errors(1.1e-7, 2.2e-6, 1.5e-7, 3.7e-6)
    found = cells(page([Exhibit(make_row("conv", errors=errors, kernels=(conv, KERNEL, untimed)), PICTURE)], "conv"))
    assert ["this file", "1.1e-07", "2.2e-06"] in found
    assert ["eager", "1.5e-07", "3.7e-06"] in found
    (titles,) = (row for row in found if row[0] == "kernel")
    at = [titles.index(title) for title in ("time", "floor", "of it", "PyTorch")]
    kernels = {row[0]: [row[i] for i in at] for row in found if row[0].endswith("_kernel")}
    assert kernels["conv_kernel"] == ["200 µs", "50.0 µs", "25%", "600 µs"]
    assert kernels["add_relu_kernel"][2] == "83%"
    assert kernels["small_kernel"][1] == "50.0 µs"
    assert "%" not in kernels["small_kernel"][2]


def test_a_run_of_failures_alone_has_a_page() -> None:
    text = page([Exhibit(failed_row("a/x", "BUG")), Exhibit(failed_row("a/y", "OUT_OF_TIME"))], "run")
    assert "a bug of ours" in text
    assert Outline(text).open == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py"))[:6], ids=lambda path: path.stem)
def test_highlighting_changes_no_character(path: Path) -> None:
    text = path.read_text()
    marked = highlight(text, "python")
    assert "<b>" in marked
    assert html.unescape(re.sub(r"</?(?:b|i|u|q|em)>", "", marked)) == text


def test_kernels_inside_a_python_string_are_marked_as_cpp() -> None:
    text = 'SOURCE = r"""\n__global__ void f(float* x) { x[0] = 1.5f; } // one\n"""\n'
    marked = highlight(text, "python")
    assert "<b>void</b>" in marked
    assert "<i>// one</i>" in marked
    assert html.unescape(re.sub(r"</?(?:b|i|u|q|em)>", "", marked)) == text


def test_boxes_of_a_plan_do_not_cover_each_other_and_arrows_go_down() -> None:
    boxes = tuple(Box("kernel", f"kernel_{i}", ("add", "mul"), ()) for i in range(9))
    arrows = tuple(
        Arrow(a, b, "") for a, b in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (0, 4), (4, 5), (4, 6), (6, 7), (5, 8))
    )
    placed = placed_boxes(Picture(boxes, arrows))
    for i, one in enumerate(placed):
        for other in placed[i + 1 :]:
            apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
            apart_y = one.y + one.height <= other.y or other.y + other.height <= one.y
            assert apart_x or apart_y
    for arrow in arrows:
        assert placed[arrow.source].y + placed[arrow.source].height < placed[arrow.target].y


def test_a_long_plan_is_cut_in_the_middle_and_says_by_how_much() -> None:
    boxes = tuple(Box("kernel", f"kernel_{i}", (), ()) for i in range(200))
    drawn = plan_svg(Picture(boxes, tuple(Arrow(i, i + 1, "") for i in range(199))), "deep")
    assert f"{200 - MOST_BOXES} more steps" in drawn
    assert drawn.count("<rect") == MOST_BOXES + 1


def test_a_picture_survives_json() -> None:
    assert read_picture(picture_json(PICTURE)) == PICTURE


@pytest.mark.parametrize(
    ("us", "text"), [(0.5, "500 ns"), (12.34, "12.3 µs"), (999.9, "1.00 ms"), (1234.0, "1.23 ms"), (2.5e6, "2.50 s")]
)
def test_times_have_three_digits_in_a_fitting_unit(us: float, text: str) -> None:
    assert time_text(us) == text


def test_ratios_are_spelled_alike() -> None:
    assert [ratio_text(r) for r in (0.5, 2.0, 12.34, 250.4)] == ["0.50×", "2.00×", "12.3×", "250×"]


def test_markdown_has_one_line_a_problem_and_no_degenerate_mean() -> None:
    text = markdown([make_row("a/b", 4.0), make_row("a/c", 9.0, degenerate=True), failed_row("a/d", "BUG")], "run")
    assert "geometric mean 4.00×" in text
    assert sum(line.startswith("| `a/") for line in text.splitlines()) == 3
    assert "a/c" in text.split("|")[0]


def run_folder(path: Path, *names: str) -> RunFolder:
    folder = RunFolder(path)
    path.mkdir()
    for name in names:
        row = make_row(name)
        folder.append(row)
        home = folder.fresh_problem_folder(name)
        (home / "plan.json").write_text(picture_json(PICTURE))
        (home / "emitted.py").write_text("class ModelNew: ...\n")
        (home / "log.txt").write_text("capture\n")
    return folder


def test_reports_of_slices_together_show_all_their_problems(tmp_path: Path) -> None:
    slices = [run_folder(tmp_path / "1", "a/one", "a/two"), run_folder(tmp_path / "2", "a/three")]
    paths = write_pages(slices, tmp_path / "all", sources=True, title=None)
    text = paths[0].read_text()
    for name in ("a/one", "a/two", "a/three"):
        assert f'id="{anchor_of(name)}"' in text
    files = [link for link in Outline(text).links if not link.startswith("#")]
    assert files
    assert all(Path(link.removeprefix("file://")).is_file() for link in files)


def test_a_merged_run_has_rows_and_files_and_merging_again_adds_nothing(tmp_path: Path) -> None:
    run_folder(tmp_path / "1", "a/one", "a/two")
    run_folder(tmp_path / "2", "a/three")
    assert merged([tmp_path / "1", tmp_path / "2"], tmp_path / "all", copy_all) == 3
    assert merged([tmp_path / "1", tmp_path / "2"], tmp_path / "all", copy_all) == 3
    assert (tmp_path / "all" / "problems" / "a" / "three" / "emitted.py").is_file()


def test_a_run_merged_without_sources_holds_no_text_of_the_problems(tmp_path: Path) -> None:
    run_folder(tmp_path / "1", "a/one")
    merged([tmp_path / "1"], tmp_path / "all", copy_plan)
    assert [path.name for path in (tmp_path / "all" / "problems").rglob("*.*")] == ["plan.json"]
    write_pages([RunFolder(tmp_path / "all")], tmp_path / "all", sources=True, title=None)
    assert 'svg class="plan"' in (tmp_path / "all" / "report.html").read_text()


def test_the_database_answers_questions(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "a/one", "a/two")
    folder.append(failed_row("a/three", "BUG"))
    write_pages([folder], folder.path, sources=False, title=None)
    with sqlite3.connect(folder.path / "results.sqlite") as database:
        assert database.execute("SELECT count(*) FROM results WHERE standing = 'right'").fetchone() == (2,)
        assert database.execute("SELECT max(median) FROM speedups WHERE baseline = 'eager'").fetchone() == (2.0,)
        assert database.execute("SELECT schema, rows FROM about").fetchone() == (1, 3)
