"""The specification of a model, independent of ranks."""
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.errors import UsageError
from hpgcn.kernels.bits16 import BF16


@dataclass(frozen=True)
class ModelSpec:
    """The specification of a model: its name in MODELS, its widths and options.

    Raise UsageError for fewer than two widths, a width below 1, or precomputed products
    with sparse features.
    """

    architecture: str  # in hpgcn.model.MODELS
    widths: tuple[int, ...]  # L + 1: features, hidden widths, classes
    dtype: str = "float32"  # dtype of weights and sums, and of rows unless they are halved
    halved: bool = False  # rows of X, H and G are stored, and sent, in bfloat16
    sparse_features: bool = False  # layer 1 multiplies by W first, so that X stays sparse
    precomputed: bool = False  # A X was formed once: layer 1 multiplies by neither A nor A^T
    multilabel: bool = False  # sigmoid cross-entropy, which needs no sums over the columns of a row
    target_loss: str = ""  # loss of targets; "": cross-entropy of labels
    decoder: str = ""  # in hpgcn.model.links.decoders, of a model that scores pairs of vertices
    decoder_layers: int = 0  # linear layers of the decoder
    norm_adj: str = "own"  # norm of the matrix; own: that of the layers
    linear_first: int = 0  # layers without A before those with A
    linear_last: int = 0  # layers without A after those with A
    activation: str = "relu"  # between layers: one of ACTIVATIONS
    norm: str = "none"  # between each hidden layer and its activation, or before each with ffn
    residual: bool = False  # each layer with A adds its input
    ffn: bool = False  # a second linear map in each layer with A
    jump: str = "none"  # how the last layer reads all with A: cat, max; none: the last of them
    hops: int = 0  # products with A of a layer, if this is a setting of the model
    restart: float = 0.0  # share of its input that each of these adds
    heads: int = 1  # heads of attention, side by side in the columns of hidden layers
    output_heads: int = 0  # heads of the last layer, averaged; 0: as `heads`
    attention_dropout: float = 0.0  # dropout of entries of each head's softmax
    keeps_rows: bool = False  # ghost rows of a constant X were received once
    embedding: int = 0  # columns of the input that are learned, to the right of features
    edge_width: int = 0  # columns of the edge features that messages read
    drop_AX: bool = False  # A H is not stored if A comes first: the gradient is H^T (A^T G)
    # layers whose product with A, if it comes last, is masked by the dropout behind it
    masked: tuple[bool, ...] = ()
    first_dropout: float = 0.0  # before the first layer
    dropout: float = 0.0  # before the others
    seed: int = 0

    def __post_init__(self) -> None:
        widths = tuple(map(int, self.widths))
        object.__setattr__(self, "widths", widths)
        if len(widths) < 2 or min(widths) < 1:
            raise UsageError(f"widths {','.join(map(str, widths))}: expected two or more positive "
                             "numbers (features, hidden widths, classes)")
        if self.num_features < 0:
            raise UsageError(f"widths {','.join(map(str, widths))}: expected a first width of at "
                             f"least {self.embedding}, for embedding {self.embedding}")
        if self.linear_first + self.linear_last >= self.num_layers:
            raise UsageError(f"widths {','.join(map(str, widths))}: expected "
                             f"{self.linear_first + self.linear_last + 2} or more, for "
                             f"{self.linear_first + self.linear_last} layers without A and one "
                             "with it")
        if self.sparse_features and self.precomputed:
            raise UsageError("sparse_features and precomputed exclude each other: A X is computed "
                             "once only if X is dense")

    @property
    def num_features(self) -> int:
        """Columns of the input that are features of the graph."""
        return self.widths[0] - self.embedding

    @property
    def itemsize(self) -> int:
        """Bytes of one number among weights and sums."""
        return np.dtype(self.dtype).itemsize

    @property
    def row_dtype(self) -> np.dtype:
        """Dtype of the rows that are stored and sent."""
        return BF16 if self.halved else np.dtype(self.dtype)

    @property
    def row_itemsize(self) -> int:
        """Bytes of one number in a row that is stored and sent."""
        return self.row_dtype.itemsize

    @property
    def layers(self) -> list[tuple]:
        """Pairs (fan_in, fan_out), one for each layer."""
        return list(pairwise(self.widths))

    @property
    def num_layers(self) -> int:
        return len(self.widths) - 1
