"""The built-in knowledge, one module per incident family.

Data only. Every rule carries its evidence; `verified` is None where the fault has not been
reproduced for this project. ``tests/unit/test_catalog.py`` checks each entry.
"""

from __future__ import annotations

from cudaguard.core.verbs import collect_from
from cudaguard.features.array_interface import rules as arrays
from cudaguard.features.builds import rules as builds
from cudaguard.features.cuda_graphs import rules as graphs
from cudaguard.features.cuda_init import rules as contexts
from cudaguard.features.gpu_architectures import rules as architectures
from cudaguard.features.import_order.rules import import_order, library_order
from cudaguard.features.symbol_scope import rules as symbol_scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.verbs import Verb
    from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    *symbol_scope.RULES,
    *library_order.RULES,
    *contexts.RULES,
    *arrays.RULES,
    *graphs.RULES,
    *architectures.RULES,
    *builds.RULES,
    *import_order.RULES,
)

# Modules that declare the verbs of actions; loaded when an action is checked, not before.
VERBS = (
    "cudaguard.features.symbol_scope.verbs",
    "cudaguard.features.import_order.verbs",
    "cudaguard.features.cuda_init.verbs",
    "cudaguard.features.array_interface.verbs",
    "cudaguard.features.cuda_graphs.verbs",
    "cudaguard.features.builds.verbs",
    "cudaguard.features.gpu_architectures.verbs",
)


def verbs() -> tuple[Verb, ...]:
    """Return the verbs that features declare, in the order of the table."""
    return tuple(verb for name in VERBS for verb in __import__(name, fromlist=["VERBS"]).VERBS)


collect_from(verbs)

DETECTORS: dict[str, str] = {
    "CG801": "a module that a rule needs first could not be imported",
    "CG802": "the guard came too late for a module",
    "CG803": "another import finder stands in front of the guard",
    "CG804": "rules contradict one another",
    "CG805": "a rule plug-in could not be used",
    "CG806": "a setting could not be used",
    "CG807": "the guard itself failed",
    "CG808": "lazy imports are switched on",
    "CG809": "a repair is not supported on this platform",
    "CG810": "a prerequisite imports the module that it should precede",
    "CG811": "a watched module was imported past the guard",
    "CG812": "a library has put copies of other people's symbols into the global symbol scope",
    "CG813": "an extension exports a C++ runtime of its own",
    "CG814": "CUDA was initialised",
    "CG815": "a CUDA context was created",
    "CG816": "an import left a CUDA context of its own current",
    "CG817": "a CUDA context could not be created",
    "CG818": "a forked process uses CUDA, which its parent had initialised",
    "CG819": "an environment variable was set after it had been read for good",
    "CG820": "a library was not found as LD_LIBRARY_PATH was changed in the running process",
    "CG831": "an array was handed to a library that does not look at its stream",
    "CG832": "a read-only array was handed to a library that does not look at that",
    "CG833": "an array interface does not conform to the specification",
    "CG834": "an array was brought into a form that a library reads rightly",
    "CG835": "an array cannot be brought into a form that a library reads rightly",
    "CG836": "an entry point that a rule names is not there",
    "CG840": "an extension is shorter than its own headers say",
    "CG841": "the dynamic loader has refused an extension",
    "CG842": "two files of one library are in the process",
    "CG843": "a library gets another file than its own folders lead to",
    "CG851": "the output of a CUDA graph was read after it was overwritten",
    "CG852": "a compiled call has left a tensor in a container of its module",
    "CG853": "a result that is held was overwritten by a later call",
    "CG854": "a result has tensors that are not copied",
    # Messages that `explain` knows: see ``rules/known_errors.py``.
    **{f"CG{number}": "an error message that is explained" for number in range(861, 885)},
    "CG885": "a build that was killed has left its lock",
    "CG886": "a build waits for a lock",
    "CG887": "CUDA sources are to be built with a torch without CUDA",
    "CG888": "the CUDA toolkit is missing or incomplete",
    "CG889": "nvcc is of another CUDA than torch",
    "CG890": "the compiler is one that nvcc refuses",
    "CG891": "an extension in torch's cache was built for something else",
    "CG892": "an extension that was just built would not load",
    "CG893": "torch has no code for a GPU",
    "CG894": "what torch compiles at run time will fail on a GPU",
    "CG895": "Triton's ptxas does not know a GPU",
    "CG896": "torch lacks the setting that a rule is to change",
    "CG897": "CuPy cannot compile for a GPU",
    "CG898": "numba-cuda cannot compile for a GPU",
    "CG899": "code was compiled by a newer CUDA than the driver's",
}
