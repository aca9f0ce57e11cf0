"""Settings of a training run: one dataclass defines the flags and the TOML file."""
from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import os
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from hpgcn.errors import InputNotFoundError, UsageError, suggestion
from hpgcn.runtime.files import reading
from hpgcn.runtime.machine import size

RENAMED = {"stages": "pipeline_batches"}  # settings in files of earlier versions
# fields that determine the traffic and memory of a training step of given widths
COST_FIELDS = (
    "grid", "replication", "balance", "delay", "delay_variant", "pipeline_batches", "node_aware",
    "input_dropout", "model", "aggregator", "norm_adj", "heads", "output_heads", "hops",
    "activation", "norm", "layer_norm", "residual", "ffn", "input_layer", "output_layer", "jump",
    "precompute", "masked_products", "prune", "dtype", "split_index", "batch")
PLAN_FIELDS = (*COST_FIELDS, "epochs", "effort")  # fields that `hpgcn plan` reads
# fields that a resumed run may change: how it computes, how long and where
RESUMABLE_FIELDS = ("graph", "out", "strategy", "grid", "replication", "balance",
                    "pipeline_batches", "node_aware", "machine", "effort", "masked_products",
                    "epochs", "patience", "device", "aggregate_on", "update_on", "threads",
                    "memory", "scratch", "checkpoint_every", "trace", "comm_timeout")
MAX_FILE = 1 << 20  # bytes of a TOML file
MAX_DELAY = 100  # steps


def setting(default, text, *, choices=None, low=None, high=None, open_high=False):
    """Return a dataclass field with its help text and the values that it accepts."""
    limits = {"choices": choices, "low": low, "high": high, "open_high": open_high}
    return field(default=default, metadata={"help": text, **limits})


@dataclass(frozen=True)
class Config:
    """Settings of one training run.

    Each field is a flag of `hpgcn train` (`input_dropout` is `--input-dropout`) and a TOML key.

    Raises
    ------
    UsageError
        A value is of the wrong type or out of range.

    Examples
    --------
    >>> hpgcn.Config(hidden=8).replace(epochs=50).hidden
    8
    """

    graph: str = setting("", "graph file (.h5); on the command line the first argument")
    out: str = setting("", "directory of the run (default: run-NAME-N on the command line; in "
                       "Python no files are written)")
    strategy: str = setting("auto", "way to compute A H on several ranks. auto: the one that hpgcn "
                            "plan recommends. auto-per-layer: the best one for each layer")
    grid: str = setting("", "shape of the grid of ranks: RxC for 2d, RxCxL for 3d (default: the "
                        "most square or cubic one)")
    replication: int = setting(0, "1.5d only. Number of copies of each block of rows; it divides "
                               "the number of ranks. 0: the largest c with c * c <= ranks", low=0)
    balance: float = setting(0.05, "cover only. Share by which a rank may exceed the mean number "
                             "of nonzeros when it takes over nonzeros of other ranks", low=0)
    delay: str = setting("0", "vertex-cut only. 0: exact. R: approximate; partial sums are "
                         "exchanged every R steps and used R steps later. none: never exchanged")
    delay_variant: str = setting("own", "with --delay. own: replicas add delayed sums, also in the "
                                 "backward pass. paper: as DistGNN", choices=("own", "paper"))
    pipeline_batches: int = setting(0, "mop only. Number of row batches in the pipeline. 0: chosen "
                                    "from the bandwidth of the matrix", low=0)
    node_aware: str = setting("auto", "send a row to each node once (p2p, cover, vertex-cut). "
                              "auto: if ranks share nodes, and with --machine if it is faster",
                              choices=("auto", "always", "never"))
    machine: str = setting("", "output of hpgcn bench machine --json, or a machine's name. "
                           "Strategy auto and node-aware exchange are chosen by its seconds "
                           "(default: a server with InfiniBand)")
    effort: str = setting("auto", "work for parts that a run makes. auto: what its epochs pay for",
                          choices=("auto", "fast", "default", "best"))
    model: str = setting("gcn", "type of the model")
    aggregator: str = setting("mean", "sage only. mean: separate weights for a vertex and the mean "
                              "of its neighbors. gcn: one mean of the vertex and its neighbors")
    norm_adj: str = setting("own", "divisor of each a_ij, with row sums r and column sums c. own: "
                            "as the model defines. gcn accepts sym: sqrt(r_i c_j); in: sqrt(r_i "
                            "r_j), as PyG; row: r_i; none: 1",
                            choices=("own", "sym", "in", "row", "none"))
    heads: int = setting(1, "gat only. Number of attention heads; their outputs are concatenated "
                         "to the width of the layer", low=1, high=1 << 19)
    output_heads: int = setting(0, "gat only. Number of heads of the last layer; their outputs are "
                                "averaged. 0: same as --heads", low=0, high=1 << 19)
    attention_dropout: float = setting(0.0, "gat only. Dropout of the attention weights", low=0,
                                       high=1, open_high=True)
    hops: int = setting(0, "sgc and appnp only. Number of products with A in a layer. 0: 2 for "
                        "sgc, 10 for appnp", low=0, high=1000)
    restart: float = setting(0.1, "appnp only. Share of the input in the result of each product "
                             "with A (teleport probability)", low=0, high=1, open_high=True)
    activation: str = setting("own", "activation of each hidden layer. own: as the model defines",
                              choices=("own", "relu", "elu", "gelu"))
    norm: str = setting("none", "normalization of each hidden layer before its activation (with "
                        "--ffn: before the layer). layer: each row. batch: each column, over all "
                        "rows", choices=("none", "layer", "batch"))
    layer_norm: bool = setting(False, "alias of --norm layer")
    residual: bool = setting(False, "add the input of each layer with A to its output. If the "
                             "widths differ, the input is first multiplied by a weight matrix")
    ffn: bool = setting(False, "add a feed-forward block: a second linear layer after each layer "
                        "with A. Needs --input-layer and --output-layer")
    input_layer: bool = setting(False, "begin with a linear layer of width --hidden. Then "
                                "--input-dropout -1 means 0")
    output_layer: bool = setting(False, "end with a linear layer. All other layers have width "
                                 "--hidden")
    jump: str = setting("none", "input of the output layer (jumping knowledge). none: the last "
                        "layer with A. cat: all of them, concatenated. max: their largest value in "
                        "each column", choices=("none", "cat", "max"))
    layers: int = setting(2, "number of layers", low=1, high=1000)
    hidden: int = setting(16, "width of the hidden layers", low=1, high=1 << 24)
    dropout: float = setting(0.5, "dropout before each layer", low=0, high=1, open_high=True)
    input_dropout: float = setting(-1.0, "dropout before the first layer. -1: same as --dropout",
                                   low=-1, high=1, open_high=True)
    batch: str = setting("full", "vertices of a training step. full: all. vertices:B: B random "
                         "vertices and the edges between them. parts:Q, parts:Q:K or parts:Q:FILE: "
                         "Q random parts of the graph file, of K new parts, or of FILE. "
                         "neighbours:K,...,K:B: B training vertices and K random neighbors per "
                         "row, the first K for the last product with A")
    epochs: int = setting(200, "maximum number of epochs", low=1)
    patience: int = setting(0, "stop after this number of epochs without a better validation "
                            "result. 0: never", low=0)
    lr: float = setting(0.01, "learning rate", low=0)
    schedule: str = setting("constant", "learning rate after the warm-up. constant: --lr. cosine: "
                            "falls from --lr to 0 at the last epoch, so it changes if a resumed "
                            "run gets more epochs. step: times --step-factor every --step-every "
                            "epochs", choices=("constant", "cosine", "step"))
    warmup: int = setting(0, "number of epochs in which the learning rate rises to --lr", low=0)
    step_every: int = setting(100, "--schedule step only. Number of epochs between two changes of "
                              "the learning rate", low=1)
    step_factor: float = setting(0.1, "--schedule step only. Factor of the learning rate at each "
                                 "change", low=0, high=1)
    clip_norm: float = setting(0.0, "clip the global L2 norm of the gradient to this value. 0: off",
                               low=0)
    weight_decay: float = setting(5e-4, "L2 factor: weight_decay * W is added to the gradient. "
                                  "adamw: W is multiplied by 1 - lr * weight_decay instead", low=0)
    decay_layers: str = setting("first", "layers with weight decay", choices=("first", "all"))
    optimizer: str = setting("adam", "optimizer. adamw: Adam with decoupled weight decay",
                             choices=("adam", "adamw", "sgd"))
    label_smoothing: float = setting(0.0, "label smoothing factor e: targets become (1-e) y + e/C "
                                     "(multi-label: (1-e) y + e/2). Applies to the training loss "
                                     "only", low=0, high=1, open_high=True)
    class_weight: str = setting("", "weights of the classes in the training loss. balanced: n / (C "
                                "n_c), with n_c of the n training vertices in class c of C. FILE: "
                                "a line for each class, WEIGHT or NAME,WEIGHT (default: all 1)")
    precompute: bool = setting(True, "compute A X once if X is dense and constant (--input-dropout "
                               "0). Does not change results")
    masked_products: str = setting("auto", "apply dropout within A (H W) (S-SpMM). auto: where the "
                                   "kernel skips enough to gain. Does not change results",
                                   choices=("auto", "always", "never"))
    prune: bool = setting(True, "skip rows that neither the loss nor the metrics read. Does not "
                          "change results")
    metric: str = setting("auto", "metric for val_acc, test_acc and the best epoch. auto: "
                          "accuracy, or micro-f1 for multi-label graphs. roc-auc: only for two "
                          "classes or multi-label graphs",
                          choices=("auto", "accuracy", "micro-f1", "macro-f1", "roc-auc"))
    eval_every: int = setting(1, "evaluate every N epochs. 0: only after the last epoch", low=0)
    dtype: str = setting("float32", "number type of features, weights and messages. bf16: rows in "
                         "bfloat16, all else in float32", choices=("float32", "float64", "bf16"))
    seed: int = setting(0, "seed of all random draws", low=0, high=2**63 - 1)
    split_index: int = setting(0, "number of the split to train on, from 0", low=0)
    device: str = setting("auto", "device to compute on. cuda: one GPU per rank; ranks of a node "
                          "use its GPUs in turn. auto: cuda if every rank finds a GPU, else cpu",
                          choices=("auto", "cpu", "cuda"))
    aggregate_on: str = setting("device", "mop only. Device for products with A. cpu with "
                                "--update-on cuda: the graph stays in host memory",
                                choices=("device", "cpu", "cuda"))
    update_on: str = setting("device", "mop only. Device for products with W and everything else",
                             choices=("device", "cpu", "cuda"))
    threads: int = setting(0, "threads per rank. 0: number of cores / ranks on the node", low=0,
                           high=4096)
    memory: str = setting("", "memory limit of a rank, such as 2G. If A H does not fit, it is not "
                          "kept, and the backward pass computes a wider product instead. With "
                          "--scratch: limit of the process (default: no limit)")
    scratch: str = setting("", "with --memory. Folder on a fast disk for arrays that do not fit: "
                           "local ranks take turns in memory. Does not change results "
                           "(default: none)")
    checkpoint_every: int = setting(0, "write a checkpoint every N training steps and after the "
                                    "last one. In full-batch training a step is an epoch. 0: only "
                                    "after signal SIGUSR1", low=0)
    trace: bool = setting(False, "record a timeline of all ranks in RUN/trace.json")
    comm_timeout: float = setting(600.0, "seconds that a rank waits for a message before the run "
                                  "stops with an error", low=0.001, high=10**9)

    def __post_init__(self):
        for entry in dataclasses.fields(self):
            object.__setattr__(self, entry.name, _checked(entry, getattr(self, entry.name)))
        if self.memory:
            size(self.memory)
        if -1 < self.input_dropout < 0:
            raise UsageError(f"input_dropout = {self.input_dropout}: expected 0 to 1, or -1 (same "
                             "as dropout)")
        for name in ("dropout", "input_dropout"):
            if round(getattr(self, name) * 65536) >= 65536:
                raise UsageError(f"{name} = {getattr(self, name)} drops everything: expected less "
                                 "than 1 - 2^-17")
        if self.delay != "none":
            if not re.fullmatch("[0-9]{1,4}", self.delay) or int(self.delay) > MAX_DELAY:
                raise UsageError(f"delay = {self.delay!r:.80}: expected none, or a whole number of "
                                 f"steps from 0 to {MAX_DELAY}")
            object.__setattr__(self, "delay", str(int(self.delay)))
        if self.layer_norm:
            if self.norm == "batch":
                raise UsageError("layer_norm = True: excludes norm = batch")
            object.__setattr__(self, "layer_norm", False)
            object.__setattr__(self, "norm", "layer")
        if self.aggregate_on == "cuda" and self.updates_on == "cpu":
            raise UsageError("aggregate_on = cuda: needs update_on = cuda")

    def __repr__(self) -> str:
        given = [(entry.name, getattr(self, entry.name)) for entry in dataclasses.fields(self)
                 if getattr(self, entry.name) != entry.default]
        return f"Config({', '.join(f'{name}={value!r}' for name, value in given)})"

    @property
    def number_dtype(self) -> str:
        """Dtype of weights and sums: float32 if rows are stored in bf16."""
        return "float32" if self.dtype == "bf16" else self.dtype

    @property
    def updates_on(self) -> str:
        """Device that updates rows: auto, cpu or cuda."""
        if self.update_on == "device":
            return "cuda" if self.aggregate_on == "cuda" and self.device == "auto" else self.device
        return self.update_on

    @property
    def aggregates_on_host(self) -> bool:
        """Whether the host aggregates rows, whichever device updates them."""
        where = self.device if self.aggregate_on == "device" else self.aggregate_on
        return where == "cpu"

    @property
    def first_dropout(self) -> float:
        """Probability of dropout before the first layer."""
        if self.input_dropout < 0:
            return 0.0 if self.input_layer else self.dropout
        return self.input_dropout

    def replace(self, **changes: Any) -> Config:
        """Return a copy with some fields changed; UsageError for an unknown name."""
        check_keys(changes, "setting")
        return dataclasses.replace(self, **changes)

    def select(self, kind: type) -> Any:
        """Return an object of dataclass `kind` whose fields have the values of these settings."""
        return kind(**{entry.name: getattr(self, entry.name) for entry in dataclasses.fields(kind)})

    def to_toml(self) -> str:
        """Return the text of config.toml, with every field."""
        return "".join(
            f"{entry.name} = {_toml(getattr(self, entry.name))}  # {entry.metadata['help']}\n"
            for entry in dataclasses.fields(self))

    @staticmethod
    def from_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
        """Return the settings in a TOML file; errors as `files.reading` and `parse_toml`."""
        with reading(path) as file:
            return parse_toml(file.read(MAX_FILE + 1), path)


def values_of(entry):
    """Return a text on the valid values of a field: type or choices, range, default."""
    limits, words = entry.metadata, entry.type
    if limits["choices"]:
        words = ", ".join(limits["choices"])
    elif limits["low"] is not None and limits["high"] is None:
        words += f" from {limits['low']}"
    elif limits["low"] is not None:
        words += f" from {limits['low']} to {'below ' * limits['open_high']}{limits['high']}"
    return f"{words}; default {entry.default!r}"


def _checking_names(init):
    """Let the constructor of Config suggest a name where it refuses one."""
    @functools.wraps(init)
    def checked(self, *values, **settings):
        check_keys(settings, "setting")
        init(self, *values, **settings)
    return checked


Config.__init__ = _checking_names(Config.__init__)  # type: ignore[method-assign]
Config.__doc__ = "\n".join([
    inspect.cleandoc(Config.__doc__ or ""), "\nAttributes\n----------",
    *(f"{entry.name} : {values_of(entry)}\n    {entry.metadata['help']}"
      for entry in dataclasses.fields(Config))])


def parse_toml(text, where):
    """Return the settings in the bytes of a TOML file; only their names are checked.

    Drops a byte-order mark. A UsageError names the file, and the field nearest to an unknown key.
    """
    values = toml_values(text, where)
    check_keys(values, f"{where}: key")
    return values


def toml_values(text, where):
    """Return all values in the bytes of a TOML file, a dict with any keys."""
    if len(text) > MAX_FILE:
        raise UsageError(f"{where}: more than {MAX_FILE} bytes, expected settings in TOML")
    try:
        values = tomllib.loads(text.decode("utf-8-sig"))
    except RecursionError as error:
        raise UsageError(f"{where}: brackets are nested too deeply") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte {error.start} is not UTF-8 text") from error
    except ValueError as error:  # not TOML, or a number of thousands of digits
        raise UsageError(f"{where}: {error}") from error
    inside = list(values.items())
    for key, value in inside:  # the list grows in this loop
        if isinstance(value, dict | list):
            held = value.values() if isinstance(value, dict) else value
            inside += [(key, each) for each in held]
        elif isinstance(value, int) and abs(value) >= 1 << 63:  # hexadecimal: of any length
            raise UsageError(f"{where}: {key!r:.80} holds an integer of more than 64 bits")
    return {RENAMED.get(name, name): value for name, value in values.items()}


def settings_of_run(out, given):
    """Return the settings of the run that a command resumes from `out`; {} without a run.

    Omits `threads`, `memory` of a run with `scratch`, and the settings of another strategy.
    Errors as `from_toml`.
    """
    try:
        found = Config.from_toml(os.path.join(out, "config.toml"))
    except InputNotFoundError:
        return {}
    dropped = {"threads", *["memory", "scratch"] * bool(found.get("scratch"))}
    if given.get("strategy", found.get("strategy")) != found.get("strategy"):
        dropped |= {"grid", "replication", "balance", "pipeline_batches"}
    return {name: value for name, value in found.items() if name not in dropped}


def check_keys(values, where):
    """Refuse a key that is not a field of Config, and suggest the nearest name."""
    names = [entry.name for entry in dataclasses.fields(Config)]
    for key in values:
        if key not in names:
            hint = suggestion(key.replace("-", "_"), names) or f"; known: {', '.join(names)}"
            raise UsageError(f"{where} {key!r:.80} is unknown{hint}")


def _toml(value):
    if isinstance(value, str):
        escaped = (f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 or c in '"\\' else c
                   for c in value)
        return f'"{"".join(escaped)}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _shown(value):
    try:
        return f"{value!r:.80}"
    except ValueError:  # integers in it have more digits than Python writes
        return type(value).__name__


def _checked(entry, value):
    # accept numbers of NumPy and paths
    kind = {"int": int, "float": float, "str": str, "bool": bool}[entry.type]
    name, limits = entry.name, entry.metadata
    if not isinstance(value, bool | int | float) and isinstance(value, numbers.Real):  # NumPy's
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        expected = "an integer of 64 bits" if kind is int else kind.__name__
        raise UsageError(f"{name}: expected {expected}")
    if kind is float and type(value) is int:
        value = float(value)
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)

    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{name} = {_shown(value)}: expected {kind.__name__}")

    # a name with bytes other than UTF-8, which config.toml could not hold
    if kind is str and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UsageError(f"{name} = {value!r:.80}: expected text that UTF-8 can hold")
    if kind is str and "\0" in value:
        raise UsageError(f"{name} = {value!r:.80}: expected text without NUL")

    # numbers lie within their limits
    low, high = limits["low"], limits["high"]
    if kind in (int, float):
        too_low = low is not None and value < low
        too_high = high is not None and (value >= high if limits["open_high"] else value > high)
        if not math.isfinite(value) or too_low or too_high:
            bound = f"at least {low}"
            if high is not None:
                bound = f"{bound} and below {high}" if limits["open_high"] else f"{low} to {high}"
            finite = "" if math.isfinite(value) else "a finite number, "
            raise UsageError(f"{name} = {value!r}: expected {finite}{bound}")

    # words are among the choices
    if limits["choices"] and value not in limits["choices"]:
        words = ", ".join(limits["choices"]) + suggestion(value, limits["choices"])
        raise UsageError(f"{name} = {value!r:.80}: expected one of {words}")
    return value
