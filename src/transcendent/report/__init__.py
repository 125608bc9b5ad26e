"""One self-contained HTML page about a finished backtest."""

from transcendent.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
