# SPDX-License-Identifier: Apache-2.0
"""The house rules: each check finds a planted finding, and nothing in code that is well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import cpp_code  # noqa: E402
import python_code  # noqa: E402
import tidy  # noqa: E402

CLASS = """\
class HEADRACE_EXPORT Store final : public Base {
 public:
  Store() = default;
  explicit Store(std::map<int, int> options, int size = f(3));
  Store(const Store&) = delete;
  int size() const { return size_; }
  template <class T>
  Result<T> load(std::function<void(int)> then) REQUIRES(mutex_);
  bool operator==(const Store& other) const;

 private:
  friend class Loader;
  struct Inner {
    void first();
    void second();
  };
  using Callback = std::function<void(int)>;
  mutable Mutex mutex_;
  Mutex order_ ACQUIRED_AFTER(mutex_);
  int size_ GUARDED_BY(mutex_) = 0;  // f(x)
  std::function<void()> then_{nothing};
};
"""


def test_a_class_is_measured_without_its_inner_ones() -> None:
    store, inner = cpp_code.classes(Path("store.h"), CLASS)
    assert (store.name, store.functions, store.mutexes) == ("Store", 4, 2)
    assert (inner.name, inner.functions, inner.mutexes) == ("Inner", 2, 0)


def test_files_define_the_members_of_classes() -> None:
    text = "Result<int> Store::load(int a) {\n  Other::call();\n}\nconst int a = Third::make();\n"
    assert cpp_code.defined_members(text + "Store::Inner::~Inner() {\n}\n") == {"Store", "Inner"}


@pytest.mark.parametrize(
    ("header", "parameters"),
    [
        ("void f() {", 0),
        ("int f(std::map<int, int> a, int b = max(1, 2)) const REQUIRES(mutex_) {", 2),
        ("ATTRIBUTE_HERE(1, 2) void f(int a) {", 1),
        ("bool operator()(int a, int b, int c) {", 3),
        ("const auto f = [&, a](int b, int c) -> int {", 2),
    ],
)
def test_parameters_of_cpp(header: str, parameters: int) -> None:
    (found,) = cpp_code.functions(Path("a.cpp"), [header, "  g();", "}"])
    assert (found.parameters, found.length) == (parameters, 1)


def test_nesting_of_cpp() -> None:
    text = """\
TEST(Shards, MeetInOne) {
  const std::vector<Point> points = {
      {1, "{"},
  };
  for (const Point& each : points) {
    if (each.x == 1) {
      run([&](int i) {
        f(i);
      });
    } else {
      f({1, 2});
    }
  }
}
"""
    (found,) = cpp_code.functions(Path("a.cpp"), text.splitlines())
    assert (found.name, found.nesting) == ("Shards.MeetInOne", 3)


def test_parameters_and_nesting_of_python() -> None:
    text = """\
class A:
    def f(self, a, b=1, *rest, c, d=2, **others):
        if a:
            pass
        elif b:
            for i in c:
                print(i)

def command(a: Annotated[int, typer.Option()], b, c, d, e, f, g, h, i, j):
    pass
"""
    command, method = sorted(python_code.functions(Path("a.py"), text), key=lambda f: f.name)
    assert (command.parameters, command.nesting) == (0, 0)
    assert (method.parameters, method.nesting) == (4, 2)


def test_properties_above_a_limit_are_listed_by_file_and_name() -> None:
    functions = [
        cpp_code.Function(Path(f"src/{n}.cpp"), 1, "f", length=1, parameters=n, nesting=0)
        for n in (8, 9)
    ]
    assert tidy.large(functions, "parameters", 8) == {"9.cpp:f": 9}


def tree(monkeypatch: pytest.MonkeyPatch, root: Path, files: dict[str, str]) -> list[Path]:
    monkeypatch.setattr(tidy, "ROOT", root)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [root / name for name in files]


def test_a_class_in_many_files_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    members = {f"src/cache/{name}.cpp": f"void Big::{name}() {{\n}}\n" for name in "abcd"}
    head = "class Big {\n" + "".join(f"  void f{n}();\n" for n in range(41)) + "};\n"
    paths = tree(monkeypatch, tmp_path, members | {"src/cache/big.h": head})
    assert tidy.large_classes(paths) == {"Big: functions": 41, "Big: files": 4}
    (tmp_path / "src/cache/big.h").write_text("class Big {\n};\n")
    assert tidy.large_classes(paths[1:]) == {}


def test_an_upward_import_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tidy, "PYTHON_LAYERS", ["headrace", "headrace._run", "headrace._cli"])
    paths = tree(monkeypatch, tmp_path / "t", {
        "python/headrace/_run/plan.py": "def f():\n    from headrace._cli import app\n",
        "python/headrace/_cli/app.py": "import headrace\nfrom headrace._run import host\n",
        "python/headrace/_run/host.py": "from headrace import _core\n",
        "python/headrace/__init__.py": "from headrace._core import Machine\n",
    })  # fmt: skip
    (found,) = tidy.check_python_layers(paths)
    assert str(found).endswith(
        "plan.py:2: upward import: headrace._run.plan must not see headrace._cli.app")


def test_a_cycle_of_imports_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = tree(monkeypatch, tmp_path, {
        "python/headrace/_a.py": "from headrace._b import b\n",
        "python/headrace/_b.py": "if TYPE_CHECKING:\n    from headrace import _c\n",
        "python/headrace/_c.py": "def f():\n    import headrace._a\n",
        "python/headrace/_d.py": "from headrace._a import a\n",
    })  # fmt: skip
    (found,) = tidy.check_python_layers(paths)
    assert found.text == (
        "a cycle of imports: headrace._a -> headrace._b -> headrace._c -> headrace._a")


@pytest.mark.parametrize(
    ("budget", "measured", "told"),
    [
        ("large_classes", {"A: mutexes": 3}, "A: mutexes: 3; at most 2"),
        ("many_parameters", {"a.py:f": 9}, "a.py:f: 9 parameters; at most 8"),
        ("deep_nesting", {"a.py:f": 5}, "a.py:f: 5 nested blocks; at most 4"),
        ("long_functions", {"a.py:f": 71}, "a.py:f: 71 lines; at most 70"),
    ],
)
def test_budgets_may_only_fall(budget: str, measured: dict[str, int], told: str) -> None:
    well = {name: {} for name in (*tidy.LIMITS, "large_classes")} | {
        "usual_functions_percent": 100.0, "without_own_test": [],
    }  # fmt: skip
    got = well | {budget: measured}
    (found,) = tidy.worse(got, well)
    assert found.startswith(told)
    assert not list(tidy.worse(got, got))
    more = well | {budget: {name: value + 1 for name, value in measured.items()}}
    assert len(list(tidy.worse(more, got))) == 1
