"""Preprocessing against an independent computation in float64 numpy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from torch_srelu.lab.data import preprocess
from torch_srelu.lab.data.preprocess import REGULARISER, fit


def images(count: int, seed: int) -> torch.Tensor:
    """Smooth random colour images, so that pixels are correlated as in photographs."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(count, 3, 3, 3)).repeat(3, 2).repeat(3, 3)[:, :, :8, :8]
    fine = coarse * 50 + rng.normal(size=coarse.shape) * 10 + 128
    return torch.from_numpy(fine.clip(0, 255).astype(np.uint8))


def numpy_gcn(raw: torch.Tensor) -> np.ndarray:
    x = raw.numpy().reshape(len(raw), -1).astype(np.float64)
    x -= x.mean(1, keepdims=True)
    norm = np.sqrt((x**2).sum(1, keepdims=True))
    norm[norm < 1e-8] = 1
    return 55 * x / norm


def numpy_zca(train: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Whitening through the singular values of the data, not the eigenvalues of a covariance."""
    mean = train.mean(0)
    _, s, vt = np.linalg.svd((train - mean) / np.sqrt(len(train)), full_matrices=False)
    scale = 1 / np.sqrt(s**2 + REGULARISER) - 1 / np.sqrt(REGULARISER)  # beside the nullspace's
    return (x - mean) @ (vt.T * scale @ vt) + (x - mean) / np.sqrt(REGULARISER)


@pytest.fixture
def train() -> torch.Tensor:
    return images(400, seed=0)


def test_scaling_ends_at_one():
    raw = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert fit("scale", raw, white=255)(raw).tolist() == [[[[0.0, 1.0]]]]


def test_contrast_normalisation(train):
    train[0] = 7  # an image without contrast has nothing to divide by
    done = fit("gcn", train, white=255)(train)
    assert done.dtype == torch.float32
    np.testing.assert_allclose(done.flatten(1), numpy_gcn(train), rtol=1e-6, atol=1e-6)
    norms = torch.linalg.vector_norm(done.flatten(1), dim=1)
    torch.testing.assert_close(norms[1:], torch.full_like(norms[1:], 55))
    assert norms[0] == 0


def test_whitening_of_training_and_test_images(train):
    test = images(50, seed=1)
    whiten = fit("gcn+zca", train, white=255)
    fitted = numpy_gcn(train)
    for raw in (train, test):
        expected = numpy_zca(fitted, numpy_gcn(raw))
        np.testing.assert_allclose(whiten(raw).flatten(1), expected, rtol=0, atol=2e-4)


def test_the_whitened_covariance_is_the_identity_up_to_the_regulariser(train):
    white = fit("gcn+zca", train, white=255)(train).flatten(1).double().numpy()
    covariance = np.cov(numpy_gcn(train).T, bias=True)
    values, vectors = np.linalg.eigh(covariance)
    expected = (vectors * (values / (values + REGULARISER))) @ vectors.T
    np.testing.assert_allclose(np.cov(white.T, bias=True), expected, rtol=0, atol=1e-4)
    large = values > 100 * REGULARISER
    assert large.sum() > 5
    np.testing.assert_allclose(expected[:, :] @ vectors[:, large], vectors[:, large], atol=0.01)


def test_pieces_do_not_change_the_whole(train, monkeypatch):
    whole_mean, whole = preprocess.zca(train)
    monkeypatch.setattr(preprocess, "_CHUNK", 64)
    mean, matrix = preprocess.zca(train)
    torch.testing.assert_close(mean, whole_mean)
    torch.testing.assert_close(matrix, whole)


def test_the_whitening_is_cached_for_these_images_alone(train, tmp_path, monkeypatch):
    first = fit("gcn+zca", train, white=255, cache=tmp_path)(train)

    def fitted_again(_):
        raise AssertionError("fitted again")

    with monkeypatch.context() as patch:
        patch.setattr(preprocess, "zca", fitted_again)
        assert torch.equal(fit("gcn+zca", train, white=255, cache=tmp_path)(train), first)
        with pytest.raises(AssertionError, match="fitted again"):
            fit("gcn+zca", train[:-1], white=255, cache=tmp_path)
    (stored,) = tmp_path.glob("*.safetensors")
    stored.write_bytes(stored.read_bytes()[:100])  # damaged: computed anew
    assert torch.equal(fit("gcn+zca", train, white=255, cache=tmp_path)(train), first)


def test_of_several_that_start_together_one_computes(train, tmp_path, monkeypatch):
    computed = []
    zca = preprocess.zca
    monkeypatch.setattr(preprocess, "zca", lambda images: computed.append(1) or zca(images))
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: fit("gcn+zca", train, 255, tmp_path)(train), range(4)))
    assert len(computed) == 1
    assert all(torch.equal(images, made[0]) for images in made)
