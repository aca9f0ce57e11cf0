"""Checked options of `hpgcn plan`: ranks, widths, methods, a machine and settings of a run."""
import dataclasses
from dataclasses import dataclass, field

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.header import Header
from hpgcn.graphs.validation import layer_widths, numbers
from hpgcn.partition import METHODS
from hpgcn.planning.answers.goals import MAX_RANKS, Goal
from hpgcn.planning.seconds.kernel_rates import Rates
from hpgcn.planning.seconds.machine_files import (
    CORES,
    DISK,
    GPU_COPIES,
    LIMITS,
    MEASURED,
    NETWORK,
    machine_path,
    numbers_of,
    read_devices,
    read_steps,
    read_tier,
)
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.runtime.disk.scratch_folder import Disk
from hpgcn.store import read_json

MOST_RANKS = 512
# key of "network" in a machine file: attribute of Machine
NETWORK_ATTRIBUTES = {"latency_s": "latency_s", "bytes_per_s": "network_bytes_per_s",
                      "hidden_share": "hidden", "collective_latency_s": "collective_latency_s",
                      "collective_bytes_per_s": "collective_bytes_per_s"}


@dataclass(frozen=True)
class Options:
    """Checked options of a forecast.

    Defaults:

    - ranks: powers of two up to 512 and n, or the parts of a partitioned file;
    - widths (features, hidden, classes): from the file, with one hidden layer of 16;
    - partitions: random and block for p2p, or that of a partitioned file;
    - memory: any number of bytes a rank.
    """

    ranks: tuple[int, ...] | None = None
    widths: tuple[int, ...] | None = None
    methods: tuple[str, ...] | None = None
    machine: Machine = field(default_factory=Machine)
    network: bool = False  # the machine's latency and network bandwidth are no defaults
    memory: int | None = None  # bytes that a rank may hold
    config: Config = field(default_factory=Config)  # settings, of which COST_FIELDS count
    goal: Goal | None = None
    calibrated: str = ""  # what a run corrected of the machine, in words
    sizes: Header | None = None  # the sizes of a graph without a file
    single_node: int = 0  # ranks of the only node that the machine's network was measured on

    @staticmethod
    def parse(ranks=None, widths=None, methods=None, machine=None, memory=None, goal=None,
              ranks_per_node=None, sizes=None, **settings):
        """Make Options from the text of a command line.

        `settings` are fields of hpgcn.Config. Lists are comma-separated; the machine is
        a name or path, as in `read_machine`; the goal is as in `Goal.parse`.
        `ranks_per_node` replaces that of the machine; `sizes` is the Header of a graph
        without a file. UsageError for numbers that are not whole or below 1, fewer than
        two widths, or an unknown method. Other errors are those of hpgcn.Config.
        """
        # lists of numbers and names
        ranks = None if ranks is None else tuple(sorted(set(numbers("-k", ranks, MAX_RANKS))))
        widths = None if widths is None else layer_widths(widths)
        names = None if methods is None else tuple(dict.fromkeys(methods.split(",")))
        for name in names or ():
            if name not in METHODS:
                raise UsageError(f"--method {methods}: {name!r} is unknown, expected some of "
                                 f"{', '.join(METHODS)}")
        goal = None if goal is None else Goal.parse(goal)

        # the machine, with its nodes
        rates, network = (Machine(), False) if machine is None else read_machine(machine)
        single = 0 if rates.ranks_per_node else single_node(rates, network)
        if ranks_per_node is not None:
            nodes = numbers("--ranks-per-node", ranks_per_node, MAX_RANKS)
            if len(nodes) > 1 and ranks not in (None, (sum(nodes),)):
                raise UsageError(f"--ranks-per-node {ranks_per_node}: these nodes have "
                                 f"{sum(nodes)} ranks together, but -k is "
                                 f"{','.join(map(str, ranks))}")
            ranks = ranks if len(nodes) == 1 else (sum(nodes),)
            rates = with_nodes(rates, nodes, single)
        config = Config(**settings)
        rates = dataclasses.replace(rates, shared_memory=config.device != "cuda")
        return Options(ranks, widths, names, rates, network, memory, config, goal,
                       sizes=sizes, single_node=single)


def single_node(machine, network):
    """Return the ranks of the node on which the only tier of a machine was measured.

    0 if the machine has both tiers, or no rates of a `network`.
    """
    if machine.within is not None or not network:
        return 0
    most = max((rates.ranks for rates in machine.rates), default=1)
    return most if most > 1 else 0


def with_nodes(machine, sizes, single):
    """Return the Machine with nodes of these numbers of ranks, or with equal nodes of one.

    If its only tier is that of a node (`single`, not 0), it is the tier within nodes. The
    network between nodes is then that of the default machine.
    """
    changed = {"ranks_per_node": max(sizes)}
    if len(sizes) > 1:
        changed["layout"] = tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())
    if single:
        changed["within"] = machine.network
        changed |= {name: getattr(Machine, name) for name in NETWORK_ATTRIBUTES.values()}
    return dataclasses.replace(machine, **changed)


def read_machine(path):
    """Read the rates of one rank from a machine file.

    A shipped file is found by name, any other by path. The file holds what `hpgcn bench
    machine --json` printed, or two devices, as
    `hpgcn.planning.seconds.machine_files.read_devices`. An object "network" with
    latency_s and bytes_per_s may be added by hand. So may an object "within_node" of
    the same numbers, with "ranks_per_node". The network is then that between nodes.
    Return the Machine, and whether the file has rates of the network; otherwise they
    are defaults.

    An InputNotFoundError if the file cannot be opened. A DataError if it is no such
    JSON, or if a key of "network" is unknown. The same if a number is missing, not
    positive or not finite.
    """
    path = machine_path(path)
    return parse_machine(path, read_json(path))


def parse_machine(path, document):
    """Return the results of `read_machine` for a parsed JSON object.

    `path` is the file that errors name.
    """
    # read the rates of one device or two
    devices = read_devices(path, document)
    rates = {"devices": devices}
    if devices is None:
        if "limits" not in document:
            raise DataError(f"{path}: no 'limits', expected what `hpgcn bench machine --json` "
                            "prints")
        rates |= numbers_of(path, document, "limits", LIMITS, others=True)

    # read the cores and the network, if the file has them
    if "machine" in document:
        about = numbers_of(path, document, "machine", {}, CORES, others=True)
        rates |= {name: int(cores) for name, cores in about.items()}
    network = document.get("network", {}) != {}
    if network:
        given = numbers_of(path, document, "network", NETWORK, MEASURED)
        rates |= {attribute: given[name] for name, attribute in NETWORK_ATTRIBUTES.items()
                  if name in given}
    rates |= read_tier(path, document) | read_steps(path, document)

    # read the rates of the disk
    if "disk" in document:
        disk = numbers_of(path, document, "disk", DISK)
        rates["disk"] = Disk(*(disk[name] for name in DISK))

    # read the rate of copies between host and GPU
    if "gpu_copies" in document:
        copies = numbers_of(path, document, "gpu_copies", GPU_COPIES)
        rates["gpu_copy_bytes_per_s"] = copies["bytes_per_s"]

    # read the measured rates of kernels, sorted by ranks
    measured = document.get("rates", [])
    if not isinstance(measured, list):
        raise DataError(f"{path}: rates is {type(measured).__name__}, expected a list")
    rates["rates"] = tuple(sorted((Rates.of(each, f"{path}: rates[{i}]")
                                   for i, each in enumerate(measured)), key=lambda one: one.ranks))
    return dataclasses.replace(Machine(), **rates), network
