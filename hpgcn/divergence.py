"""Where numbers stopped being finite, once they have: looked for only then, in the arrays that the step left."""
from __future__ import annotations

import numpy as np

from hpgcn.errors import DivergedError


def diverged(epoch, loss, model, gradient, comm, lr):
    """The error of a training step whose loss or gradient is NaN or infinite; every rank calls this together.

    Parameters
    ----------
    epoch : int
    loss : float
        Over all ranks.
    model : hpgcn.model.Model
        After its forward and backward.
    gradient : hpgcn.model.Parameters
        Summed over all ranks.
    comm : hpgcn.comm.SerialComm or MpiComm
    lr : float
        Learning rate, for the advice.

    Returns
    -------
    DivergedError
        To be raised on all ranks; it names the first layer of the forward, else of the backward, that is not finite.
    """
    wrong = comm.sum([int(np.count_nonzero(~np.isfinite(output))) for output in model.outputs()])
    names = [name for name, array in gradient.arrays.items() if not np.isfinite(array).all()]
    if wrong.any():
        layer = int(np.flatnonzero(wrong)[0])
        where = f"layer {layer} forward has {int(wrong[layer]):,} values that are not finite, layers before it none"
    elif names:
        layer = max(int("".join(filter(str.isdigit, name.partition("_")[0]))) for name in names)
        mine = [name for name in names if name.partition("_")[0].endswith(str(layer))]
        where = f"layer {layer} backward: the gradient of {', '.join(mine)} is not finite"
    else:
        where = "all layers are finite"
    error = DivergedError(f"epoch {epoch}: the training loss is {loss}; {where}; try a lower --lr than {lr:g}")
    error.collective = True  # all ranks have the same numbers
    return error
