"""The errors and warnings of this package."""


class TranscendentError(Exception):
    """Base of all errors of this package."""


class CalibrationError(TranscendentError, ValueError):
    """The calibration data cannot support the requested p-values or thresholds."""


class InfeasibleError(TranscendentError, ValueError):
    """No thresholds satisfy the constraints; the message names the one that fails and what is reachable.

    If ``fit`` raises it, nothing is lost: call ``rethreshold`` to continue.
    """


class MeasureError(TranscendentError, ValueError):
    """A measure does not suit the detector, or returned invalid scores."""


class ArgumentError(TranscendentError, ValueError):
    """An argument names something that does not exist, or contradicts others; the message begins with it."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(argument, message)
        self.argument, self.message = argument, message

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}"


class SettingsError(TranscendentError, ValueError):
    """A TOML file is invalid; the message names the file, the line and the way out."""


class NoShortcutError(TranscendentError):
    """The detector has no leave-one-out shortcut; the message says why."""


class MissingExtraError(TranscendentError, ImportError):
    """An optional dependency is missing; the message has the command that installs it."""


class BatchError(TranscendentError):
    """Some rows of a table were not decided; the message says why, and what to do."""


class TableRefusedError(BatchError, ValueError):
    """A table, or the folder for its decisions, cannot be used; calling again does not help."""


class GateSettingsError(TranscendentError, ValueError):
    """A setting of the gate is missing or invalid."""


class GateError(TranscendentError):
    """A gate refused a request, or cannot be reached.

    ``status`` is the HTTP status, 0 if there was no response. ``errors`` has a field and a message for each
    problem. ``decisions`` are those about the objects of the request, None for each that has none.
    ``retry_after`` is the number of seconds to wait before another attempt, if the gate has said so.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        errors: list[dict[str, str]] | None = None,
        decisions: list[dict[str, object] | None] | None = None,
        retry_after: float | None = None,
    ) -> None:
        first = f" {errors[0]['field']}: {errors[0]['message']}" if errors else ""
        super().__init__(f"{status}: {detail}{first}" if status else detail)
        self.status, self.errors, self.decisions = status, errors or [], decisions
        self.retry_after = retry_after


class WorkerDiedError(TranscendentError, RuntimeError):
    """Worker processes were killed repeatedly."""


class WorkerLostWarning(UserWarning):
    """A worker died, hung or could not be reached; its tasks ran again, and nothing is missing."""


class ArtifactError(TranscendentError, ValueError):
    """A file is not a valid or trusted artifact, or a rejector cannot be saved as one."""


class ArtifactVersionWarning(UserWarning):
    """An artifact was written with another version of a library that its models need."""


class CalibrationWarning(UserWarning):
    """Calibration works, but on less evidence than its numbers suggest."""


class CopiesWarning(CalibrationWarning):
    """Some rows are copies: they were left out of training, or a guarantee rests on them."""


class TemporalBiasError(TranscendentError, ValueError):
    """The split would give results that no deployment can reach; the message names the bias."""


class TemporalBiasWarning(UserWarning):
    """Results over time will look too good, or rest on little evidence."""
