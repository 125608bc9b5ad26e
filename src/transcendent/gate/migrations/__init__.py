"""Versions of the database, from the first to the newest."""
