"""What `optimize` made of one problem comes in; a page about it goes out."""

from __future__ import annotations

import hashlib
import time

from kernelwright.report.exhibit import Exhibit
from kernelwright.report.facts import row_of
from kernelwright.report.page import page
from kernelwright.report.picture import picture_of
from kernelwright.report.row import Terms
from kernelwright.result import Result

__all__ = ["result_page"]


def result_page(result: Result, precision: str, budget_s: float) -> str:
    """The section that a suite's page has of each problem, by itself and open."""
    text = result.problem.source
    terms = Terms(result.device.name, precision, tuple(result.speedup), budget_s, "optimize")
    environment = {
        "device": result.device.name,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    row = row_of(result, result.problem.name, digest, terms, environment)
    return page([Exhibit(row, picture_of(result.program.plan), text, result.source)], result.problem.name)
