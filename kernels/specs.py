"""Specifications of the arrays that public kernels take and return.

`hpgcn.kernels.checks` checks arguments by them. Kernels on shapes
(hpgcn.planning.counts.shapes), tests and the documentation read them too.
"""
from typing import NamedTuple

import numpy as np

from hpgcn.kernels.bits16 import number_dtype

# Kernel: "name kind lengths" of each array; "name?" may be None. A length is a number,
# a letter (bound where it is met first), m+1, f/8 (bytes of bits), f|1 (either), *
# (any) or ... (any axes). "<n": values lie in [0, n), "<V": vertex numbers. "=k":
# pointers cover all k entries. "~x": may be x itself, whose dtype a new array then has.
# A kind that ends in 16: its numbers may be stored in 16 bits (see
# hpgcn.kernels.bits16); kinds without it take the floats that these stand for. Results
# follow "->"; a name without a kind is that of an argument.
CSR = "indices index k <n; indptr pointers m+1; "
SPMM = "x real16 n f; " + CSR + ("data? like k; out? into16 m f; row_scale? like m; "
                                 "col_scale? like n; rows? once * <m; ")
LOSS = "logits real m f; rows index r <m; grad? into16 m f; "
MESSAGE = "x real n f; features like u d; weight like d f; bias like f; "
DRAWN = "vertex? index m <V; neighbor? index n <V; "
SPECS = {
    "activate": "z into16 m f; bias like f; vertex? index m <V; mask? into_bits m f/8 -> z",
    "activate_smooth": "z into m f; bias like f; vertex? index m <V; mask? into_bits m f/8; "
                       "slopes? into m f -> z",
    "add": "x real16 m f; out alike m f -> out",
    "adam": "w into s; g like s; mean into s; variance into s",
    "aggregate": "x? real n f; e? like k f|1; " + CSR + "out? into m f -> out; arg? index m f",
    "aggregate_backward": "x? real n f; e? like k f|1; " + CSR + "grad like m f; arg? index m f "
                          "-> dx? real n f; de? like k f|1",
    "apply_mask": "x into16 m f; mask bits m f/8 -> x",
    "attend": "x real n f; row_score like m h; col_score like n h; " + CSR + DRAWN +
              "out? into m f; lse? into m h; above? into m f; share? into m h -> out; lse",
    "attend_backward": "x real n f; col_score like n h; pulled like m w; indices index k <m; "
                       "indptr pointers n+1; dx? into n f; dcol_score? into n h; " + DRAWN +
                       "-> dx; dcol_score",
    "attend_dots": "grad real m f; out like m f; above like m f; share like m h; "
                   "row_score like m h; lse like m h; pulled? into m w; drow_score? into m h "
                   "-> pulled; drow_score",
    "attend_merge": "out into m f; lse into m h; part like m f; part_lse like m h; "
                    "above? into m f; share? into m h; part_above? like m f; part_share? like m h",
    "attention_bits": "vertex index k <V; neighbor index k <V -> keep bool k h",
    "batch_norm": "x real m f; mean wide f; inv_std wide f; gain float f; bias float f; "
                  "out? into m f ~x; xhat? into m f ~x -> out",
    "batch_norm_backward": "g real m f; xhat like m f; inv_std wide f; gain float f; "
                           "means wide 2 f; out? into m f ~g ~xhat -> out",
    "column_squares": "x real m f; mean wide f -> squares wide f",
    "column_sum": "x real16 m f -> sums wide f",
    "convert": "x real16 m f; out into16 m f -> out",
    "dropout": "x real16 m f; vertex index m <V; out? into16 m f ~x -> out",
    "dropout_bits": "vertex index m <V -> keep bits m f/8",
    "dropout_csr": "data real k; indices index k <V; indptr pointers m+1 =k; vertex index m <V; "
                   "out? into k ~data -> out",
    "dropout_scale": "-> scale number",
    "edge_dot": "x real m f; y like n f; " + CSR + "out? into k h -> out",
    "edge_relu": MESSAGE + "indices index k <n; indptr pointers m+1; edge index k <u; "
                 "out? into m f -> out",
    "edge_relu_backward": MESSAGE + "grad like m f; indices index k <m; indptr pointers n+1; "
                          "edge index k <u; out? into n f -> out; dweight wide d f; dbias wide f",
    "edge_softmax": "values real k h; indptr pointers m+1 =k; out? into k h ~values -> out",
    "edge_softmax_backward": "alpha real k h; grad like k h; indptr pointers m+1 =k; "
                             "out? into k h ~alpha ~grad -> out",
    "elu_backward": "g into m f; out like m f; mask? bits m f/8 -> g",
    "gather": "x rows n f; index index r <n; out? into_moved r f -> out",
    "inner": "x real m f; y like m f -> total wide 1",
    "layer_norm": "x real m f; mean wide m; inv_std wide m; gain float f; bias float f; "
                  "out? into m f ~x; xhat? into m f ~x -> out",
    "layer_norm_backward": "g real m f; xhat like m f; inv_std wide m; gain float f; "
                           "means wide m 2; out? into m f ~g ~xhat -> out",
    "layer_norm_backward_sums": "g real m f; xhat like m f; gain float f "
                                "-> sums wide m 2; dgain wide f; dbias wide f",
    "matmul": "x strided16 m k; y strided16 k n; out? into_strided16 m n; mask? bits m n/8 -> out",
    "philox": "counter words ... 4; key words 2 -> bits words ... 4",
    "row_squares": "x real m f; mean wide m -> squares wide m",
    "row_sum": "x real m f -> sums wide m",
    "scatter_add": "out into_rows16 n f; index index r <n; x same r f -> out",
    "sgd": "w into s; g like s",
    "sigmoid_cross_entropy": LOSS + "labels like m f "
                             "-> loss number; true_positives count; false_positives count; "
                             "false_negatives count",
    "softmax_cross_entropy": LOSS + "labels classes m; target? wide 3 f "
                             "-> loss number; correct count",
    "spmm": SPMM + "mask? bits m f/8 -> out",
    "spread_argmax": "logits real m f; top float m -> column index m",
    "spread_gradient": LOSS + "labels index m; top float m; total float m; target? wide 3 * "
                       "-> loss number",
    "spread_max": "logits real m f -> top real m",
    "spread_sum": "logits real m f; top float m -> total wide m",
    "sspmm": SPMM + "mask bits m f/8 -> out",
    "transpose_pattern": CSR + "-> pointers index n+1; rows index k; edge index k",
}
TRANSPOSED = "indices index k <m; indptr pointers n+1 =k; edge index k <e"
NUMBERS = {  # arguments that are integers: the least, and the first too large
    "decayed": (0, 1 << 62), "epoch": (0, 1 << 32), "first": (0, 1 << 35),
    "heads": (1, 1 << 19), "layer": (0, 1 << 16),
    "n": (0, 1 << 62), "seed": (0, 1 << 64), "step": (1, 1 << 62), "width": (0, 1 << 35)}


DTYPES = {"bits": np.uint8, "bool": np.bool_, "index": np.int64, "wide": np.float64,
          "words": np.uint32}  # dtypes of new results, by kind
LENGTHS = {"n": "n", "heads": "h", "width": "f"}  # arguments that give a letter its length


class Argument(NamedTuple):
    """One array that a kernel takes or returns.

    `limit`, `covers` and `aliases` are the letters after <, = and ~.
    """

    name: str
    optional: bool
    kind: str
    shape: tuple
    limit: str
    covers: str
    aliases: tuple


def parse(text: str) -> list[Argument]:
    """Return the array arguments of a kernel, a list of Argument."""
    return _parse(text.partition("->")[0])


def parse_results(text: str) -> list[Argument]:
    """Return the results of a kernel, a list of Argument."""
    arguments = {argument.name: argument for argument in parse(text)}
    return _parse(text.partition("->")[2], arguments)


def _parse(text: str, known: dict[str, Argument] | None = None) -> list[Argument]:
    parsed = []
    for entry in filter(None, map(str.strip, text.split(";"))):
        if known and entry in known:
            parsed.append(known[entry])
            continue
        name, kind, *words = entry.split()
        marked = {mark: tuple(word[1:] for word in words if word[0] == mark) for mark in "<=~"}
        shape = tuple(word for word in words if word[0] not in marked)
        parsed.append(Argument(name.rstrip("?"), name.endswith("?"), kind, shape,
                               "".join(marked["<"]), "".join(marked["="]), marked["~"]))
    return parsed


def length_of(word: str, lengths: dict[str, int]) -> int:
    """Return the length that a word of a shape stands for; f|1 stands for f."""
    if not word[0].isalpha():
        return int(word)
    letter, change = word[0], word[1:]
    return {"": lengths[letter], "|1": lengths[letter], "+1": lengths[letter] + 1,
            "/8": -(-lengths[letter] // 8)}[change]


def result_dtype(result: Argument, first: np.dtype) -> np.dtype:
    """Return the dtype of a new array for a result; `first` is that of the first array."""
    if result.kind in DTYPES:
        return np.dtype(DTYPES[result.kind])
    same = result.aliases or result.kind == "into_moved"
    return first if same else number_dtype(first)
