"""SReLU in transformers.

Once this is imported, ``hidden_act="srelu"`` (or whatever a configuration calls it) builds it.
`AdaptiveInitCallback` is the paper's initialisation for Trainer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.activations import ACT2CLS, ACT2FN

from .._distributed import unwrap
from ..adaptive.adaptive_init import AdaptiveInit
from ..adaptive.replay import Compound
from ..conversion.channel_tracking import ChannelLayout
from ..module import NAMES, SReLU
from .callback_schedule import AdaptAfter
from .optimizer_groups import move
from .unsized import UnsizedSReLU


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

    A model of transformers often builds its layers in another order than it runs them, so only a
    run tells which one feeds the activation. Where none does, the channels are in the last
    dimension, as in all but the convolutional models.
    """

    cls_to_become = HiddenSReLU  # type: ignore[assignment]
    beside = False

    def __init__(self) -> None:
        super().__init__(dim=-1)

    def told_by(self, parent: nn.Module) -> ChannelLayout | None:
        """The width of experts, whose routing depends on values: no run on shapes gets there.

        Their weights are stacked, and transformers notes which way round.
        """
        down = getattr(parent, "down_proj", None)  # (experts, out, in), or transposed
        transposed = getattr(parent, "is_transposed", None)
        if not isinstance(down, nn.Parameter) or down.dim() != 3 or transposed is None:
            return None
        return ChannelLayout(down.shape[1 if transposed else 2], -1)


ACT2CLS["srelu"] = UnsizedHiddenSReLU
ACT2FN["srelu"] = UnsizedHiddenSReLU


class AdaptiveInitCallback(AdaptAfter, TrainerCallback):
    """Trains with SReLU frozen, sets ``t_r`` from the training data at an epoch, then lets go.

    It takes the SReLU parameters out of the weight decay of the Trainer's optimizer. A resumed run
    goes on in the phase that the epoch of the checkpoint says; a model that this callback has
    adapted already just trains on.

    Its arguments, and ``init``, are those of `AdaptAfter`.

    Example:
        >>> from torch_srelu.integrations.transformers import AdaptiveInitCallback
        >>> callback = AdaptiveInitCallback(epoch=5)  # Trainer(..., callbacks=[callback])
    """

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        model: nn.Module = kwargs["model"]
        optimizer = getattr(kwargs["optimizer"], "optimizer", kwargs["optimizer"])  # accelerate's
        move(model, optimizer)
        if state.global_step == 0 and self._has_adapted(model):
            return  # it is trained once more
        if state.epoch is not None and state.epoch > self.epoch:  # a run resumed after the switch
            self.init = None
            for module in model.modules():  # a training before may have left them frozen
                if isinstance(module, SReLU):
                    module.frozen = False
        else:
            self.init = AdaptiveInit(model, optimizer, self.quantile, self.scope)

    def _has_adapted(self, model: nn.Module) -> bool:
        init = self.init
        return init is not None and init.adapted and unwrap(init.model) is unwrap(model)

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        # A run resumed within an epoch comes by with a fraction: that epoch is not finished.
        finished = math.floor((state.epoch or 0) + 1e-6)
        if self.init is not None and not self.init.adapted and finished >= self.epoch:
            self.init.adapt(_SameOrder(kwargs["train_dataloader"]), self.forward)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        self.warn_if_frozen()


class _SameOrder(Compound):
    """The Trainer's loader, read in the order of the coming epoch however often it is read.

    accelerate's loaders and samplers count how often they were read, and shuffle by that.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.parts = [getattr(loader, "base_dataloader", loader)]

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self.loader, "base_dataloader"):
            self.loader.set_epoch(self.loader.iteration)
        yield from self.parts[0]
