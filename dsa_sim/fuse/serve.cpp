// SPDX-License-Identifier: Apache-2.0
#include "dsa_sim/fuse/serve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "core/fail.h"
#include "core/mutex.h"

namespace headrace::emulator {
namespace {

// Bounds the closing of a file, for which the kernel waits without one.
constexpr Nanoseconds kDrain = std::chrono::seconds{2};

// The size of all files of sysfs.
constexpr off_t kAttributeSize = 4096;

// Nothing is cached: queues come and go, and values change.
constexpr double kFresh = 0;

// The process that a thread belongs to; 0: there is no such thread. FUSE names the calling thread.
pid_t process_of(pid_t thread) {
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  for (std::string key; status >> key; status.ignore(4096, '\n')) {
    pid_t process = 0;
    if (key == "Tgid:" && status >> process) return process;
  }
  return 0;
}

// A queue that a process has open.
struct Opened {
  pid_t process;
  std::unique_ptr<QueueFile> file;
};

// The state that the handlers share. Thread-safe.
class Server {
 public:
  Server(const Devices& of, const Tree& files, bool absent_pages_fault)
      : devices(of), tree(files), absent_pages_fault_(absent_pages_fault) {}

  // Returns the number of the file for `thread`'s process.
  Answer<std::uint64_t> open(const TreeNode& node, pid_t thread);
  // Requires: open, and not closed before the end of its use.
  Opened& opened(std::uint64_t number);
  void close(std::uint64_t number);

  const Devices& devices;
  const Tree& tree;

 private:
  const bool absent_pages_fault_;

  Mutex mutex_;
  std::uint64_t next_ GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, Opened> open_ GUARDED_BY(mutex_);
};

Answer<std::uint64_t> Server::open(const TreeNode& node, pid_t thread) {
  const pid_t process = process_of(thread);
  if (process == 0) return std::unexpected(std::errc::no_such_process);
  auto memory = ProcessMemory::open(process, absent_pages_fault_);
  if (!memory) return std::unexpected(std::errc::permission_denied);
  auto file = QueueFile::open(*node.device, node.queue, *std::move(memory));
  if (!file) return std::unexpected(file.error());
  const MutexLock lock(mutex_);
  open_.emplace(next_, Opened{process, *std::move(file)});
  return next_++;
}

Opened& Server::opened(std::uint64_t number) {
  const MutexLock lock(mutex_);
  return open_.at(number);
}

void Server::close(std::uint64_t number) {
  MutexLock lock(mutex_);
  const auto closed = open_.extract(number);  // destroyed after the lock
  lock.unlock();
}

// --- The handlers, one per request of the kernel; each replies exactly once. ---

Server& server_of(fuse_req_t request) { return *static_cast<Server*>(fuse_req_userdata(request)); }

int number_of(std::errc error) { return static_cast<int>(error); }

struct stat stat_of(std::uint64_t number, const TreeNode& node) {
  struct stat stat{};
  stat.st_ino = number;
  // Not S_IFCHR: such a file would be opened by the kernel's driver of that number.
  const bool directory = node.kind == TreeNode::Kind::directory;
  stat.st_mode = (directory ? S_IFDIR : S_IFREG) | node.mode;
  stat.st_nlink = directory ? 2 : 1;
  stat.st_uid = geteuid();
  stat.st_gid = getegid();
  if (node.kind == TreeNode::Kind::attribute) stat.st_size = kAttributeSize;
  return stat;
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  const Tree& tree = server_of(request).tree;
  const std::optional<std::uint64_t> number = tree.child(parent, name);
  const TreeNode* node = number ? tree.find(*number) : nullptr;
  if (node == nullptr) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_entry_param entry{};
  entry.ino = *number;
  entry.attr = stat_of(*number, *node);
  entry.attr_timeout = kFresh;
  entry.entry_timeout = kFresh;
  fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  const TreeNode* node = server_of(request).tree.find(number);
  if (node == nullptr) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  const struct stat stat = stat_of(number, *node);
  fuse_reply_attr(request, &stat, kFresh);
}

// Replies with the part of `all` at `offset`.
void reply_part(fuse_req_t request, std::string_view all, std::size_t size, off_t offset) {
  const std::size_t begin = std::min(all.size(), static_cast<std::size_t>(offset));
  fuse_reply_buf(request, all.data() + begin, std::min(size, all.size() - begin));
}

void readdir(fuse_req_t request, fuse_ino_t number, std::size_t size, off_t offset,
             fuse_file_info*) {
  const Tree& tree = server_of(request).tree;
  const TreeNode* node = tree.find(number);
  if (node == nullptr || node->kind != TreeNode::Kind::directory) {
    fuse_reply_err(request, node == nullptr ? ENOENT : ENOTDIR);
    return;
  }
  // Offsets are places in this list, which also has absent files.
  std::vector<std::pair<std::string, std::uint64_t>> entries = {
      {".", number}, {"..", node->parent == 0 ? number : node->parent}};
  for (const std::uint64_t child : node->children) {
    const TreeNode* found = tree.find(child);
    entries.emplace_back(found == nullptr ? "" : found->name, child);
  }
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (auto i = static_cast<std::size_t>(offset); i < entries.size(); ++i) {
    const TreeNode* found = tree.find(entries[i].second);
    if (found == nullptr || entries[i].first.empty()) continue;
    const struct stat stat = stat_of(entries[i].second, *found);
    const std::size_t needed =
        fuse_add_direntry(request, buffer.data() + used, size - used, entries[i].first.c_str(),
                          &stat, static_cast<off_t>(i + 1));
    if (needed > size - used) break;
    used += needed;
  }
  fuse_reply_buf(request, buffer.data(), used);
}

void open(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  Server& server = server_of(request);
  const TreeNode* node = server.tree.find(number);
  if (node == nullptr) {
    fuse_reply_err(request, ENXIO);  // a queue that went since it was looked up
    return;
  }
  const bool writes = (info->flags & O_ACCMODE) != O_RDONLY;
  if (node->kind == TreeNode::Kind::attribute && writes && (node->mode & 0222) == 0) {
    fuse_reply_err(request, EACCES);  // also for root, as in sysfs
    return;
  }
  if (node->kind == TreeNode::Kind::queue) {
    const Answer<std::uint64_t> opened = server.open(*node, fuse_req_ctx(request)->pid);
    if (!opened) {
      fuse_reply_err(request, number_of(opened.error()));
      return;
    }
    info->fh = *opened;
  }
  info->direct_io = 1;
  // ENOENT: nobody waits for this open() any more, so there will be no release().
  if (fuse_reply_open(request, info) == -ENOENT && node->kind == TreeNode::Kind::queue) {
    server.close(info->fh);
  }
}

void read(fuse_req_t request, fuse_ino_t number, std::size_t size, off_t offset, fuse_file_info*) {
  const Server& server = server_of(request);
  const TreeNode* node = server.tree.find(number);
  if (node != nullptr && node->kind == TreeNode::Kind::control) {
    reply_part(request, status_text(server.devices), size, offset);
  } else if (node != nullptr && node->kind == TreeNode::Kind::attribute) {
    reply_part(request, node->text(), size, offset);
  } else {
    fuse_reply_err(request, EINVAL);  // the driver has no read()
  }
}

bool is_of(fuse_req_t request, const Opened& opened) {
  return process_of(fuse_req_ctx(request)->pid) == opened.process;
}

Answer<std::size_t> write_queue(fuse_req_t request, const Opened& opened, std::string_view text) {
  if (!is_of(request, opened)) return std::unexpected(std::errc::operation_not_permitted);
  return opened.file->write(std::as_bytes(std::span(text)));
}

Answer<std::size_t> write_control(const Server& server, std::string_view text) {
  const Status done = control(server.devices, text);
  if (done) return text.size();
  std::fprintf(stderr, "headrace-dsa-sim: control: %s\n", done.error().message.c_str());
  return std::unexpected(done.error().code == ErrorCode::absent
                             ? std::errc::no_such_file_or_directory
                             : std::errc::invalid_argument);
}

void write(fuse_req_t request, fuse_ino_t, const char* data, std::size_t size, off_t,
           fuse_file_info* info) {
  Server& server = server_of(request);
  const std::string_view text(data, size);
  const Answer<std::size_t> answer = info->fh != 0
                                         ? write_queue(request, server.opened(info->fh), text)
                                         : write_control(server, text);
  if (answer) {
    fuse_reply_write(request, *answer);
  } else {
    fuse_reply_err(request, number_of(answer.error()));
  }
}

// At each close(). The kernel's driver drains at the last one, which FUSE reports to nobody who
// could wait, so this waits at each of the submitting process.
void flush(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  if (info->fh != 0) {
    const Opened& opened = server_of(request).opened(info->fh);
    if (is_of(request, opened)) opened.file->drain(kDrain);
  }
  fuse_reply_err(request, 0);
}

void release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  if (info->fh != 0) server_of(request).close(info->fh);
  fuse_reply_err(request, 0);
}

constexpr fuse_lowlevel_ops kOperations = {
    .lookup = lookup,
    .getattr = getattr,
    .open = open,
    .read = read,
    .write = write,
    .flush = flush,
    .release = release,
    .readdir = readdir,
};

// --- The session. ---

// The last message of libfuse before all is mounted, whose functions return only that they failed.
// One thread uses it.
std::string& last_words() {
  static std::string words;
  return words;
}

void listen(fuse_log_level, const char* format, va_list arguments) {
  std::array<char, 512> line;
  std::vsnprintf(line.data(), line.size(), format, arguments);
  std::string& words = last_words();
  words = line.data();
  while (words.ends_with('\n')) words.pop_back();
}

// Checked first, since libfuse has no codes for its reasons.
Status check_mount_point(const std::string& path) {
  struct stat here{};
  struct stat above{};
  if (stat(path.c_str(), &here) != 0) {
    // A server that was killed leaves this.
    if (errno == ENOTCONN) {
      return fail(ErrorCode::exhausted,
                  "{} is the mount point of an emulator that died; umount it first", path);
    }
    return fail_errno(errno, fmt::format("cannot serve {}", path));
  }
  if (!S_ISDIR(here.st_mode)) {
    return fail(ErrorCode::invalid, "{} is not a directory; give an empty one", path);
  }
  if (stat((path + "/..").c_str(), &above) == 0 && here.st_dev != above.st_dev) {
    return fail(ErrorCode::exhausted, "something is mounted on {}; give another directory", path);
  }
  const int fuse = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fuse < 0) {
    return fail_errno(errno,
                      "cannot open /dev/fuse (load the module fuse, or let the container "
                      "have the device)");
  }
  ::close(fuse);
  return {};
}

// libfuse's structures are released in the reverse order.
struct Session {
  explicit Session(fuse_session* made) : session(made) {}
  ~Session() {
    if (mounted) fuse_session_unmount(session);
    if (handles_signals) fuse_remove_signal_handlers(session);
    if (session != nullptr) fuse_session_destroy(session);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  fuse_session* const session;
  bool handles_signals = false;
  bool mounted = false;
};

// If root serves, other users may use the files; a user may not allow that by default.
std::string mount_options() {
  const std::string options = "fsname=headrace-dsa-sim,default_permissions";
  return geteuid() == 0 ? options + ",allow_other" : options;
}

fuse_session* make_session(Server& server) {
  std::string options = mount_options();
  std::string program = "headrace-dsa-sim";
  std::string dash = "-o";
  std::array<char*, 3> words = {program.data(), dash.data(), options.data()};
  fuse_args arguments = FUSE_ARGS_INIT(static_cast<int>(words.size()), words.data());
  fuse_session* session = fuse_session_new(&arguments, &kOperations, sizeof(kOperations), &server);
  fuse_opt_free_args(&arguments);
  return session;
}

Status mount_failed(int error, const std::string& mount_point) {
  if (error == EPERM || error == EACCES) {
    return fail(ErrorCode::denied,
                "may not mount {}; do it as root, or where fusermount3 is installed and allowed",
                mount_point);
  }
  return fail(ErrorCode::io, "cannot mount {}: {}", mount_point,
              last_words().empty() ? "libfuse does not say why" : last_words());
}

Status loop(fuse_session* session) {
  fuse_loop_config* config = fuse_loop_cfg_create();
  const int ended = fuse_session_loop_mt(session, config);
  fuse_loop_cfg_destroy(config);
  // Positive: a signal.
  if (ended >= 0) return {};
  return fail_errno(-ended, "cannot go on serving");
}

}  // namespace

Status serve(const Devices& devices, const Tree& tree, const std::string& mount_point,
             bool absent_pages_fault, const std::function<void()>& mounted) {
  HEADRACE_TRY_STATUS(check_mount_point(mount_point));
  fuse_set_log_func(listen);
  Server server(devices, tree, absent_pages_fault);
  Session session(make_session(server));
  if (session.session == nullptr) {
    return fail(ErrorCode::io, "libfuse makes no session: {}", last_words());
  }
  session.handles_signals = fuse_set_signal_handlers(session.session) == 0;
  errno = 0;
  if (fuse_session_mount(session.session, mount_point.c_str()) != 0) {
    return mount_failed(errno, mount_point);
  }
  session.mounted = true;
  fuse_set_log_func(nullptr);  // to stderr from now on
  mounted();
  return loop(session.session);
}

}  // namespace headrace::emulator
