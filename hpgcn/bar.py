"""Progress bars: on a terminal, in a notebook, and nowhere else."""
from __future__ import annotations

import sys
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of letters, without advice
    from tqdm.auto import tqdm


def bar(iterable=None, *, shown=True, **options):
    """Make a tqdm bar that shows itself on a terminal or in a notebook, if `shown`.

    Parameters
    ----------
    iterable : iterable, optional
    shown : bool
    **options
        Those of tqdm.

    Returns
    -------
    tqdm.tqdm
    """
    if not shown:
        disable = True
    elif type(sys.stderr).__module__.startswith("ipykernel"):
        disable = False  # a notebook, whose stream calls itself no terminal
    else:
        disable = None  # tqdm looks for a terminal
    return tqdm(iterable, disable=disable, **options)
