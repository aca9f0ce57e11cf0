"""Specifications of the array arguments of public kernels.

`hpgcn.kernels.checks` reads them.
"""
from typing import NamedTuple

# Kernel: "name kind lengths" of each array; "name?" may be None. A length is a number,
# a letter (bound where it is met first), m+1, f/8 (bytes of bits), f|1 (either), *
# (any) or ... (any axes). "<n": values lie in [0, n), "<V": vertex numbers. "=k":
# pointers cover all k entries. "~x": may be x itself. A kind that ends in 16: its
# numbers may be stored in 16 bits (see hpgcn.kernels.bits16); kinds without it take the
# floats that these stand for.
CSR = "indices index k <n; indptr pointers m+1; "
SPMM = "x real16 n f; " + CSR + ("data? like k; out? into16 m f; row_scale? like m; "
                                 "col_scale? like n; rows? once * <m; ")
LOSS = "logits real m f; rows index r <m; grad? into16 m f; "
MESSAGE = "x real n f; features like u d; weight like d f; bias like f; "
DRAWN = "vertex? index m <V; neighbour? index n <V; "
SPECS = {
    "activate": "z into16 m f; bias like f; vertex? index m <V; mask? into_bits m f/8",
    "activate_smooth": "z into m f; bias like f; vertex? index m <V; mask? into_bits m f/8; "
                       "slopes? into m f",
    "add": "x real16 m f; out alike m f",
    "adam": "w into s; g like s; mean into s; variance into s",
    "aggregate": "x? real n f; e? like k f|1; " + CSR + "out? into m f",
    "aggregate_backward": "x? real n f; e? like k f|1; " + CSR + "grad like m f; arg? index m f",
    "apply_mask": "x into16 m f; mask bits m f/8",
    "attend": "x real n f; row_score like m h; col_score like n h; " + CSR + DRAWN +
              "out? into m f; lse? into m h; above? into m f; share? into m h",
    "attend_backward": "x real n f; col_score like n h; pulled like m w; indices index k <m; "
                       "indptr pointers n+1; dx? into n f; dcol_score? into n h; " + DRAWN,
    "attend_dots": "grad real m f; out like m f; above like m f; share like m h; "
                   "row_score like m h; lse like m h; pulled? into m w; drow_score? into m h",
    "attend_merge": "out into m f; lse into m h; part like m f; part_lse like m h; "
                    "above? into m f; share? into m h; part_above? like m f; part_share? like m h",
    "attention_bits": "vertex index k <V; neighbour index k <V",
    "batch_norm": "x real m f; mean wide f; inv_std wide f; gain float f; bias float f; "
                  "out? into m f ~x; xhat? into m f ~x",
    "batch_norm_backward": "g real m f; xhat like m f; inv_std wide f; gain float f; "
                           "means wide 2 f; out? into m f ~g ~xhat",
    "column_squares": "x real m f; mean wide f",
    "column_sum": "x real16 m f",
    "convert": "x real16 m f; out into16 m f",
    "dropout": "x real16 m f; vertex index m <V; out? into16 m f ~x",
    "dropout_bits": "vertex index m <V",
    "dropout_csr": "data real k; indices index k <V; indptr pointers m+1 =k; vertex index m <V; "
                   "out? into k ~data",
    "dropout_scale": "",
    "edge_dot": "x real m f; y like n f; " + CSR + "out? into k h",
    "edge_relu": MESSAGE + "indices index k <n; indptr pointers m+1; edge index k <u; "
                 "out? into m f",
    "edge_relu_backward": MESSAGE + "grad like m f; indices index k <m; indptr pointers n+1; "
                          "edge index k <u; out? into n f",
    "edge_softmax": "values real k h; indptr pointers m+1 =k; out? into k h ~values",
    "edge_softmax_backward": "alpha real k h; grad like k h; indptr pointers m+1 =k; "
                             "out? into k h ~alpha ~grad",
    "elu_backward": "g into m f; out like m f; mask? bits m f/8",
    "gather": "x rows n f; index index r <n; out? into_moved r f",
    "inner": "x real m f; y like m f",
    "layer_norm": "x real m f; mean wide m; inv_std wide m; gain float f; bias float f; "
                  "out? into m f ~x; xhat? into m f ~x",
    "layer_norm_backward": "g real m f; xhat like m f; inv_std wide m; gain float f; "
                           "means wide m 2; out? into m f ~g ~xhat",
    "layer_norm_backward_sums": "g real m f; xhat like m f; gain float f",
    "matmul": "x strided16 m k; y strided16 k n; out? into_strided16 m n; mask? bits m n/8",
    "philox": "counter words ... 4; key words 2",
    "row_squares": "x real m f; mean wide m",
    "row_sum": "x real m f",
    "scatter_add": "out into_rows16 n f; index index r <n; x same r f",
    "sgd": "w into s; g like s",
    "sigmoid_cross_entropy": LOSS + "labels like m f",
    "softmax_cross_entropy": LOSS + "labels classes m; target? wide 3 f",
    "spmm": SPMM + "mask? bits m f/8",
    "spread_argmax": "logits real m f; top float m",
    "spread_gradient": LOSS + "labels index m; top float m; total float m; target? wide 3 *",
    "spread_max": "logits real m f",
    "spread_sum": "logits real m f; top float m",
    "sspmm": SPMM + "mask bits m f/8",
    "transpose_pattern": CSR,
}
TRANSPOSED = "indices index k <m; indptr pointers n+1 =k; edge index k <e"
NUMBERS = {  # arguments that are integers: the least, and the first too large
    "decayed": (0, 1 << 62), "epoch": (0, 1 << 32), "first": (0, 1 << 35),
    "heads": (1, 1 << 19), "layer": (0, 1 << 16),
    "n": (0, 1 << 62), "seed": (0, 1 << 64), "step": (1, 1 << 62), "width": (0, 1 << 35)}


class Argument(NamedTuple):
    """One array argument of a kernel.

    `limit`, `covers` and `aliases` are the letters after <, = and ~.
    """

    name: str
    optional: bool
    kind: str
    shape: tuple
    limit: str
    covers: str
    aliases: tuple


def parse(text):
    arguments = []
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, kind, *words = entry.split()
        marked = {mark: tuple(word[1:] for word in words if word[0] == mark) for mark in "<=~"}
        shape = tuple(word for word in words if word[0] not in marked)
        arguments.append(Argument(name.rstrip("?"), name.endswith("?"), kind, shape,
                                  "".join(marked["<"]), "".join(marked["="]), marked["~"]))
    return arguments
