"""What experiments have shown: a page with figures, the figures as PNG, tables as CSV, and a table of claims."""

from meetpoint.lab.experiments.report.writing import Written, made_claims, write_report

__all__ = ["Written", "made_claims", "write_report"]
