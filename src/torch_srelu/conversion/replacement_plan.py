"""Decides, from what a run showed, which activation becomes which unit and what stays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from torch import nn

from .call_observer import Call, Place, Slot
from .fused_calls import bypassed
from .source_rewriting import REWRITTEN


@dataclass(eq=False)
class Site:
    """A place in the network that calls an activation."""

    slot: Slot | None
    place: Place | None
    calls: list[Call]
    path: str  # of the activation module, or of the module that calls the function
    first: bool = True  # the first place that calls the module in its slot
    wanted: bool = True  # an activation, and one that the caller wants converted
    problem: str | None = None  # why it is not converted
    groups: list[list[Call]] = field(init=False)  # calls that share a unit

    def __post_init__(self) -> None:
        self.groups = _groups(self.calls)

    @property
    def loop(self) -> bool:
        """Whether the place is in a loop over layers, and each turn gets its own unit."""
        return len(self.groups) > 1

    @property
    def keyword(self) -> bool:
        """Whether the call names the input, by a name that only torch's activations know."""
        return self.place is not None and self.place.keyword

    @property
    def rewritten(self) -> bool:
        """Whether the call must be rewritten; otherwise it is enough to swap the module."""
        return self.slot is None or self.loop or not self.first or self.keyword

    @property
    def holder(self) -> nn.Module | None:
        """The module that knows about this activation: itself, or whose method calls it."""
        if self.slot is not None:
            return self.slot.module
        return self.place and self.place.owner

    @property
    def caller(self) -> nn.Module | None:
        """The module that calls it, as far as that is known."""
        if self.place is not None:
            return self.place.owner
        return self.slot and self.slot.parent

    @property
    def label(self) -> str:
        """What is called, and where, in words."""
        return f"{self.calls[0].activation.name} in {self.calls[0].where}"


def _groups(calls: list[Call]) -> list[list[Call]]:
    """The calls of one place, divided by the turns of a loop if each turn has its own layer.

    A recurrent loop runs the same layer every time, so it shares the unit as it shares the weights.
    A loop that leaves out layers, at random or in evaluation, shares it too: the number of a turn
    does not tell which layer it runs.
    """
    turns: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        turns[call.turn].append(call)
    pairs = {(call.turn, call.layers) for call in calls}
    one_to_one = len(pairs) == len(turns) == len({layers for _, layers in pairs})
    equally_often = len({len(group) for group in turns.values()}) == 1
    if len(turns) > 1 and one_to_one and equally_often:
        return [turns[turn] for turn in sorted(turns)]
    return [calls]


def sites_of(model: nn.Module, calls: list[Call]) -> list[Site]:
    """The calls of the runs, gathered by place, in the order of the source."""
    paths = {module: name for name, module in reversed(list(model.named_modules()))}
    gathered: dict[tuple, list[Call]] = defaultdict(list)
    for call in calls:
        gathered[call.slot, call.place or call.where].append(call)
    sites = []
    for (slot, _), group in gathered.items():
        place = group[0].place
        if slot is not None:
            path = _join(paths[slot.parent], slot.name)
        else:
            path = paths[place.owner] if place else ""
        sites.append(Site(slot, place, group, path))
    sites.sort(key=lambda site: (site.place.method, site.place.end) if site.place else ("", (0, 0)))
    seen = set()
    for site in sites:
        site.first = site.slot not in seen
        seen.add(site.slot)
    past = bypassed(model)
    for site in sites:
        site.problem = (site.caller and past.get(site.caller)) or _problem(site)
        if any(call.on_weights for call in site.calls):
            site.problem = "it writes into a parameter or a buffer: a constraint, not an activation"
            site.wanted = False
    return sites


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)


def _problem(site: Site) -> str | None:
    """Why this site cannot be converted, or None."""
    if any(call.computed for call in site.calls):
        return "its slopes are computed in the forward pass"
    for group in site.groups:
        call = group[0]
        channels = sorted({c.layout.channels for c in group})
        if len(channels) > 1:
            counts = " and ".join(map(str, channels))
            return f"called with {counts} channels, and one unit has one number of channels"
        dims = sorted({c.layout.dim for c in group})
        if len(dims) > 1 and channels != [1]:
            places = " and ".join(map(str, dims))
            return f"called with its channels in dimensions {places}, and one unit has one"
        if not all(c.activation.same(call.activation) for c in group):
            return "called with different parameters"
        unfit = next((c.unfit for c in group if c.unfit), None)
        if unfit:
            return f"its input is {unfit}"
    if site.loop and site.slot is not None and not _is_attribute(site):
        return "called in a loop over layers, but not as an attribute of the module that loops"
    if site.keyword and site.slot is not None and not _is_attribute(site):
        return (
            "called with input= as a keyword, but not as an attribute of the module that calls it"
        )
    if not site.rewritten:
        return None
    if (site.slot is None or not site.first) and any(c.among_children for c in site.calls):
        return "the network runs over all children of the module, and a unit would be one of them"
    if site.place is not None and _pickles_itself(type(site.place.owner)):
        return "the class of the module has its own way of pickling, which would lose the change"
    return next((c.problem for c in site.calls if c.problem), None)


def _is_attribute(site: Site) -> bool:
    """Whether the method that calls the activation module can say ``self.name`` to it."""
    slot, place = site.slot, site.place
    if slot is None or place is None:
        return False
    return slot.parent is place.owner and slot.name.isidentifier()


def _pickles_itself(cls: type) -> bool:
    """Whether the class decides how its modules are pickled and copied, as torch.fx graphs do."""
    others = [c for c in cls.__mro__ if c is not object and REWRITTEN not in vars(c)]
    return any({"__reduce_ex__", "__reduce__"} & vars(c).keys() for c in others)


def keep_modules_whole(sites: list[Site]) -> None:
    """Spreads problems: no module is converted by half.

    All calls of one activation module go together, and so do all rewritten calls of one module.
    """
    changed = True
    while changed:
        changed = False
        for site in sites:
            if site.problem:
                continue
            others = [o for o in sites if o.problem and _belong_together(site, o)]
            if others:
                # On one line both have the same label, under which there is room for one why.
                whys = [o.problem for o in others if o.label == site.label]
                site.problem = next(iter(whys), f"{others[0].label} cannot be replaced")
                changed = True


def _belong_together(site: Site, other: Site) -> bool:
    if site.slot is not None and site.slot == other.slot:
        return True
    both = site.place is not None and other.place is not None
    return (
        both
        and site.place.owner is other.place.owner  # type: ignore[union-attr]
        and site.rewritten
        and other.rewritten
    )
