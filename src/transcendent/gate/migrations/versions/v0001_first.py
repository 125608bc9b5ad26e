"""The first version: the tables of the first release, in a file for each subject in the folder ``v0001``."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
works_from = "0001"

_FOLDER = Path(__file__).with_name("v0001")
# Tables of later ones refer to those of earlier ones.
_SUBJECTS = ("access", "models", "items", "labels", "contents", "deletion", "monitors", "events", "days")
# The oldest version of gates that work with the tables. `migrate` updates it.
_WORKS_FROM = "CREATE TABLE works_from (version text NOT NULL); INSERT INTO works_from VALUES ('0001')"
# Functions of triggers run with the rights of the owner: the role of gates has few, and none yet on tables
# that a later version has added. They keep this path, which ends with pg_temp, so that no temporary table of
# that role stands in for one of the tables.
_PATH = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)"


def upgrade() -> None:
    """Create the tables."""
    op.execute(_PATH)
    op.execute(_WORKS_FROM)
    for subject in _SUBJECTS:
        op.execute(_sql(subject))


def downgrade() -> None:
    """Drop the tables and their contents."""
    op.execute(_sql("drop"))


def _sql(name: str) -> str:
    return (_FOLDER / f"{name}.sql").read_text()
