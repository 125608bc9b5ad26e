"""Versions of the database, from the first to the newest.

From 0003 on each module says in ``works_from`` which is the oldest version whose gates still work with the
tables that it leaves. While a migration holds a lock on ``item``, ``identity`` or ``payload``, gates wait: a
compatible one adds columns that may be null, tables, and indexes of small tables, and fills nothing.
"""
