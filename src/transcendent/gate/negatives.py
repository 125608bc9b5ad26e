"""Whether the setting ``negative`` names classes of the models whose objects may be settled."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, text

from transcendent._utils.text import some
from transcendent.errors import GateSettingsError
from transcendent.gate.deployments import needed
from transcendent.gate.model import Model

_CLASSES = "SELECT id, classes FROM model"


def check_negative(engine: Engine, negative: Sequence[str] | None, model: Model | None) -> None:
    """Raise if a negative class is misspelt: then nothing would be settled, or what must not be.

    Without a model, that of the newest deployment is served. Other models of the database may have other
    classes, which may be named as well.
    """
    if not negative:
        return
    with engine.connect() as connection:
        known = {row.id: _names(row.classes) for row in connection.execute(text(_CLASSES))}
        deciding = needed(connection).deciding if model is None else None
    served = known.get(deciding.model) if deciding else None if model is None else _names(model.classes)
    every = {name for names in [*known.values(), *([served] if served else [])] for name in names}
    wrong = sorted(set(negative) - every) if every else []
    if served and not wrong and not set(negative) & set(served):
        wrong = sorted(negative)
    if wrong:
        raise GateSettingsError(
            f"negative names {some(list(map(repr, wrong)))}, but the classes of the model are "
            f"{some(served or sorted(every))}: correct the setting."
        )


def _names(classes: Sequence[Any]) -> list[str]:
    return list(map(str, classes))
