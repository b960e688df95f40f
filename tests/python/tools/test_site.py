# SPDX-License-Identifier: Apache-2.0
"""The pages of the site: documents, public names and comments of headers are on them.

Dead links are found by the step `docs` (`mkdocs build --strict`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/site"))

import headers  # noqa: E402
import pages  # noqa: E402

HEADER = """\
// SPDX-License-Identifier: Apache-2.0
// Adds numbers.
//
//   int three = add(1, 2);
//
// Rules:
// - the first
//   goes on
// - the second
#pragma once

#include <vector>

namespace headrace {

class Forward;

// Adds two_numbers, see result.h and `int
// four_numbers`.
// Errors: none: f<T> cannot fail.
int add(int a, int b);

class Sum {
 public:
  // The sum of `all`.
  int total() const {
    return total_;
  }
  Sum& operator=(const Sum&) = delete;

 private:
  // A secret.
  int total_ = 0;
};

struct Options {
  int limit = 1;  // most
};

}  // namespace headrace
"""

PAGE = """\
# sum.h

Adds numbers.

```cpp
int three = add(1, 2);
```

Rules:

- the first
  goes on
- the second

```cpp
#include "headrace/sum.h"
```

## add

```cpp
int add(int a, int b);
```

Adds `two_numbers`, see [result.h](result.md) and `int
four_numbers`.

Errors: none: f&lt;T&gt; cannot fail.

## Sum

```cpp
class Sum
```

### Sum::total

```cpp
int total() const;
Sum& operator=(const Sum&) = delete;
```

The sum of `all`.

## Options

```cpp
struct Options {
  int limit = 1;  // most
};
```
"""


def test_a_header_becomes_prose_and_code_in_its_order() -> None:
    text = headers.page("headrace/sum.h", HEADER, {"result.h": "result.md"})
    assert re.sub(r"\n{3,}", "\n\n", text).strip() == PAGE.strip()


def plain(text: str) -> list[str]:
    return re.findall(r"\w+", re.sub(r"\]\([^)]*\)|&(lt|gt|amp|quot);", " ", text))


@pytest.mark.parametrize("path", sorted((ROOT / "include").rglob("*.h")), ids=str)
def test_each_comment_of_a_header_is_on_its_page(path: Path) -> None:
    shown = " ".join(plain(headers.page("headrace/x.h", path.read_text(), {})))
    public = re.sub(r"(?ms)^ private:$.*?^( public:|\};)$", "", path.read_text())
    comments = re.findall(r"(?m)^ *// (.*)$", public.split("\n", 1)[1])
    assert [line for line in comments if " ".join(plain(line)) not in shown] == []


@pytest.mark.parametrize(
    ("index", "folder"),
    [("howto/README.md", "howto"), ("results/README.md", "results"), ("README.md", "design")],
)
def test_every_document_is_in_its_index(index: str, folder: str) -> None:
    path = ROOT / "docs" / index
    linked = {path.parent / each for each in re.findall(r"\]\(([\w./-]+\.md)\)", path.read_text())}
    assert set((ROOT / "docs" / folder).rglob("*.md")) - {path} <= linked


def test_each_public_name_of_the_package_is_on_one_page() -> None:
    groups = pages.grouped()
    names = [name for group in groups.values() for name in group]
    modules = [
        "arrow", "fsspec", "kvcache", "lmcache", "lmcache_mp", "parquet", "safetensors", "serving",
        "sglang",
        "vllm", "vllm_weights",
    ]  # fmt: skip
    assert sorted(names) == sorted([*headrace.__all__, *modules])


def test_examples_in_docstrings_are_code() -> None:
    text = '    """Sum.\n\n    >>> f(\n    ... 1)\n    1\n    """\n'
    fence = '    """Sum.\n\n    ```pycon\n    >>> f(\n    ... 1)\n    1\n    ```\n    """\n'
    assert pages.fenced(text) == fence
