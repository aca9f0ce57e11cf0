"""A model as a list of stages with explicit gradients.

Each forward pass returns the function of its backward pass. Dropout precedes each
layer, and an activation follows each layer but the last: H' = dropout(act(Z + b)), or
with normalization H' = dropout(act(norm(Z + b))). hpgcn.model.model_parts lists further
options.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hpgcn import kernels
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.model.embedding import EmbeddingStage
from hpgcn.model.layers.jump import JUMPS
from hpgcn.model.layers.linear import FeedForward
from hpgcn.model.layers.norms import NORMS
from hpgcn.model.model_parts import INNER_KEY, blocks_of
from hpgcn.model.parameters import Parameters, parameter_shapes
from hpgcn.model.stages import Activation, ForwardContext, LayerStage, Residual, chain

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.layers.layer import Layer
    from hpgcn.model.model_features import Features
    from hpgcn.model.model_parts import LayerBlock
    from hpgcn.model.spec import ModelSpec
    from hpgcn.parallel.receptive_field import ReceptiveField
    from hpgcn.parallel.shared_rows import SharedRows
    from hpgcn.parallel.workspace import Workspace

WORK = ("H1", "H2")  # arrays of a step to which layers of an evaluation write in turn


class Model:
    """A model of the registry on distributed matrices.

    It has layers, dropout, norms and activations. It stores one activation per layer
    and the arrays that gradients read. It also has work arrays of the widest layer;
    products with W and products with A alternate between two of them. Level l of its
    ReceptiveField are the m_l rows that layer l reads. Models that are not used at the
    same time may share a workspace. `vertex`, (m,) int64 on the device, has the
    ORIGINAL numbers of this rank's rows; they key dropout.
    """

    def __init__(self, spec: ModelSpec, parameters: Parameters, field: ReceptiveField,
                 columns: SharedRows, workspace: Workspace, vertex: Array) -> None:
        self.spec = spec
        self.parameters = parameters
        self.workspace = workspace
        self.columns = columns
        self.clock = columns.comm.clock

        put = columns.device.put
        accessed((vertex,))
        self.field = field
        self.vertex = [vertex if rows is None else vertex[put(rows)] for rows in field.rows]

        # which arrays a training step and `infer` touch, if these are in files
        self.step_arrays = self.evaluation_arrays = None

        self.layers = []
        self.norms = []
        self._maps = []  # layers and their second linear maps, in order
        self.borders = []  # maps of two products, of which the second may begin early
        self._place = WORK[0]

        groups = self._groups()
        first = spec.linear_first
        if spec.jump == "none":
            self.stages = [stage for group in groups for stage in group]
        else:
            last = len(groups) - 1
            jump = JUMPS[spec.jump](groups[first:last], groups[last], self.layers[first:])
            self.stages = [*(stage for group in groups[:first] for stage in group), jump]
        if spec.embedding:
            rows = field.rows[0]
            self.stages.insert(0, EmbeddingStage(
                spec, parameters, rows if rows is None else put(rows), self.vertex[0], columns,
                workspace))

    def _groups(self) -> list[list]:
        """Create the layers and norms, and return the stages of each layer."""
        blocks = blocks_of(self.spec)
        scale = kernels.backend(self.parameters.flat).dropout_scale
        groups = []
        before = None  # the activation that the next layer's backward applies
        factor = 1.0 if self.spec.embedding else scale(self.spec.first_dropout)

        for block, hop in zip(blocks, self.field.hops):
            given = (self.spec, self.parameters, hop, self.columns, self.workspace)
            layer = block.kind(block.number, *given, factor,
                               vertex=self.vertex[block.number:block.number + 2])
            layer.overwrites_input = before is not None
            self.layers.append(layer)
            fused = self._fused(blocks, block.number)
            groups.append(self._stages(block, layer, given, before, fused))
            before = groups[-1][-1] if fused else None
            factor = scale(block.dropout) if fused else 1.0

        self._place_backwards()
        self._link_pipelines(groups)
        return groups

    def _link_pipelines(self, groups: list[list]) -> None:
        """Connect the RowPipelines of layers with the row-wise work that follows."""
        for group, following in zip(groups, [*groups[1:], []]):
            first, *behind = group
            if not (isinstance(first, LayerStage) and first.pipeline and behind
                    and isinstance(behind[0], Activation)):
                continue
            pipeline = first.pipeline
            pipeline.activation = behind[0]

            # nothing but an activation between two layers; a jump takes the work array of
            # the product with W
            alone = len(group) == 2 and self.spec.jump == "none"
            stage = following[0] if alone and following else None
            if isinstance(stage, LayerStage) and stage.pipeline:
                layer = stage.layer
                # the next layer may multiply its input by W before all else, or by A
                if not (layer.spmm_first or first.layer.spmm_first):
                    pipeline.following = layer
                if not stage.masked_by and (pipeline.following or layer.spmm_first):
                    pipeline.expected = layer
                if stage.before and not (layer.stores_AX or first.layer.stores_AX):
                    stage.pipeline.lower = first.layer
                if first.layer.A and (pipeline.expected or stage.pipeline.lower):
                    self.borders.append((first.layer.A, layer.A))

    def _fused(self, blocks: list[LayerBlock], number: int) -> bool:
        """Return whether the next layer's backward applies an activation's mask.

        The activation is the one after layer `number`.
        """
        block = blocks[number]
        if block.activation != "relu" or block.ffn:
            return False
        following = blocks[number + 1]
        read_twice = following.residual or (self.spec.jump != "none"
                                            and number >= self.spec.linear_first)
        return not (read_twice or (following.norm != "none" and following.norm_first))

    def _stages(self, block: LayerBlock, layer: Layer, given: tuple,
                before: Activation | None, fused: bool) -> list:
        """Return the stages that make up one LayerBlock: norm, layer, activation and so on."""
        # the norm, before or after the layer
        number = block.number
        level = number + 1
        last = level == self.spec.num_layers
        total = self.field.totals[number if block.norm_first else level]
        norm = None
        if block.norm != "none":
            norm = NORMS[block.norm](layer, block, total)
            self.norms.append(norm)

        def activation(bias: str, kind: str, key: int, name: Any, *,
                       fused: bool = False) -> Activation:
            return Activation(layer, bias, kind, block.dropout, self.vertex[level],
                              self.spec.seed, key, name=name, fused=fused)

        # the layer itself
        stages: list = [norm] if norm and block.norm_first else []
        centered = block.norm == "batch" and not block.norm_first
        dtype = self.spec.dtype if last else None  # logits are not rounded to 16 bits
        stages.append(self._map(layer, f"H{level}", before, last=last, centered=centered,
                                dtype=dtype))

        # the stages after the layer
        if block.ffn:
            second = FeedForward(number, *given, 1.0)
            stages += [activation(layer.bias, block.activation, INNER_KEY + number, f"{level}_ffn"),
                       self._map(second, f"F{level}"), activation(second.bias, "", level, level)]
        if block.residual:
            stages = [Residual(stages, layer, matrix=block.residual == "matrix")]
        if norm and not block.norm_first:
            stages.append(norm)
        if layer.bias and not block.ffn:
            bias = norm.bias if norm and not block.norm_first else layer.bias
            after = activation(bias, block.activation, level, level, fused=fused)
            if self.spec.masked and self.spec.masked[number] and not layer.spmm_first:
                stages[-1].masked_by = after
            stages.append(after)
        return stages

    def _map(self, layer: Layer, kept: str, before: Activation | None = None,
             **which: Any) -> LayerStage:
        """Return the LayerStage of a layer.

        Output and input arrays differ. An evaluation writes to the arrays of a step.
        """
        self._maps.append(layer)
        taken = self._place
        self._place = WORK[0] if layer.hop.maps or taken == WORK[1] else WORK[1]
        return LayerStage(layer, kept, self._place, before, **which)

    def _place_backwards(self) -> None:
        """Choose the arrays for gradients of all layers.

        The two gradients of a linear layer lie in different arrays.
        """
        place = "ping"  # place of the gradient of the logits
        for layer in reversed(self._maps):
            place = "ping" if layer.hop.maps or place == "pong" else "pong"
            layer.place = place

    def infer(self, features: Features, *, embed: bool = False) -> tuple:
        """Apply the model without dropout to Features of the input level.

        Return this rank's columns of the logits (m_L, c), valid until the next step.
        With `embed` also return the inputs of the last layer, a list of (m, h). It is
        empty for a model of one layer, whose input is X.
        """
        comm = self.columns.comm
        comm.begin_pass(self.evaluation_arrays)
        embedded = [] if embed else None
        context = ForwardContext(AX=features.AX, embedded=embedded)
        logits, _ = chain(self.stages, features.X, context)
        comm.end_segment()
        return logits, embedded

    def forward(self, features: Features, step: int) -> tuple:
        """Run the forward of a training step on Features of the input level.

        `step`, from 1, keys dropout. Return the logits (m_L, c) and backward.
        backward(G) takes the gradient of the logits and returns Parameters with this
        rank's partial sums; their sum over ranks is the gradient.
        """
        self.columns.comm.begin_pass(self.step_arrays)
        H = features.X
        p = self.spec.first_dropout
        if p and not self.spec.embedding:  # whose stage draws it
            with self.clock("dense"):
                first = self.columns.of(self.spec.widths[0]).start
                H = features.dropped(self.vertex[0], self.workspace, seed=self.spec.seed,
                                     epoch=step, layer=0, p=p, first=first)
        logits, backward = chain(self.stages, H, ForwardContext(step, keep=True, AX=features.AX))
        return logits, partial(self._backward, backward)

    def prepare(self, features: Features, width: int) -> None:
        """Exchange the rows of the input features once, because they stay constant."""
        self.layers[0].prepare(features, width)

    def constant_arrays(self) -> dict[Any, Array]:
        """Return by name the arrays, besides features, that passes only read."""
        return {"parameters": self.parameters.flat} | {
            ("row numbers", layer.number, place): array for layer in self.layers
            for place, array in enumerate(layer.row_numbers)}

    def outputs(self) -> list:
        """Return the output of each layer in the last training forward.

        The result is a list of (m, f). The backward overwrites all but the last one.
        """
        last = self.layers[-1]
        return [self.workspace.buffer(f"{'F' if block.ffn else 'H'}{layer.number + 1}",
                                      layer.rows_out, layer.width_out,
                                      self.spec.dtype if layer is last else None)
                for layer, block in zip(self.layers, blocks_of(self.spec))]

    def update_running_moments(self, gradient: Parameters) -> None:
        """Move batch-norm moments to the running statistics.

        The gradient's allreduce has summed the moments as well.
        """
        for norm in self.norms:
            norm.update_running_moments(gradient)

    def _backward(self, backward: Callable, G: Array) -> Parameters:
        flat = self.columns.device.xp.empty(self.parameters.flat.size, self.spec.dtype)
        gradient = Parameters.over(flat, parameter_shapes(self.spec), self.parameters.rows.shape)
        repeat(operator.setitem, gradient.shared, ALL, 0)
        backward(G, gradient)
        self.columns.comm.end_segment()
        return gradient
