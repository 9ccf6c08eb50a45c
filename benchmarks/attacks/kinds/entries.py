"""Hostile files of a corpus, by the commands that read, change and report entries, and by pytest's plugin."""

from __future__ import annotations

import ast
import os
import re
import sys
import threading
import time

from benchmarks.attacks.attack import ONE_LINE, FellError, Kind, NotPossibleError
from benchmarks.attacks.kinds.entry_texts import BASE, with_digest
from benchmarks.attacks.kinds.target_files import TARGET
from benchmarks.attacks.trial import Trial, require
from fuzz import corpus
from fuzz.errors import FuzzError

KIND = Kind("files of a corpus")
ESCAPES = r"\e]0;owned\a\e[2J\e[31m 0 failed"
MESSAGE = 'message: "dx: 1 of 1 elements wrong"'
PYTHON = r"\"\"\"; import os; os.system('touch pwned') #\\"
HTML = "<script>alert(1)</script>'\\\"><img src=x onerror=alert(2)></textarea>{{7*7}}"
MARKUP = ("<script>alert", "<img src=x", "<svg/onload")


def put(trial: Trial, name: str, text: str | bytes) -> str:
    """An entry at corpus/gelu_bw/NAME.yaml; its path from the working folder."""
    return os.path.relpath(trial.write(f"corpus/gelu_bw/{name}.yaml", text), trial.work)


def answered(trial: Trial, *arguments: object, **options: object) -> str:
    """Asks for something that may be a result or be refused in one line; returns standard output."""
    answer = trial.fuzz(*arguments, **options)
    lasting = [line for line in answer.complaints if not line.startswith("fuzz: skipped ")]
    if answer.code == 2:
        require(answer.complaints and len(lasting) <= 1, f"exit code 2 without one line: {answer.err[-300:]!a}")
    return answer.out


@KIND.attack(f"a result on printable lines, or {ONE_LINE}")
def shrink_of_hostile_entries(trial: Trial) -> None:
    """Shrinks entries with a huge split, an impossible finding, escape sequences, half a pair, and of no target."""
    changes = {
        "split": ("finding:\n", "  split: {start: 0, length: 1, before: 67108864, after: 0}\nfinding:\n"),
        "impossible": ("symptom: sign", "symptom: permutation"),
        "escapes": (MESSAGE, f'message: "{ESCAPES}"'),
        "surrogate": (MESSAGE, 'message: "\\ud800"'),
        "nothing": ("target: gelu_bw", "target: there_is_none"),
    }
    for name, (old, new) in changes.items():
        answered(trial, "shrink", put(trial, name, with_digest(BASE.replace(old, new))), "--backend", "cpu")


@KIND.attack("the run goes on to its end, and what cannot be read is named in a line each")
def run_beside_hostile_entries(trial: Trial) -> None:
    """Runs a target whose folder of findings holds a pipe, /dev/zero, 10 GB of nothing, a folder and garbage."""
    folder = trial.work / "given" / "gelu_bw"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "folder.yaml").mkdir()
    (folder / "garbage.yaml").write_bytes(bytes(range(256)) * 100)
    (folder / "sparse.yaml").touch()
    os.truncate(folder / "sparse.yaml", 10 << 30)
    answer = trial.fuzz("run", "gelu_bw", "--cases", 5, "--backend", "cpu", "--corpus", "given")
    require(answer.code in (0, 2), f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack(f"{ONE_LINE} for each file and each command, within seconds")
def files_that_are_no_entries(trial: Trial) -> None:
    """Shows and marks a pipe, /dev/zero, standard input, a socket's name, 10 GB of nothing, a folder, and a loop."""
    folder = trial.work / "corpus"
    folder.mkdir()
    os.mkfifo(folder / "pipe.yaml")
    for name, place in {
        "zero": "/dev/zero",
        "stdin": "/dev/stdin",
        "loop": "loop.yaml",
        "random": "/dev/urandom",
    }.items():
        (folder / f"{name}.yaml").symlink_to(place)
    (folder / "folder.yaml").mkdir()
    (folder / "sparse.yaml").touch()
    os.truncate(folder / "sparse.yaml", 10 << 30)
    for path in sorted(folder.iterdir()):
        trial.refused("show", path)
        # What would be written in the place of a device would harm the machine.
        if "/dev/" not in os.path.realpath(path):
            trial.refused("mark", path, "fixed", "--why", "x")


@KIND.attack("the program has no more code than that of an honest entry, and nothing is executed")
def program_of_hostile_texts(trial: Trial) -> None:
    """Writes programs of entries whose name, message and device hold code that ends a docstring."""
    name = 'a"""; import os; os.system("touch pwned"); """'
    change = ("  backend: cpu", f'  backend: cpu\n  device: "{PYTHON}"\n  diagnosis: "{PYTHON}"')
    path = put(trial, name, BASE.replace(MESSAGE, f'message: "{PYTHON}"').replace(*change))
    answer = trial.fuzz("show", "--script", path)
    require(answer.code == 0, f"exit code {answer.code}: {answer.err[-300:]!a}")
    require("pwned" not in "".join(map(ast.dump, ast.parse(answer.out).body[1:])), "the program has more code")
    trial.write("program.py", answer.out)
    done = trial.run(sys.executable, "program.py")
    require(done.code in (0, 1), f"the program ended with {done.code}: {done.err[-300:]!a}")


@KIND.attack("what the screen says to repeat it with names the entry, and executes nothing in a shell")
def command_of_a_hostile_name(trial: Trial) -> None:
    """Shows an entry whose name holds commands of a shell, and gives what is printed to a shell."""
    path = put(trial, "a; touch pwned; $(touch pwned) `touch pwned` b", BASE)
    answer = trial.fuzz("show", path)
    line = next((line for line in answer.out.splitlines() if line.strip().startswith("repeat")), "")
    require(line, f"no command to repeat it: {answer.out[-300:]!a}")
    trial.run("sh", "-c", line.split("repeat", 1)[1].replace("fuzz replay", "echo"))


@KIND.attack(f"{ONE_LINE} or a skipped entry; the file is not executed")
def target_of_another_user(trial: Trial) -> None:
    """Replays an entry in a folder for everybody, beside a target's file that belongs to another user."""
    if os.getuid() != 0:
        raise NotPossibleError("only root can give a file to another user")
    path = put(
        trial,
        "a",
        with_digest(BASE.replace("target: gelu_bw", "target: theirs").replace("planted: erf_saturates\n", "")),
    )
    file = trial.write("theirs.py", "import os\nos.system('touch pwned')\n@target()\ndef theirs(x): pass\n")
    os.chown(file, 65534, 65534)
    trial.work.chmod(0o777)
    answered(trial, "replay", path)


@KIND.attack("every reading is of a whole entry, every marking succeeds, and the last one can be read")
def marked_by_threads(trial: Trial) -> None:
    """Marks one entry by four threads with texts of other lengths for 5 s, and reads it meanwhile."""
    path = trial.write("found/gelu_bw/dx-sign-b5936751.yaml", BASE)
    until, broken = time.monotonic() + 5.0, []

    def repeat(act: object) -> None:
        while time.monotonic() < until and not broken:
            try:
                act()  # type: ignore[operator]
            except (FuzzError, OSError) as error:
                broken.append(f"{type(error).__name__}: {error}")

    acts = [lambda why=why: corpus.mark(path, "open", why) for why in ("s", "l" * 480, "m" * 200, "x" * 400)]
    threads = [threading.Thread(target=repeat, args=(act,)) for act in (*acts, lambda: corpus.read(path))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    require(not broken, "; ".join(broken)[:300])


@KIND.attack("the link is still a link, and what it leads to is marked or it is refused in one line")
def mark_of_a_link(trial: Trial) -> None:
    """Marks a link to an entry, and one to a file that is none, with a hostile reason."""
    path = put(trial, "a", BASE)
    for name, place in {"link": "a.yaml", "outside": str(trial.write("outside", "no entry"))}.items():
        (trial.work / "corpus" / "gelu_bw" / f"{name}.yaml").symlink_to(place)
    answered(trial, "mark", "corpus/gelu_bw/link.yaml", "accepted", "--why", '"\x1b[2J\n#: &a *b')
    require((trial.work / "corpus/gelu_bw/link.yaml").is_symlink(), "the link is a file now")
    corpus.read(trial.work / path)
    trial.refused("mark", "corpus/gelu_bw/outside.yaml", "fixed", "--why", "x")


@KIND.attack("the entry has its bytes after each command, which is refused in one line")
def reports_over_entries(trial: Trial) -> None:
    """Asks for reports, JUnit, SARIF and programs that would be written over an entry, a link to it, and a folder."""
    path = put(trial, "a", BASE)
    (trial.work / "link.html").symlink_to(path)
    before = (trial.work / path).read_bytes()
    for out in (path, "link.html", "corpus"):
        trial.refused("report", "--no-plots", "--out", out, path)
    for option in ("--junit", "--sarif"):
        trial.refused("replay", "--backend", "cpu", option, path, path)
    require((trial.work / path).read_bytes() == before, "the entry was written over")


@KIND.attack("the report holds no element that a text brings")
def report_of_html(trial: Trial) -> None:
    """Reports on entries whose texts and name are HTML, templates and scripts."""
    change = ("  backend: cpu", f'  backend: "{HTML}"\n  device: "{HTML}"\n  diagnosis: "{HTML}"')
    text = BASE.replace(MESSAGE, f'message: "{HTML}"').replace('why: ""', f'why: "{HTML}"').replace(*change)
    put(trial, "<img src=x onerror=alert(3)>", text)
    put(trial, "b", re.sub("got: 0.0014", f'got: "{HTML}"', text))
    answered(trial, "report", "--no-plots", "--out", "out.html", "corpus")
    page = (trial.work / "out.html").read_text(encoding="utf-8")
    require(not [one for one in MARKUP if one in page], "the page holds the text's elements")


@KIND.attack(f"what can be read is replayed, the rest is named; or {ONE_LINE}; within seconds")
def folders_without_an_end(trial: Trial) -> None:
    """Replays and reports on folders that hold themselves by links, 200 inside each other, and 2,000 broken entries."""
    deep = trial.work / "corpus"
    deep.mkdir()
    (deep / "again").symlink_to(deep)
    place = deep
    for _ in range(200):
        place /= "d"
        place.mkdir()
    for number in range(2000):
        (deep / f"{number}.yaml").write_text("x")
    for arguments in (("replay", "corpus"), ("report", "--no-plots", "--out", "out.html", "corpus")):
        answer = trial.fuzz(*arguments)
        require(answer.code in (0, 2), f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack("each command reads a whole entry or says in one line that it cannot")
def entry_that_changes(trial: Trial) -> None:
    """Shows an entry ten times while it is written over, cut, removed and made again."""
    path, until = trial.work / put(trial, "a", BASE), time.monotonic() + 120
    done = threading.Event()

    def spoil() -> None:
        while not done.is_set() and time.monotonic() < until:
            path.write_text(BASE)
            time.sleep(0.01)
            path.write_bytes(BASE.encode()[:300])
            path.unlink()

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        for _ in range(10):
            answered(trial, "show", path)
    finally:
        done.set()
        thread.join()


@KIND.attack("pytest ends in order, by failures or errors of its items, and not by an internal error")
def pytest_of_hostile_files(trial: Trial) -> None:
    """Gives pytest with the plugin a folder of hostile entries, and a target's file that ends its process."""
    put(trial, "a", BASE.replace(MESSAGE, f'message: "{ESCAPES}"'))
    put(trial, "b\n\x1b[2J", "x")
    (trial.work / "corpus" / "gelu_bw" / "zero.yaml").symlink_to("/dev/zero")
    os.mkfifo(trial.work / "corpus" / "gelu_bw" / "pipe.yaml")
    trial.write("kernels/fuzz_leaves.py", f"{TARGET}\nimport os\nos._exit(0)\n")
    trial.write("kernels/fuzz_fails.py", f"{TARGET}\nraise RuntimeError('\x1b[2J')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fuzz-cases=3", "--fuzz-backend=cpu"]
    answer = trial.run(*command, "--fuzz-corpus=corpus", "corpus", "kernels")
    text = answer.out + answer.err
    if "INTERNALERROR" in text or answer.code not in (1, 2) or "\x1b[2J" in text:
        raise FellError(f"pytest ended with {answer.code}: {text[-600:]!a}")
