"""Starts the process that compiles: `python child.py ROOT TRITON_CACHE`, by `table.Compiler` alone.

ROOT holds the package whose variants are compiled. It may be another revision of the workbench: the
code that compiles and reads is the one beside this file all the same, loaded as a part of that
package, so that two revisions are read alike.
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def main(root: str, triton_cache: str) -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a compiler prints is no reply
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = triton_cache  # processes that share one get each other's files
    sys.path[0] = root  # in place of this folder
    here = Path(__file__).resolve().parent
    import workbench

    if Path(workbench.__file__).parents[1] != Path(root):
        raise ImportError(f"workbench is imported from {workbench.__file__}, not from {root}")
    name, file = f"workbench.{here.name}", here / "__init__.py"
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(here)])
    sys.modules[name] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
    from workbench.compiled.work import serve

    serve(sys.stdin, replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
