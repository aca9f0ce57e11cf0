"""Where numbers stopped being finite, once they have: looked for only then, in the arrays that the step left."""
from __future__ import annotations

import math

import numpy as np

from hpgcn.errors import DivergedError, setting


def diverged(epoch, loss, model, gradient, parameters, comm, lr):
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
    parameters : hpgcn.model.Parameters
        After the update.
    comm : hpgcn.comm.SerialComm or MpiComm
    lr : float
        Learning rate, for the advice.

    Returns
    -------
    DivergedError
        To be raised on all ranks; it names the first layer of the forward, else of the backward, that is not finite.
    """
    wrong = comm.sum([int(np.count_nonzero(~np.isfinite(output))) for output in model.outputs()])
    names, updated = ([name for name, array in each.arrays.items() if not np.isfinite(array).all()]
                      for each in (gradient, parameters))
    if wrong.any():
        layer = int(np.flatnonzero(wrong)[0])
        where = f"layer {layer} forward has {int(wrong[layer]):,} values that are not finite, layers before it none"
    elif names:
        layer = max(int("".join(filter(str.isdigit, name.partition("_")[0]))) for name in names)
        mine = [name for name in names if name.partition("_")[0].endswith(str(layer))]
        where = f"layer {layer} backward: the gradient of {', '.join(mine)} is not finite"
    elif updated:
        where = f"the update leaves {', '.join(updated)} with values that are not finite"
    else:
        where = "all layers are finite"
    return _error(f"epoch {epoch}: the training loss is {loss}; {where}", lr)


def check_evaluation(epoch, metrics, lr):
    """Refuse a validation loss that is not finite: finite weights, but so large that logits are not; DivergedError."""
    loss = metrics["val_loss"]
    if loss is not None and not math.isfinite(loss):
        raise _error(f"epoch {epoch}: the validation loss is {loss}", lr)


def _error(text, lr):
    error = DivergedError(f"{text}; try a lower {setting('lr')} than {lr:g}")
    error.collective = True  # all ranks have the same numbers
    return error
