"""YAML files and overrides to settings: values, errors and hostile input."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.config import UserError, bind, dump, explain, setting, yaml_file


class Backend(str, Enum):
    AUTO = "auto"
    CPU = "cpu"
    OFF = "off"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Data:
    """Where the scene comes from.

    More about it.
    """

    path: str = setting("", "Scene folder.")
    test_every: int = setting(8, "Hold out every n-th view.", min=0)


@dataclass(frozen=True)
class Deep:
    value: float = setting(0.5, "A nested value.", min_exclusive=0, max=1)


@dataclass
class Loss:
    ssim_lambda: float = setting(0.2, "Share of D-SSIM.", min=0, max=1)
    deep: Deep = field(default_factory=Deep)


@dataclass
class Train:
    iterations: int = setting(30000, "Images to train on.", min=1)
    save_at: tuple[int, ...] = setting([7000, 30000], "When to save.", min=1)
    names: tuple[str, ...] = setting((), "Names.")
    color: tuple[float, float, float] = setting((0.0, 0.0, 0.0), "Background.")
    backend: Backend = setting(Backend.AUTO, "Who renders.")
    level: Level = setting(Level.LOW, "How much.")
    note: str | None = setting(None, "Free text.")
    limit: int | None = setting(None, "A cap.", min=1)
    shuffle: bool = setting(True, "Random order.")
    first: int = setting(1, "First image.", min=0)

    def problems(self) -> list[str]:
        if self.first > self.iterations:
            return [f"first={self.first} is after iterations={self.iterations}"]
        return []


@dataclass
class Root:
    seed: int = setting(0, "Seed of every random draw.")
    data: Data = field(default_factory=Data)
    loss: Loss = field(default_factory=Loss)
    train: Train = field(default_factory=Train)


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str | bytes) -> Path:
        path = tmp_path / "x.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


def errors(file: Path | None = None, *overrides: str, root: type = Root) -> list[str]:
    with pytest.raises(UserError) as caught:
        bind(root, file, overrides)
    text = str(caught.value)
    return (text.replace(f"{file}:", "x.yaml:") if file else text).split("\n")


# Values


def test_nothing_given_is_all_defaults() -> None:
    settings = bind(Root, None, [])
    assert settings == Root()
    assert settings.train.save_at == (7000, 30000)


def test_partial_file_then_overrides(write) -> None:
    path = write("seed: 3\ntrain:\n  iterations: 7000\n  save_at: [1, 2]\nloss:\n")
    settings = bind(Root, path, ["train.iterations=100", "data.path=scenes/a", "seed=4", "seed=5"])
    assert (settings.seed, settings.train.iterations, settings.train.save_at) == (5, 100, (1, 2))
    assert settings.data == Data("scenes/a", 8)
    assert settings.loss == Loss()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "null"])
def test_empty_files(write, text: str) -> None:
    assert bind(Root, write(text), []) == Root()


def test_byte_order_mark_and_dotted_keys(write) -> None:
    settings = bind(Root, write(b"\xef\xbb\xbftrain.iterations: 12\nloss: {deep.value: 1}\n"), [])
    assert (settings.train.iterations, settings.loss.deep.value) == (12, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1.0e-4", 1e-4), ("1E-4", 1e-4), ("1", 1.0), (".5", 0.5), ("5e-1", 0.5)],
)
def test_floats(write, text: str, value: float) -> None:
    for settings in (
        bind(Root, None, [f"loss.ssim_lambda={text}"]),
        bind(Root, write(f"loss: {{ssim_lambda: {text}}}"), []),
    ):
        assert settings.loss.ssim_lambda == value
        assert isinstance(settings.loss.ssim_lambda, float)


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("-7", -7), ("1_000", 1000), ("3e4", 30000), ("010", 10)]
)
def test_integers(text: str, value: int) -> None:
    seed = bind(Root, None, [f"seed={text}"]).seed
    assert seed == value
    assert isinstance(seed, int)


def test_large_integers_are_exact() -> None:
    assert bind(Root, None, [f"seed={2**63 - 1}"]).seed == 2**63 - 1
    assert errors(None, f"seed={2**63}") == [
        f"command line: seed={2**63}: expected int, got '{2**63}'"
    ]


@pytest.mark.parametrize("text", ["true", "True", "false", "FALSE"])
def test_bools(text: str) -> None:
    assert bind(Root, None, [f"train.shuffle={text}"]).train.shuffle is (text.lower() == "true")


def test_null_and_optionals(write) -> None:
    path = write("train: {note: hello, limit: 5}")
    assert bind(Root, path, []).train.limit == 5
    settings = bind(Root, path, ["train.note=null", "train.limit=~"])
    assert settings.train.note is None
    assert settings.train.limit is None
    assert bind(Root, None, ["train.note='null'"]).train.note == "null"


def test_enums_by_value(write) -> None:
    settings = bind(Root, write("train: {backend: off, level: 2}"), [])
    assert settings.train.backend is Backend.OFF
    assert settings.train.level is Level.HIGH


@pytest.mark.parametrize(
    "text", ["5", "off", "2024-01-01", "1:30", "a #b", "C: d", "[x", "*a", "@x", "007", "a=b", ""]
)
def test_text_is_taken_as_it_is_on_the_command_line(text: str) -> None:
    assert bind(Root, None, [f"data.path={text}"]).data.path == text


@pytest.mark.parametrize("text", ["5", "off", "2024-01-01", "1:30", "007", "1e-4", "true"])
def test_plain_text_in_a_file_stays_text(write, text: str) -> None:
    assert bind(Root, write(f"data: {{path: {text}}}"), []).data.path == text


def test_lists() -> None:
    settings = bind(
        Root, None, ["train.save_at=[5]", "train.names=[a, 'b c', 1]", "train.color=[1, 0.5, 1e-1]"]
    )
    assert settings.train.save_at == (5,)
    assert settings.train.names == ("a", "b c", "1")
    assert settings.train.color == (1.0, 0.5, 0.1)
    assert bind(Root, None, ["train.save_at=[]"]).train.save_at == ()


# Wrong keys and values


def test_every_problem_in_one_message(write) -> None:
    path = write("train: {ssim_lamda: 0.3, iterations: 0}\ndata: {test_every: -1}\n")
    assert errors(path, "train.iterations=abc", "train.shuffle=1") == [
        "x.yaml: unknown key 'train.ssim_lamda'. Did you mean 'loss.ssim_lambda'?",
        "x.yaml: train.iterations=0: must be >= 1",
        "x.yaml: data.test_every=-1: must be >= 0",
        "command line: train.iterations=abc: expected int, got 'abc'",
        "command line: train.shuffle=1: expected true | false, got '1'",
    ]


def test_the_file_is_named_as_it_was_given(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("configs/x.yaml").write_text("sead: 1")
    assert errors(Path("configs/x.yaml")) == ["x.yaml: unknown key 'sead'. Did you mean 'seed'?"]
    with pytest.raises(UserError, match=r"^configs/x\.yaml: unknown key 'sead'"):
        bind(Root, Path("configs/x.yaml"), [])


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("dta.path", "data.path"),
        ("path", "data.path"),
        ("data.test-every", "data.test_every"),
        ("Train.Iterations", "train.iterations"),
        ("train.backand", "train.backend"),
        ("loss.value", "loss.deep.value"),
        ("trian.limit", "train.limit"),
    ],
)
def test_nearest_key(key: str, nearest: str) -> None:
    expected = f"command line: unknown key '{key}'. Did you mean '{nearest}'?"
    assert errors(None, f"{key}=1") == [expected]


def test_valid_keys_where_none_is_near() -> None:
    assert errors(None, "zzzz=1", "data.qqqq=1") == [
        "command line: unknown key 'zzzz'. Valid here: seed, data.*, loss.*, loss.deep.*, train.*",
        "command line: unknown key 'data.qqqq'. Valid here: data.path, data.test_every",
    ]


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("train.iterations=1.5", "expected int, got '1.5'"),
        ("train.iterations='5'", "expected int, got '5'"),
        ("train.iterations=true", "expected int, got 'true'"),
        ("train.iterations=[1]", "expected int, got [1]"),
        ("train.iterations={a: 1}", "expected int, got {a: 1}"),
        ("train.iterations=null", "expected int, got null"),
        ("train.shuffle=yes", "expected true | false, got 'yes'"),
        ("loss.ssim_lambda=nan", "expected float, got 'nan'"),
        ("loss.ssim_lambda=1e999", "expected float, got '1e999'"),
        ("loss.ssim_lambda=true", "expected float, got 'true'"),
        ("loss.ssim_lambda=1.5", "must be >= 0 and <= 1"),
        ("loss.deep.value=0", "must be > 0 and <= 1"),
        ("train.save_at=7", "expected list of int, such as [a, b], got '7'"),
        ("train.save_at=[1, x]", "expected int, got 'x'"),
        ("train.save_at=[1, 0]", "must be >= 1"),
        ("train.color=[1, 2]", "expected list of 3 float, got 2 items"),
        ("train.limit=x", "expected int or null, got 'x'"),
        ("train.limit=0", "must be >= 1"),
        (
            "train.backend=cpuu",
            "expected one of auto, cpu, off, got 'cpuu'. Did you mean 'cpu'?",
        ),
        ("train.backend=x", "expected one of auto, cpu, off, got 'x'"),
        ("data=5", "'data' is a group of settings, not one; it holds data.path, data.test_every"),
    ],
)
def test_wrong_values(override: str, complaint: str) -> None:
    shown = override.replace("'", "")
    assert errors(None, override) == [f"command line: {shown}: {complaint}"]


def test_long_values_are_shortened() -> None:
    (problem,) = errors(None, f"train.iterations={'9a' * 5000}")
    assert len(problem) < 300


@pytest.mark.parametrize("override", ["train.iterations", "=5", "", "--seed"])
def test_what_is_no_override(override: str) -> None:
    (problem,) = errors(None, override)
    assert problem.startswith(f"command line: '{override}' is not an override; write key=value")


def test_broken_yaml_on_the_command_line() -> None:
    (problem,) = errors(None, "train.save_at=[1, 2")
    assert problem.startswith("command line: train.save_at=[1, 2: ")
    assert "not valid YAML" in problem


def test_cross_checks_run_once_values_are_sound() -> None:
    assert errors(None, "train.first=8", "train.iterations=7") == [
        "train: first=8 is after iterations=7"
    ]


def test_required_settings() -> None:
    @dataclass
    class Needy:
        path: str

    Needy.__annotations__ = {"path": str}
    assert errors(None, root=Needy) == ["path: not given; add path=VALUE"]
    assert bind(Needy, None, ["path=a"]).path == "a"


def test_many_problems_are_cut(write) -> None:
    problems = errors(write("\n".join(f"key{i}: 1" for i in range(5000))))
    assert len(problems) == 21
    assert problems[-1] == "... and 4980 more problems"


# Files


def test_missing_file_names_a_neighbour(write) -> None:
    path = write("").with_name("xx.yaml")
    assert errors(path) == [
        f"x.yaml: no such configuration file. Did you mean '{path.with_name('x.yaml')}'?"
    ]
    assert errors(path.with_name("other")) == [
        "x.yaml: no such configuration file; check the path given with -c"
    ]


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    assert errors(tmp_path) == ["x.yaml: is a folder; -c takes a YAML file"]


def test_path_with_a_null_byte() -> None:
    (problem,) = errors(Path("a\0b"))
    assert "cannot be read" in problem


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("seed: 1\ntrain: [1, 2\nx: 3\n", "x.yaml: line 3: not valid YAML"),
        ("seed: 1\n\tx: 2\n", "x.yaml: line 2: not valid YAML"),
        ("seed: 'abc\n", "x.yaml: line "),
        (b"\xff\xfe\x00", "x.yaml: not UTF-8 text (byte 0)"),
        ("seed: \x00", "x.yaml: not valid YAML"),
        ("a: 1\nseed: 1\nseed: 2\n", "x.yaml: line 3: duplicate key 'seed'; keep one of the two"),
        ("train: {first: 1, first: 1}", "x.yaml: line 1: duplicate key 'first'"),
        ("train.first: 1\ntrain: {first: 1}", "x.yaml: duplicate key 'train.first'"),
        ("- 1\n- 2\n", "x.yaml: expected 'key: value' lines at the top level, found a list"),
        ("hello", "x.yaml: expected 'key: value' lines at the top level, found 'hello'"),
        ("? [a]\n: 1\n", "x.yaml: line 1: a key must be a word"),
        ("seed: 1\n---\nseed: 2\n", "x.yaml: line 2: more than one YAML document"),
        ("seed: &a 1\ndata: {test_every: *a}", "x.yaml: line 2: aliases (*a) are not supported"),
        ("seed: !!int 3", "x.yaml: line 1: tags (tag:yaml.org,2002:int) are not supported"),
        ("seed: " + "[" * 100 + "]" * 100, "x.yaml: line 1: nested more than 20 levels deep"),
        ("seed: " + "[" * 400_000, "x.yaml: line 1: "),
    ],
)
@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml_file.LOADER])
def test_broken_files(write, monkeypatch, loader, text: str | bytes, start: str) -> None:
    monkeypatch.setattr(yaml_file, "LOADER", loader)
    assert errors(write(text))[0].startswith(start)


def test_python_tags_construct_nothing(write, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (problem,) = errors(write(f"seed: !!python/object/apply:os.system ['touch {trace}']"))
    assert problem.startswith("x.yaml: line 1: tags (tag:yaml.org,2002:python/object/apply:os")
    assert not trace.exists()


def test_alias_bomb_is_refused_at_once(write) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for parent, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{parent}'] * 9)}]")
    (problem,) = errors(write("\n".join(lines)))
    assert problem.startswith("x.yaml: line 2: aliases (*a) are not supported")


def test_large_file(write) -> None:
    assert errors(write("#" * 1_000_001)) == [
        "x.yaml: larger than 1 MB; is it really a configuration file?"
    ]
    assert bind(Root, write("seed: 1\n" + "#" * 999_000), []).seed == 1


def test_problems_of_a_broken_file_come_with_those_of_the_command_line(write) -> None:
    problems = errors(write("- 1"), "seed=x")
    assert len(problems) == 2
    assert problems[1] == "command line: seed=x: expected int, got 'x'"


# Out again

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(0, 1)
SETTINGS = st.builds(
    Root,
    seed=st.integers(-(2**63) + 1, 2**63 - 1),
    data=st.builds(Data, path=TEXT, test_every=st.integers(0, 100)),
    loss=st.builds(
        Loss, ssim_lambda=FLOATS, deep=st.builds(Deep, value=st.floats(0, 1, exclude_min=True))
    ),
    train=st.builds(
        Train,
        iterations=st.integers(1, 10**12),
        save_at=st.lists(st.integers(1, 10**6), max_size=40).map(tuple),
        names=st.lists(TEXT, max_size=4).map(tuple),
        color=st.tuples(FLOATS, FLOATS, FLOATS),
        backend=st.sampled_from(Backend),
        level=st.sampled_from(Level),
        note=st.none() | TEXT,
        limit=st.none() | st.integers(1, 9),
        shuffle=st.booleans(),
        first=st.integers(0, 1),
    ),
)


@given(SETTINGS)
def test_dump_is_read_back(tmp_path_factory, settings: Root) -> None:
    path = tmp_path_factory.mktemp("dump") / "cfg.yml"
    path.write_text(dump(settings), encoding="utf-8", newline="")
    assert bind(Root, path, []) == settings


@pytest.mark.parametrize(
    "text", ["off", "null", "~", "1e-4", "5", "true", "a: b", "#x", " x", "", "\x85", "a\u2028b"]
)
def test_text_that_looks_like_something_else_is_read_back(write, text: str) -> None:
    settings = Root(data=Data(path=text))
    settings.train.note = text
    assert bind(Root, write(dump(settings)), []) == settings


def test_dump_reads_well() -> None:
    assert dump(Root()).splitlines()[:8] == [
        "seed: 0",
        "data:",
        "  path: ''",
        "  test_every: 8",
        "loss:",
        "  ssim_lambda: 0.2",
        "  deep:",
        "    value: 0.5",
    ]
    assert "  save_at: [7000, 30000]" in dump(Root()).splitlines()


def test_explain_names_every_key_with_type_default_range_and_help() -> None:
    text = explain(Root)
    assert text.startswith("general:\n  seed=0  (int)\n      Seed of every random draw.\n\n")
    data = [
        "data: Where the scene comes from.",
        "  data.path=  (text)",
        "      Scene folder.",
        "  data.test_every=8  (int, >= 0)",
        "      Hold out every n-th view.",
    ]
    assert "\n".join(data) in text
    assert "  loss.deep.value=0.5  (float, > 0 and <= 1)" in text
    assert "  train.save_at=[7000, 30000]  (list of int, >= 1)" in text
    assert "  train.backend=auto  (auto | cpu | off)" in text
    assert "  train.note=null  (text or null)" in text
    assert "  train.shuffle=true  (true | false)" in text
