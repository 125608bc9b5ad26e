"""Conformal evaluators; they are imported from ``transcendent``."""
