"""Follow the deployments: load models in the background, and serve the one that decides."""

import math
import time
from collections.abc import Callable
from threading import Thread

import psycopg
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from transcendent._utils.text import shorten, visible
from transcendent.errors import TranscendentError
from transcendent.gate.deployments import Deployment, needed
from transcendent.gate.model import Model
from transcendent.gate.repeating import Repeated
from transcendent.gate.service import Service
from transcendent.gate.serving import Serving
from transcendent.gate.shadowing import Shadow, Shadows

EVERY = 1.0  # seconds between looks at the deployments
RETRY = 60.0  # seconds until a model that was refused is tried again
_LONGEST = 300  # characters of a problem

log = structlog.get_logger("transcendent.gate")


class Follower:
    """Lets a service serve the model that the deployments name, as soon as it is loaded, and its shadows.

    ``load`` returns the model with a number under this gate's own settings, or raises. ``make`` returns what
    a deployment serves. ``beat`` takes the deployment that is served, the models that are loaded and what is
    wrong. A thread of its own loads one model at a time, so that a model that takes long delays neither
    heartbeats nor a return to a model that is loaded.
    """

    def __init__(
        self,
        engine: Engine,
        service: Service,
        load: Callable[[int], Model],
        make: Callable[[Deployment, Model], Serving],
        beat: Callable[[int | None, list[int], str | None], None],
        clock: Callable[[], float] = time.monotonic,
        shadows: Shadows | None = None,
    ) -> None:
        self._engine, self._service, self._load, self._make = engine, service, load, make
        self._beat, self._clock, self._shadows = beat, clock, shadows
        self._models: dict[int, Model] = {}
        self._refused: dict[int, tuple[str, float]] = {}  # by deployment: why, and until when
        self._loading: Thread | None = None
        self._outcome: tuple[Deployment, Model | Exception] | None = None
        self._old: list[Serving] = []
        self._repeated: Repeated | None = None

    @property
    def problem(self) -> str | None:
        """Why models that are needed are not loaded: a line for each deployment, newest first."""
        return "\n".join(why for _, (why, _) in sorted(self._refused.items(), reverse=True)) or None

    def start(self) -> None:
        """Serve the model that decides, unless it is refused, and follow the deployments from now on."""
        self.turn()
        while self._loading is not None and self._service.serving is None:
            self._loading.join()
            self.turn()
        self._repeated = Repeated("heartbeat", EVERY, self.turn)

    def close(self) -> None:
        """Stop following; a model that is being loaded is left."""
        if self._repeated is not None:
            self._repeated.close()
        for each in self._old:
            each.close()

    def turn(self) -> None:
        """Serve what the deployments say if it is loaded, begin to load what is not, and report."""
        try:
            self._take_outcome()
            with self._engine.connect() as connection:
                plan = needed(connection)
            shadows = [] if self._shadows is None else plan.shadows
            wanted = [each for each in (plan.deciding, *plan.others, *shadows) if each is not None]
            self._forget(wanted)
            self._serve(plan.deciding)
            self._close_old()
            self._compare(shadows)
            self._load_next(wanted)
        finally:
            self._beat(self._deployment, sorted(self._models), self.problem)

    @property
    def _deployment(self) -> int | None:
        serving = self._service.serving
        return None if serving is None else serving.deployment

    def _take_outcome(self) -> None:
        """Take the model that was loaded since, or the reason why it was not."""
        if self._loading is None or self._outcome is None:
            return
        (deployment, outcome), self._outcome, self._loading = self._outcome, None, None
        if isinstance(outcome, Model):
            self._models[deployment.model] = outcome
            self._refused.pop(deployment.id, None)
        elif isinstance(outcome, SQLAlchemyError | psycopg.Error):
            log.warning("a model was not read", deployment=deployment.id, error=type(outcome).__name__)
        else:
            self._refuse(deployment, outcome)

    def _forget(self, wanted: list[Deployment]) -> None:
        """Forget models and refusals of deployments that no longer matter."""
        numbers, models = {each.id for each in wanted}, {each.model for each in wanted}
        if self._service.serving is not None:
            models.add(self._service.serving.number)  # as long as the next one cannot be loaded
        self._refused = {number: why for number, why in self._refused.items() if number in numbers}
        self._models = {number: model for number, model in self._models.items() if number in models}

    def _serve(self, deciding: Deployment | None) -> None:
        """Serve the deployment that decides, unless that is so or it is not loaded."""
        if deciding is None or deciding.id == self._deployment:
            return
        model = self._models.get(deciding.model)
        if model is not None and self._may_try(deciding):
            try:
                serving = self._make(deciding, model)
            except TranscendentError as error:
                self._refuse(deciding, error)
            else:
                self._replace(serving)
        if deciding.id in self._refused:
            self._service.no_model = f"the active model is refused: {self._refused[deciding.id][0]}"

    def _replace(self, serving: Serving) -> None:
        if self._service.serving is not None:
            self._old.append(self._service.serving)
        self._service.replace(serving)
        log.info("model", deployment=serving.deployment, digest=serving.model.digest)

    def _close_old(self) -> None:
        """Close what was served before, once no request that it decided is waiting."""
        unused = [each for each in self._old if not self._service.uses(each)]
        self._old = [each for each in self._old if each not in unused]
        for each in unused:
            each.close()

    def _compare(self, wanted: list[Deployment]) -> None:
        """Compare with the shadows that are loaded, and with no others."""
        if self._shadows is None:
            return
        known = {each.deployment: each for each in self._shadows.standing}
        made = [known.get(each.id) or self._shadow(self._shadows, each) for each in wanted]
        standing = [each for each in made if each is not None]
        if standing != list(known.values()):
            self._shadows.replace(standing)
            log.info("shadows", deployments=[each.deployment for each in standing])

    def _shadow(self, shadows: Shadows, deployment: Deployment) -> Shadow | None:
        model = self._models.get(deployment.model)
        if model is None or not self._may_try(deployment):
            return None
        try:
            return Shadow(deployment, model, shadows.secret)
        except Exception as error:  # of any kind: it must not keep the gate from following
            self._refuse(deployment, error)
            return None

    def _load_next(self, wanted: list[Deployment]) -> None:
        missing = [each for each in wanted if each.model not in self._models and self._may_try(each)]
        if missing and self._loading is None:
            self._loading = Thread(target=self._try, args=missing[:1], name="load", daemon=True)
            self._loading.start()

    def _try(self, deployment: Deployment) -> None:
        try:
            self._outcome = deployment, self._load(deployment.model)
        except Exception as error:
            self._outcome = deployment, error
            return  # the next turn is soon enough, and a database that fails is not called in a loop
        if self._repeated is not None:
            self._repeated.wake()

    def _may_try(self, deployment: Deployment) -> bool:
        _, until = self._refused.get(deployment.id, ("", -math.inf))
        return self._clock() >= until

    def _refuse(self, deployment: Deployment, error: Exception) -> None:
        # Errors of other kinds may quote what nobody has checked.
        known = isinstance(error, TranscendentError)
        said = str(error).partition("\n")[0] if known else f"loading it raised a {type(error).__name__}"
        why = shorten(visible(f"deployment {deployment.id}: {said}"), _LONGEST)
        self._refused = {**self._refused, deployment.id: (why, self._clock() + RETRY)}
        log.error("a model is refused", problem=why)
