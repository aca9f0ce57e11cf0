"""Every setting of a training run: one frozen dataclass, of which flags and TOML file are made."""
from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import numbers
import os
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from hpgcn.errors import InputNotFoundError, UsageError
from hpgcn.runtime.files import reading

# fields on which it depends what a training step of given widths sends and holds
COST_FIELDS = ("grid", "replication", "balance", "delay", "stages", "model", "aggregator",
               "norm_adj", "heads", "output_heads", "hops", "activation", "norm", "layer_norm",
               "residual", "ffn", "input_layer", "output_layer", "jump", "input_dropout",
               "precompute", "prune", "dtype", "split_index", "batch")
# fields in which a run that goes on from a checkpoint may differ from the run that wrote it: how it
# computes, how long and where, but not what; all others would make it another run
RESUMABLE_FIELDS = ("graph", "out", "strategy", "grid", "replication", "balance", "stages",
                    "epochs", "patience", "device", "aggregate_on", "update_on", "threads",
                    "memory", "checkpoint_every", "trace", "comm_timeout")
MAX_FILE = 1 << 20  # bytes of a TOML file
MAX_DELAY = 100  # steps


def setting(default, text, *, choices=None, low=None, high=None, open_high=False):
    """Return a dataclass field with its help text and the values that it accepts."""
    limits = {"choices": choices, "low": low, "high": high, "open_high": open_high}
    return field(default=default, metadata={"help": text, **limits})


@dataclass(frozen=True)
class Config:
    """Settings of one training run.

    Each field is a flag of `hpgcn train` (`input_dropout` is `--input-dropout`)
    and a key of config.toml.

    Raises
    ------
    UsageError
        A value is of the wrong type or out of range.
    """

    graph: str = setting("", "path of the graph; filled in from the command line")
    out: str = setting("", "run directory (default: run-NAME-N on the command line; in Python "
                       "none, and no file is written)")
    strategy: str = setting("auto", "how A H is computed in parallel; auto: what hpgcn plan "
                            "chooses for these ranks; auto-per-layer: for each layer")
    grid: str = setting("", "ranks of 2d as RxC, of 3d as RxCxL (default: the most square, the "
                        "most cubic)")
    replication: int = setting(0, "replicas of 1.5d, a divisor of the ranks; 0: the largest c with "
                               "c c <= ranks", low=0)
    balance: float = setting(0.05, "nonzeros beyond the mean that a rank of cover may hold by "
                             "taking on others', as a share", low=0)
    delay: str = setting("0", "of vertex-cut; 0: exact; R: approximate, sums travel in one step "
                         "of R and are used R later; none: approximate, they never travel")
    stages: int = setting(0, "row batches of mop's pipeline; 0: from the bandwidth of the matrix",
                          low=0)
    model: str = setting("gcn", "kind of its layers")
    aggregator: str = setting("mean", "of sage; mean: the vertex and the mean of its neighbours, "
                              "each with weights of its own; gcn: the mean of vertex and "
                              "neighbours")
    norm_adj: str = setting("own", "what a_ij is divided by, with sums r of rows and c of columns; "
                            "own: what the model says; of gcn sym: sqrt(r_i c_j), in, as PyG: "
                            "sqrt(r_i r_j), row: r_i, or none: 1",
                            choices=("own", "sym", "in", "row", "none"))
    heads: int = setting(1, "of gat: heads of a layer, side by side in its width", low=1,
                         high=1 << 19)
    output_heads: int = setting(0, "of gat: heads of the last layer, averaged; 0: as --heads",
                                low=0, high=1 << 19)
    attention_dropout: float = setting(0.0, "of gat: dropout of the weights of attention", low=0,
                                       high=1, open_high=True)
    hops: int = setting(0, "products with A of a layer of sgc, or of appnp; 0: 2 of sgc, 10 of "
                        "appnp", low=0, high=1000)
    restart: float = setting(0.1, "share of the input that appnp adds after each product with A",
                             low=0, high=1, open_high=True)
    activation: str = setting("own", "after each hidden layer; own: what the model says",
                              choices=("own", "relu", "elu", "gelu"))
    norm: str = setting("none", "normalise each hidden layer before its activation, with ffn "
                        "before the layer; layer: its rows, batch: its columns over all rows",
                        choices=("none", "layer", "batch"))
    layer_norm: bool = setting(False, "another word for norm layer, as which it is kept")
    residual: bool = setting(False, "add to each layer with A its input, where widths differ "
                             "times a matrix")
    ffn: bool = setting(False, "a second linear layer behind each layer with A, and the "
                        "normalisation before it; with input-layer and output-layer")
    input_layer: bool = setting(False, "a linear layer first, of width hidden; input-dropout -1 is "
                                "then 0")
    output_layer: bool = setting(False, "a linear layer last; all others have width hidden")
    jump: str = setting("none", "what the output layer reads of the layers with A; cat: all of "
                        "them, max: the largest of each column, none: the last",
                        choices=("none", "cat", "max"))
    layers: int = setting(2, "number of layers", low=1, high=1000)
    hidden: int = setting(16, "width of the hidden layers", low=1, high=1 << 24)
    dropout: float = setting(0.5, "dropout before each layer", low=0, high=1, open_high=True)
    input_dropout: float = setting(-1.0, "dropout before the first layer; -1: as --dropout", low=-1,
                                   high=1, open_high=True)
    batch: str = setting("full", "what a training step is of; full: all training vertices; "
                         "vertices:B: what B drawn vertices induce; parts:Q, parts:Q:K or "
                         "parts:Q:FILE: Q of the parts of the graph, of K made, or of another "
                         "file; neighbours:K,...,K:B: B training vertices and K drawn neighbours "
                         "a row, the first K of the last product with A")
    epochs: int = setting(200, "epochs at most", low=1)
    patience: int = setting(0, "stop after this many epochs without a better validation result; "
                            "0: never", low=0)
    lr: float = setting(0.01, "learning rate", low=0)
    schedule: str = setting("constant", "of the learning rate after warm-up; cosine: from lr to 0 "
                            "over the other epochs, so that more of them on resume change what "
                            "comes; step: times step-factor after each step-every epochs",
                            choices=("constant", "cosine", "step"))
    warmup: int = setting(0, "epochs in which the learning rate rises linearly to lr", low=0)
    step_every: int = setting(100, "epochs between the steps of schedule step", low=1)
    step_factor: float = setting(0.1, "what each step of schedule step multiplies the learning "
                                 "rate by", low=0, high=1)
    clip_norm: float = setting(0.0, "L2 norm, over all parameters, that a longer gradient is "
                               "scaled down to; 0: none", low=0)
    weight_decay: float = setting(5e-4, "L2 factor: weight_decay * W is added to the gradient; "
                                  "with adamw W is multiplied by 1 - lr * weight_decay instead",
                                  low=0)
    decay_layers: str = setting("first", "whose weights decay", choices=("first", "all"))
    optimizer: str = setting("adam", "optimiser; adamw: with decoupled weight decay",
                             choices=("adam", "adamw", "sgd"))
    label_smoothing: float = setting(0.0, "share of a label that all classes get alike; of several "
                                     "labels a vertex, that is drawn to 1/2. In training: the "
                                     "validation loss stays plain", low=0, high=1, open_high=True)
    class_weight: str = setting("", "of classes in the training loss, whose mean is a weighted "
                                "one; balanced: n / (C n_c), where n_c of n training vertices are "
                                "of class c of C; or a file with a number from 0 a line and "
                                "class, or NAME,NUMBER (default: all 1)")
    precompute: bool = setting(True, "form A X once if X is dense and constant (--input-dropout "
                               "0); changes no result")
    prune: bool = setting(True, "leave out rows that neither loss nor metrics read, layer by "
                          "layer; changes no result")
    metric: str = setting("auto", "what val_acc, test_acc and the best epoch are of; auto: "
                          "accuracy, or micro-f1 of several labels a vertex; roc-auc: of two "
                          "classes or several labels",
                          choices=("auto", "accuracy", "micro-f1", "macro-f1", "roc-auc"))
    eval_every: int = setting(1, "evaluate every so many epochs; 0: only after the last", low=0)
    dtype: str = setting("float32", "type of features, weights and messages; bf16: rows of 16 "
                         "bits, and weights and sums in float32",
                         choices=("float32", "float64", "bf16"))
    seed: int = setting(0, "keys every random draw", low=0, high=2**63 - 1)
    split_index: int = setting(0, "which split of the graph to train on, where it has several; 0 "
                               "is the first", low=0)
    device: str = setting("auto", "where to compute: cuda, on a GPU for each rank, in turn those "
                          "of its node; auto, so where every rank finds one",
                          choices=("auto", "cpu", "cuda"))
    aggregate_on: str = setting("device", "where mop multiplies by A; cpu, with update-on cuda: "
                                "the graph in host memory", choices=("device", "cpu", "cuda"))
    update_on: str = setting("device", "where mop multiplies by W and does all else",
                             choices=("device", "cpu", "cuda"))
    threads: int = setting(0, "threads per rank; 0: cores / ranks on the node", low=0, high=4096)
    memory: str = setting("", "bytes that a rank may hold, e.g. 2G: where A H does not fit it is "
                          "not kept, and the backward takes the wider product instead (default: "
                          "any number)")
    checkpoint_every: int = setting(0, "write a checkpoint every so many training steps, which are "
                                    "epochs of full batches, and after the last; 0: only when "
                                    "SIGUSR1 asks for one", low=0)
    trace: bool = setting(False, "record a timeline of all ranks in RUN/trace.json")
    comm_timeout: float = setting(600.0, "seconds that a rank waits for another before all stop",
                                  low=0.001, high=10**9)

    def __post_init__(self):
        for entry in dataclasses.fields(self):
            object.__setattr__(self, entry.name, _checked(entry, getattr(self, entry.name)))
        if self.memory:
            size(self.memory)
        if -1 < self.input_dropout < 0:
            raise UsageError(f"input_dropout = {self.input_dropout}: expected 0 to 1, or -1 (as "
                             "dropout)")
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
                raise UsageError("layer_norm = True: norm is batch, expected one of the two")
            object.__setattr__(self, "layer_norm", False)
            object.__setattr__(self, "norm", "layer")
        if self.aggregate_on == "cuda" and self.updates_on == "cpu":
            raise UsageError("aggregate_on = cuda: expected update_on = cuda, too")

    def __repr__(self) -> str:
        given = [(entry.name, getattr(self, entry.name)) for entry in dataclasses.fields(self)
                 if getattr(self, entry.name) != entry.default]
        return f"Config({', '.join(f'{name}={value!r}' for name, value in given)})"

    @property
    def number_dtype(self) -> str:
        """Type of weights and sums, whatever rows are stored in."""
        return "float32" if self.dtype == "bf16" else self.dtype

    @property
    def updates_on(self) -> str:
        """Where rows are updated: auto, cpu or cuda."""
        if self.update_on == "device":
            return "cuda" if self.aggregate_on == "cuda" and self.device == "auto" else self.device
        return self.update_on

    @property
    def aggregates_on_host(self) -> bool:
        """Whether rows are aggregated on the host, wherever they are updated."""
        where = self.device if self.aggregate_on == "device" else self.aggregate_on
        return where == "cpu"

    @property
    def first_dropout(self) -> float:
        """Dropout before the first layer."""
        if self.input_dropout < 0:
            return 0.0 if self.input_layer else self.dropout
        return self.input_dropout

    def replace(self, **changes: Any) -> Config:
        """Return a copy with some fields changed; an unknown one is a UsageError that suggests."""
        check_keys(changes, "setting")
        return dataclasses.replace(self, **changes)

    def to_toml(self) -> str:
        """The text of config.toml, every field in it."""
        return "".join(
            f"{entry.name} = {_toml(getattr(self, entry.name))}  # {entry.metadata['help']}\n"
            for entry in dataclasses.fields(self))

    @staticmethod
    def from_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
        """Settings found in a TOML file, a dict; errors as `files.reading` and `parse_toml`."""
        with reading(path) as file:
            text = file.read(MAX_FILE + 1)
        return parse_toml(text, path)


def values_of(entry):
    """Say in words what values a field of Config takes: its type, choices, range and default."""
    limits = entry.metadata
    words = entry.type
    if limits["choices"]:
        words = ", ".join(limits["choices"])
    elif limits["low"] is not None and limits["high"] is None:
        words += f" from {limits['low']}"
    elif limits["low"] is not None:
        words += f" from {limits['low']} to {'below ' * limits['open_high']}{limits['high']}"
    return f"{words}; default {entry.default!r}"


Config.__doc__ = "\n".join([
    inspect.cleandoc(Config.__doc__ or ""), "\nAttributes\n----------",
    *(f"{entry.name} : {values_of(entry)}\n    {entry.metadata['help']}"
      for entry in dataclasses.fields(Config))])


def parse_toml(text, where):
    """Settings out of the bytes of a TOML file, a dict; values are not checked before `Config`.

    A byte-order mark is dropped. A UsageError, with the file, if it is no TOML,
    or a key is no field: it suggests the nearest.
    """
    values = toml_values(text, where)
    check_keys(values, f"{where}: key")
    return values


def toml_values(text, where):
    """As `parse_toml`, with any keys."""
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
    for key, value in inside:  # grows
        if isinstance(value, dict | list):
            held = value.values() if isinstance(value, dict) else value
            inside += [(key, each) for each in held]
        elif isinstance(value, int) and abs(value) >= 1 << 63:  # hexadecimal: of any length
            raise UsageError(f"{where}: {key!r:.80} holds an integer of more than 64 bits")
    return values


def settings_of_run(out, given):
    """Settings, a dict, of a run directory for a command that goes on with it; empty without any.

    The number of threads is this command's affair, and a grid that of a strategy. Errors as
    `Config.from_toml`.
    """
    try:
        found = Config.from_toml(os.path.join(out, "config.toml"))
    except InputNotFoundError:
        return {}
    dropped = {"threads"}
    if given.get("strategy", found.get("strategy")) != found.get("strategy"):
        dropped |= {"grid", "replication", "balance", "stages"}
    return {name: value for name, value in found.items() if name not in dropped}


def size(text):
    """Bytes from 500M, 2G or a plain number; UsageError if it is none."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    try:
        unit = units.get(text.rstrip("Bb")[-1:].upper(), 1)
        value = float(text.rstrip("KMGTkmgtBb") or "x") * unit
    except ValueError:
        value = 0
    if not 1 <= value < 1 << 63:
        raise UsageError(f"{text!r} is no size; write e.g. 500M or 2G")
    return int(value)


def check_keys(values, where):
    """Refuse a key that is no field of Config, suggesting the nearest."""
    names = [entry.name for entry in dataclasses.fields(Config)]
    for key in values:
        if key not in names:
            near = difflib.get_close_matches(key[:80].replace("-", "_"), names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(names)}"
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
    name = entry.name
    limits = entry.metadata
    if not isinstance(value, bool | int | float) and isinstance(value, numbers.Real):  # of NumPy
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

    # of a name of other bytes than UTF-8, which config.toml could not hold
    if kind is str and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UsageError(f"{name} = {value!r:.80}: expected text that UTF-8 can hold")
    if kind is str and "\0" in value:
        raise UsageError(f"{name} = {value!r:.80}: expected text without NUL")

    # numbers lie within their limits
    low = limits["low"]
    high = limits["high"]
    if kind in (int, float):
        too_low = low is not None and value < low
        too_high = high is not None and (value >= high if limits["open_high"] else value > high)
        if not math.isfinite(value) or too_low or too_high:
            bound = f"at least {low}"
            if high is not None:
                bound = f"{low} to {high}" + ", below it" * limits["open_high"]
            raise UsageError(f"{name} = {value!r}: expected {bound}")

    # words are among the choices
    if limits["choices"] and value not in limits["choices"]:
        near = difflib.get_close_matches(value[:80], limits["choices"], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{name} = {value!r:.80}: expected one of {', '.join(limits['choices'])}"
                         f"{hint}")
    return value
