"""Table for demirci-table2.sh.

Traffic of hypergraph and graph partitions, relative to random ones.
"""
import sys
from pathlib import Path

import numpy as np
from results import groups, picture, read, show

COLUMNS = {"volume_avg": "volume avg", "volume_max": "volume max", "messages_avg": "messages avg",
           "messages_max": "messages max"}
# HP and GP over RP on 512 ranks: volume avg, max, messages avg, max (Table 2)
PAPER = {
    "amazon0601": ((.12, .29, .22, .51), (.18, .31, .30, .62)),
    "cit-Patents": ((.17, .29, .70, .89), (.19, .50, .77, .94)),
    "coPapersDBLP": ((.07, .08, .42, .71), (.07, .16, .57, .77)),
    "com-Amazon": ((.09, .20, .14, .32), (.14, .27, .19, .42)),
    "com-Youtube": ((.36, .52, .72, .97), (.37, 2.60, .90, .99)),
    "flickr": ((.45, .60, .79, 1.00), (.38, 6.89, .96, 1.00)),
    "roadNet-CA": ((.01, .01, .01, .03), (.01, .02, .01, .03)),
    "soc-Slashdot0902": ((.74, .69, .86, .92), (.85, 4.38, .93, 1.00)),
    "mean": ((.13, .21, .29, .48), (.15, .56, .35, .52)),
}


def main(folder, parts):
    names = sorted({path.name.split(".raw.")[0] for path in Path(folder).glob("*.raw.json")})
    ratios = {f"here, {kind}": {name: ratios_of(read(Path(folder) / f"{name}.{kind}.json"))
                                for name in names} for kind in ("raw", "refined")}
    for found in ratios.values():
        found["mean"] = np.exp(np.mean([np.log(found[name]) for name in names], axis=0))
    ratios["paper, 512 parts"] = PAPER

    records = []
    for name in [*names, "mean"]:
        for source, found in ratios.items():
            if name in found:
                hypergraph, graph = np.array(found[name])
                for model, values in (("HP", hypergraph), ("GP", graph),
                                      ("HP/GP", hypergraph / graph)):
                    records.append({"graph": name, "model": model, "source": source,
                                    **dict(zip(COLUMNS, values))})
    show("table2", f"rows and messages sent, over those of random parts; {parts} parts",
         {"graph": ("graph", ""), "model": ("model", ""), "source": ("source", ""),
          **{column: (heading, ".2f") for column, heading in COLUMNS.items()}}, records)
    picture(lambda *axes: draw(axes, [*names, "mean"], ratios), width=11,
            height=1.5 + 1.4 * (len(names) + 1), panels=len(COLUMNS))


def draw(axes, names, ratios):
    """Plot each column of the table: HP and GP, here and in the paper."""
    for place, (each, heading) in enumerate(zip(axes, COLUMNS.values())):
        series = {f"{model}, {source}": [found[name][number][place] if name in found else None
                                         for name in names]
                  for number, model in enumerate(("HP", "GP")) for source, found in ratios.items()}
        groups(each, names if place == 0 else [""] * len(names), series, title=heading)
        each.axvline(1, color="gray", linewidth=1)
        each.set_xlabel("over random parts")


def ratios_of(compared):
    """Return the COLUMNS of partitions divided by those of random ones.

    (2, 4), for hypergraph and graph partitions.
    """
    found = np.array([[compared[method][column] for column in COLUMNS]
                      for method in ("hypergraph", "graph", "random")], float)
    return found[:2] / np.maximum(found[2], 1e-300)


if __name__ == "__main__":
    main(*sys.argv[1:])
