"""Everything Transcendent raises or warns about by a name of its own."""


class TranscendentError(Exception):
    """Base of all errors raised under a name of this package."""


class CalibrationError(TranscendentError, ValueError):
    """The calibration data cannot support the p-values or thresholds asked for."""


class InfeasibleError(TranscendentError, ValueError):
    """No thresholds satisfy the constraints; the message names the one that fails and what is reachable.

    Raised by ``fit``, nothing is lost: call ``rethreshold`` to continue with what was fitted.
    """


class MeasureError(TranscendentError, ValueError):
    """A measure does not fit the detector, or gave scores that cannot be used."""


class NoShortcutError(TranscendentError):
    """Leaving rows out of this detector takes refits; the message is the reason."""


class MissingExtraError(TranscendentError, ImportError):
    """An optional dependency is needed; the message has the line that installs it."""


class BatchError(TranscendentError):
    """A table was not decided to its end; the message says why, and what to do."""


class WorkerDiedError(TranscendentError, RuntimeError):
    """Processes that did the work were killed again and again."""


class ArtifactError(TranscendentError, ValueError):
    """A file is not a valid or trusted artifact, or a rejector cannot be saved as one."""


class ArtifactVersionWarning(UserWarning):
    """An artifact was written under another version of a library that its models come from."""


class CalibrationWarning(UserWarning):
    """Calibration works, but with less evidence than a reader of the numbers would assume."""


class TemporalBiasError(TranscendentError, ValueError):
    """The split would give results that cannot be had in deployment; the message names the bias."""


class TemporalBiasWarning(UserWarning):
    """Results over time will look better, or rest on less, than a reader would assume."""
