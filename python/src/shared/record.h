// SPDX-License-Identifier: Apache-2.0
// Plain data of the library as read-only Python objects that print themselves.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

namespace headrace::python {

namespace nb = nanobind;

// A class of read-only fields with a __repr__ that shows them all and asdict():
//   Record<Node>(m, "Node", "One memory.").field("id", &Node::id, "Its number.");
template <class T>
class Record {
 public:
  Record(nb::handle scope, const char* name, const char* doc) : class_(scope, name, doc) {
    names_ = nb::list();
    class_.attr("_fields") = names_;
    class_.def("__repr__", [](nb::handle self) {
      std::string text = nb::cast<std::string>(self.type().attr("__name__")) + "(";
      const char* comma = "";
      for (const nb::handle field : self.attr("_fields")) {
        text += comma + nb::cast<std::string>(field) + "=" +
                nb::cast<std::string>(nb::repr(self.attr(nb::borrow<nb::str>(field))));
        comma = ", ";
      }
      return text + ")";
    });
    class_.def(
        "asdict",
        [](nb::handle self) {
          nb::typed<nb::dict, nb::str, nb::object> fields;
          for (const nb::handle field : self.attr("_fields")) {
            fields[field] = plain(self.attr(nb::borrow<nb::str>(field)));
          }
          return fields;
        },
        "The fields by name, nested records too.");
  }

  // Records as dictionaries, also in lists.
  static nb::object plain(nb::object value) {
    if (nb::hasattr(value, "asdict")) return value.attr("asdict")();
    if (!nb::isinstance<nb::list>(value)) return value;
    nb::list all;
    for (const nb::handle each : value) all.append(plain(nb::borrow(each)));
    return all;
  }

  template <class Member>
  Record& field(const char* name, Member T::* member, const char* doc) {
    class_.def_ro(name, member, doc);
    names_.append(nb::str(name));
    return *this;
  }
  // A field that is computed.
  template <class Getter>
  Record& computed(const char* name, Getter getter, const char* doc) {
    class_.def_prop_ro(name, getter, doc);
    names_.append(nb::str(name));
    return *this;
  }
  nb::class_<T>& type() { return class_; }

 private:
  nb::class_<T> class_;
  nb::list names_;
};

}  // namespace headrace::python
