// SPDX-License-Identifier: Apache-2.0
#include "memory/file_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "core/fail.h"
#include "core/own_files.h"

namespace headrace {
namespace {

// Opens a file without a name; returns -1 and sets errno on failure.
int open_nameless(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  // File systems without O_TMPFILE (overlayfs before 6.2, NFS).
  std::string name = folder + "/.headrace-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

// Reserves device space. Returns 0 or errno.
int take_room(int descriptor, Bytes bytes) {
  // Beyond this limit the kernel would end the process.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes.value > limit.rlim_cur) return EDQUOT;
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes.value));
  }
  return error;
}

std::string free_in(const std::string& folder) {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) return "an unknown amount";
  return to_string(Bytes{status.f_bavail * status.f_frsize});
}

// The size stays, and no process can map the file writable from now on.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

}  // namespace

Result<MappedMemory> map_file(const Node& storage, Bytes bytes, Bytes align) {
  if (storage.path.empty()) {
    return fail(ErrorCode::absent,
                "no folder is known on {}; discover this host's machine with a storage path",
                storage.name);
  }
  const OwnDescriptor file(open_nameless(storage.path));
  if (file.get() < 0) return fail_errno(errno, "cannot make a file in " + storage.path);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const Bytes length{(bytes.value + page - 1) / page * page};
  const int error = take_room(file.get(), length);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return fail(ErrorCode::exhausted,
                "{} do not fit in {} on {}; free there: {}; ask for less, or raise "
                "ulimit -f",
                to_string(length), storage.path, storage.name, free_in(storage.path));
  }
  if (error != 0) return fail_errno(error, "cannot take room in " + storage.path);
  auto mapping = MappedMemory::make(length, align, Bytes{page}, PROT_NONE);
  if (mapping) {
    mapping =
        MappedMemory::over(*std::move(mapping), PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  }
  if (!mapping) return fail_errno(mapping.error(), "cannot map a file in " + storage.path);
  return *std::move(mapping);
}

Result<SealedMemory> SealedMemory::make(Bytes bytes, Bytes align, std::optional<Bytes> pool) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (pool) {
    flags |= MFD_HUGETLB | static_cast<unsigned>(std::countr_zero(pool->value)) << MAP_HUGE_SHIFT;
  }
  OwnDescriptor file(::memfd_create("headrace", flags));
  if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(bytes.value)) != 0) {
    return fail_errno(errno, "cannot make shared memory of " + to_string(bytes));
  }
  auto mapping = MappedMemory::make(bytes, align, Bytes{1}, PROT_NONE);
  if (mapping) {
    mapping =
        MappedMemory::over(*std::move(mapping), PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  }
  if (!mapping) return fail_errno(mapping.error(), "cannot map shared memory");
  ::madvise(mapping->memory(), bytes.value, MADV_DONTFORK);
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return fail(ErrorCode::unsupported,
                "the kernel cannot forbid other processes to write to shared memory; Linux 5.1 "
                "can");
  }
  return SealedMemory{.mapping = *std::move(mapping), .file = std::move(file)};
}

Result<MappedMemory> map_shared(int descriptor) {
  struct stat status{};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(descriptor, &status) != 0) {
    return fail(ErrorCode::invalid,
                "the memory of the server can be cut or written by others; connect to a headrace "
                "serve of this version");
  }
  const Bytes length{static_cast<std::uint64_t>(status.st_size)};
  void* const mapped = ::mmap(nullptr, length.value, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "cannot map the memory of the server");
  MappedMemory memory(static_cast<std::byte*>(mapped), length);
  ::madvise(memory.memory(), length.value, MADV_DONTFORK);
  return memory;
}

}  // namespace headrace
