"""Workers of real launchers, pools and servers that die under ``cudaguard run``, or do not.

An error that the launcher hands on, or logs itself, has its module and line there.
"""

from __future__ import annotations

import os
import re
import signal
import sys

import pytest

from ..conftest import clean_environment
from ..deaths import FAULT, LINUX_TELLS, SAID
from ..processes import started, until
from .pins import ACCELERATE, KERNEL, MPI, RAY, SERVERS, TORCH
from .test_forking_servers import BROKER, PATIENCE, ask

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux"),
]

DATALOADER = """\
import sys
from torch.utils.data import DataLoader
from fault import die

class Items(list):
    def __getitem__(self, place):
        die(sys.argv[2])
        return place

if __name__ == "__main__":
    options = {"multiprocessing_context": sys.argv[1], "persistent_workers": "keep" in sys.argv}
    print(len(list(DataLoader(Items([0] * 4), num_workers=2, **options))))
"""
JOBLIB = """\
import sys
from joblib import Parallel, delayed
from fault import die

if __name__ == "__main__":
    print(len(Parallel(n_jobs=2)(delayed(die)(sys.argv[1]) for _ in range(4))))
"""
RANKS = """\
import sys
import torch
import torch.distributed as dist
from fault import die

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
assert "cudaguard.api" in sys.modules
if dist.get_rank() == 1:
    die(sys.argv[1])
dist.barrier()
dist.destroy_process_group()
"""
MEETING = """\
import sys
from fault import die
{start}
{meet}
if {rank} == 1:
    die(sys.argv[1])
{meet}
"""
ACCELERATED = MEETING.format(
    start="from accelerate import Accelerator; job = Accelerator(cpu=True)",
    meet="job.wait_for_everyone()",
    rank="job.process_index",
)
MESSAGES = MEETING.format(
    start="from mpi4py.MPI import COMM_WORLD as job", meet="job.Barrier()", rank="job.rank"
)
NOTEBOOK = """\
import sys, time
from jupyter_client import KernelManager

manager = KernelManager(kernel_name="python3")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute_interactive("from fault import die")
client.execute(f"die({sys.argv[1]!r})")
deadline = time.monotonic() + 2
while manager.is_alive() and time.monotonic() < deadline:
    time.sleep(0.1)
client.stop_channels()
manager.shutdown_kernel()
"""
CLUSTER = """\
import sys, time
import ray
from fault import die

class Actor:
    def look(self):
        pass

ray.init(num_cpus=2, include_dashboard=False, _system_config={"enable_metrics_collection": False})
work = ray.remote(max_retries=0)(die)
try:
    ray.get(work.remote(sys.argv[1]))
except ray.exceptions.RayError as error:
    print(error)
if sys.argv[1] == "none":  # whom Ray itself kills
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

    group = placement_group([{"CPU": 1}])
    placed, free = ({"num_cpus": 1, "scheduling_strategy": In(group)}, {})
    actors = [ray.remote(Actor).options(**how).remote() for how in (placed, free)]
    ray.get([actor.look.remote() for actor in actors])
    remove_placement_group(group)
    ray.kill(actors[1])
    slow = ray.remote(max_retries=0)(lambda: time.sleep(60)).remote()
    time.sleep(1)
    ray.cancel(slow, force=True)
    time.sleep(2)
ray.shutdown()
"""
LAUNCH = ("--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no",
          "--main_process_port=0")  # fmt: skip
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "python", "-m", "mpi4py")
# Name -> environment, program, command.
JOBS = {
    "dataloader-fork": (TORCH, DATALOADER, ("job.py", "fork")),
    "dataloader-spawn": (TORCH, DATALOADER, ("job.py", "spawn")),
    "joblib": (SERVERS, JOBLIB, ("job.py",)),
    "accelerate": (
        TORCH,
        ACCELERATED,
        ("-m", "accelerate.commands.launch", *LAUNCH, "--dynamo_backend=no", "job.py"),
    ),
    "mpirun": (MPI, MESSAGES, (*MPIRUN, "job.py")),
    "jupyter": (KERNEL, NOTEBOOK, ("job.py",)),
    "ray": (RAY, CLUSTER, ("job.py",)),
    "torchrun": (TORCH, RANKS, ("torchrun", "--standalone", "--nproc-per-node", "2", "job.py")),
}


@pytest.mark.parametrize("death", [*SAID, "none"])
@pytest.mark.parametrize("job", JOBS)
def test_job(child, cached_environment, kept, root, job, death):
    pins, program, command = JOBS[job]
    python = cached_environment(*pins)
    child.write("fault.py", FAULT)
    child.write("job.py", program)
    path = f"{os.path.dirname(python)}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(child.folder)}
    env["HOME"] = str(child.folder)  # Ray writes there
    if job == "torchrun":  # that of an environment that lacks cudaguard
        python = sys.executable
    else:
        env["PYTHONPATH"] += f"{os.pathsep}{root}"
    if job == "accelerate":
        env["PYTHONPATH"] += f"{os.pathsep}{kept.packages(*ACCELERATE)}"
    keep = ["keep"] if job.startswith("dataloader") and death == "SIGSEGV" else []
    run = (python, "-m", "cudaguard", "run", *command, death, *keep)
    done = child.command(*run, env=env, check=False, timeout=120)
    if death == "none":
        assert (done.returncode, "cudaguard" in done.stderr) == (0, False), done.stderr
        return
    ours = [line for line in done.stderr.splitlines() if line.startswith("cudaguard")]
    goes_on, is_job = job in ("jupyter", "ray"), job in ("accelerate", "mpirun", "torchrun")
    number = 128 + getattr(signal, death, 0) if job == "mpirun" and death != "import" else 1
    assert done.returncode == (0 if goes_on else number)
    if death == "import" and not is_job:  # the program has it, or a traceback of its own
        assert (ours, goes_on or 'fault.py", line 15, in die' in done.stderr) == ([], True)
        return
    if death == "SIGKILL" and (job == "ray" or (job == "mpirun" and not LINUX_TELLS)):  # they know
        words = "137: probably a process that it had started was killed (SIGKILL)."
        said = [f"cudaguard run: mpirun ended with status {words}"] * (job == "mpirun")
        assert [*map(str.strip, ours)] == said
        return
    told = [line for line in ours if SAID[death] in line]
    alone = [re.search(r"\(?process (\d+)", line)[1] for line in told if "; " not in line]
    assert len(alone) == len(set(alone)), ours  # each once, and in the report
    (said,) = (line for line in told if goes_on or "; " in line)
    assert goes_on or said.endswith(f"then ended with status {number}.") or death == "SIGKILL"
    if is_job:
        assert "cudaguard run: rank 1 of 2 (process " in said
        assert "cudaguard [" not in done.stderr  # what torchrun says needs no explanation
    if death == "SIGBUS" and job.startswith("dataloader"):  # torch's own words are still there
        assert "insufficient shared memory" in done.stderr


SERVED = """\
import os
from fault import die

die(os.environ.get("AT_START"))

def wsgi(environ, start_response):
    die(environ["PATH_INFO"][1:])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"well"]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        die(scope["path"][1:])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"well"})
"""
CLIENT = """\
import sys
from served import app

for how in sys.argv[1:]:
    try:
        print(app.send_task("work", (how,)).get(timeout=90))
    except Exception as error:
        print(type(error).__name__)
"""
SERVE = {
    "gunicorn": ("--workers=2", "--bind=unix:socket", "--no-control-socket", "served:wsgi"),
    "uvicorn": ("--workers=2", "--uds=socket", "served:asgi"),
    "celery": ("-A", "served", "worker", "-P", "prefork", "-c", "1", "-l", "WARNING"),
}


@pytest.mark.parametrize("death", [*SAID, "none"])
@pytest.mark.parametrize("server", SERVE)
def test_server_with_a_new_worker(child, cached_environment, root, server, death, monkeypatch):
    python = cached_environment(*SERVERS)
    child.write("fault.py", FAULT)
    task = f"{BROKER}\nfrom fault import die\n\nwork = app.task(die, name='work')\n"
    child.write("served.py", task if server == "celery" else SERVED)
    child.write("client.py", CLIENT)
    for name in ("queue", "control", "results"):
        (child.folder / name).mkdir()
    monkeypatch.chdir(child.folder)  # the path of a socket must be short
    at_start = death == "import" and server != "celery"  # later, it is one request that fails
    is_logged = death == "import" and server != "uvicorn"  # by the server, with the line
    is_told = death != "none" and not is_logged
    text = 'fault.py", line 15, in die' if is_logged else SAID.get(death, "")
    env = {"PYTHONPATH": f"{root}{os.pathsep}{child.folder}", "HOME": str(child.folder)}
    env = clean_environment(**env, **({"AT_START": death} if at_start else {}))
    command = [python, "-m", "cudaguard", "run", "-m", server, *SERVE[server]]
    with started(command, env, child.folder) as process:
        if server == "celery":
            said = child.command(python, "client.py", "", death, "", env=env).stdout.split()
            assert (said[0], said[-1]) == ("None", "None")
        elif not at_start:
            assert [ask("socket", one) for one in ("", death, "")][::2] == ["well", "well"]
        until(lambda: text in (child.folder / "log").read_text(), PATIENCE)
        gives_up = at_start and server == "gunicorn"
        if not gives_up:
            process.send_signal(signal.SIGTERM)
        # As gunicorn does without us: by which worker it hears of it first.
        assert process.wait(PATIENCE) in ((1, 3) if gives_up else (0,))
    log = (child.folder / "log").read_text()
    assert log.count("cudaguard run: process") == (log.count(text) if is_told else 0)
    assert ("cudaguard run" in log) == is_told
