"""Data sets with times: public ones, loaders of published file formats, and synthetic streams that drift."""

from transcendent.datasets.base import Dataset
from transcendent.datasets.formats import load_ember, load_hidost, load_tesseract
from transcendent.datasets.public import load_apigraph, load_lamda, load_nvd, load_trec07p
from transcendent.datasets.streams import make_stream

__all__ = [
    "Dataset",
    "load_apigraph",
    "load_ember",
    "load_hidost",
    "load_lamda",
    "load_nvd",
    "load_tesseract",
    "load_trec07p",
    "make_stream",
]
