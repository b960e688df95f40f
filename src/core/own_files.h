// SPDX-License-Identifier: Apache-2.0
// Descriptors that belong to the process that opened them: a child made by fork() closes its copies
// as it begins. For devices and rings, which end what is in flight when the last process that has
// them closes them, so that a copy would keep them at it behind the owner's back. Thread-safe.
#pragma once

namespace headrace::own_files {

// As open(2) for reading and writing. No fork() comes between the opening and its being known here.
int open(const char* path);
// One that was opened otherwise.
void add(int descriptor);
// Somebody else closes it.
void remove(int descriptor);
// Requires: opened or added here, in this process.
void close(int descriptor);

}  // namespace headrace::own_files
