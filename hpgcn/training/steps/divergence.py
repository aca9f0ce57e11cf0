"""Find the first array with NaN or infinite numbers after a training step."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DivergedError, agreed, setting
from hpgcn.kernels.bits16 import numbers
from hpgcn.kernels.host.accesses import accessed
from hpgcn.model.embedding import NAME as EMBEDDING
from hpgcn.model.layers.layer import layer_of

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.model.model import Model
    from hpgcn.model.parameters import Parameters
    from hpgcn.training.steps.optimizers import SGD
    from hpgcn.training.steps.training_step import StepView


def diverged(epoch: int, loss: float, view: StepView, number: int, gradient: Parameters,
             parameters: Parameters, optimizer: SGD, comm: SerialComm, lr: float) -> DivergedError:
    """Return the DivergedError for a step with a NaN or infinite number.

    All ranks call this together. `loss` and `gradient` are sums over all ranks of
    training step `number` on the StepView `view`, which the `optimizer` has taken. The
    error names the first layer of the forward, else of the backward, with numbers that
    are not finite.
    """
    accessed((gradient.flat, parameters.flat))
    names, updated = ([name for name, array in each.arrays.items() if not np.isfinite(array).all()]
                      for each in (gradient, parameters))

    # logits remain, but the backward may have overwritten the outputs of other layers
    wrong = _count_wrong(view.model, comm)
    if wrong[-1]:
        logits = wrong[-1]
        optimizer.undo()
        view.model.forward(view.features, number)
        wrong = np.append(_count_wrong(view.model, comm)[:-1], logits)
    else:
        wrong[:] = 0

    accessed((gradient.flat, parameters.flat))
    learned = comm.sum([int(np.count_nonzero(~np.isfinite(each.rows)))
                        for each in (gradient, parameters)]).astype(int)
    updated += [EMBEDDING] * bool(learned[1])

    # name the first place that went wrong
    if wrong.any():
        layer = int(np.flatnonzero(wrong)[0])
        where = (f"layer {layer} forward has {int(wrong[layer]):,} values that are not finite, "
                 "layers before it none")
    elif names:
        layer = max(map(layer_of, names))
        layer_names = [name for name in names if layer_of(name) == layer]
        where = f"layer {layer} backward: the gradient of {', '.join(layer_names)} is not finite"
    elif learned[0]:
        where = f"the gradient of learned rows has {learned[0]:,} values that are not finite"
    elif updated:
        where = f"the update leaves {', '.join(updated)} with values that are not finite"
    else:
        where = "all layers are finite"

    return _error(f"epoch {epoch}: the training loss is {loss}; {where}", lr)


def _count_wrong(model: Model, comm: SerialComm) -> np.ndarray:
    """Return how many output numbers of each layer are not finite, over ranks."""
    outputs = model.outputs()
    accessed(outputs)
    return comm.sum([int(np.count_nonzero(~np.isfinite(numbers(output)))) for output in outputs])


def check_evaluation(epoch: int, metrics: dict[str, Any], lr: float) -> None:
    """Raise DivergedError if an evaluation gave a loss that is not finite."""
    for name, called in (("val_loss", "validation"), ("exact_loss", "exact training")):
        loss = metrics.get(name)
        if loss is not None and not math.isfinite(loss):
            raise _error(f"epoch {epoch}: the {called} loss is {loss}", lr)


def _error(text: str, lr: float) -> DivergedError:
    # all ranks have the same numbers
    return agreed(DivergedError(f"{text}; try a lower {setting('lr')} than {lr:g}"))
