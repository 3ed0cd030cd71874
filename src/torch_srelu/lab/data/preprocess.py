"""Preprocessing of images: scaling, or contrast normalisation and whitening.

As in the maxout experiments, which the paper follows: global contrast normalisation of each image,
then ZCA whitening fitted on the training part alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from ..util import files

CONTRAST = 55.0
REGULARISER = 0.1
_CHUNK = 5000  # images at a time: bounds what float64 copies take

Transform = Callable[[Tensor], Tensor]


def fit(kind: str, train: Tensor, white: int, cache: Path | None = None) -> Transform:
    """The preprocessing ``kind``, fitted on ``train``: uint8 images to float32 images.

    Args:
        kind: "scale" (to [0, 1]), "gcn" or "gcn+zca".
        train: uint8 images (N, C, H, W) of the training part, on the device of the work.
        white: The value of a full pixel; 255, or 16 for the digits.
        cache: Folder that keeps the whitening, which takes a minute to compute on a CPU.

    Example:
        >>> images = torch.tensor([[[[0, 8], [16, 4]]]], dtype=torch.uint8)
        >>> fit("scale", images, white=16)(images)
        tensor([[[[0.0000, 0.5000],
                  [1.0000, 0.2500]]]])
    """
    if kind == "scale":
        return lambda images: images.to(torch.float32) / white
    if kind == "gcn":
        return _in_chunks(lambda images: gcn(images).to(torch.float32))
    mean, matrix = (t.to(train.device) for t in _cached_zca(train, cache))

    def whiten(images: Tensor) -> Tensor:
        flat = gcn(images).flatten(1).to(torch.float32)
        return ((flat - mean) @ matrix).reshape(images.shape)

    return _in_chunks(whiten)


def gcn(images: Tensor) -> Tensor:
    """Global contrast normalisation: centre each image, then 55 over its L2 norm; in float64."""
    flat = images.flatten(1).to(torch.float64)
    flat = flat - flat.mean(1, keepdim=True)
    norm = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return (CONTRAST * flat / torch.where(norm < 1e-8, 1.0, norm)).reshape(images.shape)


def zca(train: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (D,) and whitening matrix (D, D) of contrast-normalised images, in float64.

    P = V diag(1 / sqrt(e)) V' for the eigenvectors V and eigenvalues e of covariance + 0.1 I.
    """
    chunks = train.split(_CHUNK)
    total = sum((gcn(c).flatten(1).sum(0) for c in chunks), torch.zeros((), dtype=torch.float64))
    mean = total / len(train)
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=train.device)
    for chunk in chunks:
        centred = gcn(chunk).flatten(1) - mean
        covariance.addmm_(centred.T, centred, alpha=1 / len(train))
    covariance.diagonal().add_(REGULARISER)
    values, vectors = torch.linalg.eigh(covariance)
    return mean, (vectors / values.sqrt()) @ vectors.T


def _cached_zca(train: Tensor, cache: Path | None) -> tuple[Tensor, Tensor]:
    """`zca` in float32, computed once for these very images."""
    if cache is None:
        mean, matrix = zca(train)
        return mean.to(torch.float32), matrix.to(torch.float32)
    recipe = f"gcn {CONTRAST} zca {REGULARISER} {tuple(train.shape)} ".encode()
    digest = hashlib.sha256(recipe + train.cpu().contiguous().numpy().tobytes()).hexdigest()
    path = cache / f"zca-{digest[:16]}.safetensors"
    with contextlib.ExitStack() as alone:
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time only
            cache.mkdir(parents=True, exist_ok=True)
            # Of several processes that start together, one computes and the others wait for it.
            alone.enter_context(files.locked(path.with_suffix(".lock")))
        with contextlib.suppress(OSError, KeyError, safetensors.SafetensorError):  # absent, damaged
            stored = safetensors.torch.load(path.read_bytes())
            return stored["mean"], stored["matrix"]
        mean, matrix = (t.to("cpu", torch.float32).contiguous() for t in zca(train))
        with contextlib.suppress(OSError):
            files.write(path, safetensors.torch.save({"mean": mean, "matrix": matrix}))
        return mean, matrix


def _in_chunks(transform: Transform) -> Transform:
    return lambda images: torch.cat([transform(chunk) for chunk in images.split(_CHUNK)])
