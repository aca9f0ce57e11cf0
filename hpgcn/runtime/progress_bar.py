"""Progress bars: on a terminal, in a notebook, and nowhere else."""

import sys
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # without ipywidgets a notebook gets a bar of letters
    from tqdm.auto import tqdm


def bar(iterable=None, *, shown=True, **options):
    """Make a tqdm.tqdm that shows itself on a terminal or in a notebook, if `shown`."""
    disable = None if shown else True  # None: tqdm looks for a terminal
    if shown and type(sys.stderr).__module__.startswith("ipykernel"):
        disable = False  # a notebook, whose stream calls itself no terminal
    return tqdm(iterable, disable=disable, **options)
