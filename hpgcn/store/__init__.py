"""HDF5 files: graphs, partitioned graphs, models, predictions, checkpoints. The only package that imports h5py."""
from hpgcn.atomic import atomic_write, check_suffix, discard, refuse_existing, replacing_folder, writing
from hpgcn.files import file_sha256
from hpgcn.store.describe import describe, table
from hpgcn.store.graphs import load, write_graph, write_partitioned
from hpgcn.store.jsons import Field, check_fields, parse_json, read_json, read_lines
from hpgcn.store.models import read_model, read_predictions, read_state, write_model, write_predictions, write_state
from hpgcn.store.stored import StoredGraph

__all__ = ["Field", "StoredGraph", "atomic_write", "check_fields", "check_suffix", "describe", "discard",
           "file_sha256", "load", "parse_json", "read_json", "read_lines", "read_model", "read_predictions",
           "read_state", "refuse_existing", "replacing_folder", "table", "write_graph", "write_model",
           "write_partitioned", "write_predictions", "write_state", "writing"]
