// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <string>

#include "core/fail.h"
#include "host/cgroups.h"
#include "host/files.h"
#include "host/mempolicy.h"
#include "host/nodes.h"
#include "host/settings/damon.h"
#include "host/settings/hint_faults.h"
#include "interpreter.h"
#include "record.h"
#include "types.h"

namespace headrace::python {

using namespace nb::literals;

namespace {

// Each attempt to read or write goes through _read() and _write(), which classes of Python may
// replace: tests refuse single calls there.
class Files final : public HostFiles {
 public:
  using HostFiles::HostFiles;

  // Other threads run meanwhile, and Ctrl-C ends the wait.
  void pause(Nanoseconds time) const override {
    without_gil([&] { HostFiles::pause(time); });
    check_signals();
  }
  nb::object read_here(const std::string& name) const {
    std::string text;
    if (const int error = HostFiles::read_once(name, text); error != 0) raise_errno(error);
    const auto size = static_cast<Py_ssize_t>(text.size());
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), size, "replace"));
  }
  void write_here(const std::string& name, const std::string& value) const {
    if (const int error = HostFiles::write_once(name, value); error != 0) raise_errno(error);
  }

 protected:
  int read_once(const std::string& name, std::string& text) const override {
    return errno_of([&] {
      text = nb::cast<std::string>(call_python(nb::find(this).attr("_read"), nb::make_tuple(name)));
    });
  }
  int write_once(const std::string& name, const std::string& value) const override {
    return errno_of(
        [&] { call_python(nb::find(this).attr("_write"), nb::make_tuple(name, value)); });
  }

 private:
  [[noreturn]] static void raise_errno(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    nb::raise_python_error();
  }
  static int errno_of(const auto& act) {
    try {
      act();
      return 0;
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_OSError)) throw;
      const nb::object number = error.value().attr("errno");
      return number.is_none() ? EIO : nb::cast<int>(number);
    }
  }
};

// None for what is absent.
template <class T>
std::optional<T> there(Result<T>&& result) {
  if (!result && result.error().code == ErrorCode::absent) return std::nullopt;
  return unwrap(std::move(result));
}

void bind_files(nb::class_<Files>& files) {
  files.def(nb::init<std::filesystem::path>(), "root"_a = "/")
      .def_prop_ro("root", &Files::root, "Where /proc, /sys and /run are.")
      .def("path", &Files::path, "name"_a, "Where a file is.")
      .def(
          "read", [](const Files& self, const std::string& name) { return there(self.read(name)); },
          "name"_a,
          "The file's text, stripped; switches are \"1\" and \"0\". None: no such file. "
          "DeniedError: takes root.")
      .def(
          "write",
          [](const Files& self, const std::string& name, const std::string& value) {
            unwrap(self.write(name, value));
          },
          "name"_a, "value"_a, "Writes a setting. An Error: the kernel's reason.")
      .def(
          "setting",
          [](const Files& self, const std::string& name) {
            return there(read_own_setting(self, name));
          },
          "name"_a,
          "Like read(); numa_balancing is without the bit that `headrace tier attach` and `run` "
          "hold.")
      .def(
          "set",
          [](const Files& self, const std::string& name, const std::string& value) {
            unwrap(write_own_setting(self, name, value));
          },
          "name"_a, "value"_a,
          "Like write(). The held bit of numa_balancing stays; a bit that a killed holder left is "
          "cleared.")
      .def("writable", &Files::writable, "name"_a, "Whether the file exists and may be written.")
      .def(
          "names",
          [](const Files& self, const std::string& pattern) { return unwrap(self.names(pattern)); },
          "pattern"_a,
          "The names for a pattern, in order of numbers. An Error: a folder cannot be read.")
      .def("_read", &Files::read_here, "name"_a, "One attempt. An OSError.")
      .def("_write", &Files::write_here, "name"_a, "value"_a, "One attempt. An OSError.")
      .def_rw("busy_bound", &Files::busy_bound,
              "Seconds for which writes to busy files are retried.")
      .def_rw("lock_bound", &Files::lock_bound, "Seconds to wait for a lock.");
}

void bind_facts(nb::class_<Files>& files) {
  files
      .def(
          "memory_tiers",
          [](const Files& self) {
            std::vector<std::pair<unsigned, std::vector<NodeId>>> tiers;
            for (MemoryTier& tier : memory_tiers(self)) {
              tiers.emplace_back(tier.number, std::move(tier.nodes));
            }
            return tiers;
          },
          "Number and nodes of each of the kernel's tiers, fastest first.")
      .def(
          "cpus", [](const Files& self, NodeId node) { return cpus_of(self, node); }, "node"_a,
          "The CPUs of a node.")
      .def(
          "distances",
          [](const Files& self, NodeId node) {
            std::map<NodeId, unsigned> row;
            for (const auto& [pair, distance] : node_distances(self)) {
              if (pair.first == node) row[pair.second] = distance;
            }
            return row;
          },
          "node"_a, "Distances from a node, as firmware states them.")
      .def(
          "write_bandwidth",
          [](const Files& self, NodeId node) { return write_bandwidth(self, node); }, "node"_a,
          "Bytes per second, as firmware states it; None: unknown.")
      .def(
          "addresses", [](const Files& self, NodeId node) { return addresses_of(self, node); },
          "node"_a, "Physical memory of a node, as ranges that do not touch.")
      .def(
          "weights", [](const Files& self) { return kernel_weights(self); },
          "The kernel's weights of interleaving by node.")
      .def(
          "memory_group", [](const Files& self) { return memory_group(self); },
          "The group that counts this process's memory; None: there is none.")
      .def(
          "cpu_time_limit", [](const Files& self) { return cpu_time_limit(self); },
          "The CPU time of the tightest group; None: no limit.");
}

void bind_damon(nb::class_<Files>& files) {
  files
      .def(
          "kdamonds", [](const Files& self) { return there(kdamonds(self)); },
          "The kernel's threads for DAMON; None: no DAMON. DeniedError: takes root.")
      .def(
          "damon_holders", [](const Files& self) { return unwrap(damon_holders(self)); },
          "The switches of kernel features that use DAMON now.")
      .def(
          "check_damon_free",
          [](const Files& self, const std::string& config, const std::string& option) {
            unwrap(check_damon_free(self, config.c_str(), option.c_str()));
          },
          "config"_a, "option"_a,
          "Raises an Error if DAMON cannot be set up, with the reason and its users.");
}

}  // namespace

void bind_host(nb::module_& m) {
  m.attr("NUMA_BALANCING") = kNumaBalancing;
  m.attr("KDAMONDS") = kKdamonds;
  m.attr("WEIGHTS") = kWeights;
  m.attr("STATE_FOLDER") = kStateFolder;
  Record<Kdamond>(m, "Kdamond", "One of the kernel's threads for DAMON, as a program set it up.")
      .field("number", &Kdamond::number, "Its folder.")
      .field("state", &Kdamond::state, "on or off.")
      .field("pid", &Kdamond::pid, "PID of the thread.")
      .field("operations", &Kdamond::operations, "vaddr or paddr, by context.")
      .field("actions", &Kdamond::actions, "Actions of its schemes.");
  Record<MemoryGroup>(m, "MemoryGroup", "The group that counts this process's memory.")
      .computed(
          "version", [](const MemoryGroup& self) { return self.group.version2 ? 2 : 1; }, "1 or 2.")
      .computed(
          "name", [](const MemoryGroup& self) { return self.group.name; }, "'' for the root.")
      .computed(
          "folder", [](const MemoryGroup& self) { return self.group.folder(); },
          "A name of HostFiles.")
      .field("limit", &MemoryGroup::limit, "The tightest limit (bytes); None: no limit.")
      .field("limit_file", &MemoryGroup::limit_file, "Its file.")
      .field("used", &MemoryGroup::used, "Bytes; None: unknown.");
  Record<CpuTimeLimit>(m, "CpuTimeLimit", "CPU time of the tightest group.")
      .field("cpus", &CpuTimeLimit::cpus, "In CPUs.")
      .field("file", &CpuTimeLimit::file, "Its file.")
      .field("says", &CpuTimeLimit::says, "The file's text.")
      .computed("words", &CpuTimeLimit::words, "\"2.5 CPUs' time\"");
  nb::class_<Files> files(m, "HostFiles",
                          "Files of /proc, /sys and /run by names such as 'proc/swaps'.");
  bind_files(files);
  bind_facts(files);
  bind_damon(files);
  m.def(
      "kdamond_files",
      [](int number, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& regions,
         Nanoseconds sample, Nanoseconds aggregation, const std::string& action, NodeId target,
         std::pair<std::uint64_t, std::uint64_t> accesses, std::uint64_t least_age,
         std::uint64_t bytes_per_second) {
        const KdamondSetup setup{.regions = regions,
                                 .sample = sample,
                                 .aggregation = aggregation,
                                 .action = action,
                                 .target = target,
                                 .least_accesses = accesses.first,
                                 .most_accesses = accesses.second,
                                 .least_age = least_age,
                                 .bytes_per_second = bytes_per_second};
        return files_of(setup, number);
      },
      "number"_a, nb::kw_only(), "regions"_a, "sample"_a, "aggregation"_a, "action"_a, "target"_a,
      "accesses"_a, "least_age"_a, "bytes_per_second"_a,
      "The files of a kdamond on physical memory, and their values in order of writing.");
}

}  // namespace headrace::python
