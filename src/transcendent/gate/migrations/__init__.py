"""Versions of the database, from the first to the newest.

A released version does not change: what comes later is a module of its own. Each module states in
``works_from`` the oldest version whose gates still work with its tables. Gates wait while a migration holds a
lock on ``item``, ``identity`` or ``payload``. So a compatible migration only adds nullable columns, tables,
triggers and indexes of small tables, and changes rows of `label` at most. Functions of its triggers have the
search path that those of the first version have.
"""
