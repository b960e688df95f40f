// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file as a table: parsed once, without a Python object per tensor.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "core/fail.h"
#include "handles.h"
#include "interpreter.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// Types of the format with the bytes of an element. Types of less than 8 bits are not among them.
struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kTypes = {
    ElementType{"F64", 8},     ElementType{"F32", 4},     ElementType{"F16", 2},
    ElementType{"BF16", 2},    ElementType{"F8_E4M3", 1}, ElementType{"F8_E5M2", 1},
    ElementType{"F8_E8M0", 1}, ElementType{"I64", 8},     ElementType{"I32", 4},
    ElementType{"I16", 2},     ElementType{"I8", 1},      ElementType{"U64", 8},
    ElementType{"U32", 4},     ElementType{"U16", 2},     ElementType{"U8", 1},
    ElementType{"BOOL", 1},    ElementType{"C64", 8},
};

// Limits of arrays of numpy: NPY_MAXDIMS of numpy 2, and bytes in a signed number.
constexpr std::size_t kMostDimensions = 64;
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

struct Tensor {
  std::string name;
  std::string type;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;  // of its first byte, and behind its last, in the data
};

// The name in quotes on one line, cut off where it is hostile.
std::string as_text(std::string_view name) {
  constexpr std::size_t kMost = 200;
  std::string text = nlohmann::json(name.substr(0, kMost))
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.front() = text.back() = '\'';
  return text;
}

// Reads the header's JSON, which has one shape, six times faster than a general parser; what is
// rare in it is left to that: strings with escapes or beyond ASCII, the metadata, unknown fields.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}

  std::vector<Tensor> tensors;
  nlohmann::json metadata;

  Status read() {
    if (!take('{')) return refuse("its header is no object");
    if (take('}')) return at_end();
    do {
      std::string name;
      if (!read_string(name) || !take(':')) return no_json();
      if (name == "__metadata__") {
        const auto value = skip_value();
        metadata = nlohmann::json::parse(value.begin(), value.end(), nullptr, false);
        if (metadata.is_discarded()) return no_json();
        if (!metadata.is_object()) return no_tensor(name);
      } else {
        tensors.push_back({.name = std::move(name), .type = {}, .shape = {}, .offsets = {}});
        HEADRACE_TRY_STATUS(read_tensor(tensors.back()));
      }
    } while (take(','));
    return take('}') ? at_end() : no_json();
  }

 private:
  static Status refuse(std::string_view why) {
    return fail(ErrorCode::invalid, "it is no safetensors file: {}", why);
  }
  static Status no_json() { return refuse("its header is no JSON"); }
  static Status no_tensor(std::string_view name) {
    return fail(ErrorCode::invalid, "the header's {} is no tensor", as_text(name));
  }

  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take(char wanted) {
    skip_space();
    const bool there = at_ != end_ && *at_ == wanted;
    at_ += there ? 1 : 0;
    return there;
  }
  Status at_end() {
    skip_space();
    return at_ == end_ ? Status{} : no_json();
  }

  Status read_tensor(Tensor& tensor) {
    bool typed = false;
    bool shaped = false;
    if (!take('{') || take('}')) return no_tensor(tensor.name);
    std::string key;
    do {
      if (!read_string(key) || !take(':')) return no_json();
      if (key == "dtype") {
        typed = read_string(tensor.type);
        if (!typed) return no_tensor(tensor.name);
      } else if (key == "shape") {
        shaped = read_list(tensor.shape);
        if (!shaped) return no_tensor(tensor.name);
      } else if (key == "data_offsets") {
        if (!read_list(tensor.offsets)) return no_tensor(tensor.name);
      } else if (const auto value = skip_value();
                 !nlohmann::json::accept(value.begin(), value.end())) {
        return no_json();
      }
    } while (take(','));
    if (!take('}')) return no_json();
    return typed && shaped && tensor.offsets.size() == 2 ? Status{} : no_tensor(tensor.name);
  }

  bool read_string(std::string& text) {
    if (!take('"')) return false;
    const char* const begin = at_;
    bool plain = true;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      const auto byte = static_cast<unsigned char>(*at_);
      plain = plain && byte >= 0x20 && byte < 0x80 && byte != '\\';
      if (byte == '\\' && ++at_ == end_) return false;
    }
    if (at_ == end_) return false;
    ++at_;
    if (plain) {
      text.assign(begin, at_ - 1);
      return true;
    }
    const auto value = nlohmann::json::parse(begin - 1, at_, nullptr, false);
    if (!value.is_string()) return false;
    text = value.get<std::string>();
    return true;
  }

  bool read_list(std::vector<std::uint64_t>& numbers) {
    numbers.clear();
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      skip_space();
      std::uint64_t number = 0;
      const auto [behind, error] = std::from_chars(at_, end_, number);
      if (error != std::errc{} || (*at_ == '0' && behind - at_ > 1)) return false;
      at_ = behind;
      numbers.push_back(number);
    } while (take(','));
    return take(']');
  }

  // Returns the text up to the end of the next value. The caller checks that it is JSON.
  std::string_view skip_value() {
    skip_space();
    const char* const begin = at_;
    std::size_t depth = 0;
    for (; at_ != end_; ++at_) {
      if (*at_ == '"') {
        for (++at_; at_ != end_ && *at_ != '"'; ++at_) {
          if (*at_ == '\\' && at_ + 1 != end_) ++at_;
        }
        if (at_ == end_) break;
      } else if (*at_ == '{' || *at_ == '[') {
        ++depth;
      } else if (*at_ == '}' || *at_ == ']') {
        if (depth == 0) break;
        --depth;
      } else if (*at_ == ',' && depth == 0) {
        break;
      }
    }
    return {begin, at_};
  }

  const char* at_;
  const char* const end_;
};

class TensorTable {
 public:
  static Result<TensorTable> parse(std::string_view text, std::uint64_t data, std::uint64_t size) {
    HeaderReader reader(text);
    HEADRACE_TRY_STATUS(reader.read());
    TensorTable table;
    table.tensors_ = std::move(reader.tensors);
    table.metadata_ = std::move(reader.metadata);
    for (const Tensor& each : table.tensors_) HEADRACE_TRY_STATUS(check(each));
    std::ranges::sort(table.tensors_, {}, &Tensor::offsets);
    HEADRACE_TRY_STATUS(table.place(data, size));
    return table;
  }

  std::size_t count() const { return tensors_.size(); }
  nb::object find(std::string_view name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nb::none();
    const Tensor& tensor = tensors_[found->second];
    nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(tensor.shape.size())));
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      PyTuple_SET_ITEM(shape.ptr(), static_cast<Py_ssize_t>(i),
                       PyLong_FromUnsignedLongLong(tensor.shape[i]));
    }
    return nb::make_tuple(tensor.type, shape, tensor.offsets[0],
                          tensor.offsets[1] - tensor.offsets[0]);
  }
  nb::typed<nb::list, nb::str> names() const {
    nb::typed<nb::list, nb::str> names;
    for (const Tensor& each : tensors_) names.append(each.name);
    return names;
  }
  nb::typed<nb::dict, nb::str, nb::str> metadata() const {
    nb::typed<nb::dict, nb::str, nb::str> found;
    for (const auto& [name, text] : metadata_.items()) {
      if (text.is_string()) found[nb::str(name.c_str())] = text.get<std::string>();
    }
    return found;
  }

 private:
  // Offsets become those in the file.
  Status place(std::uint64_t data, std::uint64_t size) {
    std::uint64_t end = data;
    by_name_.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& each = tensors_[i];
      if (each.offsets[1] > size - data || each.offsets[0] + data < end) {
        return fail(ErrorCode::invalid, "{} lies outside the file, or on another tensor",
                    as_text(each.name));
      }
      if (!by_name_.emplace(each.name, i).second) {
        return fail(ErrorCode::invalid, "{} is there twice", as_text(each.name));
      }
      for (std::uint64_t& offset : each.offsets) offset += data;
      end = each.offsets[1];
    }
    return {};
  }

  static Status check(const Tensor& tensor) {
    const auto* const type = std::ranges::find(kTypes, tensor.type, &ElementType::name);
    if (type == kTypes.end()) {
      std::string known;
      for (const ElementType& each : kTypes)
        known.append(known.empty() ? "" : ", ").append(each.name);
      return fail(ErrorCode::invalid, "{} has the type {}; known are {}", as_text(tensor.name),
                  as_text(tensor.type), known);
    }
    if (tensor.shape.size() > kMostDimensions) {
      return fail(ErrorCode::invalid, "{} has {} dimensions; the most are {}", as_text(tensor.name),
                  tensor.shape.size(), kMostDimensions);
    }
    // Numpy refuses lengths whose product is too large, even beside a length of 0.
    std::uint64_t bytes = type->bytes;
    bool fits = tensor.offsets[0] <= tensor.offsets[1];
    bool empty = false;
    for (const std::uint64_t length : tensor.shape) {
      empty = empty || length == 0;
      const std::uint64_t factor = std::max<std::uint64_t>(length, 1);
      fits = fits && bytes <= kMostBytes / factor;
      bytes *= factor;
    }
    const std::uint64_t has = tensor.offsets[1] - tensor.offsets[0];
    if (!fits || has != (empty ? 0 : bytes)) {
      return fail(ErrorCode::invalid, "{} has {} bytes for its shape", as_text(tensor.name),
                  static_cast<std::int64_t>(has));
    }
    return {};
  }

  std::vector<Tensor> tensors_;  // in the order of their bytes
  nlohmann::json metadata_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // names of tensors_
};

}  // namespace

void bind_safetensors(nb::module_& m) {
  nb::class_<TensorTable>(m, "_TensorTable", "The tensors of a safetensors file, by name.")
      .def(
          "__init__",
          [](TensorTable* self, const nb::bytes& header, std::uint64_t data, std::uint64_t size) {
            const std::string_view text(header.c_str(), header.size());
            new (self) TensorTable(
                unwrap(without_gil([&] { return TensorTable::parse(text, data, size); })));
          },
          "header"_a, "data"_a, "size"_a,
          "`header`: the JSON. `data`, `size`: where the data begins, and the file ends. "
          "InvalidError: the header, or a tensor of it, is none.")
      .def("__len__", &TensorTable::count)
      .def("find", &TensorTable::find, "name"_a,
           nb::sig("def find(self, name: str) -> tuple[str, tuple[int, ...], int, int] | None"),
           "Type, shape, offset in the file and bytes; None: there is no such tensor.")
      .def("names", &TensorTable::names, "In the order of their bytes.")
      .def("metadata", &TensorTable::metadata, "The strings of the header's __metadata__.");
}

}  // namespace headrace::python
