"""The look of all pictures: of reports, plans, benchmarks and the papers' figures.

Colors, fonts, sizes, units and ticks are defined here only.
"""
import io
import warnings

from hpgcn.errors import require

# Okabe and Ito's, which readers with any color vision can distinguish; matrices use
# cividis
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
         "text.parse_math": False, "axes.titlesize": 11, "axes.titlelocation": "left",
         "legend.frameon": False, "axes.formatter.useoffset": False, "axes.grid": True,
         "grid.alpha": 0.25, "figure.dpi": 100, "axes.axisbelow": True,
         "axes.prop_cycle": f"cycler(color={PALETTE})"}


def figure(width, height):
    """Return an empty Figure, with its size in inches, that needs no display."""
    make = require("matplotlib.figure", "plot", "a picture").Figure
    return make(figsize=(width, height), layout="constrained")


def style():
    return require("matplotlib", "plot", "a picture").rc_context(STYLE)


def png(drawing, dpi=144):
    """Return a Figure as the bytes of a PNG."""
    return rendered(drawing, "png", dpi)


def rendered(drawing, kind, dpi=144):
    """Return a Figure as the bytes of a picture, with plain ticks.

    `kind` is png, svg or pdf.
    """
    plain_ticks(drawing)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # missing glyphs are drawn as boxes
        drawing.savefig(buffer, format=kind, dpi=dpi)
    return buffer.getvalue()


def truncate(name, most=32):
    """Return a name in a form for legends: shortened, with leading underscores protected."""
    if len(name) > most:
        name = name[:most // 2] + "…" + name[1 - most // 2:]
    return " " + name if name.startswith("_") else name


def unit_of(largest):
    """Return factor and name of a unit in which seconds are easy to read.

    `largest` is the largest number of seconds.
    """
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if largest * factor >= 1:
            return factor, unit
    return 1e6, "µs"


def line_style(number):
    """Return the style of line `number`.

    Dashes differ as well, so that equal curves are both visible.
    """
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": DASHES[number % len(DASHES)]}


def plain(number):
    """Return a number as text, with commas and without a power of ten."""
    text = f"{number:,.9f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def digits(number):
    """Return the three leading digits of a number as text, without a power of ten."""
    return plain(float(f"{number:.3g}"))


def plain_ticks(drawing):
    """Label the ticks of all axes with plain numbers, such as 1,000.

    A logarithmic axis has labels at numbers of few digits; a short one has more of them. Axes
    with texts as labels keep these.
    """
    axis_class = require("matplotlib.axis", "plot", "a picture").Axis
    ticker = require("matplotlib.ticker", "plot", "a picture")
    text = ticker.FuncFormatter(lambda number, _: plain(number))
    for axis in drawing.findobj(axis_class):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ticker.LogFormatter):
            low, high = axis.get_view_interval()
            enough = ((1e4, (1,)), (30, (1, 2, 5)), (3, (1, 2, 3, 5, 7)),
                      (0, (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)))
            subs = next(subs for least, subs in enough if high / low > least)
            few = 3 if axis.axis_name == "x" else None  # labels side by side need more room
            axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=few))
            axis.set_minor_formatter(ticker.NullFormatter())
        if isinstance(formatter, ticker.LogFormatter | ticker.ScalarFormatter):
            axis.set_major_formatter(text)
