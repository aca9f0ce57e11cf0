"""Settings of runs with arrays in files: the models, options and samplers of each strategy."""
STREAMED = "p2p", "cover", "vertex-cut", "1d"  # strategies that multiply rows as they arrive
GATHERED = {  # those that send all rows before, with settings of their own
    "mop": {"masked_products": "always", "dropout": 0.5},
    "1.5d": {"dtype": "bf16"},
    "2d": {"norm": "layer", "residual": True, "dropout": 0},
    "3d": {"masked_products": "always", "dropout": 0.5}}
BATCHED = "p2p", "cover", "vertex-cut"  # strategies of mini-batches

# settings of full batches; "graph" are those of the graph (scratch_models.py)
FIRST = [{"model": "gcn"}, {"model": "gin", "norm": "batch"}, {"model": "gat", "heads": 2}]
MORE = [
    {"model": "gcn", "dropout": 0, "residual": True, "norm": "layer"},
    {"model": "sage-mean", "jump": "max", "output_layer": True},
    {"model": "sage-gcn", "dtype": "bf16"},
    {"model": "gcn", "embedding": 16},
    {"model": "sgc", "input_layer": True, "output_layer": True, "ffn": True},
    {"model": "appnp"}]
FULL = [
    {"model": "gcn", "norm": "batch", "graph": {"sparse": True}},
    {"model": "gcn", "dtype": "float64", "activation": "elu"},
    {"model": "gcn", "dtype": "bf16"},
    {"model": "gcn", "shortcuts": False},
    {"model": "gcn", "prune": False, "masked_products": "never"},
    {"model": "gcn", "masked_products": "always", "input_dropout": 0.2},
    {"model": "gcn", "input_dropout": 0, "jump": "cat", "output_layer": True},
    {"model": "gcn", "norm_adj": "row", "optimizer": "sgd", "eval_every": 2},
    {"model": "gcn", "input_layer": True, "output_layer": True, "ffn": True, "norm": "batch"},
    {"model": "gcn", "training_graph": "train"},
    {"model": "gcn", "training_graph": "train+val", "graph": {"sparse": True}},
    {"model": "gcn", "layers": 2, "hidden": 7, "clip_norm": 0.5},
    {"model": "gcn", "layers": 1},
    {"model": "gcn", "graph": {"targets": 2}},
    {"model": "gcn", "graph": {"labels": 4}, "label_smoothing": 0.1},
    {"model": "gcn", "embedding": 16, "graph": {"sparse": True}, "layers": 2},
    {"model": "sage-mean"},
    {"model": "sage-mean", "dtype": "bf16"},
    {"model": "sage-mean", "residual": True, "norm": "layer", "graph": {"sparse": True}},
    {"model": "sage-mean", "input_dropout": 0},
    {"model": "sage-gcn", "ffn": True, "input_layer": True, "output_layer": True, "norm": "layer"},
    {"model": "gin"},
    {"model": "gin", "dtype": "bf16"},
    {"model": "gin", "residual": True, "embedding": 16},
    {"model": "gin", "graph": {"sparse": True}, "input_dropout": 0},
    {"model": "gine", "graph": {"edges": 3}},
    {"model": "gine", "norm": "layer", "graph": {"edges": 3}, "layers": 2},
    {"model": "sgc", "hops": 3},
    {"model": "sgc", "dropout": 0},
    {"model": "appnp", "hops": 3, "graph": {"sparse": True}},
    {"model": "appnp", "dtype": "float64", "dropout": 0},
    {"model": "gat", "heads": 4, "output_heads": 2, "attention_dropout": 0.3},
    {"model": "gat", "heads": 2, "graph": {"sparse": True}},
    {"model": "gat", "heads": 1, "input_dropout": 0, "dropout": 0},
    {"model": "gat", "heads": 2, "residual": True, "norm": "batch", "jump": "max",
     "output_layer": True},
    {"model": "gat", "heads": 2, "dtype": "float64", "ffn": True, "input_layer": True,
     "output_layer": True},
    {"task": "links", "graph": {"links": True}},
    {"task": "links", "decoder": "hadamard:2", "message_edges": "train+val",
     "model": "sage-mean", "graph": {"links": True}}]
OF_GATHERED = [FIRST[0], FIRST[1], {"model": "gat", "heads": 30}, {"model": "sage-mean"},
            {"model": "gcn", "dropout": 0, "residual": True, "norm": "layer"}, {"model": "appnp"},
            {"model": "gcn", "embedding": 16, "graph": {"sparse": True}}]
SAMPLERS = [
    {"batch": "vertices:150"},
    {"batch": "neighbors:4,3,2:70"},
    {"batch": "parts:1"}]
MORE_SAMPLERS = [
    {"batch": "vertices:150", "model": "gin", "norm": "batch"},
    {"batch": "vertices:150", "model": "gcn", "graph": {"sparse": True}},
    {"batch": "vertices:150", "dtype": "bf16"},
    {"batch": "neighbors:4,3,2:70", "model": "gat", "heads": 2},
    {"batch": "neighbors:4,3,2:70", "model": "sage-mean", "residual": True, "norm": "layer"},
    {"batch": "parts:2", "model": "gcn", "embedding": 16},
    {"batch": "links:60", "task": "links", "graph": {"links": True}},
    {"batch": "links:4,3,2:60", "task": "links", "graph": {"links": True}}]


GROUP = 8  # settings of a process


def groups():
    """Return (strategy, list of settings) of the whole table, a list."""
    found = [(name, [*FIRST, *MORE, *FULL]) for name in STREAMED]
    found += [(name, [*SAMPLERS, *MORE_SAMPLERS]) for name in BATCHED]
    found += [(name, [*OF_GATHERED, own]) for name, own in GATHERED.items()]
    return [(name, settings[first:first + GROUP]) for name, settings in found
            for first in range(0, len(settings), GROUP)]
