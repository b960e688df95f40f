// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file as a table: parsed once, without a Python object per tensor.
#include <algorithm>
#include <array>
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

struct Tensor {
  std::string name;
  std::string type;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;  // of its first byte, and behind its last, in the data
  bool has_type = false;
  bool has_shape = false;
};

// The name in quotes on one line, cut off where it is hostile.
std::string as_text(std::string_view name) {
  constexpr std::size_t kMost = 200;
  std::string text = nlohmann::json(name.substr(0, kMost))
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.front() = text.back() = '\'';
  return text;
}

// Receives the events of the JSON parser, which needs memory for their depth only.
class Reader final : public nlohmann::json::json_sax_t {
 public:
  std::vector<Tensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string refused;  // why the parser was stopped

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(std::int64_t) override { return value(); }
  bool number_float(double, const std::string&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool number_unsigned(std::uint64_t number) override {
    if (ignored_ > 0 || list_ == nullptr) return value();
    list_->push_back(number);
    return true;
  }
  bool string(std::string& text) override {
    if (ignored_ > 0) return true;
    if (in_metadata_) {
      metadata.emplace_back(key_, std::move(text));
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return value();
    tensors.back().type = std::move(text);
    return tensors.back().has_type = true;
  }
  bool key(std::string& text) override {
    if (ignored_ == 0) key_ = std::move(text);
    return true;
  }
  bool start_object(std::size_t) override {
    if (ignored_ > 0 || (depth_ == 2 && list_ == nullptr && is_extra())) return enter_ignored();
    if (depth_ >= 2) return refuse_tensor();
    if (++depth_ == 2) {
      in_metadata_ = key_ == "__metadata__";
      if (!in_metadata_) tensors.push_back({.name = std::move(key_)});
    }
    return true;
  }
  bool end_object() override {
    if (ignored_ > 0) return leave_ignored();
    if (depth_ == 2 && !in_metadata_ &&
        (!tensors.back().has_type || !tensors.back().has_shape ||
         tensors.back().offsets.size() != 2)) {
      return refuse_tensor();
    }
    if (depth_-- == 2) in_metadata_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (ignored_ > 0 || (depth_ == 2 && list_ == nullptr && is_extra())) return enter_ignored();
    if (depth_ != 2 || list_ != nullptr) return value();
    if (key_ == "shape") {
      list_ = &tensors.back().shape;
      tensors.back().has_shape = true;
    } else if (key_ == "data_offsets") {
      list_ = &tensors.back().offsets;
    } else {
      return refuse_tensor();
    }
    list_->clear();
    return true;
  }
  bool end_array() override {
    if (ignored_ > 0) return leave_ignored();
    list_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    if (refused.empty()) refused = "it is no safetensors file: its header is no JSON";
    return false;
  }

 private:
  // A value where the format has another one.
  bool value() {
    if (ignored_ > 0 || in_metadata_) return true;
    if (depth_ == 0) {
      refused = "it is no safetensors file: its header is no object";
      return false;
    }
    if (depth_ == 2 && list_ == nullptr && is_extra()) return true;
    return refuse_tensor();
  }
  // Fields that the format does not have yet, and all of the metadata except strings.
  bool is_extra() const {
    return in_metadata_ || (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets");
  }
  bool refuse_tensor() {
    const std::string& name = depth_ >= 2 && !tensors.empty() ? tensors.back().name : key_;
    refused = "the header's " + as_text(name) + " is no tensor";
    return false;
  }
  bool enter_ignored() { return ++ignored_ > 0; }
  bool leave_ignored() { return --ignored_ >= 0; }

  int depth_ = 0;    // 1: between tensors, 2: in a tensor or the metadata
  int ignored_ = 0;  // depth within a value that does not matter
  bool in_metadata_ = false;
  std::string key_;
  std::vector<std::uint64_t>* list_ = nullptr;  // the array that is being read
};

class TensorTable {
 public:
  static Result<TensorTable> parse(std::string_view text, std::uint64_t data, std::uint64_t size) {
    Reader reader;
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
      return fail(ErrorCode::invalid, "{}", reader.refused);
    }
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
    for (const auto& [name, text] : metadata_) found[nb::str(name.c_str())] = text;
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
    std::uint64_t bytes = type->bytes;
    bool fits = tensor.offsets[0] <= tensor.offsets[1];
    for (const std::uint64_t length : tensor.shape) {
      fits = fits && (length == 0 || bytes <= ~std::uint64_t{0} / length);
      bytes *= length;
    }
    const std::uint64_t has = tensor.offsets[1] - tensor.offsets[0];
    if (!fits || bytes != has) {
      return fail(ErrorCode::invalid, "{} has {} bytes for its shape", as_text(tensor.name),
                  static_cast<std::int64_t>(has));
    }
    return {};
  }

  std::vector<Tensor> tensors_;  // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata_;
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
