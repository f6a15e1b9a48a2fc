"""The questions of `gpu_facts` that need a torch which is built for CUDA."""

from __future__ import annotations

from benchmarks.gpu_questions import Question

# --- which call initializes the driver, which creates a context ------------------------------

CALL = """
import torch
before = mib()
{call}
tell(state=state(), mib=more(before, mib()), torch_says=torch.cuda.is_initialized())
"""
CALLS = (
    "pass",
    "import torch._dynamo",
    "import torch._inductor.config",
    "import torch.utils.cpp_extension",
    "torch.compile(lambda x: x + 1)",
    "torch.cuda.device_count()",
    "torch.cuda.is_available()",
    "torch.cuda.manual_seed(0)",
    "torch.cuda.memory_allocated()",
    "torch.cuda.init()",
    "torch.cuda.get_device_capability()",
    "torch.cuda.get_device_properties(0)",
    "torch.cuda.is_bf16_supported()",
    "torch.cuda.current_device()",
    "torch.cuda.current_stream()",
    "torch.cuda.Stream()",
    "torch.cuda.Event()",
    "torch.cuda.Event().record()",
    "torch.cuda.set_device(0)",
    "with torch.cuda.device(0): pass",
    "torch.cuda.synchronize()",
    "torch.cuda.mem_get_info()",
    "torch.cuda.get_rng_state()",
    "torch.zeros(1).pin_memory()",
    "torch.empty(0, device='cuda')",
    "torch.empty(1, device='cuda')",
    "torch.ones(1, device='cuda').item()",
)
BY_NVML = (("PYTORCH_NVML_BASED_CUDA_CHECK", "1"),)
CALLED = (
    *(
        Question("torch", "import torch" if call == "pass" else call, CALL.format(call=call), True)
        for call in CALLS
    ),
    Question(
        "torch",
        "is_available(), PYTORCH_NVML_BASED_CUDA_CHECK=1",
        CALL.format(call="torch.cuda.is_available()"),
        True,
        BY_NVML,
    ),
)

# --- forks -----------------------------------------------------------------------------------

TORCH_IN_CHILD = """
def child():
    flag = torch.cuda._is_in_bad_fork()
    try:
        works = torch.ones(1, device="cuda").item() == 1
    except Exception as error:
        works = first_line(error)
    return f"bad fork {flag}, works: {works}"
tell(child=in_fork(child))
"""
FORKS = tuple(
    Question(
        "forks of torch", f"{what}; torch in a child", f"{code}\n{TORCH_IN_CHILD}", True, tuple(env)
    )
    for what, code, env in (
        ("import torch", "import torch", ()),
        ("device_count()", "import torch; torch.cuda.device_count()", ()),
        ("is_available()", "import torch; torch.cuda.is_available()", ()),
        ("is_available() by NVML", "import torch; torch.cuda.is_available()", BY_NVML),
        ("init()", "import torch; torch.cuda.init()", ()),
        ("nvmlInit", "device(); import torch", ()),
        ("cuDriverGetVersion",
         "import torch; cu().cuDriverGetVersion(ctypes.byref(ctypes.c_int()))", ()),
        ("cuInit", "import torch; initialize()", ()),
        ("cuInit, retain", "import torch; initialize(); retain()", ()),
        ("create_context(), torch before", "import torch, cudaguard; cudaguard.create_context()",
         ()),
        ("create_context(), torch after",
         "import cudaguard; cudaguard.install(context=0); import torch", ()),
    )
)  # fmt: skip

# --- variables -------------------------------------------------------------------------------

# A kernel that takes some tenths of a second: who waits for it, its launch or synchronize()?
BLOCKING = """
import torch
setting = lambda: os.environ.__setitem__("CUDA_LAUNCH_BLOCKING", "1")
%s
initialize()
%s
retain()
%s
torch.ones(1, device="cuda")
torch.cuda._sleep(1000)
torch.cuda.synchronize()
%s
launch = ms(lambda: torch.cuda._sleep(400_000_000))
wait = ms(torch.cuda.synchronize)
tell(launch_ms=launch, wait_ms=wait, blocking=launch > wait)
"""
MOMENTS = ("before cuInit", "after cuInit", "after retain", "after the first kernel", "never")
VARIABLES = (
    *(
        Question(
            "variables of torch",
            f"CUDA_LAUNCH_BLOCKING=1, {moment}",
            BLOCKING % tuple("setting()" if i == at else "" for i in range(4)),
            True,
        )
        for at, moment in enumerate(MOMENTS)
    ),
    Question(
        "variables of torch",
        "CUDA_VISIBLE_DEVICES='' after torch.cuda.init()",
        "import torch\ntorch.cuda.init()\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
        "tell(driver=count(), torch=torch.cuda.device_count())",
        True,
    ),
    Question(
        "variables of torch",
        "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync late",
        "import torch\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'backend:cudaMallocAsync'\n"
        "torch.ones(1, device='cuda')\ntell(backend=torch.cuda.get_allocator_backend())",
        True,
    ),
    Question(
        "variables of torch",
        "CUDA_MODULE_LOADING, as torch leaves it",
        "import torch\ntorch.cuda.init()\ntell(value=os.environ.get('CUDA_MODULE_LOADING'))",
        True,
    ),
)

# --- contexts of one's own beside torch, and references ------------------------------------------

POP = "ok(cu().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))"
BEFORE = {
    "own context, then torch": "initialize(); own(); import torch",
    "own context, popped, then torch": f"initialize(); own(); {POP}; import torch",
    "torch, then an own context": "import torch; torch.ones(1, device='cuda'); own()",
    "torch, own context, popped": f"import torch; torch.ones(1, device='cuda'); own(); {POP}",
}
WORK = {
    "ones": "torch.ones(4, device='cuda').sum().item() == 4",
    "stream, event": "streams()",
    "matmul": "(torch.ones(64, 64, device='cuda') @ torch.ones(64, 64, device='cuda'))[0, 0]"
    ".item() == 64",
    "convolution": "torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8, device='cuda'), "
    "torch.ones(1, 1, 3, 3, device='cuda'))[0, 0, 0, 0].item() == 9",
}
WORKING = """
{before}
def streams():
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        total = torch.ones(4, device="cuda").sum()
        event.record(stream)
    event.synchronize()
    return total.item() == 4
mine = current()
try:
    result = "right" if {work} else "WRONG"
except Exception as error:
    result = first_line(error)
tell(result=result, same_current=current() == mine, state=state())
"""
CONTEXTS = (
    *(
        Question("own contexts", f"{first}: {what}", WORKING.format(before=code, work=work), True)
        for first, code in BEFORE.items()
        for what, work in WORK.items()
    ),
    Question(
        "own contexts",
        "torch joins a retained context",
        "initialize()\ncontext = retain()\nimport torch\nbefore = mib()\n"
        "total = torch.ones(4, device='cuda').sum().item()\n"
        "tell(joined=current() == context.value, total=total, mib=more(before, mib()))",
        True,
    ),
    Question(
        "own contexts",
        "torch after our reference is released",
        "initialize()\nretain()\nimport torch\nx = torch.ones(4, device='cuda')\n"
        "ok(cu().cuDevicePrimaryCtxRelease_v2(0))\n"
        "tell(total=(x + torch.ones(4, device='cuda')).sum().item(), state=state())",
        True,
    ),
)

# --- results of compiled callables that use CUDA graphs, kept valid ------------------------------

# Eight results of 4 MiB, the last set of which is held: per call, and at the peak beyond what is
# there before.
PROTECTED = """
import torch, cudaguard
torch.set_grad_enabled(False)
x = torch.randn(1 << 20, device="cuda")

def large(x):
    return [torch.sin(x + number) * 2 for number in range(8)]

def cost(call):
    for _ in range(5):
        result = call(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(200):
        result = call(x)
    last.record()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return round(first.elapsed_time(last) / 200, 4), round(peak / 2**20, 2)

bare = torch.compile(large, mode="reduce-overhead")
bare_ms, bare_mib = cost(bare)
safe = {code}
ms, mib = cost(safe)
tell(ms=ms, bare_ms=bare_ms, times=round(ms / bare_ms, 2), mib=mib, bare_mib=bare_mib)
"""
GRAPHS = tuple(
    Question("graphs", f"graph_safe, {what}", PROTECTED.format(code=code), True)
    for what, code in (
        ("bare again", "bare"),
        ("clone", "cudaguard.graph_safe(bare)"),
        ("no-graphs", "cudaguard.graph_safe(bare, strategy='no-graphs')"),
    )
)

TORCH_QUESTIONS = (*CALLED, *FORKS, *VARIABLES, *CONTEXTS, *GRAPHS)
