"""--oracle-decode: what it means, and from the shell."""

from __future__ import annotations

import pytest

from shoal.rides.options import RidesOptions
from shoal.rides.routing.neural.decoding import Decoding


def test_words():
    assert Decoding.of("greedy") == Decoding(1, 0)
    assert Decoding.of("best-of-1") == Decoding(1, 0)
    assert Decoding.of("best-of-8") == Decoding(8, 0)
    assert Decoding.of("sampled-8") == Decoding(1, 7)


@pytest.mark.parametrize("words", ["", "best", "best-of-0", "sampled", "sampled--3", "best-of-10000"])
def test_other_words_are_refused(words):
    with pytest.raises(ValueError, match="expected --oracle-decode as greedy, best-of-N or sampled-N"):
        RidesOptions(oracle="neural", oracle_decode=words)


def test_it_says_nothing_to_the_compiled_search():
    with pytest.raises(ValueError, match="expected --oracle neural beside --oracle-decode best-of-8: it decodes"):
        RidesOptions(oracle_decode="best-of-8")
