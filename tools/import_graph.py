"""Prints which packages of torch_srelu import which, and the cycles among them.

    python tools/import_graph.py [SOURCE]

A package is a folder or a module directly under ``torch_srelu``, or under ``torch_srelu.lab``. A
name that an ``__init__`` re-exports counts as imported from where it is defined. Imports inside
functions count like all others. The exit code is 1 where there is a cycle.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
ROOT = "torch_srelu"
SPLIT = (ROOT, f"{ROOT}.lab")  # what lies directly in these is a package of its own

Graph = dict[str, set[str]]


class Modules:
    """The modules of a source tree, parsed but not imported."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.trees: dict[str, ast.Module] = {}
        self.folders: set[str] = set()
        for path in sorted((source / ROOT).rglob("*.py")):
            name = ".".join(path.relative_to(source).with_suffix("").parts)
            if path.name == "__init__.py":
                name = name.removesuffix(".__init__")
                self.folders.add(name)
            self.trees[name] = ast.parse(path.read_text(encoding="utf-8"))

    def imports(self) -> Graph:
        """For each module, the modules that it imports from."""
        return {
            name: {found for found in self._imported(name) if found != name} for name in self.trees
        }

    def _imported(self, name: str) -> Iterator[str]:
        for base, attribute, _ in self._statements(name):
            yield self._defined(base, attribute)
        aliases = {
            alias.asname or alias.name
            for node in ast.walk(self.trees[name])
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == ROOT
        }
        for node in ast.walk(self.trees[name]):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in aliases
            ):
                yield self._defined(ROOT, node.attr)

    def _statements(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Module, attribute and local name of everything that a module imports from the package."""
        parts = name.split(".")
        for node in ast.walk(self.trees[name]):
            if isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    up = node.level - (name in self.folders)
                    base = ".".join([*parts[: len(parts) - up], *filter(None, [node.module])])
                if base in self.trees:
                    for alias in node.names:
                        yield base, alias.name, alias.asname or alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in self.trees and alias.name != ROOT:
                        base, _, attribute = alias.name.rpartition(".")
                        yield base, attribute, alias.name

    def _defined(self, base: str, attribute: str) -> str:
        """The module that ``from base import attribute`` is about."""
        if base in self.folders:
            for origin, inner, local in self._statements(base):
                if local == attribute and (origin, inner) != (base, attribute):
                    return self._defined(origin, inner)
        module = f"{base}.{attribute}"
        return module if module in self.trees else base


def package_of(module: str) -> str:
    """The package that a module counts for, as in ``lab.data`` or ``ops``."""
    parts = module.split(".")
    for i in range(2, len(parts)):
        if ".".join(parts[:i]) not in SPLIT:
            return ".".join(parts[1:i])
    return ".".join(parts[1:]) or ROOT


def packages(imports: Mapping[str, set[str]]) -> Graph:
    """For each package, the packages that it imports from; what only re-exports is left out."""
    graph: Graph = {}
    for module, found in imports.items():
        if module not in SPLIT:
            package = package_of(module)
            others = {package_of(other) for other in found if other not in SPLIT}
            graph.setdefault(package, set()).update(others - {package})
    return graph


def reachable(graph: Graph) -> Graph:
    """For each package, all packages that it depends on, at any distance."""
    result: Graph = {}
    for start in graph:
        seen: set[str] = set()
        pending = [start]
        while pending:
            new = graph[pending.pop()] - seen
            seen |= new
            pending += new
        result[start] = seen
    return result


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of packages of which each depends on all others."""
    far = reachable(graph)
    groups = {
        tuple(sorted(b for b in far[a] if a in far[b])) for a, found in far.items() if a in found
    }
    return [list(group) for group in sorted(groups)]


def main(source: Path = SOURCE) -> int:
    """Prints each package after those that it imports."""
    graph = packages(Modules(source).imports())
    if not graph:
        print(f"there are no Python modules in {source}: pass a folder such as src/torch_srelu")
        return 2
    far = reachable(graph)
    order = sorted(graph, key=lambda package: (len(far[package]), package))
    for package in order:
        print(f"{package} -> {', '.join(sorted(graph[package], key=order.index)) or 'nothing'}")
    found = cycles(graph)
    for group in found:
        print(f"cycle: {', '.join(group)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
