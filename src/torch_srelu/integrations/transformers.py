"""SReLU in transformers: ``hidden_act="srelu"`` once this is imported, and a callback for Trainer."""

from __future__ import annotations

import torch
from transformers.activations import ACT2CLS, ACT2FN

from ..module import NAMES, SReLU
from .sizing import UnsizedSReLU


class HiddenSReLU(SReLU):
    """The SReLU inside a model of transformers.

    A checkpoint may lack its parameters: that of a model with another activation does. Then
    ``from_pretrained`` leaves them as memory without values and tells a module only that its
    parameters are "initialized"; this class takes the word for a request.
    """

    @property
    def _is_hf_initialized(self) -> bool:
        return vars(self).get("_told_initialized", False)

    @_is_hf_initialized.setter
    def _is_hf_initialized(self, told: bool) -> None:
        if told and not self._is_hf_initialized:
            with torch.no_grad():
                for name in NAMES:
                    if not getattr(getattr(self, name), "_is_hf_initialized", False):  # loaded
                        getattr(self, name).fill_(self.initial[name])
        vars(self)["_told_initialized"] = told


class UnsizedHiddenSReLU(UnsizedSReLU):
    """What transformers builds for ``hidden_act="srelu"``; becomes a `HiddenSReLU`.

    Its channels are in the last dimension. A model of transformers often builds its layers in
    another order than it runs them, so only a run tells which one feeds the activation.
    """

    cls_to_become = HiddenSReLU  # type: ignore[assignment]
    beside = False

    def __init__(self) -> None:
        super().__init__(dim=-1)


ACT2CLS["srelu"] = UnsizedHiddenSReLU
ACT2FN["srelu"] = UnsizedHiddenSReLU
