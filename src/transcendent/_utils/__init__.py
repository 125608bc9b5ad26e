"""Helpers for all packages: arrays, dates, files, text and parallel work."""
