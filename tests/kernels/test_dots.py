"""Dense products of 16 bits in the way that does not pay on this CPU: by pairs, or widened."""
import pytest
from test_bits16 import (  # noqa: F401 - run here once more
    test_dense_products,
    test_long_sums_are_in_float32_and_in_an_order_of_their_own,
)

from hpgcn.kernels.cpu import emitter, gemm


@pytest.fixture(autouse=True)
def other_way(monkeypatch):
    if not emitter.has_dots():
        pytest.skip("this CPU multiplies no pairs of 16 bits")
    other = not emitter.uses_dots()
    monkeypatch.setattr(gemm, "uses_dots", lambda: other)
