"""The commands of docs/papers.md, their graphs, and the figures that they give.

RUNS is a dict from a label, such as D5, to a Run; the page names runs by labels.
"""
from papers.runs import cagnet, demirci, distgnn, mggcn, mixgcn

# letters of labels: files of runs, papers
PAPERS = {"D": demirci, "C": cagnet, "G": mggcn, "X": mixgcn, "N": distgnn}
RUNS = {label: run for module in PAPERS.values() for label, run in module.RUNS.items()}

RANDOM = "--features random:{} --labels random:{} --split all"

# NAME.h5: the command that writes it; DATA is the folder of data sets
GRAPHS = {
    "cora": "hpgcn convert DATA/planetoid/ind.cora.graph cora.h5",
    "amazon_computers": "hpgcn convert DATA/npz/amazon_computers.npz amazon_computers.h5 "
                        "--split random:60/20/20",
    "email-Enron": "hpgcn convert DATA/snap/email-Enron.txt.gz email-Enron.h5 "
                   + RANDOM.format(128, 40),
    "soc-Slashdot0902": "hpgcn convert DATA/snap/soc-Slashdot0902.txt.gz soc-Slashdot0902.h5 "
                        + RANDOM.format(128, 40),
    "usroads": "hpgcn convert DATA/mtx/usroads.mtx usroads.h5 " + RANDOM.format(128, 40),
    "rmat12": "hpgcn generate rmat rmat12.h5 --scale 12",
    "rmat14": "hpgcn generate rmat rmat14.h5 --scale 14 --features 128 --classes 40",
    "sbm9": "hpgcn generate sbm sbm9.h5 --scale 9 --edge-factor 8 --features 16 --classes 4",
    "sbm16": "hpgcn generate sbm sbm16.h5 --scale 16 --features 128 --classes 40 --order none",
    "sbm20": "hpgcn generate sbm sbm20.h5 --scale 20 --features 100 --classes 47",
}
