"""Run many independent tasks on the joblib backend that the caller chose."""

from transcendent._utils.parallel.progress import Progress, working
from transcendent._utils.parallel.run import run, stream
from transcendent._utils.parallel.worker import openmp_threads

__all__ = ["Progress", "openmp_threads", "run", "stream", "working"]
