"""The errors and warnings of this package."""


class TranscendentError(Exception):
    """Base of all errors of this package."""


class CalibrationError(TranscendentError, ValueError):
    """The calibration data cannot support the requested p-values or thresholds."""


class InfeasibleError(TranscendentError, ValueError):
    """No thresholds satisfy the constraints; the message names the one that fails and what is reachable.

    Raised by ``fit``, nothing is lost: call ``rethreshold`` to continue with what was fitted.
    """


class MeasureError(TranscendentError, ValueError):
    """A measure does not fit the detector, or gave scores that cannot be used."""


class NoShortcutError(TranscendentError):
    """The detector has no leave-one-out shortcut; the message says why."""


class MissingExtraError(TranscendentError, ImportError):
    """An optional dependency is needed; the message has the line that installs it."""


class BatchError(TranscendentError):
    """A table was not decided completely; the message says why, and what to do."""


class TableRefusedError(BatchError, ValueError):
    """A table, or the folder for its decisions, cannot be used; the same call would be refused again."""


class GateSettingsError(TranscendentError, ValueError):
    """A setting of the gate is missing or cannot be used."""


class GateError(TranscendentError):
    """A gate refused a request, or cannot be reached.

    ``status`` is that of the answer, 0 if there was none. ``errors`` says what is wrong with which field.
    ``decisions`` has those about the other objects of the request, None in the places of bad ones.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        errors: list[dict[str, str]] | None = None,
        decisions: list[dict[str, object] | None] | None = None,
    ) -> None:
        first = f" {errors[0]['field']}: {errors[0]['message']}" if errors else ""
        super().__init__(f"{status}: {detail}{first}" if status else detail)
        self.status, self.errors, self.decisions = status, errors or [], decisions


class WorkerDiedError(TranscendentError, RuntimeError):
    """Worker processes were killed repeatedly."""


class ArtifactError(TranscendentError, ValueError):
    """A file is not a valid or trusted artifact, or a rejector cannot be saved as one."""


class ArtifactVersionWarning(UserWarning):
    """An artifact was written under another version of a library that its models come from."""


class CalibrationWarning(UserWarning):
    """Calibration works, but with less evidence than a reader of the numbers would assume."""


class CopiesWarning(CalibrationWarning):
    """Rows equal others: some were not learnt, since those calibrate, or a promise rests on copies."""


class TemporalBiasError(TranscendentError, ValueError):
    """The split would give results that cannot be had in deployment; the message names the bias."""


class TemporalBiasWarning(UserWarning):
    """Results over time will look better, or rest on less, than a reader would assume."""
