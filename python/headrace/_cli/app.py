"""The subcommands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

# Boxes and colours are for terminals only.
_STYLE: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None

app = typer.Typer(
    help="Headrace brings data to the memory that will use it, before it is used.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=_STYLE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(
    help="Measure copying, STREAM, a histogram, DSA devices, or a query fetched ahead.",
    no_args_is_help=True,
    rich_markup_mode=_STYLE,
)
app.add_typer(bench_app, name="bench")
dsa_app = typer.Typer(
    help="Set up the work queues of Intel DSA.",
    no_args_is_help=True,
    rich_markup_mode=_STYLE,
)
app.add_typer(dsa_app, name="dsa")

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[
    Optional[Path], typer.Option("--out", metavar="FILE", help="Write the JSON document here too.")
]
Convention = Annotated[
    Optional[str],
    typer.Option(
        "--convention",
        metavar="NAME",
        help="A column with what stream, likwid, mlc or mbw would print for it.",
    ),
]


def _version(asked: bool) -> None:
    if asked:
        from headrace import __version__

        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def topo(
    json: Json = False,
    source: Annotated[
        Optional[str],
        typer.Option("--from", metavar="FILE|PRESET", help="A machine other than this one."),
    ] = None,
    xml: Annotated[bool, typer.Option("--xml", help="hwloc XML with the kinds of nodes.")] = False,
) -> None:
    """Show a machine: its memories and what copies between them."""
    from headrace._cli import topo as command

    command.run(json=json, source=source, xml=xml)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="What to run, and its arguments."),
    ],
    on: Annotated[
        Optional[str],
        typer.Option("--on", metavar="PLACE", help="Memory from there, or none (strict)."),
    ] = None,
    prefer: Annotated[
        Optional[str],
        typer.Option("--prefer", metavar="PLACE", help="From there while there is room."),
    ] = None,
    weights: Annotated[
        Optional[str],
        typer.Option("--weights", metavar="PLACE=N,...", help="Pages in turn by weight."),
    ] = None,
    interleave: Annotated[
        Optional[str],
        typer.Option("--interleave", metavar="PLACE", help="Page by page in turn over its nodes."),
    ] = None,
    cpus: Annotated[
        Optional[str],
        typer.Option("--cpus", metavar="near:PLACE|LIST", help="Run only on these."),
    ] = None,
    tile: Annotated[
        Optional[Literal["per-rank"]],
        typer.Option(
            "--tile", help="Each MPI rank on its own tile (a node with CPUs) and memory near it."
        ),
    ] = None,
    needs: Annotated[
        Optional[str],
        typer.Option(
            "--needs", metavar="SIZE", help="Refuse to start if it cannot fit; warn if it spills."
        ),
    ] = None,
    set_system_weights: Annotated[
        bool, typer.Option("--set-system-weights", help="As root: set the kernel's weights too.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say what is done, as a line for numactl.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say it, and run nothing.")
    ] = False,
    source: Annotated[
        Optional[str],
        typer.Option("--from", metavar="FILE|PRESET", help="Another machine, with --dry-run."),
    ] = None,
) -> int:
    """Run a program with its memory and CPUs where it should be.

    PLACE is a kind (dram, hbm, cxl), a property (fastest, lowest_latency, highest_bandwidth,
    largest) or nodes (8-15).

    \b
    headrace run --on hbm -- ./stream            HBM only; killed when it is full
    headrace run --prefer hbm -- ./stream        HBM first, then the nearest
    headrace run --weights dram=3,cxl=1 -- ./db  3 pages on DRAM for 1 on CXL
    headrace run --weights 0=3,8=1 --set-system-weights -- ./db  root: sets them
    headrace run --interleave 0-7 -- ./db        page by page over nodes 0 to 7
    headrace run --cpus near:hbm --on hbm -- ./a     on the CPUs beside the HBM
    headrace run --on hbm --needs 20GiB -- ./a       only if 20 GiB are free
    headrace run -v --on hbm -- ./a                  says numactl --membind 8-15
    headrace run --on hbm --from xeon-max --dry-run -- ./a     what it would be
    mpirun -np 8 headrace run --tile per-rank --prefer hbm -- ./stream_mpi

    The program takes the place of headrace: same process, its signals, its exit code. Not found:
    127; not executable: 126. Placement is inherited by what it starts.
    """
    from headrace._cli import parse
    from headrace._cli import run as command
    from headrace._run_plan import Request

    request = Request(
        on=on, prefer=prefer, weights=weights, interleave=interleave, cpus=cpus,
        per_rank=tile is not None, needs=None if needs is None else parse.size(needs),
        set_system_weights=set_system_weights,
    )  # fmt: skip
    return command.run(request, program, verbose=verbose, dry=dry_run, source=source)


@app.command()
def where(
    pid: Annotated[int, typer.Argument(metavar="PID", min=1, help="Of a running program.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Again each second, until it ends or Ctrl-C.")
    ] = False,
    json: Json = False,
) -> int:
    """Show on which nodes the memory of a running program is.

    \b
    headrace where 4711           once
    headrace where --watch 4711   as it grows and moves
    headrace where --json 4711    for scripts
    """
    from headrace._cli import where as command

    return command.run(pid=pid, watch=watch, json=json)


@app.command()
def doctor(
    json: Json = False,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIRECTORY", help="Where the data to be moved lies.")
    ] = Path(),
) -> None:
    """Show what is missing for full use, each with its remedy."""
    from headrace._cli import doctor_command as command

    command.run(json=json, data=data)


@app.command()
def measure(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[EXPERIMENT]...", help="Those to run; --list shows them. All."),
    ] = None,
    only: Annotated[
        Optional[str],
        typer.Option(
            "--only", metavar="NAME=VALUE,...", help="Points with these: mix=read; a=hbm,b=dram."
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="30s, 5m: what to know first is first.")
    ] = "60s",
    full: Annotated[
        bool, typer.Option("--full", help="All points, however long, until each is certain.")
    ] = False,
    width: Annotated[
        str,
        typer.Option("--width", metavar="SHARE", help="Certain: a 95 % interval narrower than it."),
    ] = "3%",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of points.")] = 1,
    launches: Annotated[
        Optional[int],
        typer.Option("--launches", min=1, max=99, help="Processes, one by one: 1; 3 with --full."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="On the disk to be measured.")
    ] = Path("."),
    resume: Annotated[
        bool, typer.Option("--resume", help="Measure only what FILE of --out does not have.")
    ] = False,
    mpi: Annotated[
        bool, typer.Option("--mpi", help="Each host of an MPI job, and which one is unlike others.")
    ] = False,
    list_them: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    convention: Convention = None,
    json: Json = False,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="Write the profile here.")
    ] = None,
) -> int:
    """Measure memory, links, copies, disk and DSA devices into a profile."""
    from headrace._cli import measure as command

    if list_them:
        return command.list_experiments()
    options = command.Options(
        names=names or [], only=only, budget=budget, full=full, width=width, seed=seed,
        launches=launches, directory=directory, resume=resume, out=out,
    )  # fmt: skip
    if mpi:
        from headrace._cli.measure_fleet import measure_fleet

        return measure_fleet(options, convention=convention, json=json)
    return command.measure(options, convention=convention, json=json)


@app.command()
def fleet(
    profiles: Annotated[
        list[Path], typer.Argument(metavar="PROFILE...", help="Of each host, measured alike.")
    ],
    least: Annotated[
        str, typer.Option(metavar="SHARE", help="Smaller differences do not count.")
    ] = "10%",
    json: Json = False,
    out: Out = None,
) -> int:
    """Show which host is slow or configured differently; exit code 9 if one is.

    \b
    mpirun --map-by ppr:1:node headrace measure --mpi --out p.json   measures them all, and asks
    headrace fleet p.*.json                                          asks again
    """
    from headrace._cli import fleet as command

    return command.run(files=profiles, least=least, json=json, out=out)


@app.command()
def export(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A measured profile, or a preset.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="table; csv; mlc, as latency checkers print; nvbandwidth, copies as a matrix; "
            "hwloc, XML with memory attributes; weights, for the kernel's interleave; memkind; "
            "audit, of what firmware rates.",
        ),
    ],
    convention: Convention = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="Write it here instead.")
    ] = None,
) -> int:
    """Turn a profile into what other tools read."""
    from headrace._cli.export import export as run

    return run(profile=profile, form=form, convention=convention, out=out)


@bench_app.command("copy")
def bench_copy(
    json: Json = False,
    sizes: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="Such as 64KiB,1MiB; default 64 B to 1 GiB by fours."),
    ] = None,
    threads: Annotated[str, typer.Option(metavar="LIST", help="Such as 1,2.")] = "1",
    engines: Annotated[
        str, typer.Option(metavar="LIST", help="Such as memcpy,avx2_nt; all: every kernel.")
    ] = "memcpy,cpu",
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved repetitions.")
    ] = 7,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few sizes and rounds: seconds, less certain.")
    ] = False,
    out: Out = None,
) -> int:
    """Measure copying with cores against memcpy, in and out of the CPU's caches."""
    from headrace._cli import bench

    return bench.copy(
        json=json,
        sizes=sizes,
        threads=threads,
        engines=engines,
        rounds=rounds,
        quick=quick,
        out=out,
    )


Threads = Annotated[
    Optional[int],
    typer.Option(metavar="NUMBER", min=1, max=4096, help="Default: one per core."),
]


@bench_app.command("histogram")
def bench_histogram(
    data: Annotated[
        Optional[str], typer.Option("--data", metavar="PLACE", help="Where the doubles are.")
    ] = None,
    bins: Annotated[
        Optional[str], typer.Option("--bins", metavar="PLACE", help="Where the counters are.")
    ] = None,
    threads: Threads = None,
    size: Annotated[
        Optional[str],
        typer.Option(metavar="SIZE", help="Of the data; default 171 MiB per thread, if it fits."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved, memory made anew.")
    ] = 3,
    json: Json = False,
    out: Out = None,
) -> int:
    """Count many doubles into many bins, each in a memory of its own (IT4I's example).

    PLACE is as of headrace run. Left out: the two fastest kinds here, each.

    \b
    headrace bench histogram                          all four combinations
    headrace bench histogram --data dram --bins hbm   the guide's best
    """
    from headrace._cli import bench_histogram as command

    return command.histogram(
        data=data, bins=bins, threads=threads, size=size, rounds=rounds, json=json, out=out
    )


@bench_app.command("stream")
def bench_stream(
    a: Annotated[str, typer.Option("--a", metavar="PLACE", help="Where array a is.")] = "dram",
    b: Annotated[str, typer.Option("--b", metavar="PLACE", help="Where array b is.")] = "dram",
    c: Annotated[str, typer.Option("--c", metavar="PLACE", help="Where array c is.")] = "dram",
    size: Annotated[
        Optional[str],
        typer.Option(metavar="SIZE", help="Of an array of a rank; default four times the caches."),
    ] = None,
    threads: Threads = None,
    repetitions: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="The best one counts.")
    ] = 10,
    tile: Annotated[
        bool,
        typer.Option("--per-rank-tile", help="Each rank on its own tile and the memory near it."),
    ] = False,
    json: Json = False,
    out: Out = None,
) -> int:
    """Run STREAM's kernels with each array where one says, in one process or an MPI job.

    PLACE is as of headrace run. Ranks of MPI take mpi4py too.

    \b
    headrace bench stream --a hbm --b dram --c hbm
    mpirun -n 8 headrace bench stream --per-rank-tile --a hbm --b hbm --c hbm
    """
    from headrace._cli import bench_stream as command

    options = command.Options((a, b, c), size, threads, repetitions, tile)
    return command.stream(options=options, json=json, out=out)


Query = Annotated[str, typer.Option(metavar="NAME", help="sum, q6 or q1.")]
Scale = Annotated[float, typer.Option(metavar="NUMBER", help="TPC-H scale factor.")]
Runs = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved runs of each mode.")
]
Data = Annotated[
    Optional[Path],
    typer.Option("--data", metavar="DIRECTORY", help="Where tables are kept and made."),
]
Slow = Annotated[
    Optional[int], typer.Option(metavar="NODE", help="Where the columns start; default storage.")
]
Fast = Annotated[
    Optional[int], typer.Option(metavar="NODE", help="Where they are wanted; default the fastest.")
]


@bench_app.command("query")
def bench_query(
    query: Query = "q6",
    scale: Scale = 3,
    runs: Runs = 5,
    mode: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME", help="resident, direct, mmap, prefetch or duckdb; repeat; default all."
        ),
    ] = None,
    slow: Slow = None,
    fast: Fast = None,
    threads: Annotated[
        Optional[int],
        typer.Option(metavar="NUMBER", min=1, max=1024, help="Of the pipeline; default all CPUs."),
    ] = None,
    block: Annotated[str, typer.Option(metavar="SIZE", help="Of the widest column.")] = "1MiB",
    budget: Annotated[str, typer.Option(metavar="SIZE", help="Of the cache.")] = "256MiB",
    data: Data = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Run a query whose columns are fetched ahead, against the ways without it."""
    from headrace._cli import bench

    return bench.query(
        query=query, scale=scale, runs=runs, modes=mode, slow=slow, fast=fast, threads=threads,
        block=block, budget=budget, data=data, json=json, out=out,
    )  # fmt: skip


@bench_app.command("dsa")
def bench_dsa(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(metavar="[EXPERIMENT]...", help="Those to run; --list shows them. All."),
    ] = None,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="A model of DSA devices, not those of this host.")
    ] = False,
    sizes: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="Of submission and cpu; default 1 KiB to 1 GiB."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Of each point on hardware.")
    ] = 3,
    list_them: Annotated[bool, typer.Option("--list", help="Name the experiments.")] = False,
    html: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="A page with the figures too.")
    ] = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure DSA devices: hand-over, threads, routes, queues, cores."""
    from headrace._cli import bench_dsa as command

    return command.dsa(
        names=names, emulated=emulated, sizes=sizes, rounds=rounds, list_them=list_them,
        json=json, out=out, html=html,
    )  # fmt: skip


@app.command()
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A measured profile.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    least: Annotated[
        str, typer.Option(metavar="SHARE", help="Smaller changes do not count.")
    ] = "5%",
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every row, not only those that changed.")
    ] = False,
) -> int:
    """Show what differs beyond noise between two profiles; exit code 9 if anything does."""
    from headrace._cli import compare as command

    return command.run(old=old, new=new, least=least, json=json, everything=everything)


@app.command()
def report(
    file: Annotated[
        Optional[Path], typer.Argument(metavar="FILE", help="What --out or demo wrote.")
    ] = None,
    machine: Annotated[
        Optional[str],
        typer.Option("--machine", metavar="PRESET", help="Instead: published figures, xeon-max."),
    ] = None,
    html: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Default: beside FILE, report.html.")
    ] = None,
    png: Annotated[Optional[Path], typer.Option(metavar="FILE", help="A picture too.")] = None,
) -> None:
    """Make a page of charts, readable offline, from a document or of a published machine."""
    from headrace._cli import report as command

    command.run(file=file, machine=machine, html=html, png=png)


@app.command()
def demo(
    scale: Scale = 3,
    runs: Runs = 5,
    query: Query = "q6",
    data: Data = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIRECTORY", help="For demo.json and the report.")
    ] = Path("out"),
    png: Annotated[bool, typer.Option(help="A picture of the report too.")] = True,
    json: Json = False,
) -> int:
    """Measure this machine, run a query fetched ahead, report."""
    from headrace._cli import demo as command

    return command.run(scale=scale, runs=runs, query=query, data=data, out=out, png=png, json=json)


@dsa_app.callback()
def _dsa_root() -> None:
    pass


@dsa_app.command()
def setup(
    show: Annotated[
        bool, typer.Option("--show", help="The commands of accel-config; changes nothing.")
    ] = False,
    config: Annotated[
        bool, typer.Option("--config", help="The same as a file for accel-config load-config.")
    ] = False,
    layout: Annotated[
        str,
        typer.Option(
            "--layout", metavar="NnDdEeWw",
            help="Nodes, devices per node, engines and work queues per device.",
        ),
    ] = "8n1d1e1w",
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="shared, or dedicated: one process each.")
    ] = "shared",
) -> int:
    """Print how to give programs the DSA devices of a machine."""
    from headrace._cli.dsa import setup as run

    return run(show=show, config=config, layout=layout, mode=mode)
