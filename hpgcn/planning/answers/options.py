"""Options of `hpgcn plan`, checked: ranks, widths, methods, a machine, settings of a run."""
import dataclasses
from dataclasses import dataclass, field

from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.validation import layer_widths, numbers
from hpgcn.partition import METHODS
from hpgcn.planning.answers.goals import MAX_RANKS, Goal
from hpgcn.planning.seconds.kernel_rates import Rates
from hpgcn.planning.seconds.machine_files import RATE, machine_path, read_devices
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.store import Field, check_fields, read_json

MOST_RANKS = 512
QUICK = ("random", "block")  # methods that need no engine
CORES = Field(int, 1, 1 << 20)
NETWORK = {  # key of a machine file: attribute of Machine, Field, whether it must be there
    "latency_s": ("latency_s", RATE, True), "bytes_per_s": ("network_bytes_per_s", RATE, True),
    "one_way_bytes_per_s": (None, RATE, False),
    "hidden_share": ("hidden", Field(float, 0, 1), False)}


@dataclass(frozen=True)
class Options:
    """Options of a forecast.

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

    @staticmethod
    def parse(ranks=None, widths=None, methods=None, machine=None, memory=None, goal=None,
              **settings):
        """Make options from the text of the command line; `settings` are fields of hpgcn.Config.

        Lists are comma-separated, the machine is a name or path, as `read_machine`, the goal as
        `Goal.parse`. A UsageError for no whole numbers of at least 1, fewer than two widths, an
        unknown method; as hpgcn.Config.
        """
        ranks = None if ranks is None else tuple(sorted(set(numbers("-k", ranks, MAX_RANKS))))
        widths = None if widths is None else layer_widths(widths)
        names = None if methods is None else tuple(dict.fromkeys(methods.split(",")))
        for name in names or ():
            if name not in METHODS:
                raise UsageError(f"--method {methods}: {name!r} is unknown, expected some of "
                                 f"{', '.join(METHODS)}")
        goal = None if goal is None else Goal.parse(goal)
        rates, network = (Machine(), False) if machine is None else read_machine(machine)
        return Options(ranks, widths, names, rates, network, memory, Config(**settings), goal)


def read_machine(path):
    """Read the rates of a rank: a shipped machine by name, or a file by path.

    The file holds what `hpgcn bench machine --json` printed, or two devices, as
    `hpgcn.planning.seconds.machine_files.read_devices`. An object "network" with latency_s and
    bytes_per_s may be added by hand. Return the Machine, and whether the file has rates of the
    network; otherwise they are defaults. An InputNotFoundError if it cannot be opened. A DataError
    if it is no such JSON, or if a key of "network" is unknown. The same if a number is missing, not
    positive or not finite.
    """
    # read the rates of one device or two
    path = machine_path(path)
    found = read_json(path)
    devices = read_devices(path, found)
    rates = {"devices": devices}
    if devices is None:
        limits = _group(path, found, "limits", required=True)
        rates |= {name: _rate(path, "limits", limits, name) for name in
                  ("memory_bytes_per_s", "gemm_float32_flops_per_s", "gemm_float64_flops_per_s")}

    # read the cores and the network, if the file has them
    about = _group(path, found, "machine")
    if "cores" in about:
        rates["cores"] = int(_rate(path, "machine", about, "cores", CORES))
    network = _group(path, found, "network")
    for name in network:
        if name not in NETWORK:
            raise DataError(f"{path}: network.{name} is unknown, expected some of "
                            f"{', '.join(NETWORK)}")
    if network:
        for name, (field, kind, needed) in NETWORK.items():
            if needed or name in network:
                value = _rate(path, "network", network, name, kind)
                rates |= {field: value} if field else {}

    # read the measured rates of kernels, sorted by ranks
    measured = found.get("rates", [])
    if not isinstance(measured, list):
        raise DataError(f"{path}: rates is {type(measured).__name__}, expected a list")
    rates["rates"] = tuple(sorted((Rates.of(each, f"{path}: rates[{i}]")
                                   for i, each in enumerate(measured)), key=lambda one: one.ranks))
    return dataclasses.replace(Machine(), **rates), bool(network)


def _group(path, found, name, required=False):
    if required and name not in found:
        raise DataError(f"{path}: no {name!r}, expected what `hpgcn bench machine --json` prints")
    group = found.get(name, {})
    if not isinstance(group, dict):
        raise DataError(f"{path}: {name} is {type(group).__name__}, expected an object")
    return group


def _rate(path, group, values, name, field=RATE):
    named = {f"{group}.{key}": value for key, value in values.items()}
    check_fields(named, {f"{group}.{name}": field}, path)
    return float(values[name])
