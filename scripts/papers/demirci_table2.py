"""Table for demirci-table2.sh: traffic of hypergraph and graph partitions, relative to
random ones.
"""
import sys
from pathlib import Path

import numpy as np
from results import bars, read, show

COLUMNS = ("volume_avg", "volume_max", "messages_avg", "messages_max")
HEADER = {"graph": ("graph", ""), "model": ("model", ""), "source": ("source", ""),
          "volume_avg": ("volume avg", ".2f"), "volume_max": ("max", ".2f"),
          "messages_avg": ("messages avg", ".2f"), "messages_max": ("max", ".2f")}
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
    ratios = {refined: {name: ratios_of(read(Path(folder) / f"{name}.{refined}.json"))
                        for name in names} for refined in ("raw", "refined")}
    for held in ratios.values():
        held["mean"] = np.exp(np.mean([np.log(held[name]) for name in names], axis=0))

    records = []
    for name in [*names, "mean"]:
        for source, held in (*((f"here, {kind}", ratios[kind]) for kind in ratios),
                             ("paper, 512 parts", PAPER)):
            if name not in held:
                continue
            hypergraph, graph = np.array(held[name])
            for model, values in (("HP", hypergraph), ("GP", graph), ("HP/GP", hypergraph / graph)):
                records.append({"graph": name, "model": model, "source": source,
                                **dict(zip(COLUMNS, values))})
    show("table2", f"rows and messages sent, over those of random parts; {parts} parts", HEADER,
         records)

    bars(f"maximum volume over random parts, {parts} parts",
         "HP/RP, then GP/RP", [f"{name} {model}" for name in names for model in ("HP", "GP")],
         {"refined": [ratios["refined"][name][model][1] for name in names for model in (0, 1)]})


def ratios_of(compared):
    """Return the COLUMNS of hypergraph and graph partitions divided by those of random
    ones, (2, 4).
    """
    found = np.array([[compared[method][column] for column in COLUMNS]
                      for method in ("hypergraph", "graph", "random")], float)
    return found[:2] / np.maximum(found[2], 1e-300)


if __name__ == "__main__":
    main(*sys.argv[1:])
