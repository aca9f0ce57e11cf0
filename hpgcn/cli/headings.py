"""The headings under which `--help` lists the settings of a run, and the settings shown
first.
"""

COMMON_HEADING = "common options"
COMMON = ("out", "model", "layers", "hidden", "dropout", "lr", "epochs", "patience", "strategy",
          "seed")

# heading -> fields of Config; a common setting has a heading as well, for commands
# without COMMON
HEADINGS = {
    "graph and run": (
        "epochs", "patience", "seed", "split_index", "metric", "eval_every"),
    "model": (
        "model", "layers", "hidden", "dropout", "input_dropout", "activation", "norm",
        "layer_norm", "norm_adj", "residual", "ffn", "input_layer", "output_layer", "jump",
        "aggregator", "heads", "output_heads", "attention_dropout", "hops", "restart"),
    "optimizer": (
        "optimizer", "lr", "schedule", "warmup", "step_every", "step_factor", "clip_norm",
        "weight_decay", "decay_layers", "label_smoothing", "class_weight"),
    "parallel run": (
        "strategy", "grid", "replication", "balance", "delay", "delay_variant",
        "pipeline_batches", "node_aware", "machine", "effort", "device", "aggregate_on",
        "update_on", "threads", "memory", "scratch", "dtype", "precompute", "masked_products",
        "prune", "comm_timeout"),
    "mini-batches": ("batch",),
    "files and checkpoints": ("graph", "out", "checkpoint_every", "trace"),
}
RUN, MODEL, OPTIMIZER, PARALLEL, BATCHES, FILES = HEADINGS


def heading_of(name):
    """Return the heading under which a field of Config is listed."""
    return next(title for title, names in HEADINGS.items() if name in names)
