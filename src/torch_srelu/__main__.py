"""The command `srelu`, also as ``python -m torch_srelu``."""

from __future__ import annotations

import sys

INSTALL = "in a checkout of torch-srelu, pip install '.[lab]'"


def main() -> None:
    """Runs the command line; where a package of the laboratory is missing, says how to get it."""
    try:
        from .lab.cli import app

        app(prog_name="srelu")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == __package__:
            raise
        sys.exit(f"srelu needs the package {package}, which is not installed: {INSTALL}")


if __name__ == "__main__":
    main()
