"""SReLU in transformers: ``hidden_act="srelu"`` once this is imported, and a callback for Trainer.

Some configurations have another name for ``hidden_act``, such as ``activation_function``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, TrainerCallback, TrainerState
from transformers.activations import ACT2CLS, ACT2FN

from .._data_parallel import unwrap
from ..adaptive.adaptive_init import AdaptiveInit
from ..adaptive.loader_replay import CompositeLoader
from ..conversion.channel_tracking import ChannelLayout
from ..module import NAMES, SReLU
from .callback_schedule import AdaptiveInitSchedule
from .channel_inference import UnsizedSReLU
from .weight_decay import move_to_undecayed_group


class HiddenSReLU(SReLU):
    """The SReLU inside a model of transformers.

    The checkpoint of a model with another activation lacks its parameters. Then ``from_pretrained``
    allocates them uninitialized, and sets ``_is_hf_initialized`` of every module in the end: here
    this initializes them.
    """

    @property
    def _is_hf_initialized(self) -> bool:
        return vars(self).get("_told_initialized", False)  # its name in pickles

    @_is_hf_initialized.setter
    def _is_hf_initialized(self, value: bool) -> None:
        if value and not self._is_hf_initialized:
            with torch.no_grad():
                for name in NAMES:
                    if not getattr(getattr(self, name), "_is_hf_initialized", False):  # loaded
                        getattr(self, name).fill_(self.initial[name])
        vars(self)["_told_initialized"] = value


def _check_transformers() -> None:
    """Warns if this version of transformers does not set the flag that `HiddenSReLU` relies on."""
    function = getattr(PreTrainedModel, "_initialize_weights", None)
    if "_is_hf_initialized" not in getattr(getattr(function, "__code__", None), "co_names", ()):
        warnings.warn(
            "from_pretrained of this version of transformers may leave SReLU parameters that the "
            "checkpoint lacks uninitialized: call reset_parameters() of every SReLU afterwards",
            stacklevel=2,
        )


_check_transformers()


class UnsizedHiddenSReLU(UnsizedSReLU):
    """The ``hidden_act="srelu"`` of transformers; becomes a `HiddenSReLU`.

    A model of transformers often builds its layers in another order than it runs them, so only a
    run shows which one feeds the activation. Where a run does not show it, the channels are in the
    last dimension, as in all but the convolutional models.
    """

    cls_to_become = HiddenSReLU  # type: ignore[assignment]
    by_previous_layer = False

    def __init__(self) -> None:
        super().__init__(dim=-1)

    def _declared_layout(self, parent: nn.Module) -> ChannelLayout | None:
        """The width of experts, whose routing depends on values that fake tensors do not have.

        Their weights are stacked, and ``is_transposed`` says in which order.
        """
        down = getattr(parent, "down_proj", None)  # (experts, out, in), or transposed
        transposed = getattr(parent, "is_transposed", None)
        if not isinstance(down, nn.Parameter) or down.dim() != 3 or transposed is None:
            return None
        return ChannelLayout(down.shape[1 if transposed else 2], -1)


ACT2CLS["srelu"] = UnsizedHiddenSReLU
ACT2FN["srelu"] = UnsizedHiddenSReLU


class AdaptiveInitCallback(AdaptiveInitSchedule, TrainerCallback):
    """Trains with SReLU frozen, sets ``t_r`` from the training data at an epoch, then unfreezes.

    It takes the SReLU parameters out of the weight decay of the Trainer's optimizer. The phase
    of a resumed run follows from the epoch of its checkpoint; a model that this callback has
    adapted already just goes on training.

    Its arguments, and ``init``, are those of `AdaptiveInitSchedule`.

    Example:
        >>> from torch_srelu.integrations.transformers import AdaptiveInitCallback
        >>> callback = AdaptiveInitCallback(epoch=5)  # Trainer(..., callbacks=[callback])
    """

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        model: nn.Module = kwargs["model"]
        optimizer = getattr(kwargs["optimizer"], "optimizer", kwargs["optimizer"])  # accelerate's
        move_to_undecayed_group(model, optimizer)
        adapted = self.init is not None and self.init.adapted and self.init.model
        if state.global_step == 0 and adapted and unwrap(adapted) is unwrap(model):
            return  # a second training
        if state.epoch is not None and state.epoch > self.epoch:  # a run resumed after adapt
            self.init = None
            for module in model.modules():  # a previous training may have left them frozen
                if isinstance(module, SReLU):
                    module.frozen = False
        else:
            self.init = AdaptiveInit(model, optimizer, self.quantile, self.scope)

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        # A run resumed within an epoch has a fraction: that epoch is not finished.
        finished = math.floor((state.epoch or 0) + 1e-6)
        if self.init is not None and not self.init.adapted and finished >= self.epoch:
            self.init.adapt(_SameOrder(kwargs["train_dataloader"]), self.forward)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.warn_if_frozen()


class _SameOrder(CompositeLoader):
    """The Trainer's loader, always read in the order of the coming epoch.

    accelerate's loaders and samplers shuffle by how often they were read.
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
