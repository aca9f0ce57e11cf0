"""Plot of validation accuracy over training seconds, for the benchmark `accuracy`."""

from hpgcn.report import look

LOG_FROM = 30  # ratio of the last to the first evaluation from which on seconds are logarithmic
BELOW = 0.15  # share of accuracy that is shown below the target


def draw(report):
    """Plot a line for each library, batch and seed.

    A ring marks where it reaches the target.

    `report` is a result of `accuracy.measure`. Return the Figure.
    """
    # curves without an evaluation are left out
    curves = [curve for curve in report["curves"] if curve["seconds"]]
    keys = list(dict.fromkeys((curve["library"], curve["batch"]) for curve in curves))
    target = report["target_acc"]
    drawing = look.figure(11, 4.4 + 0.22 * -(-len(keys) // 3))
    axis = drawing.subplots()
    handles = {}

    # a line, and a ring at the first value that meets the target
    for curve in curves:
        key = curve["library"], curve["batch"]
        style = look.line_style(keys.index(key))
        percent = [100 * value for value in curve["val_acc"]]
        line, = axis.plot(curve["seconds"], percent, linewidth=1.4, label=look.truncate(
            " ".join(key)), marker="." if len(percent) == 1 else None, **style)
        handles.setdefault(key, line)
        met = next((at for at, value in enumerate(percent) if value >= 100 * target), None)
        if met is not None:
            axis.plot(curve["seconds"][met], percent[met], "o", markersize=7, zorder=5,
                      markerfacecolor="white", markeredgewidth=1.6, color=style["color"])

    # axes
    axis.axhline(100 * target, color="#666666", linewidth=1, linestyle=(0, (6, 3)), zorder=1)
    ends = [second for curve in curves for second in curve["seconds"] if second > 0]
    if ends and max(ends) > LOG_FROM * min(ends):
        axis.set_xscale("log")
    every = [100 * value for curve in curves for value in curve["val_acc"]]
    low = max(min(every), 100 * (target - BELOW)) if max(every) > 100 * target else min(every)
    high = max(*every, 100 * target)
    room = 0.04 * (high - low) or 1

    # texts
    axis.set(title=f"{look.truncate(report['graph']['name'])}: rings mark the target of "
                   f"{100 * target:.2f}%", xlabel="seconds of training, without evaluation",
             ylabel="validation accuracy, %", ylim=(low - room, high + room))
    drawing.legend(handles=list(handles.values()), loc="outside lower center",
                   ncols=min(3, len(handles)))
    return drawing


def picture(report):
    """Return the plot of `draw` as the bytes of a PNG."""
    with look.style():
        return look.png(draw(report))
