"""Row-by-row work between two products with A, done in batches while the first product
runs.

A product A (H W) is followed by bias, activation and dropout, then by the next layer's
product with its W. All of this works row by row. A Strategy that returns rows in
batches (`updates_in_batches`) updates one batch while the next is aggregated: mixgcn,
section 3.2.2. Other strategies update all rows at once.
"""


class RowUpdates:
    """The row-by-row work that follows a layer's product with A, until the next product
    with A.

    Parameters
    ----------
    activation : hpgcn.model.stages.Activation
        Directly behind the layer.
    following : hpgcn.model.layers.layer.Layer or None
        The next layer, if it multiplies the result by W before anything else.
    """

    def __init__(self, activation, following):
        self.activation = activation
        self.following = following

    def begin(self, Z, context):
        """Return a function that updates rows [first, last) of Z, (m, f'); call it once
        for each row.
        """
        activate = self.activation.begin(Z, context)
        multiply = self.following and self.following.begin_times_W(Z)

        def update(first, last):
            activate(first, last)
            if multiply:
                multiply(first, last)

        return update
