#!/usr/bin/env python3
"""AUC and AP of the graph autoencoder of Kipf and Welling (2016, arXiv 1611.07308) over splits.

    python scripts/graph_autoencoders.py data/planetoid/ind.cora.graph

Two layers of widths 32 and 16, 200 epochs of Adam with rate 0.01, no dropout; 85% of the links
train, 5% validate and 10% test. The table has mean and deviation over splits: of the epoch that
is best in validation, and of the last epoch, which the paper reports. With `--allow-isolated
--no-row-normalize` vertices may lose all edges and features are not normalized, as in the
paper. Its loss is over all pairs of vertices; `--negatives shared:2048` is near to it.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import hpgcn
from hpgcn.datasets.convert import convert
from hpgcn.runtime.text_table import table

PAPER = {"cora": (91.0, 92.0), "citeseer": (89.5, 89.9)}  # table 1, GAE, one split
CONFIG = hpgcn.Config(task="links", hidden=32, output_width=16, dropout=0.0, weight_decay=0.0,
                      strict_negatives=True, eval_every=5)
HEADS = "AUC, best epoch", "AP, best epoch", "AUC, last epoch", "AP, last epoch"


def figures(graph, splits, settings, **options):
    """Return AUC and AP of the best and of the last epoch, in percent, (splits, 4).

    `settings` are those of a Config, and `options` those of a conversion.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(splits):
            path = Path(folder) / f"{seed}.h5"
            convert(graph, path, links=(f"85/5/10:{seed}",), **options)
            result = hpgcn.train(path, CONFIG.replace(**{"seed": seed, **settings}))
            evaluated = [each for each in result.history if each.get("val_auc") is not None]
            best = max(evaluated, key=lambda each: each["val_auc"])
            found.append([each[name] for each in (best, evaluated[-1])
                          for name in ("test_auc", "test_ap")])
    return 100 * np.array(found)


def main(words):
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", type=Path, help="ind.NAME.graph of Planetoid, or another input")
    parser.add_argument("--negatives", default="uniform:1", metavar="NAME:N")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--allow-isolated", action="store_true")
    parser.add_argument("--no-row-normalize", action="store_const", const=False,
                        dest="row_normalize")
    given = parser.parse_args(words)
    settings = {"negatives": given.negatives,
                "strict_negatives": given.negatives.startswith("uniform")}
    found = figures(given.graph, given.splits, settings, allow_isolated=given.allow_isolated,
                    row_normalize=given.row_normalize)
    rows = [("", *HEADS), ("mean", *(f"{each:.1f}" for each in found.mean(axis=0))),
            ("deviation", *(f"{each:.1f}" for each in found.std(axis=0, ddof=len(found) > 1)))]
    name = given.graph.stem.removeprefix("ind.")
    if name in PAPER:
        rows.append(("paper", "", "", *map(str, PAPER[name])))
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
