"""The one seam over joblib: many independent tasks, on the backend the caller chose."""

from transcendent._utils.parallel.progress import Progress
from transcendent._utils.parallel.run import run, stream

__all__ = ["Progress", "run", "stream"]
