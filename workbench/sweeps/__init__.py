"""A sweep file names a notebook and a grid of its parameters; papermill runs every point."""

from .notebook import NotebookFailed as NotebookFailed
from .notebook import execute as execute
from .notebook import parameters as parameters
from .run import run_sweep as run_sweep
from .sweep import Sweep as Sweep
from .sweep import read_sweep as read_sweep
