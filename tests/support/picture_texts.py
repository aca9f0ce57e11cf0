"""Check the texts of pictures, as a program.

FILE [ARGUMENT ...] runs a script of Python whose pictures must have no problem.
"""
import runpy
import sys
from itertools import combinations
from pathlib import Path

from hpgcn.report import look

SLACK = 1  # pixels that boxes may share


def problems(drawing):
    """Return the faults of the texts of a Figure, a list of sentences.

    Texts are inside the Figure, do not overlap each other or the legends, and have no
    code of TeX.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    look.plain_ticks(drawing)
    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [(text.get_text(), text.get_window_extent(renderer)) for text in drawn_texts(drawing)]
    frame = drawing.bbox
    found = [f"{text!r} has code of TeX" for text, _ in texts if "$" in text]
    found += [f"{text!r} is not inside the picture" for text, box in texts
              if box.x0 < frame.x0 - SLACK or box.x1 > frame.x1 + SLACK
              or box.y0 < frame.y0 - SLACK or box.y1 > frame.y1 + SLACK]
    found += [f"{one!r} and {other!r} overlap"
              for (one, box), (other, place) in combinations(texts, 2) if overlap(box, place)]
    return found


def drawn_texts(drawing):
    """Return the Text objects of a Figure that are drawn: of ticks, those in view."""
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    axes = drawing.findobj(Axis)
    hidden = {id(label) for axis in axes for tick in (*axis.majorTicks, *axis.minorTicks)
              for label in (tick.label1, tick.label2)}
    shown = {id(label) for axis in axes for tick in axis._update_ticks()
             for label in (tick.label1, tick.label2)}
    return [text for text in drawing.findobj(Text)
            if text.get_visible() and text.get_text().strip()
            and (id(text) in shown or id(text) not in hidden)]


def overlap(one, other):
    """Return whether two boxes share more than SLACK pixels in both directions."""
    return (min(one.x1, other.x1) - max(one.x0, other.x0) > SLACK
            and min(one.y1, other.y1) - max(one.y0, other.y0) > SLACK)


def main(path, *argv):
    """Run a file of Python as a program; its pictures raise ValueError if they have problems."""
    save = look.png

    def checked(drawing, *given):
        if found := problems(drawing):
            raise ValueError("; ".join(found))
        return save(drawing, *given)

    look.png = checked
    sys.argv = [path, *argv]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
