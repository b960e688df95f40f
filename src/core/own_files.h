// SPDX-License-Identifier: Apache-2.0
// Descriptors that belong to the process that opened them: a child made by fork() closes its copies
// at its start. For devices and rings: the kernel ends their requests in flight only when the last
// process closes them, so a child's copy would keep them running after the owner's close.
// Thread-safe.
#pragma once

namespace headrace::own_files {

// As open(2) for reading and writing. No fork() can happen between the open and its registration
// here.
int open(const char* path);
// Registers a descriptor that was opened elsewhere.
void add(int descriptor);
// Unregisters a descriptor that the caller closes.
void remove(int descriptor);
// Closes a descriptor. Requires: opened or added here, in this process.
void close(int descriptor);

}  // namespace headrace::own_files

namespace headrace {

// A descriptor that its process closes; a child of fork() closes it at once. Thread-compatible.
class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  explicit OwnDescriptor(int descriptor);
  OwnDescriptor(OwnDescriptor&& other) noexcept;
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept;
  ~OwnDescriptor();
  int get() const { return descriptor_; }
  // Gives up the descriptor without closing it. In a child it is closed already, and its number may
  // be in use again.
  void forget() { descriptor_ = -1; }

 private:
  int descriptor_ = -1;
};

}  // namespace headrace
