"""
Headrace: brings data to the memory that will use it, before it is used.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import os
import pathlib
from typing import Annotated, Any, Literal, Self, overload

import numpy
import numpy.typing
from numpy.typing import NDArray
from typing_extensions import Buffer as _Buffer


__version__: str

SCHEMA_VERSION: int = 1

LARGEST_DOCUMENT: int = 67108864

class Error(Exception):
    """
    What Headrace could not do. `code` is the same word as in JSON and in C++; a program ends with `exit_code`.
    """

    code: str = ''

    exit_code: int = 70

class AbsentError(Error, LookupError):
    """It is not there: a node, an engine, a file, a column."""

    code: str = 'absent'

    exit_code: int = 3

class UnsupportedError(Error, NotImplementedError):
    """It is there and cannot do this."""

    code: str = 'unsupported'

    exit_code: int = 4

class DeniedError(Error, PermissionError):
    """The system refuses permission."""

    code: str = 'denied'

    exit_code: int = 5

class ExhaustedError(Error, MemoryError):
    """No room: memory, budget, queue, disk."""

    code: str = 'exhausted'

    exit_code: int = 6

class IoError(Error, OSError):
    """A device or file failed or ended early."""

    code: str = 'io'

    exit_code: int = 7

class InvalidError(Error, ValueError):
    """The request makes no sense."""

    code: str = 'invalid'

    exit_code: int = 2

class CancelledError(Error):
    """Somebody asked to stop."""

    code: str = 'cancelled'

    exit_code: int = 130

class TimedOutError(Error, TimeoutError):
    """It did not happen within its bound."""

    code: str = 'timed_out'

    exit_code: int = 8

class AccessAttributes:
    """
    What an initiator can expect of a node: rated by firmware, or measured.
    """

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def initiator(self) -> int:
        """The node with the CPUs."""

    @property
    def read_latency(self) -> float | None:
        """Seconds; None when unknown."""

    @property
    def write_latency(self) -> float | None:
        """Seconds; None when unknown."""

    @property
    def read_bandwidth(self) -> float | None:
        """Bytes per second; None when unknown."""

    @property
    def write_bandwidth(self) -> float | None:
        """Bytes per second; None when unknown."""

    @property
    def source(self) -> str:
        """Who says so."""

    @property
    def measured(self) -> bool:
        """Measured with all CPUs of the initiator."""

class GpuAttributes:
    """What the driver of a GPU says about it."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def pci(self) -> str:
        """Its PCI address; empty when unknown."""

    @property
    def uuid(self) -> str:
        """32 hexadecimal digits; empty when unknown."""

    @property
    def paradigm(self) -> Literal['ats', 'hmm', 'managed', 'limited']:
        """How far CPUs and GPU see each other's memory."""

    @property
    def copy_engines(self) -> int:
        """Copies that may be under way at the same time."""

    @property
    def host(self) -> int | None:
        """The nearest node of the host; None when unknown."""

    @property
    def emulated(self) -> bool:
        """Made of software: its speed says nothing."""

class MemorySideCache:
    """A cache before a node's memory: HBM in cache mode, which is no node."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def line(self) -> int | None:
        """Bytes; None when unknown."""

    @property
    def indexing(self) -> str:
        """direct-mapped, indexed; empty when unknown."""

    @property
    def write_policy(self) -> str:
        """write-back, write-through; empty when unknown."""

class Node:
    """One memory with one location."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def id(self) -> int:
        """The kernel's NUMA number; storage from 1000, GPUs from 2000."""

    @property
    def kind(self) -> Literal['dram', 'hbm', 'cxl', 'gpu', 'storage']:
        """What it is made of."""

    @property
    def reason(self) -> str:
        """Why this kind: the evidence."""

    @property
    def name(self) -> str:
        """Its name for people."""

    @property
    def capacity(self) -> int | None:
        """Bytes; None when unknown."""

    @property
    def capacity_source(self) -> str:
        """Where the capacity was read."""

    @property
    def cpus(self) -> list[int]:
        """Local CPUs; empty for a CPU-less node."""

    @property
    def access(self) -> list[AccessAttributes]:
        """Latencies and bandwidths per initiator."""

    @property
    def distances(self) -> dict[int, int]:
        """SLIT distances to memory nodes; 10 is local."""

    @property
    def path(self) -> str:
        """Storage: a directory on it."""

    @property
    def gpu(self) -> GpuAttributes | None:
        """GPUs whose driver was asked; else None."""

    @property
    def side_cache(self) -> MemorySideCache | None:
        """A cache before its memory; else None."""

    @property
    def byte_addressable(self) -> bool:
        """Loads and stores of a CPU reach it."""

class CacheLevel:
    """A data or unified CPU cache and the CPUs that share it."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def level(self) -> int:
        """1, 2, 3."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def cpus(self) -> list[int]:
        """The CPUs that share it."""

class Engine:
    """Something that can copy."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def id(self) -> int:
        """Its place in Machine.engines."""

    @property
    def kind(self) -> Literal['cpu', 'ssd', 'dsa', 'gpu', 'migrate']:
        """What copies."""

    @property
    def name(self) -> str:
        """Its name for people."""

    @property
    def home(self) -> int:
        """The node it sits at."""

    @property
    def reason(self) -> str:
        """How it was found."""

class Link:
    """A way between nodes, with limits that all who cross it share."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def kind(self) -> Literal['upi', 'xgmi', 'socket', 'mesh', 'pcie', 'cxl', 'nvlink', 'c2c']:
        """What kind of way."""

    @property
    def a(self) -> list[int]:
        """The nodes at one end."""

    @property
    def b(self) -> list[int]:
        """The nodes at the other end."""

    @property
    def reason(self) -> str:
        """How it was found, what is not known of it."""

    @property
    def each_way(self) -> float | None:
        """Bytes per second in a direction; None when unknown."""

    @property
    def each_way_source(self) -> str:
        """Who says so."""

    @property
    def both_ways(self) -> float | None:
        """Bytes per second in both directions at once; None when unknown."""

    @property
    def both_ways_source(self) -> str:
        """Who says so."""

    @property
    def latency(self) -> float | None:
        """Seconds that it adds to an access; None when unknown."""

    @property
    def latency_source(self) -> str:
        """Who says so."""

class GatherLimit:
    """Many small copies that a kernel of a GPU makes, not its copy engines."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bytes(self) -> int:
        """Each of them at most."""

    @property
    def count(self) -> int:
        """How many there are at least."""

class CopyRate:
    """A measured cost of copying: time = latency + bytes / bandwidth."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def engine(self) -> int:
        """Who copies."""

    @property
    def from_node(self) -> int:
        """Where the bytes are."""

    @property
    def to_node(self) -> int:
        """Where they go."""

    @property
    def latency(self) -> float:
        """Seconds."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""

    @property
    def source(self) -> str:
        """The experiment and its date."""

    @property
    def gather(self) -> GatherLimit | None:
        """A GPU's: what its kernel copies at least twice as fast."""

class DsaFinding:
    """What works of a DSA device, and what would change that."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """dsa0; empty where there is no device to name."""

    @property
    def why(self) -> str:
        """One line."""

    @property
    def remedy(self) -> str:
        """A command or a setting; empty where none helps."""

    @property
    def state(self) -> str:
        """ready, limited, off or absent."""

def examine_dsa(*, sysfs: str | os.PathLike | None = None, dev: str | os.PathLike | None = None, pci: str | os.PathLike = ...) -> list[DsaFinding]:
    """
    The DSA devices of this host, or of one whose files lie elsewhere; without names by HEADRACE_DSA_SYSFS and HEADRACE_DSA_DEV.
    """

def gpu_driver() -> str:
    """
    The driver of GPUs that this process uses; AbsentError or UnsupportedError with what to do where there is none.
    """

class Machine:
    """
    The graph of one host: its memories (nodes), what can copy between them (engines), what joins them (links) and, once measured, how fast copies are (copy rates). Plain data.
    """

    @staticmethod
    def load(path_or_preset: str | os.PathLike) -> Machine:
        """Reads a JSON file, or a preset by its name."""

    @staticmethod
    def from_json(text: str) -> Machine:
        """Parses what to_json() wrote."""

    @staticmethod
    def fromdict(document: dict[str, Any]) -> Machine:
        """The machine that asdict() wrote, or json.load() read."""

    def to_json(self) -> str:
        """One JSON document, schema_version first."""

    def asdict(self) -> dict[str, Any]:
        """What to_json() writes, as a dict."""

    def to_text(self) -> str:
        """A tree for people: a line for each node."""

    def overview(self) -> str:
        """The same with one line for nodes that are alike."""

    def to_hwloc_xml(self) -> str:
        """The topology in hwloc's XML format; only for a discovered machine."""

    @staticmethod
    def discover(*, sysfs: str | os.PathLike = ..., procfs: str | os.PathLike = ..., hwloc_xml: str | os.PathLike | None = None, storage: Sequence[str | os.PathLike] | None = None, headrace_nodes: str | None = None, memkind_hbw_nodes: str | None = None) -> Machine:
        """
        Asks this host what it has. `storage`: paths whose devices become nodes (the working directory's if not given). The overrides default to the environment (HEADRACE_NODES, MEMKIND_HBW_NODES).
        """

    @property
    def name(self) -> str:
        """The host's or the preset's."""

    @property
    def description(self) -> str:
        """In words."""

    @property
    def source(self) -> str:
        """Discovered, a preset, or a path."""

    @property
    def nodes(self) -> list[Node]:
        """Ascending ids."""

    @property
    def caches(self) -> list[CacheLevel]:
        """CPU caches."""

    @property
    def engines(self) -> list[Engine]:
        """Ascending ids."""

    @property
    def links(self) -> list[Link]:
        """What joins nodes; those between sockets first."""

    @property
    def copy_rates(self) -> list[CopyRate]:
        """What was measured."""

    @property
    def cache_mode(self) -> str:
        """
        Why memory that the host has is no node: HBM is in cache mode; else empty.
        """

    @property
    def warnings(self) -> list[str]:
        """Contradictions met in discovery."""

    @property
    def provenance(self) -> dict[str, str]:
        """Kernel, CPU model, hwloc version, ..."""

    def node(self, id: int) -> Node:
        """The node of that id."""

    def engine(self, id: int) -> Engine:
        """The engine of that id."""

    def of_kind(self, kind: Literal['dram', 'hbm', 'cxl', 'gpu', 'storage']) -> list[Node]:
        """Nodes of one kind, ascending."""

    def node_of_cpu(self, cpu: int) -> Node | None:
        """The node whose cpus hold `cpu`, or None."""

    def host_of(self, id: int) -> int | None:
        """
        The node with CPUs nearest to it, itself if it has some; None if none has.
        """

    def last_level_cache(self, cpu: int = 0) -> int | None:
        """Bytes of the largest cache that data of `cpu` can stay in, or None."""

    def __repr__(self) -> str: ...

def presets() -> list[str]:
    """Names of the machines that come with Headrace, for Machine.load."""

def set_process_policy(policy: Literal['none', 'bind', 'preferred', 'preferred_many', 'interleave', 'weighted_interleave'], nodes: Sequence[int] = []) -> None:
    """
    Sets the memory policy of this thread and of the threads and programs it starts.
    """

class FreeMemory:
    """What this process can have now without swapping."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def nodes(self) -> dict[int, int]:
        """Bytes on each node that its cpuset allows."""

    @property
    def cgroup(self) -> int | None:
        """What its memory cgroups leave; None without a limit."""

def free_memory() -> FreeMemory:
    """What is free now, per node."""

class Placement:
    """Where memory should live: a wish for allocate()."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def nodes(self) -> list[tuple[int, int]]:
        """Nodes with their weights: pages per turn."""

    @property
    def kind(self) -> Literal['dram', 'hbm', 'cxl', 'gpu', 'storage'] | None:
        """Instead of nodes: nodes of this kind."""

    @property
    def distribution(self) -> Literal['nearest', 'first_touch', 'interleave']:
        """
        Which of them: the 'nearest' and, when it is full, the next nearest of the kind; that nearest to who touches a page first ('first_touch'); or all in turn ('interleave').
        """

    @property
    def property(self) -> str | None:
        """Instead of both: what the node is wanted for, such as 'fastest'."""

    @property
    def strict(self) -> bool:
        """These nodes or ExhaustedError."""

    @property
    def spill(self) -> list[int | Literal['dram', 'hbm', 'cxl', 'gpu', 'storage']]:
        """Where to when they are full, in this order: nodes or kinds."""

    @property
    def near(self) -> list[int]:
        """The CPUs that will use it; empty: the calling one."""

    @property
    def pages(self) -> Literal['base', 'transparent', 'huge_2m', 'huge_1g']:
        """The page size asked for."""

    @property
    def touch(self) -> bool:
        """Touch every page at once, near its node."""

    @property
    def lock(self) -> bool:
        """Keep it in memory (mlock)."""

    @property
    def pin(self) -> bool:
        """Register it with the driver of GPUs."""

    @property
    def reason(self) -> str:
        """Why a policy chose it."""

    @staticmethod
    def on(node_or_kind: int | Literal['dram', 'hbm', 'cxl', 'gpu', 'storage'], *, strict: bool = True, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', touch: bool = True, distribution: Literal['nearest', 'first_touch', 'interleave'] = 'nearest') -> Placement:
        """On one node, or on the nodes of one kind that are nearest."""

    @staticmethod
    def parse(machine: Machine, text: str, *, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', touch: bool = True, lock: bool = False, near: Sequence[int] = [], pin: bool = False) -> Placement:
        """
        As people write it: a kind 'hbm', 'hbm_interleave' or 'hbm_first_touch', a property 'fastest', 'lowest_latency', 'highest_bandwidth' or 'largest', nodes '0-3,8', weights '0=3,8=1' or 'dram=3,cxl=1'; several of them, 'hbm:dram', are tried in this order.
        """

    def resolve(self, machine: Machine, near: int | None = None) -> Placement:
        """The same with kinds and properties replaced by nodes, nearest first."""

    def __str__(self) -> str:
        """As parse() reads it."""

    @staticmethod
    def weighted(nodes: Sequence[tuple[int, int]], *, strict: bool = True, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', touch: bool = True) -> Placement:
        """
        Pages in turn by weight: [(0, 3), (8, 1)] puts three on 0, one on 8, and so on.
        """

    @staticmethod
    def interleave(nodes: Sequence[int] | Literal['dram', 'hbm', 'cxl', 'gpu', 'storage'], *, strict: bool = True, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', touch: bool = True) -> Placement:
        """Page by page in turn over the nodes, or over all of a kind."""

class Object:
    """A thing with bytes: Buffer, File or MemoryRange."""

    @property
    def id(self) -> int:
        """Never used twice in a process."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def node(self) -> int:
        """Where its bytes live; of several nodes the first."""

    @property
    def writable(self) -> bool:
        """Whether it can be copied to."""

    @property
    def device_address(self) -> int | None:
        """Where code of a GPU finds it; None for what CPUs reach."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Its bytes for PyTorch and CuPy, where they are memory of a GPU."""

    def extent(self, offset: int = 0, length: int | None = None) -> Extent:
        """A range of it; up to its end if no length is given."""

    def __repr__(self) -> str: ...

class Extent:
    """A range of an object, which it keeps alive."""

    def __init__(self, object: Object, offset: int = 0, length: int | None = None) -> None: ...

    @property
    def offset(self) -> int:
        """Bytes from the start of the object."""

    @property
    def length(self) -> int:
        """Bytes."""

    @property
    def object_id(self) -> int:
        """The id of its object."""

    @property
    def stream(self) -> int | None:
        """The stream of a GPU that was not waited for; None: there is none."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Buffer(Object):
    """
    Memory allocated by a placement; released with the last array or transfer that uses it.
    """

    @property
    def placement(self) -> Placement:
        """Where it was asked to be."""

    @property
    def page_size(self) -> Literal['base', 'transparent', 'huge_2m', 'huge_1g']:
        """The page size it really has."""

    @property
    def fallback(self) -> str:
        """Why not the page size asked for; empty if it is."""

    @property
    def pinned(self) -> bool:
        """Registered with the driver of GPUs, all of it."""

    def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8') -> numpy.typing.NDArray[Any]:
        """Its bytes as an array that shares them and keeps them alive."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __len__(self) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

class MemoryRange(Object):
    """
    Memory of another Python object (an array, a bytearray, a tensor on a GPU), which it keeps alive.
    """

    def __init__(self, memory: _Buffer | Any, node: int | None = None, *, machine: Machine | None = None, wait: bool = True) -> None:
        """
        What has the buffer protocol, a tensor of PyTorch, __cuda_array_interface__ or __dlpack__. `node`: where the memory is; if not given, the kernel is asked, or the driver of GPUs and `machine`, which is this host by default. `wait`: until the stream that computes it has.
        """

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the array."""

    @property
    def stream(self) -> int | None:
        """The stream of a GPU that was not waited for; None: there is none."""

    def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8') -> numpy.typing.NDArray[Any]:
        """Its bytes as an array that shares them and keeps them alive."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __len__(self) -> int: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

def allocate(machine: Machine, size: int, placement: Placement | str | None = None) -> Buffer:
    """
    Allocates `size` zeroed bytes; on the machine's DRAM if no placement is given. A placement may be written as Placement.parse() reads it: 'hbm', 'fastest', 'dram=3,cxl=1'.
    """

def relocate(machine: Machine, buffer: Buffer, placement: Placement | str) -> None:
    """
    Moves a buffer to another placement. Addresses and bytes stay, and others may use it meanwhile.
    """

class File(Object):
    """A file as an object: its extents can be moved and cached."""

    @staticmethod
    def open(machine: Machine, path: str | os.PathLike, *, writable: bool = False, direct: bool = True) -> File:
        """Opens a file, past the page cache (O_DIRECT) if `direct` and possible."""

    @property
    def path(self) -> pathlib.Path:
        """As it was opened."""

    @property
    def direct(self) -> bool:
        """Whether reads go past the page cache."""

    def update_size(self) -> int:
        """
        Asks for the file's size now; if it has grown, extents of the new part can be moved and cached. Returns the size.
        """

    def version(self) -> tuple[int, int, int, int]:
        """
        Inode, size, and the times of the last write and change in nanoseconds. If it differs from an earlier one, someone wrote to the file: invalidate() its copies. Two changes within a tick of the file system's clock (4 ms) may give one version.
        """

    def sync(self) -> None:
        """Makes durable what was written to it (fdatasync)."""

    def drop_page_cache(self) -> None:
        """Drops its clean pages from the page cache, as a cold start needs."""

    def page_cache_residency(self, offset: int = 0, length: int | None = None) -> int:
        """
        Bytes of it in the page cache now; of `length` bytes from `offset`, a multiple of the page size. DeniedError: the kernel tells only the file's owner, and who may write it.
        """

class Residency:
    """Pages per node, as the kernel says."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def pages(self) -> dict[int, int]:
        """4 KiB pages present on each node."""

    @property
    def absent(self) -> int:
        """4 KiB pages never touched, or swapped out."""

def where(memory: _Buffer) -> Residency:
    """Where the pages of a buffer or any other memory are now."""

class MoveStats:
    """What became of a move."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bytes(self) -> int:
        """Bytes moved."""

    @property
    def pieces(self) -> int:
        """In how many pieces."""

    @property
    def retries(self) -> int:
        """Pieces given to another engine after a failure."""

    @property
    def queued(self) -> float:
        """Seconds until the first piece was accepted."""

    @property
    def total(self) -> float:
        """Seconds until the last piece was done."""

    @property
    def engines(self) -> list[int]:
        """Engines that carried a piece."""

class Transfer:
    """
    One asynchronous move: wait for it, poll it, await it (asyncio), select on fileno(), or cancel it. Dropping it neither cancels nor waits; both objects stay alive until the move is done.
    """

    def done(self) -> bool:
        """True once nothing more will be written."""

    def wait(self, timeout: float = 60.0) -> MoveStats:
        """
        Waits at most `timeout` seconds. TimedOutError: it goes on, wait again.
        """

    def poll(self) -> MoveStats | None:
        """The outcome if done, else None; raises what wait() would."""

    def cancel(self) -> None:
        """
        Asks to stop: queued pieces are dropped, and engines are asked to end those in flight.
        """

    def fileno(self) -> int:
        """
        A descriptor that becomes readable when the move is done; valid while this object lives, not to be read or closed.
        """

    def __await__(self) -> Generator[Any, None, MoveStats]:
        """
        Under asyncio: the outcome, without blocking the loop. Cancelling the awaiting task does not cancel the move.
        """

    def __repr__(self) -> str: ...

class MoverStats:
    """Totals since the Mover was made."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def transfers(self) -> int:
        """Started."""

    @property
    def failed(self) -> int:
        """Ended with an error."""

    @property
    def cancelled(self) -> int:
        """Ended by cancel()."""

    @property
    def pieces(self) -> int:
        """Done."""

    @property
    def retries(self) -> int:
        """Pieces given to another engine after a failure."""

    @property
    def bytes(self) -> int:
        """Moved."""

    @property
    def in_flight_pieces(self) -> int:
        """With the engines now."""

    @property
    def queued_pieces(self) -> int:
        """Waiting now."""

    @property
    def degraded(self) -> list[str]:
        """
        What engines have to do without, and why: lines, such as that a GPU's driver does not load the kernel that gathers small copies.
        """

class Mover:
    """
    Moves extents with the engines of a machine. It works on the machine as it was when the mover was made. Dropped with its last transfer and cache, it cancels what is queued and waits for what is in flight.
    """

    def __init__(self, machine: Machine, *, route: str = 'measured', piece: int | None = None, in_flight_per_link: int | None = None) -> None:
        """
        `route`: one, brute_force, smart or measured. Pieces are at most `piece` bytes, and between two nodes at most `in_flight_per_link` bytes are in flight. Without them: what the engine prefers between memories (a GPU: 16 and 32 MiB), else 1 and 16 MiB.
        """

    def copy(self, to: Extent | Object, source: Extent | Object, *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', hint: Literal['automatic', 'keep', 'stream'] = 'automatic', route: str | None = None) -> Transfer:
        """
        Starts copying `source` to `to` (extents or whole objects of the same length).
        """

    def copy_all(self, pairs: Sequence[tuple[Extent | Object, Extent | Object]], *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand') -> Transfer:
        """
        Starts copying many pairs (to, source) as one move, in this order. Cheaper than as many calls of copy(), and neighbours are read together. Destinations must not overlap.
        """

    def stats(self) -> MoverStats:
        """Totals."""

    @property
    def machine(self) -> Machine:
        """The machine it works on."""

    @property
    def skipped(self) -> list[str]:
        """Engines nobody drives here, each with the reason."""

class CompletionQueue:
    """
    Tells the ends of any number of moves through one descriptor: for event loops. Awaiting a Transfer or a Block uses one for each loop.
    """

    def __init__(self) -> None:
        """Takes one descriptor."""

    def fileno(self) -> int:
        """Readable when take() has something."""

    @overload
    def add(self, transfer: Transfer, key: int) -> None:
        """Tells `key` when the move is done."""

    @overload
    def add(self, block: Block, key: int) -> None:
        """Tells `key` when the copy is there or has failed."""

    @overload
    def add(self, layer: KvLayer, key: int) -> None:
        """Tells `key` when the layer is there or has failed."""

    @overload
    def add(self, load: KvLoad, key: int) -> None:
        """Tells `key` when all layers are there or have failed."""

    @overload
    def add(self, stored: KvStored, key: int) -> None:
        """Tells `key` when all blocks are stored or refused."""

    def tell(self, key: int) -> None:
        """Tells `key` now."""

    def take(self) -> list[int]:
        """The keys of moves that have ended since the last call."""

class Percentiles:
    """Nanoseconds; None when nothing was counted."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def count(self) -> int:
        """Samples."""

    @property
    def p50(self) -> int | None:
        """Median."""

    @property
    def p90(self) -> int | None: ...

    @property
    def p99(self) -> int | None: ...

class CacheStats:
    """Counts since the cache was made."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def hits(self) -> int:
        """The copy was ready at access."""

    @property
    def inflight_hits(self) -> int:
        """The copy was on its way at access."""

    @property
    def misses(self) -> int:
        """Copy started by the access, or refused."""

    @property
    def prefetched(self) -> int:
        """Copies started by a plan."""

    @property
    def first_uses(self) -> int:
        """Prefetched copies used for the first time."""

    @property
    def late(self) -> int:
        """How many of those were not ready at that time."""

    @property
    def wasted_bytes(self) -> int:
        """Prefetched and dropped without a use."""

    @property
    def evictions(self) -> int:
        """Copies dropped to make space."""

    @property
    def promotions(self) -> int:
        """Moved to the first memory of a chain."""

    @property
    def demotions(self) -> int:
        """Moved to a further memory of a chain."""

    @property
    def invalidations(self) -> int:
        """Copies dropped by invalidate()."""

    @property
    def failures(self) -> int:
        """Copies that failed."""

    @property
    def refusals(self) -> int:
        """Got no copy: no space, or held for writing by others."""

    @property
    def written_back(self) -> int:
        """Write-backs that succeeded."""

    @property
    def write_failures(self) -> int:
        """Write-backs that failed."""

    @property
    def bytes_dirty(self) -> int:
        """Bytes newer than their source."""

    @property
    def bytes_used(self) -> int:
        """Bytes of all copies now."""

    @property
    def bytes_pinned(self) -> int:
        """Bytes held by blocks now."""

    @property
    def blocks(self) -> int:
        """The number of copies now."""

    @property
    def wait_time(self) -> Percentiles:
        """Waiting times of the waits that had to wait."""

    @property
    def copy_latency(self) -> Percentiles:
        """From start to ready."""

class Block:
    """
    A pin on the cached copy of one extent. Arrays and memoryviews made from it share its bytes, are read-only and hold the pin too; release() (or `with`) lets go of the block's own.
    """

    def now(self) -> memoryview | None:
        """
        The best bytes at this moment, without waiting: the copy once it is ready, unless only a GPU reaches it, else the source if a CPU can address it, else None.
        """

    def wait(self, timeout: float = 60.0) -> memoryview:
        """
        The copy, waiting at most `timeout` seconds; if it cannot be had, or only a GPU reaches it, the source, and for a file the error.
        """

    def write(self, timeout: float = 60.0) -> memoryview:
        """
        The bytes to change, of a block accessed with write=True; waits for the copy at most `timeout` seconds. Others see the changes once the block and all views of it are released.
        """

    def __await__(self) -> Generator[Any, None, memoryview]:
        """Under asyncio: what wait() gives, without blocking the loop."""

    def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8', timeout: float = 60.0) -> numpy.typing.NDArray[Any]:
        """wait() as an array."""

    @property
    def state(self) -> Literal['absent', 'filling', 'ready', 'failed', 'evicting']:
        """Where the copy is in its life."""

    @property
    def hit(self) -> bool:
        """Whether the copy was there already when access() was called."""

    @property
    def node(self) -> int | None:
        """
        The node of the copy once it is ready, else the one that now() would read, or None.
        """

    @property
    def extent(self) -> Extent:
        """The extent asked for."""

    def clone(self) -> Block:
        """Another pin on the same copy."""

    def release(self) -> None:
        """Lets go of the pin; views made from it still hold theirs."""

    def __len__(self) -> int: ...

    def __enter__(self) -> Block: ...

    def __exit__(self, *error: object) -> None: ...

    def __repr__(self) -> str: ...

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """
        The copy for PyTorch and CuPy, read-only, where it is in memory that only a GPU reaches; waits for it. The array does not hold the pin: the block must live as long.
        """

    @property
    def device_address(self) -> int | None:
        """
        Where code of a GPU finds the copy once it is ready; None for what CPUs reach.
        """

    def wait_on_gpu(self, timeout: float = 60.0) -> int:
        """device_address, waiting for the copy at most `timeout` seconds."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class PrefetchProgress:
    """How far a plan has come."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def planned(self) -> int:
        """Extents in all."""

    @property
    def started(self) -> int:
        """Copy started, or found in the cache."""

    @property
    def used(self) -> int:
        """Accessed at least once since."""

    @property
    def invalid(self) -> int:
        """Not inside their object, so never fetched."""

    @property
    def cancelled(self) -> bool:
        """Whether it was."""

class Prefetch:
    """A running prefetch plan. Dropping it cancels it."""

    def cancel(self) -> None:
        """Starts no more copies and lets those not yet used be evicted."""

    def progress(self) -> PrefetchProgress: ...

    def __enter__(self) -> Prefetch: ...

    def __exit__(self, *error: object) -> None: ...

class Cache:
    """
    Keeps copies of extents in fast memory, fetches planned ones ahead of their use, and never serves old bytes. Keeps an object alive while it reads from it, or has changes of it that are not written back (of a file: not durable by sync()); the copies of one that nobody else holds go with it, sooner or later.
    """

    def __init__(self, mover: Mover, budgets: Mapping[int, int], *, placement: int | Placement | str | None = None, route: str | None = None, eviction: str = 's3-fifo', slab: int = 33554432, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', reserve: bool = False, shards: int = 0, writable: bool = False, chain: Sequence[tuple[int, int]] = (), trace: str | os.PathLike | None = None) -> None:
        """
        `budgets`: bytes of copies per node. `placement`: always this node or placement ('gpu', 'gpu:dram': where the first has no space, the next) instead of the nearest fast one. `eviction`: s3-fifo, sieve or clock. `reserve`: all memory is made now and kept, so that no access pays for its first touch. `shards`: parts with a lock and an equal share of each budget, a power of two; 0: one for each two CPUs, each with at least 256 MiB. `writable`: blocks can be written (access with write=True); with several shards, no extent may cross a multiple of their stretch. `chain`: further memories as (node, bytes), the fastest first: blocks are demoted to them instead of evicted, and promoted when accessed. `trace`: a file for the lives of blocks, which ui.perfetto.dev shows; it is whole when the cache is gone.
        """

    def access(self, extent: Extent | Object, *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', initiator: int | None = None, plan: Prefetch | None = None, space_timeout: float = 0.0, write: bool = False, lock_timeout: float = 60.0) -> Block:
        """
        The block of an extent: a pin on a ready copy, on one in flight, or on one started now. Waits for no copy; a miss may allocate memory. `plan`: whose extent this uses; a plan that was named once counts only accesses that name it. `space_timeout`: seconds to wait for space while blocks hold all of the budget; then the block stands for the source. In a writable cache, `write` takes the block for writing: no other block holds its bytes meanwhile. `lock_timeout`: seconds to wait for those that do. A block without a copy has no bytes there: the source may be older.
        """

    def access_all(self, extents: Sequence[Extent | Object], *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', initiator: int | None = None, plan: Prefetch | None = None, space_timeout: float = 0.0) -> list[Block]:
        """The same for many at once; each miss waits `space_timeout` for itself."""

    def read(self, extent: Extent | Object, *, block: int = 1048576, timeout: float = 60.0, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', plan: Prefetch | None = None) -> bytes:
        """
        The bytes of an extent, read through blocks of `block` bytes on a grid from the object's start, so that reads of any shape share copies. Waits at most `timeout` seconds for each. Other threads run meanwhile.
        """

    def readinto(self, extent: Extent | Object, into: _Buffer, *, block: int = 1048576, timeout: float = 60.0, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', plan: Prefetch | None = None) -> None:
        """As read(), into a writable buffer of the same length."""

    def prefetch(self, extents: Sequence[Extent | Object], *, lead: float = 0.05, window: int = 67108864, initiator: int | None = None, named: bool = False) -> Prefetch:
        """
        Plans the use of extents in this order and fetches them ahead: `lead` seconds before use, at most `window` bytes unused at a time. `named`: only accesses with `plan=` are uses of it, from the beginning.
        """

    def write_back(self, extent: Extent | Object | None = None, timeout: float = 60.0) -> None:
        """
        Writes the blocks that are dirty now, or those that overlap `extent`, to their sources, and waits at most `timeout` seconds. They stay cached. What could not be written stays dirty: the next call tries again.
        """

    def sync(self, extent: Extent | Object | None = None, timeout: float = 60.0) -> None:
        """write_back(), then fdatasync() of each file that was written: durable."""

    def discard(self, extent: Extent | Object, timeout: float = 60.0) -> None:
        """
        Drops the copies of an extent, also dirty ones: their changes are lost.
        """

    def invalidate(self, extent: Extent | Object) -> bool:
        """
        Announces a changed source: no access after it sees bytes read before it was called. False: blocks that are dirty or held for writing stay; discard() drops them.
        """

    def flush(self) -> None:
        """Drops all copies that nobody holds and no plan protects."""

    def clear(self) -> None:
        """Drops all copies and cancels plans; blocks held keep what they have."""

    def resize(self, node: int, budget: int) -> None:
        """Changes the budget of a node."""

    def stats(self) -> CacheStats:
        """Counts."""

    def metrics(self, name: str = 'cache') -> str:
        """
        The counts as OpenMetrics text, with the label cache=`name`: the answer to Prometheus.
        """

def kv_key(name: bytes) -> bytes:
    """
    The key of a block that something else names, such as an engine: 16 bytes are the key, other lengths are hashed. Stores take names instead of keys.
    """

class KvGeometry:
    """What decides the bytes of a KV block, and how many they are."""

    def __init__(self, model: str, *, layers: int, kv_heads: int, head_dim: int, element_bytes: int = 2, block_tokens: int = 16, tensors: int = 2, revision: str = '', any_size: bool = False) -> None:
        """
        `tensors`: keys and values, or 1 where one latent vector stands for both. `revision`: whatever else the bytes depend on, such as weights. `any_size`: blocks have any size up to 1 GiB, and no layers; block_bytes is the unit of space, of which a block takes as many as it needs.
        """

    @property
    def model(self) -> str:
        """Part of each key."""

    @property
    def revision(self) -> str:
        """Part of each key."""

    @property
    def layers(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def element_bytes(self) -> int: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def tensors(self) -> int: ...

    @property
    def any_size(self) -> bool: ...

    @property
    def fragment_bytes(self) -> int:
        """One layer of a block."""

    @property
    def block_bytes(self) -> int:
        """All layers."""

    def keys(self, tokens: Sequence[int], *, salt: str = '') -> list[bytes]:
        """
        The keys of the whole blocks of a prompt, 16 bytes each: BLAKE2b over the key before and the tokens of the block. `salt`: an adapter or tenant that shares a store with others; whoever has another salt has other keys.
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class KvStoredCounts:
    """What became of the blocks of a store()."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def stored(self) -> int: ...

    @property
    def present(self) -> int:
        """Were there already."""

    @property
    def refused(self) -> int:
        """No room: too much in flight, or all pinned."""

    @property
    def failed(self) -> int:
        """Their copy did."""

class KvTierStats:
    """One tier."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """The kind of memory, or the folder."""

    @property
    def budget(self) -> int:
        """Bytes, whole blocks."""

    @property
    def used(self) -> int:
        """Bytes of blocks now."""

    @property
    def blocks(self) -> int:
        """Blocks now."""

    @property
    def hits(self) -> int:
        """Blocks loaded from it."""

    @property
    def loaded(self) -> int:
        """Bytes loaded from it."""

    @property
    def arrived(self) -> int:
        """Blocks that came from another tier."""

    @property
    def evicted(self) -> int:
        """Blocks that left it; another tier has them."""

    @property
    def dropped(self) -> int:
        """Blocks that left it and are gone."""

class KvStats:
    """Counts since the store was opened."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def tiers(self) -> list[KvTierStats]:
        """From fast to slow."""

    @property
    def matched(self) -> int:
        """Blocks found by match()."""

    @property
    def missed(self) -> int:
        """Blocks it did not find."""

    @property
    def stores(self) -> KvStoredCounts:
        """What became of blocks given to store()."""

    @property
    def failed(self) -> int:
        """Blocks that could not be written to a slower tier."""

    @property
    def damaged(self) -> int:
        """Copies dropped: unreadable, or other bytes."""

    @property
    def reopened(self) -> int:
        """Blocks found when the store was opened."""

    @property
    def in_flight(self) -> int:
        """Bytes of stores now."""

    @property
    def pinned(self) -> int:
        """Bytes of blocks held by matches and loads now."""

    @property
    def last_error(self) -> str:
        """Of a tier; empty: none."""

    @property
    def last_error_age(self) -> float | None:
        """Seconds since it; while it goes on, few."""

class KvMatch:
    """
    Blocks that are there. Holds them where they are until release(), the end of `with`, or until it is dropped.
    """

    @property
    def keys(self) -> list[bytes]:
        """Of the blocks, for load()."""

    @property
    def tiers(self) -> list[int]:
        """The number of the fastest tier that has each block."""

    def __len__(self) -> int: ...

    def release(self) -> None:
        """Lets the blocks go."""

    def __enter__(self) -> KvMatch: ...

    def __exit__(self, *error: object) -> None: ...

class KvLayer:
    """One layer of a load: await it, or wait for it."""

    def done(self) -> bool:
        """True once all of it is there and verified, or it has failed."""

    def wait(self, timeout: float = 60.0) -> None:
        """
        Waits at most `timeout` seconds; the layer becomes urgent. IoError: blocks of it could not be read or were damaged, and KvLoad.leading says what is left.
        """

    def urgent(self) -> None:
        """Somebody has come to wait for it: from now on it goes as demand."""

    def __await__(self) -> Generator[Any, None, None]:
        """Under asyncio: as wait(), without blocking the loop."""

class KvLoad:
    """Blocks on their way into memory, which is kept until they are there."""

    @property
    def layers(self) -> int: ...

    def layer(self, layer: int) -> KvLayer:
        """One layer, to be awaited."""

    def done(self) -> bool:
        """True once nothing more will be written."""

    def wait(self, timeout: float = 60.0) -> None:
        """All layers; raises the first error of any."""

    def __await__(self) -> Generator[Any, None, None]:
        """Under asyncio: as wait(), without blocking the loop."""

    @property
    def leading(self) -> int:
        """How many leading blocks are not missing and have not failed so far."""

    @property
    def loaded(self) -> list[bool]:
        """
        For each block of load() whether it is there and right. InvalidError: not done().
        """

    def cancel(self) -> None:
        """Asks to stop; layers that are there stay."""

class KvStored:
    """
    Blocks on their way from memory, which is kept and must not change until they are stored.
    """

    def done(self) -> bool: ...

    def wait(self, timeout: float = 60.0) -> KvStoredCounts:
        """What became of each block."""

    def __await__(self) -> Generator[Any, None, KvStoredCounts]:
        """Under asyncio: as wait(), without blocking the loop."""

class KvStore:
    """headrace.kvcache.Store, with memory given as objects."""

    def __init__(self, mover: Mover, geometry: KvGeometry, tiers: Sequence[tuple[str, int, bool, bool]], folder: tuple[Sequence[tuple[str, int]], Literal['leaving', 'idle', 'stored'], Literal['all', 'found'], bool] | None, *, eviction: str, in_flight: int, load_ahead: int, workers: int, list_dropped: bool, shared: bool) -> None:
        """
        Memories: where, bytes, whether pinned, and whether touched at once. The folders: paths and bytes, when they are written, what is verified, and whether others are emptied.
        """

    @property
    def geometry(self) -> KvGeometry: ...

    @property
    def shared_files(self) -> tuple[int | None, int] | None:
        """
        Descriptors of the first tier's memory, if that is memory, and of the index, for a KvShared of another process. They belong to the store. None: it is not shared.
        """

    def match_keys(self, keys: Sequence[bytes]) -> KvMatch:
        """Pins the leading blocks that are there."""

    def pin(self, keys: Sequence[bytes]) -> KvMatch:
        """Pins those of the blocks that are there, also behind missing ones."""

    def touch(self, keys: Sequence[bytes]) -> None:
        """Counts a use of those that are there: they leave later."""

    def take_dropped(self) -> list[bytes]:
        """
        Keys of blocks that left the store for good since the last call, except by remove() and clear(); at most 2^20. Empty unless the store was opened with list_dropped=True.
        """

    def store_object(self, keys: Sequence[bytes], source: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], priority: Literal['demand', 'prefetch', 'migration'], stream: int | None) -> KvStored:
        """As headrace.kvcache.Store.store()."""

    def load_object(self, keys: Sequence[bytes], into: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], layer_order: bool, priority: Literal['demand', 'prefetch', 'migration'], deadlines: Sequence[float], promote: bool, stream: int | None) -> KvLoad:
        """As headrace.kvcache.Store.load()."""

    def load_block_objects(self, keys: Sequence[bytes], into: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], priority: Literal['demand', 'prefetch', 'migration'], promote: bool, stream: int | None) -> KvLoad:
        """As headrace.kvcache.Store.load_blocks()."""

    def contains(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of them are there now; holds nothing, and counts as no match."""

    def sizes(self, keys: Sequence[bytes]) -> list[int | None]:
        """As contains(): the bytes of each, None if it is not there."""

    def remove(self, keys: Sequence[bytes]) -> int:
        """
        From now on they are not found, after reopening either; how many were there or on their way. What is held or being copied ends as it would have, and a block of that key is refused until then. flush() waits for what has to be written.
        """

    def clear(self) -> int:
        """As remove() of all."""

    def stats(self) -> KvStats:
        """Counts."""

    def flush(self, timeout: float = 60.0) -> None:
        """
        Writes blocks to the folder that are only in memory, as far as its budget has slots. Covers blocks whose store() began before the call. Then everything written so far is made durable (fdatasync), which `timeout` does not bound. IoError: some blocks could not be written, a disk did not take them, or a file of the folder was removed or cut. TimedOutError: some blocks were written.
        """

    def close(self, *, flush: bool = True, timeout: float = 60.0) -> None:
        """
        Ends what goes on and lets tiers and folder go: another store may open it at once. `flush`: flush() first; where that fails it is closed, and the error raised. Loads are cancelled, matches hold nothing any more, and later calls are a CancelledError; closing twice is none. All for at most `timeout` seconds, which does not bound the fdatasync of flush(); after a flush that took them all copies in flight have one more. TimedOutError: either it is closed, and what was not written in time is gone, or some copies, as of a GPU that hangs, have not ended; tiers and folder stay taken until it is closed again. Ctrl-C ends the flush, and copies in flight have one second, which a second Ctrl-C ends; without a flush the first does. If they have not ended then, a note of the exception says that the store is still to be closed. Dropping a store that is not closed waits for them all the same; where they do not end, the process does, after at most 200 s: a GPU may still write to its memory.
        """

    @property
    def closed(self) -> bool:
        """Whether it takes nothing any more."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None:
        """close()."""

class KvJobs:
    """
    Loads and stores of whole blocks between a KvStore and one memory, begun by a thread, for callers that must not wait: a call lists names and positions, and takes a few microseconds. Jobs are begun in the order of their calls. Thread-safe.
    """

    def __init__(self, store: KvStore, memory: Extent | Object) -> None: ...

    def store(self, number: int, keys: Sequence[bytes], positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        As KvStore.store(). Until the job has ended the memory must not change.
        """

    def load(self, number: int, keys: Sequence[bytes], positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, part: int, promote: bool) -> None:
        """
        As KvStore.load_blocks(), in parts of `part` blocks, one of which is verified while the next is read; 0: in one.
        """

    def take(self) -> list[tuple[int, list[bool], int, str]]:
        """
        Jobs that have ended since the last call: the number, for each block of a load whether it is there and right, how many were loaded or kept, and why some were not begun.
        """

    def wait(self, timeout: float = 60.0) -> None:
        """Waits until all jobs have ended."""

    def close(self) -> None:
        """
        Takes no more jobs, and ends its thread once it has begun all. The object still holds store and memory.
        """

class KvShared:
    """
    Blocks of a KvStore of another process, which opened it with shared=True: found and copied without a call to that process. Thread-safe. CancelledError: that store is closed. UnsupportedError: in a child of fork().
    """

    def __init__(self, geometry: KvGeometry, memory: int | None, index: int) -> None:
        """Maps what KvStore.shared_files gives, and leaves the descriptors open."""

    @property
    def geometry(self) -> KvGeometry: ...

    def contains(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of them the store has now, in any tier."""

    def read(self, keys: Sequence[bytes], into: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int]) -> list[bool]:
        """
        Copies those of the blocks that are in the store's memory, and says which. The memory of others may have been overwritten.
        """

    def copy(self, which: Sequence[bool], staging: Extent | Object, user: Sequence[Extent | Object], *, to_user: bool, layout: Literal['page_first', 'layer_first'], positions: Sequence[int]) -> None:
        """
        Copies these blocks between `staging`, where they lie one after the other, and the user's memory.
        """

class Capabilities:
    """Facts about an open backend."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """cpu, storage, ..."""

    @property
    def engines(self) -> list[int]:
        """Engines it drives."""

    @property
    def max_piece(self) -> int:
        """Bytes; larger pieces are refused."""

    @property
    def max_in_flight(self) -> int:
        """Pieces per engine."""

    @property
    def min_efficient(self) -> int:
        """Bytes; smaller pieces cost more than they move."""

    @property
    def inline_below(self) -> int:
        """Bytes; smaller pieces are copied at once."""

    @property
    def note(self) -> str:
        """In words."""

class Backends:
    """What drives the engines of a machine, here and now."""

    @staticmethod
    def open(machine: Machine) -> Backends:
        """Opens all that work here."""

    @property
    def capabilities(self) -> list[Capabilities]:
        """Facts about each."""

    @property
    def skipped(self) -> list[str]:
        """Engines nobody drives here, each with the reason."""

def copy_bytes(to: _Buffer, source: _Buffer, *, hint: Literal['automatic', 'keep', 'stream'] = 'automatic') -> None:
    """Copies memory with the calling core, without the GIL."""

def copy_kernels() -> list[str]:
    """Names of the non-temporal kernels this CPU can run."""

def chosen_copy_kernel() -> str:
    """The one the calibration chose for cold data."""

class ParameterInfo:
    """A parameter of an experiment."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """As rows and `only` have it."""

    @property
    def kind(self) -> Literal['node', 'count', 'count_or_all', 'word', 'operation', 'mix', 'any']:
        """What values it has."""

    @property
    def required(self) -> bool:
        """False: profiles of others and of older versions may lack it."""

class ExperimentInfo:
    """What measure() can measure."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """As measure() takes it."""

    @property
    def description(self) -> str:
        """One line."""

    @property
    def parameters(self) -> list[ParameterInfo]:
        """Those of its rows, in their order."""

    @property
    def details(self) -> list[str]:
        """That each of its rows with a number has."""

def experiments() -> list[ExperimentInfo]:
    """All experiments, in their order."""

def measure(machine: Machine, *, experiments: Sequence[str] = (), only: Mapping[str, int | str | Sequence[int | str]] = {}, selections: Sequence[tuple[str, Mapping[str, int | str | Sequence[int | str]]]] = (), budget: float | None = 60.0, width: float = 0.03, seed: int = 1, directory: str | os.PathLike[str] = '.', known: Sequence[Row] = (), rounds: int | None = None, launches: int = 1, repetitions: int = 3, noise_checks: bool = True, stop: Callable[[], bool] | None = None, progress: Callable[[int, int], object] | None = None) -> Profile:
    """
    Measures this host. Only points with the parameters of `only` are rows, any of several values; a node may be given by its kind. `selections` are pairs of an experiment and such parameters, in the place of these two. `directory` is on the disk that `storage` measures. `budget` is in seconds, None for everything until it is certain; `width` the part of the median that its 95 % interval may be wide; rows of `known` with a number are kept. Each point is measured `rounds` times, if given, on fresh memory, each time by `repetitions` of which the middle one counts. Of `launches` that are merged each measures a point twice without a budget, and once what is wanted last. `stop` is asked between points; when it says True the rows so far are returned.
    """

class PlannedPoint:
    """A point as measure() would begin."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def row(self) -> Row:
        """Without a number; with a reason if it is not measured."""

    @property
    def time(self) -> float:
        """Estimated seconds in all; 0 if it is not measured."""

    @property
    def distance(self) -> str:
        """Memory to CPUs, or target to source: near, socket, far; else empty."""

def plan_session(machine: Machine, *, experiments: Sequence[str] = (), only: Mapping[str, int | str | Sequence[int | str]] = {}, budget: float | None = 60.0, directory: str | os.PathLike[str] = '.', known: Sequence[Row] = (), rounds: int | None = None, launches: int = 1) -> list[PlannedPoint]:
    """
    What measure() would do, without measuring anything; also of a machine that is not this host.
    """

def measure_quickly(machine: Machine, directory: str | os.PathLike[str], *, stop: Callable[[], bool] | None = None, progress: Callable[[int, int], object] | None = None) -> Profile:
    """
    A quick session of some seconds: memory, copies, and the disk behind `directory`.
    """

class Interval:
    """Between low and high."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

class Summary:
    """Centre and spread of repeated measurements."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def runs(self) -> int:
        """Samples."""

    @property
    def median(self) -> float:
        """Ignores up to half of the samples being disturbed."""

    @property
    def mad(self) -> float:
        """Median absolute deviation, unscaled."""

    @property
    def min(self) -> float: ...

    @property
    def max(self) -> float: ...

    @property
    def interval(self) -> Interval:
        """Of the median, by `coverage`; else a range."""

    @property
    def coverage(self) -> float | None:
        """
        The stated chance that `interval` holds the true median; None: fewer than six runs.
        """

    @property
    def launches(self) -> int:
        """That the runs are of."""

    @property
    def interval_words(self) -> str:
        """What `interval` is: '95 %', 'range of 3'."""

def summarize(samples: Sequence[float]) -> Summary | None:
    """The summary, or None for no samples."""

def format_bytes(bytes: int) -> str:
    """64 KiB, 1.5 GiB: binary multiples."""

def format_rate(bytes_per_second: float) -> str:
    """24.1 GB/s: decimal multiples."""

class StreamRun:
    """One repetition of a kernel of STREAM."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bytes(self) -> int:
        """As STREAM counts: stores not fetched first."""

    @property
    def seconds(self) -> float:
        """From the first thread's start to the last one's end."""

    @property
    def cpu_share(self) -> float:
        """The part of it in which threads had their CPUs."""

def stream_kernels() -> list[str]:
    """Their names."""

def stream_fill(a: _Buffer, b: _Buffer, c: _Buffer, cpus: Sequence[int]) -> None:
    """
    What the arrays must hold before each repetition, written by a thread on each CPU.
    """

def stream_run(kernel: str, a: _Buffer, b: _Buffer, c: _Buffer, cpus: Sequence[int]) -> StreamRun:
    """
    One repetition after stream_fill(), and a look at what it left (IoError).
    """

class UnifiedMemoryGpu:
    """A GPU to measure on."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def capacity(self) -> int:
        """Bytes."""

    @property
    def managed_bytes(self) -> int:
        """The most managed memory that is not oversubscribed now."""

    @property
    def paradigm(self) -> str:
        """How it reaches memory of the host: ats, hmm, managed, limited."""

def unified_memory_gpu(machine: Machine, device: int = 0) -> UnifiedMemoryGpu:
    """That of this host by the driver's number."""

class Row:
    """One point of one experiment: a number with its spread, or why not."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def experiment(self) -> str:
        """latency, bandwidth, ..."""

    @property
    def parameters(self) -> dict[str, int | str]:
        """What was set for this point, in the experiment's order."""

    @property
    def unit(self) -> str:
        """The unit of the number: ns, B/s."""

    @property
    def median(self) -> float | None:
        """Median of the samples; None if not measured."""

    @property
    def mad(self) -> float | None:
        """Median absolute deviation, unscaled."""

    @property
    def min(self) -> float | None:
        """The least sample."""

    @property
    def max(self) -> float | None:
        """The largest sample."""

    @property
    def low(self) -> float | None:
        """The lower end of `interval`."""

    @property
    def high(self) -> float | None:
        """The upper end of `interval`."""

    @property
    def interval(self) -> str | None:
        """
        What low to high is: '95 %' or '95 % of 6 launches', an interval of the median; 'range of 3' of fewer than six.
        """

    @property
    def samples(self) -> list[float]:
        """One per mapping of memory."""

    @property
    def launches(self) -> list[int]:
        """How many samples each launch gave; empty: one launch."""

    @property
    def details(self) -> dict[str, float]:
        """Further numbers; the experiment says which."""

    @property
    def words(self) -> dict[str, str]:
        """Further words: by which kernel it was measured."""

    @property
    def flags(self) -> list[str]:
        """
        noisy, few, shrunk, side_cached, cpu_limited, throttled, cache_doubted, not_huge, unsteady, fitted; without a number: absent, left_out, stopped.
        """

    @property
    def basis(self) -> Literal['measured', 'modelled', 'published', 'emulated']:
        """What the number rests on; a profile has no modelled row."""

    @property
    def reason(self) -> str:
        """Why there is no number."""

    @property
    def source(self) -> str:
        """Where a published number comes from; empty: measured here."""

    @property
    def stands_for(self) -> list[str]:
        """Parameters of points of alike nodes that were not measured for it."""

    @property
    def cpus(self) -> str:
        """The CPUs that its threads ran on: '0-3,8'; empty: not chosen."""

    @staticmethod
    def fromdict(document: dict[str, Any]) -> Row:
        """The row that asdict() wrote."""

    @property
    def key(self) -> str:
        """
        Experiment and parameters: the same for the same point of two profiles.
        """

class Profile:
    """
    A machine with what was measured on it: one JSON document that is also the machine's. Plain data.
    """

    @staticmethod
    def load(path_or_preset: str | os.PathLike) -> Profile:
        """
        Reads a file, or a machine that comes with Headrace, as Machine.load does; a machine's document is a profile without rows.
        """

    @staticmethod
    def from_json(text: str) -> Profile:
        """Parses what to_json() wrote."""

    @staticmethod
    def fromdict(document: dict[str, Any]) -> Profile:
        """The profile that asdict() wrote, or json.load() read."""

    def to_json(self) -> str:
        """One JSON document, schema_version first."""

    def asdict(self) -> dict[str, Any]:
        """What to_json() writes, as a dict."""

    def save(self, path: str | os.PathLike) -> None:
        """Replaces the file at once: a reader sees the old one or the new one."""

    @property
    def machine(self) -> Machine:
        """What it was measured on."""

    @property
    def rows(self) -> list[Row]:
        """The rows, in the order of measuring."""

    @property
    def conditions(self) -> dict[str, str]:
        """How and when: date, version, seed, ..."""

    @property
    def published(self) -> bool:
        """Whether some of its numbers were published by others."""

    def __repr__(self) -> str: ...

class CopyFit:
    """T(V) = latency + V / bandwidth over the sizes of a copy."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """Whose CPUs copied."""

    @property
    def from_node(self) -> int:
        """Where the bytes were."""

    @property
    def to_node(self) -> int:
        """Where they were copied to."""

    @property
    def threads(self) -> int:
        """How many copied at once."""

    @property
    def state(self) -> str:
        """cold or hot."""

    @property
    def engine(self) -> str:
        """cpu, memcpy, or one kernel."""

    @property
    def latency_ns(self) -> float:
        """Never below zero."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of all threads."""

    @property
    def points(self) -> int:
        """The number of sizes."""

    @property
    def median_error(self) -> float:
        """Median of |fitted / measured - 1|."""

    @property
    def largest_error(self) -> float:
        """The largest |fitted / measured - 1|."""

class Crossover:
    """From this size on another engine copies fastest."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """Whose CPUs copied."""

    @property
    def from_node(self) -> int:
        """Where the bytes were."""

    @property
    def to_node(self) -> int:
        """Where they were copied to."""

    @property
    def threads(self) -> int:
        """How many copied at once."""

    @property
    def state(self) -> str:
        """cold or hot."""

    @property
    def bytes(self) -> int:
        """The first measured size."""

    @property
    def engine(self) -> str:
        """cpu or memcpy."""

class Knee:
    """Where a curve of loaded latency bends: most bandwidth per latency."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """Whose CPU observes the latency."""

    @property
    def memory_node(self) -> int:
        """Which memory it reads."""

    @property
    def traffic_cpu_node(self) -> int:
        """Whose CPUs make the traffic."""

    @property
    def traffic_memory_node(self) -> int:
        """Which memory they load."""

    @property
    def mix(self) -> str:
        """The mix of reads and writes of the traffic."""

    @property
    def threads(self) -> int:
        """
        Threads of traffic, where so many were asked for; 0: on all CPUs of its node.
        """

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the traffic at the knee."""

    @property
    def latency_ns(self) -> float:
        """The latency at the knee."""

    @property
    def idle_ns(self) -> float:
        """The latency without traffic, or with the least."""

    @property
    def bandwidth_at_1_5(self) -> float | None:
        """
        What the traffic reaches at 1.5 times that latency; None: it does not get there.
        """

    @property
    def bandwidth_at_2(self) -> float | None:
        """The same at twice that latency."""

class CacheStep:
    """A plateau of latency against working-set size."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """Whose CPU read."""

    @property
    def memory_node(self) -> int:
        """Which memory it read."""

    @property
    def name(self) -> str:
        """L1, L2, ..., memory."""

    @property
    def from_size(self) -> int:
        """The smallest size measured on it, in bytes."""

    @property
    def to_size(self) -> int:
        """The largest, in bytes."""

    @property
    def latency_ns(self) -> float:
        """Median over these sizes."""

def copy_fits(profile: Profile) -> list[CopyFit]:
    """A fit for each series and engine with three sizes or more."""

def crossovers(profile: Profile) -> list[Crossover]:
    """
    Where cpu or memcpy clearly takes over; the first of a series is at the smallest size of both.
    """

def knees(profile: Profile) -> list[Knee]:
    """
    The knee of each curve with four quiet points or more, of three mappings each, whose latency does not fall as the traffic grows.
    """

def cache_steps(profile: Profile) -> list[CacheStep]:
    """The steps of each pair of nodes, from small to large."""

def merge(launches: Sequence[Profile]) -> Profile:
    """
    Several launches of one measurement as one profile: all samples together.
    """

class Difference:
    """One point of two profiles."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def key(self) -> str:
        """Experiment and parameters."""

    @property
    def unit(self) -> str:
        """The unit of both values."""

    @property
    def in_caches(self) -> bool:
        """Whether this is a cache row; they are judged separately from memory."""

    @property
    def outcome(self) -> Literal['same', 'changed', 'inconclusive', 'noisy', 'too_few', 'other_pages', 'only_old', 'only_new', 'unmeasured']:
        """
        changed: by more than noise; noisy, too_few, other_pages, inconclusive: not judged.
        """

    @property
    def old_value(self) -> float | None:
        """
        Median, of several runs the geometric mean of them; None if not measured.
        """

    @property
    def new_value(self) -> float | None:
        """As old_value."""

    @property
    def ratio(self) -> float | None:
        """new / old."""

    @property
    def threshold(self) -> float:
        """A larger |ln(ratio)| is a change."""

    @property
    def old_runs(self) -> int:
        """Runs that old_value is of."""

    @property
    def new_runs(self) -> int:
        """Runs that new_value is of."""

class Shift:
    """All rows of one experiment together."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def experiment(self) -> str:
        """latency, bandwidth, ..."""

    @property
    def in_caches(self) -> bool:
        """Whether it covers the cache rows, or all other rows."""

    @property
    def rows(self) -> int:
        """How many rows were judged."""

    @property
    def ratio(self) -> float:
        """Median of new / old."""

    @property
    def threshold(self) -> float:
        """A larger |ln(ratio)| is a change."""

    @property
    def changed(self) -> bool:
        """Beyond the threshold, and judged by five rows, of several runs by two."""

class Comparison:
    """What differs between two profiles."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def rows(self) -> list[Difference]:
        """In the order of the old profile, then those that only the new one has."""

    @property
    def shifts(self) -> list[Shift]:
        """One per experiment."""

    @property
    def changed(self) -> bool:
        """Whether any row or any experiment changed."""

    @property
    def inconclusive(self) -> bool:
        """
        No change is certain, but more than a tenth of the rows are inconclusive.
        """

    @property
    def judged(self) -> int:
        """How many rows were judged."""

    @property
    def expected(self) -> int:
        """How many rows have an old value."""

def compare(before: Profile | Sequence[Profile], after: Profile | Sequence[Profile], least: float = 0.05) -> Comparison:
    """
    What differs beyond noise, and by at least `least`, a share of the old value. Of several profiles of a side, runs of the same, noise is what these differ by.
    """

class Spread:
    """What a spread over memories leads to."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def share(self) -> list[float]:
        """Of each node, in the advice's order; adds up to 1."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the memories together."""

    @property
    def latency_ns(self) -> float | None:
        """Mean; None: the demand cannot be met."""

    @property
    def saturated(self) -> bool:
        """A memory gives all it can."""

    @property
    def tier_bandwidth(self) -> list[float]:
        """Bytes per second of each node."""

class NamedSpread:
    """A spread that one might choose."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """best, weights, node 0 only, 3:1, by bandwidth, ..."""

    @property
    def spread(self) -> Spread | None:
        """What it leads to; None: see reason."""

    @property
    def reason(self) -> str:
        """Why it cannot be."""

class AdvisedNode:
    """A memory that the advice considered."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def node(self) -> int:
        """The kernel's NUMA number."""

    @property
    def kind(self) -> Literal['dram', 'hbm', 'cxl', 'gpu', 'storage']:
        """What it is made of."""

    @property
    def share(self) -> float:
        """The best one."""

    @property
    def weight(self) -> int:
        """The same as an integer; 0: not used."""

    @property
    def idle_ns(self) -> float:
        """Its latency with the least load."""

    @property
    def best(self) -> float:
        """The most bytes per second that it gave."""

    @property
    def most_share(self) -> float:
        """Of the data set: what fits."""

    @property
    def basis(self) -> Literal['measured', 'modelled', 'published', 'emulated']:
        """What its curve rests on."""

    @property
    def source(self) -> str:
        """Who published its curve; empty: measured."""

class Flip:
    """The demand from which on a spread helps."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the memory."""

    @property
    def lines(self) -> float:
        """In flight there."""

class InterleaveAdvice:
    """How to spread a data set, and what that gives."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """Whose CPUs use the data."""

    @property
    def mix(self) -> str:
        """Of the program's loads and stores."""

    @property
    def bus(self) -> float:
        """Bytes of memory traffic per byte that the program reads or writes."""

    @property
    def demand(self) -> float | None:
        """Bytes per second asked of the memory; None: see lines."""

    @property
    def lines(self) -> float | None:
        """Lines in flight all the time; None: see demand."""

    @property
    def nodes(self) -> list[AdvisedNode]:
        """By idle latency."""

    @property
    def spreads(self) -> list[NamedSpread]:
        """The best, its weights, and others."""

    @property
    def weight_loss(self) -> float | None:
        """
        What whole weights cost, as a share; None: they give less than is asked.
        """

    @property
    def share_error(self) -> float:
        """The most that a share is off by."""

    @property
    def flip(self) -> Flip | None:
        """None: a spread never helps."""

    @property
    def warnings(self) -> list[str]:
        """What the figures do not say."""

LINES_PER_THREAD: float = 16.0

def advise_interleave(profile: Profile, *, cpu_node: int | None = None, mix: str = 'read', demand: float | None = None, lines: float | None = None, data: int | None = None, free: Mapping[int, int] = {}) -> InterleaveAdvice:
    """
    How much of a data set of `data` bytes belongs on which node, by loaded-latency curves. `demand`: bytes per second that the program reads and writes; or `lines` in flight.
    """

def pages_for(histogram: Sequence[tuple[float, float]], share: float) -> float:
    """
    The least pages that take this share of accesses; of (pages, accesses of each).
    """

def accesses_of(histogram: Sequence[tuple[float, float]], pages: float) -> float:
    """The share of accesses that the hottest pages take."""

def zipf_pages_for(exponent: float, pages: float, share: float) -> float:
    """As pages_for, of accesses as 1 / rank**exponent."""

def zipf_accesses_of(exponent: float, pages: float, hottest: float) -> float:
    """As accesses_of, of accesses as 1 / rank**exponent."""

class ServerSaving:
    """What CXL memory saves."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def servers(self) -> float:
        """With CXL, for one without."""

    @property
    def break_even(self) -> float:
        """The cost ratio that saves nothing."""

    @property
    def saving(self) -> float | None:
        """As a share of all cost; None without a cost ratio."""

class CostChange:
    """One input changed."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """Which one."""

    @property
    def value(self) -> float:
        """What to."""

    @property
    def result(self) -> ServerSaving | None:
        """What it leads to; None: out of the model's range."""

    @property
    def reason(self) -> str:
        """Then why."""

class InstanceGain:
    """What selling stranded CPUs brings."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def stranded(self) -> float:
        """As a share of all CPUs."""

    @property
    def cxl_gib(self) -> float:
        """Needed per CPU of the server."""

    @property
    def revenue(self) -> float | None:
        """More than without, as a share; None without a discount."""

def server_saving(dram_speed: float, cxl_speed: float, capacity_ratio: float, cost_ratio: float | None = None) -> ServerSaving:
    """
    Servers with CXL memory for one without, and what that saves; speeds relative to SSD.
    """

def cost_sensitivity(dram_speed: float, cxl_speed: float, capacity_ratio: float, cost_ratio: float | None = None, change: float = 0.1) -> list[CostChange]:
    """The same with each input a share less and a share more."""

def instance_gain(instance_gib: float, server_gib: float, discount: float | None = None) -> InstanceGain:
    """
    What CPUs without enough DRAM bring when they are sold with CXL memory.
    """

NUMA_BALANCING: str = 'proc/sys/kernel/numa_balancing'

KDAMONDS: str = 'sys/kernel/mm/damon/admin/kdamonds'

WEIGHTS: str = 'sys/kernel/mm/mempolicy/weighted_interleave'

STATE_FOLDER: str = 'run/headrace'

class Kdamond:
    """One of the kernel's threads for DAMON, as a program set it up."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def number(self) -> int:
        """Its folder."""

    @property
    def state(self) -> str:
        """on or off."""

    @property
    def pid(self) -> int | None:
        """PID of the thread."""

    @property
    def operations(self) -> list[str]:
        """vaddr or paddr, by context."""

    @property
    def actions(self) -> list[str]:
        """Those of its schemes."""

class MemoryGroup:
    """The group that counts this process's memory."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def version(self) -> int:
        """1 or 2."""

    @property
    def name(self) -> str:
        """'' for the root."""

    @property
    def folder(self) -> str:
        """A name of HostFiles."""

    @property
    def limit(self) -> int | None:
        """The tightest limit (bytes); None: no limit."""

    @property
    def limit_file(self) -> str:
        """Its file."""

    @property
    def used(self) -> int | None:
        """Bytes; None: unknown."""

class CpuTimeLimit:
    """CPU time of the tightest group."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpus(self) -> float:
        """In CPUs."""

    @property
    def file(self) -> str:
        """Its file."""

    @property
    def says(self) -> str:
        """The file's text."""

    @property
    def words(self) -> str:
        """"2.5 CPUs' time\""""

class HostFiles:
    """Files of /proc, /sys and /run by names such as 'proc/swaps'."""

    def __init__(self, root: str | os.PathLike = '/') -> None: ...

    @property
    def root(self) -> pathlib.Path:
        """Where /proc, /sys and /run are."""

    def path(self, name: str) -> pathlib.Path:
        """Where a file is."""

    def read(self, name: str) -> str | None:
        """
        The text without white space at its ends, switches as "1" and "0"; None: no such file. DeniedError: takes root.
        """

    def write(self, name: str, value: str) -> None:
        """Writes a setting. An Error: the kernel's reason."""

    def setting(self, name: str) -> str | None:
        """
        As read(); numa_balancing without the bit that `headrace tier attach` and `run` hold.
        """

    def set(self, name: str, value: str) -> None:
        """
        As write(); the bit of numa_balancing stays while it is held, and one that a killed holder left is cleared.
        """

    def writable(self, name: str) -> bool:
        """Whether the file exists and may be written."""

    def names(self, pattern: str) -> list[str]:
        """
        The names for a pattern, in order of numbers. An Error: a folder cannot be read.
        """

    @property
    def busy_bound(self) -> float:
        """How long busy files are tried again (s)."""

    @busy_bound.setter
    def busy_bound(self, arg: float, /) -> None: ...

    @property
    def lock_bound(self) -> float:
        """How long a lock is waited for (s)."""

    @lock_bound.setter
    def lock_bound(self, arg: float, /) -> None: ...

    def memory_tiers(self) -> list[tuple[int, list[int]]]:
        """Number and nodes of each of the kernel's tiers, fastest first."""

    def cpus(self, node: int) -> list[int]:
        """The CPUs of a node."""

    def distances(self, node: int) -> dict[int, int]:
        """Distances from a node, as firmware states them."""

    def write_bandwidth(self, node: int) -> int | None:
        """Bytes per second, as firmware states it; None: unknown."""

    def addresses(self, node: int) -> list[tuple[int, int]]:
        """Physical memory of a node, as ranges that do not touch."""

    def weights(self) -> dict[int, int]:
        """The kernel's weights of interleaving by node."""

    def memory_group(self) -> MemoryGroup | None:
        """The group that counts this process's memory; None: there is none."""

    def cpu_time_limit(self) -> CpuTimeLimit | None:
        """The CPU time of the tightest group; None: no limit."""

    def kdamonds(self) -> list[Kdamond] | None:
        """
        The kernel's threads for DAMON; None: no DAMON. DeniedError: takes root.
        """

    def damon_holders(self) -> list[str]:
        """The switches of kernel features that use DAMON now."""

    def check_damon_free(self, config: str, option: str) -> None:
        """An Error: why DAMON cannot be set up, and by whom it is used."""

def kdamond_files(number: int, *, regions: Sequence[tuple[int, int]], sample: float, aggregation: float, action: str, target: int, accesses: tuple[int, int], least_age: int, bytes_per_second: int) -> list[tuple[str, str]]:
    """
    The files of a kdamond on physical memory, and their values in order of writing.
    """

class Touch:
    """A range in which memory was touched."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def begin(self) -> int:
        """Its address."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def touched(self) -> int:
        """Bytes of it that were touched, in whole pages."""

class HotnessSample:
    """What one look found."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def touches(self) -> list[Touch]:
        """Ascending; what is in none was not touched."""

    @property
    def covered(self) -> float:
        """Seconds since the look before."""

    @property
    def unseen(self) -> int:
        """Tracked bytes about which nothing can be said."""

    @property
    def why_unseen(self) -> str:
        """Why; empty if there are none."""

class Tracking:
    """How a range is tracked."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def granularity(self) -> int:
        """Bytes that are told apart: a page, a chunk."""

    @property
    def note(self) -> str:
        """Why it is not what was asked for; empty if it is."""

class HotnessSource:
    """Tells which memory of this process was touched between two looks."""

    @property
    def traits(self) -> HotnessTraits:
        """What it sees, and at what price."""

    def track(self, memory: Object) -> Tracking:
        """
        Begins to track a Buffer or MemoryRange of whole pages, which it keeps alive until untrack().
        """

    def untrack(self, memory: Object) -> None:
        """Ends that."""

    def look(self) -> HotnessSample:
        """
        What was touched since the last look. ExhaustedError: sooner than the least interval.
        """

def open_hotness(kind: Literal['referenced', 'memfd', 'written'], *, chunk: int = 262144, least_interval: float = 0.1) -> HotnessSource:
    """
    Opens a source, and tries that it sees what it promises. `chunk`: bytes that 'referenced' tells apart. UnsupportedError, DeniedError: it is not there, with the reason. ExhaustedError: there is one 'referenced' in this process already.
    """

class HotChunk:
    """A chunk and its heat."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def begin(self) -> int:
        """Its address."""

    @property
    def heat(self) -> float:
        """0 to 1."""

class Hotness:
    """
    The heat of memory by chunks: the share that was touched between two looks, averaged with weights that halve every half-life.
    """

    def __init__(self, *, half_life: float = 10.0, chunk: int = 4096) -> None: ...

    def add(self, sample: HotnessSample) -> None:
        """Adds what a look of one source found."""

    def heat(self, address: int) -> float:
        """Heat of the chunk that holds the address; 0 if it was never touched."""

    def hottest(self) -> list[HotChunk]:
        """All chunks that are warm, the hottest first."""

class TierDecision:
    """A chunk of memory that went out, or came in, and why."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def begin(self) -> int:
        """Its address."""

    @property
    def comes_in(self) -> bool:
        """Whether it came in, or went out."""

    @property
    def bytes(self) -> int:
        """That were to move."""

    @property
    def heat(self) -> float:
        """From 0, not used, to 1."""

    @property
    def reason(self) -> str:
        """In words."""

class TierStep:
    """What one step did."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def decisions(self) -> list[TierDecision]:
        """In the order in which they were carried out."""

    @property
    def resident(self) -> int:
        """Bytes of all memory that is managed, after it."""

    @property
    def out(self) -> int:
        """Bytes of it that are in swap, or on other nodes than the fast ones."""

    @property
    def refused(self) -> int:
        """
        Bytes that were to move and did not: pinned, shared with a child made by fork, no room there; with swap also locked, or touched again at once.
        """

    @property
    def backed_off(self) -> int:
        """Resident bytes of chunks that refused before and were not tried again."""

    @property
    def undone(self) -> str:
        """By the guard, with why; empty if nothing was."""

class PageTier:
    """
    Memory of this process between DRAM and swap, or fast and slow nodes: the hot of it stays within a budget, the cold goes out.
    """

    @staticmethod
    def open(budget: int, *, fast: Sequence[int] = [], slow: Sequence[int] = [], hysteresis: float = 0.1, least_heat: float = 0.05, per_second: int = 67108864, chunk: int = 262144, half_life: float = 10.0, least_interval: float = 0.1, guard: float = 0.05) -> PageTier:
        """
        `budget`: bytes that may be resident, in DRAM or on the nodes `fast`. `slow`: nodes to which the cold goes; without any it is swap. `guard`: the share by which moves may lessen the work per second that step() is told; beyond, the last ones are undone. UnsupportedError: there is no swap or it is full, with what to do. AbsentError, DeniedError, ExhaustedError: nothing can move to one of the nodes.
        """

    def add(self, memory: Object) -> None:
        """
        Manages a Buffer or MemoryRange of whole pages, private and anonymous, which it keeps alive until remove().
        """

    def remove(self, memory: Object) -> None:
        """
        Ends that; what is out stays out: in swap until it is touched, on its node for ever.
        """

    def step(self, work: int | None = None) -> TierStep:
        """
        Looks, decides and moves: to be called each second or so. `work`: what the program has done since its start, in a unit of which it always does as many per second as it can; without it there is no guard. ExhaustedError: sooner than the least interval.
        """

    def decisions(self) -> list[TierDecision]:
        """The last ones, at most 1000, oldest first."""

def least_heat_that_pays(move: float, saved: float, half_life: float) -> float:
    """
    The least heat, and hysteresis, for PageTier at which a page pays for its move: `move` is seconds for a page in and one out, `saved` seconds that a page in the fast tier saves per second that it is in use. InvalidError: none pays.
    """

class HotnessTraits:
    """What a source of hotness sees, and at what price."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def kind(self) -> Literal['referenced', 'memfd', 'written']:
        """Its name."""

    @property
    def sees_reads(self) -> bool:
        """Whether memory that is read counts."""

    @property
    def sees_writes(self) -> bool:
        """Whether memory that is written counts."""

    @property
    def by_page(self) -> bool:
        """Tells pages apart; else bytes of each chunk."""

    @property
    def needs_root(self) -> bool:
        """Whether root has to ask."""

    @property
    def memory(self) -> str:
        """Which memory it can track."""

    @property
    def cost(self) -> str:
        """What it does to the program, in words."""

class HotnessCost:
    """What a source costs on this machine; medians."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def look_ns_per_page(self) -> float:
        """A look at memory of which each page was touched, ns per page."""

    @property
    def access_ns(self) -> float:
        """An access to a page while nobody looks, ns."""

    @property
    def first_access_ns(self) -> float:
        """The first access to a page after a look, ns."""

    @property
    def pages(self) -> int:
        """Those that were tracked."""

def hotness_sources() -> list[HotnessTraits]:
    """
    The sources for memory of one's own process, whether they are there or not.
    """

def measure_hotness_cost(kind: Literal['referenced', 'memfd', 'written'], memory: int = 16777216) -> HotnessCost:
    """
    Opens a source, tries it, and measures it on memory of its own, in less than half a second. UnsupportedError, DeniedError: it is not there, with the reason.
    """

class ArenaUse:
    """What was seen of an arena."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def most(self) -> int:
        """The most bytes of memory it had at once."""

    @property
    def heat(self) -> float:
        """Share of its memory touched between two looks; 0 to 1."""

    @property
    def looks(self) -> int:
        """That saw any of it; heat means nothing without."""

    @property
    def why_unseen(self) -> str:
        """Why some of it was not seen; '' if all was."""

class Arena:
    """A named heap; what it gives keeps it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def placement(self) -> Placement:
        """Where its memory is asked to be."""

    def allocate(self, bytes: int) -> MemoryRange:
        """
        Memory of this arena, not zeroed, freed with the last array or transfer that uses it. ExhaustedError: no room.
        """

    def __repr__(self) -> str: ...

class Arenas:
    """The named heaps of a process, watched and placed by a plan."""

    def __init__(self, machine: Machine, *, plan: str = '', otherwise: str = 'dram', look_every: float | None = None) -> None:
        """
        `plan`: the text of one, which says where each arena goes; those it does not name go to `otherwise`. `look_every`: watched by a thread that looks each so many seconds.
        """

    def arena(self, name: str) -> Arena:
        """The arena of this name, opened when it is first asked for."""

    def look(self) -> None:
        """Looks now. UnsupportedError: they are not watched."""

    def uses(self) -> list[ArenaUse]:
        """What was seen of each, by name."""

def plan_arenas(uses: Sequence[ArenaUse], tiers: Sequence[tuple[str, int | None]]) -> str:
    """
    The text of a plan: arenas by falling heat, each whole in the first of `tiers`, pairs of place and bytes with the fastest first, that has room left for it; the last takes what is left.
    """

def arenas_in_plan(plan: str) -> list[ArenaUse]:
    """What was seen when this text was made."""

class ProcessTierStep:
    """What one step did."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def resident(self) -> int:
        """Bytes in the fast tier, as far as known."""

    @property
    def out(self) -> int:
        """Bytes in the slow one."""

    @property
    def went_out(self) -> int:
        """Bytes that this step moved out."""

    @property
    def came_in(self) -> int:
        """Bytes that it brought in."""

    @property
    def returned(self) -> int:
        """Bytes that the program's faults brought in."""

    @property
    def refused(self) -> int:
        """Bytes that were to go out and stayed, as the last survey found."""

    @property
    def surveyed(self) -> bool:
        """Whether the places of all pages were read."""

    @property
    def undone(self) -> str:
        """What the guard undid, and why; '' for nothing."""

    @property
    def note(self) -> str:
        """What hinders; '' for nothing."""

class ProcessTierTotals:
    """Times (s) and counts since the start."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def elapsed(self) -> float:
        """Since the start."""

    @property
    def program_cpu(self) -> float:
        """CPU time of the program."""

    @property
    def major_faults(self) -> int:
        """Those of the program."""

    @property
    def tracker_cpu(self) -> float:
        """CPU time to find out and decide."""

    @property
    def mover_cpu(self) -> float:
        """CPU time to move."""

    @property
    def went_out(self) -> int:
        """Bytes moved out."""

    @property
    def came_in(self) -> int:
        """Bytes brought in."""

    @property
    def undone(self) -> int:
        """Times that the guard undid something."""

    @property
    def lost(self) -> int:
        """Faults that came faster than they were taken."""

class ProcessTier:
    """
    Memory of another process between DRAM and swap, or between nodes. Thread-safe.
    """

    @property
    def source(self) -> Literal['hint-faults', 'refaults', 'referenced', 'damon']:
        """By what it tells hot from cold."""

    @property
    def why(self) -> str:
        """Why by that, and what was set for it."""

    def step(self) -> ProcessTierStep:
        """
        Takes what is known, decides and moves; to be called some times a second. AbsentError: the process has ended, or has become another program.
        """

    def decisions(self) -> list[TierDecision]:
        """The last ones, at most 1000, oldest first."""

    def totals(self) -> ProcessTierTotals:
        """Times and counts since the start."""

    def close(self) -> None:
        """Ends it and puts settings of the kernel back."""

def tier_process(pid: int, budget: int, *, source: Literal['hint-faults', 'refaults', 'referenced', 'damon'] | None = None, guard: float = 0.05, per_second: int = 67108864, half_life: float = 0.0, directory: str = '', fast: Sequence[int] = [], slow: Sequence[int] = [], hold: bool = False) -> ProcessTier:
    """
    Keeps what a process has in memory within `budget` bytes, the hot of it first; with nodes what it has on the `fast` ones, the rest on the `slow`; with `hold` beside swap by the limit of its cgroup too. ExhaustedError: another tiers it; DeniedError: it takes root, or the same user between nodes; UnsupportedError: no swap.
    """

def restore_after_kill(directory: str = '') -> bool:
    """
    Puts back settings of the kernel that a tier left that was killed; True: there was something.
    """
