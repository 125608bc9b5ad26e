"""What a gate serves at a time: a model, and everything else that its answers depend on."""

from dataclasses import dataclass, replace

from sqlalchemy import Engine

from transcendent.gate.deployments import Deployment, DeploymentSettings
from transcendent.gate.intake import Draw
from transcendent.gate.model import Model, with_budget
from transcendent.gate.older import OlderItems
from transcendent.gate.traffic import Traffic


@dataclass(frozen=True, eq=False)
class Serving:
    """A model and what goes with it. It never changes: another deployment is another one.

    A batch of requests takes it once, so that the label, the cutoff and the model that an answer names agree.
    ``number`` is the model's in the database. If ``observed``, all objects are answered as accepted, and
    rejected ones are kept as usual.
    """

    model: Model
    number: int
    draw: Draw
    traffic: Traffic | None = None
    older: OlderItems | None = None
    deployment: int | None = None
    observed: bool = False

    @property
    def alive(self) -> bool:
        """Whether its threads are running."""
        return self.traffic is None or self.traffic.alive

    def close(self) -> None:
        """Count what is left, and stop its threads."""
        if self.older is not None:
            self.older.close()
        if self.traffic is not None:
            self.traffic.close()


@dataclass(frozen=True)
class ServingMaker:
    """Makes what a deployment serves; ``secret`` draws the audit, and ``max_kept`` is the cap on senders."""

    working: Engine
    counting: Engine
    secret: bytes
    max_kept: int | None

    def __call__(self, deployment: Deployment, model: Model) -> Serving:
        """Return what to serve, with its threads started."""
        settings = DeploymentSettings.read(deployment.settings)
        if settings.budget is not None:
            model = replace(model, rule=with_budget(model, settings.budget))
        traffic = None
        if model.rule is not None or self.max_kept is not None:
            traffic = Traffic(self.counting, deployment.model, self.secret, model.rule, self.max_kept)
        older = OlderItems(self.working, deployment.model)
        older.follow()
        return Serving(
            model,
            deployment.model,
            Draw(self.secret, settings.audit),
            traffic,
            older,
            deployment.id,
            deployment.action == "observe",
        )
