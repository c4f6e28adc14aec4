"""Matrix products by either library are those of numpy in float64, and the processor alone decides between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from echoless import products


@pytest.fixture(params=["oneDNN", "MKL"])
def library(request, monkeypatch):
    """Each library in turn, whatever this processor would choose."""
    monkeypatch.setattr(products, "_onednn_has_the_wider_vectors", lambda: request.param == "oneDNN")
    return request.param


LAYOUTS = {
    "row by row": lambda matrix: matrix.clone(),
    "column by column": lambda matrix: matrix.T.contiguous().T,
    "a part of another": lambda matrix: torch.cat([matrix, matrix], dim=1)[:, : matrix.shape[1]],
}


@pytest.mark.parametrize(
    ("shape", "outputs"), [((300, 96), 128), ((8, 65, 64), 192), ((2, 3, 5), 7), ((1, 4096), 4096), ((0, 64), 64)]
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_a_product_is_that_of_numpy(library, shape, outputs, layout, bias):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw)
    weight_OI = LAYOUTS[layout](torch.randn(outputs, shape[-1], generator=draw))
    bias_O = torch.randn(outputs, generator=draw) if bias else None

    found = products.matrix_product(x, weight_OI, bias_O)

    expected = x.double().numpy() @ weight_OI.double().numpy().T + (0 if bias_O is None else bias_O.double().numpy())
    assert found.shape == (*shape[:-1], outputs)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=3e-6 * shape[-1])


@pytest.mark.parametrize(
    "lies",
    [lambda bias: torch.stack([bias, bias], dim=1)[:, 0], lambda bias: bias[:1].expand(128)],
    ids=["every second value", "one value for all"],
)
def test_a_bias_may_lie_anywhere(library, lies):
    x, weight_OI, bias_O = torch.randn(300, 96), torch.randn(128, 96), lies(torch.randn(128))
    found = products.matrix_product(x, weight_OI, bias_O)
    torch.testing.assert_close(found, x @ weight_OI.T + bias_O, rtol=1e-5, atol=1e-4)


def test_memory_for_the_result_may_be_given(library):
    x, weight_OI, memory = torch.randn(300, 96), torch.randn(128, 96), torch.empty(300, 128)
    torch.testing.assert_close(products.matrix_product(x, weight_OI, out=memory), x @ weight_OI.T, rtol=1e-5, atol=1e-4)


def test_shapes_that_do_not_fit_are_named_by_torch(library):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        products.matrix_product(torch.zeros(1024, 64), torch.zeros(256, 128))


def test_whoever_switches_onednn_off_has_it_off(monkeypatch):
    monkeypatch.setattr(products, "_onednn_has_the_wider_vectors", lambda: True)
    torch._C._set_mkldnn_enabled(False)  # as torch.backends.mkldnn.flags, which also warns
    try:
        assert not products.onednn_is_faster(torch.zeros(512, 64), torch.zeros(128, 64))
    finally:
        torch._C._set_mkldnn_enabled(True)


def test_the_same_product_has_the_same_bits_every_time(library):
    x, weight = torch.randn(512, 64), torch.randn(256, 64)
    assert all(torch.equal(products.matrix_product(x, weight), products.matrix_product(x, weight)) for _ in range(5))


@pytest.mark.parametrize(
    ("vendor", "capability", "faster"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
        ("", "AVX512", False),  # where the system does not name the maker
    ],
)
def test_onednn_is_for_processors_of_amd_with_wide_vectors(monkeypatch, vendor, capability, faster):
    monkeypatch.setattr(products, "processor_vendor", lambda: vendor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert products._onednn_has_the_wider_vectors.__wrapped__() is faster


@pytest.mark.parametrize(
    ("x", "weight", "faster"),
    [
        (torch.zeros(512, 64), torch.zeros(128, 64), True),
        (torch.zeros(4, 64), torch.zeros(128, 64), False),  # calling it would take longer
        (torch.zeros(512, 64, dtype=torch.float64), torch.zeros(128, 64, dtype=torch.float64), False),
        (torch.zeros(512, 64, dtype=torch.bfloat16), torch.zeros(128, 64, dtype=torch.bfloat16), False),
        (torch.zeros(512, 64, device="meta"), torch.zeros(128, 64, device="meta"), False),
    ],
    ids=["large", "small", "float64", "bfloat16", "no values"],
)
def test_onednn_is_for_large_products_of_float32(monkeypatch, x, weight, faster):
    monkeypatch.setattr(products, "_onednn_has_the_wider_vectors", lambda: True)
    assert products.onednn_is_faster(x, weight) is faster
