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
    An operation of Headrace failed. `code` is the same word as in JSON and C++. `exit_code` is the exit code of a command that fails with it.
    """

    code: str = ''

    exit_code: int = 70

class AbsentError(Error, LookupError):
    """Something does not exist: a node, an engine, a file, a column."""

    code: str = 'absent'

    exit_code: int = 3

class UnsupportedError(Error, NotImplementedError):
    """The hardware, kernel or file exists but cannot do this."""

    code: str = 'unsupported'

    exit_code: int = 4

class DeniedError(Error, PermissionError):
    """The system refuses permission."""

    code: str = 'denied'

    exit_code: int = 5

class ExhaustedError(Error, MemoryError):
    """No space is left: memory, budget, queue, disk."""

    code: str = 'exhausted'

    exit_code: int = 6

class IoError(Error, OSError):
    """A device or file failed or ended early."""

    code: str = 'io'

    exit_code: int = 7

class InvalidError(Error, ValueError):
    """The request is invalid."""

    code: str = 'invalid'

    exit_code: int = 2

class CancelledError(Error):
    """A stop was requested."""

    code: str = 'cancelled'

    exit_code: int = 130

class TimedOutError(Error, TimeoutError):
    """The operation did not finish within its time limit."""

    code: str = 'timed_out'

    exit_code: int = 8

class AccessAttributes:
    """
    Latency and bandwidth of a node for one initiator: rated by firmware, or measured.
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
        """The source of these numbers."""

    @property
    def measured(self) -> bool:
        """Measured with all CPUs of the initiator."""

class GpuAttributes:
    """Facts about a GPU from its driver."""

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
        """The number of copies that may be in flight at the same time."""

    @property
    def host(self) -> int | None:
        """The nearest node of the host; None when unknown."""

    @property
    def emulated(self) -> bool:
        """Made of software: its speed says nothing."""

class MemorySideCache:
    """
    A cache in front of a node's memory: HBM in cache mode, which is not a node of its own.
    """

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
        """The kind of memory."""

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
        """Facts about a GPU; None for other nodes, and if no driver was asked."""

    @property
    def side_cache(self) -> MemorySideCache | None:
        """A cache in front of its memory; None without one."""

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
        """The kind of engine."""

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
    """A link between nodes. All traffic across it shares its limits."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def kind(self) -> Literal['upi', 'xgmi', 'socket', 'mesh', 'pcie', 'cxl', 'nvlink', 'c2c']:
        """The kind of link."""

    @property
    def a(self) -> list[int]:
        """The nodes at one end."""

    @property
    def b(self) -> list[int]:
        """The nodes at the other end."""

    @property
    def reason(self) -> str:
        """How the link was found, and which of its properties are unknown."""

    @property
    def each_way(self) -> float | None:
        """Bytes per second in a direction; None when unknown."""

    @property
    def each_way_source(self) -> str:
        """The source of these numbers."""

    @property
    def both_ways(self) -> float | None:
        """Bytes per second in both directions at once; None when unknown."""

    @property
    def both_ways_source(self) -> str:
        """The source of these numbers."""

    @property
    def latency(self) -> float | None:
        """Seconds that it adds to an access; None when unknown."""

    @property
    def latency_source(self) -> str:
        """The source of these numbers."""

class GatherLimit:
    """
    The limit for many small copies: within it, a GPU's kernel makes them instead of its copy engines.
    """

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bytes(self) -> int:
        """Bytes of each copy, at most."""

    @property
    def count(self) -> int:
        """Number of copies, at least."""

class CopyRate:
    """A measured cost of copying: time = latency + bytes / bandwidth."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def engine(self) -> int:
        """The id of the engine."""

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
        """
        GPUs only: the copies that its kernel makes at least twice as fast; else None.
        """

class DsaFinding:
    """The state of a DSA device, and how to change it."""

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
    The DSA devices of this host, or of a host whose files are in other folders. Default folders: HEADRACE_DSA_SYSFS and HEADRACE_DSA_DEV.
    """

def gpu_driver() -> str:
    """
    The driver of GPUs that this process uses; AbsentError or UnsupportedError with what to do where there is none.
    """

class Machine:
    """
    The graph of one host: memories (nodes), engines that copy between them, links that join them and, once measured, the speed of copies (copy rates). Plain data.
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
        """The contents of to_json() as a dict."""

    def to_text(self) -> str:
        """A tree for people: a line for each node."""

    def overview(self) -> str:
        """Like to_text(), with one line for nodes that are alike."""

    def to_hwloc_xml(self) -> str:
        """The topology in hwloc's XML format; only for a discovered machine."""

    @staticmethod
    def discover(*, sysfs: str | os.PathLike = ..., procfs: str | os.PathLike = ..., hwloc_xml: str | os.PathLike | None = None, storage: Sequence[str | os.PathLike] | None = None, headrace_nodes: str | None = None, memkind_hbw_nodes: str | None = None) -> Machine:
        """
        Discovers the memories, engines and links of this host. `storage`: paths whose devices become nodes (default: the working directory's). The overrides default to the environment (HEADRACE_NODES, MEMKIND_HBW_NODES).
        """

    @property
    def name(self) -> str:
        """The host's or the preset's."""

    @property
    def description(self) -> str:
        """In plain words."""

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
        """Links between nodes, links between sockets first."""

    @property
    def copy_rates(self) -> list[CopyRate]:
        """Measured rates of copies; empty before any measurement."""

    @property
    def cache_mode(self) -> str:
        """
        Why some of the host's memory is not a node: HBM is in cache mode. Otherwise empty.
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
        The nearest node with CPUs: the node itself if it has CPUs; None if no node has any.
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
    """Memory that this process can allocate now without swapping."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def nodes(self) -> dict[int, int]:
        """Bytes on each node that its cpuset allows."""

    @property
    def cgroup(self) -> int | None:
        """Bytes left by the limits of its memory cgroups; None without a limit."""

def free_memory() -> FreeMemory:
    """Free memory now, per node."""

class Placement:
    """A request to allocate(): where memory should be."""

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
        How pages spread over nodes of the kind. 'nearest': the nearest node and, when it is full, the next nearest. 'first_touch': the node nearest to the CPU that touches the page first. 'interleave': all in turn.
        """

    @property
    def property(self) -> str | None:
        """
        Instead of nodes and a kind: a property of the node, such as 'fastest'.
        """

    @property
    def strict(self) -> bool:
        """Only these nodes: ExhaustedError when they are full."""

    @property
    def spill(self) -> list[int | Literal['dram', 'hbm', 'cxl', 'gpu', 'storage']]:
        """Nodes or kinds to use, in this order, when the nodes are full."""

    @property
    def near(self) -> list[int]:
        """The CPUs that will use the memory; empty: the calling CPU."""

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
        """A placement on one node, or on the nearest nodes of one kind."""

    @staticmethod
    def parse(machine: Machine, text: str, *, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', touch: bool = True, lock: bool = False, near: Sequence[int] = [], pin: bool = False) -> Placement:
        """
        Parses a placement: a kind 'hbm', 'hbm_interleave' or 'hbm_first_touch'; a property 'fastest', 'lowest_latency', 'highest_bandwidth' or 'largest'; nodes '0-3,8'; weights '0=3,8=1' or 'dram=3,cxl=1'. Several, 'hbm:dram', are tried in this order.
        """

    def resolve(self, machine: Machine, near: int | None = None) -> Placement:
        """
        The placement with kinds and properties replaced by nodes, nearest first.
        """

    def __str__(self) -> str:
        """The text that parse() reads."""

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
        """A number that is never used twice in a process."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def node(self) -> int:
        """The node of its bytes; if there are several, the first."""

    @property
    def writable(self) -> bool:
        """Whether it can be copied to."""

    @property
    def device_address(self) -> int | None:
        """The address for GPU code; None for memory that CPUs reach."""

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
        """The GPU stream that was not waited for; None if there is none."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Strided:
    """
    Extents of `length` bytes, one each `stride` bytes (default: `length`) from the start of `source` on, for a plan: they cost no memory each. `count`: default as many as lie in `source`. Raises InvalidError if a length or stride is 0.
    """

    def __init__(self, source: Extent | Object, length: int, *, stride: int | None = None, count: int | None = None) -> None: ...

    @property
    def offset(self) -> int:
        """Bytes from the start of the object to the first."""

    @property
    def length(self) -> int:
        """Bytes of each."""

    @property
    def stride(self) -> int:
        """Bytes from the start of one to that of the next."""

    @property
    def count(self) -> int:
        """Extents in all."""

class Buffer(Object):
    """
    Memory allocated by a placement; released with the last array or transfer that uses it.
    """

    @property
    def placement(self) -> Placement:
        """The placement that was asked for."""

    @property
    def page_size(self) -> Literal['base', 'transparent', 'huge_2m', 'huge_1g']:
        """The actual page size, in bytes."""

    @property
    def fallback(self) -> str:
        """Why the page size is not the one asked for; empty if it is."""

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
        `memory`: an object with the buffer protocol, __cuda_array_interface__ or __dlpack__, such as a tensor of PyTorch. `node`: the memory's node (default: asks the kernel, or for GPUs the driver and `machine`, this host by default). `wait`: first wait until the GPU stream that computes the memory has finished.
        """

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the array."""

    @property
    def stream(self) -> int | None:
        """The GPU stream that was not waited for; None if there is none."""

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
    Moves a buffer to another placement. Its address and bytes stay, and other threads may use it meanwhile.
    """

class File(Object):
    """
    A file or block device as an object: its extents can be moved and cached.
    """

    @staticmethod
    def open(machine: Machine, path: str | os.PathLike, *, writable: bool = False, direct: bool = True) -> File:
        """
        Opens a file or block device, past the page cache (O_DIRECT) if `direct` and possible. A `writable` device belongs to this File alone: DeniedError if it is mounted, or in use in another way.
        """

    @property
    def path(self) -> pathlib.Path:
        """The path that open() was given."""

    @property
    def direct(self) -> bool:
        """Whether reads go past the page cache."""

    def update_size(self) -> int:
        """
        Asks for the file's size now; if it has grown, extents of the new part can be moved and cached. Returns the size.
        """

    def version(self) -> tuple[int, int, int, int]:
        """
        Inode, size, and the times of the last write and change in nanoseconds. If it differs from an earlier one, someone wrote to the file: invalidate() its copies. Two changes within a tick of the file system's clock (4 ms) may give one version. A block device has none (UnsupportedError).
        """

    def sync(self) -> None:
        """Makes all writes to the file durable (fdatasync)."""

    def drop_page_cache(self) -> None:
        """Drops its clean pages from the page cache, as a cold start needs."""

    def page_cache_residency(self, offset: int = 0, length: int | None = None) -> int:
        """
        Bytes of the file in the page cache now, within `length` bytes from `offset`, a multiple of the page size. DeniedError: the kernel answers only the file's owner and users who may write to it.
        """

class Residency:
    """Pages per node, as the kernel reports them."""

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

class UserSource(Object):
    """
    Bytes that code of the user gives (an object store, a decompressor) as an object: its extents can be moved and cached, not written.
    """

    def __init__(self, reader: object, machine: Machine) -> None:
        """
        `reader`: an object with `size`, the number of bytes, and `read_into(offset, buffer)`, which fills the buffer and returns the number of bytes. At most 16 threads call it at once. Each call ends in bounded time and does not use the cache. `version` is optional: if str(reader.version) changes, reads fail, and the new bytes need a new UserSource. A short read or an exception fails the copy (IoError). `chunk` is optional: the bytes that read_into() produces at once (a compressed block), which accesses, reads and plans fetch as a whole.
        """

class MoveStats:
    """The outcome of a move."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bytes(self) -> int:
        """Bytes moved."""

    @property
    def pieces(self) -> int:
        """Number of pieces."""

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
        Requests a stop: queued pieces are dropped, and engines are asked to end pieces in flight.
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
        """Transfers started."""

    @property
    def failed(self) -> int:
        """Transfers that ended with an error."""

    @property
    def cancelled(self) -> int:
        """Transfers ended by cancel()."""

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
        """Pieces submitted to engines now."""

    @property
    def queued_pieces(self) -> int:
        """Pieces in the Mover's queue now."""

    @property
    def degraded(self) -> list[str]:
        """
        Features that engines lack, and why, one line each. Example: a GPU's driver did not load the kernel that gathers small copies.
        """

class Mover:
    """
    Moves extents with the engines of a machine, as the machine was when the Mover was made. When the Mover, its last transfer and its last cache are dropped, queued pieces are cancelled and pieces in flight are waited for.
    """

    def __init__(self, machine: Machine, *, route: str = 'measured', piece: int | None = None, in_flight_per_link: int | None = None) -> None:
        """
        `route`: one, brute_force, smart or measured. `piece`: bytes of a piece, at most. `in_flight_per_link`: bytes in flight between two nodes, at most. Defaults: the engine's preference between memories (a GPU: 16 and 32 MiB), else 1 and 16 MiB.
        """

    def copy(self, to: Extent | Object, source: Extent | Object, *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', hint: Literal['automatic', 'keep', 'stream'] = 'automatic', route: str | None = None) -> Transfer:
        """
        Starts copying `source` to `to` (extents or whole objects of the same length).
        """

    def copy_all(self, pairs: Sequence[tuple[Extent | Object, Extent | Object]], *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand') -> Transfer:
        """
        Starts copying many pairs (to, source) as one move, in this order. Cheaper than a call of copy() for each; neighbours are read together. Destinations must not overlap.
        """

    def stats(self) -> MoverStats:
        """Totals."""

    @property
    def machine(self) -> Machine:
        """The machine it works on."""

    @property
    def skipped(self) -> list[str]:
        """Engines that no backend drives here, each with the reason."""

class CompletionQueue:
    """
    Reports completed moves through one descriptor, for event loops. Awaiting a Transfer or a Block uses one queue for each loop.
    """

    def __init__(self) -> None:
        """Opens the queue, which uses one file descriptor."""

    def fileno(self) -> int:
        """A descriptor that is readable when take() has a key."""

    @overload
    def add(self, transfer: Transfer, key: int) -> None:
        """Reports `key` when the move is done."""

    @overload
    def add(self, block: Block, key: int) -> None:
        """Reports `key` when the copy is ready or has failed."""

    @overload
    def add(self, layer: KvLayer, key: int) -> None:
        """Reports `key` when the layer is loaded or has failed."""

    @overload
    def add(self, load: KvLoad, key: int) -> None:
        """Reports `key` when all layers are loaded or have failed."""

    @overload
    def add(self, stored: KvStored, key: int) -> None:
        """Reports `key` when all blocks are stored or refused."""

    def tell(self, key: int) -> None:
        """Reports `key` now."""

    def take(self) -> list[int]:
        """The keys of moves that have ended since the last call."""

class Percentiles:
    """Percentiles in nanoseconds; None when nothing was counted."""

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

class CacheTenantStats:
    """Counts of one tenant of a cache."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """Empty: accesses that name none."""

    @property
    def hits(self) -> int:
        """Accesses that found a copy ready."""

    @property
    def misses(self) -> int:
        """All its other accesses."""

    @property
    def evictions(self) -> int:
        """Copies of its own dropped for space."""

    @property
    def bytes_used(self) -> int:
        """Bytes of its copies now."""

    @property
    def bytes_pinned(self) -> int:
        """Bytes of those that are held."""

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
        """First uses that found the prefetched copy not ready."""

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
        """
        Accesses without a copy: no space, or another block holds the bytes for writing.
        """

    @property
    def written_back(self) -> int:
        """Write-backs that succeeded."""

    @property
    def write_failures(self) -> int:
        """Write-backs that failed."""

    @property
    def slab_failures(self) -> int:
        """Slabs that a node did not give: it has less than its budget."""

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
    def tenants(self) -> list[CacheTenantStats]:
        """First accesses without one; empty: none."""

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
        The copy, after waiting at most `timeout` seconds. If there is none, or only a GPU reaches it, the source; if the source is a file, the error.
        """

    def write(self, timeout: float = 60.0) -> memoryview:
        """
        The bytes to change, of a block accessed with write=True; waits for the copy at most `timeout` seconds. release() ends the view (ValueError from then on), and others see the changes. InvalidError of release(): a slice or an array of the view is in use, which holds the bytes for writing.
        """

    def __await__(self) -> Generator[Any, None, memoryview]:
        """Under asyncio: the result of wait(), without blocking the loop."""

    def numpy(self, dtype: numpy.typing.DTypeLike = 'uint8', timeout: float = 60.0) -> numpy.typing.NDArray[Any]:
        """The bytes of wait() as an array."""

    @property
    def state(self) -> Literal['absent', 'filling', 'ready', 'failed', 'evicting']:
        """The state of the copy."""

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
        The copy's address for GPU code, once it is ready; None for memory that CPUs reach.
        """

    def wait_on_gpu(self, timeout: float = 60.0) -> int:
        """device_address, waiting for the copy at most `timeout` seconds."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class PrefetchProgress:
    """Progress of a plan."""

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
        """Extents accessed at least once since."""

    @property
    def invalid(self) -> int:
        """Not inside their object, so never fetched."""

    @property
    def cancelled(self) -> bool:
        """Whether the plan was cancelled."""

class Prefetch:
    """A running prefetch plan. Dropping it cancels it."""

    def cancel(self) -> None:
        """Starts no more copies and lets those not yet used be evicted."""

    def progress(self) -> PrefetchProgress: ...

    def __enter__(self) -> Prefetch: ...

    def __exit__(self, *error: object) -> None: ...

class CacheExplanation:
    """Why an extent is or is not cached."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def state(self) -> Literal['absent', 'filling', 'ready', 'failed', 'evicting']:
        """State of its block: absent, filling or ready."""

    @property
    def dirty(self) -> bool:
        """Newer than its source."""

    @property
    def node(self) -> int | None:
        """Node of its block, or of the copy to be made."""

    @property
    def planned(self) -> bool:
        """Whether a plan will use an extent that lies in it."""

    @property
    def next_use(self) -> float | None:
        """
        Seconds until that use. None: none is planned, the consumer has paused, or its pace is not known yet (before three uses).
        """

    @property
    def copy_time(self) -> float | None:
        """Seconds; None: not measured."""

    @property
    def saved_per_use(self) -> float | None:
        """Seconds by which a use of the copy is shorter; None: not measured."""

    @property
    def uses_to_pay(self) -> int | None:
        """Uses that save the time of the copy; None: unknown, or never."""

    @property
    def text(self) -> str:
        """One line of all that."""

    @property
    def refusal(self) -> str | None:
        """Why an access would make no copy; None: it would, or there is one."""

class CacheTenant:
    """
    A user of a cache that shares its budgets with others: a value of the cache's `tenants`.
    """

    def __init__(self, *, least: float = 0.0, most: float = 1.0, most_pinned: float = 1.0, priority: Literal['demand', 'prefetch', 'migration'] = 'demand') -> None:
        """
        `least`: share of each budget that others cannot take. `most`: share that its copies fill at most. `most_pinned`: share of all budgets together that its blocks hold at most. `priority`: lower ones give way first beyond their `least`, and their copies are queued in that class.
        """

class Cache:
    """
    Keeps copies of extents in fast memory, fetches planned ones ahead of their use, and never serves old bytes. It keeps an object alive while it reads from it, and while changes are not written back (for a file: not made durable by sync()). Copies of an object that nobody else holds are freed with it, sooner or later.
    """

    def __init__(self, mover: Mover, budgets: Mapping[int, int] | Sequence[tuple[int, int]], *, placement: int | Placement | str | None = None, route: str | None = None, eviction: str = 's3-fifo', slab: int = 33554432, pages: Literal['base', 'transparent', 'huge_2m', 'huge_1g'] = 'transparent', reserve: bool = False, shards: int = 0, writable: bool = False, chain: Mapping[int, int] | Sequence[tuple[int, int]] = {}, tenants: Mapping[str, tuple[float, float] | CacheTenant] = {}, curve: bool = False, trace: str | os.PathLike | None = None, before_write_back: object | None = None) -> None:
        """
        `budgets`: bytes of copies per node. `placement`: put all copies here instead of in the nearest fast memory ('gpu'; 'gpu:dram': DRAM when the GPU is full). `eviction`: s3-fifo, sieve or clock. `reserve`: allocate all memory now and keep it, so that no access pays for first touch. `shards`: number of parts, a power of two, each with a lock and an equal share of each budget; 0: one for each two CPUs, each with at least 256 MiB. `writable`: blocks can be written (access with write=True); with several shards, no extent may cross a multiple of their stretch. `chain`: budgets of further memories, the fastest first: blocks are demoted to them instead of evicted, and promoted when accessed. `tenants`: users of the cache, by name: the share of each budget that others cannot take, and the most that it can have, such as (0.25, 0.5), or a CacheTenant; accesses name their tenant. With (0, 0) a tenant only reads copies that others made. `curve`: sample accesses for miss_ratio_curve(). `trace`: a file for the lives of blocks, which ui.perfetto.dev shows; complete when the cache is gone. `before_write_back`: called as f(extent, bytes) before each write-back, for a log that must be on the device first; several threads may call it at once. It must not use the cache. If it raises, the block is not written and stays dirty, and write_back() and sync() report it.
        """

    def access(self, extent: Extent | Object, *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', initiator: int | None = None, plan: Prefetch | None = None, space_timeout: float = 0.0, write: bool = False, lock_timeout: float = 60.0, keep: Literal['normal', 'longer', 'shorter'] = 'normal', tenant: str | None = None) -> Block:
        """
        The block of an extent: a pin on a copy that is ready, in flight, or started now. Waits for no copy; a miss may allocate memory. `plan`: the plan of this access; once a plan was named, only accesses that name it count as its uses. `space_timeout`: seconds to wait for space while blocks hold the whole budget; then the block refers to the source. `write`: in a writable cache, lock the bytes for writing; no other block holds them meanwhile. `lock_timeout`: seconds to wait for other blocks with these bytes. In a writable cache a block without a copy has no bytes, because the source may be older. `keep`: a copy that this access starts survives a scan ('longer') or is evicted first ('shorter'). `tenant`: whose access it is, a name of the cache's `tenants`.
        """

    def access_all(self, extents: Sequence[Extent | Object], *, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', initiator: int | None = None, plan: Prefetch | None = None, space_timeout: float = 0.0, keep: Literal['normal', 'longer', 'shorter'] = 'normal', tenant: str | None = None) -> list[Block]:
        """
        access() for many extents at once; each miss waits up to `space_timeout` on its own.
        """

    def read(self, extent: Extent | Object, *, block: int = 1048576, timeout: float = 60.0, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', plan: Prefetch | None = None, keep: Literal['normal', 'longer', 'shorter'] = 'normal', tenant: str | None = None) -> bytes:
        """
        The bytes of an extent, read through aligned cached blocks of 64 KiB to `block` bytes, which reads share wherever they begin. Reads of very different lengths may keep bytes in blocks of several sizes; block=65536 avoids that. Waits at most `timeout` seconds for each block. Releases the GIL.
        """

    def readinto(self, extent: Extent | Object, into: _Buffer, *, block: int = 1048576, timeout: float = 60.0, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', plan: Prefetch | None = None, keep: Literal['normal', 'longer', 'shorter'] = 'normal', tenant: str | None = None) -> None:
        """Like read(), into a writable buffer of the same length."""

    def view(self, extent: Extent | Object, *, timeout: float = 60.0, priority: Literal['demand', 'prefetch', 'migration'] = 'demand', plan: Prefetch | None = None, keep: Literal['normal', 'longer', 'shorter'] = 'normal', tenant: str | None = None) -> memoryview:
        """
        Returns the bytes of an extent, read-only and without a copy: the view pins the block of this extent. If views pin a quarter of the budgets already, or there is no space, returns a copy by read(). Waits at most `timeout` seconds.
        """

    @overload
    def prefetch(self, extents: Sequence[Extent | Object], *, lead: float = 0.05, window: int = 67108864, initiator: int | None = None, named: bool = False, tenant: str | None = None) -> Prefetch:
        """
        Plans the use of extents in this order, and fetches them `lead` seconds before use, with at most `window` unused bytes at a time. `named`: only accesses with `plan=` count as uses, from the beginning.
        """

    @overload
    def prefetch(self, extents: Strided, *, lead: float = 0.05, window: int = 67108864, initiator: int | None = None, named: bool = False, tenant: str | None = None) -> Prefetch:
        """
        The same for extents at equal distances. Those that do not lie in their object are not fetched (PrefetchProgress.invalid).
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
        Announces a changed source: later accesses do not see bytes read before this call. False: blocks that are dirty or held for writing stay; discard() drops them.
        """

    def flush(self) -> None:
        """Drops all copies that nobody holds and no plan protects."""

    def clear(self) -> None:
        """
        Drops all copies and cancels plans; blocks that are held keep their bytes.
        """

    def resize(self, node: int, budget: int) -> None:
        """Changes the budget of a node."""

    def set_tenant(self, object: Object, tenant: str | None) -> None:
        """
        From now on, accesses to an object and plans of it that name no tenant are those of `tenant`, a name of the cache's `tenants`. None ends this. Copies keep their tenant.
        """

    def stats(self) -> CacheStats:
        """Counts."""

    def miss_ratio_curve(self) -> list[tuple[int, float]]:
        """
        The miss ratio of LRU as (bytes, ratio), from the smallest budget on; a larger budget than the last one would not help. Needs `curve`. Empty before an extent was accessed twice.
        """

    def explain(self, extent: Extent | Object, *, initiator: int | None = None) -> CacheExplanation:
        """
        Why an extent is or is not cached, its next planned use, and after how many uses a copy pays, by the machine's measured speeds. No access, and no copy.
        """

    def metrics(self, name: str = 'cache') -> str:
        """
        The counts as OpenMetrics text for Prometheus, with the label cache=`name`.
        """

def kv_key(name: bytes) -> bytes:
    """
    The key of a block from a name that another program gave, such as an engine. A name of 16 bytes is the key; other lengths are hashed. Stores accept names instead of keys.
    """

class KvGeometry:
    """The model, layout and size of KV blocks."""

    def __init__(self, model: str, *, layers: int, kv_heads: int, head_dim: int, element_bytes: int = 2, block_tokens: int = 16, tensors: int = 2, revision: str = '', any_size: bool = False) -> None:
        """
        `tensors`: 2 for keys and values, 1 if one latent vector holds both. `revision`: anything else the bytes depend on, such as the weights. `any_size`: blocks have any size up to 1 GiB, and no layers; a block takes a whole number of units of block_bytes.
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
        The keys of the whole blocks of a prompt, 16 bytes each: BLAKE2b over the previous key and the block's tokens. `salt`: an adapter or tenant that shares the store; other salts give other keys.
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class KvStoredCounts:
    """The outcome of a store(), in blocks."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def stored(self) -> int: ...

    @property
    def present(self) -> int:
        """Blocks that were there already."""

    @property
    def refused(self) -> int:
        """No room: too much in flight, or all pinned."""

    @property
    def failed(self) -> int:
        """Blocks whose copy failed."""

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
        """The outcome of all blocks given to store()."""

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
        """The last error of a tier; empty if there was none."""

    @property
    def last_error_age(self) -> float | None:
        """Seconds since `last_error`; stays small while the error persists."""

class KvMatch:
    """
    Blocks that are in the store, pinned where they are until release(), the end of `with`, or until this object is dropped.
    """

    @property
    def keys(self) -> list[bytes]:
        """Keys of the blocks, for load()."""

    @property
    def tiers(self) -> list[int]:
        """The number of the fastest tier that has each block."""

    def __len__(self) -> int: ...

    def release(self) -> None:
        """Unpins the blocks."""

    def __enter__(self) -> KvMatch: ...

    def __exit__(self, *error: object) -> None: ...

class KvLayer:
    """One layer of a load: await it, or wait for it."""

    def done(self) -> bool:
        """True once the layer is loaded and verified, or has failed."""

    def wait(self, timeout: float = 60.0) -> None:
        """
        Makes the layer urgent, and waits at most `timeout` seconds. IoError: blocks of the layer could not be read or were damaged; KvLoad.leading counts the leading blocks that are left.
        """

    def urgent(self) -> None:
        """Makes the layer urgent: from now on it is read with priority "demand"."""

    def __await__(self) -> Generator[Any, None, None]:
        """Under asyncio: as wait(), without blocking the loop."""

class KvLoad:
    """
    A load in progress. The destination memory is kept alive until the blocks are there.
    """

    @property
    def layers(self) -> int: ...

    def layer(self, layer: int) -> KvLayer:
        """One layer, to be awaited."""

    def done(self) -> bool:
        """True once nothing more will be written."""

    def wait(self, timeout: float = 60.0) -> None:
        """
        Waits for all layers at most `timeout` seconds; raises the first error of any.
        """

    def __await__(self) -> Generator[Any, None, None]:
        """Under asyncio: as wait(), without blocking the loop."""

    @property
    def leading(self) -> int:
        """How many leading blocks are not missing and have not failed so far."""

    @property
    def loaded(self) -> list[bool]:
        """
        For each block of load(): whether it was loaded and verified. InvalidError: not done().
        """

    def cancel(self) -> None:
        """Requests a stop; layers that are loaded stay."""

class KvStored:
    """
    A store in progress. The source memory is kept alive; it must not change until the blocks are stored.
    """

    def done(self) -> bool: ...

    def wait(self, timeout: float = 60.0) -> KvStoredCounts:
        """Waits at most `timeout` seconds. Returns the outcome, in blocks."""

    def __await__(self) -> Generator[Any, None, KvStoredCounts]:
        """Under asyncio: as wait(), without blocking the loop."""

class KvStore:
    """headrace.kvcache.Store, with memory given as objects."""

    def __init__(self, mover: Mover, geometry: KvGeometry, tiers: Sequence[tuple[str, int, bool, bool]], folder: tuple[Sequence[tuple[str, int]], Literal['leaving', 'idle', 'stored'], Literal['all', 'found'], bool] | None, *, eviction: str, in_flight: int, load_ahead: int, workers: int, list_dropped: bool, shared: bool) -> None:
        """
        Memories: placement, bytes, whether pinned, and whether touched at once. Folders: paths and bytes, when they are written, what is verified, and whether folders of another geometry are emptied.
        """

    @property
    def geometry(self) -> KvGeometry: ...

    @property
    def shared_files(self) -> tuple[int | None, int] | None:
        """
        Descriptors of the first tier's memory, if that tier is memory, and of the index, for a KvShared of another process. They belong to the store. None: the store is not shared.
        """

    def match_keys(self, keys: Sequence[bytes]) -> KvMatch:
        """Pins the leading blocks that are in the store."""

    def pin(self, keys: Sequence[bytes]) -> KvMatch:
        """
        Pins the blocks that are in the store, also blocks after a missing one.
        """

    def touch(self, keys: Sequence[bytes]) -> None:
        """Counts a use of the blocks in the store: they are evicted later."""

    def take_dropped(self) -> list[bytes]:
        """
        Keys of blocks that left the store for good since the last call, except by remove() and clear(); at most 2^20. Empty unless the store was opened with list_dropped=True.
        """

    def store_object(self, keys: Sequence[bytes], source: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], priority: Literal['demand', 'prefetch', 'migration'], stream: int | None) -> KvStored:
        """Like headrace.kvcache.Store.store()."""

    def load_object(self, keys: Sequence[bytes], into: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], layer_order: bool, priority: Literal['demand', 'prefetch', 'migration'], deadlines: Sequence[float], promote: bool, stream: int | None) -> KvLoad:
        """Like headrace.kvcache.Store.load()."""

    def load_block_objects(self, keys: Sequence[bytes], into: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], priority: Literal['demand', 'prefetch', 'migration'], promote: bool, stream: int | None) -> KvLoad:
        """Like headrace.kvcache.Store.load_blocks()."""

    def contains(self, keys: Sequence[bytes]) -> list[bool]:
        """
        Which of the blocks are there now. Pins nothing, and does not count as a match.
        """

    def sizes(self, keys: Sequence[bytes]) -> list[int | None]:
        """Like contains(): the bytes of each block, or None."""

    def remove(self, keys: Sequence[bytes]) -> int:
        """
        Removes blocks, also for a later open of the folder; returns the number that were there or being stored. Pins and copies in progress end normally; until then, blocks with the same key are refused. flush() makes the removal durable.
        """

    def clear(self) -> int:
        """remove() of all blocks."""

    def stats(self) -> KvStats:
        """Counts."""

    def flush(self, timeout: float = 60.0) -> None:
        """
        Writes blocks that are only in memory to the folder, as far as its budget allows. Covers blocks whose store() began before the call. Then makes everything written so far durable (fdatasync); `timeout` does not bound that. IoError: some blocks could not be written or made durable, or a file of the folder was removed or truncated. TimedOutError: only some blocks were written.
        """

    def close(self, *, flush: bool = True, timeout: float = 60.0) -> None:
        """
        Closes the store and releases tiers and folder, so that another store may open the folder at once. Loads are cancelled, matches pin nothing any more, and later calls raise CancelledError. Closing twice is allowed. `flush`: flush() first; if that fails, the store is closed and the error raised. `timeout` bounds everything except the fdatasync of flush(); if the flush used it up, copies in flight have one more second. TimedOutError: either the store is closed, and blocks not written in time are lost; or some copies have not ended, such as those of a GPU that hangs. Then tiers and folder stay in use until close() is called again. Ctrl-C ends the flush and gives copies in flight one second, which a second Ctrl-C ends; without a flush the first does. If copies have not ended then, a note of the exception says that the store is still to be closed. Dropping a store that is not closed waits for its copies too. If they do not end within 200 s, the process is ended, because a GPU may still write to its memory.
        """

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None:
        """close()."""

class KvJobs:
    """
    Loads and stores of whole blocks between a KvStore and one memory, for callers that must not wait. A call lists names and positions, and takes a few microseconds; a thread of this object begins the jobs, in the order of the calls. Thread-safe.
    """

    def __init__(self, store: KvStore, memory: Extent | Object) -> None: ...

    def store(self, number: int, keys: Sequence[bytes], positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Like KvStore.store(). The memory must not change until the job has ended.
        """

    def load(self, number: int, keys: Sequence[bytes], positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, part: int, promote: bool) -> None:
        """
        Like KvStore.load_blocks(), in parts of `part` blocks: one part is verified while the next is read. 0: all in one part.
        """

    def take(self) -> list[tuple[int, list[bool], int, str]]:
        """
        Jobs that have ended since the last call. For each: its number; for each block of a load, whether it was loaded and verified; the count of blocks loaded or stored; and the error if it could not begin.
        """

    def wait(self, timeout: float = 60.0) -> None:
        """Waits until all jobs have ended."""

    def close(self) -> None:
        """
        Accepts no more jobs, and ends the thread once it has begun all jobs. The object still keeps the store and the memory.
        """

class KvShared:
    """
    Finds and copies blocks of another process's KvStore without a call to that process. The store is open with shared=True. Thread-safe. CancelledError: the store is closed. UnsupportedError: in a child of fork().
    """

    def __init__(self, geometry: KvGeometry, memory: int | None, index: int) -> None:
        """Maps the descriptors of KvStore.shared_files, and leaves them open."""

    @property
    def geometry(self) -> KvGeometry: ...

    def contains(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of the blocks the store has now, in any tier."""

    def read(self, keys: Sequence[bytes], into: Sequence[Extent | Object], *, layout: Literal['page_first', 'layer_first'], positions: Sequence[int], mover: Mover | None = None) -> list[bool]:
        """
        Copies the blocks that are in the store's memory; returns true for each of them. The destination of other blocks may have been overwritten. `mover`: copies from 8 MiB on.
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
        """In plain words."""

class Backends:
    """The backends that drive the engines of a machine in this process."""

    @staticmethod
    def open(machine: Machine) -> Backends:
        """Opens all backends that work here."""

    @property
    def capabilities(self) -> list[Capabilities]:
        """Facts about each backend."""

    @property
    def skipped(self) -> list[str]:
        """Engines that no backend drives here, each with the reason."""

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
        """The name in rows and in `only`."""

    @property
    def kind(self) -> Literal['node', 'count', 'count_or_all', 'word', 'operation', 'mix', 'any']:
        """The kind of its values."""

    @property
    def required(self) -> bool:
        """False: third-party profiles and those of older versions may lack it."""

class ExperimentInfo:
    """An experiment of measure()."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """The name that measure() takes."""

    @property
    def description(self) -> str:
        """One line."""

    @property
    def parameters(self) -> list[ParameterInfo]:
        """Parameters of its rows, in their order."""

    @property
    def details(self) -> list[str]:
        """Details that each of its rows with a number has."""

def experiments() -> list[ExperimentInfo]:
    """All experiments, in their order."""

def measure(machine: Machine, *, experiments: Sequence[str] = (), only: Mapping[str, int | str | Sequence[int | str]] = {}, selections: Sequence[tuple[str, Mapping[str, int | str | Sequence[int | str]]]] = (), budget: float | None = 60.0, width: float = 0.03, seed: int = 1, directory: str | os.PathLike[str] = '.', known: Sequence[Row] = (), rounds: int | None = None, launches: int = 1, repetitions: int = 3, noise_checks: bool = True, stop: Callable[[], bool] | None = None, progress: Callable[[int, int], object] | None = None) -> Profile:
    """
    Measures this host. `only`: measure points with these parameters; of several values any matches, and a node may be given by its kind. `selections`: pairs of an experiment and such parameters, instead of `experiments` and `only`. `directory`: on the disk that `storage` measures. `budget`: seconds; None measures everything until it is certain. `width`: the 95 % interval may be this part of the median wide. `known`: rows with a number are kept. `rounds`: measure each point this number of times, on fresh memory. `repetitions`: runs in each round, of which the median counts. `launches`: number of launches that will be merged; without a budget each measures a point twice, and the least important points once. `stop` is called between points; if it returns True, the rows so far are returned.
    """

class PlannedPoint:
    """A point that measure() would measure."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def row(self) -> Row:
        """The row without a number; with a reason if it will not be measured."""

    @property
    def time(self) -> float:
        """Estimated total seconds; 0 if it will not be measured."""

    @property
    def distance(self) -> str:
        """Memory to CPUs, or target to source: near, socket, far; else empty."""

def plan_session(machine: Machine, *, experiments: Sequence[str] = (), only: Mapping[str, int | str | Sequence[int | str]] = {}, budget: float | None = 60.0, directory: str | os.PathLike[str] = '.', known: Sequence[Row] = (), rounds: int | None = None, launches: int = 1) -> list[PlannedPoint]:
    """
    The plan of measure(), without measuring anything; also for a machine that is not this host.
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
        """An interval of the median by `coverage`, or a range of few samples."""

    @property
    def coverage(self) -> float | None:
        """
        The stated chance that `interval` holds the true median; None: fewer than six runs.
        """

    @property
    def launches(self) -> int:
        """Number of launches with these runs."""

    @property
    def interval_words(self) -> str:
        """The meaning of `interval`: '95 %', 'range of 3'."""

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
        """Bytes as STREAM counts them: without fetching lines before stores."""

    @property
    def seconds(self) -> float:
        """From the first thread's start to the last one's end."""

    @property
    def cpu_share(self) -> float:
        """The share of `seconds` in which threads ran on their CPUs."""

def stream_kernels() -> list[str]:
    """Names of the kernels of STREAM."""

def stream_fill(a: _Buffer, b: _Buffer, c: _Buffer, cpus: Sequence[int]) -> None:
    """Fills the arrays for the next repetition, with a thread on each CPU."""

def stream_run(kernel: str, a: _Buffer, b: _Buffer, c: _Buffer, cpus: Sequence[int]) -> StreamRun:
    """
    One repetition after stream_fill(). Then checks the arrays. IoError: a wrong result.
    """

class UnifiedMemoryGpu:
    """A GPU for measurements of Unified Memory."""

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
        """How the GPU reaches host memory: ats, hmm, managed, limited."""

def unified_memory_gpu(machine: Machine, device: int = 0) -> UnifiedMemoryGpu:
    """The GPU of this host with the driver's number `device`."""

class Row:
    """
    One point of one experiment: a number with its spread, or the reason why there is none.
    """

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def experiment(self) -> str:
        """latency, bandwidth, ..."""

    @property
    def parameters(self) -> dict[str, int | str]:
        """Parameters of this point, in the experiment's order."""

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
        The meaning of low and high. '95 %' or '95 % of 6 launches': an interval of the median. 'range of 3': fewer than six samples.
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
        """Further facts, such as the kernel that measured it."""

    @property
    def flags(self) -> list[str]:
        """
        noisy, few, shrunk, side_cached, cpu_limited, throttled, cache_doubted, not_huge, unsteady, fitted; without a number: absent, left_out, stopped.
        """

    @property
    def basis(self) -> Literal['measured', 'modelled', 'published', 'emulated']:
        """The basis of the number; a profile has no modelled row."""

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
    A machine with its measured rows: one JSON document, which Machine.load() reads as well. Plain data.
    """

    @staticmethod
    def load(path_or_preset: str | os.PathLike) -> Profile:
        """
        Reads a file or a preset, like Machine.load(). A machine's document is a profile without rows.
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
        """The contents of to_json() as a dict."""

    def save(self, path: str | os.PathLike) -> None:
        """
        Replaces the file atomically: a reader sees the old or the new contents.
        """

    @property
    def machine(self) -> Machine:
        """The machine that was measured."""

    @property
    def rows(self) -> list[Row]:
        """The rows, in the order of measuring."""

    @property
    def conditions(self) -> dict[str, str]:
        """How and when: date, version, seed, ..."""

    @property
    def published(self) -> bool:
        """Whether some of its numbers are published, not measured."""

    def __repr__(self) -> str: ...

class CopyFit:
    """T(V) = latency + V / bandwidth over the sizes of a copy."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """The node whose CPUs copied."""

    @property
    def from_node(self) -> int:
        """Where the bytes were."""

    @property
    def to_node(self) -> int:
        """Where they were copied to."""

    @property
    def threads(self) -> int:
        """Number of threads that copied at once."""

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
        """The node whose CPUs copied."""

    @property
    def from_node(self) -> int:
        """Where the bytes were."""

    @property
    def to_node(self) -> int:
        """Where they were copied to."""

    @property
    def threads(self) -> int:
        """Number of threads that copied at once."""

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
        """The node whose CPU observes the latency."""

    @property
    def memory_node(self) -> int:
        """The node of the memory that it reads."""

    @property
    def traffic_cpu_node(self) -> int:
        """The node whose CPUs make the traffic."""

    @property
    def traffic_memory_node(self) -> int:
        """The node of the memory that the traffic uses."""

    @property
    def mix(self) -> str:
        """The mix of reads and writes of the traffic."""

    @property
    def threads(self) -> int:
        """
        Threads of traffic, if a number was asked for; 0: one on each CPU of its node.
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
        Bytes per second of the traffic at 1.5 times the idle latency; None if the latency stays lower.
        """

    @property
    def bandwidth_at_2(self) -> float | None:
        """Bytes per second of the traffic at twice the idle latency."""

class CacheStep:
    """A plateau of latency against working-set size."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """The node whose CPU read."""

    @property
    def memory_node(self) -> int:
        """The node of the memory that it read."""

    @property
    def name(self) -> str:
        """L1, L2, ..., memory."""

    @property
    def from_size(self) -> int:
        """The smallest size measured on it, in bytes."""

    @property
    def to_size(self) -> int:
        """The largest size measured on it, in bytes."""

    @property
    def latency_ns(self) -> float:
        """Median latency over these sizes."""

def copy_fits(profile: Profile) -> list[CopyFit]:
    """A fit for each series and engine with three sizes or more."""

def crossovers(profile: Profile) -> list[Crossover]:
    """
    Sizes from which cpu or memcpy is clearly faster. The first of a series is the smallest size of both.
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
        """Number of runs in old_value."""

    @property
    def new_runs(self) -> int:
        """Number of runs in new_value."""

class Shift:
    """The common change of all rows of one experiment."""

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
        """Number of rows that were judged."""

    @property
    def ratio(self) -> float:
        """Median of new / old."""

    @property
    def threshold(self) -> float:
        """A larger |ln(ratio)| is a change."""

    @property
    def changed(self) -> bool:
        """
        Beyond the threshold, and judged by at least five rows; with several runs, by two.
        """

class Comparison:
    """Differences between two profiles."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def rows(self) -> list[Difference]:
        """
        Differences in the order of the old profile, then rows that only the new profile has.
        """

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
        """Number of rows that were judged."""

    @property
    def expected(self) -> int:
        """Number of rows with an old value."""

def compare(before: Profile | Sequence[Profile], after: Profile | Sequence[Profile], least: float = 0.05) -> Comparison:
    """
    Finds differences beyond noise that are at least `least`, a share of the old value. A side may be several profiles, runs of the same machine: then noise is the difference between these runs.
    """

class Spread:
    """The predicted result of spreading data over memories."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def share(self) -> list[float]:
        """The share of each node, in the advice's order; adds up to 1."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the memories together."""

    @property
    def latency_ns(self) -> float | None:
        """Mean; None: the demand cannot be met."""

    @property
    def saturated(self) -> bool:
        """Whether a memory is at its limit."""

    @property
    def tier_bandwidth(self) -> list[float]:
        """Bytes per second of each node."""

class NamedSpread:
    """A candidate spread."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """best, weights, node 0 only, 3:1, by bandwidth, ..."""

    @property
    def spread(self) -> Spread | None:
        """The predicted result; None: see reason."""

    @property
    def reason(self) -> str:
        """Why this spread is impossible."""

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
        """The kind of memory."""

    @property
    def share(self) -> float:
        """The best share."""

    @property
    def weight(self) -> int:
        """The share as an integer weight; 0: not used."""

    @property
    def idle_ns(self) -> float:
        """Its latency with the least load."""

    @property
    def best(self) -> float:
        """The most bytes per second that it gave."""

    @property
    def most_share(self) -> float:
        """The largest share of the data set that fits."""

    @property
    def basis(self) -> Literal['measured', 'modelled', 'published', 'emulated']:
        """The basis of its curve."""

    @property
    def source(self) -> str:
        """The publisher of its curve; empty: measured."""

class Flip:
    """The demand above which a spread helps."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the memory."""

    @property
    def lines(self) -> float:
        """Cache lines in flight at that demand."""

class InterleaveAdvice:
    """Advice on spreading a data set, with the predicted result."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def cpu_node(self) -> int:
        """The node whose CPUs use the data."""

    @property
    def mix(self) -> str:
        """The mix of the program's loads and stores."""

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
        """The nodes in order of idle latency."""

    @property
    def spreads(self) -> list[NamedSpread]:
        """The best, its weights, and others."""

    @property
    def weight_loss(self) -> float | None:
        """
        Loss by integer weights, as a share; None: with them the demand is not met.
        """

    @property
    def share_error(self) -> float:
        """The largest error of a share."""

    @property
    def flip(self) -> Flip | None:
        """None: a spread never helps."""

    @property
    def warnings(self) -> list[str]:
        """Limits of these figures."""

LINES_PER_THREAD: float = 16.0

def advise_interleave(profile: Profile, *, cpu_node: int | None = None, mix: str = 'read', demand: float | None = None, lines: float | None = None, data: int | None = None, free: Mapping[int, int] = {}) -> InterleaveAdvice:
    """
    How much of a data set of `data` bytes belongs on which node, by loaded-latency curves. `demand`: bytes per second that the program reads and writes; or `lines` in flight.
    """

def pages_for(histogram: Sequence[tuple[float, float]], share: float) -> float:
    """
    The smallest number of pages that take this share of accesses. `histogram`: (pages, accesses of each).
    """

def accesses_of(histogram: Sequence[tuple[float, float]], pages: float) -> float:
    """The share of accesses that this number of hottest pages takes."""

def zipf_pages_for(exponent: float, pages: float, share: float) -> float:
    """pages_for() with accesses proportional to 1 / rank**exponent."""

def zipf_accesses_of(exponent: float, pages: float, hottest: float) -> float:
    """accesses_of() with accesses proportional to 1 / rank**exponent."""

class ServerSaving:
    """Savings by CXL memory."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def servers(self) -> float:
        """Number of servers with CXL memory that replace one without."""

    @property
    def break_even(self) -> float:
        """The cost ratio that saves nothing."""

    @property
    def saving(self) -> float | None:
        """The saving as a share of all cost; None without a cost ratio."""

class CostChange:
    """One input changed."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def name(self) -> str:
        """The name of the input."""

    @property
    def value(self) -> float:
        """The new value."""

    @property
    def result(self) -> ServerSaving | None:
        """The result; None: out of the model's range."""

    @property
    def reason(self) -> str:
        """Why there is no result."""

class InstanceGain:
    """The gain from selling stranded CPUs."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def stranded(self) -> float:
        """Stranded CPUs as a share of all CPUs."""

    @property
    def cxl_gib(self) -> float:
        """GiB of CXL memory needed per CPU of the server."""

    @property
    def revenue(self) -> float | None:
        """Additional revenue, as a share; None without a discount."""

def server_saving(dram_speed: float, cxl_speed: float, capacity_ratio: float, cost_ratio: float | None = None) -> ServerSaving:
    """
    Servers with CXL memory that replace one without, and the saving. Speeds are relative to SSD.
    """

def cost_sensitivity(dram_speed: float, cxl_speed: float, capacity_ratio: float, cost_ratio: float | None = None, change: float = 0.1) -> list[CostChange]:
    """server_saving() with each input a share lower and a share higher."""

def instance_gain(instance_gib: float, server_gib: float, discount: float | None = None) -> InstanceGain:
    """
    The gain from CPUs without enough DRAM, if they are sold with CXL memory.
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
        """Actions of its schemes."""

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
        The file's text, stripped; switches are "1" and "0". None: no such file. DeniedError: takes root.
        """

    def write(self, name: str, value: str) -> None:
        """Writes a setting. An Error: the kernel's reason."""

    def setting(self, name: str) -> str | None:
        """
        Like read(); numa_balancing is without the bit that `headrace tier attach` and `run` hold.
        """

    def set(self, name: str, value: str) -> None:
        """
        Like write(). The held bit of numa_balancing stays; a bit that a killed holder left is cleared.
        """

    def writable(self, name: str) -> bool:
        """Whether the file exists and may be written."""

    def names(self, pattern: str) -> list[str]:
        """
        The names for a pattern, in order of numbers. An Error: a folder cannot be read.
        """

    @property
    def busy_bound(self) -> float:
        """Seconds for which writes to busy files are retried."""

    @busy_bound.setter
    def busy_bound(self, arg: float, /) -> None: ...

    @property
    def lock_bound(self) -> float:
        """Seconds to wait for a lock."""

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
        """
        Raises an Error if DAMON cannot be set up, with the reason and its users.
        """

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
    """The result of one look."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def touches(self) -> list[Touch]:
        """Ranges in ascending order; memory in none of them was not touched."""

    @property
    def covered(self) -> float:
        """Seconds since the look before."""

    @property
    def unseen(self) -> int:
        """Tracked bytes whose accesses could not be seen."""

    @property
    def why_unseen(self) -> str:
        """Why some bytes are unseen; empty if none are."""

class Tracking:
    """How a range is tracked."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def granularity(self) -> int:
        """The unit in which touches are seen, in bytes: a page or a chunk."""

    @property
    def note(self) -> str:
        """Why the granularity is not the requested one; empty if it is."""

class HotnessSource:
    """Finds memory of this process that was touched between two looks."""

    @property
    def traits(self) -> HotnessTraits:
        """The accesses it sees, and its cost."""

    def track(self, memory: Object) -> Tracking:
        """
        Starts tracking a Buffer or MemoryRange of whole pages, and keeps it alive until untrack().
        """

    def untrack(self, memory: Object) -> None:
        """Stops tracking the memory."""

    def look(self) -> HotnessSample:
        """
        Memory touched since the last look. ExhaustedError: called again within the least interval.
        """

def open_hotness(kind: Literal['referenced', 'memfd', 'written'], *, chunk: int = 262144, least_interval: float = 0.1) -> HotnessSource:
    """
    Opens a source, and tests that it sees accesses. `chunk`: granularity of 'referenced' in bytes. UnsupportedError, DeniedError: the source does not work here, with the reason. ExhaustedError: this process already has a 'referenced'.
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
        """Adds the result of a look."""

    def heat(self, address: int) -> float:
        """Heat of the chunk that holds the address; 0 if it was never touched."""

    def hottest(self) -> list[HotChunk]:
        """All chunks that are warm, the hottest first."""

class TierDecision:
    """A chunk of memory that was demoted or promoted, and why."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def begin(self) -> int:
        """Its address."""

    @property
    def comes_in(self) -> bool:
        """True: promoted. False: demoted."""

    @property
    def bytes(self) -> int:
        """Bytes to move."""

    @property
    def heat(self) -> float:
        """From 0, not used, to 1."""

    @property
    def reason(self) -> str:
        """In plain words."""

class TierStep:
    """The result of one step."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def decisions(self) -> list[TierDecision]:
        """In the order in which they were carried out."""

    @property
    def resident(self) -> int:
        """Bytes of managed memory in the fast tier after the step."""

    @property
    def out(self) -> int:
        """Bytes of managed memory in swap, or on nodes other than the fast ones."""

    @property
    def refused(self) -> int:
        """
        Bytes that could not move: pinned, shared with a child made by fork, or no space at the destination. With swap also: locked, or touched again at once.
        """

    @property
    def backed_off(self) -> int:
        """
        Resident bytes of chunks that could not move before and were not tried again.
        """

    @property
    def undone(self) -> str:
        """Moves that the guard undid, and why; empty if none."""

class PageTier:
    """
    Tiers memory of this process between DRAM and swap, or between fast and slow nodes: hot memory stays within a budget, cold memory is demoted.
    """

    @staticmethod
    def open(budget: int, *, fast: Sequence[int] = [], slow: Sequence[int] = [], hysteresis: float = 0.1, least_heat: float = 0.05, per_second: int = 67108864, chunk: int = 262144, half_life: float = 10.0, least_interval: float = 0.1, guard: float = 0.05) -> PageTier:
        """
        `budget`: bytes that may be resident, in DRAM or on the nodes `fast`. `slow`: nodes for cold memory (default: swap). `guard`: the share by which moves may reduce the work per second that step() is given; if they reduce it more, the last moves are undone. UnsupportedError: there is no swap or it is full, with what to do. AbsentError, DeniedError, ExhaustedError: nothing can move to one of the nodes.
        """

    def add(self, memory: Object) -> None:
        """
        Manages a Buffer or MemoryRange of whole pages, private and anonymous, which it keeps alive until remove().
        """

    def remove(self, memory: Object) -> None:
        """
        Stops managing the memory. Demoted pages stay where they are: in swap until they are touched, on a node for good.
        """

    def step(self, work: int | None = None) -> TierStep:
        """
        Looks, decides and moves; call it about once a second. `work`: operations that the program has done since its start, of a kind that it always does as fast as it can; without it there is no guard. ExhaustedError: called again within the least interval.
        """

    def decisions(self) -> list[TierDecision]:
        """The last decisions, at most 1000, oldest first."""

def least_heat_that_pays(move: float, saved: float, half_life: float) -> float:
    """
    The least heat, and hysteresis, for PageTier at which a page pays for its move: `move` is seconds for a page in and one out, `saved` seconds that a page in the fast tier saves per second that it is in use. InvalidError: none pays.
    """

class HotnessTraits:
    """The accesses that a source of hotness sees, and its cost."""

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
        """
        True: sees single pages. False: sees how much of each chunk was touched.
        """

    @property
    def needs_root(self) -> bool:
        """Whether it takes root."""

    @property
    def memory(self) -> str:
        """Which memory it can track."""

    @property
    def cost(self) -> str:
        """The cost for the program, in words."""

class HotnessCost:
    """The cost of a source on this machine; medians."""

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
        """Number of pages that were tracked."""

def hotness_sources() -> list[HotnessTraits]:
    """
    All sources for memory of the calling process, whether they work here or not.
    """

def measure_hotness_cost(kind: Literal['referenced', 'memfd', 'written'], memory: int = 16777216) -> HotnessCost:
    """
    Opens and tests a source, and measures its cost on memory of its own, in less than half a second. UnsupportedError, DeniedError: the source does not work here, with the reason.
    """

class ArenaUse:
    """The observed use of an arena."""

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
        """
        Number of looks that saw any of the arena. If it is 0, `heat` means nothing.
        """

    @property
    def why_unseen(self) -> str:
        """Why some of it was not seen; '' if all was."""

class Arena:
    """A named heap. Memory from it keeps it alive."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def placement(self) -> Placement:
        """The placement asked for its memory."""

    def allocate(self, bytes: int) -> MemoryRange:
        """
        Memory of this arena, not zeroed, freed with the last array or transfer that uses it. ExhaustedError: no room.
        """

    def __repr__(self) -> str: ...

class Arenas:
    """The named heaps of a process, watched and placed by a plan."""

    def __init__(self, machine: Machine, *, plan: str = '', otherwise: str = 'dram', look_every: float | None = None) -> None:
        """
        `plan`: the text of a plan with the place of each arena. `otherwise`: the place of arenas that the plan does not name. `look_every`: seconds between looks of a thread that watches the arenas (default: no thread).
        """

    def arena(self, name: str) -> Arena:
        """The arena of this name, opened when it is first asked for."""

    def look(self) -> None:
        """Looks now. UnsupportedError: the arenas are not watched."""

    def uses(self) -> list[ArenaUse]:
        """The observed use of each arena, by name."""

def plan_arenas(uses: Sequence[ArenaUse], tiers: Sequence[tuple[str, int | None]]) -> str:
    """
    The text of a plan. Arenas are placed in order of falling heat. Each goes as a whole to the first of `tiers` with enough space; the last tier takes the rest. `tiers`: pairs of place and bytes, fastest first.
    """

def arenas_in_plan(plan: str) -> list[ArenaUse]:
    """The observed uses that the plan was made from."""

class ProcessTierStep:
    """The result of one step."""

    def __repr__(self) -> str: ...

    def asdict(self) -> dict[str, object]:
        """The fields by name, nested records too."""

    @property
    def resident(self) -> int:
        """Bytes in the fast tier, as far as known."""

    @property
    def out(self) -> int:
        """Bytes in the slow tier."""

    @property
    def went_out(self) -> int:
        """Bytes that this step demoted."""

    @property
    def came_in(self) -> int:
        """Bytes that this step promoted."""

    @property
    def returned(self) -> int:
        """Bytes promoted by the program's own page faults."""

    @property
    def refused(self) -> int:
        """Bytes that could not be demoted, by the last survey."""

    @property
    def surveyed(self) -> bool:
        """Whether the places of all pages were read."""

    @property
    def undone(self) -> str:
        """Moves that the guard undid, and why; empty if none."""

    @property
    def note(self) -> str:
        """An obstacle to tiering, in words; empty if none."""

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
        """Major page faults of the program."""

    @property
    def tracker_cpu(self) -> float:
        """CPU time to find out and decide."""

    @property
    def mover_cpu(self) -> float:
        """CPU time to move."""

    @property
    def went_out(self) -> int:
        """Bytes demoted."""

    @property
    def came_in(self) -> int:
        """Bytes promoted."""

    @property
    def undone(self) -> int:
        """Times that the guard undid something."""

    @property
    def lost(self) -> int:
        """Page faults that were lost because they came too fast."""

class ProcessTier:
    """
    Memory of another process between DRAM and swap, or between nodes. Thread-safe.
    """

    @property
    def source(self) -> Literal['hint-faults', 'refaults', 'referenced', 'damon']:
        """The source of hotness."""

    @property
    def why(self) -> str:
        """Why this source was chosen, and which settings it changed."""

    def step(self) -> ProcessTierStep:
        """
        Takes the observed accesses, decides and moves; call it a few times a second. AbsentError: the process has ended, or has become another program.
        """

    def decisions(self) -> list[TierDecision]:
        """The last decisions, at most 1000, oldest first."""

    def totals(self) -> ProcessTierTotals:
        """Times and counts since the start."""

    def close(self) -> None:
        """Stops tiering, and restores the kernel's settings."""

def tier_process(pid: int, budget: int, *, source: Literal['hint-faults', 'refaults', 'referenced', 'damon'] | None = None, guard: float = 0.05, per_second: int = 67108864, half_life: float = 0.0, directory: str = '', fast: Sequence[int] = [], slow: Sequence[int] = [], hold: bool = False) -> ProcessTier:
    """
    Keeps a process within `budget` bytes of fast memory, hot pages first. Without nodes, cold pages go to swap; with nodes, the budget is for the `fast` nodes and the rest goes to the `slow` ones. `hold`: with swap, also set the limit of its cgroup. ExhaustedError: another program tiers the process already. DeniedError: swap takes root; nodes take the same user. UnsupportedError: no swap.
    """

def restore_after_kill(directory: str = '') -> bool:
    """
    Restores kernel settings that a killed tier left behind. True if there were any.
    """
