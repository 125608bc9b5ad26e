"""Versions of the database, from the first to the newest.

Each module states in ``works_from`` the oldest version whose gates still work with its tables. Gates wait
while a migration holds a lock on ``item``, ``identity`` or ``payload``. So a compatible migration only adds
nullable columns, tables, triggers and indexes of small tables, and changes rows of `label` at most.
"""
