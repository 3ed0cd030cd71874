"""Decides, from what a trial run showed, which activation becomes which unit and what stays."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from dataclasses import dataclass
from types import FunctionType

from torch import nn

from .call_observer import ActivationCall, ActivationSlot, CallSite
from .source_rewriting import REWRITTEN, nested_codes

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_TORCH = {cls.__module__ for cls in (nn.Module, *_CONTAINERS)}
_ENCODER = (
    "in evaluation mode a fused kernel with a ReLU of its own may run instead; "
    "build the layer with activation=SReLU(dim_feedforward, dim=-1)"
)
# Of modules such as ConvReLU2d.
_QUANTIZED = "part of a fused module, in which quantization would replace the unit by its own ReLU"


@dataclass(eq=False)
class Replacement:
    """The calls of one activation module or at one call site, and what is to be done with them."""

    slot: ActivationSlot | None
    site: CallSite | None
    calls: list[ActivationCall]
    path: str  # of the activation module, or of the module that calls the function
    first: bool = True  # the first site that calls the module in its slot
    requested: bool = True  # an activation that the caller asked to convert
    problem: str | None = None  # why it is not converted

    @functools.cached_property
    def groups(self) -> list[list[ActivationCall]]:
        """The calls that share a unit, by the iterations of a loop if each has its own layer.

        A recurrent loop runs the same layer every time, so it shares the unit as it shares the
        weights. A loop that skips layers, at random or in evaluation, shares it too: the number of
        an iteration does not determine which layer it runs.
        """
        iterations: dict[int, list[ActivationCall]] = defaultdict(list)
        for call in self.calls:
            iterations[call.iteration].append(call)
        pairs = {(call.iteration, call.layers) for call in self.calls}
        one_to_one = len(pairs) == len(iterations) == len({layers for _, layers in pairs})
        equally_often = len({len(group) for group in iterations.values()}) == 1
        if one_to_one and equally_often:
            return [iterations[i] for i in sorted(iterations)]
        return [self.calls]

    @property
    def loop(self) -> bool:
        """Whether the site is in a loop over layers, and each iteration gets its own unit."""
        return len(self.groups) > 1

    @property
    def rewritten(self) -> bool:
        """Whether the call must be rewritten; otherwise it is enough to replace the module."""
        keyword = self.site is not None and self.site.keyword
        return self.slot is None or self.loop or not self.first or keyword

    @property
    def label(self) -> str:
        """What is called, and where, in words."""
        return f"{self.calls[0].activation.name} in {self.calls[0].where}"


def plan_replacements(model: nn.Module, calls: list[ActivationCall]) -> list[Replacement]:
    """The calls of the trial runs by slot and site, in the order of the source."""
    paths = {module: name for name, module in model.named_modules()}
    gathered: dict[tuple, list[ActivationCall]] = defaultdict(list)
    for call in calls:
        gathered[call.slot, call.site or call.where].append(call)
    plan = []
    for (slot, _), group in gathered.items():
        site = group[0].site
        names = (paths[slot.parent], slot.name) if slot else (site and paths[site.owner],)
        plan.append(Replacement(slot, site, group, path=".".join(filter(None, names))))
    plan.sort(key=lambda r: (r.site.method, r.site.end) if r.site else ("", (0, 0)))
    seen, bypassed = set(), bypassed_modules(model)
    for replacement in plan:
        slot, site = replacement.slot, replacement.site
        replacement.first = slot not in seen
        seen.add(slot)
        caller = site.owner if site else slot and slot.parent
        replacement.problem = (caller and bypassed.get(caller)) or _problem(replacement)
        if any(call.on_weights for call in replacement.calls):
            replacement.problem = (
                "it writes into a parameter or a buffer: a constraint, not an activation"
            )
            replacement.requested = False
    return plan


def _problem(replacement: Replacement) -> str | None:
    """Why it cannot be converted, or None."""
    slot, site, calls = replacement.slot, replacement.site, replacement.calls
    if unsupported := [call.unsupported for call in calls if call.unsupported]:
        return unsupported[0]
    for group in replacement.groups:
        activation = group[0].activation
        channels = sorted({c.layout.channels for c in group})
        if len(channels) > 1:
            counts = " and ".join(map(str, channels))
            return f"called with {counts} channels, and one unit has one number of channels"
        dims = sorted({c.layout.dim for c in group})
        if len(dims) > 1 and channels != [1]:
            places = " and ".join(map(str, dims))
            return f"called with its channels in dimensions {places}, and one unit has one"
        if not all(c.activation.same(activation) for c in group):
            return "called with different parameters"
    if slot is not None and not (
        site is not None and slot.parent is site.owner and slot.name.isidentifier()
    ):
        if replacement.loop:
            return "called in a loop over layers, but not as an attribute of the module that loops"
        if site is not None and site.keyword:
            return "called with input= as a keyword, but not as an attribute of its caller"
    if not replacement.rewritten:
        return None
    if site is not None:
        if (slot is None or not replacement.first) and _uses_all_children(site):
            return "its caller may use all children of the module, and a unit would be one of them"
        if _pickles_itself(type(site.owner)):
            return "the class of the module has its own way of pickling, which would lose the unit"
    return next((c.problem for c in calls if c.problem), None)


def _uses_all_children(site: CallSite) -> bool:
    """Whether the module is a container, or may ask for its children in its forward pass."""
    if isinstance(site.owner, _CONTAINERS):
        return True
    names = {site.method, "forward", "__iter__", "__len__", "__getitem__"}
    unread = list(names)  # and the names of attributes in these methods, and in those they name
    while unread:
        name = unread.pop()
        for cls in type(site.owner).__mro__:
            method = vars(cls).get(name)
            method = inspect.unwrap(method) if callable(method) else None
            if isinstance(method, FunctionType) and cls.__module__ not in _TORCH:
                found = {n for code in nested_codes(method.__code__) for n in code.co_names}
                unread += found - names
                names |= found
    return not names.isdisjoint({"children", "named_children", "_modules"})


def _pickles_itself(cls: type) -> bool:
    """Whether the class decides how its modules are pickled and copied, as torch.fx graphs do."""
    others = [c for c in cls.__mro__ if c is not object and REWRITTEN not in vars(c)]
    return any({"__reduce_ex__", "__reduce__"} & vars(c).keys() for c in others)


def keep_modules_whole(plan: list[Replacement]) -> None:
    """Spreads problems: no module is converted in part.

    All calls of one activation module go together, and so do all rewritten calls of one module.
    """
    changed = True
    while changed:
        changed = False
        for replacement in plan:
            others = [o for o in plan if o.problem and _belong_together(replacement, o)]
            if others and not replacement.problem:
                # On one line both have the same label, for which the summary has one reason.
                reasons = [o.problem for o in others if o.label == replacement.label]
                replacement.problem = next(iter(reasons), f"{others[0].label} cannot be replaced")
                changed = True


def _belong_together(one: Replacement, other: Replacement) -> bool:
    if one.slot is not None and one.slot == other.slot:
        return True
    owners = [r.site.owner for r in (one, other) if r.site and r.rewritten]
    return len(owners) == 2 and owners[0] is owners[1]


def bypassed_modules(model: nn.Module) -> dict[nn.Module, str]:
    """The modules whose calls of an activation may be bypassed: {module: why}."""
    found = {}
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _may_be_fused(module):
            found[module] = _ENCODER
            if isinstance(module.activation, nn.Module):  # a ReLU with a class of its own
                found |= dict.fromkeys(module.activation.modules(), _ENCODER)
        # By name, because torch is about to remove the package that they are in.
        elif any(c.__module__.startswith("torch.ao.nn.intrinsic.") for c in type(module).__mro__):
            found[module] = _QUANTIZED
    return found


def _may_be_fused(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether torch may run one kernel instead of the layer's own forward pass.

    The layer stores when it is built which activation its kernel has, and never checks again. One
    of an old pickle, or with an attention of its own, may lack this, and has no such kernel.
    """
    batch_first = getattr(layer.self_attn, "batch_first", False)
    return batch_first and getattr(layer, "activation_relu_or_gelu", 0) != 0
