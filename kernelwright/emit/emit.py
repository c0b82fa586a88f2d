"""A `Program` and its `Problem` come in; the text of one standalone file with `ModelNew` goes out."""

from __future__ import annotations

import builtins
import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from kernelwright.emit.explain import docstring
from kernelwright.emit.expressions import python, tuple_text
from kernelwright.emit.forward import forward_lines, state_of
from kernelwright.emit.original import FUTURE, Original, original_of
from kernelwright.flags import CPU_COMPILE_FLAGS, CUDA_COMPILE_FLAGS
from kernelwright.generate import Program, Source
from kernelwright.generate.folding import folded
from kernelwright.ir.dtypes import DType, float32
from kernelwright.ir.nodes import Gather, Input, Looks, Map, Node, Param, Reduce, Scan, Setting, Shape
from kernelwright.kernels.pointwise import Work
from kernelwright.load import Problem
from kernelwright.plan import Convolution, Kernel, Product
from kernelwright.plan.steps import contiguous

Renaming = Callable[[str], str]

# The name under which capture says which class a module is of; no attribute can be called so.
CLASS = "class"

# Names that the emitted file adds at its top level. Where the user's file has one of them, ours gets an underscore.
OURS = (
    *("KERNELS", "LIBRARY", "ENTRIES", "TENSORS", "UPDATED", "VALUES", "SETTINGS", "MODULES", "WATCHED"),
    *("PACKED", "ALIASES", "Watched", "optimizers", "versions", "LOOKS", "looks"),
    *("build", "launch", "packed", "home", "watched", "why_not"),
)

# What ModelNew adds to Model: each name, and what stands around it in our text. The user's Model may have it too.
MEMBERS = {
    "planned": r"(?<=self\.)planned(?=\()|(?<=def )planned(?=\(self)",
    "warned": r"(?<=ModelNew\.)warned\b|(?<=^    )warned(?= = False$)",
}

# What our code takes from outside, under these names. The user's file may call something else so.
IMPORTED = (
    *("ctypes", "inspect", "sys", "warnings", "weakref", "re", "ChainMap", "Counter", "load_inline"),
    "WeakTensorKeyDictionary",
)
# super() without arguments works under its own name alone.
BUILTINS = frozenset(dir(builtins)) - {"super"}

IMPORTS = """\
import ctypes
import inspect
import sys
import warnings
import weakref
from collections import ChainMap

import torch
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline
"""


def emit(program: Program, problem: Problem, measured: Sequence[str] = ()) -> str:
    """The whole file. `measured` are lines for its docstring; without them it says that nothing was measured."""
    original = original_of(problem.source)
    parts = [
        docstring(program, problem, measured),
        *([FUTURE] if original.needs_future else []),
        imports_apart(imports(program), original),
        "# --- The original, unchanged: it makes the weights, and runs whatever ModelNew was not planned for.",
        original.text,
        "\n# --- The kernels, and the model that runs them.",
        "\n\n\n".join(sections(program, problem, original)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def imports(program: Program) -> str:
    text = IMPORTS.replace("import sys\n", "import re\nimport sys\n") if looks_in(program) else IMPORTS
    text = text.replace("ChainMap", "ChainMap, Counter") if program.plan.graph.updates else text
    return text + ("from torch.utils.weak import WeakTensorKeyDictionary\n" if packs(program) else "")


def colliding(original: Original) -> list[str]:
    return [name for name in OURS if name in original.names or name in original.parameters]


def apart(code: str, original: Original) -> str:
    """Our names in code of ours, made different from the user's where they would collide."""
    for name in colliding(original):
        code = re.sub(rf"\b{name}\b", f"{name}_", code)
    for name in rebound(IMPORTED, original):
        code = re.sub(rf"(?<![\w.]){name}\b", f"{name}_", code)
    return members_apart(builtins_apart(code, original), original)


def rebound(names: Collection[str], original: Original) -> list[str]:
    """Those that mean, or may mean, something else below the user's text."""
    return [name for name in sorted(names) if {name, "*"} & original.rebound]


def imports_apart(text: str, original: Original) -> str:
    for name in rebound(IMPORTED, original):
        text = re.sub(rf"\b{name}(?=$|,)", f"{name} as {name}_", text, flags=re.MULTILINE)
    return f"import builtins\n{text}" if rebound(BUILTINS, original) else text


def builtins_apart(code: str, original: Original) -> str:
    """What is called, and what is handed to map()."""
    for name in rebound(BUILTINS, original):
        code = re.sub(rf"(?<![\w.]){name}(?=\()|(?<=map\(){name}\b", f"builtins.{name}", code)
    return code


def table_apart(table: str, original: Original) -> str:
    """Tables of ours have names of the user's in them, which stay as they are."""
    for name in colliding(original):
        table = re.sub(rf"^{name}(?= = )", f"{name}_", table, flags=re.MULTILINE)
    return table


def calls_apart(line: str, original: Original) -> str:
    """In forward(), an argument keeps its name; what is ours there is called."""
    for name in colliding(original):
        line = re.sub(rf"\b{name}(?=\()", f"{name}_", line)
    line = builtins_apart(line, original)
    line = re.sub(r"\bF\.", "torch.nn.functional.", line) if original.has_own_f else line
    return members_apart(line, original)


def members_apart(code: str, original: Original) -> str:
    for name, places in MEMBERS.items():
        code = re.sub(places, free_name(name, original.mentioned), code, flags=re.MULTILINE)
    return code


def sections(program: Program, problem: Problem, original: Original) -> list[str]:
    arguments = [*original.parameters] or [leaf_name(x) for x in all_arguments(program)]
    code = partial(apart, original=original)
    table = partial(table_apart, original=original)
    looks = [table(looks_section(program)), code(LOOKS)] if looks_in(program) else []
    return [
        *(kernels_sections(program, problem, code, table) if program.launches else []),
        table(tensors_section(program)),
        table(values_section(program, original)),
        builtins_apart(table(settings_section(program)), original),
        *looks,
        *([table(modules_section(program))] if modules_of(program) else []),
        code(why_not_section(program)),
        model_section(program, original, arguments),
    ]


def kernels_sections(program: Program, problem: Problem, code: Renaming, table: Renaming) -> list[str]:
    assert '"""' not in program.text, "the kernels are a raw triple-quoted string"
    key = hashlib.sha256(program.text.encode()).hexdigest()[:10]
    name = re.sub(r"\W", "_", f"{problem.name}_{program.target}_{key}")
    entries = {launch.entry: tuple(s.twin_of or s.kernel.name for s in launch.sources) for launch in program.launches}
    return [
        table(f'KERNELS = r"""\n{program.text}"""'),
        code(BUILD[program.target]),
        table(
            f"# The kernels behind each entry of the library, in the order they run.\nENTRIES = {entries_text(entries)}"
        ),
        code(LOAD[program.target].format(name=name, only=only_on(program))),
        code(LAUNCH[program.target]),
        *([code(PACK)] if packs(program) else []),
    ]


def only_on(program: Program) -> str:
    """Pointwise kernels run on any GPU; others may use instructions and memory that only their own kind has."""
    anywhere = all(isinstance(source.work, Work) for source in program.sources)
    return "" if anywhere else f" and torch.cuda.get_device_capability() == {program.capability}"


def packs(program: Program) -> bool:
    """Whether it keeps weights in another order."""
    return any(b.packed_from is not None for launch in program.launches for b in launch.pointers)


def entries_text(entries: dict[str, tuple[str, ...]]) -> str:
    rows = [f'    "{entry}": {quoted(names)},' for entry, names in entries.items()]
    return folded("{\n" + "\n".join(rows) + "\n}")


def quoted(names: tuple[str, ...]) -> str:
    return "(" + ", ".join(f'"{name}"' for name in names) + ("," if len(names) == 1 else "") + ")"


def double_quoted(flags: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{flag}"' for flag in flags) + "]"


BUILD = {
    "cuda": f'''\
def build(name, source):
    """Compile without PyTorch's headers, for this GPU alone: about 2 s instead of about 60."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"{{major}}{{minor}}a" if major == 9 else f"{{major}}{{minor}}"
    flags = {double_quoted(CUDA_COMPILE_FLAGS)} + [f"-gencode=arch=compute_{{arch}},code=sm_{{arch}}"]
    known = inspect.signature(load_inline).parameters
    fast = {{"no_implicit_headers": True}} if "no_implicit_headers" in known else {{}}
    path = load_inline(name, "", source, extra_cuda_cflags=flags, is_python_module=False, **fast)
    return ctypes.CDLL(path or next(p for p in torch.ops.loaded_libraries if name in p))''',
    "cpu": f'''\
def build(name, source):
    """Compile without PyTorch's headers: about 1 s instead of about 30. OpenMP's symbols are those PyTorch loaded."""
    flags = {double_quoted(CPU_COMPILE_FLAGS)}
    known = inspect.signature(load_inline).parameters
    fast = {{"no_implicit_headers": True}} if "no_implicit_headers" in known else {{}}
    path = load_inline(name, source, extra_cflags=flags, is_python_module=False, **fast)
    return ctypes.CDLL(path or next(p for p in torch.ops.loaded_libraries if name in p))''',
}

LOAD = {
    "cuda": 'LIBRARY = build("{name}", KERNELS) if torch.cuda.is_available(){only} else None',
    "cpu": 'LIBRARY = build("{name}", KERNELS)',
}

LAUNCH = {
    "cuda": '''\
def launch(entry, *tensors):
    """Run the kernels of one entry on the current stream of the tensors' device."""
    device = tensors[0].device
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    code = getattr(LIBRARY, entry)(*pointers, device.index, stream)
    if code:
        kernel, error = divmod(code, 65536)
        raise RuntimeError(f"{ENTRIES[entry][kernel]} failed to launch: CUDA error {error}")''',
    "cpu": '''\
def launch(entry, *tensors):
    """Run the kernels of one entry."""
    getattr(LIBRARY, entry)(*[ctypes.c_void_p(t.data_ptr()) for t in tensors])''',
}

PACK = '''\
PACKED = weakref.WeakKeyDictionary()
ALIASES = WeakTensorKeyDictionary()
# Fused optimizers change weights without a new version of them.
optimizers = sys.modules["torch.optim.optimizer"]
if hasattr(optimizers, "register_optimizer_step_post_hook"):
    optimizers.register_optimizer_step_post_hook(lambda *_: PACKED.clear())


class Watched(torch.nn.Parameter):
    """A weight that has been packed. Whoever takes its `.data` gets an alias that counts what is written through it."""

    @property
    def data(self):
        if self not in ALIASES:
            ALIASES[self] = torch.Tensor.data.__get__(self)
        return ALIASES[self].detach()

    @data.setter
    def data(self, value):
        ALIASES.pop(self, None)
        torch.Tensor.data.__set__(self, value)


def versions(weight):
    """Counts that grow with every change of a weight, also one made through its `.data`."""
    counters = [weight, ALIASES[weight]] if ALIASES and weight in ALIASES else [weight]
    return [None if w.is_inference() else w._version for w in counters]  # what inference mode makes has no versions


def packed(model, entry, name, weight, size, offset=0):
    """The weight in the order a kernel reads it, from a byte of it on: made once, and again when it has changed."""
    kept = PACKED.setdefault(model, {})
    key = entry, name, offset  # one entry may pack several
    old, known, buffer = kept.get(key, (None, None, None))
    capturing = torch.cuda.is_current_stream_capturing()  # a replay must see the weight as it is then
    now = versions(weight)
    if capturing or old is None or old.data_ptr() != weight.data_ptr() or known != now:
        buffer = torch.empty(size, dtype=torch.uint8, device=weight.device)
        stream = torch.cuda.current_stream(weight.device)
        pointers = ctypes.c_void_p(weight.data_ptr() + offset), ctypes.c_void_p(buffer.data_ptr())
        with torch.cuda.device(weight.device):
            code = getattr(LIBRARY, entry)(*pointers, ctypes.c_void_p(stream.cuda_stream))
        if code:
            raise RuntimeError(f"{entry} failed to launch: CUDA error {code}")
        if not capturing:
            stream.synchronize()  # other streams may use it next
            # The old weight is kept alive, so that no new one can take its address unnoticed.
            kept[key] = (weight.detach(), now, buffer)
        if type(weight) is torch.nn.Parameter:
            weight.__class__ = Watched
    return buffer'''

# PyTorch 2.4 gave is_autocast_enabled an argument and deprecated the function for the CPU.
AUTOCAST = {
    "cuda": "torch.is_autocast_enabled()",
    "cpu": (
        'torch.is_autocast_enabled("cpu") if hasattr(torch, "get_autocast_dtype") else torch.is_autocast_cpu_enabled()'
    ),
}

WHY_NOT = '''\
WATCHED = weakref.WeakKeyDictionary()


def home(module, name):
    """Where a module keeps an attribute: in its state, in itself or in its class; nowhere, if there is no module."""
    if module is None:
        return {{}}
    own = next((kept for kept in (module._parameters, module._buffers) if name in kept), vars(module))
    return own if name in own else ChainMap(own, *map(vars, type(module).__mro__))


def watched(model):
    """Where the model keeps its settings, its parts and its state: found once, read on every call."""
    modules = dict(model.named_modules(remove_duplicate=False))
{modules}\
    settings = [(home(modules.get(path), k), k, v) for path, rows in SETTINGS.items() for k, v in rows.items()]
    parts = [(path, vars(module), module._modules.copy()) for path, module in modules.items()]
    state = [name.rpartition(".") for name, *_ in TENSORS[{arguments}:]]
    return settings, parts, [(home(modules.get(path), name), name) for path, _, name in state]


def why_not(model, tensors, values):
    """What differs from what the kernels were made for, or None."""
    settings, parts, _ = WATCHED[model]
    device = getattr(tensors[0], "device", None) if tensors else None
    for (name, shape, strides, dtype), tensor in zip(TENSORS, tensors):
        if type(tensor) not in ({types}) or tensor.dtype is not dtype or tensor.shape != shape:
            return f"{{name}} is not {{dtype}} of shape {{shape}}"
        if strides is ...:
            continue  # no kernel touches it
        if tensor.device != device or device.type != "{kind}":
            return f"{{name}} is on {{tensor.device}}"
        if tensor.layout is not torch.strided or tensor.is_neg():
            return f"{{name}} is not stored as plain numbers"
        if not tensor.is_contiguous() if strides is None else tensor.stride() != strides:
            return f"{{name}} is laid out differently in memory"
{aligned}{updated}\
{built}\
    for (name, value), given in zip(VALUES.items(), values):
        if type(given) is not type(value) or given != value:
            return f"{{name}} is not {{value!r}}"
    for kept, name, value in settings:
        found = kept.get(name)
        if type(found) is not type(value) or found != value:
            return f"{{name}} has been changed"
{looked_at}\
    for path, kept, inside in parts:
        # A hook or a forward of a part's own would be left out; those of the model itself PyTorch sees to.
        own = path and (kept["_forward_hooks"] or kept["_forward_pre_hooks"] or "forward" in kept)
        if own or kept["_modules"] != inside:
            return f"{{path or 'the model'}} has been changed"
    if torch.is_grad_enabled() and any(t.requires_grad for t in (*tensors, *model.parameters())):
        return "gradients are needed"
    if {autocast}:
        return "autocast is on"
    if torch.get_default_dtype() is not {default}:
        return "torch's default dtype has been changed"
{tf32}\
    if torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0:
        return "it is being transformed by torch.func or forward_ad"
    return "it is being traced" if torch.jit.is_tracing() else None'''

# Only in files of models that have parts. Of a part that is in several places, the first place is named.
MADE_OF = """\
    places = {module: path for path, module in reversed(modules.items())}
    if {path: type(m).__name__ if places[m] == path else places[m] for path, m in modules.items() if path} != MODULES:
        return [({}, "a module", True)], [], []
"""

# Only in files for a GPU: one of another kind may not be able to run the kernels.
BUILT = """\
    if LIBRARY is None:
        return "the kernels are not for this GPU"
"""

# Only in files of models that change their state or their arguments.
UPDATES = """\
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    times = Counter(places)
    if any(times[places[i]] > 1 for i in UPDATED):
        return "a tensor that is changed shares memory with another"
"""


# Only in files with products: the copy engine reads whole vectors. Pointwise kernels take what they get.
ALIGNED = """\
        if tensor.data_ptr() % 16:
            return f"{name} does not start at a multiple of 16 bytes"
"""


# Only in files of models with attributes that are no plain values.
LOOKS = '''\
def looks(value):
    """How an object looks, wherever in memory it is."""
    shown = vars(value) if type(value).__repr__ is object.__repr__ and hasattr(value, "__dict__") else value
    return re.sub(r" at 0x\\w+", "", getattr(value, "__qualname__", None) or repr(shown))'''

LOOKED_AT = """\
    for path, name, text in LOOKS:
        if looks(vars(model.get_submodule(path)).get(name)) != text:
            return f"{name} has been changed"
"""


# Only in files with convolutions that are as accurate as TF32, where PyTorch allowed it.
TF32 = """\
    if not torch.backends.cudnn.allow_tf32:
        return "convolutions may not use TF32"
"""


def why_not_section(program: Program) -> str:
    return WHY_NOT.format(
        kind=program.target,
        autocast=AUTOCAST[program.target],
        default=dtype_text(program.plan.graph.default_dtype),
        types=", ".join(["torch.Tensor", "torch.nn.Parameter", *(["Watched"] if packs(program) else [])]),
        arguments=len(program.plan.graph.inputs),
        modules=MADE_OF if modules_of(program) else "",
        updated=UPDATES if program.plan.graph.updates else "",
        built=BUILT if program.target == "cuda" and only_on(program) else "",
        looked_at=LOOKED_AT if looks_in(program) else "",
        tf32=TF32 if any(uses_tf32(source) for source in program.sources) else "",
        aligned=ALIGNED if program.target == "cuda" and any(s.kernel.core is not None for s in program.sources) else "",
    )


def uses_tf32(source: Source) -> bool:
    """Whether a convolution has TF32's accuracy because PyTorch's flag allowed that."""
    core = source.kernel.core
    by_flag = isinstance(core, Convolution) and core.precision == "reference" and core.node.dtype is float32
    return by_flag and getattr(source.choice, "products", 3) == 1


def modules_of(program: Program) -> dict[str, object]:
    """The class of each part of the model by its path."""
    return {setting.path: setting.value for setting in program.plan.graph.settings if setting.name == CLASS}


def modules_section(program: Program) -> str:
    rows = ", ".join(f'"{path}": "{name}"' for path, name in modules_of(program).items())
    return folded(f"# What the model is made of.\nMODULES = {{{rows}}}")


def all_arguments(program: Program) -> list[Input]:
    return sorted(program.plan.graph.inputs, key=lambda leaf: leaf.position)


def leaf_name(leaf: Input) -> str:
    return leaf.name


def tensors_section(program: Program) -> str:
    """Everything whose shape and place in memory the plan relies on."""
    leaves: list[Input | Param] = [*all_arguments(program), *state_of(program)]
    touched = touched_by_kernels(program)
    rows = [f"    {tensor_row(leaf, isinstance(leaf, Input) or leaf in touched)}," for leaf in leaves]
    comment = (
        "# What the kernels were made for: name, shape, strides (None: contiguous, ...: any) and dtype of each tensor."
    )
    changed = {update.target for update in program.plan.graph.updates}
    updated = [i for i, leaf in enumerate(leaves) if leaf in changed]
    which = [f"UPDATED = {python(tuple(updated))}  # those that forward() changes"] if updated else []
    return "\n".join([comment, "TENSORS = [", *rows, "]", *which])


def touched_by_kernels(program: Program) -> set[Node | None]:
    buffers = [buffer for launch in program.launches for buffer in launch.pointers]
    return {(buffer.packed_from or buffer).source for buffer in buffers}


def tensor_row(leaf: Input | Param, touched: bool) -> str:
    """Where PyTorch alone reads a parameter, it may lie as it likes."""
    name = leaf.name if isinstance(leaf, Input) else leaf.path
    dense = is_contiguous(leaf.shape, leaf.strides)
    strides = "..." if not touched else "None" if dense else tuple_text(leaf.strides)
    return f'("{name}", {tuple_text(leaf.shape)}, {strides}, {dtype_text(leaf.dtype)})'


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Strides of axes of extent 1 do not matter."""
    pairs = zip(shape, strides, contiguous(shape), strict=True)
    return 0 in shape or all(n == 1 or have == want for n, have, want in pairs)


def dtype_text(dtype: DType) -> str:
    return f"torch.{dtype.name}"


def settings_section(program: Program) -> str:
    """The attributes of the model that are part of the kernels now."""
    by_path: dict[str, list[Setting]] = {}
    for setting in program.plan.graph.settings:
        told = setting.name != CLASS and not isinstance(setting.value, Looks)
        if told and setting.value == setting.value:  # NaN equals nothing
            by_path.setdefault(setting.path, []).append(setting)
    rows = []
    for path, settings in by_path.items():
        inner = ", ".join(f'"{s.name}": {python(s.value)}' for s in settings)
        rows.append(f'    "{path}": {{{inner}}},')
    comment = "# The settings of each module that the kernels and calls below have built in."
    return folded("\n".join([comment, "SETTINGS = {", *rows, "}"])) if rows else f"{comment}\nSETTINGS = {{}}"


def looks_section(program: Program) -> str:
    rows = [
        f'    ("{s.path}", "{s.name}", {python(s.value.text)}),' for s in looks_in(program) if type(s.value) is Looks
    ]
    comment = "# Attributes that are no plain values: the path of their module, their name, and how they look."
    return "\n".join([comment, "LOOKS = [", *rows, "]"])


def looks_in(program: Program) -> list[Setting]:
    return [setting for setting in program.plan.graph.settings if isinstance(setting.value, Looks)]


def values_section(program: Program, original: Original) -> str:
    """Python values among the arguments, given or by default: the plan has them built in."""
    rows = [f'"{name}": {value}' for name, value in built_in_values(program, original)]
    return f"# The arguments that are no tensors, as they were.\nVALUES = {{{', '.join(rows)}}}"


def built_in_values(program: Program, original: Original) -> list[tuple[str, str]]:
    graph = program.plan.graph
    given = {x.name for x in graph.inputs} | {s.name for s in graph.scalars}
    defaults = [(name, value) for name, value in original.defaults if name not in given]
    return [*((s.name, python(s.value)) for s in graph.scalars), *defaults]


def model_section(program: Program, original: Original, arguments: Sequence[str]) -> str:
    generic = original.signature == "*arguments"
    signature = "*arguments, **options" if generic else original.signature
    passed = signature if generic else ", ".join(arguments)
    inputs = all_arguments(program)
    scalars = program.plan.graph.scalars
    positions = sorted([*((x.position, x.name) for x in inputs), *((s.position, s.name) for s in scalars)])
    unpacked = [f"{', '.join(name for _, name in positions)}, = arguments"] if generic and positions else []
    fallback = f"    return super().forward({passed})"
    generic_guard = [f"if options or len(arguments) != {len(positions)}:", fallback] if generic else []
    values = [name for name, _ in built_in_values(program, original)]
    groups = [tuple_expression([x.name for x in inputs]), *([tuple_expression(values)] if values else [])]
    names = [program.plan.places[param].name for param in state_of(program)]
    state = free_name("state", {*names, *(b.name for b in program.plan.places.values()), *arguments, *values})
    guard = [f"{state} = self.planned({', '.join(groups)})", f"if {state} is None:", fallback]
    taken = (
        [*guard, *unpacking(names, state)] if names else [f"if self.planned({', '.join(groups)}) is None:", fallback]
    )
    lines = [*generic_guard, *unpacked, *taken, *forward_lines(program, device_text(program))]
    return "\n".join(
        [
            "class ModelNew(Model):",
            f'    """{summary(program)}"""',
            "",
            apart("    warned = False", original),
            "",
            f"    def forward(self, {signature}):" if signature else "    def forward(self):",
            *(folded(f"        {calls_apart(line, original)}") for line in lines),
            "",
            *(f"    {line}" if line else "" for line in apart(PLANNED, original).splitlines()),
        ]
    )


def free_name(wish: str, taken: Collection[str]) -> str:
    return free_name(f"{wish}_", taken) if wish in taken else wish


def unpacking(names: Sequence[str], state: str) -> list[str]:
    """A name for each parameter and buffer: looked up once a call, in modules within modules."""
    line = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {state}"
    if len(line) <= LONGEST_LINE:
        return [line]
    return ["(", *(f"    {row}" for row in textwrap.wrap(f"{', '.join(names)},", LONGEST_LINE)), f") = {state}"]


LONGEST_LINE = 100


def device_text(program: Program) -> str:
    """Where results go: to the first tensor there is."""
    places = program.plan.places
    leaves = [x.name for x in all_arguments(program)] + [places[param].name for param in state_of(program)]
    return f"{leaves[0]}.device" if leaves else f'torch.device("{program.target}")'


PLANNED = '''\
def planned(self, arguments, values=()):
    """The model's own tensors if the kernels fit this call, else None: the original runs, and a warning says why."""
    if self not in WATCHED:
        WATCHED[self] = watched(self)
    state = [kept.get(name) for kept, name in WATCHED[self][2]]
    reason = why_not(self, [*arguments, *state], values)
    if reason and not ModelNew.warned:
        ModelNew.warned = True
        warnings.warn(f"ModelNew runs the original forward: {reason}. Plan for what you serve.", stacklevel=3)
    return None if reason else state'''


def tuple_expression(items: Sequence[str]) -> str:
    return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"


# What a kernel computes, in the order in which it is told.
NOUNS: dict[type[object], str] = {
    Product: "product",
    Convolution: "convolution",
    Reduce: "reduction",
    Scan: "scan",
    Gather: "gather",
    Map: "pointwise function",
}


def summary(program: Program) -> str:
    """Model with 2 products, 1 reduction and 5 pointwise functions in 3 kernels."""
    found: Counter[type[object]] = Counter(type(part) for source in program.sources for part in parts_of(source.kernel))
    if not program.sources:
        return "Model, simplified; no kernel of our own."
    told = [counted(found[kind], noun) for kind, noun in NOUNS.items() if found[kind]]
    told = [*told[:-2], " and ".join(told[-2:])]
    return f"Model with {', '.join(told)} in {counted(len(program.sources), 'kernel')}."


def parts_of(kernel: Kernel) -> Iterator[Product | Convolution | Map | Gather | Reduce | Scan]:
    """A kernel's core, what it computes of the core's operands, and what follows."""
    if kernel.core is not None:
        yield kernel.core
    for region in kernel.core.prologues if isinstance(kernel.core, Product) else ():
        yield from region.body
    yield from kernel.region.body


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
