"""One self-contained HTML page about a finished backtest, or about a detector's past answers."""

from transcendent.report.checking import check_answers
from transcendent.report.page import render_report, write_report

__all__ = ["check_answers", "render_report", "write_report"]
