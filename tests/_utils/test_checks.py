from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from transcendent._utils.checks import check_choices, check_shares


@pytest.mark.parametrize("share", [0.05, Fraction(1, 20), np.float32(0.05)])
def test_shares(share):
    check_shares(ends="excluded", share=share)
    check_shares(ends="included", share=share, none=0, all=np.int64(1))


@pytest.mark.parametrize("share", [5, -0.1, np.nan, "5%", None, [0.5]])
def test_other_values_are_refused(share):
    for ends in ("included", "excluded"):
        with pytest.raises(ValueError, match=r"rate must be .*between 0 and 1 \(5% is 0.05\), not"):
            check_shares(ends=ends, rate=share)


@pytest.mark.parametrize("end", [0, 1, 0.0, 1.0])
def test_ends_can_be_excluded(end):
    with pytest.raises(ValueError, match=r"rate must be strictly between 0 and 1"):
        check_shares(ends="excluded", rate=end)


def test_choices():
    check_choices(Literal["ham", "spam"], first="ham", second="spam")
    with pytest.raises(ValueError, match=r"second must be one of \('ham', 'spam'\), not 'eggs'\."):
        check_choices(Literal["ham", "spam"], first="ham", second="eggs")
