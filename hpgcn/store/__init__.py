"""HDF5 files: graphs, partitioned graphs, models, predictions. The only package that imports h5py."""
from hpgcn.store.atomic import atomic_write, file_sha256, refuse_existing
from hpgcn.store.describe import describe
from hpgcn.store.graphs import load, write_graph, write_partitioned
from hpgcn.store.models import read_model, read_predictions, write_model, write_predictions
from hpgcn.store.stored import StoredGraph

__all__ = ["StoredGraph", "atomic_write", "describe", "file_sha256", "load", "read_model", "read_predictions",
           "refuse_existing", "write_graph", "write_model", "write_partitioned", "write_predictions"]
