"""What `adapt` costs, in epochs of training: NIN for CIFAR-10, random images.

    python benchmarks/bench_adapt.py [--images 384] [--rounds 5] [--threads 1]

Each round measures one epoch (forward and backward, frozen units, no optimizer step) and one
`adapt` over the same batches, in seconds of processor time, which other work on the machine
disturbs least.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

import torch_srelu as ts


def nin(classes: int = 10) -> nn.Sequential:
    """Network in Network with 1,418 SReLU channels in nine units."""
    layers: list[nn.Module] = []
    channels = 3
    stages = ((5, (192, 160, 96)), (5, (192, 192, 192)), (3, (192, 192, classes)))
    for stage, (kernel, widths) in enumerate(stages):
        for size, width in zip((kernel, 1, 1), widths, strict=True):
            layers += [nn.Conv2d(channels, width, size, padding=size // 2), ts.SReLU(width)]
            channels = width
        if stage < 2:
            pool = (nn.MaxPool2d, nn.AvgPool2d)[stage]
            layers += [pool(3, 2, ceil_mode=True), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    images = torch.randn(options.images, 3, 32, 32)
    batches = [(x, torch.arange(len(x)) % 10) for x in images.split(64)]
    net = nin()
    optimizer = torch.optim.SGD(ts.param_groups(net, lr=0.1), momentum=0.9)

    def epoch() -> None:
        net.train()
        for x, y in batches:
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()

    def adapt() -> None:
        ts.AdaptiveInit(net, optimizer).adapt(batches)

    ts.AdaptiveInit(net, optimizer)
    epoch()  # warm-up
    rounds = [(seconds(epoch), seconds(adapt)) for _ in range(options.rounds)]
    ratios = sorted(b / a for a, b in rounds)
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads")
    print(f"torch {torch.__version__}, torch_srelu {ts.__version__}, {ts.backends()['cpu']}")
    print(f"NIN, {options.images} images of 3 x 32 x 32, n = {options.rounds} rounds")
    print(f"epoch: median {statistics.median(a for a, _ in rounds):.2f} s")
    print(f"adapt: median {statistics.median(b for _, b in rounds):.2f} s")
    print(
        f"adapt / epoch: median {statistics.median(ratios):.2f}, "
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
