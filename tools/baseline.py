"""Freezes what a restructuring must not change, and checks it later.

    PYTHONPATH=$PWD/src python tools/baseline.py freeze FOLDER [PART ...]
    PYTHONPATH=$PWD/src python tools/baseline.py check FOLDER [PART ...]

It looks at the torch_srelu that Python imports, and at the checkout which that lies in; both are
printed. Each part becomes one JSON file in FOLDER; `check` computes the parts again, prints what
differs and exits with 1 if anything does. Without names, all parts that can run here, in about a
minute and a half on one core (keys, texts and api in seconds):

    keys        every committed record: key computed from its run, result, content of its files
    networks    every registered network: initial values and outputs in evaluation mode
    paper       stdout and exit code of every `srelu paper` command, written pages, figures as SVG,
                and `srelu report results` in every format
    texts       every help text of the command line
    operators   outputs and gradients, bit for bit: layouts, dtypes, special values, backends
    traced      the same through torch.compile, torch.export, torch.func and their like
    training    records of short runs by `srelu train` and `srelu compare`, three manual steps of
                converted networks with AdaptiveInit, summaries, recompute_outputs
    api         signatures of public names and methods, state_dict keys, error types
    cuda        operators, a captured graph, a compiled step and AdaptiveInit on a GPU, if any

Bits depend on machine and versions: freeze and check on the same ones (where.json has them; a
difference there is printed, but is no failure). Tensors are kept as dtype, shape, stride and a
hash. Texts are kept line by line. Something that raises is kept as the type of its error.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import difflib
import hashlib
import importlib.util
import inspect
import io
import json
import os
import pkgutil
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ |= {"COLUMNS": "120", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_srelu as ts

SOURCE = Path(ts.__file__).resolve().parents[1]
CHECKOUT = SOURCE.parent
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SHOWN = 40  # differences of a part that are printed


# ---- what everything is kept as ----


def bits(value: Any) -> Any:
    """Tensors as text that is equal if and only if their bits and layouts are."""
    if isinstance(value, Tensor):
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        kind = str(value.dtype).removeprefix("torch.")
        layout = f"{tuple(value.shape)} {value.stride()}" if value.numel() else tuple(value.shape)
        return f"{kind} {layout} {digest(raw)}"
    if isinstance(value, Mapping):
        return {str(key): bits(item) for key, item in value.items()}
    return list(map(bits, value)) if isinstance(value, (list, tuple)) else value


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def drawn(path: Path) -> str:
    """The digest of an SVG without its generated ids: matplotlib makes some from addresses."""
    return digest(re.sub(r"\b[a-z][0-9a-f]{10}\b", "ID", path.read_text()).encode())


def attempt(function: Callable[[], Any]) -> Any:
    """The bits of what ``function`` returns, or the type of what it raises."""
    try:
        return bits(function())
    except Exception as error:
        return f"raises {type(error).__name__}"


# ---- what has no public name, wherever it lies ----


def lab_objects() -> Iterator[tuple[str, Any]]:
    """Names and values of all modules of the laboratory that can be imported."""
    package = importlib.import_module("torch_srelu.lab")
    for info in pkgutil.walk_packages(package.__path__, "torch_srelu.lab."):
        with contextlib.suppress(ImportError):
            yield from list(vars(importlib.import_module(info.name)).items())


def look_up(what: str, fits: Callable[[str, Any], bool]) -> Any:
    for name, value in lab_objects():
        if fits(name, value):
            return value
    raise LookupError(f"tools/baseline.py finds no {what} in torch_srelu.lab: say how in it")


def returns_record(name: str, value: Any) -> bool:
    """Whether it is what loads one record."""
    if not inspect.isfunction(value) or name not in ("load", "load_record", "read", "read_record"):
        return False
    return str(value.__annotations__.get("return")).rpartition(".")[2] == "Record"


def keys() -> dict[str, Any]:
    run = look_up("class Run", lambda name, value: name == "Run" and hasattr(value, "from_dict"))
    load = look_up("function that loads a Record", returns_record)
    found: dict[str, Any] = {}
    for path in sorted((CHECKOUT / "results").iterdir()):
        if path.suffix != ".zip":
            found[path.name] = digest(path.read_bytes())
            continue
        with zipfile.ZipFile(path) as archive:
            plain = json.loads(archive.read("run.json"))
        record, rebuilt = load(path), run.from_dict(plain["run"])
        found[path.name] = {
            "key": rebuilt.key(),
            "loaded key": record.run.key(),
            "run": json.loads(json.dumps(rebuilt.to_dict())),
            "result": dict(record.result),
            "metrics": digest(repr([tuple(row) for row in record.metrics]).encode()),
            "parameters": bits(record.parameters()),
            "wrong": attempt(lambda record=record: int(record.wrong().sum())),
        }
    return found


def networks() -> dict[str, Any]:
    def registry(_: str, value: Any) -> bool:
        return isinstance(value, dict) and {"nin-cifar10", "googlenet-imagenet"} <= value.keys()

    found: dict[str, Any] = {}
    for name, plan in sorted(look_up("registry of networks", registry).items()):
        for act in ("relu", "srelu", "maxout"):
            try:
                net = plan.build(act, seed=3).eval()
            except ValueError:  # the network cannot have it
                continue
            images = random(name, (2, plan.channels, plan.size, plan.size)).float()
            values = digest("".join(bits(v) for v in net.state_dict().values()).encode())
            with torch.no_grad():
                found[f"{name} {act}"] = {
                    "names": list(net.state_dict()),
                    "values": values,
                    "logits": attempt(lambda net=net, images=images: net(images)),
                }
    return found


# ---- the command line ----


def srelu(*arguments: str, folder: Path | None = None) -> dict[str, Any]:
    """Exit code and lines of stdout of a command, run in this process, in an empty folder."""
    from torch_srelu.__main__ import main

    out, before, argv = io.StringIO(), Path.cwd(), sys.argv
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(folder or temporary).resolve()
        os.chdir(place)
        sys.argv, code = ["srelu", *arguments], 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                main()
        except SystemExit as end:
            code = end.code
        except Exception as error:
            code = f"raises {type(error).__name__}"
        finally:
            sys.argv = argv
            os.chdir(before)
    text = out.getvalue().replace(str(place), "FOLDER").replace(str(CHECKOUT), "CHECKOUT")
    return {"exit": code, "stdout": [line.rstrip() for line in text.splitlines()]}


def commands(*group: str) -> list[str]:
    """The commands that a help text lists."""
    text = "\n".join(srelu(*group, "--help")["stdout"])
    return re.findall(r"^│ ([a-z]\w*)  ", text.partition("─ Commands ─")[2], flags=re.MULTILINE)


def texts() -> dict[str, Any]:
    groups = [("paper",), ("data",)]
    asked = [(), *((name,) for name in commands())]
    asked += [(*group, name) for group in groups for name in commands(*group)]
    return {"--version": srelu("--version")} | {
        f"srelu {' '.join(words)}": srelu(*words, "--help") for words in asked
    }


def paper() -> dict[str, Any]:
    found = {"paper": srelu("paper"), "paper run": srelu("paper", "run")}
    for block in ("headline", "start"):
        words = ("paper", "run", block, "--minutes", "0", "--records", "none", "--device", "cpu")
        found[" ".join(words)] = srelu(*words)
    found["paper collect"] = srelu("paper", "collect")
    for name in commands("paper"):
        options = "\n".join(srelu("paper", name, "--help")["stdout"])
        if name in ("run", "collect", "page"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            if "--out" in options:
                found[f"paper {name}"] = srelu("paper", name, "--out", "a.svg", folder=Path(folder))
                found[f"paper {name} svg"] = drawn(Path(folder) / "a.svg")
                continue
        found[f"paper {name}"] = srelu("paper", name)
        for option in re.findall(r"--(?:json|markdown|csv)\b", options):
            found[f"paper {name} {option}"] = srelu("paper", name, option)
    for kind in ("markdown", "csv", "json"):
        words = ("report", str(CHECKOUT / "results"), "--format", kind)
        found[f"report results --format {kind}"] = srelu(*words)
    words = ("report", str(CHECKOUT / "results"), "--out", "a.html")
    return found | {"report results": srelu(*words), "page": page()}


def page() -> dict[str, Any]:
    """What `srelu paper page` writes: into a copy, between the marks of an empty README."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "docs").mkdir()
        (root / "docs" / "findings.md").write_text("FINDINGS\n")
        (root / "README.md").write_text("<!-- results -->\n<!-- end of results -->\n")
        shutil.copytree(CHECKOUT / "results", root / "results")
        found = {"page": srelu("paper", "page", "--results", "results", folder=root)}
        for path in sorted([root / "README.md", *(root / "docs").iterdir()]):
            text = path.suffix == ".md"
            found[path.name] = path.read_text().splitlines() if text else drawn(path)
    return found


# ---- the operator ----


def random(name: str, shape: tuple[int, ...], values: str = "normal") -> Tensor:
    """Numbers that belong to a name: with ties, with NaN and infinities, or plainly normal."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    x = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    if values == "ties":
        return (2 * x).round() / 2
    if values == "special":
        drawn = torch.rand(shape, generator=generator)
        for low, special in ((0.9, torch.nan), (0.8, torch.inf), (0.7, -torch.inf)):
            x = torch.where((drawn > low) & (drawn < low + 0.1), special, x)
    return x


def as_it_is(x: Tensor) -> Tensor:
    return x


def channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


# Name: shape, its dim, number of channels, and how the input is made of a tensor of that shape.
LAYOUTS: dict[str, tuple[tuple[int, ...], int, int, Callable[[Tensor], Tensor]]] = {
    "nchw": ((3, 5, 7, 9), 1, 5, as_it_is),
    "channels_last": ((3, 5, 7, 9), 1, 5, channels_last),
    "large": ((4, 65, 31, 29), 1, 65, as_it_is),
    "large channels_last": ((4, 64, 31, 29), 1, 64, channels_last),
    "long runs": ((2, 3, 128, 96), 1, 3, as_it_is),
    "features": ((37, 19), -1, 19, as_it_is),
    "sequence, last": ((4, 11, 24), -1, 24, as_it_is),
    "sequence, second": ((4, 11, 24), 1, 11, as_it_is),
    "first": ((6, 5), 0, 6, as_it_is),
    "volume": ((2, 3, 4, 5, 6), 1, 3, as_it_is),
    "permuted": ((4, 7, 9, 5), 1, 5, lambda x: x.permute(0, 3, 1, 2)),
    "transposed": ((6, 5, 8), 1, 5, lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)),
    "sliced": ((4, 10, 8, 9), 1, 5, lambda x: x[:, ::2, 1:, :-1]),
    "expanded": ((3, 5, 1, 6), 1, 5, lambda x: x.expand(3, 5, 4, 6)),
    "shared": ((3, 5, 7, 9), 1, 1, as_it_is),
    "shared permuted": ((3, 5, 7), 1, 1, lambda x: x.permute(2, 0, 1)),
    "scalar": ((), 0, 1, as_it_is),
    "empty batch": ((0, 5, 4, 4), 1, 5, as_it_is),
    "empty plane": ((2, 5, 0, 4), 1, 5, as_it_is),
}
# Name: whether with a bias, frozen; dtype of the parameters if not float32; what needs a gradient.
VARIANTS: dict[str, tuple[bool, bool, bool, str]] = {
    "plain": (False, False, False, "all"),
    "bias": (True, False, False, "all"),
    "frozen": (False, True, False, "all"),
    "frozen bias": (True, True, False, "all"),
    "own dtype": (True, False, True, "all"),
    "input alone": (False, False, False, "input"),
    "a_r alone": (False, False, False, "a_r"),
}


def parameters(layout: str, dtype: torch.dtype, values: str) -> list[Tensor]:
    """The four parameters and a bias; ``values`` "crossed" puts ``t_r`` below ``t_l``."""
    kind = "ties" if values == "ties" else "normal"
    drawn = [random(f"{layout} {i}", (LAYOUTS[layout][2],), kind) / 2 for i in range(5)]
    t_r, a_r, t_l, a_l, bias = drawn
    t_r, t_l = (t_r.abs() - 1, t_l.abs() + 1) if values == "crossed" else (t_r.abs(), -t_l.abs())
    return [p.to(dtype) for p in (t_r, 1 + a_r, t_l, a_l, bias)]


def problem(layout: str, dtype: torch.dtype, variant: str, values: str, device: str) -> tuple:
    """Input, parameters, bias and options of one case, as leaves of a graph."""
    shape, dim, channels, made = LAYOUTS[layout]
    biased, frozen, own, needing = VARIANTS[variant]
    x = made(random(layout, shape, values).to(device, dtype)).detach()
    kind = dtype if own or dtype == torch.float64 else torch.float32
    *params, bias = (p.to(device) for p in parameters(layout, kind, values))
    if biased and channels == 1:  # shared by all channels: the bias has them still
        count = x.shape[dim] if x.dim() else 1
        bias = random(f"{layout} bias", (count,)).to(device, kind)
    named = {"x": x, **dict(zip(("t_r", "a_r", "t_l", "a_l"), params, strict=True))}
    if biased:
        named["bias"] = bias
    for name, tensor in named.items():
        tensor.requires_grad_(needing in ("all", name) or (needing == "input" and name == "x"))
    return named, {"dim": dim, "frozen": frozen}


def case(
    layout: str, dtype: torch.dtype, variant: str, values: str, device: str = "cpu"
) -> dict[str, Any]:
    """Output and gradients: twice (the second call may be cached), for two gradients, and bare."""
    named, options = problem(layout, dtype, variant, values, device)
    needing = [tensor for tensor in named.values() if tensor.requires_grad]

    def compute(summed: bool) -> list[Any]:
        y = ts.srelu(**named, **options)
        given = torch.empty_like(y).copy_(random(f"{layout} grad", tuple(y.shape)))
        grad = y.new_ones(()).expand_as(y) if summed else given
        return [y, *torch.autograd.grad(y, needing, grad)]

    found = {"first": attempt(lambda: compute(False)), "summed": attempt(lambda: compute(True))}
    again = attempt(lambda: compute(False))
    if again != found["first"]:
        found["again"] = again
    with torch.no_grad():
        found["no_grad"] = attempt(lambda: ts.srelu(**named, **options))
    return found


def cases(layouts: Mapping[str, Any], device: str = "cpu") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for layout in layouts:
        special = layout in ("nchw", "channels_last", "features", "shared", "sliced")
        for values in ("normal", "ties", "special", "crossed") if special else ("normal",):
            for variant in VARIANTS:
                for dtype in DTYPES:
                    name = f"{layout}, {values}, {variant}, {dtype}"
                    found[name] = case(layout, dtype, variant, values, device)
    return found


def operators() -> dict[str, Any]:
    found = {"default": cases(LAYOUTS)}
    for backend in ("cpu", "reference"):
        with ts.use_backend(backend):
            found[backend] = cases(LAYOUTS)
    torch.set_num_threads(2)
    found["two threads"] = cases({name: None for name in LAYOUTS if "la" in name or "long" in name})
    torch.set_num_threads(1)
    return found


def traced() -> dict[str, Any]:
    return {"compiled": compiled("cpu"), "transforms": transforms(), "exported": exported()}


def compiled(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    chosen = [("nchw", torch.float32, "plain"), ("channels_last", torch.bfloat16, "bias")]
    chosen += [("features", torch.float32, "frozen"), ("sequence, last", torch.float64, "plain")]
    for layout, dtype, variant in chosen:
        torch.compiler.reset()
        named, options = problem(layout, dtype, variant, "normal", device)

        @torch.compile(fullgraph=True, dynamic=False)
        def call(named=named, options=options):
            return ts.srelu(**named, **options)

        def compute(call=call, named=named):
            y = call()
            return [y, *torch.autograd.grad(y, list(named.values()), torch.ones_like(y))]

        found[f"{layout}, {variant}"] = attempt(compute)
    torch.compiler.reset()
    net, images = small(ts.SReLU).to(device), random("images", (4, 3, 12, 12)).float().to(device)

    def step() -> dict[str, Any]:
        loss = torch.compile(net, fullgraph=True, dynamic=False)(images).square().mean()
        loss.backward()
        return {"loss": loss, **{name: p.grad for name, p in net.named_parameters()}}

    return found | {"net": attempt(step)}


def transforms() -> dict[str, Any]:
    named, options = problem("nchw", torch.float64, "plain", "normal", "cpu")
    tensors = tuple(named.values())
    function = lambda *given: ts.srelu(*given, **options)  # noqa: E731
    loss = lambda *given: (function(*given) ** 3).sum()  # noqa: E731
    tangents = tuple(torch.ones_like(t) for t in tensors)
    twice = [torch.autograd.grad(loss(*tensors), tensors, create_graph=True) for _ in range(2)]
    bare = {name: t.detach() for name, t in named.items()}
    every = tuple(range(5))
    checkpoint = torch.utils.checkpoint.checkpoint
    return {
        "jvp": attempt(lambda: torch.func.jvp(function, tensors, tangents)),
        "vmap": attempt(lambda: torch.vmap(lambda x: ts.srelu(x, *tensors[1:], dim=0))(tensors[0])),
        "vmap of grad": attempt(
            lambda: torch.vmap(torch.func.grad(lambda x: loss(x[None], *tensors[1:])))(tensors[0])
        ),
        "grad": attempt(lambda: torch.func.grad(loss, argnums=every)(*bare.values())),
        "double backward": attempt(
            lambda: torch.autograd.grad(sum(g.square().sum() for g in twice[0]), tensors)
        ),
        "hessian": attempt(
            lambda: torch.func.hessian(lambda t: loss(tensors[0], t, *tensors[2:]))(tensors[1])
        ),
        "checkpoint": attempt(
            lambda: torch.autograd.grad(
                checkpoint(function, *tensors, use_reentrant=False).sum(), tensors
            )
        ),
        "operator": attempt(lambda: torch.ops.torch_srelu.srelu(**bare, **options)),
        "inference": attempt(lambda: torch.inference_mode()(function)(*bare.values())),
    }


def exported() -> dict[str, Any]:
    net, images = small(ts.SReLU).eval(), random("images", (4, 3, 12, 12)).float()

    def export() -> list[Any]:
        program = torch.export.export(net, (images,))
        called = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
        return [called, program.module()(images)]

    def trace() -> Any:
        return torch.jit.trace(net, images)(images)

    return {"export": attempt(export), "jit.trace": attempt(trace)}


# ---- training ----


def small(act: Callable[[int], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        act(8),
        nn.Conv2d(8, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        act(6),
        nn.Flatten(),
        nn.Linear(6 * 8 * 8, 10),
        act(10),
        nn.Linear(10, 4),
    )


class Mixed(nn.Module):
    """Functions, methods, in place, a module in two places, and every kind of rectifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.act, self.relu6, self.prelu = nn.ReLU(inplace=True), nn.ReLU6(), nn.PReLU(8)
        self.bounded, self.fc, self.out = nn.Hardtanh(), nn.Linear(8, 10), nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv1(x))
        x = self.act(self.conv2(x)) + F.relu(x)
        x = self.prelu(self.relu6(F.leaky_relu(self.conv2(x), 0.1)))
        return self.out(self.bounded(self.fc(x.mean((2, 3))).relu_()))


def manual(build: Callable[[], nn.Module], device: str = "cpu", scope: str = "channel") -> Any:
    """A frozen step, adapt, two more steps; what conversion changed is in outputs and summary."""
    net = build().to(device)
    batches = [random(f"batch {i}", (6, 3, 12, 12)).float().to(device) for i in range(4)]
    found: dict[str, Any] = {"original": net(batches[0])}
    ts.convert(net, batches[0])
    optimizer = torch.optim.SGD(ts.param_groups(net, lr=0.05, weight_decay=1e-3), momentum=0.9)
    init = ts.AdaptiveInit(net, optimizer, scope=scope)
    found |= {"converted": net(batches[0]), "tree": repr(net).splitlines()}
    found["groups"] = [
        {k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups
    ]
    for i, batch in enumerate(batches[:3]):
        if i == 1:
            init.adapt(batches)
            found |= {"adapted": net.state_dict(), "adapt": init.summary().splitlines()}
        optimizer.zero_grad()
        F.cross_entropy(net(batch), torch.arange(6, device=device) % 4).backward()
        optimizer.step()
    found |= {"trained": net.state_dict(), "summary": str(ts.summary(net)).splitlines()}
    found |= {"state keys": list(init.state_dict()), "loss": []}
    for context in (contextlib.nullcontext(), ts.recompute_outputs()):
        optimizer.zero_grad()
        with context:
            loss = net(batches[3]).square().mean()
        loss.backward()
        found["loss"] += [loss, {name: p.grad for name, p in net.named_parameters()}]
    return found


def training() -> dict[str, Any]:
    found: dict[str, Any] = {
        "manual small": attempt(lambda: manual(lambda: small(lambda _: nn.ReLU()))),
        "manual mixed": attempt(lambda: manual(Mixed)),
        "manual layer": attempt(lambda: manual(Mixed, scope="layer")),
    }
    runs = {
        "compare": "compare relu prelu srelu apl --seeds 2 --epochs 3",
        "srelu": "train srelu --epochs 4 --set validation=0.1 --set ema=0.9 --set lr_scale=0.5 "
        "--set freeze=2 --set augmentation=flips --set deterministic=true",
        "shared": "train srelu-shared:a_l=0.1,scope=layer --epochs 3 --set fixed=t_l "
        "--set precision=bf16 --seed 5",
    }
    for name, words in runs.items():
        found[name] = trained(words.split())
    return found


def trained(words: list[str]) -> dict[str, Any]:
    """The records that a command leaves, without dates, durations and places."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch_srelu", *words, "--dataset", "digits"]
        command += ["--device", "cpu", "--records", "records"]
        env = os.environ | {"PYTHONPATH": str(SOURCE)}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
        found["exit"] = done.returncode
        for record in sorted(Path(folder, "records").glob("*/run.json")):
            record = record.parent
            plain = json.loads((record / "run.json").read_text())
            result = {k: v for k, v in plain["result"].items() if "seconds" not in k}
            with open(record / "metrics.csv", newline="") as file:
                rows = [
                    {k: v for k, v in row.items() if "seconds" not in k}
                    for row in csv.DictReader(file)
                ]
            others = [p for p in record.iterdir() if p.suffix in (".safetensors", ".gz")]
            found[record.name.partition("-")[2].partition("-")[2]] = {
                "run": plain["run"],
                "environment": sorted(plain["environment"]),
                "result": result,
                "metrics": [json.dumps(row) for row in rows],
                "files": sorted(path.name for path in record.iterdir()),
                "bits": {path.name: digest(path.read_bytes()) for path in others},
            }
    return found


# ---- the public API ----


def signature(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"


def described(value: Any) -> Any:
    """The signature of a function; for a class also its public methods, and its state's keys."""
    if not inspect.isclass(value):
        return signature(value) if callable(value) else repr(value)
    members = {
        name: inspect.getattr_static(value, name)
        for base in value.__mro__
        if base.__module__.startswith("torch_srelu")
        for name in vars(base)
        if not name.startswith("_")
    }
    return {"()": signature(value), **{name: signature(m) for name, m in members.items()}}


def written(module: str) -> dict[str, Any]:
    """Public classes of a module, read without importing it, with the arguments of methods."""
    spec = importlib.util.find_spec(module)
    tree = ast.parse(Path(spec.origin).read_text()) if spec and spec.origin else ast.Module([], [])
    classes = [c for c in tree.body if isinstance(c, ast.ClassDef) and c.name[0] != "_"]
    return {
        c.name: {
            f.name: ast.unparse(f.args)
            for f in c.body
            if isinstance(f, ast.FunctionDef) and (f.name[0] != "_" or f.name == "__init__")
        }
        for c in classes
    }


def api() -> dict[str, Any]:
    found: dict[str, Any] = {name: described(getattr(ts, name)) for name in ts.__all__}
    for name in ("lightning", "timm", "transformers"):
        found[f"integrations.{name}"] = written(f"torch_srelu.integrations.{name}")
    lab = vars(importlib.import_module("torch_srelu.lab"))
    found["lab"] = sorted(k for k, v in lab.items() if k[0] != "_" and not inspect.ismodule(v))
    x, one = torch.ones(2, 3), torch.ones(3)
    wrong = {
        "no tensor": lambda: ts.srelu([1.0], one, one, one, one),
        "integers": lambda: ts.srelu(x.int(), one, one, one, one),
        "lengths": lambda: ts.srelu(x, one, one[:2], one, one),
        "channels": lambda: ts.srelu(torch.ones(2, 4), one, one, one, one),
        "dim": lambda: ts.srelu(x, one, one, one, one, dim=5),
        "bias": lambda: ts.srelu(x, one, one, one, one, bias=one[:2]),
        "no channels": lambda: ts.SReLU(0),
        "nothing to convert": lambda: ts.convert(nn.Sequential(nn.Linear(2, 2))),
        "no optimizer": lambda: ts.AdaptiveInit(small(ts.SReLU), None),
        "backend": lambda: ts.use_backend("none"),
    }
    found["errors"] = {name: attempt(function) for name, function in wrong.items()}
    found["state_dict"] = [list(ts.SReLU(3).state_dict()), list(ts.LazySReLU().state_dict())]
    found["repr"] = [repr(ts.SReLU(3)), repr(ts.LazySReLU(-1)), repr(ts.SReLU(1))]
    return found


# ---- a GPU ----


def cuda() -> dict[str, Any]:
    def captured() -> Any:
        net, x = small(ts.SReLU).cuda(), random("images", (4, 3, 12, 12)).float().cuda()

        def step() -> None:
            net.zero_grad(set_to_none=False)
            net(x).square().mean().backward()

        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graph.replay()
        return {name: p.grad for name, p in net.named_parameters()}

    torch.backends.cudnn.deterministic = True
    found: dict[str, Any] = {"operators": cases(LAYOUTS, "cuda"), "captured": attempt(captured)}
    for name, build in (("small", lambda: small(lambda _: nn.ReLU())), ("mixed", Mixed)):
        found[f"manual {name}"] = attempt(lambda build=build: manual(build, "cuda"))
    return found | {"compiled": compiled("cuda")}


# ---- freeze and check ----

Part = Callable[[], dict[str, Any]]
PARTS: dict[str, Part] = {
    f.__name__: f for f in (keys, networks, paper, texts, operators, traced, training, api, cuda)
}


def where() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, GPU: {gpu}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return {"machine": machine, "versions": versions, "backends": ts.backends()}


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """What differs, each as its place and what it was and is; texts as the lines that changed."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *(name for name in now if name not in before)]:
            place = f"{path} > {name}" if path else name
            if name not in now or name not in before:
                yield f"{place}: {'is gone' if name in before else 'is new'}"
            else:
                yield from differences(before[name], now[name], place)
    elif before != now:
        if isinstance(before, list) and isinstance(now, list):
            pair = ([str(item) for item in lines] for lines in (before, now))
            changed = list(difflib.unified_diff(*pair, lineterm="", n=0))[2:]
            yield "\n    ".join([f"{path}:", *changed[:SHOWN]])
        else:
            yield f"{path}: {before!r}, now {now!r}"


def main() -> int:
    command, folder, *asked = [*sys.argv[1:3], *sys.argv[3:]] if len(sys.argv) > 2 else ["", ""]
    if command not in ("freeze", "check") or not set(asked) <= PARTS.keys():
        print(__doc__)
        return 2
    place, failed = Path(folder).resolve(), False
    place.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{command}: {SOURCE / 'torch_srelu'}, checkout {CHECKOUT}")
    parts: dict[str, Part] = {"where": where}
    parts |= {n: f for n, f in PARTS.items() if n in asked or (not asked and n != "cuda")}
    if not asked and torch.cuda.is_available():
        parts["cuda"] = cuda
    for name, compute in parts.items():
        start, path = time.monotonic(), place / f"{name}.json"
        found = json.loads(json.dumps(compute()))
        took = f"{time.monotonic() - start:.0f} s"
        if command == "freeze":
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            print(f"{name}: {len(found)} entries, {took}", flush=True)
            continue
        if not path.is_file():
            print(f"{name}: was never frozen in {place}", flush=True)
            failed |= name != "cuda"
            continue
        before = json.loads(path.read_text())
        changed = list(differences(before, found))
        failed |= bool(changed) and name != "where"
        print(f"{name}: {f'{len(changed)} differences' if changed else 'as before'}, {took}")
        print("".join(f"  {line}\n" for line in changed[:SHOWN]), end="", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
