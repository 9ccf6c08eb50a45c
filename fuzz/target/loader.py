"""Loads targets by name or by ``path.py:name``, and the launchers of their planted bugs."""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import FrameType, ModuleType

from fuzz.errors import CorpusError, TargetError, UsageError, one_line
from fuzz.escaping import clean_text
from fuzz.files import read_file
from fuzz.model.case import Case
from fuzz.target.spec import Launcher, PlantedBug, Target, noting_targets
from fuzz.target_code import FILE, executing, prepare

INSTALLED, CHECKOUT = Path(__file__).parents[1] / "targets", Path(__file__).parents[2] / "targets"
BUILT_IN = INSTALLED if INSTALLED.is_dir() else CHECKOUT
LARGEST_SOURCE = 1 << 22
"""Bytes of a file in which a declaration is looked for."""
LONGEST_NAME = 300
"""Letters of a target's name that a message shows."""
LIBRARIES = ("conch", "fla", "liger")
"""Extras whose libraries have targets, in folders of these names; each target's name starts with the folder's."""
DECORATOR = re.compile(r"^\s*@(?:\w+\.)*target\(", re.MULTILINE)
"""What stands before the launcher of a target."""
LOADING = threading.RLock()
"""Held while a module is executed: standard output, which is turned away meanwhile, is that of all threads."""


def built_in_files() -> list[Path]:
    """The files of the targets that come with the project."""
    return sorted(path for path in BUILT_IN.glob("*.py") if not path.name.startswith("_"))


def library_files() -> list[Path]:
    """The files of the targets of published libraries, each in a folder named like the extra that installs it."""
    folders = (BUILT_IN / extra for extra in LIBRARIES)
    return sorted(path for folder in folders for path in folder.glob("*.py") if not path.name.startswith("_"))


def load(text: str) -> Target:
    """The target named by a built-in name, a path, or ``path.py:name``. TargetError says what is wrong with it."""
    targets = load_all(text)
    if len(targets) > 1:
        path, _ = locate(text)
        raise TargetError(f"{path}: {len(targets)} targets, name one: " + ", ".join(f"{path}:{key}" for key in targets))
    return next(iter(targets.values()))


def load_all(text: str) -> dict[str, Target]:
    """The targets that such a text names, by name: all of a file where it names none of them. Raises TargetError."""
    path, name = locate(text)
    targets = targets_in(load_module(path))
    if not targets:
        raise TargetError(f"{path}: no target in it; decorate a launcher with @target(...)")
    if name and name not in targets:
        raise TargetError(f"{path}: no target {name!r}; there are {', '.join(targets)}")
    return {name: targets[name]} if name else targets


def locate(text: str) -> tuple[Path, str]:
    """The file that a target's text names, and the target's name in it, if given."""
    place, _, name = text.rpartition(":") if ".py:" in text else (text, "", "")
    if published := of_library(place):
        return published
    if place.endswith(".py") or "/" in place:
        # Of a name that no file can have, such as one of 5,000 letters or a link to itself, pathlib raises an error.
        if not os.path.isfile(place):
            raise TargetError(f"target file {clean_text(place, LONGEST_NAME)} does not exist")
        return Path(place).resolve(), name
    path = BUILT_IN / f"{place}.py"
    if not place.isidentifier() or not os.path.isfile(path):
        known = ", ".join([*(file.stem for file in built_in_files()), *(f"{name}/.." for name in LIBRARIES)])
        shown = clean_text(text, LONGEST_NAME)
        raise TargetError(f"unknown target {shown!r}; known: {known}; or give a path, such as my_kernels/fuzz_x.py")
    return path, name


def of_library(text: str) -> tuple[Path, str] | None:
    """The file that declares a library's target, ``liger/softmax`` or ``liger_softmax``, and its name; None for others.

    Only the text of files is read. TargetError where the library's folder has no target of that name.
    """
    library, slash, operation = text.partition("/")
    if library not in LIBRARIES or not (operation.isidentifier() if slash else False):
        library, underline, operation = text.partition("_")
        if library not in LIBRARIES or not underline or not text.isidentifier():
            return None
    name = f"{library}_{operation}"
    for path in library_files():
        if path.parent.name == library and f"\ndef {name}(" in path.read_text(encoding="utf-8-sig"):
            return path, name
    raise TargetError(f"unknown target {text!r}; fuzz list tells those of {library}")


def targets_in(loaded: ModuleType) -> dict[str, Target]:
    """The targets that a module declares, by name; imported ones are another module's. TargetError for a wrong name."""
    values = [value for value in vars(loaded).values() if isinstance(value, Target)]
    found = {value.name: value for value in values if value.launcher.__module__ == loaded.__name__}
    for name in found:
        if not name.isidentifier():
            raise TargetError(f"target {name!r}: it names a folder in the corpus, and must be an identifier")
    return found


def module_name(path: Path) -> str:
    """The name in sys.modules of the module of a target's file."""
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return f"fuzz_target_{path.stem}_{digest}"


def load_module(path: Path) -> ModuleType:
    """The module of a target's file, executed once a process. TargetError for a file that cannot be executed."""
    name = module_name(path)
    with LOADING:
        if name in sys.modules:
            return sys.modules[name]
        try:
            source = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise TargetError(f"cannot read {path}: {one_line(error)}") from None
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        return _execute(name, str(path), source)


def load_planted(target: Target, name: str) -> tuple[PlantedBug, Launcher]:
    """The planted bug of that name and the launcher that has it. TargetError for an unknown one."""
    if name not in target.planted_bugs:
        known = ", ".join(target.planted_bugs) or "none"
        raise TargetError(f"target {target.name!r} has no planted bug {name!r}; known: {known}")
    planted_bug = target.planted_bugs[name]
    if planted_bug.launcher is not None:
        return planted_bug, planted_bug.launcher
    variant = targets_in(_variant(target, planted_bug))[target.name]
    return planted_bug, variant.launcher


def variant_source(target: Target, planted_bug: PlantedBug | None) -> str:
    """The target's source text with a planted bug's changes; each changed text stands once above the planted bugs."""
    source = target.path.read_text(encoding="utf-8-sig")
    if planted_bug is None:
        return source
    start = source.find(f"{target.launcher.__name__}.planted(")
    kernel, declarations = source[:start], source[start:]
    for old, new in planted_bug.changes:
        if (count := kernel.count(old)) != 1:
            raise TargetError(f"planted bug {planted_bug.name!r}: {old!r} stands {count} times in {target.path}")
        kernel = kernel.replace(old, new)
    return kernel + declarations


def _variant(target: Target, planted_bug: PlantedBug) -> ModuleType:
    # Each target of a file may have a planted bug of one name.
    own = f"{target.name}-{planted_bug.name}"
    name = f"{target.launcher.__module__}-{own}"
    with LOADING:
        if name in sys.modules:
            return sys.modules[name]
        # Triton reads a kernel's source through inspect, which finds it in linecache under this name.
        file = f"{target.path}[{own}]"
        source = variant_source(target, planted_bug)
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        return _execute(name, file, source)


def _execute(name: str, file: str, source: str) -> ModuleType:
    prepare()
    spec = importlib.util.spec_from_loader(name, loader=None, origin=file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = file
    sys.modules[name], this = module, os.getpid()
    try:
        # What a target's file prints must not end up in the one JSON value on standard output.
        with redirect_stdout(sys.stderr), noting_interrupts() as interrupts, executing(FILE, file):
            with noting_targets() as declared:
                exec(compile(source, file, "exec"), module.__dict__)
        _check_names_differ(file, [target for target in declared if target.launcher.__module__ == name])
    except SyntaxError as error:
        del sys.modules[name]
        raise TargetError(f"{error.filename}:{error.lineno}: syntax error: {error.msg}") from None
    except UsageError:
        del sys.modules[name]
        raise
    except ModuleNotFoundError as error:
        del sys.modules[name]
        extra = Path(file).parent
        hint = f"; install the extra [{extra.name}]" if extra.parent == BUILT_IN else ""
        raise TargetError(f"cannot load {file}: {error.name} is not installed{hint}") from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        del sys.modules[name]
        if interrupts:
            raise
        raise TargetError(f"cannot load {file}: {one_line(error)}") from error
    finally:
        if os.getpid() != this:
            # The file has forked this process, and returns twice.
            os._exit(0)
    return module


def _check_names_differ(file: str, declared: Iterable[Target]) -> None:
    """TargetError for two targets of one name, of which only the last one would be known."""
    lines: dict[str, int] = {}
    for target in declared:
        line = getattr(getattr(target.launcher, "__code__", None), "co_firstlineno", 0)
        if target.name in lines:
            places = f"lines {lines[target.name]} and {line}"
            raise TargetError(f"{file}: two targets are named {target.name!r}, at {places}: give one another name")
        lines[target.name] = line


@contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """Yields a list that is not empty once Ctrl-C interrupts the block: a KeyboardInterrupt may be the block's own."""
    interrupts: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)


def check_fits(case: Case, target: Target, path: Path) -> None:
    """CorpusError where a case has other arguments, options, dims or cotangents than its target, which may be newer."""
    dims = {dim.name for dim in target.sizes}
    needed = {name for name, declared in target.tensors.items() if not declared.optional}
    for call in case.calls:
        pairs = [
            ("arguments", set(call.arguments), {*needed, *(set(target.tensors) & set(call.arguments))}),
            ("options", set(call.options), set(target.options)),
            ("dims", set(call.dims), dims),
            ("cotangents", set(call.cotangents), set(target.cotangents) & set(call.cotangents)),
        ]
        for kind, names, expected in pairs:
            if names != expected:
                texts = [", ".join(sorted(each)) or "none" for each in (names, expected)]
                raise CorpusError(f"{path}: its {kind} are {texts[0]}; those of target {target.name!r} are {texts[1]}")
        for name, value in call.arguments.items():
            ranks = dict.fromkeys(len(shape) for shape in target.tensors[name].shapes)
            if len(value.shape) not in ranks:
                wanted = " or ".join(map(str, ranks))
                raise CorpusError(f"{path}: argument {name!r} has {len(value.shape)} dims, not {wanted}")


def find_target(name: str, near: Path, text: str = "") -> tuple[str, Target]:
    """(what to load it by, the target) that a corpus entry names: given by the caller, built in, or beside the corpus.

    Only files that declare a target of that name beside one of the folders above the entry are loaded, and none of
    another user: an entry is data, and whoever may write beside it must not make it run a program.
    """
    if text:
        return given_target(name, near, text)
    text = search_target(name, near)
    if not text:
        others = "".join(f"; {path} declares it, but is another user's" for path in files_above(name, near))
        raise TargetError(
            f"no target {name!r} is built in or beside {near}{others}; name its file with --target path.py"
        )
    return text, load(text)


def given_target(name: str, near: Path, text: str) -> tuple[str, Target]:
    """(what to load it by, the target) that a text names for an entry; a file may have others beside the entry's.

    TargetError where it names another target than the entry's, whose kernel would show something else.
    """
    targets = load_all(text)
    if name not in targets:
        shown = clean_text(text, LONGEST_NAME)
        raise TargetError(f"{near} is an entry of target {name!r}; --target {shown} has {', '.join(targets)}")
    return text if len(targets) == 1 else f"{locate(text)[0]}:{name}", targets[name]


def search_target(name: str, near: Path) -> str:
    """What to load the target of a corpus entry by where it is beside the corpus or built in; else nothing."""
    mine = (path for path in files_above(name, near) if is_of_same_user(path, near))
    if path := next(mine, None):
        return f"{path.resolve()}:{name}"
    with suppress(TargetError):
        return name if (BUILT_IN / f"{name}.py").is_file() or of_library(name) else ""
    return ""


def files_above(name: str, entry: Path) -> Iterator[Path]:
    """The files that declare a target of that name in the four folders above an entry, whoever they belong to."""
    return (path for folder in [*entry.resolve().parents][:4] for path in files_that_declare(name, folder))


def target_argument(target: Target, near: Path) -> str:
    """What ``--target`` must say for the entry `near`, a path in its corpus; nothing where the target is found."""
    path = target.path.resolve()
    name = target.name if BUILT_IN in path.parents else f"{path}:{target.name}"
    return "" if search_target(target.name, near) == name else name


def files_that_declare(name: str, folder: Path) -> Iterator[Path]:
    """The files in a folder whose text declares a target of that name, in order. Nothing is executed."""
    for path in sorted(folder.glob("*.py")):
        try:
            source = read_file(path, LARGEST_SOURCE).decode(errors="replace")
        except OSError:
            continue
        if declares_targets(source) and f"def {name}(" in source:
            yield path


def declares_targets(source: str) -> bool:
    """Whether a file's text declares targets: by ``@target(..)``, or ``@fuzz.target(..)``. Nothing is executed."""
    return DECORATOR.search(source) is not None


def is_of_same_user(path: Path, entry: Path) -> bool:
    """Whether a file is the caller's, or of the entry's owner or root in a folder that not everybody can write."""
    owners = {os.geteuid()}
    if entry.exists() and not path.parent.stat().st_mode & stat.S_IWOTH:
        owners |= {0, entry.stat().st_uid}
    return path.stat().st_uid in owners
